//! `stats pools`, and pools as slab classes in `stats items` and `stats slabs`. A class is a pool: class 1 is the pool
//! `default`, which is the whole cache of a server without pools.

use ebbtide::memcached::{Pool, Stats};
use ebbtide_protocol::encoding::uri_encode;
use ebbtide_protocol::reply::stat;

use super::Executor;
use super::stats::StatsView;
use crate::pools::PoolReading;
use crate::statistics::{POOL_COMPACT, POOL_COUNTS, POOL_FLASH, POOL_MEMORY, POOL_NOW, write_prefixed_stats};
use crate::sync::lock;

/// Prefixes as one token: each URI-encoded, which leaves no comma in it, and commas between them.
fn encoded_list(prefixes: &[Vec<u8>]) -> String {
    let mut list = Vec::new();
    for prefix in prefixes {
        if !list.is_empty() {
            list.push(b',');
        }
        uri_encode(&mut list, prefix);
    }
    String::from_utf8_lossy(&list).into_owned()
}

impl Executor {
    fn pool_readings(&self) -> Vec<PoolReading> {
        self.router.set().read(&self.shared.totals())
    }

    pub(super) fn pool_stats(&self, out: &mut Vec<u8>) {
        let windows = lock(&self.shared.recent_pools).clone();
        for reading in self.pool_readings() {
            let rule = &reading.rule;
            let prefix = &format!("{}:", rule.name);
            write_prefixed_stats(prefix, POOL_MEMORY, &reading, out);
            write_prefixed_stats(prefix, POOL_COUNTS, &reading, out);
            if let Some(window) = windows.iter().find(|window| window.pool == rule.name) {
                write_prefixed_stats(prefix, POOL_NOW, window, out);
            }
            if let Some(flash) = &reading.flash {
                write_prefixed_stats(prefix, POOL_FLASH, flash, out);
            }
            if let Some(compact) = &reading.compact() {
                stat(out, &format!("{prefix}kind"), "compact");
                write_prefixed_stats(prefix, POOL_COMPACT, compact, out);
            }
            if !rule.prefixes.is_empty() {
                stat(out, &format!("{prefix}prefixes"), encoded_list(&rule.prefixes));
            }
            if let Some(ratio) = rule.target_hit_ratio {
                stat(out, &format!("{prefix}target_hit_ratio"), ratio);
            }
            if let Some(policy) = reading.pool.as_ref().map(Pool::policy) {
                stat(out, &format!("{prefix}policy"), policy.name());
            }
        }
    }

    pub(super) fn items(&self, out: &mut Vec<u8>) {
        for reading in self.pool_readings() {
            let PoolReading { class, pool, stats, evicted_idle_seconds, since_reset, .. } = &reading;
            if stats.items == 0 {
                continue;
            }
            let mut item = |name: &str, value: u64| stat(out, &format!("items:{class}:{name}"), value);
            item("number", stats.items);
            item("age", pool.as_ref().map_or(0, |pool| pool.segment_snapshot().age_seconds));
            item("mem_requested", stats.live_bytes);
            item("evicted", since_reset.evictions);
            // A compact pool keeps no times and no reads.
            if pool.is_some() {
                item("evicted_time", *evicted_idle_seconds);
            }
            item("outofmemory", since_reset.refused);
            item("reclaimed", since_reset.expired);
            if pool.is_some() {
                item("evicted_unfetched", since_reset.unread_evictions);
            }
        }
    }

    pub(super) fn slabs(&self, out: &mut Vec<u8>) {
        let counts = self.counts();
        let readings = self.pool_readings();
        for reading in &readings {
            let mut class = |name: &str, value: u64| stat(out, &format!("{}:{name}", reading.class), value);
            chunks(&reading.stats, &mut class);
            match self.router.is_single() {
                true => commands(&counts, &mut class),
                false => {
                    class("get_hits", reading.since_reset.gets.hits);
                    class("cmd_set", reading.since_reset.stored);
                }
            }
        }
        stat(out, "active_slabs", readings.len());
        stat(out, "total_malloced", counts.cache.memory_used_bytes);
    }
}

/// Segments as chunks of pages.
fn chunks(stats: &Stats, class: &mut impl FnMut(&str, u64)) {
    // The two values are not read at the same moment.
    let used = stats.segments_total.saturating_sub(stats.segments_free);
    class("chunk_size", stats.segment_bytes);
    class("chunks_per_page", 1);
    class("total_pages", stats.segments_total);
    class("total_chunks", stats.segments_total);
    class("used_chunks", used);
    class("free_chunks", stats.segments_free);
    class("free_chunks_end", 0);
}

/// The commands of a server without pools.
fn commands(counts: &StatsView, class: &mut impl FnMut(&str, u64)) {
    let totals = &counts.totals;
    class("get_hits", totals.get_hits);
    class("cmd_set", totals.set_commands);
    class("delete_hits", totals.delete_hits);
    class("incr_hits", totals.incr_hits);
    class("decr_hits", totals.decr_hits);
    class("cas_hits", totals.cas_hits);
    class("cas_badval", totals.cas_badval);
    class("touch_hits", totals.touch_hits);
}
