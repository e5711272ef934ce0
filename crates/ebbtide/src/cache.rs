//! The cache: its pool `default`, and what concerns all of it.

use crate::access::Access;
use crate::builder::CacheBuilder;
use crate::byte_size::ByteSize;
use crate::clock::Clock;
use crate::compact_pool::CompactPool;
use crate::engine::{Engine, Owner};
use crate::error::Error;
use crate::flash::options::FlashLimits;
use crate::flash::promotion::FlashPromotion;
use crate::flash::tier::FlashStats;
use crate::pool::Pool;
use crate::pool_options::PoolOptions;
use crate::pool_refusals::BudgetRefusal;
use crate::retry::PatienceCell;
use ebbtide_flash::admission::Limits;
use ebbtide_flash::device::{DriveLog, Health};
use ebbtide_store::{Number, Stats, Ttl};
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A cheap clone; all clones are the same cache. It is a handle of its pool `default`: [`Pool`] has the operations on
/// keys.
#[derive(Clone)]
pub struct Cache {
    pool: Pool,
}

/// A handle that does not keep the cache alive.
#[derive(Clone)]
pub struct WeakCache(Weak<Owner>);

impl WeakCache {
    /// The cache, if a handle of it exists.
    pub fn upgrade(&self) -> Option<Cache> {
        self.0.upgrade().map(Cache::of)
    }
}

impl Deref for Cache {
    type Target = Pool;

    #[inline(always)]
    fn deref(&self) -> &Pool {
        &self.pool
    }
}

impl CacheBuilder {
    /// Builds the cache, with what flash holds, and with the system's clock starts its maintenance thread.
    ///
    /// # Errors
    /// `Configuration` names the option that cannot work, and why.
    pub fn build(self) -> Result<Cache, Error> {
        self.build_engine().map(Cache::new)
    }
}

