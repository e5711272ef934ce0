//! Counters of the store.

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
    /// Objects that were inserted.
    inserted,
    /// Bytes of their records.
    inserted_bytes,
    /// Objects refused: they are not small.
    dropped_large,
    /// Objects refused: they have expired.
    dropped_expired,
    /// Objects refused: the log is full, since the device does not write fast enough.
    dropped_busy,
    /// Objects refused: the index has no memory left.
    dropped_memory,
    /// Objects refused: their set has 255 entries, the maximum.
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
    /// Lookups that ended because the device accepted no more requests.
    lookups_refused,
    /// Lookups that ended because their set changed repeatedly.
    lookups_contended,
    /// Sets that a walk skipped because they changed repeatedly.
    scans_contended,
    /// Reads that failed.
    read_errors,
    /// Pages with wrong bytes.
    corrupt_pages,
    /// Writes that failed.
    write_errors,
    /// Bytes written: segments of the log.
    log_bytes_written,
    /// Bytes written: sets' pages.
    set_bytes_written,
    /// Bytes written: marks of the log's start.
    mark_bytes_written,
    /// Bytes written: zeros, once, in the area of sets' pages.
    zero_bytes_written,
    /// Sets' pages that were written.
    pages_written,
    /// Bytes read to move objects.
    bytes_read_to_move,
    /// Objects moved from the log to a set's page.
    moved,
    /// Objects readmitted to the log.
    readmitted,
    /// Hit objects for which the log had no space to readmit them.
    ended_unreadmitted,
    /// Objects evicted with their segment: too few of their set were in the log.
    ended_below_threshold,
    /// Objects evicted because their set's page had no space.
    ended_evicted,
    /// Objects evicted by the rewrite of their page, to free index memory.
    ended_for_memory,
    /// Objects that were found to have expired when their page or segment was rewritten.
    ended_expired,
    /// Objects lost because a transfer failed.
    ended_failed,
    /// Sets that were emptied because there was no space for a tombstone.
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

/// Gauges and counters of the store.
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

    /// Bytes written for each byte of an inserted record, without zeros, which are written once; 0 if nothing was
    /// inserted.
    pub fn write_amplification(&self) -> f64 {
        let counts = &self.counts;
        let written = counts.log_bytes_written + counts.set_bytes_written + counts.mark_bytes_written;
        if counts.inserted_bytes == 0 { 0.0 } else { written as f64 / counts.inserted_bytes as f64 }
    }
}
