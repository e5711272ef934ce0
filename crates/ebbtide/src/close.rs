//! The end of a cache that is to come back.
//!
//! ```text
//! with a memory file      flash: checkpoint       ->  memory: image in the file
//! with flash alone        memory: drained to flash ->  flash: checkpoint
//! ```

use crate::cache::Cache;
use crate::error::Error;
use crate::flash::drain::FlashDrained;
use crate::memory_file::{MemorySaved, MemoryStart};
use crate::memory_monitor::MemoryMonitorStats;
use std::sync::atomic::Ordering;

/// What [`Cache::close`] kept of the objects in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloseReport {
    /// With a memory file.
    pub saved: Option<MemorySaved>,
    /// With flash and without a memory file.
    pub drained: Option<FlashDrained>,
}

impl Cache {
    /// Ends the cache so that the next one goes on with what it has: writes memory to the memory file
    /// (`CacheBuilder::memory_file`) if there is one, else to flash (`CacheBuilder::flash_drain`),
    /// and leaves on flash what its next start must know.
    ///
    /// No other thread may change the cache from here on. Hits and handles keep their bytes. A second call does
    /// nothing. Takes as long as the file system does for the memory in use, and waits for flash, half a minute at
    /// most, beside the time of the drain.
    ///
    /// # Errors
    /// `Configuration` names the memory file and why it could not be written: the next start is cold then.
    pub fn close(&self) -> Result<CloseReport, Error> {
        let engine = self.engine();
        let mut report = CloseReport::default();
        if engine.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(report);
        }
        // Maintenance ends when it sees the flag under this lock.
        let _maintaining = engine.maintaining.lock().expect("no holder of the lock panics");
        let pool = &engine.default_pool;
        let flash = engine.flash().filter(|flash| engine.memory_file.is_none() && !flash.drain_limit.is_zero());
        if let Some(flash) = flash {
            pool.store.finish_jobs(&pool.participant(), engine.clock.tick());
            report.drained = Some(flash.drain(&pool.store, &pool.participant(), || engine.clock.tick()));
        }
        let flash_run = engine.flash().map_or(0, |flash| flash.tier.run_number());
        self.close_flash();
        if let Some(file) = &engine.memory_file {
            let pools = engine.pools.present();
            report.saved = file.save(&pools, &pool.participant(), &engine.clock, flash_run)?;
        }
        Ok(report)
    }

    /// How the memory began, for caches with a memory file.
    pub fn memory_start(&self) -> Option<&MemoryStart> {
        self.engine().memory_file.as_ref().map(|file| &file.start)
    }

    /// What the memory monitor saw and did; `None` without one.
    pub fn memory_monitor(&self) -> Option<MemoryMonitorStats> {
        self.engine().memory_monitor.as_ref().map(|monitor| monitor.stats())
    }
}
