//! Counters and gauges of the tier, summed over its parts.

use super::Tier;
use crate::admission::AdmissionStats;
use crate::deletion_log::DeletionLog;
use crate::device::DeviceStats;
use crate::{large, small};
use std::sync::atomic::Ordering::Relaxed;

/// Counters since the start, and gauges.
#[derive(Clone, Debug)]
pub struct TierStats {
    /// Lookups that found an object in the log of large objects.
    pub hits_large: u64,
    /// Lookups that found an object among the small ones.
    pub hits_small: u64,
    /// Lookups that found nothing, or whose read is pending. Lookups after the device failed are not counted.
    pub misses: u64,
    /// Objects that were inserted, and bytes of their keys and values (large) and records (small).
    pub inserts: u64,
    pub inserted_bytes: u64,
    pub drops: Drops,
    pub evictions: Evictions,
    pub written: WrittenBytes,
    /// Objects in both stores, expired ones too.
    pub objects: u64,
    pub capacity_bytes: u64,
    pub memory_bytes: u64,
    /// Bytes of RAM of both indexes.
    pub index_bytes: u64,
    pub large: large::Stats,
    pub small: small::Stats,
    pub device: DeviceStats,
    pub admission: AdmissionStats,
    /// Objects that were admitted but refused because the log prefers copies of hit objects
    /// ([`large::Reinsertion::Auto`]).
    pub displaced: u64,
    /// Removals that were logged for a restart after a crash.
    pub deletions_logged: u64,
}

/// Objects that were not inserted, by reason. Admission counts its own rejections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    pub expired: u64,
    /// The object is longer than the limit, or the key is invalid.
    pub too_large: u64,
    /// The device does not complete writes fast enough.
    pub behind: u64,
    /// No region was free.
    pub no_region: u64,
    /// The index has no memory left.
    pub memory: u64,
    /// Too many objects of one set arrived at once.
    pub crowded: u64,
    /// A flush happened during the insert.
    pub overtaken: u64,
    /// The tier is closed for a checkpoint.
    pub closed: u64,
    /// The device had failed.
    pub failed: u64,
}

/// Evicted and expired objects, by cause. Of a large object in several regions each part counts. Removed, overwritten
/// and flushed objects do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evictions {
    pub expired: u64,
    /// The space of a region, of a page, or of the log of small objects was reclaimed.
    pub space: u64,
    /// A small object at the end of its log, for which alone no page is written.
    pub alone: u64,
    /// The index of small objects needed the memory.
    pub memory: u64,
    /// The device failed to read or write their location.
    pub failed: u64,
}

/// Bytes that reached the device, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenBytes {
    pub superblock: u64,
    /// Large objects, with their headers.
    pub large_objects: u64,
    /// Large objects that were written again.
    pub large_again: u64,
    /// Headers and footers of regions, gaps, death marks.
    pub large_frames: u64,
    /// Segments of the small objects' log, and marks of its start.
    pub small_log: u64,
    /// Pages of sets.
    pub small_pages: u64,
    /// Zeros, written once, in the area of set pages.
    pub small_zeros: u64,
}

impl WrittenBytes {
    pub fn total(&self) -> u64 {
        self.recurring() + self.small_zeros
    }

    /// All bytes but zeros, which are written once.
    pub fn recurring(&self) -> u64 {
        self.superblock + self.large_objects + self.large_again + self.large_frames + self.small_log + self.small_pages
    }
}

impl TierStats {
    /// Mean bytes of key and value of large objects that were inserted; 0 if none were. Each part of an object counts
    /// as one, as it does among the objects on flash and the evicted ones.
    pub fn large_mean_bytes(&self) -> f64 {
        mean(self.large.inserted_bytes, self.large.parts_inserted())
    }

    /// Mean bytes of small objects' records.
    pub fn small_mean_bytes(&self) -> f64 {
        mean(self.small.counts.inserted_bytes, self.small.counts.inserted)
    }

    /// Estimated bytes of the large objects on flash: their number times the mean length of all inserted ones.
    pub fn large_used_bytes(&self) -> u64 {
        let max = self.large.regions.saturating_sub(self.large.regions_free) * self.large.region_bytes;
        ((self.large.objects as f64 * self.large_mean_bytes()) as u64).min(max)
    }

    /// Estimated bytes of the small objects on flash, as [`TierStats::large_used_bytes`].
    pub fn small_used_bytes(&self) -> u64 {
        let max = self.capacity_bytes.saturating_sub(self.large.regions * self.large.region_bytes);
        ((self.small.objects() as f64 * self.small_mean_bytes()) as u64).min(max)
    }

