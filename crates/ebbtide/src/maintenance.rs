//! The maintenance thread of a cache. It refreshes the coarse time, expires and evicts ahead of need, and demotes idle
//! values.
//!
//! It wakes every few milliseconds, and at once when a writer finds that free segments run low. Between two slices of
//! work it yields its core, so that no request waits for an eviction; and it waits until flash has taken evicted items,
//! unless writers wait or the memory shrinks. It holds the engine weakly, and ends with it. Threads of flash are in
//! `flash/threads.rs`.

use crate::engine::Engine;
use crate::error::Error;
use crate::memory_monitor;
use crate::pool_options::PoolOptions;
use crate::pool_state::PoolState;
use crate::wakeup::TICK;
use ebbtide_store::{Item, Participant, Progress};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

/// The pause while memory waits for another thread.
const WAITING_TICK: Duration = Duration::from_micros(500);
/// Steps of a scan for idle values per wake-up. A step looks at a few entries.
const IDLE_SCAN_STEPS: u32 = 64;

/// Starts the maintenance thread of an engine.
pub(crate) fn start(engine: &Arc<Engine>) -> std::io::Result<()> {
    let weak = Arc::downgrade(engine);
    thread::Builder::new().name("ebbtide-maintain".into()).spawn(move || maintain(&weak))?;
    Ok(())
}

fn maintain(weak: &Weak<Engine>) {
    let Some(engine) = weak.upgrade() else { return };
    let participant = engine.default_pool.store.participate();
    engine.waker.register_current_thread();
    drop(engine);
    loop {
        let is_waiting = {
            let Some(engine) = weak.upgrade() else { return };
            let _working = engine.maintaining.lock().expect("a verification has panicked");
            if engine.is_closed.load(Ordering::Acquire) {
                return;
            }
            engine.waker.reset();
            engine.run_slice(&participant)
        };
        thread::park_timeout(if is_waiting { WAITING_TICK } else { TICK });
    }
}

impl Engine {
    /// Adds a pool in memory.
    pub fn add_pool(&self, options: &PoolOptions) -> Result<(), Error> {
        let (clock, waker) = (Arc::clone(&self.clock), Arc::clone(&self.waker));
        self.pools.add(options, |name, store| PoolState::new(name, store, clock, waker, None))?;
        self.run_soon();
        Ok(())
    }

    /// Has the maintenance run: in the background with the system's clock, now with a manual one.
    pub fn run_soon(&self) {
        if self.clock.is_manual() {
            self.run_all_maintenance(self.clock.now_ms());
        } else {
            self.waker.wake();
        }
    }

    /// Works until nothing is due. True if another thread has to continue first.
    fn run_slice(&self, participant: &Participant) -> bool {
        self.pools.settle();
        let others = self.pools.others();
        // The work may go on for as long as writers write: flash is told the time with each step.
        let tick = || {
            let now_ms = self.clock.tick();
            self.flash().into_iter().for_each(|flash| flash.note_time(now_ms));
            // A slice of each pool in turn: a pool that is written to all the time must not starve the others.
            others.iter().for_each(|pool| _ = pool.store.maintain(&pool.participant(), now_ms));
            now_ms
        };
        let pool = &*self.default_pool;
        pool.rebalance_memory();
        let is_waiting = pool.run_due_maintenance(participant, tick);
        self.demote_idle(participant, tick());
        let is_busy = |pool: &Arc<PoolState>| pool.store.is_low() || !pool.store.resize_done();
        is_waiting || others.iter().any(is_busy)
    }

    /// Does all maintenance that is due, with a manual clock.
    pub fn run_all_maintenance(&self, now_ms: u64) {
        let pool = &*self.default_pool;
        let participant = pool.participant();
        let Some(_change) = participant.begin_change() else { return };
        pool.rebalance_memory();
        while pool.store.maintain(&participant, now_ms) == Progress::Working {}
        // Twice: pools grow when others have shrunk, and removed ones were dropped.
        for _ in 0..2 {
            for pool in self.pools.others() {
                while pool.store.maintain(&pool.participant(), now_ms) == Progress::Working {}
            }
            while pool.store.maintain(&participant, now_ms) == Progress::Working {}
            self.pools.settle();
        }
        self.demote_idle(&participant, now_ms);
        if let Some(flash) = self.flash() {
            flash.maintain(now_ms);
        }
    }

