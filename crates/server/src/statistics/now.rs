//! Rates and shares of the last minute, the same in `stats ebbtide` and in `/api/overview`. Prometheus makes its own
//! from the counters.

use super::Metric::None;
use super::{Row, row};
use crate::observe::Recent;

#[rustfmt::skip]
pub const NOW: &[Row<Recent>] = &[
    row("now_seconds", None, "now.seconds", |r| r.window.map_or(0.0, |window| window.seconds).into()),
    row("now_hit_ratio", None, "now.hit_ratio", |r| r.hit_ratio().into()),
    row("now_get_per_second", None, "now.commands_per_second.get", |r| r.per_second(|w| w.gets()).into()),
    row("now_get_hits_per_second", None, "now.get_hits_per_second", |r| r.per_second(|w| w.totals.get_hits).into()),
    row("now_set_per_second", None, "now.commands_per_second.set", |r| r.per_second(|w| w.totals.set_commands).into()),
    row("now_touch_per_second", None, "now.commands_per_second.touch", |r| r.per_second(|w| w.totals.touch_hits + w.totals.touch_misses).into()),
    row("now_delete_per_second", None, "now.commands_per_second.delete", |r| r.per_second(|w| w.totals.delete_hits + w.totals.delete_misses).into()),
    row("now_incr_per_second", None, "now.commands_per_second.incr", |r| r.per_second(|w| w.totals.incr_hits + w.totals.incr_misses).into()),
    row("now_decr_per_second", None, "now.commands_per_second.decr", |r| r.per_second(|w| w.totals.decr_hits + w.totals.decr_misses).into()),
    row("now_cas_per_second", None, "now.commands_per_second.cas", |r| r.per_second(|w| w.totals.cas_hits + w.totals.cas_misses + w.totals.cas_badval).into()),
    row("now_meta_per_second", None, "", |r| r.per_second(|w| w.totals.meta_commands).into()),
    row("now_flush_per_second", None, "now.commands_per_second.flush", |r| r.per_second(|w| w.totals.flush_commands).into()),
    row("now_evicted_per_second", None, "now.evictions_per_second.all", |r| r.per_second(|w| w.evictions).into()),
    row("now_evicted_memory_per_second", None, "now.evictions_per_second.memory", |r| r.per_second(|w| w.evictions.saturating_sub(w.index_replaced)).into()),
    row("now_evicted_index_full_per_second", None, "now.evictions_per_second.index_full", |r| r.per_second(|w| w.index_replaced).into()),
    row("now_demoted_per_second", None, "now.demotions_per_second.all", |r| r.per_second(|w| w.demotions).into()),
    row("now_expired_per_second", None, "now.expirations_per_second.all", |r| r.per_second(|w| w.expired).into()),
    row("now_expired_segment_per_second", None, "now.expirations_per_second.segment", |r| r.per_second(|w| w.expired.saturating_sub(w.flushed)).into()),
    row("now_flushed_per_second", None, "now.expirations_per_second.flushed", |r| r.per_second(|w| w.flushed).into()),
    row("now_refused_for_memory", None, "now.refused_for_memory", |r| r.window.map_or(0, |window| window.totals.store_no_memory).into()),
    row("now_bytes_read_per_second", None, "now.network_per_second.bytes_read", |r| r.per_second(|w| w.totals.bytes_read).into()),
    row("now_bytes_written_per_second", None, "now.network_per_second.bytes_written", |r| r.per_second(|w| w.totals.bytes_written).into()),
    row("unread_share", None, "now.unread_share", |r| r.unread_share.unwrap_or(f64::NAN).into()),
    row("evicted_idle_seconds", None, "now.evicted_idle_seconds", |r| r.evicted.idle_seconds().unwrap_or(f64::NAN).into()),
    row("evicted_age_seconds", None, "now.evicted_age_seconds", |r| r.evicted.age_seconds().unwrap_or(f64::NAN).into()),
    row("evicted_unread_share", None, "now.evicted_unread_share", |r| r.evicted.unread_share().unwrap_or(f64::NAN).into()),
];
