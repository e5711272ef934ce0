//! The stats commands, with memcached's names for what has a counterpart here. The whole cache appears as slab class 1.
//!
//! Plain `stats` stays below 4 KiB with one token per value, which some collectors rely on; what only this server
//! knows is in `stats ebbtide`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ebbtide::FlashStats;
use ebbtide_protocol::reply::{self, stat};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use super::{Executor, FlashGets, extstore, tls};
use crate::auth::Auth;
use crate::counters::CommandTotals;
use crate::shared::lock;
use crate::watch;
use crate::{Listen, VERSION};

/// Bytes of a bucket of the index.
const BUCKET_BYTES: u64 = 64;
/// The only slab class.
const CLASS: u32 = 1;

/// Counts since the last `stats reset`, and the cache as it is.
struct StatsView {
    cache: ebbtide::Stats,
    totals: CommandTotals,
    stored: u64,
    evictions: u64,
    expired: u64,
    expired_found: u64,
    flushed_found: u64,
    accepted: u64,
    rejected: u64,
    listen_disabled: u64,
    listen_disabled_us: u64,
    /// Since the start, and its gets at the reset.
    flash: Option<(FlashStats, FlashGets)>,
}

impl Executor {
    pub(super) fn stats(&self, topic: Option<&[u8]>, argument: Option<&[u8]>, connection: usize, out: &mut Vec<u8>) {
        match topic {
            None => self.general(out),
            Some(b"settings") => self.settings(out),
            Some(b"items") => self.items(out),
            Some(b"slabs") => self.slabs(out),
            Some(b"conns") => self.connections(connection, out),
            // Pages are no pages here: there is nothing to say of each.
            Some(b"extstore") => {}
            Some(b"sizes") => stat(out, "sizes_status", "disabled"),
            Some(b"ebbtide") => self.ebbtide(out),
            Some(b"detail") if !self.shared.options.allow_dump => {
                return out.extend_from_slice(reply::DETAIL_NOT_ALLOWED);
            }
            Some(b"detail") => match argument {
                Some(b"dump") => self.shared.prefix_stats.dump(out),
                argument => return out.extend_from_slice(self.switch_detail(argument)),
            },
            Some(b"reset") => {
                self.shared.reset_stats();
                self.shared.prefix_stats.reset();
                return out.extend_from_slice(reply::RESET);
            }
            Some(_) => return out.extend_from_slice(reply::ERROR),
        }
        out.extend_from_slice(reply::END);
    }

