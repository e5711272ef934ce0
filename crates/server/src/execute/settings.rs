//! `stats settings`, with memcached's names.

use std::sync::atomic::Ordering;

use ebbtide_protocol::reply::stat;

use super::{Executor, extstore};
use crate::auth::Auth;
use crate::{Listen, TlsOptions};

impl Executor {
    pub(super) fn settings(&self, out: &mut Vec<u8>) {
        let options = &self.shared.options;
        let tcp = options.listeners.iter().find_map(|listen| match listen {
            Listen::Tcp(address) | Listen::Tls(address) => Some(address),
            Listen::Udp(_) | Listen::Unix { .. } => None,
        });
        let udp = options.listeners.iter().find_map(|listen| match listen {
            Listen::Udp(address) => Some(address.port()),
            _ => None,
        });
        let unix = options.listeners.iter().find_map(|listen| match listen {
            Listen::Unix { path, mode } => Some((path, *mode)),
            Listen::Tcp(_) | Listen::Tls(_) | Listen::Udp(_) => None,
        });
        stat(out, "maxbytes", self.cache.stats().memory_limit_bytes);
        stat(out, "maxconns", options.max_connections);
        stat(out, "tcpport", tcp.map_or(0, |address| address.port()));
        stat(out, "udpport", udp.unwrap_or(0));
        match tcp {
            Some(address) => stat(out, "inter", address.ip()),
            None => stat(out, "inter", "NULL"),
        }
        let verbosity = self.shared.verbosity.load(Ordering::Relaxed);
        stat(out, "verbosity", verbosity);
        stat(out, "policy", self.cache.policy().name());
        stat(out, "segment_size", self.cache.stats().segment_bytes);
        stat(out, "pools", self.router.set().rules().count());
        stat(out, "evictions", if self.cache.evicts() { "on" } else { "off" });
        match unix {
            Some((path, _)) => stat(out, "domain_socket", path.display()),
            None => stat(out, "domain_socket", "NULL"),
        }
        let mode = unix.map_or(0o700, |(_, mode)| mode);
        stat(out, "umask", format_args!("{mode:o}"));
        stat(out, "shutdown_command", yes_no(options.allow_shutdown));
        stat(out, "num_threads", options.threads);
        stat(out, "num_threads_per_udp", 1);
        stat(out, "stat_key_prefix", char::from(self.shared.prefix_stats.delimiter));
        stat(out, "detail_enabled", yes_no(self.shared.prefix_stats.is_counting()));
        stat(out, "reqs_per_event", options.requests_per_event);
        stat(out, "cas_enabled", "yes");
        stat(out, "tcp_backlog", options.backlog);
        stat(out, "binding_protocol", options.binding_protocol());
        stat(out, "auth_enabled_sasl", yes_no(matches!(options.auth, Some(Auth::Sasl(_)))));
        match &options.auth {
            Some(Auth::Ascii(users)) => stat(out, "auth_enabled_ascii", users.path().display()),
            _ => stat(out, "auth_enabled_ascii", "no"),
        }
        stat(out, "item_size_max", self.cache.max_value().as_bytes());
        stat(out, "maxconns_fast", "yes");
        stat(out, "flush_enabled", yes_no(options.allow_flush));
        stat(out, "dump_enabled", yes_no(options.allow_dump));
        let idle = options.idle_timeout.map_or(0, |timeout| timeout.as_secs());
        stat(out, "idle_timeout", idle);
        stat(out, "track_sizes", "no");
        if let (Some(flash), Some(limits)) = (self.cache.flash_stats(), self.cache.flash_limits()) {
            extstore::settings(&flash, &limits, out);
        }
        tls_settings(options.tls.as_ref(), out);
        stat(out, "client_flags_size", size_of::<u32>());
    }
}

fn yes_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

/// memcached's names and numbers; without TLS its defaults.
fn tls_settings(tls: Option<&TlsOptions>, out: &mut Vec<u8>) {
    stat(out, "ssl_enabled", yes_no(tls.is_some()));
    let or_null = |path: Option<&std::path::PathBuf>| path.map_or("NULL".to_owned(), |path| path.display().to_string());
    let defaults = TlsOptions::new("NULL");
    let options = tls.unwrap_or(&defaults);
    stat(out, "ssl_chain_cert", options.chain_cert.display());
    stat(out, "ssl_key", or_null(options.key.as_ref()));
    stat(out, "ssl_verify_mode", options.client_certificates.number());
    stat(out, "ssl_keyformat", options.key_format.number());
    stat(out, "ssl_ciphers", options.ciphers.as_deref().unwrap_or("NULL"));
    stat(out, "ssl_ca_cert", or_null(options.ca_cert.as_ref()));
    stat(out, "ssl_wbuf_size", options.write_buffer_bytes);
    stat(out, "ssl_session_cache", yes_no(options.session_cache));
    stat(out, "ssl_kernel_tls", "no");
    stat(out, "ssl_min_version", options.min_version.name());
}
