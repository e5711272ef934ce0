//! The pools of keys: each command goes to the pool of its key, and a run of gets is one batch over all pools, so that
//! cache misses overlap. Keys are answered while they are looked up, in their order. A key of a compact pool ends a
//! batch, and another batch continues behind it.

use std::ops::ControlFlow;

use ebbtide::memcached::{CompactPool, Lookup, Patience, Pool};

use super::Executor;
use super::get::RUN_KEYS;

/// Whether a batch continues behind a key, and whether the key counts as a hit or as a miss, if it counts.
pub(super) type KeyOutcome = ControlFlow<Option<bool>, Option<bool>>;

#[inline(always)]
fn counted(outcome: KeyOutcome) -> Option<bool> {
    let (ControlFlow::Continue(is_hit) | ControlFlow::Break(is_hit)) = outcome;
    is_hit
}

#[inline(always)]
fn without_count(outcome: KeyOutcome) -> ControlFlow<()> {
    if outcome.is_break() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

impl Executor {
    /// The pool of a key, as a handle with the patience of the current command.
    #[inline]
    pub(super) fn pool(&self, key: &[u8]) -> &Pool {
        if self.router.is_single() {
            return &self.cache;
        }
        let pool = self.router.pool(self.router.find(key));
        pool.set_patience(self.current_patience.get());
        pool
    }

    /// The compact pool of a key, if it belongs to one.
    #[inline]
    pub(super) fn compact(&self, key: &[u8]) -> Option<&CompactPool> {
        if self.router.has_compact() { self.router.compact(self.router.find(key)) } else { None }
    }

    /// Sets the patience of the current command.
    pub(super) fn set_patience(&self, patience: Patience) {
        self.cache.set_patience(patience);
        self.current_patience.set(patience);
    }

    /// Counts a get of a key.
    pub(super) fn count_get(&self, key: &[u8], is_hit: bool) {
        let (hits, misses) = if is_hit { (1, 0) } else { (0, 1) };
        self.count_gets(self.router.find(key), hits, misses);
    }

    /// Counts a write that was refused for lack of memory.
    pub(super) fn count_refused(&self, key: &[u8]) {
        self.counters().store_no_memory.add(1);
        if !self.router.is_single() {
            self.router.gets(self.router.find(key)).refused.add(1);
        }
    }

    #[inline]
    fn count_gets(&self, pool: usize, hits: u64, misses: u64) {
        self.counters().get_hits.add(hits);
        self.counters().get_misses.add(misses);
        if !self.router.is_single() {
            let gets = self.router.gets(pool);
            gets.hits.add(hits);
            gets.misses.add(misses);
        }
    }

    /// Looks up the keys of a run and calls `answer` for each, in order, until it breaks. `answer` returns whether the
    /// key counts as a hit or as a miss, if it counts. A lookup counts as a use: to stop before a key, `answer` breaks
    /// at the key before it.
    #[inline(always)]
    pub(super) fn answer_batch<'a>(&'a self, keys: &[&[u8]], answer: impl FnMut(usize, Lookup<'a>) -> KeyOutcome) {
        if self.router.is_single() {
            self.answer_pool(0, keys, answer);
        } else {
            self.answer_pools(keys, answer);
        }
    }

    /// As `answer_batch`, of keys of one pool.
    #[inline(always)]
    fn answer_pool<'a>(&'a self, pool: usize, keys: &[&[u8]], mut answer: impl FnMut(usize, Lookup<'a>) -> KeyOutcome) {
        let (mut hits, mut misses) = (0, 0);
        self.router.pool(pool).get_batch_while(keys, |index, lookup| {
            let outcome = answer(index, lookup);
            match counted(outcome) {
                Some(true) => hits += 1,
                Some(false) => misses += 1,
                None => {}
            }
            without_count(outcome)
        });
        self.count_gets(pool, hits, misses);
    }

    /// As `answer_batch`, of keys of any pools.
    #[inline(never)]
    fn answer_pools<'a>(&'a self, keys: &[&[u8]], mut answer: impl FnMut(usize, Lookup<'a>) -> KeyOutcome) {
        let mut numbers = [0; RUN_KEYS];
        let numbers = &mut numbers[..keys.len()];
        numbers.iter_mut().zip(keys).for_each(|(number, key)| *number = self.router.find(key));
        if numbers.iter().all(|number| *number == numbers[0]) && self.router.compact(numbers[0]).is_none() {
            return self.answer_pool(numbers[0], keys, answer);
        }
        let compact = |index: usize| self.router.compact(numbers[index]);
        (0..keys.len())
            .for_each(|index| compact(index).into_iter().for_each(|pool| pool.prefetch(&keys[index..=index])));
        let (mut hits, mut misses) = (0, 0);
        let mut answer_one = |index: usize, lookup| {
            let outcome = answer(index, lookup);
            match counted(outcome) {
                Some(true) => {
                    hits += 1;
                    self.router.gets(numbers[index]).hits.add(1);
                }
                Some(false) => {
                    misses += 1;
                    self.router.gets(numbers[index]).misses.add(1);
                }
                None => {}
            }
            without_count(outcome)
        };
        let mut from = 0;
        while from < keys.len() {
            let (answered, outcome) = match compact(from) {
                Some(pool) => (1, answer_one(from, pool.look_up(keys[from]))),
                None => {
                    let length = (from..keys.len()).take_while(|index| compact(*index).is_none()).count();
                    (
                        length,
                        self.answer_stores(&numbers[from..][..length], &keys[from..][..length], |index, lookup| {
                            answer_one(from + index, lookup)
                        }),
                    )
                }
            };
            if outcome.is_break() {
                break;
            }
            from += answered;
        }
        self.counters().get_hits.add(hits);
        self.counters().get_misses.add(misses);
    }

    /// Looks up keys of pools that are not compact, as one batch.
    #[inline(always)]
    fn answer_stores<'a>(
        &'a self,
        numbers: &[usize],
        keys: &[&[u8]],
        mut answer: impl FnMut(usize, Lookup<'a>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let key_of = |index: usize| (self.router.pool(numbers[index]), keys[index]);
        let mut outcome = ControlFlow::Continue(());
        Pool::get_batch_of_pools(keys.len(), key_of, |index, lookup| {
            outcome = answer(index, lookup);
            outcome
        });
        outcome
    }

    /// Has what changes of these keys will need fetched from memory.
    pub fn prefetch_writes<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        let in_stores = keys.filter(|key| self.compact(key).is_none());
        Pool::prefetch_writes(in_stores.map(|key| (self.pool(key), key)));
    }

    /// Flushes all pools.
    pub(super) fn flush_pools(&self, exptime: impl Into<i64>) {
        let delay = self.flush_delay(exptime);
        self.router.set().entries.iter().for_each(|entry| entry.pool.flush(delay));
        self.router.set().compact.iter().for_each(|entry| entry.pool.flush(delay));
    }
}
