//! Objects in a stack, with data that the stack does not keep: their true size and their expiry.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::BuildHasherDefault;

use crate::stack::{KeyIsHash, Stack};

#[derive(Clone, Debug, Default)]
pub(crate) struct Layer {
    stack: Stack,
    objects: HashMap<u64, Object, BuildHasherDefault<KeyIsHash>>,
    /// When objects may expire, the next one first; entries of objects that were written again are passed over.
    expiries: BinaryHeap<Reverse<(u64, u64)>>,
}

#[derive(Clone, Copy, Debug)]
struct Object {
    bytes: f64,
    /// Seconds; 0 is never.
    expires_at: u64,
    /// The lowest threshold of the sampler since the last access.
    threshold: f64,
}

/// An object that was found, with its state since its last access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) distance: f64,
    /// The lowest threshold of the sampler since then.
    pub(crate) threshold: f64,
}

impl Layer {
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Bytes of all that the stack holds, holes included.
    pub(crate) fn depth_bytes(&self) -> f64 {
        self.stack.depth_bytes()
    }

    /// True size of an object.
    pub(crate) fn bytes_of(&self, key: u64) -> Option<f64> {
        self.objects.get(&key).map(|object| object.bytes)
    }

    /// Moves an object that is present to the top, with `weight`, which belongs to the threshold.
    pub(crate) fn access(&mut self, key: u64, weight: f64, threshold: f64) -> Option<Found> {
        let object = self.objects.get_mut(&key)?;
        let found = Found { distance: self.stack.distance(key)?, threshold: object.threshold };
        object.threshold = threshold;
        self.stack.push(key, weight * object.bytes);
        Some(found)
    }

    /// An object is written. `expires_at`: seconds, 0 is never.
    pub(crate) fn put(&mut self, key: u64, bytes: f64, (weight, threshold): (f64, f64), expires_at: u64) {
        if expires_at > 0 {
            self.expiries.push(Reverse((expires_at, key)));
        }
        self.stack.push(key, weight * bytes);
        self.objects.insert(key, Object { bytes, expires_at, threshold });
    }

    /// An object has died.
    pub(crate) fn remove(&mut self, key: u64) {
        if self.objects.remove(&key).is_some() {
            self.stack.remove(key);
        }
    }

    /// Removes expired objects, whose memory is free from then on. Ends: each turn takes an entry.
    pub(crate) fn expire(&mut self, now_seconds: u64) {
        while let Some(&Reverse((expires_at, key))) = self.expiries.peek()
            && expires_at <= now_seconds
        {
            self.expiries.pop();
            if self.objects.get(&key).is_some_and(|object| object.expires_at == expires_at) {
                self.remove(key);
            }
        }
    }

    /// Takes the lowest objects out as if they never had been, until at most `max` are left.
    pub(crate) fn cut_to(&mut self, max: usize) {
        while self.objects.len() > max
            && let Some(key) = self.stack.pop_lowest()
        {
            self.objects.remove(&key);
        }
        if self.expiries.len() > 4 * max {
            self.drop_old_expiries();
        }
    }

    /// Removes the lowest objects, as if they had never been accessed, until the stack has at most `bytes` bytes.
    pub(crate) fn cut_below(&mut self, bytes: f64) {
        while self.depth_bytes() > bytes
            && let Some(key) = self.stack.pop_lowest()
        {
            self.objects.remove(&key);
        }
    }

    /// The lowest threshold of all objects, and the number of objects that they represent if all have the same size.
    pub(crate) fn thresholds(&self) -> (f64, f64) {
        self.objects.values().fold((1.0, 0.0), |(lowest, count), object| {
            (f64::min(lowest, object.threshold), count + 1.0 / object.threshold)
        })
    }

    /// Takes out all for which `stays` is false as if they never had been; of the others none keeps a threshold above
    /// this one, and each weighs what `weight` says of its threshold and size.
    pub(crate) fn retain(
        &mut self,
        threshold: f64,
        stays: impl Fn(u64, f64) -> bool,
        weight: impl Fn(f64, f64) -> f64,
    ) {
        let Self { objects, stack, .. } = self;
        objects.retain(|&key, object| {
            let stays = stays(key, object.bytes);
            object.threshold = object.threshold.min(threshold);
            if !stays {
                stack.forget(key);
            }
            stays
        });
        stack.rescale(|key| {
            let Object { bytes, threshold, .. } = objects[&key];
            weight(threshold, bytes) * bytes
        });
        self.drop_old_expiries();
    }

    /// Objects from the top down: true size, and bytes in the stack.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (f64, f64)> {
        self.stack.iter().map(|(key, weighted)| (self.objects[&key].bytes, weighted))
    }

    fn drop_old_expiries(&mut self) {
        let objects = &self.objects;
        self.expiries.retain(|Reverse((expires_at, key))| {
            objects.get(key).is_some_and(|object| object.expires_at == *expires_at)
        });
    }
}
