//! Exact stack distances in bytes (Mattson 1970), in O(log n) for each access.
//!
//! An LRU cache of C bytes holds the top C bytes of the stack, whatever C is: so one pass gives the hits of every size.
//! Each object lies in a slot; a later slot is nearer to the top. Sums of slots are kept in a Fenwick tree.
//!
//! ```text
//! slot     0     1     2     3     4     5   ...
//!        +-----+-----+-----+-----+-----+
//!        |  a  |     | hole|  b  |  c  |  <- next access
//!        +-----+-----+-----+-----+-----+
//!        bottom                     top        distance of b = size(c) + size(b)
//! ```
//! **Holes.** An object that dies (deleted, expired, overwritten) leaves a hole of its size. A cache that reaches down
//! to the hole has that much free memory, and fills it before it evicts; a smaller one never knew the object. So a push
//! takes its bytes from the topmost hole first, and what lies below that hole does not move. An access is a removal and
//! a push: the hole that it leaves is filled by itself, unless one above it was free, which then moves down to where
//! the object was. This makes the distances exact with deletes and expiry, for all sizes at once.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use crate::fenwick::Fenwick;

/// Slots that a stack has at least before it is packed.
const MIN_SLOTS: usize = 1024;

/// A stack of objects by recency.
#[derive(Clone, Debug, Default)]
pub struct Stack {
    slots: Vec<Slot>,
    /// Bytes of each slot, object or hole.
    sums: Fenwick,
    /// Slots from here on are unused.
    next: usize,
    /// Slots below this one are empty.
    lowest: usize,
    objects: HashMap<u64, usize, BuildHasherDefault<KeyIsHash>>,
    holes: BTreeSet<usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Slot {
    #[default]
    Empty,
    Object {
        key: u64,
        bytes: f64,
    },
    Hole {
        bytes: f64,
    },
}

impl Slot {
    fn bytes(self) -> f64 {
        match self {
            Self::Empty => 0.0,
            Self::Object { bytes, .. } | Self::Hole { bytes } => bytes,
        }
    }
}

impl Stack {
    /// Objects in the stack.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Bytes from the top of the stack to the bottom of this object, itself included: the least LRU cache that holds
    /// it. `None` if it is not in the stack.
    pub fn distance(&self, key: u64) -> Option<f64> {
        let &slot = self.objects.get(&key)?;
        Some(self.depth_bytes() - self.sums.before(slot))
    }

    /// Puts an object on top, in the place of the one that it was. `bytes` must be at least 0.
    pub fn push(&mut self, key: u64, bytes: f64) {
        self.remove(key);
        self.fill_holes(bytes);
        if self.next == self.slots.len() {
            self.pack();
        }
        self.set(self.next, Slot::Object { key, bytes });
        self.objects.insert(key, self.next);
        self.next += 1;
    }

    /// The object has died: its memory is free in every cache that held it. False if it is not in the stack.
    pub fn remove(&mut self, key: u64) -> bool {
        let Some(slot) = self.objects.remove(&key) else {
            return false;
        };
        let bytes = self.slots[slot].bytes();
        self.set(slot, if bytes > 0.0 { Slot::Hole { bytes } } else { Slot::Empty });
        true
    }

    /// Takes the object out as if it never had been: nothing is free for it.
    pub fn forget(&mut self, key: u64) -> bool {
        let slot = self.objects.remove(&key);
        slot.map(|slot| self.set(slot, Slot::Empty)).is_some()
    }

    /// The objects from the top down, with their bytes.
    pub fn iter(&self) -> impl Iterator<Item = (u64, f64)> {
        self.slots[..self.next].iter().rev().filter_map(|slot| match *slot {
            Slot::Object { key, bytes } => Some((key, bytes)),
            _ => None,
        })
    }

    /// Bytes of all objects and holes.
    pub fn depth_bytes(&self) -> f64 {
        self.sums.before(self.next)
    }

    /// Forgets the lowest object, and the holes that it lies on.
    pub fn pop_lowest(&mut self) -> Option<u64> {
        while self.lowest < self.next {
            let slot = self.slots[self.lowest];
            self.set(self.lowest, Slot::Empty);
            self.lowest += 1;
            if let Slot::Object { key, .. } = slot {
                self.objects.remove(&key);
                return Some(key);
            }
        }
        None
    }

    /// Gives every object other bytes; holes keep theirs.
    pub fn rescale(&mut self, bytes_of: impl Fn(u64) -> f64) {
        for slot in &mut self.slots[..self.next] {
            if let Slot::Object { key, bytes } = slot {
                *bytes = bytes_of(*key);
            }
        }
        self.sums = Fenwick::of(self.slots.iter().map(|slot| slot.bytes()));
    }

    /// Topmost first. Ends: each turn fills one hole up or all that is left of the bytes.
    fn fill_holes(&mut self, mut bytes: f64) {
        while bytes > 0.0
            && let Some(&slot) = self.holes.last()
        {
            let free = self.slots[slot].bytes();
            let left = free - bytes;
            self.set(slot, if left > 0.0 { Slot::Hole { bytes: left } } else { Slot::Empty });
            bytes -= free.min(bytes);
        }
    }