impl Cache {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self::of(Arc::new(Owner(engine)))
    }

    fn of(owner: Arc<Owner>) -> Self {
        let pool = Arc::clone(&owner.0.default_pool);
        Self { pool: Pool(Access { pool, owner, waits: true, patience: PatienceCell::default() }) }
    }

    /// A handle that does not keep the cache alive.
    pub fn downgrade(&self) -> WeakCache {
        WeakCache(Arc::downgrade(&self.pool.0.owner))
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.pool.0.owner.0
    }

    pub fn builder() -> CacheBuilder {
        CacheBuilder::default()
    }

    /// As [`Pool::without_waiting`].
    pub fn without_waiting(&self) -> Self {
        Self { pool: self.pool.without_waiting() }
    }

    /// Counters and gauges, the sums of all pools. With flash the memory includes that of flash.
    pub fn stats(&self) -> Stats {
        let engine = self.engine();
        let stats = || {
            let (mut stats, flash) = engine.pools.stats_beside_flash();
            let (limit_bytes, used_bytes) = flash.unwrap_or_default();
            stats.memory_limit_bytes += limit_bytes;
            stats.memory_used_bytes += used_bytes;
            stats
        };
        engine.flash().map_or_else(stats, |flash| flash.memory_split.with_reserved_bytes(|_| stats()))
    }

    /// The memory limit that the builder, [`Self::resize`] or the memory monitor has set, that of flash included.
    pub fn memory_bytes(&self) -> u64 {
        self.engine().pools.memory_bytes()
    }

    /// Changes the memory limit; the memory of flash stays as it is. Shrinking evicts, and returns memory to the
    /// system: in the background with the system's clock, before the answer with a manual one.
    ///
    /// # Errors
    /// `Configuration` if the new limit cannot hold what the cache is configured for.
    pub fn resize(&self, memory: ByteSize) -> Result<(), Error> {
        let engine = self.engine();
        let participant = engine.default_pool.participant();
        let _change = participant.begin_change().ok_or(Error::Closed)?;
        engine.resize(memory.as_bytes())?;
        engine.memory_monitor.iter().for_each(|monitor| monitor.configure(memory.as_bytes()));
        if engine.clock.is_manual() {
            engine.run_all_maintenance(engine.clock.now_ms());
        }
        Ok(())
    }

    /// Budgets that the division of the memory gave to pools, and that they refused, since the start: each target of a
    /// pool counts once, however often it is tried.
    pub fn refused_budgets(&self) -> u64 {
        self.engine().pools.refusals()
    }

    /// The refused budgets since the last call, up to 32, the newest last.
    pub fn take_refused_budgets(&self) -> Vec<BudgetRefusal> {
        self.engine().pools.take_refusals()
    }

    /// A handle of a pool.
    ///
    /// # Errors
    /// `UnknownPool`; `PoolKind` for a compact pool.
    pub fn pool(&self, name: &str) -> Result<Pool, Error> {
        let pool = self.engine().pools.find(name)?;
        Ok(Pool(Access { pool, ..self.pool.0.clone() }))
    }

    /// A handle of a compact pool.
    ///
    /// # Errors
    /// `UnknownPool`; `PoolKind` for another pool.
    pub fn compact_pool(&self, name: &str) -> Result<CompactPool, Error> {
        let pool = self.engine().pools.find_compact(name)?;
        Ok(CompactPool { pool, owner: Arc::clone(&self.pool.0.owner) })
    }

    /// The names of all pools, `default` first.
    pub fn pools(&self) -> Vec<String> {
        self.engine().pools.names()
    }

    /// Adds a pool. Waits, half a minute at most, until the other pools have freed its first budget: 32 segments, at
    /// least its minimum. After half of that time its smallest budget is enough. It gets the rest of its memory in the
    /// background.
    ///
    /// # Errors
    /// `PoolExists`; `Configuration` if the name or the shares cannot work; `OutOfMemory` if the others cannot free
    /// memory.
    pub fn add_pool(&self, options: &PoolOptions) -> Result<(), Error> {
        let participant = self.engine().default_pool.participant();
        let _change = participant.begin_change().ok_or(Error::Closed)?;
        self.engine().add_pool(options)
    }

    /// Whether the cache could have these pools in place of those that it has. Changes nothing.
    ///
    /// # Errors
    /// As [`Cache::add_pool`].
    pub fn check_pools(&self, pools: &[PoolOptions]) -> Result<(), Error> {
        self.engine().pools.check(pools)
    }

    /// The smallest memory that its pools can have together: their minimums, at least what their stores can shrink to,
    /// beside what flash may ask for. The memory monitor goes no lower.
    pub fn min_memory(&self) -> ByteSize {
        ByteSize::bytes(self.engine().pools.min_memory_bytes())
    }

    /// Removes a pool with all its entries. Handles that exist miss, and refuse writes as `PoolRemoved`; the other
    /// pools get the memory, the last of it when the last handle is dropped.
    ///
    /// # Errors
    /// `UnknownPool`; `Configuration` for the pool `default`, which stays.
    pub fn remove_pool(&self, name: &str) -> Result<(), Error> {
        let engine = self.engine();
        let participant = engine.default_pool.participant();
        let _change = participant.begin_change().ok_or(Error::Closed)?;
        engine.pools.remove(name)?;
        engine.run_soon();
        Ok(())
    }

    /// Walks all data structures and asserts every invariant. For tests: slow, and no thread but those of the cache may
    /// use it meanwhile.
    pub fn verify(&self) {
        let engine = self.engine();
        let pool = &engine.default_pool;
        let _quiet = engine.maintaining.lock().expect("the maintenance thread has panicked");
        pool.store.verify(&pool.participant(), engine.clock.now_ms());
        for pool in engine.pools.others() {
            pool.store.verify(&pool.participant(), engine.clock.now_ms());
        }
        engine.pools.compact().iter().for_each(|pool| pool.table.verify());
        if let Some(flash) = engine.flash() {
            flash.verify();
        }
    }
}

/// Time.
impl Cache {
    /// With `Clock::Manual`: moves time on to this long after the cache was built (it never goes back) and does all
    /// maintenance that is due.
    ///
    /// # Panics
    /// If the cache goes by the system's clock.
    pub fn maintain(&self, since_start: Duration) {
        let engine = self.engine();
        assert!(engine.clock.is_manual(), "maintain is for caches with a manual clock");
        engine.run_all_maintenance(engine.clock.set(since_start));
        engine.tell_all_removals();
    }

