//! The index of objects: maps 38 bits of a key's hash to an address.
//!
//! ```text
//! hash   | tag: 32 | not in the index: 26 | shard: 6 |
//!
//! shard  mutex, pages by linear hashing on the low bits of the tag
//! page   tags u32, sorted | places of 48 bits                       10 bytes an object, 128 to 512 of them
//! ```
//! A shard grows and shrinks by one page at a time, which takes microseconds: it is never rehashed as a whole. Pages
//! are sorted and dense, so no memory is lost to a load factor. The index does not distinguish two keys with the same
//! 38 bits; the whole key is on flash.

use super::address::Address;
use super::index_page::IndexPage;
use crate::FlashHash;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

const SHARD_BITS: u32 = 6;
pub const SHARDS: usize = 1 << SHARD_BITS;
/// A page is split when a shard holds more objects per page than this, on average. The fullest has about twice as many.
const SPLIT_ABOVE: usize = 288;
/// Two pages become one when a shard holds fewer per page. Well below, so that a shard does not swing.
const MERGE_BELOW: usize = 160;

/// The part of a key's hash that the index stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IndexKey {
    pub shard: u8,
    pub tag: u32,
}

impl IndexKey {
    pub fn of(hash: FlashHash) -> Self {
        Self { shard: (hash.0 as usize % SHARDS) as u8, tag: (hash.0 >> 32) as u32 }
    }
}

#[derive(Debug)]
pub struct LargeIndex {
    shards: Box<[PaddedShard]>,
    /// Bytes of RAM of all shards.
    bytes: AtomicUsize,
}

/// Aligned, so that two locks never share a cache line.
#[derive(Debug)]
#[repr(align(64))]
struct PaddedShard(Mutex<Shard>);

#[derive(Debug)]
struct Shard {
    pages: Vec<IndexPage>,
    objects: usize,
    /// Acquisitions of the lock for keys.
    locked: u64,
}

/// A shard, locked.
pub struct LockedShard<'a> {
    shard: MutexGuard<'a, Shard>,
    bytes: &'a AtomicUsize,
}

impl LargeIndex {
    pub fn new() -> Self {
        let shard = || PaddedShard(Mutex::new(Shard { pages: vec![IndexPage::default()], objects: 0, locked: 0 }));
        let shards: Box<[PaddedShard]> = (0..SHARDS).map(|_| shard()).collect();
        let bytes = size_of::<Self>() + shards.iter().map(|shard| shard.0.lock().unwrap().bytes()).sum::<usize>();
        Self { shards, bytes: AtomicUsize::new(bytes) }
    }

    pub fn lock(&self, shard: u8) -> LockedShard<'_> {
        let mut locked = self.shards[usize::from(shard)].0.lock().unwrap();
        locked.locked += 1;
        LockedShard { shard: locked, bytes: &self.bytes }
    }

    /// How often a shard was locked for its keys.
    pub fn locks(&self, shard: u8) -> u64 {
        self.shards[usize::from(shard)].0.lock().unwrap().locked
    }

    /// Bytes of RAM, those of the allocator included.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    pub fn objects(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().unwrap().objects).sum()
    }

    /// Keeps the objects for which `keep` is true. Locks one shard for one page at a time; objects inserted meanwhile
    /// may be skipped.
    pub fn retain(&self, mut keep: impl FnMut(IndexKey, Address) -> bool) {
        for shard in 0..SHARDS as u8 {
            let mut page = 0;
            while self.lock(shard).retain_page(page, |tag, address| keep(IndexKey { shard, tag }, address)) {
                page += 1;
            }
            while self.lock(shard).merge_once() {}
        }
    }

    /// Asserts every invariant, and calls `each` with all objects.
    pub fn verify(&self, mut each: impl FnMut(IndexKey, Address)) {
        let mut bytes = size_of::<Self>();
        for number in 0..SHARDS as u8 {
            let locked = self.lock(number);
            let shard = &*locked.shard;
            for (i, page) in shard.pages.iter().enumerate() {
                assert!(page.iter().is_sorted_by(|a, b| a.0 < b.0), "page {i} of shard {number} is not sorted");
                for (tag, address) in page.iter() {
                    assert_eq!(shard.page_of(tag), i, "tag {tag:08x} is in a page that nobody looks at");
                    each(IndexKey { shard: number, tag }, address);
                }
            }
            assert_eq!(shard.pages.iter().map(IndexPage::len).sum::<usize>(), shard.objects);
            bytes += shard.bytes();
        }
        assert_eq!(bytes, self.bytes());
    }
}

