//! The maintenance thread of a cache. It refreshes the coarse time, expires and evicts ahead of need, and demotes idle
//! values.
//!
//! It wakes every few milliseconds, and at once when a writer finds that free segments run low. Each pool in the queue
//! has one slice of work in turn, so that a pool that is written to all the time does not starve the others; the pool
//! `default` has a turn at each wake-up, the others ten times a second. Between two slices the thread yields its core,
//! so that no request waits for an eviction. Evictions of a pool wait until flash has taken evicted items, unless
//! writers wait or the memory shrinks. The thread holds the engine weakly, and ends with it. Threads of flash are in
//! `flash/threads.rs`.

use crate::engine::Engine;
use crate::error::Error;
use crate::flash::pool_flash::PoolFlash;
use crate::maintenance_queue::Turns;
use crate::memory_monitor;
use crate::pool_budgets;
use crate::pool_options::PoolOptions;
use crate::pool_state::PoolState;
use crate::removal_events;
use crate::wakeup::TICK;
use ebbtide_store::{Item, Participant, Progress, Store};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// The pause while memory waits for another thread.
const WAITING_TICK: Duration = Duration::from_micros(500);
/// The pause while evictions wait for flash.
const FLASH_TICK: Duration = Duration::from_micros(100);
/// Steps of a scan for idle values per wake-up. A step looks at a few entries.
const IDLE_SCAN_STEPS: u32 = 64;
/// How long a new pool waits for the memory of others.
const MAX_ADD_WAIT: Duration = Duration::from_secs(30);

/// Result of a slice of a pool's maintenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slice {
    /// There is more to do.
    Working,
    /// There is more to do after this time, once another thread or flash has progressed.
    Waiting(Duration),
    Done,
}

/// Starts the maintenance thread of an engine.
pub(crate) fn start(engine: &Arc<Engine>) -> std::io::Result<()> {
    let weak = Arc::downgrade(engine);
    thread::Builder::new().name("ebbtide-maintain".into()).spawn(move || maintain(&weak))?;
    Ok(())
}

fn maintain(weak: &Weak<Engine>) {
    let Some(engine) = weak.upgrade() else { return };
    let participant = engine.parts.memory.participate();
    let (removals, memory_waiters) = (engine.parts.removals.clone(), Arc::clone(&engine.parts.memory_waiters));
    engine.parts.queue.waker.register_current_thread();
    drop(engine);
    let (mut turns, mut woken) = (Turns::default(), Instant::now());
    loop {
        let pause = {
            let Some(engine) = weak.upgrade() else { break };
            let _working = engine.maintaining.lock().expect("a verification has panicked");
            if engine.is_closed.load(Ordering::Acquire) {
                break;
            }
            engine.parts.queue.waker.reset();
            let elapsed = woken.elapsed();
            woken += elapsed;
            engine.run_turns(&participant, &mut turns, elapsed)
        };
        removals.iter().for_each(|removals| removals.tell_all());
        memory_waiters.wake_all();
        if !pause.is_zero() {
            thread::park_timeout(pause);
        }
    }
    removals.iter().for_each(|removals| removals.tell_all());
    memory_waiters.wake_all();
}

impl Engine {
    /// Adds a pool. Waits until the others have freed the memory with which it begins.
    pub fn add_pool(&self, options: &PoolOptions) -> Result<(), Error> {
        let _adding = self.pools.lock_adding();
        let mut joining = self.pools.announce(options)?;
        let started = Instant::now();
        let mut is_smaller = false;
        let added = loop {
            let open = |name: String, store: Store| {
                let memory_bytes = self.default_pool.store.memory_bytes() + store.memory_bytes();
                let open = |shared| PoolFlash::open(shared, &name, &store, memory_bytes);
                let flash = self.flash().map(open);
                PoolState::new(name, store, self.parts.clone(), flash)
            };
            match self.pools.try_add(&joining, &self.parts.memory, open) {
                Ok(Some(())) => break Ok(()),
                Err(error) => break Err(error),
                Ok(None) => {}
            }
            let participant = self.default_pool.participant();
            if participant.is_pinned() {
                break Err(Error::OutOfMemory { reason: "this thread holds a borrowed item: drop it first" });
            }
            if started.elapsed() > MAX_ADD_WAIT / 2 && !is_smaller {
                is_smaller = true;
                self.pools.begin_smaller(&mut joining);
            }
            if started.elapsed() > MAX_ADD_WAIT {
                break Err(Error::OutOfMemory { reason: "the other pools cannot free the memory of a new one now" });
            }
            self.free_for(joining.first_bytes(), &participant);
            thread::sleep(WAITING_TICK);
        };
        if added.is_err() {
            self.pools.cancel();
        }
        self.run_soon();
        added
    }