    /// For tests of programs that go by the system's clock: moves this cache's time on, as if this time had passed. An
    /// entry that has expired by then is absent when this returns; its memory is freed in the background. Time moves a
    /// thousand years at most, all skips together.
    ///
    /// # Errors
    /// `Configuration` with a manual clock, which [`Cache::maintain`] moves.
    pub fn skip_time(&self, time: Duration) -> Result<(), Error> {
        let engine = self.engine();
        if !engine.clock.skip(time) {
            return Err(Error::Configuration {
                option: "clock",
                value: format!("{:?}", Clock::Manual),
                reason: "skip_time is for caches with the system's clock; call maintain".to_owned(),
            });
        }
        engine.default_pool.wake();
        Ok(())
    }

    /// How far [`Cache::skip_time`] has moved time in all; zero outside of tests.
    pub fn skipped_time(&self) -> Duration {
        Duration::from_millis(self.engine().clock.skipped_ms())
    }

    /// The TTL that ends when the wall clock reaches this many seconds since 1970. A manual clock's 1970 is a second
    /// before the start. An entry with it is never served later, and not lost a second earlier, unless the wall clock
    /// is set meanwhile.
    pub fn ttl_until(&self, unix_seconds: u64) -> Ttl {
        self.engine().clock.until(unix_seconds)
    }

    /// The length of a TTL that starts now; `None` if it never ends.
    pub fn ttl_duration(&self, ttl: Ttl) -> Option<Duration> {
        self.engine().clock.ttl_duration(ttl)
    }

    /// The TTL that a number had left when it was counted, before the count gave it another one; `None` if it never
    /// expires.
    pub fn remaining_ttl(&self, number: &Number) -> Option<Duration> {
        let now_ms = self.engine().clock.now_ms();
        number.expiry_seconds.map(|seconds| Duration::from_millis((seconds * 1000).saturating_sub(now_ms)))
    }
}

/// Flash.
impl Cache {
    pub fn has_flash(&self) -> bool {
        self.engine().flash().is_some()
    }

    /// Leaves on flash what the next start must know, and releases its files: from then on keys that only flash has are
    /// absent, and evicted items are lost. The last clone of a cache does this, too; this method is for programs whose
    /// clones live until the process ends and change nothing more: only the deletion log, if there is one, knows of
    /// later changes. Waits for the device, half a minute at most.
    pub fn close_flash(&self) {
        self.engine().flash_shutdown.close(false);
    }

    /// Counters and gauges of flash; `None` without flash.
    pub fn flash_stats(&self) -> Option<FlashStats> {
        let engine = self.engine();
        engine.flash().map(|flash| flash.stats(engine.default_pool.store.unknown_tokens()))
    }

    /// The health of the flash device, as of the last second; `None` without flash.
    pub fn flash_health(&self) -> Option<Health> {
        self.engine().flash().map(|flash| flash.tier.health())
    }

    /// Asks the drives below flash for their wear and their writes; `None` where they do not tell: without flash, on
    /// anything but NVMe drives, and without the right to ask (`CAP_SYS_ADMIN`). Waits for them, for seconds at most.
    pub fn ask_flash_drives(&self) -> Option<DriveLog> {
        self.engine().flash()?.tier.read_drive_logs()
    }

    /// Which values are written to flash, and when; `None` without flash.
    pub fn flash_limits(&self) -> Option<FlashLimits> {
        self.engine().flash().map(|flash| {
            let Limits { min_ttl_seconds, min_value_bytes } = flash.tier.limits();
            FlashLimits { min_value_bytes, min_ttl_seconds, max_idle_seconds: flash.idle.max_seconds() }
        })
    }

    /// Sets the policy that chooses the hits on flash to promote. Without flash it does nothing.
    pub fn set_flash_promotion(&self, promotion: FlashPromotion) {
        if let Some(flash) = self.engine().flash() {
            flash.promotion.set(promotion);
        }
    }

    /// Sets the limits of the values that are written to flash. Without flash it does nothing.
    pub fn set_flash_limits(&self, limits: FlashLimits) {
        let FlashLimits { min_value_bytes, min_ttl_seconds, max_idle_seconds } = limits;
        if let Some(flash) = self.engine().flash() {
            flash.tier.set_limits(Limits { min_ttl_seconds, min_value_bytes });
            flash.idle.set(max_idle_seconds);
        }
    }
}
