//! Policies that give each object a rank: GreedyDual-Size-Frequency, Belady, LHD.

use std::collections::{BTreeSet, HashMap};

use super::cache::Cache;

/// Rank of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    /// Uses divided by bytes, plus the rank of the last eviction: the rank of an unused object falls behind.
    Gdsf,
    /// The sooner the next use, the higher.
    Belady,
}

/// Evicts the object of the lowest rank.
pub(super) struct Ranked {
    limit: u64,
    rank: Rank,
    used: u64,
    objects: HashMap<u64, Entry>,
    /// Rank, number of the use (the older goes first) and key.
    order: BTreeSet<(u64, u64, u64)>,
    /// Rank of the last victim (the L of GreedyDual).
    inflation: f64,
    uses: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    bytes: u64,
    uses: u64,
    place: (u64, u64, u64),
}

impl Ranked {
    pub(super) fn new(limit: u64, rank: Rank) -> Self {
        Self { limit, rank, used: 0, objects: HashMap::new(), order: BTreeSet::new(), inflation: 0.0, uses: 0 }
    }

    fn place(&mut self, key: u64, bytes: u64, uses: u64, next: u64) -> (u64, u64, u64) {
        self.uses += 1;
        let rank = match self.rank {
            // Positive numbers have the order of their bits.
            Rank::Gdsf => (self.inflation + uses as f64 * 1e6 / bytes.max(1) as f64).to_bits(),
            Rank::Belady => u64::MAX - next,
        };
        (rank, self.uses, key)
    }

    fn put(&mut self, key: u64, bytes: u64, uses: u64, next: u64) {
        let place = self.place(key, bytes, uses, next);
        self.order.insert(place);
        self.objects.insert(key, Entry { bytes, uses, place });
        self.used += bytes;
    }

    fn take(&mut self, key: u64) -> Option<Entry> {
        let entry = self.objects.remove(&key)?;
        self.order.remove(&entry.place);
        self.used -= entry.bytes;
        Some(entry)
    }

    fn evict(&mut self) {
        let &(rank, _, key) = self.order.first().expect("it evicts only what holds memory");
        if self.rank == Rank::Gdsf {
            self.inflation = f64::from_bits(rank);
        }
        self.take(key);
    }
}

impl Cache for Ranked {
    fn get(&mut self, key: u64, bytes: u64, next: u64) -> bool {
        if let Some(entry) = self.take(key) {
            self.put(key, entry.bytes, entry.uses + 1, next);
            return true;
        }
        if bytes > self.limit {
            return false;
        }
        while self.used + bytes > self.limit {
            self.evict();
        }
        self.put(key, bytes, 1, next);
        false
    }

    fn remove(&mut self, key: u64) {
        self.take(key);
    }

    fn bytes_of(&self, key: u64) -> Option<u64> {
        self.objects.get(&key).map(|entry| entry.bytes)
    }
}

/// Number of candidates of an eviction.
const CANDIDATES: usize = 32;
/// Number of steps in which ages are counted, each as long as the cache's objects take to be used a hundredth of once.
const AGES: usize = 256;
/// Uses of an object that make a class of their own; more are the last one.
const CLASSES: usize = 4;
/// Number of requests between two updates of the hit densities.
const PERIOD: u64 = 1 << 16;
/// Factor by which each update multiplies the counts.
const DECAY: f64 = 0.9;

/// LHD (NSDI'18): evicts the candidate with the least hits to expect by the byte and the time until it leaves.
pub(super) struct Lhd {
    limit: u64,
    used: u64,
    of_key: HashMap<u64, usize>,
    objects: Vec<Dated>,
    classes: [Class; CLASSES],
    now: u64,
    /// Requests for a step of age.
    step: u64,
    seed: u64,
}

#[derive(Clone, Copy)]
struct Dated {
    key: u64,
    bytes: u64,
    used_at: u64,
    uses: usize,
}

struct Class {
    hits: [f64; AGES],
    evictions: [f64; AGES],
    /// Hits to expect for each step until the end.
    density: [f64; AGES],
}

impl Lhd {
    pub(super) fn new(limit: u64) -> Self {
        // Before anything is known the younger is the better.
        let class = || Class {
            hits: [0.0; AGES],
            evictions: [0.0; AGES],
            density: std::array::from_fn(|age| 1.0 / (age + 1) as f64),
        };
        let classes = std::array::from_fn(|_| class());
        Self { limit, used: 0, of_key: HashMap::new(), objects: Vec::new(), classes, now: 0, step: 1, seed: 1 }
    }

    fn age(&self, object: &Dated) -> usize {
        (((self.now - object.used_at) / self.step) as usize).min(AGES - 1)
    }

    fn density(&self, object: &Dated) -> f64 {
        self.classes[object.uses].density[self.age(object)] / object.bytes.max(1) as f64
    }

    fn random(&mut self, below: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.seed >> 33) as usize) % below
    }

    fn evict(&mut self) {
        let count = self.objects.len();
        let victim = (0..CANDIDATES).map(|_| self.random(count)).collect::<Vec<_>>().into_iter();
        let density = |at: &usize| self.density(&self.objects[*at]);
        let victim = victim.min_by(|one, other| density(one).total_cmp(&density(other)));
        let object = self.objects[victim.expect("there are candidates")];
        let age = self.age(&object);
        self.classes[object.uses].evictions[age] += 1.0;
        self.remove(object.key);
    }

    /// Ages so that the older half of them is as old as objects become, and densities from the counts (section 4.2).
    fn look_back(&mut self) {
        let step = (self.objects.len() as u64 / 100).max(1);
        if step > 2 * self.step || 2 * step < self.step {
            self.step = step;
            self.classes.iter_mut().for_each(|class| (class.hits, class.evictions) = ([0.0; AGES], [0.0; AGES]));
            return;
        }
        for class in &mut self.classes {
            let (mut hits, mut events, mut time) = (0.0, 0.0, 0.0);
            for age in (0..AGES).rev() {
                hits += class.hits[age];
                events += class.hits[age] + class.evictions[age];
                time += events;
                if time > 0.0 {
                    class.density[age] = hits / time;
                }
                class.hits[age] *= DECAY;
                class.evictions[age] *= DECAY;
            }
        }
    }
}

impl Cache for Lhd {
    fn get(&mut self, key: u64, bytes: u64, _next: u64) -> bool {
        self.now += 1;
        if self.now.is_multiple_of(PERIOD) {
            self.look_back();
        }
        if let Some(&at) = self.of_key.get(&key) {
            let object = self.objects[at];
            let age = self.age(&object);
            self.classes[object.uses].hits[age] += 1.0;
            self.objects[at] = Dated { used_at: self.now, uses: (object.uses + 1).min(CLASSES - 1), ..object };
            return true;
        }
        if bytes <= self.limit {
            while self.used + bytes > self.limit {
                self.evict();
            }
            self.of_key.insert(key, self.objects.len());
            self.objects.push(Dated { key, bytes, used_at: self.now, uses: 0 });
            self.used += bytes;
        }
        false
    }

    fn remove(&mut self, key: u64) {
        let Some(at) = self.of_key.remove(&key) else {
            return;
        };
        self.used -= self.objects.swap_remove(at).bytes;
        if let Some(moved) = self.objects.get(at) {
            self.of_key.insert(moved.key, at);
        }
    }

    fn bytes_of(&self, key: u64) -> Option<u64> {
        self.of_key.get(&key).map(|&at| self.objects[at].bytes)
    }
}
