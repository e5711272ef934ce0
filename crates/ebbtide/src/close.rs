//! The end of a cache that will be started again.
//!
//! ```text
//! changes are refused, those in progress end -> the maintenance ends
//!     -> with a memory file    flash: checkpoint        ->  memory: image in the file
//!     -> with flash alone      memory: drained to flash ->  flash: checkpoint
//! ```
//! A change in progress is waited for, and is saved. A later one is refused as `Closed`, and changes nothing. Reads and
//! handles continue.

use crate::builder::CacheBuilder;
use crate::cache::Cache;
use crate::engine::Engine;
use crate::error::Error;
use crate::flash::drain::{FlashDrained, PoolDrain};
use crate::flash::threads::MAX_SHUTDOWN;
use crate::memory_file::{MemoryFileMode, MemorySaved, MemoryStart};
use crate::memory_monitor::MemoryMonitorStats;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// How long a stop waits for changes in progress: longer than any change waits for memory.
const MAX_CHANGE_WAIT: Duration = Duration::from_secs(30);
const CHANGE_STEP: Duration = Duration::from_micros(100);

/// Objects in memory that [`Cache::close`] kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloseReport {
    /// With a memory file.
    pub saved: Option<MemorySaved>,
    /// With flash and without a memory file.
    pub drained: Option<FlashDrained>,
}

impl Cache {
    /// Ends the cache so that the next one continues with its entries: writes memory to the memory file
    /// (`CacheBuilder::memory_file`) if there is one, else to flash (`CacheBuilder::flash_drain`), and leaves on flash
    /// the state that its next start needs.
    ///
    /// Other threads may use the cache meanwhile: their writes are done and kept, or refused as `Closed` (a delete
    /// without a token answers that the key is absent, a flush does nothing). Hits and handles keep their bytes. The
    /// memory file is unlocked at the end; one that is mapped (see [`MemoryFileMode`]) when the last handle is dropped.
    /// A second call does nothing, nor does one in a forked process. `CacheBuilder::close_limit` is the longest time.
    ///
    /// # Errors
    /// `Configuration` names the memory file and why it could not be written: the next start is cold then.
    pub fn close(&self) -> Result<CloseReport, Error> {
        let report = self.close_engine();
        self.engine().tell_all_removals();
        report
    }

    fn close_engine(&self) -> Result<CloseReport, Error> {
        let engine = self.engine();
        let mut report = CloseReport::default();
        if engine.is_inherited() || engine.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(report);
        }
        let is_quiet = engine.stop_changes();
        // Maintenance ends when it sees the flag under this lock.
        let _maintaining = engine.maintaining.lock().expect("no holder of the lock panics");
        let pool = &engine.default_pool;
        if engine.memory_file.is_none() && is_quiet {
            report.drained = engine.drain();
        }
        self.close_flash();
        if let Some(file) = &engine.memory_file {
            if !is_quiet {
                return Err(file.give_up(&format!("a change of the cache has not ended for {MAX_CHANGE_WAIT:?}")));
            }
            let pools = engine.pools.quiet();
            let memory = (&*engine.parts.memory, &pool.participant());
            report.saved = file.save(&pools, memory, &engine.clock)?;
        }
        Ok(report)
    }

    /// How the memory began, for caches with a memory file.
    pub fn memory_start(&self) -> Option<&MemoryStart> {
        self.engine().memory_file.as_ref().map(|file| &file.start)
    }

    /// How often the file system of a mapped memory file had no memory for a segment. The cache goes on with what it
    /// has, and tries again after [`Cache::resize`].
    pub fn refused_by_memory_file(&self) -> u64 {
        self.engine().parts.memory.refused_by_file()
    }

    /// How the cache uses its memory file; `None` without one.
    pub fn memory_file_mode(&self) -> Option<MemoryFileMode> {
        self.engine().memory_file.as_ref().map(|file| file.mode)
    }

    /// Readings and actions of the memory monitor; `None` without one.
    pub fn memory_monitor(&self) -> Option<MemoryMonitorStats> {
        self.engine().memory_monitor.as_ref().map(|monitor| monitor.stats())
    }
}

impl CacheBuilder {
    /// The longest time that [`Cache::close`] takes, so that a service manager waits for it.
    pub fn close_limit(&self) -> Duration {
        let save = self.save_time().unwrap_or(Duration::ZERO);
        let flash = if self.has_flash() { MAX_SHUTDOWN } else { Duration::ZERO };
        let drains = self.has_flash() && save.is_zero();
        MAX_CHANGE_WAIT + save + flash + if drains { self.drain_limit() } else { Duration::ZERO }
    }
}

impl Engine {
    /// Writes the memory of all pools to flash; `None` without flash.
    fn drain(&self) -> Option<FlashDrained> {
        let tier = self.flash().filter(|flash| !flash.drain_limit.is_zero())?;
        let (pools, participant) = (self.pools.present(), self.default_pool.participant());
        let mut drains: Vec<PoolDrain<'_>> = Vec::new();
        for pool in &pools {
            pool.store.finish_jobs(&participant, self.clock.tick());
            drains.extend(pool.flash.as_ref().map(|flash| PoolDrain::new(flash, &pool.store)));
        }
        let drained = tier.drain(&mut drains, &participant, tier.drain_limit, || self.clock.tick());
        let compact = self.pools.quiet().compact.iter().map(|pool| pool.stats().items).sum();
        Some(FlashDrained { compact, ..drained })
    }

    /// Refuses changes, and waits for those in progress. False if one has not ended in time.
    fn stop_changes(&self) -> bool {
        let mut pools = self.pools.others();
        pools.push(self.default_pool.clone());
        pools.iter().for_each(|pool| pool.store.refuse_changes());
        let deadline = Instant::now() + MAX_CHANGE_WAIT;
        while pools.iter().any(|pool| pool.store.has_changes()) {
            if Instant::now() > deadline {
                return false;
            }
            thread::sleep(CHANGE_STEP);
        }
        true
    }
}
