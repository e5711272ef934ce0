//! refresh_certs, and what `stats settings` says of TLS.

use ebbtide_protocol::reply::{self, stat};

use super::Executor;
use super::stats::yes_no;
use crate::TlsOptions;
use crate::output::Output;

impl Executor {
    /// Connections that are open keep the certificate that they have seen.
    pub(super) fn refresh_certificates(&self, output: &mut Output) {
        let out = output.bytes();
        let Some(certificates) = &self.shared.certificates else {
            return out.extend_from_slice(reply::TLS_NOT_ENABLED);
        };
        match certificates.refresh() {
            Ok(()) => out.extend_from_slice(reply::OK),
            Err(error) => {
                out.extend_from_slice(error.to_string().as_bytes());
                out.extend_from_slice(reply::LINE_END);
            }
        }
    }
}

/// memcached's names and numbers; without TLS its defaults.
pub fn settings(tls: Option<&TlsOptions>, out: &mut Vec<u8>) {
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