    /// Bytes written for each byte inserted, without zeros, which are written once; 0 if nothing was inserted. Low
    /// until buffers have been written.
    pub fn write_amplification(&self) -> f64 {
        mean(self.written.recurring(), self.inserted_bytes)
    }
}

fn mean(sum: u64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { sum as f64 / count as f64 }
}

impl Evictions {
    /// Objects that made space for others.
    pub fn for_space(&self) -> u64 {
        self.space + self.alone + self.memory
    }

    /// Each of them with its name.
    pub fn by_cause(&self) -> [(&'static str, u64); 5] {
        let Self { expired, space, alone, memory, failed } = *self;
        [("expired", expired), ("space", space), ("alone", alone), ("memory", memory), ("failed", failed)]
    }
}

impl Drops {
    pub fn total(&self) -> u64 {
        self.by_reason().iter().map(|reason| reason.1).sum()
    }

    /// Each of them with its name.
    pub fn by_reason(&self) -> [(&'static str, u64); 9] {
        let Self { expired, too_large, behind, no_region, memory, crowded, overtaken, closed, failed } = *self;
        [
            ("expired", expired),
            ("too_large", too_large),
            ("behind", behind),
            ("no_region", no_region),
            ("memory", memory),
            ("crowded", crowded),
            ("overtaken", overtaken),
            ("closed", closed),
            ("failed", failed),
        ]
    }
}

impl Tier {
    pub fn stats(&self) -> TierStats {
        let (large, small) = (self.large.stats(), self.small.stats());
        let hits_large = large.hits_memory + large.hits_device;
        let hits_small = small.counts.log_hits + small.counts.set_hits;
        TierStats {
            hits_large,
            hits_small,
            // A lookup that misses the large objects continues among the small ones.
            misses: small.counts.lookups.saturating_sub(hits_small),
            inserts: large.inserts + small.counts.inserted,
            inserted_bytes: large.inserted_bytes + small.counts.inserted_bytes,
            drops: self.drops(&large, &small),
            evictions: evictions(&large, &small.counts),
            written: self.written(&large, &small),
            objects: large.objects + small.objects(),
            capacity_bytes: self.capacity_bytes(),
            memory_bytes: self.memory_bytes(),
            index_bytes: self.index_bytes(),
            large,
            small,
            device: self.device.monitor().stats(),
            admission: self.admission.stats(),
            displaced: self.displaced.load(Relaxed),
            deletions_logged: self.deletion_log.as_ref().map_or(0, DeletionLog::records),
        }
    }

    /// Bytes that reached the device since it was opened.
    pub fn written_bytes(&self) -> u64 {
        self.written(&self.large.stats(), &self.small.stats()).total()
    }

    pub(super) fn written(&self, large: &large::Stats, small: &small::Stats) -> WrittenBytes {
        WrittenBytes {
            superblock: self.superblock_bytes.load(Relaxed),
            large_objects: large.written_insert_bytes,
            large_again: large.written_reinsertion_bytes,
            large_frames: large.written_footer_bytes + large.written_padding_bytes + large.written_death_bytes,
            small_log: small.counts.log_bytes_written + small.counts.mark_bytes_written,
            small_pages: small.counts.set_bytes_written,
            small_zeros: small.counts.zero_bytes_written,
        }
    }

    fn drops(&self, large: &large::Stats, small: &small::Stats) -> Drops {
        let small = &small.counts;
        Drops {
            expired: large.dropped_expired + small.dropped_expired,
            too_large: large.dropped_too_large + small.dropped_large,
            behind: large.dropped_behind + small.dropped_busy,
            no_region: large.dropped_no_region,
            memory: large.dropped_memory + small.dropped_memory,
            crowded: small.dropped_crowded,
            overtaken: large.dropped_overtaken,
            closed: large.dropped_closed + self.dropped_closed.load(Relaxed),
            failed: self.dropped_failed.load(Relaxed),
        }
    }
}

fn evictions(large: &large::Stats, small: &small::Counts) -> Evictions {
    Evictions {
        expired: large.objects_expired + small.ended_expired,
        space: large.objects_evicted + small.ended_evicted + small.ended_unreadmitted,
        alone: small.ended_below_threshold,
        memory: small.ended_for_memory,
        failed: large.objects_failed + small.ended_failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_written_and_do_not_go_on() {
        let written = WrittenBytes {
            superblock: 1,
            large_objects: 2,
            large_again: 4,
            large_frames: 8,
            small_log: 16,
            small_pages: 32,
            small_zeros: 64,
        };
        assert_eq!((written.total(), written.recurring()), (127, 63));
    }
}
