//! What the store counts, always.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since the store was made.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub $name: AtomicU64,)*
        }

        impl Counters {
            pub fn read(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Objects that were taken.
    inserted,
    /// Bytes of their records.
    inserted_bytes,
    /// Objects refused: they are not small.
    dropped_large,
    /// Objects refused: they have expired.
    dropped_expired,
    /// Objects refused: the log is full, the device does not keep up.
    dropped_busy,
    /// Objects refused: the index has no memory left.
    dropped_memory,
    /// Objects refused: their set has as many entries as a byte counts.
    dropped_crowded,
    /// Lookups.
    lookups,
    /// Hits in the log.
    log_hits,
    /// Hits in sets' pages.
    set_hits,
    /// Lookups that read the device.
    lookups_read,
    /// Lookups that read the device and found nothing.
    lookups_read_for_nothing,
    /// Lookups that gave up because the device took no more requests.
    lookups_refused,
    /// Lookups that gave up because what they looked at changed again and again.
    lookups_contended,
    /// Sets that a walk passed over because they changed again and again.
    scans_contended,
    /// Reads that failed.
    read_errors,
    /// Pages that were not what was written there.
    corrupt_pages,
    /// Writes that failed.
    write_errors,
    /// Bytes written: segments of the log.
    log_bytes_written,
    /// Bytes written: sets' pages.
    set_bytes_written,
    /// Bytes written: where the log begins.
    mark_bytes_written,
    /// Bytes written: zeros, once, where sets' pages will be.
    zero_bytes_written,
    /// Sets' pages that were written.
    pages_written,
    /// Bytes read to move objects.
    bytes_read_to_move,
    /// Objects that came from the log into a set's page.
    moved,
    /// Objects that got another life in the log.
    readmitted,
    /// Objects that were hit but found no room for another life in the log.
    ended_unreadmitted,
    /// Objects that ended with their segment: too few of their set were in the log.
    ended_below_threshold,
    /// Objects that ended because their set's page had no room.
    ended_evicted,
    /// Objects that ended with the rewriting of their page, to make room in the index.
    ended_for_memory,
    /// Objects that were found to have expired when their page or segment was rewritten.
    ended_expired,
    /// Objects that ended because a transfer failed.
    ended_failed,
    /// Sets that were emptied for want of room for a tombstone.
    voided_by_tombstones,
    /// Sets that were emptied because a page could not be read or written.
    voided_by_failure,
    /// Segments of the log that are never used again.
    segments_retired,
}

impl Counters {
    pub fn add(counter: &AtomicU64, by: usize) {
        counter.fetch_add(by as u64, Ordering::Relaxed);
    }

    pub fn one(counter: &AtomicU64) {
        Self::add(counter, 1);
    }
}

/// What the store holds now, and what it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub counts: Counts,
    /// Objects in sets' pages, expired ones too.
    pub page_objects: u64,
    /// Objects in the log, overwritten ones too.
    pub log_objects: u64,
    /// Removed keys whose page was not rewritten since.
    pub tombstones: u64,
    /// RAM of filters, log index and tombstones.
    pub index_bytes: u64,
    /// RAM of segments that are open or being written.
    pub buffer_bytes: u64,
    pub sets: u64,
    pub free_log_segments: u64,
}

impl Stats {
    pub fn objects(&self) -> u64 {
        self.page_objects + self.log_objects
    }

    /// Bytes written for each byte of a record that was taken, but for zeros, which are written once; 0 if none was.
    pub fn write_amplification(&self) -> f64 {
        let counts = &self.counts;
        let written = counts.log_bytes_written + counts.set_bytes_written + counts.mark_bytes_written;
        if counts.inserted_bytes == 0 { 0.0 } else { written as f64 / counts.inserted_bytes as f64 }
    }
}