impl LockedShard<'_> {
    pub fn get(&self, tag: u32) -> Option<Address> {
        self.shard.pages[self.shard.page_of(tag)].get(tag)
    }

    /// Inserts an address; returns the one that had the same tag.
    pub fn insert(&mut self, tag: u32, address: Address) -> Option<Address> {
        let shard = &mut *self.shard;
        let old = shard.change(tag, self.bytes, |page| page.insert(tag, address));
        if old.is_none() {
            shard.objects += 1;
            if shard.objects > shard.pages.len() * SPLIT_ABOVE {
                shard.split(self.bytes);
            }
        }
        old
    }

    pub fn remove(&mut self, tag: u32) -> Option<Address> {
        let shard = &mut *self.shard;
        let old = shard.change(tag, self.bytes, |page| page.remove(tag))?;
        shard.objects -= 1;
        self.merge_once();
        Some(old)
    }

    /// All objects of a page; `None` after the last page.
    pub fn page(&self, number: usize) -> Option<impl Iterator<Item = (u32, Address)>> {
        Some(self.shard.pages.get(number)?.iter())
    }

    /// False after the last page.
    fn retain_page(&mut self, number: usize, keep: impl FnMut(u32, Address) -> bool) -> bool {
        let shard = &mut *self.shard;
        let Some(page) = shard.pages.get_mut(number) else { return false };
        let before = page.len();
        counted(self.bytes, page, |page| page.retain(keep));
        shard.objects -= before - page.len();
        true
    }

    /// Merges two pages if the shard has too many pages; returns whether it did.
    fn merge_once(&mut self) -> bool {
        let shard = &mut *self.shard;
        if shard.pages.len() == 1 || shard.objects >= (shard.pages.len() - 1) * MERGE_BELOW {
            return false;
        }
        shard.merge(self.bytes);
        true
    }
}

impl Shard {
    /// The pages of a shard of `n` are numbered by the low bits of the tag: as many bits as `n - 1` has, or one fewer
    /// where that number names an absent page.
    fn page_of(&self, tag: u32) -> usize {
        let pages = self.pages.len();
        let mask = pages.next_power_of_two() - 1;
        let page = tag as usize & mask;
        if page < pages { page } else { page & (mask >> 1) }
    }

    fn change<T>(&mut self, tag: u32, bytes: &AtomicUsize, change: impl FnOnce(&mut IndexPage) -> T) -> T {
        let page = self.page_of(tag);
        counted(bytes, &mut self.pages[page], change)
    }

    fn split(&mut self, bytes: &AtomicUsize) {
        let new = self.pages.len();
        let old_capacity = self.pages.capacity();
        if new == old_capacity {
            self.pages.reserve_exact((new / 16).max(1));
        }
        let parent = parent(new);
        let bit = new - parent;
        let page = counted(bytes, &mut self.pages[parent], |page| page.split(|tag| tag as usize & bit != 0));
        bytes.fetch_add(page.heap_bytes() + (self.pages.capacity() - old_capacity) * size_of::<IndexPage>(), Relaxed);
        self.pages.push(page);
    }

    fn merge(&mut self, bytes: &AtomicUsize) {
        let last = self.pages.pop().expect("a shard has pages");
        bytes.fetch_sub(last.heap_bytes(), Relaxed);
        let parent = parent(self.pages.len());
        counted(bytes, &mut self.pages[parent], |page| page.merge(last));
        let old_capacity = self.pages.capacity();
        if old_capacity > self.pages.len() + self.pages.len() / 8 {
            self.pages.shrink_to(self.pages.len() + self.pages.len() / 16);
            bytes.fetch_sub((old_capacity - self.pages.capacity()) * size_of::<IndexPage>(), Relaxed);
        }
    }

