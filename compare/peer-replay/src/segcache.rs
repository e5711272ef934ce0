//! The crate segcache, merging as in its documentation. The memory is all-in: an index of a power of two slots, at most
//! 85 % full of the objects that fit, and what is left is segments. Which segments are best is not known beforehand,
//! nor whether the index should have twice the slots (its buckets overflow early): all are tried, and the lowest miss
//! ratio counts.

use std::time::Duration;

use ebbtide_lab::keys::KeyBuffer;
use segcache::{Policy, Segcache};

use crate::trace::{Object, Request, Trace};
use crate::{Cache, LARGEST_BYTES, clock, miss_ratio};

const SLOT_BYTES: u64 = 8;
/// Bytes of an item's header. An item begins at a multiple of eight.
const ITEM_HEADER_BYTES: u64 = 5;
const MIN_POWER: u32 = 7;
/// How many segments the memory is to have, from few to many.
const SEGMENTS: [u64; 4] = [64, 256, 1024, 4096];

/// `None` if the crate refuses so little memory.
pub fn lowest_miss_ratio(memory: u64, trace: &Trace) -> Option<f64> {
    let power = index_power(memory, trace);
    let sizes = segment_sizes(memory, trace).into_iter();
    let shapes = sizes.flat_map(|segment_bytes| [(power, segment_bytes), (power + 1, segment_bytes)]);
    let caches = shapes.filter_map(|(power, segment_bytes)| Crate::new(memory, power, segment_bytes, trace));
    caches.map(|mut cache| miss_ratio(&mut cache, trace)).reduce(f64::min)
}

/// The slots of the index, as a power of two.
fn index_power(memory: u64, trace: &Trace) -> u32 {
    let cached = trace.objects.iter().map(item_bytes).filter(|&bytes| bytes <= LARGEST_BYTES);
    let mean = cached.clone().sum::<u64>() / (cached.count() as u64).max(1);
    let items = (memory / mean.max(1)).min(trace.objects.len() as u64);
    (items * 100 / 85).next_power_of_two().ilog2().max(MIN_POWER)
}

fn item_bytes(object: &Object) -> u64 {
    (ITEM_HEADER_BYTES + object.bytes()).next_multiple_of(8)
}

/// Different sizes in which the largest item fits.
fn segment_sizes(memory: u64, trace: &Trace) -> Vec<u64> {
    let min_bytes = trace.largest_bytes() + ITEM_HEADER_BYTES + 8;
    let size = |count: u64| (memory / count).clamp(min_bytes, LARGEST_BYTES.max(min_bytes)).next_multiple_of(8);
    let mut sizes = SEGMENTS.map(size).to_vec();
    sizes.dedup();
    sizes
}

struct Crate {
    cache: Segcache,
    key: KeyBuffer,
    objects: Vec<Object>,
    value: Vec<u8>,
    now: u32,
}

impl Crate {
    fn new(memory: u64, power: u32, segment_bytes: u64, trace: &Trace) -> Option<Self> {
        let heap = memory.checked_sub(SLOT_BYTES << power)? / segment_bytes * segment_bytes;
        clock::set(0);
        let cache = Segcache::builder()
            .hash_power(power as u8)
            .heap_size(heap as usize)
            .segment_size(segment_bytes as i32)
            .eviction(Policy::Merge { max: 8, merge: 4, compact: 2 })
            .build()
            .ok()?;
        let value = vec![b'.'; LARGEST_BYTES as usize];
        Some(Self { cache, key: KeyBuffer::default(), objects: trace.objects.clone(), value, now: 0 })
    }

    fn tick(&mut self, now: u32) {
        if now > self.now {
            self.now = now;
            clock::set(now.into());
            self.cache.expire();
        }
    }
}

impl Cache for Crate {
    fn get(&mut self, key: u32, now: u32) -> bool {
        self.tick(now);
        let key = self.key.write(key.into(), self.objects[key as usize].key_bytes);
        self.cache.get(key).is_some()
    }

    fn set(&mut self, request: &Request) {
        self.tick(request.now);
        let key = self.key.write(request.key.into(), self.objects[request.key as usize].key_bytes);
        if let Some(value) = self.value.get(..request.object.value_bytes as usize) {
            // A refused object is counted by its later misses.
            let _ = self.cache.insert(key, value, None, Duration::from_secs(request.ttl.into()));
        }
    }

    fn delete(&mut self, key: u32) {
        let key = self.key.write(key.into(), self.objects[key as usize].key_bytes);
        self.cache.delete(key);
    }
}