    fn switch_detail(&self, argument: Option<&[u8]>) -> &'static [u8] {
        let on = match argument {
            Some(b"on") => true,
            Some(b"off") => false,
            _ => return reply::DETAIL_USAGE,
        };
        self.shared.prefix_stats.set_counting(on);
        reply::OK
    }

    fn counts(&self) -> StatsView {
        let shared = &self.shared;
        let baseline = lock(&shared.baseline);
        // Behind the lock, as all that is subtracted from: a look from before a reset would be less than what it
        // remembers.
        let cache = self.cache.stats();
        StatsView {
            totals: shared.totals().since(&baseline.totals),
            stored: cache.stored_total - baseline.cache.stored_total,
            evictions: cache.evictions - baseline.cache.evictions,
            expired: cache.expired - baseline.cache.expired,
            expired_found: cache.expired_found - baseline.cache.expired_found,
            flushed_found: cache.flushed_found - baseline.cache.flushed_found,
            accepted: shared.accepted.load(Ordering::Relaxed) - baseline.accepted,
            rejected: shared.rejected.load(Ordering::Relaxed) - baseline.rejected,
            listen_disabled: shared.listen_disabled.load(Ordering::Relaxed) - baseline.listen_disabled,
            listen_disabled_us: shared.listen_disabled_us.load(Ordering::Relaxed) - baseline.listen_disabled_us,
            flash: self.cache.flash_stats().map(|flash| (flash, baseline.gets)),
            cache,
        }
    }

    fn general(&self, out: &mut Vec<u8>) {
        let shared = &self.shared;
        let counts = self.counts();
        let cache = &counts.cache;
        stat(out, "pid", std::process::id());
        stat(out, "uptime", (shared.uptime() + self.cache.skipped_time()).as_secs());
        stat(out, "time", self.unix_now().as_secs());
        stat(out, "version", VERSION);
        stat(out, "pointer_size", usize::BITS);
        if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
            stat(out, "rusage_user", seconds(usage.user_time()));
            stat(out, "rusage_system", seconds(usage.system_time()));
        }
        let open = lock(&shared.connections).len();
        stat(out, "max_connections", shared.options.max_connections);
        stat(out, "curr_connections", open);
        stat(out, "total_connections", counts.accepted);
        stat(out, "rejected_connections", counts.rejected);
        stat(out, "connection_structures", open);
        commands(&counts, out);
        if shared.options.idle_timeout.is_some() {
            stat(out, "idle_kicks", counts.totals.idle_kicks);
        }
        log(&shared.watching.counts(), out);
        if let Some((flash, _)) = &counts.flash {
            extstore::storage(flash, out);
        }
        stat(out, "bytes_read", counts.totals.bytes_read);
        stat(out, "bytes_written", counts.totals.bytes_written);
        stat(out, "limit_maxbytes", cache.memory_limit_bytes);
        let accepting = shared.accepting.load(Ordering::Relaxed);
        stat(out, "accepting_conns", u8::from(accepting));
        stat(out, "listen_disabled_num", counts.listen_disabled);
        stat(out, "time_in_listen_disabled_us", counts.listen_disabled_us);
        stat(out, "threads", shared.options.threads);
        stat(out, "conn_yields", counts.totals.yields);
        if let Some(certificates) = &shared.certificates {
            stat(out, "ssl_handshake_errors", counts.totals.tls_handshake_errors);
            stat(out, "time_since_server_cert_refresh", certificates.age().as_secs());
        }
        stat(out, "hash_power_level", (cache.index_bytes / BUCKET_BYTES).max(1).ilog2());
        stat(out, "hash_bytes", cache.index_bytes);
        stat(out, "bytes", cache.live_bytes);
        stat(out, "curr_items", cache.items);
        stat(out, "total_items", counts.stored);
        stat(out, "slab_global_page_pool", cache.segments_free);
        stat(out, "evictions", counts.evictions);
        stat(out, "reclaimed", counts.expired);
    }

    fn settings(&self, out: &mut Vec<u8>) {
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
        tls::settings(options.tls.as_ref(), out);
        stat(out, "client_flags_size", size_of::<u32>());
    }

    fn items(&self, out: &mut Vec<u8>) {
        let counts = self.counts();
        let cache = &counts.cache;
        if cache.items == 0 {
            return;
        }
        let mut item = |name: &str, value: u64| stat(out, &format!("items:{CLASS}:{name}"), value);
        let census = self.cache.segment_snapshot();
        item("number", cache.items);
        item("age", census.age_seconds);
        item("mem_requested", cache.live_bytes);
        item("evicted", counts.evictions);
        item("outofmemory", counts.totals.store_no_memory);
        item("reclaimed", counts.expired);
    }

    fn slabs(&self, out: &mut Vec<u8>) {
        let counts = self.counts();
        let (cache, totals) = (&counts.cache, &counts.totals);
        // The two are not of the same moment.
        let used = cache.segments_total.saturating_sub(cache.segments_free);
        let mut class = |name: &str, value: u64| stat(out, &format!("{CLASS}:{name}"), value);
        class("chunk_size", cache.segment_bytes);
        class("chunks_per_page", 1);
        class("total_pages", cache.segments_total);
        class("total_chunks", cache.segments_total);
        class("used_chunks", used);
        class("free_chunks", cache.segments_free);
        class("free_chunks_end", 0);
        class("get_hits", totals.get_hits);
        class("cmd_set", totals.set_commands);
        class("delete_hits", totals.delete_hits);
        class("incr_hits", totals.incr_hits);
        class("decr_hits", totals.decr_hits);
        class("cas_hits", totals.cas_hits);
        class("cas_badval", totals.cas_badval);
        class("touch_hits", totals.touch_hits);
        stat(out, "active_slabs", 1);
        stat(out, "total_malloced", cache.memory_used_bytes);
    }

    fn connections(&self, asking: usize, out: &mut Vec<u8>) {
        let shared = &self.shared;
        let now = shared.uptime();
        for (id, name) in shared.listeners.iter().enumerate() {
            stat(out, &format!("{id}:addr"), name);
            stat(out, &format!("{id}:state"), "conn_listening");
            stat(out, &format!("{id}:secs_since_last_cmd"), now.as_secs());
        }
        for (id, info) in lock(&shared.connections).iter() {
            let number = id + shared.listeners.len();
            let state = match id == asking {
                true => "conn_parse_cmd",
                false => info.state_name(),
            };
            let active = Duration::from_millis(info.active_ms.load(Ordering::Relaxed));
            let listener = info.listener.map(|listener| &shared.listeners[listener]);
            if listener.is_none() {
                stat(out, &format!("{number}:UDP"), "UDP");
            }
            stat(out, &format!("{number}:addr"), &info.peer);
            if let Some(listener) = listener {
                stat(out, &format!("{number}:listen_addr"), listener);
            }
            stat(out, &format!("{number}:state"), state);
            stat(out, &format!("{number}:secs_since_last_cmd"), now.saturating_sub(active).as_secs());
        }
    }

    fn ebbtide(&self, out: &mut Vec<u8>) {
        let cache = self.cache.stats();
        stat(out, "version", env!("CARGO_PKG_VERSION"));
        stat(out, "memory_limit_bytes", cache.memory_limit_bytes);
        stat(out, "memory_used_bytes", cache.memory_used_bytes);
        let census = self.cache.segment_snapshot();
        stat(out, "live_bytes", census.live_bytes);
        stat(out, "expired_bytes", census.expired_bytes);
        stat(out, "dead_bytes", census.dead_bytes);
        stat(out, "metadata_bytes", census.metadata_bytes);
        stat(out, "free_bytes", census.free_bytes);
        stat(out, "index_bytes", cache.index_bytes);
        stat(out, "segment_bytes", cache.segment_bytes);
        stat(out, "segments_total", cache.segments_total);
        stat(out, "segments_free", census.segments_free);
        stat(out, "segments_open", census.segments_open);
        stat(out, "segments_sealed", census.segments_sealed);
        stat(out, "segments_retired", census.segments_retired);
        stat(out, "items", cache.items);
        stat(out, "stored_total", cache.stored_total);
        stat(out, "evictions", cache.evictions);
        stat(out, "index_replaced", cache.index_replaced);
        stat(out, "expired", cache.expired);
        stat(out, "flushed", cache.flushed);
        stat(out, "segments_expired", cache.segments_expired);
        stat(out, "segments_evicted", cache.segments_evicted);
        stat(out, "segments_compacted", cache.segments_compacted);
        stat(out, "contiguous_limit", self.cache.contiguous_limit());
        if let Some(verdict) = self.shared.sizing.verdict() {
            stat(out, "size_verdict", verdict);
        }
        if let Some(flash) = self.cache.flash_stats() {
            extstore::ebbtide_stats(&flash, out);
        }
    }
}

