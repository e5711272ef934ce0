//! LHD (Beckmann, Chen, Cidon, NSDI'18): an item's rank is its hit density, the hits to expect of it divided by the
//! time that it will take until it is used again or evicted, and by its size.
//!
//! Ages are the requests since the last use, in steps of a power of two. Items are classified by the sum of their last
//! two ages at a use, logarithmically, in sixteen classes. Of each class and age the hits and evictions are counted,
//! and decay at each reconfiguration, in which the hit densities are computed anew:
//!
//! ```text
//! density[age] = hits at this age or later / sum over the ages from this one on of the events at that age or later
//! ```
//! At the fifth and the 25th reconfiguration the step becomes the one at which the oldest age is a hundred times the
//! objects of the cache, and counts move to the new ages. A few items are explorers, which are evicted last, within a
//! hundredth of the memory, so that ages at which everything is evicted still show hits. Eviction looks at 32 drawn
//! items; the authors' code adds eight items stored lately whose rank is below that of the victims.

use crate::memory::{Field, Item, KEY_BYTES, OWN_FIELDS, USED, VALUE_BYTES};
use crate::random::Random;
use crate::sampled::Ranking;
use crate::space::Space;

const LAST_AGE: Field<u16> = Field::at(OWN_FIELDS);
const AGE_BEFORE: Field<u16> = Field::at(OWN_FIELDS + 2);
const EXPLORES: u8 = 2;

const CLASSES: usize = 16;
const MAX_AGE: usize = 20_000;
const FIRST_SHIFT: u32 = 10;
const DECAY: f32 = 0.9;
/// The step of ages is the number of objects, divided by this share of the ages.
const COARSENING: f64 = 0.01;
/// Reconfigurations after which the step of ages is chosen.
const CHOICES_OF_STEP: [u32; 2] = [5, 25];
const EXPLORER_BUDGET: f64 = 0.01;
const EXPLORES_ONE_OF: usize = 32;
/// Larger than any density.
const EXPLORER_RANK: f64 = 1.0;

/// LHD without application classes.
#[derive(Debug)]
pub struct Lhd {
    /// Of all classes, one after the other, by age.
    hits: Vec<f32>,
    evictions: Vec<f32>,
    densities: Vec<f32>,
    /// An age is this many bits of the requests since the last use.
    shift: u32,
    period: u32,
    until_reconfiguration: u32,
    reconfigurations: u32,
    objects: f64,
    objects_weight: f64,
    explorer_bytes: i64,
    random: Random,
}

impl Lhd {
    /// For a cache of `memory` bytes that computes densities anew after each `period` requests: the authors' code has
    /// 2^20.
    pub fn new(memory: u64, period: u32) -> Self {
        let first = |index: usize| (index / MAX_AGE + 1) as f32 / (index % MAX_AGE + 1) as f32;
        Self {
            hits: vec![0.0; CLASSES * MAX_AGE],
            evictions: vec![0.0; CLASSES * MAX_AGE],
            densities: (0..CLASSES * MAX_AGE).map(first).collect(),
            shift: FIRST_SHIFT,
            period,
            until_reconfiguration: period,
            reconfigurations: 0,
            objects: 0.0,
            objects_weight: 0.0,
            explorer_bytes: (memory as f64 * EXPLORER_BUDGET) as i64,
            random: Random::new(2),
        }
    }

    #[inline]
    fn age(&self, space: &Space, item: Item, requests: u32) -> usize {
        let since = requests.wrapping_sub(space.slabs.memory.get(item, USED));
        ((since >> self.shift) as usize).min(MAX_AGE - 1)
    }

    /// Of the counts of an item at this age.
    #[inline]
    fn index(space: &Space, item: Item, age: usize) -> usize {
        let memory = &space.slabs.memory;
        let ages = u32::from(memory.get(item, LAST_AGE)) + u32::from(memory.get(item, AGE_BEFORE));
        class_of(ages) * MAX_AGE + age
    }

    fn count_request(&mut self, space: &Space) {
        self.until_reconfiguration -= 1;
        if self.until_reconfiguration == 0 {
            self.until_reconfiguration = self.period;
            self.reconfigure(space.table.len());
        }
    }

    fn reconfigure(&mut self, objects: usize) {
        self.reconfigurations += 1;
        self.hits.iter_mut().chain(&mut self.evictions).for_each(|count| *count *= DECAY);
        self.objects = self.objects * f64::from(DECAY) + objects as f64;
        self.objects_weight = self.objects_weight * f64::from(DECAY) + 1.0;
        if CHOICES_OF_STEP.contains(&self.reconfigurations) {
            self.choose_step();
        }
        self.model();
    }

    fn choose_step(&mut self) {
        let step = self.objects / self.objects_weight / (COARSENING * MAX_AGE as f64);
        let shift = (step.max(2.0).log2().ceil()) as u32;
        let (old, new) = (self.shift, shift);
        self.shift = shift;
        for counts in [&mut self.hits, &mut self.evictions] {
            counts.chunks_mut(MAX_AGE).for_each(|class| rescale(class, old, new));
        }
    }

    fn model(&mut self) {
        let classes = self.hits.chunks(MAX_AGE).zip(self.evictions.chunks(MAX_AGE));
        for (density, (hits, evictions)) in self.densities.chunks_mut(MAX_AGE).zip(classes) {
            let (mut total_hits, mut events, mut lifetime) = (0.0_f64, 0.0_f64, 0.0_f64);
            for age in (0..MAX_AGE).rev() {
                total_hits += f64::from(hits[age]);
                events += f64::from(hits[age]) + f64::from(evictions[age]);
                lifetime += events;
                density[age] = if events > 1e-5 { (total_hits / lifetime) as f32 } else { 0.0 };
            }
        }
    }

