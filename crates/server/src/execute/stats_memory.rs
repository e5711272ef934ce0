//! `stats ebbtide ttls` and `stats ebbtide sizes`: the memory of objects by TTL and by size.

use ebbtide_protocol::reply::stat;

use super::Executor;
use crate::observe::{Census, SizeClass};

/// Maximum number of objects that `stats ebbtide sizes` samples; the scan takes a worker about a millisecond.
const MAX_OBJECTS: u64 = 4096;

impl Executor {
    /// One group of statistics for each TTL bucket, named by its shortest TTL.
    pub(super) fn memory_by_ttl(&self, out: &mut Vec<u8>) {
        for bucket in self.router.set().segment_snapshot().ttl_buckets {
            let name = bucket.ttl_seconds.map_or("never".to_owned(), |(shortest, _)| shortest.to_string());
            let numbers = [
                ("segments", bucket.segments),
                ("segment_bytes", bucket.segment_bytes),
                ("live_bytes", bucket.live_bytes),
                ("expired_bytes", bucket.expired_bytes),
                ("items", bucket.items),
            ];
            if let Some((_, longest)) = bucket.ttl_seconds {
                stat(out, &format!("{name}:ttl_seconds_max"), longest);
            }
            for (field, number) in numbers {
                stat(out, &format!("{name}:{field}"), number);
            }
        }
    }

    /// One group of statistics for each octave of sizes, named by its smallest size; from a sample of the objects.
    pub(super) fn memory_by_size(&self, out: &mut Vec<u8>) {
        let delimiter = self.shared.options.prefix_delimiter;
        let Some(census) = Census::take(self.router.set(), delimiter, MAX_OBJECTS) else {
            return stat(out, "sizes_status", "busy");
        };
        stat(out, "objects_looked_at", census.looked_at);
        stat(out, "complete", u8::from(census.is_complete));
        for SizeClass { bytes_min, bytes_max, counts: [bytes, items, unread] } in census.size_classes() {
            let numbers = [("bytes", bytes), ("items", items), ("unread", unread)];
            stat(out, &format!("{bytes_min}:bytes_max"), bytes_max);
            for (field, number) in numbers {
                stat(out, &format!("{bytes_min}:{field}"), number.round() as u64);
            }
        }
    }
}
