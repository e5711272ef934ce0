//! Sums of the statistics of pools.

use ebbtide_store::Stats;

pub(crate) fn add_gauges(sum: &mut Stats, stats: &Stats) {
    sum.items += stats.items;
    sum.memory_limit_bytes += stats.memory_limit_bytes;
    sum.memory_used_bytes += stats.memory_used_bytes;
    sum.live_bytes += stats.live_bytes;
    sum.index_bytes += stats.index_bytes;
    sum.table_bytes += stats.table_bytes;
    sum.segments_total += stats.segments_total;
    sum.segments_free += stats.segments_free;
    sum.segments_open += stats.segments_open;
    sum.segments_retired += stats.segments_retired;
    sum.pinned_bytes += stats.pinned_bytes;
    sum.upload_bytes += stats.upload_bytes;
}

pub(crate) fn add_counters(sum: &mut Stats, stats: &Stats) {
    sum.stored_total += stats.stored_total;
    sum.evictions += stats.evictions;
    sum.index_replaced += stats.index_replaced;
    sum.demotions += stats.demotions;
    sum.index_split_waits += stats.index_split_waits;
    sum.expired += stats.expired;
    sum.flushed += stats.flushed;
    sum.expired_found += stats.expired_found;
    sum.flushed_found += stats.flushed_found;
    sum.survived += stats.survived;
    sum.segments_expired += stats.segments_expired;
    sum.segments_evicted += stats.segments_evicted;
    sum.segments_compacted += stats.segments_compacted;
}
