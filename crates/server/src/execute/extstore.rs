//! What memcached's external storage tells, of flash: in `stats` under its names, where there is flash. What each comes
//! to here is in docs/compatibility.md.

use super::{Executor, OptionalReply};
use ebbtide::flash::Health;
use ebbtide::{FlashLimits, FlashPromotion, FlashStats};
use ebbtide_protocol::ExternalStorage;
use ebbtide_protocol::reply::{self, stat};

/// The `ext_item_age` that memcached has by default: nothing goes to flash for its age.
const NEVER: u32 = u32::MAX;

impl Executor {
    /// Executes extstore: changes a limit of flash.
    pub(super) fn external_storage(&self, setting: ExternalStorage, reply: OptionalReply<'_>) {
        if let Some(mut limits) = self.cache.flash_limits() {
            match setting {
                ExternalStorage::ItemSize(bytes) => limits.min_value_bytes = bytes,
                ExternalStorage::ItemAge(seconds) => {
                    limits.max_idle_seconds = Some(seconds).filter(|seconds| *seconds != NEVER);
                }
                ExternalStorage::LowTtl(seconds) => limits.min_ttl_seconds = seconds,
            }
            self.cache.set_flash_limits(limits);
        }
        reply.line(reply::OK);
    }
}

/// What gets came to on flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashGets {
    /// Found.
    found: u64,
    /// Given up because the device had no room for a read.
    aborted: u64,
    /// Found, and memory had no room.
    no_memory: u64,
    promoted: u64,
    /// Read, and nothing came of it; of these, for wrong bytes.
    missed: u64,
    corrupt: u64,
}

impl FlashGets {
    pub fn of(flash: &FlashStats) -> Self {
        let (large, small) = (&flash.tier.large, &flash.tier.small.counts);
        let corrupt = large.misses_corrupt + small.corrupt_pages;
        let missed_large = large.misses_collision + large.misses_expired + large.misses_gone + large.misses_error;
        Self {
            found: flash.tier.hits_large + flash.tier.hits_small,
            aborted: large.misses_refused + small.lookups_refused + small.lookups_contended,
            no_memory: flash.promotions_refused,
            promoted: flash.promoted,
            missed: missed_large + large.misses_corrupt + small.lookups_read_for_nothing,
            corrupt,
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            found: self.found - before.found,
            aborted: self.aborted - before.aborted,
            no_memory: self.no_memory - before.no_memory,
            promoted: self.promoted - before.promoted,
            missed: self.missed - before.missed,
            corrupt: self.corrupt - before.corrupt,
        }
    }
}

/// The counts of gets, since `stats reset`.
pub fn gets(flash: &FlashStats, reset: FlashGets, out: &mut Vec<u8>) {
    let gets = FlashGets::of(flash).since(reset);
    stat(out, "get_extstore", gets.found + gets.missed);
    stat(out, "get_aborted_extstore", gets.aborted);
    stat(out, "get_oom_extstore", gets.no_memory);
    stat(out, "recache_from_extstore", gets.promoted);
    stat(out, "miss_from_extstore", gets.missed);
    stat(out, "badcrc_from_extstore", gets.corrupt);
}

/// The storage, since the start as in memcached. A page is a region of large objects.
pub fn storage(flash: &FlashStats, out: &mut Vec<u8>) {
    let (tier, large, small) = (&flash.tier, &flash.tier.large, &flash.tier.small.counts);
    let regions_used = large.regions.saturating_sub(large.regions_free + large.regions_retired);
    let small_evicted =
        small.ended_evicted + small.ended_below_threshold + small.ended_unreadmitted + small.ended_for_memory;
    let evicted_bytes =
        tier.large_mean_bytes() * large.objects_evicted as f64 + tier.small_mean_bytes() * small_evicted as f64;
    let fragmented = (regions_used * large.region_bytes).saturating_sub(tier.large_used_bytes());
    stat(out, "extstore_compact_lost", large.reinsertions_dropped + small.ended_unreadmitted);
    stat(out, "extstore_compact_rescues", large.reinserted + small.readmitted);
    stat(out, "extstore_compact_skipped", small.ended_below_threshold);
    stat(out, "extstore_page_allocs", large.regions_written);
    stat(out, "extstore_page_evictions", large.regions_evicted);
    stat(out, "extstore_page_reclaims", large.regions_evicted + large.regions_expired + large.regions_flushed);
    stat(out, "extstore_pages_free", large.regions_free);
    stat(out, "extstore_pages_used", regions_used);
    stat(out, "extstore_objects_evicted", large.objects_evicted + small_evicted);
    stat(out, "extstore_objects_read", large.hits_device + small.lookups_read);
    stat(out, "extstore_objects_written", tier.inserts);
    stat(out, "extstore_objects_used", tier.objects);
    stat(out, "extstore_bytes_evicted", evicted_bytes as u64);
    stat(out, "extstore_bytes_written", tier.written.total());
    stat(out, "extstore_bytes_read", tier.device.reads.bytes);
    stat(out, "extstore_bytes_used", tier.large_used_bytes() + tier.small_used_bytes());
    stat(out, "extstore_bytes_fragmented", fragmented);
    stat(out, "extstore_limit_maxbytes", tier.capacity_bytes);
    stat(out, "extstore_io_queue", tier.device.under_way);
}

/// What of memcached's settings has an equal here.
pub fn settings(flash: &FlashStats, limits: &FlashLimits, out: &mut Vec<u8>) {
    stat(out, "ext_item_size", limits.min_value_bytes);
    stat(out, "ext_item_age", limits.max_idle_seconds.unwrap_or(NEVER));
    stat(out, "ext_low_ttl", limits.min_ttl_seconds);
    let recache_rate = match flash.promotion {
        FlashPromotion::Auto | FlashPromotion::Always | FlashPromotion::SecondHit => 1,
        FlashPromotion::Never => 0,
        FlashPromotion::OneIn(n) => n.get(),
    };
    stat(out, "ext_recache_rate", recache_rate);
    stat(out, "ext_wbuf_size", flash.tier.large.region_bytes);
    // No object that was not read is written again.
    stat(out, "ext_drop_unread", "yes");
}

/// What only this server tells.
pub fn ebbtide_stats(flash: &FlashStats, out: &mut Vec<u8>) {
    let tier = &flash.tier;
    stat(out, "flash_health", health(tier.device.health));
    stat(out, "flash_capacity_bytes", tier.capacity_bytes);
    stat(out, "flash_memory_bytes", tier.memory_bytes);
    stat(out, "flash_hits_large", tier.hits_large);
    stat(out, "flash_hits_small", tier.hits_small);
    stat(out, "flash_served", flash.served);
    stat(out, "flash_idle", flash.idle);
    stat(out, "flash_unchanged", flash.unchanged);
    stat(out, "flash_unknown_tokens", flash.unknown_tokens);
    stat(out, "flash_admitted", tier.admission.admitted);
    stat(out, "flash_refused_by_policy", tier.admission.refused_by_policy);
    stat(out, "flash_refused_by_budget", tier.admission.refused_by_budget);
    stat(out, "flash_refused_expires_soon", tier.admission.refused_expires_soon);
    stat(out, "flash_refused_too_small", tier.admission.refused_too_small);
    stat(out, "flash_displaced", tier.displaced);
    stat(out, "flash_dropped", tier.drops.total());
    stat(out, "flash_inserted_bytes", tier.inserted_bytes);
    stat(out, "flash_written_bytes", tier.written.total());
}

pub fn health(health: Health) -> &'static str {
    match health {
        Health::Healthy => "healthy",
        Health::Degraded => "degraded",
        Health::Failed => "failed",
    }
}
