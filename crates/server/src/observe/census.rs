//! Use of memory: a sample of the stored objects by key prefix and by size, and the largest of them.
//!
//! Every few seconds the admin thread scans each pool from the beginning of its index. The order of the index is that
//! of the hashes, so the first objects of a scan are a random sample; the counts are scaled to all objects of the pool.
//! A scan ends after a bounded number of objects, so a census takes some 10 ms however large the cache is.

use std::time::Duration;

use super::groups::{CLASSES, GroupSketch, prefix_name, prefix_of, size_class, size_range};
use super::headline::{MIN_MEMORY_SHARE, MIN_UNREAD_SHARE, UnreadPrefix};
use super::traffic::TrafficSketch;
use crate::pools::PoolSet;

/// Maximum number of objects that a census examines, all pools together.
const MAX_OBJECTS: u64 = 65_536;
/// A census of fewer objects is repeated after the shorter time.
const FEW_OBJECTS: u64 = 8_192;
const SHORT_INTERVAL: Duration = Duration::from_secs(2);
const LONG_INTERVAL: Duration = Duration::from_secs(15);
/// A prefix with a smaller part of the sets does not push others out now.
const MIN_SET_SHARE: f64 = 0.2;
/// Largest objects that are kept.
const LARGEST: usize = 20;

/// Bytes, objects, and objects without a counted read since their write or the last eviction that they survived; of one
/// prefix or size class.
pub type MemoryCounts = [f64; 3];

/// The objects of one octave of sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeClass {
    pub bytes_min: u64,
    pub bytes_max: u64,
    pub counts: MemoryCounts,
}

/// A stored object that is among the largest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargeObject {
    pub key: Vec<u8>,
    pub bytes: u64,
    /// The life that is left; `None` if it never expires.
    pub ttl: Option<Duration>,
    /// Since the last use, or the write.
    pub idle: Duration,
    /// As of the counts.
    pub is_unread: bool,
}

/// Result of a census, scaled to all objects.
#[derive(Clone, Debug)]
pub struct Census {
    pub prefixes: GroupSketch<3>,
    pub classes: [MemoryCounts; CLASSES],
    /// The largest first.
    pub largest: Vec<LargeObject>,
    /// Number of objects examined.
    pub looked_at: u64,
    /// True if every object was examined.
    pub is_complete: bool,
}

impl Default for Census {
    fn default() -> Self {
        let classes = [[0.0; 3]; CLASSES];
        Self { prefixes: GroupSketch::default(), classes, largest: Vec::new(), looked_at: 0, is_complete: true }
    }
}

/// The census of the present, and when the next one is due.
#[derive(Debug, Default)]
pub struct CensusClock {
    pub latest: Option<Census>,
    due: Duration,
}

impl CensusClock {
    /// Takes a census if one is due, and answers it. `uptime` is the time now.
    pub fn advance(&mut self, pools: &PoolSet, delimiter: u8, uptime: Duration) -> Option<&Census> {
        if uptime < self.due {
            return None;
        }
        // While too many scans are running the census of before stays.
        let census = Census::take(pools, delimiter, MAX_OBJECTS)?;
        let interval = if census.looked_at < FEW_OBJECTS { SHORT_INTERVAL } else { LONG_INTERVAL };
        self.due = uptime + interval;
        Some(self.latest.insert(census))
    }
}

impl Census {
    /// Examines up to `max_objects` objects of all pools together. `None` if too many scans are running.
    pub fn take(pools: &PoolSet, delimiter: u8, max_objects: u64) -> Option<Self> {
        let mut census = Self::default();
        let share = max_objects / pools.entries.len().max(1) as u64;
        for entry in &pools.entries {
            let scan = entry.pool.scan().ok()?.without_long_values();
            census.add_pool(scan, entry.pool.stats().items, share.max(1), delimiter);
        }
        Some(census)
    }

    /// The octaves of sizes that hold objects, the smallest first.
    pub fn size_classes(&self) -> impl Iterator<Item = SizeClass> {
        let classes = (0u8..).zip(&self.classes).filter(|(_, [_, items, _])| *items > 0.0);
        classes.map(|(class, &counts)| {
            let (bytes_min, bytes_max) = size_range(class);
            SizeClass { bytes_min, bytes_max, counts }
        })
    }

    /// The part of the objects without a counted read, as of the counts; `None` without objects.
    pub fn unread_share(&self) -> Option<f64> {
        let [_, items, unread] = self.prefixes.total();
        (items > 0.0).then(|| unread / items)
    }