    /// Has the other pools free this much memory for a new one.
    fn free_for(&self, first_bytes: u64, participant: &Participant) {
        let _maintaining = self.maintaining.lock().expect("a verification has panicked");
        self.pools.settle(|| first_bytes);
        let now_ms = self.clock.now_ms();
        for pool in self.pools.compact() {
            while pool.table.maintain(participant, now_ms) == Progress::Working {}
        }
        for pool in self.all_pools() {
            while !pool.store.resize_done() && pool.store.maintain(participant, now_ms) == Progress::Working {}
        }
    }

    fn all_pools(&self) -> impl Iterator<Item = Arc<PoolState>> {
        std::iter::once(Arc::clone(&self.default_pool)).chain(self.pools.others())
    }

    /// Has the maintenance run: in the background with the system's clock, now with a manual one.
    pub fn run_soon(&self) {
        if self.clock.is_manual() {
            self.run_all_maintenance(self.clock.now_ms());
        } else {
            self.default_pool.wake();
        }
    }

    /// Refreshes the time, also that of flash.
    fn tick(&self) -> u64 {
        let now_ms = self.clock.tick();
        self.flash().into_iter().for_each(|flash| flash.note_time(now_ms));
        now_ms
    }

    /// Gives each pool that has work its slices in turn, for as long as there is work, but not for long. Returns the
    /// pause until the next call.
    fn run_turns(&self, participant: &Participant, turns: &mut Turns<PoolState>, elapsed: Duration) -> Duration {
        self.pools.follow_charges_after(elapsed);
        self.pools.settle(|| pool_budgets::allowance(elapsed));
        self.flash().into_iter().for_each(|flash| flash.rebalance_memory());
        turns.resume_waiting();
        turns.add(&self.default_pool);
        self.pools.next_in_sweep(|count| turns.due_in_sweep(elapsed, count)).iter().for_each(|pool| turns.add(pool));
        let (started, mut pause) = (Instant::now(), TICK);
        for pool in self.pools.changing_compact() {
            if pool.table.maintain(participant, self.tick()) == Progress::Working {
                pause = Duration::ZERO;
            }
        }
        while let Some(pool) = turns.next(&self.parts.queue) {
            match pool.run_slice(participant, || self.tick()) {
                Slice::Working => turns.put_back(&pool, false),
                Slice::Waiting(for_time) => {
                    turns.put_back(&pool, true);
                    pause = pause.min(for_time);
                }
                Slice::Done => {}
            }
            if started.elapsed() > TICK || removal_events::are_many() {
                pause = Duration::ZERO;
                break;
            }
            thread::yield_now();
        }
        self.demote_idle(participant, self.tick());
        pause
    }

    /// Does all maintenance that is due, with a manual clock.
    pub fn run_all_maintenance(&self, now_ms: u64) {
        let pool = &*self.default_pool;
        let participant = pool.participant();
        let Some(_change) = participant.begin_change() else { return };
        self.flash().into_iter().for_each(|flash| flash.rebalance_memory());
        while pool.store.maintain(&participant, now_ms) == Progress::Working {}
        self.pools.follow_charges();
        // Twice: pools grow when others have shrunk, and removed ones were dropped.
        for _ in 0..2 {
            self.pools.retry();
            self.pools.settle(|| u64::MAX);
            for pool in self.pools.compact() {
                while pool.table.maintain(&participant, now_ms) == Progress::Working {}
            }
            for pool in self.pools.others() {
                while pool.store.maintain(&participant, now_ms) == Progress::Working {}
            }
            while pool.store.maintain(&participant, now_ms) == Progress::Working {}
            self.pools.retry();
            self.pools.settle(|| u64::MAX);
        }
        self.demote_idle(&participant, now_ms);
        if let Some(flash) = self.flash() {
            flash.maintain(now_ms);
        }
        self.update_profiles();
    }

