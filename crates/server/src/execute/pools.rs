//! The pools of keys: each command goes to the pool of its key, and a run of gets is resolved pool by pool.
//!
//! ```text
//! keys of a run   u1 s1 u2 p1 s2      their pools   users sess users pages sess
//! looked up       (u1 u2) (s1 s2) (p1)   one batch per pool, so that cache misses overlap
//! answered        u1 s1 u2 p1 s2         in the order of the keys
//! ```
//! Without pools a run is one batch that is answered while it is looked up.

use std::ops::ControlFlow;

use ebbtide::memcached::{CompactPool, Lookup, Patience, Pool};

use super::Executor;
use super::get::RUN_KEYS;

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
    /// key counts as a hit or as a miss, if it counts.
    #[inline(always)]
    pub(super) fn answer_batch<'a>(
        &'a self,
        keys: &[&[u8]],
        answer: impl FnMut(usize, Lookup<'a>) -> ControlFlow<(), Option<bool>>,
    ) {
        if self.router.is_single() {
            self.answer_pool(0, keys, answer);
        } else {
            self.answer_pools(keys, answer);
        }
    }

    /// As `answer_batch`, of keys of one pool.
    #[inline(always)]
    fn answer_pool<'a>(
        &'a self,
        pool: usize,
        keys: &[&[u8]],
        mut answer: impl FnMut(usize, Lookup<'a>) -> ControlFlow<(), Option<bool>>,
    ) {
        let (mut hits, mut misses) = (0, 0);
        self.router.pool(pool).get_batch_while(keys, |index, lookup| {
            match answer(index, lookup)? {
                Some(true) => hits += 1,
                Some(false) => misses += 1,
                None => {}
            }
            ControlFlow::Continue(())
        });
        self.count_gets(pool, hits, misses);
    }

    /// As `answer_batch`, of keys of any pools. The keys behind one that breaks are looked up all the same if they are
    /// of another pool.
    #[inline(never)]
    fn answer_pools<'a>(
        &'a self,
        keys: &[&[u8]],
        mut answer: impl FnMut(usize, Lookup<'a>) -> ControlFlow<(), Option<bool>>,
    ) {
        let mut pools = [0; RUN_KEYS];
        let pools = &mut pools[..keys.len()];
        pools.iter_mut().zip(keys).for_each(|(pool, key)| *pool = self.router.find(key));
        if pools.iter().all(|pool| *pool == pools[0]) && self.router.compact(pools[0]).is_none() {
            return self.answer_pool(pools[0], keys, answer);
        }
        let mut lookups = [const { None }; RUN_KEYS];
        self.look_up_by_pool(keys, pools, &mut lookups);
        for (index, pool) in pools.iter().enumerate() {
            let lookup = lookups[index].take().expect("each key was looked up");
            match answer(index, lookup) {
                ControlFlow::Continue(Some(is_hit)) => self.count_gets(*pool, is_hit.into(), (!is_hit).into()),
                ControlFlow::Continue(None) => {}
                ControlFlow::Break(()) => return,
            }
        }
    }

    /// Looks up the keys, a batch for each pool.
    fn look_up_by_pool<'a>(&'a self, keys: &[&[u8]], pools: &[usize], lookups: &mut [Option<Lookup<'a>>; RUN_KEYS]) {
        for (first, pool) in pools.iter().enumerate() {
            if lookups[first].is_some() {
                continue;
            }
            let mut batch: [&[u8]; RUN_KEYS] = [&[]; RUN_KEYS];
            let mut positions = [0; RUN_KEYS];
            let mut length = 0;
            for position in (first..keys.len()).filter(|position| pools[*position] == *pool) {
                (batch[length], positions[length]) = (keys[position], position);
                length += 1;
            }
            if let Some(compact) = self.router.compact(*pool) {
                compact.prefetch(&batch[..length]);
                (0..length).for_each(|index| lookups[positions[index]] = Some(compact.look_up(batch[index])));
                continue;
            }
            let found = |index: usize, lookup| lookups[positions[index]] = Some(lookup);
            self.router.pool(*pool).get_batch(&batch[..length], found);
        }
    }

    /// Flushes all pools.
    pub(super) fn flush_pools(&self, exptime: impl Into<i64>) {
        let delay = self.flush_delay(exptime);
        self.router.set().entries.iter().for_each(|entry| entry.pool.flush(delay));
        self.router.set().compact.iter().for_each(|entry| entry.pool.flush(delay));
    }
}
