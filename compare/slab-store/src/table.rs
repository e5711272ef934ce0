//! Chained hash table: a bucket has the first item of its chain, and each header the next one. It doubles at one and a
//! half items for each bucket, as memcached's does.

use rapidhash::v3::rapidhash_v3;

use crate::memory::{CHAIN, Item, KEY_BYTES, Memory, NONE};

const MIN_BUCKETS: usize = 1 << 10;

#[derive(Debug)]
pub struct Table {
    buckets: Vec<Item>,
    items: usize,
    /// Offset of the key in an item.
    key_at: usize,
}

#[inline(always)]
pub fn hash(key: &[u8]) -> u64 {
    rapidhash_v3(key)
}

impl Table {
    pub fn new(key_at: usize) -> Self {
        Self { buckets: vec![NONE; MIN_BUCKETS], items: 0, key_at }
    }

    pub fn len(&self) -> usize {
        self.items
    }

    #[inline(always)]
    fn bucket(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    #[inline(always)]
    pub fn key<'a>(&self, memory: &'a Memory, item: Item) -> &'a [u8] {
        memory.bytes(item.0 as usize + self.key_at, memory.get(item, KEY_BYTES).into())
    }

    #[inline(always)]
    pub fn find(&self, memory: &Memory, key: &[u8], hash: u64) -> Option<Item> {
        let mut item = self.buckets[self.bucket(hash)];
        while item != NONE {
            if self.key(memory, item) == key {
                return Some(item);
            }
            item = Item(memory.get(item, CHAIN));
        }
        None
    }

    /// Adds an item whose key is not in the table.
    pub fn insert(&mut self, memory: &mut Memory, item: Item, hash: u64) {
        self.items += 1;
        if self.items * 2 > self.buckets.len() * 3 {
            self.double(memory);
        }
        self.push(memory, item, hash);
    }

    fn push(&mut self, memory: &mut Memory, item: Item, hash: u64) {
        let bucket = self.bucket(hash);
        memory.put(item, CHAIN, self.buckets[bucket].0);
        self.buckets[bucket] = item;
    }

    pub fn remove(&mut self, memory: &mut Memory, item: Item) {
        let next = memory.get(item, CHAIN);
        self.repoint(memory, item, Item(next));
        self.items -= 1;
    }

    /// Makes the table lead to `to`, a copy of `from`.
    pub fn replace(&mut self, memory: &mut Memory, from: Item, to: Item) {
        self.repoint(memory, from, to);
    }

    /// Gives what points to an item another target.
    fn repoint(&mut self, memory: &mut Memory, item: Item, target: Item) {
        let bucket = self.bucket(hash(self.key(memory, item)));
        let mut at = self.buckets[bucket];
        if at == item {
            self.buckets[bucket] = target;
            return;
        }
        loop {
            let next = Item(memory.get(at, CHAIN));
            if next == item {
                return memory.put(at, CHAIN, target.0);
            }
            at = next;
        }
    }

    fn double(&mut self, memory: &mut Memory) {
        let buckets = vec![NONE; 2 * self.buckets.len()];
        for mut item in std::mem::replace(&mut self.buckets, buckets) {
            while item != NONE {
                let next = Item(memory.get(item, CHAIN));
                let hash = hash(self.key(memory, item));
                self.push(memory, item, hash);
                item = next;
            }
        }
    }
}