    fn bytes(&self) -> usize {
        size_of::<PaddedShard>()
            + self.pages.capacity() * size_of::<IndexPage>()
            + self.pages.iter().map(IndexPage::heap_bytes).sum::<usize>()
    }
}

/// The page that a new page is split from.
fn parent(page: usize) -> usize {
    page - (1 << page.ilog2())
}

/// Changes a page and updates the total bytes.
fn counted<T>(bytes: &AtomicUsize, page: &mut IndexPage, change: impl FnOnce(&mut IndexPage) -> T) -> T {
    let before = page.heap_bytes();
    let result = change(page);
    // Wrapping: a smaller page adds a number below zero.
    bytes.fetch_add(page.heap_bytes().wrapping_sub(before), Relaxed);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide_testkit::Random;
    use std::collections::BTreeMap;

    fn insert(index: &LargeIndex, hash: u64, address: Address) -> Option<Address> {
        let identity = IndexKey::of(FlashHash(hash));
        index.lock(identity.shard).insert(identity.tag, address)
    }

    fn remove(index: &LargeIndex, hash: u64) -> Option<Address> {
        let identity = IndexKey::of(FlashHash(hash));
        index.lock(identity.shard).remove(identity.tag)
    }

    #[test]
    fn it_is_a_map() {
        let (index, mut map, mut random) = (LargeIndex::new(), BTreeMap::new(), Random::new(1));
        for round in 0..200_000 {
            // Grows, then shrinks.
            let hash = random.uniform(60_000).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let identity = IndexKey::of(FlashHash(hash));
            if random.chance(if round < 100_000 { 70 } else { 10 }) {
                let address = Address::new(random.uniform(1 << 39), 5000);
                assert_eq!(insert(&index, hash, address), map.insert(identity, address));
            } else {
                assert_eq!(remove(&index, hash), map.remove(&identity));
            }
            assert_eq!(index.lock(identity.shard).get(identity.tag), map.get(&identity).copied());
        }
        index.retain(|identity, _| identity.tag % 3 == 0);
        map.retain(|identity, _| identity.tag % 3 == 0);
        let mut found = BTreeMap::new();
        index.verify(|identity, address| assert_eq!(found.insert(identity, address), None));
        assert_eq!(found, map);
        assert_eq!(index.objects(), map.len());
    }

    #[test]
    fn an_object_costs_at_most_twelve_bytes() {
        let (index, mut random) = (LargeIndex::new(), Random::new(2));
        let mut hashes = Vec::new();
        let check = |objects: usize, when: &str| {
            let bytes = index.bytes() as f64 / objects as f64;
            assert!(objects < 10_000 || bytes <= 12.0, "{bytes} bytes per object, {objects} objects, {when}");
            bytes
        };
        let mut costs = Vec::new();
        while hashes.len() < 500_000 {
            let hash = random.number();
            hashes.push(hash);
            insert(&index, hash, Address::new(random.uniform(1 << 39), 9000));
            if hashes.len().is_multiple_of(1000) {
                let bytes = check(hashes.len(), "growing");
                if hashes.len().is_multiple_of(250_000) || [10_000, 50_000, 100_000].contains(&hashes.len()) {
                    costs.push((hashes.len(), (bytes * 100.0).round() / 100.0));
                }
            }
        }
        println!("bytes per object: {costs:?}");
        while let Some(hash) = hashes.pop() {
            remove(&index, hash);
            if hashes.len().is_multiple_of(1000) {
                check(hashes.len(), "shrinking");
            }
        }
        index.verify(|_, _| ());
        assert_eq!(index.objects(), 0);
        assert_eq!(index.bytes(), LargeIndex::new().bytes(), "nothing is left behind");
    }
}
