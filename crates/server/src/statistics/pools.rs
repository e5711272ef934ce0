//! Gauges and counters of each pool, and its rates. `stats pools` counts since the last reset, all others since the
//! start.

use ebbtide::memcached::{CompactSizes, CompactStats, FlashPoolStats, HitRatio};

use super::Metric::{Counter, CounterBy, Gauge, None};
use super::{Number, Row, row};
use crate::observe::PoolWindow;
use crate::pools::PoolReading;

#[rustfmt::skip]
pub const POOL_MEMORY: &[Row<PoolReading>] = &[
    row("class", None, "class", |r| u64::from(r.class).into()),
    row("limit_bytes", Gauge("ebbtide_pool_memory_limit_bytes", "Memory that the pool may use."), "limit_bytes", |r| r.stats.memory_limit_bytes.into()),
    row("used_bytes", Gauge("ebbtide_pool_memory_used_bytes", "Memory of the pool but for free segments."), "used_bytes", |r| r.stats.memory_used_bytes.into()),
    row("", None, "live_bytes", |r| r.stats.live_bytes.into()),
    row("items", Gauge("ebbtide_pool_items", "Objects in the pool."), "items", |r| r.stats.items.into()),
];

#[rustfmt::skip]
pub const POOL_COUNTS: &[Row<PoolReading>] = &[
    row("hits", None, "", |r| r.since_reset.gets.hits.into()),
    row("", None, "hits", |r| r.totals.gets.hits.into()),
    row("misses", None, "", |r| r.since_reset.gets.misses.into()),
    row("", None, "misses", |r| r.totals.gets.misses.into()),
    Row::Each { metric: CounterBy("ebbtide_pool_gets_total", "Gets of keys of the pool, by result.", "result"), api: "", read: |r| vec![("hit", r.totals.gets.hits), ("miss", r.totals.gets.misses)] },
    row("", Counter("ebbtide_pool_stores_total", "Values stored in the pool."), "stored", |r| r.totals.stored.into()),
    row("evictions", None, "", |r| r.since_reset.evictions.into()),
    row("", Counter("ebbtide_pool_evictions_total", "Objects of the pool that were alive and were lost to make space."), "evictions", |r| r.totals.evictions.into()),
    row("demotions", None, "", |r| r.since_reset.demotions.into()),
    row("", Counter("ebbtide_pool_demotions_total", "Objects of the pool that left memory to make space, and that flash took or had."), "demotions", |r| r.totals.demotions.into()),
    row("expired", None, "", |r| r.since_reset.expired.into()),
    row("", Counter("ebbtide_pool_expirations_total", "Dead objects of the pool whose memory was taken back."), "expired", |r| r.totals.expired.into()),
    row("min_bytes", None, "min_bytes", |r| r.rule.min_bytes.into()),
    // No bound is 0, as in memcached's other limits.
    row("max_bytes", None, "", |r| r.rule.max_bytes.unwrap_or(0).into()),
    row("", None, "max_bytes", |r| r.rule.max_bytes.map_or(Number::UNKNOWN, Number::from)),
    row("weight", None, "weight", |r| u64::from(r.rule.weight).into()),
    row("hit_value", None, "hit_value", |r| u64::from(r.rule.hit_value).into()),
    row("", None, "target_hit_ratio", |r| r.rule.target_hit_ratio.map_or(Number::UNKNOWN, |ratio| HitRatio::as_f64(ratio).into())),
];

/// Of the last minute, as `NOW`.
#[rustfmt::skip]
pub const POOL_NOW: &[Row<PoolWindow>] = &[
    row("now_hit_ratio", None, "now.hit_ratio", |r| r.hit_ratio().into()),
    row("now_get_per_second", None, "now.commands_per_second.get", |r| r.per_second(|totals| totals.gets.all()).into()),
    row("now_evicted_per_second", None, "now.evictions_per_second.all", |r| r.per_second(|totals| totals.evictions).into()),
    row("now_expired_per_second", None, "now.expirations_per_second.all", |r| r.per_second(|totals| totals.expired).into()),
];

/// Of a server with flash.
#[rustfmt::skip]
pub const POOL_FLASH: &[Row<FlashPoolStats>] = &[
    row("flash_hits", None, "hits", |f| f.hits.into()),
    row("flash_bytes", Gauge("ebbtide_pool_flash_bytes", "Bytes of the pool on flash: written and not reclaimed."), "bytes", |f| f.bytes.into()),
    row("flash_index_bytes", Gauge("ebbtide_pool_flash_index_bytes", "Memory of the index of flash for objects of the pool."), "index_bytes", |f| f.index_bytes.into()),
    // A pool alone may have all of flash.
    row("", None, "share_bytes", |f| if f.share_bytes == u64::MAX { Number::UNKNOWN } else { f.share_bytes.into() }),
    row("", Counter("ebbtide_pool_flash_hits_total", "Lookups that found an object of the pool on flash."), "", |f| f.hits.into()),
    row("flash_bytes_written", Counter("ebbtide_pool_flash_written_bytes_total", "Bytes of keys and values of the pool that went to flash."), "written_bytes", |f| f.written_bytes.into()),
    row("flash_refused_by_share", Counter("ebbtide_pool_flash_refusals_total", "Objects that flash refused for the share of the pool."), "refused_by_share", |f| f.refused_by_share.into()),
];

/// Of a compact pool.
#[rustfmt::skip]
pub const POOL_COMPACT: &[Row<(CompactSizes, CompactStats)>] = &[
    row("key_bytes", None, "", |(sizes, _)| sizes.key_bytes.into()),
    row("value_bytes", None, "", |(sizes, _)| sizes.value_bytes.into()),
    row("negatives", Gauge("ebbtide_pool_negatives", "Negative results in the compact pool."), "negatives", |(_, compact)| compact.negatives.into()),
    row("capacity", None, "capacity", |(_, compact)| compact.capacity.into()),
];
