//! Counters of the log.

use super::reinsertion_value::CopiedShare;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Why an object was not inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LargeDrop {
    /// It was expired.
    Expired,
    /// Its key is empty or longer than 250 bytes, or its value is longer than the log takes.
    TooLarge,
    /// All buffers are being written, also after the wait for the device.
    Behind,
    /// No region is free: all are in use, or the device fails.
    NoRegion,
    /// The index has no memory left.
    Memory,
    /// A checkpoint was made.
    Closed,
    /// A flush happened during the insert, or a region of the object was reclaimed before it was complete.
    Overtaken,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Debug, Default)]
        pub struct Counters {
            $(pub $name: Counter,)*
        }

        /// Counters since the log was created, and gauges.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
            /// Objects in the index, flushed ones that are not swept yet included. Each part of a cut object counts.
            pub objects: u64,
            pub region_bytes: u64,
            /// Regions without objects.
            pub regions_free: u64,
            /// Regions that are not used any more because a transfer failed.
            pub regions_retired: u64,
            pub regions: u64,
        }

        impl Counters {
            pub fn read(&self) -> Stats {
                Stats { $($name: self.$name.get(),)* ..Stats::default() }
            }
        }
    };
}

counters! {
    /// Objects that were inserted, and bytes of their keys and values.
    inserts,
    inserted_bytes,
    /// Parts other than the first of objects that a region's end cut.
    later_parts,
    /// Inserts that replaced an older version, or another key with the same 38 bits of hash.
    replaced,
    /// Objects that were not inserted, by reason.
    dropped_expired,
    dropped_too_large,
    dropped_behind,
    dropped_no_region,
    dropped_memory,
    dropped_closed,
    dropped_overtaken,
    /// Lookups for which the index had an address, and their results.
    lookups,
    hits_memory,
    hits_device,
    /// Another key with the same 38 bits of hash.
    misses_collision,
    misses_expired,
    /// Removed, overwritten, flushed or reclaimed during the read, or a part is missing.
    misses_gone,
    /// The device returned wrong bytes.
    misses_corrupt,
    misses_error,
    /// The device's queue had no space for the read, or the object moved repeatedly during the lookup.
    misses_refused,
    removes,
    /// Objects that a walk found damaged.
    scans_corrupt,
    /// Bytes that reached the device, by cause: headers, keys and values of inserts
    written_insert_bytes,
    /// and of objects that were written again;
    written_reinsertion_bytes,
    /// headers and footers of regions;
    written_footer_bytes,
    /// gaps;
    written_padding_bytes,
    /// death marks.
    written_death_bytes,
    /// Keys and values of inserts that reached the device: the base of the write amplification.
    written_payload_bytes,
    read_bytes,
    regions_written,
    /// Open regions that were dropped before they were written, since all of their objects were expired or flushed.
    regions_unwritten,
    regions_flushed,
    regions_expired,
    regions_evicted,
    regions_failed,
    /// Objects that left with a region, by the region's cause.
    objects_flushed,
    objects_expired,
    objects_evicted,
    objects_failed,
    reinserted,
    /// Objects that were chosen for reinsertion but found no space, or were damaged or not current. Regions after the
    /// one in which space ran out are not counted.
    reinsertions_dropped,
    read_errors,
    write_errors,
    discard_errors,
}

impl Stats {
    /// Bytes that reached the device.
    pub fn written_bytes(&self) -> u64 {
        self.written_insert_bytes
            + self.written_reinsertion_bytes
            + self.written_footer_bytes
            + self.written_padding_bytes
            + self.written_death_bytes
    }

    /// Inserted objects, with the later parts of those that were cut: what `objects` and the counters of objects that
    /// left count.
    pub fn parts_inserted(&self) -> u64 {
        self.inserts + self.later_parts
    }

    /// Bytes written per byte of keys and values.
    pub fn write_amplification(&self) -> f64 {
        self.written_bytes() as f64 / self.written_payload_bytes as f64
    }
}

#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    pub fn one(&self) {
        self.add(1);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Counters {
    pub fn drop_one(&self, dropped: LargeDrop) {
        match dropped {
            LargeDrop::Expired => &self.dropped_expired,
            LargeDrop::TooLarge => &self.dropped_too_large,
            LargeDrop::Behind => &self.dropped_behind,
            LargeDrop::NoRegion => &self.dropped_no_region,
            LargeDrop::Memory => &self.dropped_memory,
            LargeDrop::Closed => &self.dropped_closed,
            LargeDrop::Overtaken => &self.dropped_overtaken,
        }
        .one();
    }
}

/// Bytes of a region's write, by cause.
#[derive(Clone, Copy, Debug, Default)]
pub struct RegionTally {
    pub payload: u64,
    pub insert: u64,
    pub reinsertion: u64,
    pub footer: u64,
}

impl RegionTally {
    /// The share of copies among the objects.
    pub fn copied(&self) -> CopiedShare {
        let bytes = (self.insert + self.reinsertion).max(1);
        (self.reinsertion * u64::from(CopiedShare::MAX) / bytes) as CopiedShare
    }

    /// Counts a completed write of `bytes`.
    pub fn count(&self, counters: &Counters, bytes: u64) {
        counters.regions_written.one();
        counters.written_payload_bytes.add(self.payload);
        counters.written_insert_bytes.add(self.insert);
        counters.written_reinsertion_bytes.add(self.reinsertion);
        counters.written_footer_bytes.add(self.footer);
        counters.written_padding_bytes.add(bytes - self.insert - self.reinsertion - self.footer);
    }
}