/// What has come of watching. A worker's buffer is the watcher's, so a worker drops nothing of its own.
fn log(counts: &watch::WatchCounts, out: &mut Vec<u8>) {
    stat(out, "log_worker_dropped", 0);
    stat(out, "log_worker_written", counts.lines);
    stat(out, "log_watcher_skipped", counts.skipped);
    stat(out, "log_watcher_sent", counts.sent);
    stat(out, "log_watchers", counts.watchers);
}

/// The counts of commands and what came of them.
fn commands(counts: &StatsView, out: &mut Vec<u8>) {
    let totals = &counts.totals;
    stat(out, "cmd_get", totals.get_hits + totals.get_misses);
    stat(out, "cmd_set", totals.set_commands);
    stat(out, "cmd_flush", totals.flush_commands);
    stat(out, "cmd_touch", totals.touch_hits + totals.touch_misses);
    stat(out, "cmd_meta", totals.meta_commands);
    stat(out, "get_hits", totals.get_hits);
    stat(out, "get_misses", totals.get_misses);
    stat(out, "get_expired", counts.expired_found);
    stat(out, "get_flushed", counts.flushed_found);
    if let Some((flash, reset)) = &counts.flash {
        extstore::gets(flash, *reset, out);
    }
    stat(out, "delete_misses", totals.delete_misses);
    stat(out, "delete_hits", totals.delete_hits);
    stat(out, "incr_misses", totals.incr_misses);
    stat(out, "incr_hits", totals.incr_hits);
    stat(out, "decr_misses", totals.decr_misses);
    stat(out, "decr_hits", totals.decr_hits);
    stat(out, "cas_misses", totals.cas_misses);
    stat(out, "cas_hits", totals.cas_hits);
    stat(out, "cas_badval", totals.cas_badval);
    stat(out, "touch_hits", totals.touch_hits);
    stat(out, "touch_misses", totals.touch_misses);
    stat(out, "store_too_large", totals.store_too_large);
    stat(out, "store_no_memory", totals.store_no_memory);
    stat(out, "auth_cmds", totals.auth_commands);
    stat(out, "auth_errors", totals.auth_errors);
}

/// Seconds with six digits behind the point.
fn seconds(time: TimeVal) -> String {
    format!("{}.{:06}", time.tv_sec(), time.tv_usec())
}

pub(super) fn yes_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}