    /// The prefix that is written most, of those that take much memory for unread objects and have a lower share of the
    /// hits in `traffic` than of the memory: objects that survived an eviction count as unread until their next read,
    /// however useful they are. A prefix with few writes is the remainder of an earlier flood.
    pub fn unread_prefix(&self, traffic: &TrafficSketch) -> Option<UnreadPrefix> {
        let ([all_bytes, ..], [.., all_hits, all_sets]) = (self.prefixes.total(), traffic.total());
        let memory_share = |prefix: &[u8]| self.prefixes.get(prefix)[0] / all_bytes.max(1.0);
        let hit_share = |prefix: &[u8]| if all_hits > 0.0 { traffic.get(prefix)[2] / all_hits } else { 0.0 };
        let unread_share = |prefix: &[u8]| {
            let [_, items, unread] = self.prefixes.get(prefix);
            unread / items.max(1.0)
        };
        let sets = |prefix: &[u8]| traffic.get(prefix)[3];
        let is_suspect = |prefix: &&[u8]| {
            memory_share(prefix) >= MIN_MEMORY_SHARE
                && unread_share(prefix) >= MIN_UNREAD_SHARE
                && hit_share(prefix) < memory_share(prefix)
                && sets(prefix) > 0.0
                && sets(prefix) >= MIN_SET_SHARE * all_sets
        };
        let suspects = self.prefixes.prefixes().filter(is_suspect);
        let prefix = suspects.max_by(|a, b| sets(a).total_cmp(&sets(b)))?;
        Some(UnreadPrefix {
            name: prefix_name(prefix),
            memory_share: memory_share(prefix),
            hit_share: hit_share(prefix),
            unread_share: unread_share(prefix),
        })
    }

    fn add_pool(&mut self, mut scan: ebbtide::memcached::Scan, items: u64, max: u64, delimiter: u8) {
        let mut pool = Census::default();
        // Ends: each step moves on in the index, and flash, where a step would wait, is left out.
        while pool.looked_at < max && !scan.waits() {
            let has_more = scan.advance(|entry| {
                let Some(item) = entry.item() else { return };
                pool.looked_at += 1;
                let (bytes, is_unread) = (entry.stored_bytes(), !item.was_used());
                let counts = [bytes as f64, 1.0, if is_unread { 1.0 } else { 0.0 }];
                pool.prefixes.add(prefix_of(entry.key(), delimiter), counts);
                let class = usize::from(size_class(bytes));
                pool.classes[class].iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
                let (ttl, idle) = (entry.ttl(), entry.idle().unwrap_or_default());
                pool.note_large(bytes, || LargeObject { key: entry.key().to_vec(), bytes, ttl, idle, is_unread });
            });
            if !has_more {
                break;
            }
        }
        let scale = if pool.looked_at > 0 { items.max(pool.looked_at) as f64 / pool.looked_at as f64 } else { 1.0 };
        self.is_complete &= pool.looked_at < max;
        self.looked_at += pool.looked_at;
        for prefix in pool.prefixes.prefixes() {
            self.prefixes.add(prefix, pool.prefixes.get(prefix).map(|count| count * scale));
        }
        for (sum, counts) in self.classes.iter_mut().zip(pool.classes) {
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count * scale);
        }
        for large in pool.largest {
            self.note_large(large.bytes, || large);
        }
    }

    fn note_large(&mut self, bytes: u64, object: impl FnOnce() -> LargeObject) {
        let at = self.largest.partition_point(|large| large.bytes >= bytes);
        if at < LARGEST {
            self.largest.insert(at, object());
            self.largest.truncate(LARGEST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_found_beside_a_larger_prefix() {
        let mut census = Census::default();
        let mut traffic = TrafficSketch::default();
        assert!(census.unread_prefix(&traffic).is_none());
        census.prefixes.add(b"user:", [600.0, 6.0, 6.0]);
        census.prefixes.add(b"flood:", [400.0, 8.0, 8.0]);
        assert!(census.unread_prefix(&traffic).is_none(), "nothing is written");
        // The victims have survived evictions, so that no read of them is counted; but it is they that are hit.
        traffic.add(b"user:", [200.0, 100.0, 95.0, 100.0]);
        traffic.add(b"flood:", [100.0, 5.0, 5.0, 95.0]);
        let told = census.unread_prefix(&traffic).unwrap();
        assert_eq!((&*told.name, told.memory_share, told.unread_share), ("flood:", 0.4, 1.0));
        assert_eq!((&*told.name, told.hit_share), ("flood:", 0.05));
        // Another prefix floods now; the first one's memory is the remainder of its flood.
        census.prefixes.add(b"crawl:", [300.0, 9.0, 9.0]);
        traffic.add(b"crawl:", [900.0, 0.0, 0.0, 900.0]);
        assert_eq!(census.unread_prefix(&traffic).unwrap().name, "crawl:");
        census.prefixes.add(b"crawl:", [0.0, 9.0, 0.0]);
        assert!(census.unread_prefix(&traffic).is_none(), "that one is read");
    }
}
