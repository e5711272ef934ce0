//! Statistics of flash: space, reads, writes, admission and the device, since the start.

use ebbtide::flash::Health;
use ebbtide::memcached::FlashStats;

use super::Metric::{And, Counter, CounterBy, Gauge, GaugeBy, None};
use super::{Row, row};
use crate::extstore_counts::health;

#[rustfmt::skip]
pub const FLASH: &[Row<FlashStats>] = &[
    row("flash_capacity_bytes", Gauge("ebbtide_flash_capacity_bytes", "What objects may take on flash."), "capacity_bytes", |f| f.tier.capacity_bytes.into()),
    row("", GaugeBy("ebbtide_flash_used_bytes", "Bytes of the objects on flash, estimated from the mean of those inserted.", "store=large"), "", |f| f.tier.large_used_bytes().into()),
    row("", And("store=small"), "", |f| f.tier.small_used_bytes().into()),
    row("", None, "used_bytes", |f| (f.tier.large_used_bytes() + f.tier.small_used_bytes()).into()),
    row("", GaugeBy("ebbtide_flash_objects", "Objects on flash, expired ones too; of those that a region's end cuts, each part.", "store=large"), "", |f| f.tier.large.objects.into()),
    row("", And("store=small"), "", |f| f.tier.small.objects().into()),
    row("", None, "objects", |f| f.tier.objects.into()),
    row("flash_memory_bytes", Gauge("ebbtide_flash_memory_bytes", "Memory of the indexes and buffers of flash, of values that were read, and of dumps."), "memory_bytes", |f| f.tier.memory_bytes.into()),
    row("flash_memory_limit_bytes", Gauge("ebbtide_flash_memory_limit_bytes", "Memory that flash has now; items have the rest of the limit."), "memory_limit_bytes", |f| f.memory_limit_bytes.into()),
    row("flash_index_bytes", Gauge("ebbtide_flash_index_bytes", "Memory of the indexes of flash."), "index_bytes", |f| f.tier.index_bytes.into()),
    row("", Gauge("ebbtide_flash_regions_retired", "Regions of large objects that are not used any more, because a transfer failed."), "", |f| f.tier.large.regions_retired.into()),
    // A key that is not among the large objects is looked for among the small ones.
    row("", Counter("ebbtide_flash_lookups_total", "Keys looked for on flash."), "lookups_total", |f| (f.tier.hits_large + f.tier.small.counts.lookups).into()),
    row("flash_hits_large", CounterBy("ebbtide_flash_hits_total", "Keys found on flash.", "store=large"), "hits.large", |f| f.tier.hits_large.into()),
    row("flash_hits_small", And("store=small"), "hits.small", |f| f.tier.hits_small.into()),
    row("", Counter("ebbtide_flash_promoted_total", "Objects that came back to memory."), "promoted_total", |f| f.promoted.into()),
    row("flash_served", Counter("ebbtide_flash_served_total", "Objects that were answered from flash and did not come back."), "served_total", |f| f.served.into()),
    row("flash_idle", None, "", |f| f.idle.into()),
    row("", Counter("ebbtide_flash_promotions_refused_total", "Objects that were found and could not come back, for want of memory."), "", |f| f.promotions_refused.into()),
    row("", Counter("ebbtide_flash_corrupt_total", "Reads that brought wrong bytes: misses."), "corrupt_total", |f| (f.tier.large.misses_corrupt + f.tier.large.scans_corrupt + f.tier.small.counts.corrupt_pages).into()),
    row("", CounterBy("ebbtide_flash_inserted_total", "Objects that were taken.", "store=large"), "", |f| f.tier.large.inserts.into()),
    row("", And("store=small"), "", |f| f.tier.small.counts.inserted.into()),
    row("", None, "inserted_total", |f| f.tier.inserts.into()),
    row("", CounterBy("ebbtide_flash_inserted_bytes_total", "Bytes of these.", "store=large"), "", |f| f.tier.large.inserted_bytes.into()),
    row("", And("store=small"), "", |f| f.tier.small.counts.inserted_bytes.into()),
    Row::Each { metric: CounterBy("ebbtide_flash_written_bytes_total", "Bytes written, by cause.", "cause"), api: "written_bytes", read: written },
    row("", Gauge("ebbtide_flash_write_amplification_ratio", "Bytes written for each byte inserted, since the start."), "write_amplification", |f| f.tier.write_amplification().into()),
    row("flash_unchanged", Counter("ebbtide_flash_unchanged_total", "Evicted objects that flash held already, so that nothing was written."), "unchanged_total", |f| f.unchanged.into()),
    row("flash_unknown_tokens", None, "", |f| f.unknown_tokens.into()),
    row("flash_admitted", None, "", |f| f.tier.admission.admitted.into()),
    row("flash_refused_by_policy", None, "", |f| f.tier.admission.refused_by_policy.into()),
    row("flash_refused_by_budget", None, "", |f| f.tier.admission.refused_by_budget.into()),
    row("flash_refused_expires_soon", CounterBy("ebbtide_flash_refusals_total", "Evicted objects that admission refused, by reason.", "reason=expires_soon"), "refusals.expires_soon", |f| f.tier.admission.refused_expires_soon.into()),
    row("flash_refused_too_small", And("reason=too_small"), "refusals.too_small", |f| f.tier.admission.refused_too_small.into()),
    row("", And("reason=policy"), "refusals.policy", |f| f.tier.admission.refused_by_policy.into()),
    row("", And("reason=budget"), "refusals.budget", |f| f.tier.admission.refused_by_budget.into()),
    row("flash_displaced", And("reason=displaced"), "refusals.displaced", |f| f.tier.displaced.into()),
    row("flash_dropped", None, "", |f| f.tier.drops.total().into()),
    Row::Each { metric: CounterBy("ebbtide_flash_drops_total", "Evicted objects that were admitted and not taken, by reason.", "reason"), api: "drops", read: |f| f.tier.drops.by_reason().to_vec() },
    Row::Each { metric: CounterBy("ebbtide_flash_ended_total", "Objects that flash had and gave up, by cause.", "cause"), api: "ended", read: |f| f.tier.evictions.by_cause().to_vec() },
    row("flash_inserted_bytes", None, "inserted_bytes_total", |f| f.tier.inserted_bytes.into()),
    row("flash_written_bytes", None, "written_bytes_total", |f| f.tier.written.total().into()),
    Row::Each { metric: GaugeBy("ebbtide_flash_health", "1 for the state in which the device is.", "state"), api: "", read: health_states },
    row("", Gauge("ebbtide_flash_transfers_under_way", "Reads and writes that wait for the device."), "transfers.under_way", |f| f.tier.device.under_way.into()),
    row("", Counter("ebbtide_flash_queue_refusals_total", "Reads and writes that found the queue of the device full."), "transfers.refused_total", |f| f.tier.device.refusals.into()),
    row("", CounterBy("ebbtide_flash_transferred_bytes_total", "Bytes that went to the device and came from it.", "direction=read"), "read_bytes_total", |f| f.tier.device.reads.bytes.into()),
    row("", And("direction=write"), "", |f| f.tier.device.writes.bytes.into()),
    row("", CounterBy("ebbtide_flash_transfer_errors_total", "Reads and writes that failed.", "direction=read"), "transfers.read_errors_total", |f| f.tier.device.reads.errors.into()),
    row("", And("direction=write"), "transfers.write_errors_total", |f| f.tier.device.writes.errors.into()),
    row("", None, "transfers.most_under_way", |f| f.tier.device.max_under_way.into()),
];

fn health_states(flash: &FlashStats) -> Vec<(&'static str, u64)> {
    let states = [Health::Healthy, Health::Degraded, Health::Failed];
    states.into_iter().map(|state| (health(state), u64::from(flash.tier.device.health == state))).collect()
}

fn written(flash: &FlashStats) -> Vec<(&'static str, u64)> {
    let written = &flash.tier.written;
    vec![
        ("large_objects", written.large_objects),
        ("large_again", written.large_again),
        ("large_frames", written.large_frames),
        ("small_log", written.small_log),
        ("small_pages", written.small_pages),
        ("small_zeros", written.small_zeros),
        ("superblock", written.superblock),
    ]
}
