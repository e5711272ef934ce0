//! Gets, sets and deletes.

use crate::memory::{CAS, EXPIRY, Item, KEY_BYTES, VALUE_BYTES};
use crate::slabs::Slabs;
use crate::space::{Eviction, Space};
use crate::table::{Table, hash};

/// Chunks for the smallest key and value of memcached: 48 bytes beside the header.
const MIN_PAYLOAD_BYTES: usize = 40;

/// A look-aside cache on slab storage.
#[derive(Debug)]
pub struct SlabStore<E> {
    space: Space,
    eviction: E,
    stored: u64,
}

impl<E: Eviction> SlabStore<E> {
    /// A cache of `memory` bytes of slabs for objects of up to `largest` bytes, key and value.
    pub fn new(memory: u64, largest: u64, eviction: E) -> Self {
        let largest = largest + (E::HEADER_BYTES + E::TRAILER_BYTES) as u64;
        let slabs = Slabs::new(memory, E::HEADER_BYTES + MIN_PAYLOAD_BYTES, largest);
        let table = Table::new(E::HEADER_BYTES);
        let (header_bytes, trailer_bytes) = (E::HEADER_BYTES, E::TRAILER_BYTES);
        Self { space: Space { slabs, table, now: 0, header_bytes, trailer_bytes }, eviction, stored: 0 }
    }

    /// Moves time on.
    #[inline]
    pub fn advance(&mut self, now: u32) {
        if now > self.space.now {
            self.space.now = now;
            self.eviction.advanced(&mut self.space);
        }
    }

    /// Copies the value to `out`. False on a miss.
    #[inline]
    pub fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(item) = self.space.table.find(&self.space.slabs.memory, key, hash(key)) else { return false };
        if self.space.has_expired(item) {
            self.remove(item);
            return false;
        }
        let memory = &self.space.slabs.memory;
        out.clear();
        let length = memory.get(item, VALUE_BYTES) as usize;
        out.extend_from_slice(memory.bytes(item.0 as usize + E::HEADER_BYTES + key.len(), length));
        self.eviction.used(&mut self.space, item);
        true
    }

    /// Stores a value, which is dead from the second `expiry` on. False if it is too large, or if nothing can be
    /// evicted; the old one is removed even so.
    pub fn set(&mut self, key: &[u8], value: &[u8], expiry: u32) -> bool {
        let new = u8::try_from(key.len()).ok().and_then(|_| self.take(key.len(), value.len()));
        let hash = hash(key);
        if let Some(old) = self.space.table.find(&self.space.slabs.memory, key, hash) {
            self.remove(old);
        }
        let Some(item) = new else { return false };
        self.stored += 1;
        let memory = &mut self.space.slabs.memory;
        memory.put(item, CAS, self.stored);
        memory.put(item, EXPIRY, expiry);
        memory.put(item, KEY_BYTES, key.len() as u8);
        memory.put(item, VALUE_BYTES, value.len() as u32);
        let start = item.0 as usize + E::HEADER_BYTES;
        memory.write(start, key);
        memory.write(start + key.len(), value);
        self.space.table.insert(memory, item, hash);
        self.eviction.stored(&mut self.space, item);
        true
    }

    /// False if the key is not there.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        let found = self.space.table.find(&self.space.slabs.memory, key, hash(key));
        found.inspect(|&item| self.remove(item)).is_some()
    }

    /// Number of items, expired ones among them.
    pub fn len(&self) -> usize {
        self.space.table.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn take(&mut self, key_bytes: usize, value_bytes: usize) -> Option<Item> {
        let class = self.space.slabs.class_for(self.space.item_bytes(key_bytes, value_bytes))?;
        loop {
            if let Some(item) = self.space.slabs.take(class) {
                return Some(item);
            }
            if !self.eviction.make_space(&mut self.space, class) {
                return None;
            }
        }
    }

    fn remove(&mut self, item: Item) {
        self.eviction.removed(&mut self.space, item);
        self.space.remove(item);
    }

    /// # Panics
    /// If slabs, table and eviction do not have the same items.
    pub fn verify(&self) {
        self.space.slabs.verify();
        let items: usize = self.space.slabs.classes.iter().map(|class| class.items).sum();
        assert_eq!(items, self.len(), "items of the table");
        self.eviction.verify(&self.space);
    }
}
