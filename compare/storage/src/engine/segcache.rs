//! The crate segcache, merging as in its documentation. The memory is all-in: an index of a power of two slots, at most
//! 85 % full of the objects that fit, and the rest is its heap, in segments of 1 MiB, or smaller ones, so that there
//! are 256 of them.

use std::time::Duration;

use segcache::{Policy, Value};

use super::Engine;
use crate::clock;
use crate::requests::Requests;

const SLOT_BYTES: u64 = 8;
/// Bytes of an item's header. An item begins at a multiple of eight.
const ITEM_HEADER_BYTES: u64 = 5;
const MIN_POWER: u32 = 7;
const SEGMENTS: u64 = 256;
const MAX_SEGMENT_BYTES: u64 = 1 << 20;

pub struct Segcache {
    cache: segcache::Segcache,
    now: u32,
}

impl Segcache {
    pub fn new(memory: u64, requests: &Requests, copies: u32) -> Result<Self, String> {
        let power = index_power(memory, requests, copies);
        let smallest = requests.largest_bytes() + ITEM_HEADER_BYTES + 8;
        let segment = (memory / SEGMENTS).max(smallest).min(MAX_SEGMENT_BYTES.max(smallest)).next_multiple_of(8);
        let heap = memory.saturating_sub(SLOT_BYTES << power) / segment * segment;
        clock::set(0);
        let cache = segcache::Segcache::builder()
            .hash_power(power as u8)
            .heap_size(heap as usize)
            .segment_size(segment as i32)
            .eviction(Policy::Merge { max: 8, merge: 4, compact: 2 })
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { cache, now: 0 })
    }
}

/// The slots of the index, as a power of two.
fn index_power(memory: u64, requests: &Requests, copies: u32) -> u32 {
    let mut sizes = Vec::new();
    for request in requests.all() {
        if sizes.len() <= request.key as usize {
            sizes.push((ITEM_HEADER_BYTES + request.bytes()).next_multiple_of(8));
        }
    }
    let keys = sizes.len() as u64;
    let mean = (sizes.iter().sum::<u64>() / keys.max(1)).max(1);
    let items = (memory / mean).min(keys * u64::from(copies));
    (items * 100 / 85).next_power_of_two().ilog2().max(MIN_POWER)
}

impl Engine for Segcache {
    fn advance(&mut self, now: u32) {
        if now > self.now {
            self.now = now;
            clock::set(now.into());
            self.cache.expire();
        }
    }

    #[inline(always)]
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(item) = self.cache.get(key) else { return false };
        if let Value::Bytes(value) = item.value() {
            out.clear();
            out.extend_from_slice(value);
        }
        true
    }

    #[inline(always)]
    fn set(&mut self, key: &[u8], value: &[u8], ttl: u32) {
        let _ = self.cache.insert(key, value, None, Duration::from_secs(ttl.into()));
    }

    fn delete(&mut self, key: &[u8]) {
        self.cache.delete(key);
    }
}
