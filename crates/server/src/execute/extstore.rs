//! Statistics of flash under the names of memcached's external storage, in `stats` of a cache with flash. The meanings
//! are in docs/compatibility.md.

use super::Executor;
use super::executor::OptionalReply;
use crate::extstore_counts::FlashGets;
use ebbtide::memcached::{FlashLimits, FlashPromotion, FlashStats};
use ebbtide_protocol::ExternalStorage;
use ebbtide_protocol::reply::{self, stat};

/// The `ext_item_age` that memcached has by default: nothing goes to flash for its age.
const NEVER: u32 = u32::MAX;

impl Executor {
    /// Executes extstore: changes a limit of flash, or its promotion. Without flash it changes nothing.
    pub(super) fn external_storage(&self, setting: ExternalStorage, reply: OptionalReply<'_>) {
        match setting {
            ExternalStorage::ItemSize(bytes) => self.change_limits(|limits| limits.min_value_bytes = bytes),
            ExternalStorage::ItemAge(seconds) => {
                self.change_limits(|limits| {
                    limits.max_idle_seconds = Some(seconds).filter(|&seconds| seconds != NEVER)
                });
            }
            ExternalStorage::LowTtl(seconds) => self.change_limits(|limits| limits.min_ttl_seconds = seconds),
            ExternalStorage::RecacheRate(rate) => {
                self.cache.set_flash_promotion(FlashPromotion::from_recache_rate(rate));
            }
        }
        reply.line(reply::OK);
    }

    fn change_limits(&self, change: impl FnOnce(&mut FlashLimits)) {
        if let Some(mut limits) = self.cache.flash_limits() {
            change(&mut limits);
            self.cache.set_flash_limits(limits);
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

/// Settings of memcached's external storage that have an equivalent here.
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
