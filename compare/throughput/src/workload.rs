//! Requests, drawn before the measurement: four bytes each, which a thread reads in order, at the same small cost for
//! every engine.
//!
//! A cache is first filled with what an LRU cache of that size would hold after many requests, in the order of last
//! use: hot and cold objects lie mixed as they would after a long run, and the fill takes one set per object. Where
//! everything fits, the fill is all keys in a scattered order.
//!
//! With churn, each rank's key is replaced by a new one every `keys / churn` requests, at times of its own.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution as _, Zipf};

use crate::Error;
use crate::plan::{Mix, Plan, Sharing};

pub const KEY_BYTES: usize = 20;
const NUMBER_AT: usize = 12;

/// The same first bytes for all, as applications have it, and a number.
pub type Key = [u8; KEY_BYTES];

#[inline(always)]
pub fn key(number: u32) -> Key {
    let mut key = *b"user:profile\0\0\0\0\0\0\0\0";
    key[NUMBER_AT..].copy_from_slice(&u64::from(number).to_le_bytes());
    key
}

/// A get or a set of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request(u32);

const WRITE: u32 = 1 << 31;

impl Request {
    #[inline(always)]
    pub fn number(self) -> u32 {
        self.0 & !WRITE
    }

    #[inline(always)]
    pub fn is_set(self) -> bool {
        self.0 & WRITE != 0
    }
}

/// Requests of one thread.
pub struct Work {
    /// Keys to set before anything else.
    pub fill: Vec<u32>,
    /// Requests after the fill, not measured.
    pub warm_up: Vec<Request>,
    pub measured: Vec<Request>,
}

/// Draws the work of a thread. It follows from the plan and the thread's number, whatever the engine.
pub fn draw(plan: &Plan, thread: u32) -> Result<Work, Error> {
    let ranks = Ranks::new(plan, thread)?;
    let fill = if plan.mix == Mix::Get { every_key(plan, thread) } else { recent_keys(plan, thread, &ranks) };
    let mut random = Xoshiro256PlusPlus::seed_from_u64(u64::from(thread) + 1);
    let mut index = 0;
    let mut requests = |count: u32| {
        let mut requests = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let number = ranks.key_at(ranks.draw(&mut random), index);
            index += 1;
            let write = if random.random_range(0..100) < plan.mix.gets() { 0 } else { WRITE };
            requests.push(Request(number | write));
        }
        requests
    };
    Ok(Work { fill, warm_up: requests(plan.requests / 2), measured: requests(plan.requests) })
}

/// From ranks to keys.
struct Ranks {
    zipf: Zipf<f64>,
    /// All keys at a time.
    keys: u32,
    /// Rank r of this thread is key r * step + first.
    step: u32,
    first: u32,
    /// Generations per request of this thread.
    pace: f64,
}

impl Ranks {
    fn new(plan: &Plan, thread: u32) -> Result<Self, Error> {
        let (step, first) = match plan.sharing {
            Sharing::Disjoint => (plan.threads, thread),
            Sharing::Shared | Sharing::Private => (1, 0),
        };
        let concurrent = if plan.sharing == Sharing::Private { 1 } else { plan.threads };
        let pace = plan.distribution.churn * f64::from(concurrent) / f64::from(plan.keys);
        let generations = pace * f64::from(plan.requests) * 1.5 + 2.0;
        if f64::from(plan.keys) * generations >= f64::from(WRITE) {
            return Err(Error::Plan(format!(
                "churn {} makes more than {WRITE} keys in {} requests: lower one of them",
                plan.distribution.churn, plan.requests
            )));
        }
        let ranks = f64::from(plan.keys / step);
        let zipf = Zipf::new(ranks, plan.distribution.exponent)
            .map_err(|error| Error::Plan(format!("{} keys for {} threads: {error}", plan.keys, plan.threads)))?;
        Ok(Self { zipf, keys: plan.keys, step, first, pace })
    }

    /// A rank from 0.
    fn draw(&self, random: &mut Xoshiro256PlusPlus) -> u32 {
        self.zipf.sample(random) as u32 - 1
    }

    /// The key that has the rank at the time of a request.
    fn key_at(&self, rank: u32, index: u32) -> u32 {
        let key = rank * self.step + self.first;
        if self.pace == 0.0 {
            return key;
        }
        let phase = f64::from(key.wrapping_mul(0x9E37_79B9)) / (f64::from(u32::MAX) + 1.0);
        key + self.keys * (f64::from(index) * self.pace + phase) as u32
    }
}

