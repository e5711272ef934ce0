//! Statistics of the cache: objects, memory, segments and removals.

use super::Metric::{And, Counter, CounterBy, Gauge, GaugeBy, None};
use super::{Readings, Row, row};

#[rustfmt::skip]
pub const CACHE: &[Row<Readings>] = &[
    row("", Gauge("ebbtide_items", "Objects in memory."), "", |r| r.cache.items.into()),
    row("memory_limit_bytes", Gauge("ebbtide_memory_limit_bytes", "The memory limit (-m)."), "memory.limit_bytes", |r| r.cache.memory_limit_bytes.into()),
    row("memory_used_bytes", Gauge("ebbtide_memory_used_bytes", "All but the free segments."), "memory.used_bytes", |r| r.cache.memory_used_bytes.into()),
    row("live_bytes", GaugeBy("ebbtide_memory_bytes", "The memory limit by what it is used for.", "use=live"), "memory.live_bytes", |r| r.segments.live_bytes.into()),
    row("expired_bytes", And("use=expired"), "memory.expired_bytes", |r| r.segments.expired_bytes.into()),
    row("dead_bytes", And("use=dead"), "memory.dead_bytes", |r| r.segments.dead_bytes.into()),
    row("", And("use=index"), "memory.index_bytes", |r| r.segments.index_bytes.into()),
    row("metadata_bytes", And("use=metadata"), "memory.metadata_bytes", |r| r.segments.metadata_bytes.into()),
    row("free_bytes", And("use=free"), "memory.free_bytes", |r| r.segments.free_bytes.into()),
    row("index_bytes", None, "", |r| r.cache.index_bytes.into()),
    row("table_bytes", None, "memory.table_bytes", |r| r.cache.table_bytes.into()),
    row("pool_budgets_refused", Counter("ebbtide_pool_budgets_refused_total", "Budgets that the division of the memory gave to pools, and that they refused."), "memory.pool_budgets_refused", |r| r.refused_budgets.into()),
    row("segment_bytes", None, "segments.bytes_each", |r| r.cache.segment_bytes.into()),
    row("segments_total", None, "segments.total", |r| r.cache.segments_total.into()),
    row("", Gauge("ebbtide_index_load_ratio", "Slots of the index in use, over all."), "", |r| r.cache.index_load.into()),
    row("", Gauge("ebbtide_pinned_bytes", "Memory held for answers on their way out."), "", |r| r.cache.pinned_bytes.into()),
    row("", Gauge("ebbtide_upload_bytes", "Memory of long values that are arriving."), "", |r| r.cache.upload_bytes.into()),
    row("segments_free", GaugeBy("ebbtide_segments", "Segments by state.", "state=free"), "segments.free", |r| r.segments.segments_free.into()),
    row("segments_open", And("state=open"), "segments.open", |r| r.segments.segments_open.into()),
    row("segments_sealed", And("state=sealed"), "segments.sealed", |r| r.segments.segments_sealed.into()),
    row("segments_retired", And("state=retired"), "segments.retired", |r| r.segments.segments_retired.into()),
    row("items", None, "items", |r| r.cache.items.into()),
    row("stored_total", None, "", |r| r.cache.stored_total.into()),
    row("evictions", None, "evictions.total", |r| r.cache.evictions.into()),
    row("demotions", Counter("ebbtide_demotions_total", "Objects that left memory to make space, and that flash took or had."), "demotions.total", |r| r.cache.demotions.into()),
    row("index_replaced", None, "", |r| r.cache.index_replaced.into()),
    row("index_split_waits", Counter("ebbtide_index_split_waits_total", "Writes that waited for another one to split buckets of the index."), "", |r| r.cache.index_split_waits.into()),
    row("expired", None, "expirations.total", |r| r.cache.expired.into()),
    row("flushed", None, "", |r| r.cache.flushed.into()),
    row("", CounterBy("ebbtide_evictions_total", "Objects that were alive and were lost to make space, by reason; without those that flash took.", "reason=memory"), "evictions.by_reason.memory", |r| r.cache.evictions.saturating_sub(r.cache.index_replaced).into()),
    row("", And("reason=index_full"), "evictions.by_reason.index_full", |r| r.cache.index_replaced.into()),
    row("", CounterBy("ebbtide_expirations_total", "Dead objects whose memory was taken back, by reason.", "reason=segment"), "expirations.by_reason.segment", |r| r.cache.expired.saturating_sub(r.cache.flushed).into()),
    row("", And("reason=flushed"), "expirations.by_reason.flushed", |r| r.cache.flushed.into()),
    row("segments_expired", CounterBy("ebbtide_segments_reclaimed_total", "Segments given back, by what emptied them.", "reason=expired"), "segments.expired_total", |r| r.cache.segments_expired.into()),
    row("segments_evicted", And("reason=evicted"), "segments.evicted_total", |r| r.cache.segments_evicted.into()),
    row("segments_compacted", And("reason=compacted"), "segments.compacted_total", |r| r.cache.segments_compacted.into()),
];