    /// Demotes idle values: those of a few steps, or with a manual clock all of them. Each scan is of the next pool.
    fn demote_idle(&self, participant: &Participant, now_ms: u64) {
        let Some(flash) = self.flash() else { return };
        let idle_scan = &mut *self.idle_scan.lock().expect("a scan has panicked");
        let Some(max_seconds) = flash.idle.max_seconds() else { return idle_scan.scan.stop() };
        let is_manual = self.clock.is_manual();
        let idle_ms = u64::from(max_seconds) * 1000;
        let pools = self.pools.present();
        // With a manual clock one scan of each pool.
        for _ in 0..if is_manual { pools.len() } else { 1 } {
            if !idle_scan.is_due(now_ms, (idle_ms, pools.len()), is_manual) {
                return;
            }
            let pool = &pools[idle_scan.turn % pools.len()];
            let Some(flash) = &pool.flash else { return };
            for _ in 0..if is_manual { u32::MAX } else { IDLE_SCAN_STEPS } {
                let has_space = flash.tier.has_space() && !pool.store.is_low() || is_manual;
                let may_continue = has_space && flash.tier.has_write_budget(flash.seconds(now_ms));
                let demote = |item: &Item<'_>| flash.demote_idle(item, now_ms);
                let times = (now_ms, idle_ms);
                // While too many scans are running this one is tried again later.
                if !may_continue || idle_scan.scan.advance(&pool.store, participant, times, demote) != Ok(true) {
                    break;
                }
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
        let (stats, flash) = self.pools.stats_beside_flash();
        let for_flash = flash.map_or(0, |(limit_bytes, _)| limit_bytes);
        let (limit_bytes, used_bytes) = (self.pools.memory_bytes(), stats.memory_used_bytes + for_flash);
        monitor.run(limit_bytes, used_bytes, |bytes| self.resize_towards(bytes));
    }

    /// Changes the memory limit, or lowers it as far as pools and flash let it, if this is less than they need. Answers
    /// the limit; `None` if it stays.
    fn resize_towards(&self, memory_bytes: u64) -> Option<u64> {
        let limit_bytes = self.pools.memory_bytes();
        if memory_bytes >= limit_bytes {
            return self.resize(memory_bytes).is_ok().then_some(memory_bytes);
        }
        let wanted_bytes = limit_bytes - memory_bytes;
        let lowered_bytes = pool_budgets::lower_by(wanted_bytes, limit_bytes, |bytes| self.resize(bytes).is_ok());
        (lowered_bytes > 0).then(|| limit_bytes - lowered_bytes)
    }
}

impl PoolState {
    /// A slice of the due maintenance. While flash cannot take evicted items, everything but evictions continues.
    fn run_slice(&self, participant: &Participant, tick: impl FnOnce() -> u64) -> Slice {
        let (store, now_ms) = (&*self.store, tick());
        self.flash.iter().for_each(|flash| flash.promotions.note_memory(store.memory_bytes()));
        let evicts = self.may_evict(now_ms);
        let progress = match evicts {
            true => store.maintain(participant, now_ms),
            false => store.maintain_without_evicting(participant, now_ms),
        };
        match progress {
            Progress::Working => Slice::Working,
            _ if !evicts && (store.is_low() || store.needs_shrink()) => Slice::Waiting(FLASH_TICK),
            Progress::Waiting(_) => Slice::Waiting(WAITING_TICK),
            Progress::Ready | Progress::Stuck => Slice::Done,
        }
    }

    /// Whether flash can take evicted items, or has had the time that evictions wait for it.
    fn may_evict(&self, now_ms: u64) -> bool {
        let Some(flash) = &self.flash else { return true };
        let mut since = self.evictions_wait_since.lock().expect("nothing panics under this lock");
        let full = flash.full_for(now_ms);
        let waits = full.is_some_and(|full| {
            let waited = since.get_or_insert_with(Instant::now).elapsed();
            flash.waits_ahead_of_need(&self.store, waited, full)
        });
        if !waits {
            *since = None;
        }
        !waits
    }
}

#[cfg(test)]
mod tests {
    use crate::byte_size::ByteSize;
    use crate::cache::Cache;
    use crate::clock::Clock;
    use crate::pool_options::PoolOptions;
    use std::time::{Duration, Instant};

    #[test]
    fn memory_shrinks_down_to_the_pool_minimums() {
        const MIB: u64 = 1 << 20;
        let builder = Cache::builder().memory(ByteSize::mib(1000)).max_value(ByteSize::kib(64)).clock(Clock::Manual);
        let cache = builder.pool(PoolOptions::named("a").min(ByteSize::mib(960))).build().unwrap();
        let engine = cache.engine();
        let reached_bytes = engine.resize_towards(950 * MIB).expect("38 MiB are free of minimums");
        assert!((960 * MIB..964 * MIB).contains(&reached_bytes), "{reached_bytes}");
        cache.maintain(Duration::from_secs(1));
        assert_eq!(cache.stats().memory_limit_bytes, reached_bytes);
        assert_eq!(engine.resize_towards(940 * MIB), None, "nothing is left to give");
        assert_eq!(engine.resize_towards(1000 * MIB), Some(1000 * MIB));
        cache.verify();
    }

    #[test]
    fn memory_shrinks_although_flash_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let builder = Cache::builder().memory(ByteSize::mib(64));
        let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(64)).build().unwrap();
        let flash = cache.engine().flash().unwrap();
        let insert = |number: u32| drop(cache.insert(&number.to_le_bytes(), &[7; 3000]).apply());
        (0..30_000).for_each(insert);
        let _without_maintenance = flash.maintaining.lock().unwrap();
        (30_000..60_000).take_while(|_| flash.tier.has_space()).for_each(insert);
        assert!(!flash.tier.has_space());
        cache.resize(ByteSize::mib(32)).unwrap();
        let deadline = Instant::now() + Duration::from_secs(120);
        while !cache.engine().default_pool.store.resize_done() {
            assert!(Instant::now() < deadline, "evictions wait for flash");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