    /// Makes an item, which is none, an explorer or not.
    fn choose_explorer(&mut self, space: &mut Space, item: Item) {
        let explores = self.explorer_bytes > 0 && self.random.below(EXPLORES_ONE_OF) == 0;
        space.slabs.memory.set_flag(item, EXPLORES, explores);
        if explores {
            self.explorer_bytes -= payload_bytes(space, item);
        }
    }

    fn return_budget(&mut self, space: &Space, item: Item) {
        if space.slabs.memory.has(item, EXPLORES) {
            self.explorer_bytes += payload_bytes(space, item);
        }
    }
}

fn payload_bytes(space: &Space, item: Item) -> i64 {
    let memory = &space.slabs.memory;
    i64::from(memory.get(item, VALUE_BYTES)) + i64::from(memory.get(item, KEY_BYTES))
}

/// The class of a sum of two ages; the youngest is the last.
fn class_of(ages: u32) -> usize {
    if ages == 0 {
        return CLASSES - 1;
    }
    let max_age = MAX_AGE as u32;
    let mut class = 0;
    let mut ages = ages;
    while ages < max_age && class < CLASSES - 1 {
        ages <<= 1;
        class += 1;
    }
    class
}

/// Counts by ages of `1 << old` requests become those by ages of `1 << new`.
fn rescale(counts: &mut [f32], old: u32, new: u32) {
    let mut rescaled = vec![0.0; counts.len()];
    for (age, &count) in counts.iter().enumerate() {
        if new >= old {
            rescaled[age >> (new - old)] += count;
            continue;
        }
        let width = 1_usize << (old - new);
        for part in age * width..(age + 1) * width {
            rescaled[part.min(counts.len() - 1)] += count / width as f32;
        }
    }
    counts.copy_from_slice(&rescaled);
}

impl Ranking for Lhd {
    const DRAWS: usize = 32;

    fn stored(&mut self, space: &mut Space, item: Item, requests: u32) {
        let memory = &mut space.slabs.memory;
        memory.put(item, USED, requests);
        memory.put(item, LAST_AGE, 0);
        memory.put(item, AGE_BEFORE, MAX_AGE as u16);
        self.choose_explorer(space, item);
        self.count_request(space);
    }

    #[inline]
    fn used(&mut self, space: &mut Space, item: Item, requests: u32) {
        let age = self.age(space, item, requests);
        self.hits[Self::index(space, item, age)] += 1.0;
        let memory = &mut space.slabs.memory;
        memory.put(item, AGE_BEFORE, memory.get(item, LAST_AGE));
        memory.put(item, LAST_AGE, age as u16);
        memory.put(item, USED, requests);
        self.return_budget(space, item);
        self.choose_explorer(space, item);
        self.count_request(space);
    }

    fn evicted(&mut self, space: &Space, item: Item, requests: u32) {
        let age = self.age(space, item, requests);
        self.evictions[Self::index(space, item, age)] += 1.0;
    }

    fn removed(&mut self, space: &Space, item: Item) {
        self.return_budget(space, item);
    }

    #[inline]
    fn rank(&self, space: &Space, item: Item, bytes: usize, requests: u32) -> f64 {
        let age = self.age(space, item, requests);
        if age == MAX_AGE - 1 {
            return f64::NEG_INFINITY;
        }
        let density = f64::from(self.densities[Self::index(space, item, age)]) / bytes as f64;
        if space.slabs.memory.has(item, EXPLORES) { density + EXPLORER_RANK } else { density }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_halve_the_ages() {
        let max_age = MAX_AGE as u32;
        assert_eq!([0, 1, max_age / 2, max_age - 1, max_age, 2 * max_age].map(class_of), [15, 15, 1, 1, 0, 0]);
    }

    #[test]
    fn counts_keep_their_sum_in_other_ages() {
        let mut counts = vec![0.0; 16];
        (counts[0], counts[5], counts[15]) = (1.0, 2.0, 4.0);
        rescale(&mut counts, 0, 2);
        assert_eq!(counts[..4], [1.0, 2.0, 0.0, 4.0]);
        rescale(&mut counts, 2, 1);
        assert_eq!(counts[..8], [0.5, 0.5, 1.0, 1.0, 0.0, 0.0, 2.0, 2.0]);
        rescale(&mut counts, 2, 0);
        assert_eq!((counts.iter().sum::<f32>(), counts[15]), (7.0, 4.25));
    }

    #[test]
    fn densities_are_hits_by_lifetime() {
        let mut lhd = Lhd::new(1 << 20, 1 << 20);
        // Half of the items is used at age 2, half is evicted at age 9.
        (lhd.hits[2], lhd.evictions[9]) = (8.0, 8.0);
        lhd.model();
        // From age 0 on: 8 hits; 8 items take 3 steps, 8 take 10.
        let expected = [(0, 8.0 / 104.0), (2, 8.0 / 72.0), (3, 0.0), (10, 0.0)];
        for (age, density) in expected {
            assert!((lhd.densities[age] - density).abs() < 1e-6, "age {age}: {}", lhd.densities[age]);
        }
    }
}
