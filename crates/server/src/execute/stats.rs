//! The stats commands, with memcached's names for statistics that it has, too.
//!
//! Plain `stats` stays below 4 KiB with one token per value, which some collectors rely on; statistics that only this
//! server has are in `stats ebbtide`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ebbtide::memcached::FlashStats;
use ebbtide_protocol::reply::{self, stat};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use super::{Executor, extstore};
use crate::VERSION;
use crate::counters::CommandTotals;
use crate::extstore_counts::{FlashGets, health};
use crate::statistics::{self, CACHE, FLASH, MEMORY_FILE, MemoryFileReading, NOW, Readings, SERVER};
use crate::sync::lock;
use crate::watch;

/// Bytes of a bucket of the index.
const BUCKET_BYTES: u64 = 64;

/// Counts since the last `stats reset`, and the cache as it is.
pub(super) struct StatsView {
    pub cache: ebbtide::memcached::Stats,
    pub totals: CommandTotals,
    stored: u64,
    pub evictions: u64,
    unread_evictions: u64,
    pub expired: u64,
    expired_found: u64,
    flushed_found: u64,
    accepted: u64,
    rejected: u64,
    listen_disabled: u64,
    listen_disabled_us: u64,
    /// Statistics of flash since the start, and its gets at the reset.
    flash: Option<(FlashStats, FlashGets)>,
}

impl Executor {
    pub(super) fn stats(&self, topic: Option<&[u8]>, argument: Option<&[u8]>, connection: usize, out: &mut Vec<u8>) {
        match topic {
            None => self.general(out),
            Some(b"settings") => self.settings(out),
            Some(b"items") => self.items(out),
            Some(b"slabs") => self.slabs(out),
            Some(b"pools") => self.pool_stats(out),
            Some(b"conns") => self.connections(connection, out),
            // Flash has no pages of extstore: nothing is listed.
            Some(b"extstore") => {}
            Some(b"sizes") => stat(out, "sizes_status", "disabled"),
            Some(b"ebbtide") => match argument {
                None => self.ebbtide(out),
                Some(b"ttls") => self.memory_by_ttl(out),
                Some(b"sizes") => self.memory_by_size(out),
                Some(_) => return out.extend_from_slice(reply::ERROR),
            },
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

    pub(super) fn counts(&self) -> StatsView {
        let shared = &self.shared;
        let baseline = lock(&shared.baseline);
        // Read under the lock, like all values that a baseline is subtracted from: a value read before a reset may be
        // less than the baseline.
        let cache = self.cache.stats();
        StatsView {
            totals: shared.totals().since(&baseline.totals),
            stored: cache.stored_total - baseline.cache.stored_total,
            evictions: cache.evictions - baseline.cache.evictions,
            // Of fewer pools after a reload.
            unread_evictions: shared.pools.current().unread_evictions().saturating_sub(baseline.unread_evictions),
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
        stat(out, "evicted_unfetched", counts.unread_evictions);
        stat(out, "evictions", counts.evictions);
        stat(out, "reclaimed", counts.expired);
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
        stat(out, "version", env!("CARGO_PKG_VERSION"));
        stat(out, "policy", self.cache.policy().name());
        stat(out, "pools", self.router.set().rules().count());
        let readings = Readings::of(&self.shared);
        statistics::write_stats(CACHE, &readings, out);
        statistics::write_stats(SERVER, &readings, out);
        if self.shared.admin_address.is_some() {
            let recent = *lock(&self.shared.recent);
            statistics::write_stats(NOW, &recent, out);
        }
        stat(out, "contiguous_limit", self.cache.contiguous_limit());
        if let Some(address) = self.shared.admin_address {
            stat(out, "admin_address", address);
            let (level, sentence) = lock(&self.shared.headline).clone();
            stat(out, "headline", sentence);
            stat(out, "headline_level", level.name());
        }
        if let Some(verdict) = self.shared.sizing.verdict() {
            stat(out, "size_verdict", verdict);
        }
        if let Some(file) = MemoryFileReading::of(&self.cache) {
            statistics::write_stats(MEMORY_FILE, &file, out);
        }
        if let Some(entropy) = self.shared.sizing.miss_entropy() {
            stat(out, "miss_entropy", entropy);
        }
        if let Some(step) = self.cache.memory_monitor().and_then(|monitor| monitor.last_step) {
            stat(out, "memory_monitor_last_step", step);
        }
        if let Some(division) = self.shared.sizing.division() {
            stat(out, "pool_division", division);
        }
        if let Some(policies) = self.shared.sizing.policies() {
            stat(out, "pool_policies", policies);
        }
        if let Some(flash) = self.cache.flash_stats() {
            stat(out, "flash_health", health(flash.tier.device.health));
            statistics::write_stats(FLASH, &flash, out);
        }
    }
}

/// Counts of watching. Workers write into the buffers of watchers, so a worker drops no line itself.
fn log(counts: &watch::WatchCounts, out: &mut Vec<u8>) {
    stat(out, "log_worker_dropped", 0);
    stat(out, "log_worker_written", counts.lines);
    stat(out, "log_watcher_skipped", counts.skipped);
    stat(out, "log_watcher_sent", counts.sent);
    stat(out, "log_watchers", counts.watchers);
}

/// Commands by result.
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