    fn set(&mut self, at: usize, slot: Slot) {
        let before = std::mem::replace(&mut self.slots[at], slot);
        if matches!(before, Slot::Hole { .. }) {
            self.holes.remove(&at);
        }
        if matches!(slot, Slot::Hole { .. }) {
            self.holes.insert(at);
        }
        let change = slot.bytes() - before.bytes();
        if change != 0.0 {
            self.sums.add(at, change);
        }
    }

    /// Moves all slots together, joins neighbouring holes, and doubles the space when half of it is in use. Holes below
    /// the last object are of no use to any cache that has not all.
    fn pack(&mut self) {
        let mut packed: Vec<Slot> = Vec::with_capacity(self.slots.len());
        for &slot in &self.slots[..self.next] {
            match (slot, packed.last_mut()) {
                (Slot::Empty, _) => {}
                (Slot::Hole { bytes }, Some(Slot::Hole { bytes: joined })) => *joined += bytes,
                _ => packed.push(slot),
            }
        }
        (self.next, self.lowest) = (packed.len(), 0);
        packed.resize((packed.len() * 2).max(MIN_SLOTS), Slot::Empty);
        self.holes.clear();
        for (at, slot) in packed.iter().enumerate() {
            match *slot {
                Slot::Empty => {}
                Slot::Object { key, .. } => {
                    self.objects.insert(key, at);
                }
                Slot::Hole { .. } => {
                    self.holes.insert(at);
                }
            }
        }
        self.sums = Fenwick::of(packed.iter().map(|slot| slot.bytes()));
        self.slots = packed;
    }
}

/// Keys are hashes already: their upper bits choose the place in a map.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyIsHash(u64);

impl Hasher for KeyIsHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are u64");
    }

    fn write_u64(&mut self, key: u64) {
        // Ids of traces are small numbers: the multiplication spreads them (Knuth, TAOCP 3, 6.4).
        self.0 = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// An LRU cache with deletes, by its definition.
    struct Lru {
        limit: u64,
        /// The least recent first.
        objects: VecDeque<(u64, u64)>,
    }

    impl Lru {
        fn take(&mut self, key: u64) -> bool {
            let at = self.objects.iter().position(|&(one, _)| one == key);
            at.map(|at| self.objects.remove(at)).is_some()
        }

        fn access(&mut self, key: u64, bytes: u64) -> bool {
            let hit = self.take(key);
            self.objects.push_back((key, bytes));
            while self.objects.iter().map(|object| object.1).sum::<u64>() > self.limit {
                self.objects.pop_front();
            }
            hit
        }
    }

    fn random(seed: &mut u64) -> u64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *seed >> 33
    }

    #[test]
    fn distances_with_deletes_match_lru_of_every_size() {
        let mut seed = 5;
        let mut stack = Stack::default();
        let mut caches: Vec<_> = (1..60).map(|limit| Lru { limit, objects: VecDeque::new() }).collect();
        for _ in 0..20_000 {
            let key = random(&mut seed) % 50;
            if random(&mut seed).is_multiple_of(8) {
                stack.remove(key);
                caches.iter_mut().for_each(|cache| _ = cache.take(key));
                continue;
            }
            let distance = stack.distance(key);
            for cache in &mut caches {
                let hit = distance.is_some_and(|bytes| bytes <= cache.limit as f64);
                assert_eq!(cache.access(key, 1), hit, "key {key}, {} objects, distance {distance:?}", cache.limit);
            }
            stack.push(key, 1.0);
        }
    }

    #[test]
    fn sizes_count_as_bytes() {
        let mut stack = Stack::default();
        stack.push(1, 100.0);
        stack.push(2, 10.0);
        stack.push(3, 1.0);
        assert_eq!([1, 2, 3, 4].map(|key| stack.distance(key)), [Some(111.0), Some(11.0), Some(1.0), None]);
        stack.push(2, 20.0);
        assert_eq!([1, 2, 3].map(|key| stack.distance(key)), [Some(121.0), Some(20.0), Some(21.0)]);
        assert_eq!(stack.iter().collect::<Vec<_>>(), [(2, 20.0), (3, 1.0), (1, 100.0)]);
    }

    #[test]
    fn a_hole_is_filled_before_anything_moves_down() {
        let mut stack = Stack::default();
        (1..=3).for_each(|key| stack.push(key, 10.0));
        assert!(stack.remove(2));
        assert_eq!(stack.distance(1), Some(30.0), "the hole lies above it");
        stack.push(4, 6.0);
        assert_eq!((stack.distance(3), stack.distance(1)), (Some(16.0), Some(30.0)));
        stack.push(5, 6.0);
        assert_eq!((stack.distance(3), stack.distance(1)), (Some(22.0), Some(32.0)));
        assert!(!stack.remove(2));
    }

    #[test]
    fn what_is_forgotten_leaves_nothing() {
        let mut stack = Stack::default();
        (1..=3).for_each(|key| stack.push(key, 10.0));
        assert!(stack.forget(2) && !stack.forget(2));
        assert_eq!((stack.distance(1), stack.len()), (Some(20.0), 2));
        stack.remove(1);
        assert_eq!((stack.pop_lowest(), stack.pop_lowest(), stack.depth_bytes()), (Some(3), None, 0.0));
    }
}
