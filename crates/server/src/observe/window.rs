//! The time that "now" means in every number: the last minute, or less after a start.
//!
//! The admin thread makes one [`Recent`] a second. `stats ebbtide`, `/api/overview`, the dashboard, `ebbtide top` and
//! the verdict show its numbers, so that they agree.

use ebbtide::memcached::CounterSnapshot;

use super::snapshot::Snapshot;
use super::traffic::EvictionCounts;
use crate::counters::CommandTotals;
use crate::pools::PoolTotals;

/// Length of the window that is "now", in seconds.
pub const WINDOW_SECONDS: usize = 60;

/// Counts of the window.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub seconds: f64,
    pub totals: CommandTotals,
    /// Objects that memory lost to make space.
    pub evictions: u64,
    /// Objects that left memory for flash.
    pub demotions: u64,
    /// Objects that flash lost to make space.
    pub flash_evictions: u64,
    /// Part of `evictions` for lack of a slot in the index.
    pub index_replaced: u64,
    pub expired: u64,
    /// Part of `expired` that was flushed.
    pub flushed: u64,
}

/// The numbers of now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recent {
    /// `None` before two snapshots exist.
    pub window: Option<Window>,
    /// The part of the stored objects without a counted read; `None` before the first census.
    pub unread_share: Option<f64>,
    /// Of sampled evictions, the latest with the most weight.
    pub evicted: EvictionCounts,
}

impl Window {
    /// Counts between two snapshots; `None` if no time has passed.
    pub fn between(first: &Snapshot, last: &Snapshot) -> Option<Self> {
        let seconds = last.uptime.saturating_sub(first.uptime).as_secs_f64();
        let since = |field: fn(&CounterSnapshot) -> u64| field(&last.cache).saturating_sub(field(&first.cache));
        let flash = |snapshot: &Snapshot| snapshot.flash.map_or(0, |flash| flash.evicted);
        (seconds > 0.0).then(|| Self {
            seconds,
            totals: last.totals.since(&first.totals),
            evictions: since(|cache| cache.evictions),
            demotions: since(|cache| cache.demotions),
            flash_evictions: flash(last).saturating_sub(flash(first)),
            index_replaced: since(|cache| cache.index_replaced),
            expired: since(|cache| cache.expired),
            flushed: since(|cache| cache.flushed),
        })
    }

    pub fn gets(&self) -> u64 {
        self.totals.get_hits + self.totals.get_misses
    }

    /// Commands with a key.
    pub fn accesses(&self) -> u64 {
        let totals = &self.totals;
        let hits_and_misses = [
            totals.touch_hits + totals.touch_misses,
            totals.delete_hits + totals.delete_misses,
            totals.incr_hits + totals.incr_misses,
            totals.decr_hits + totals.decr_misses,
        ];
        self.gets() + totals.set_commands + hits_and_misses.iter().sum::<u64>()
    }
}

/// Counts of one pool in the window; its numbers are NaN in the default.
#[derive(Clone, Debug, Default)]
pub struct PoolWindow {
    pub pool: String,
    pub seconds: f64,
    pub totals: PoolTotals,
}

impl PoolWindow {
    /// Counts of each pool between two snapshots; those of a pool that `first` does not have begin at 0. Empty if no
    /// time has passed.
    pub fn between(first: &Snapshot, last: &Snapshot) -> Vec<Self> {
        let seconds = last.uptime.saturating_sub(first.uptime).as_secs_f64();
        let count = |(pool, totals): &(String, PoolTotals)| {
            let before = first.pools.iter().find(|(name, _)| name == pool);
            let totals = totals.since(&before.map_or_else(PoolTotals::default, |(_, before)| *before));
            Self { pool: pool.clone(), seconds, totals }
        };
        if seconds > 0.0 { last.pools.iter().map(count).collect() } else { Vec::new() }
    }

    pub fn per_second(&self, count: fn(&PoolTotals) -> u64) -> f64 {
        count(&self.totals) as f64 / self.seconds
    }

    /// The hit ratio of gets; NaN without gets.
    pub fn hit_ratio(&self) -> f64 {
        self.totals.gets.hits as f64 / self.totals.gets.all() as f64
    }
}

impl Recent {
    /// A rate of the window; NaN where there is none yet.
    pub fn per_second(&self, count: fn(&Window) -> u64) -> f64 {
        self.window.map_or(f64::NAN, |window| count(&window) as f64 / window.seconds)
    }

    /// A rate of the window; 0 where there is none yet.
    pub fn per_second_or_zero(&self, count: fn(&Window) -> u64) -> f64 {
        self.window.map_or(0.0, |window| count(&window) as f64 / window.seconds)
    }

    /// The hit ratio of gets; NaN without gets.
    pub fn hit_ratio(&self) -> f64 {
        self.window.map_or(f64::NAN, |window| window.totals.get_hits as f64 / window.gets() as f64)
    }
}
