//! Stack distances in bytes by buckets (Dynacache, section 3.2, after Mimir, SoCC'14): O(buckets) for an access, and no
//! order within a bucket.
//!
//! ```text
//! newest                                         oldest
//! +--------+   +--------+   +--------+       +--------+
//! | filled |-->|  full  |-->|  full  |--...->|  full  |--> forgotten when a bucket is opened
//! +--------+   +--------+   +--------+       +--------+
//! distance of an object in the third = bytes of the first two + half of the bytes of the third
//! ```
//! An accessed object moves to the newest bucket. One that died leaves its bytes there until the bucket is forgotten,
//! as a hole does in the exact [`Stack`](crate::Stack).

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use crate::stack::KeyIsHash;

/// A bounded stack of objects by recency, in buckets.
#[derive(Clone, Debug)]
pub struct BucketedStack {
    max_buckets: usize,
    objects_per_bucket: usize,
    /// The newest first.
    buckets: VecDeque<Bucket>,
    /// Number of the newest bucket; they count up.
    newest: u64,
    objects: HashMap<u64, (u64, f64), BuildHasherDefault<KeyIsHash>>,
}

#[derive(Clone, Debug, Default)]
struct Bucket {
    bytes: f64,
    /// All keys added to the bucket, including those that have moved to a newer one.
    keys: Vec<u64>,
}

impl BucketedStack {
    /// At most `max_buckets` (at least 2) of `objects_per_bucket` each; the paper takes 100 of 100.
    pub fn new(max_buckets: usize, objects_per_bucket: usize) -> Self {
        assert!(max_buckets >= 2 && objects_per_bucket >= 1, "{max_buckets} buckets of {objects_per_bucket}");
        Self {
            max_buckets,
            objects_per_bucket,
            buckets: VecDeque::from([Bucket::default()]),
            newest: 0,
            objects: HashMap::default(),
        }
    }

    /// Objects that are remembered.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether no object is remembered.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Estimate of the least LRU cache that holds the object, in bytes; `None` if it is not remembered.
    pub fn distance(&self, key: u64) -> Option<f64> {
        let &(bucket, bytes) = self.objects.get(&key)?;
        let depth = (self.newest - bucket) as usize;
        let newer: f64 = self.buckets.iter().take(depth).map(|bucket| bucket.bytes).sum();
        Some(newer + (self.buckets[depth].bytes / 2.0).max(bytes))
    }

    /// Puts an object into the newest bucket.
    pub fn push(&mut self, key: u64, bytes: f64) {
        if let Some(&(bucket, before)) = self.objects.get(&key) {
            let depth = (self.newest - bucket) as usize;
            self.buckets[depth].bytes -= before;
            if depth == 0 {
                self.buckets[0].bytes += bytes;
                self.objects.insert(key, (bucket, bytes));
                return;
            }
        }
        if self.buckets[0].keys.len() == self.objects_per_bucket {
            self.open_bucket();
        }
        let newest = &mut self.buckets[0];
        newest.bytes += bytes;
        newest.keys.push(key);
        self.objects.insert(key, (self.newest, bytes));
    }

    /// The object has died. False if it is not remembered.
    pub fn remove(&mut self, key: u64) -> bool {
        self.objects.remove(&key).is_some()
    }

    fn open_bucket(&mut self) {
        self.newest += 1;
        self.buckets.push_front(Bucket::default());
        if self.buckets.len() > self.max_buckets {
            let oldest = self.buckets.pop_back().expect("there are at least two");
            let number = self.newest - self.buckets.len() as u64;
            for key in oldest.keys {
                if self.objects.get(&key).is_some_and(|&(bucket, _)| bucket == number) {
                    self.objects.remove(&key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stack;

    #[test]
    fn distance_error_is_at_most_one_bucket() {
        let (mut exact, mut buckets) = (Stack::default(), BucketedStack::new(100, 10));
        let mut seed = 3u64;
        let (mut error, mut count) = (0.0, 0.0);
        for _ in 0..50_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // The product of two even draws: some keys far more often than others.
            let key = ((seed >> 54) * ((seed >> 44) & 0x3FF)) >> 11;
            match (exact.distance(key), buckets.distance(key)) {
                (Some(distance), Some(estimate)) => {
                    assert!((distance - estimate).abs() <= 10.0 + 0.5, "{distance} against {estimate}");
                    error += (distance - estimate).abs();
                    count += 1.0;
                }
                (Some(distance), None) => assert!(distance > 200.0, "what was forgotten was used long ago: {distance}"),
                (None, estimate) => assert_eq!(estimate, None),
            }
            exact.push(key, 1.0);
            buckets.push(key, 1.0);
        }
        assert!(count > 40_000.0 && error / count < 5.0, "{count} distances, {} off in the mean", error / count);
    }

    #[test]
    fn the_number_of_buckets_is_bounded() {
        let mut buckets = BucketedStack::new(3, 2);
        (0..100).for_each(|key| buckets.push(key, 5.0));
        assert_eq!((buckets.len(), buckets.distance(94), buckets.distance(93)), (6, Some(25.0), None));
        assert!(buckets.remove(94) && !buckets.remove(94));
    }
}
