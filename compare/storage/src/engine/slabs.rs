//! The slab store with one of its evictions.

use ebbtide_slab_store::{Eviction, NEVER, SlabStore};

use super::Engine;

pub struct Slabs<E> {
    store: SlabStore<E>,
    now: u32,
}

impl<E: Eviction> Slabs<E> {
    pub fn new(memory: u64, largest: u64, eviction: E) -> Self {
        Self { store: SlabStore::new(memory, largest, eviction), now: 0 }
    }
}

impl<E: Eviction> Engine for Slabs<E> {
    fn advance(&mut self, now: u32) {
        self.now = now;
        self.store.advance(now);
    }

    #[inline(always)]
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> bool {
        self.store.get(key, out)
    }

    #[inline(always)]
    fn set(&mut self, key: &[u8], value: &[u8], ttl: u32) {
        let expiry = if ttl == 0 { NEVER } else { self.now.saturating_add(ttl) };
        self.store.set(key, value, expiry);
    }

    fn delete(&mut self, key: &[u8]) {
        self.store.delete(key);
    }
}