/// This thread's part of all keys, scattered: neighbours in memory are not neighbours in rank.
fn every_key(plan: &Plan, thread: u32) -> Vec<u32> {
    /// A prime above the number of keys, so that its multiples visit every key once.
    const STRIDE: u64 = 2_654_435_761;
    let (first, step) = if plan.sharing == Sharing::Private { (0, 1) } else { (thread, plan.threads) };
    (first..plan.keys).step_by(step as usize).map(|i| (u64::from(i) * STRIDE % u64::from(plan.keys)) as u32).collect()
}

/// This thread's part of the keys that were asked for last, in the order of their last use. How long ago a key was
/// asked for is exponentially distributed, and the more popular it is the shorter: the keys with the smallest of such
/// random numbers are those of an LRU cache.
fn recent_keys(plan: &Plan, thread: u32, ranks: &Ranks) -> Vec<u32> {
    // Threads that share keys divide one list; each of the others has a list of its own.
    let (seed, wanted) = match plan.sharing {
        Sharing::Shared => (0, plan.filled_objects()),
        Sharing::Private => (u64::from(thread) << 32, plan.filled_objects()),
        Sharing::Disjoint => (u64::from(thread) << 32, plan.filled_objects() / plan.threads),
    };
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let age = |rank: u32, unit: f32| -(1.0 - unit).ln() * (rank as f32 + 1.0).powf(plan.distribution.exponent as f32);
    let mut keys: Vec<(f32, u32)> =
        (0..plan.keys / ranks.step).map(|rank| (age(rank, random.random()), ranks.key_at(rank, 0))).collect();
    let wanted = (wanted as usize).min(keys.len());
    if wanted < keys.len() {
        keys.select_nth_unstable_by(wanted, |a, b| a.0.total_cmp(&b.0));
    }
    keys.truncate(wanted);
    keys.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
    let (first, step) = if plan.sharing == Sharing::Shared { (thread, plan.threads) } else { (0, 1) };
    keys.into_iter().map(|(_, key)| key).skip(first as usize).step_by(step as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn gets_are_filled_with_every_key_once() {
        for sharing in [Sharing::Shared, Sharing::Disjoint] {
            let plan = Plan { mix: Mix::Get, sharing, ..Plan::small() };
            let mut keys: Vec<u32> = (0..2).flat_map(|thread| draw(&plan, thread).unwrap().fill).collect();
            keys.sort_unstable();
            assert!(keys.into_iter().eq(0..plan.keys));
        }
    }

    #[test]
    fn disjoint_threads_have_no_key_in_common() {
        let plan = Plan { sharing: Sharing::Disjoint, ..Plan::small() };
        for thread in 0..2 {
            let work = draw(&plan, thread).unwrap();
            assert!(work.measured.iter().all(|request| request.number() % 2 == thread));
            assert!(work.fill.iter().all(|key| key % 2 == thread));
        }
    }

    #[test]
    fn shared_fills_are_disjoint_and_complete() {
        let plan = Plan::small();
        let fills: Vec<Vec<u32>> = (0..2).map(|thread| draw(&plan, thread).unwrap().fill).collect();
        let keys: HashSet<u32> = fills.iter().flatten().copied().collect();
        assert_eq!(keys.len(), fills[0].len() + fills[1].len());
        assert_eq!(keys.len(), plan.filled_objects() as usize);
    }

    #[test]
    fn churn_brings_its_share_of_new_keys() {
        let mut plan = Plan { threads: 1, ..Plan::small() };
        plan.distribution.churn = 0.1;
        let ranks = Ranks::new(&plan, 0).unwrap();
        let new = (0..plan.keys).filter(|&rank| ranks.key_at(rank, 50_000) != rank).count();
        assert!((4_900..5_100).contains(&new), "{new}");
    }

    #[test]
    fn the_mix_is_kept() {
        let plan = Plan { mix: Mix::Gets(93), ..Plan::small() };
        let work = draw(&plan, 0).unwrap();
        let sets = work.measured.iter().filter(|request| request.is_set()).count();
        assert!((3_300..3_700).contains(&sets), "{sets}");
    }

    #[test]
    fn keys_differ_by_their_number() {
        assert_ne!(key(1), key(256));
        assert_eq!(key(7).len(), KEY_BYTES);
    }
}
