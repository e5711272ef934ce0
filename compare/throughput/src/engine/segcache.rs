//! The crate segcache with merging as in its documentation, without its metrics. An index of a power of two slots, at
//! most 85 % full, counts as part of the capacity, and what is left is its heap.

use std::time::Duration;

use segcache::{Policy, Value};

use super::{Engine, Size};
use crate::workload::{KEY_BYTES, Key};

const SEGMENT_BYTES: u64 = 1 << 20;
const SLOT_BYTES: u64 = 8;
/// Bytes of an item's header. An item begins at a multiple of eight.
const ITEM_HEADER_BYTES: u64 = 5;

pub struct Segcache(segcache::Segcache);

impl Engine for Segcache {
    fn build(size: &Size) -> Result<Self, String> {
        let item_bytes = (ITEM_HEADER_BYTES + KEY_BYTES as u64 + u64::from(size.value_bytes)).next_multiple_of(8);
        let items = (size.capacity_bytes / item_bytes).min(size.objects);
        let power = (items * 100 / 85).next_power_of_two().ilog2().max(7);
        let heap_bytes = size.capacity_bytes.saturating_sub(SLOT_BYTES << power) / SEGMENT_BYTES * SEGMENT_BYTES;
        let cache = segcache::Segcache::builder()
            .hash_power(power as u8)
            .heap_size(heap_bytes as usize)
            .segment_size(SEGMENT_BYTES as i32)
            .eviction(Policy::Merge { max: 8, merge: 4, compact: 2 })
            .build();
        cache.map(Self).map_err(|error| error.to_string())
    }

    #[inline(always)]
    fn look<R>(&self, key: &Key, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let item = self.0.get(key)?;
        match item.value() {
            Value::Bytes(value) => Some(look(value)),
            Value::U64(_) => None,
        }
    }

    #[inline(always)]
    fn set(&self, key: &Key, value: &[u8]) -> bool {
        self.0.insert(key, value, None, Duration::ZERO).is_ok()
    }

    #[inline(always)]
    fn set_with_ttl(&self, key: &Key, value: &[u8], ttl: Duration) -> bool {
        self.0.insert(key, value, None, ttl).is_ok()
    }
}