    /// Demotes idle values: those of a few steps, or with a manual clock all of them.
    fn demote_idle(&self, participant: &Participant, now_ms: u64) {
        let Some(flash) = self.flash() else { return };
        let idle_scan = &mut *self.idle_scan.lock().expect("a scan has panicked");
        let Some(max_seconds) = flash.idle.max_seconds() else { return idle_scan.scan.stop() };
        let is_manual = self.clock.is_manual();
        let idle_ms = u64::from(max_seconds) * 1000;
        if !idle_scan.is_due(now_ms, idle_ms, is_manual) {
            return;
        }
        let store = &self.default_pool.store;
        for _ in 0..if is_manual { u32::MAX } else { IDLE_SCAN_STEPS } {
            let may_continue = flash.tier.has_space() && !store.is_low() || is_manual;
            let demote = |item: &Item<'_>| flash.demote_idle(item, now_ms);
            // While too many scans are running this one is tried again later.
            if !may_continue || idle_scan.scan.advance(store, participant, (now_ms, idle_ms), demote) != Ok(true) {
                return;
            }
        }
    }
}

/// Starts the thread of the memory monitor.
pub(crate) fn start_monitor(engine: &Arc<Engine>) -> std::io::Result<()> {
    let weak = Arc::downgrade(engine);
    thread::Builder::new().name("ebbtide-monitor".into()).spawn(move || watch(&weak)).map(drop)
}

fn watch(weak: &Weak<Engine>) {
    loop {
        thread::park_timeout(memory_monitor::INTERVAL);
        let Some(engine) = weak.upgrade() else { return };
        engine.relieve_pressure();
    }
}

impl Engine {
    /// Has the monitor read the host, and moves the memory limit by a step if that is due.
    fn relieve_pressure(&self) {
        let Some(monitor) = &self.memory_monitor else { return };
        let _maintaining = self.maintaining.lock().expect("no holder of the lock panics");
        if self.is_closed.load(Ordering::Acquire) {
            return;
        }
        let stats = self.pools.stats();
        let for_flash = self.flash().map_or(0, |flash| flash.memory_split.with_flash_bytes(|bytes| bytes));
        let (limit_bytes, used_bytes) = (stats.memory_limit_bytes + for_flash, stats.memory_used_bytes + for_flash);
        monitor.run(limit_bytes, used_bytes, |bytes| self.resize(bytes).is_ok());
    }
}

impl PoolState {
    /// Moves memory from items to flash, if there is flash.
    pub fn rebalance_memory(&self) {
        self.flash.as_ref().map(|flash| flash.rebalance_memory(&self.store));
    }

    /// Works until nothing is due. True if another thread has to continue first. While flash cannot take evicted items,
    /// everything but evictions goes on.
    fn run_due_maintenance(&self, participant: &Participant, tick: impl Fn() -> u64) -> bool {
        let store = &*self.store;
        let mut evicts =
            self.flash.as_ref().is_none_or(|flash| flash.full_for(tick()).is_none()) || !store.resize_done();
        loop {
            let progress = match evicts {
                true => store.maintain(participant, tick()),
                false => store.maintain_without_evicting(participant, tick()),
            };
            if progress != Progress::Working && (evicts || !store.is_low() && !store.needs_shrink()) {
                return matches!(progress, Progress::Waiting(_));
            }
            match &self.flash {
                Some(flash) if evicts || progress != Progress::Working => {
                    flash.wait_until_can_demote(|waited, full| flash.waits_ahead_of_need(store, waited, full), &tick);
                    evicts = true;
                }
                _ => thread::yield_now(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::byte_size::ByteSize;
    use crate::cache::Cache;
    use std::time::{Duration, Instant};

    #[test]
    fn the_memory_gets_smaller_though_flash_has_no_room() {
        let folder = tempfile::tempdir().unwrap();
        let builder = Cache::builder().memory(ByteSize::mib(64));
        let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(64)).build().unwrap();
        let flash = cache.engine().flash().unwrap();
        let insert = |number: u32| drop(cache.insert(&number.to_le_bytes(), &[7; 3000]).apply());
        (0..30_000).for_each(insert);
        let _without_upkeep = flash.maintaining.lock().unwrap();
        (30_000..60_000).take_while(|_| flash.tier.has_space()).for_each(insert);
        assert!(!flash.tier.has_space());
        cache.resize(ByteSize::mib(32)).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !cache.engine().default_pool.store.resize_done() {
            assert!(Instant::now() < deadline, "evictions wait for flash");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
