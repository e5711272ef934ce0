//! The end of a cache that is to come back.

use crate::cache::Cache;
use crate::error::Error;
use crate::memory_file::{MemorySaved, MemoryStart};
use crate::memory_monitor::MemoryMonitorStats;
use std::sync::atomic::Ordering;

impl Cache {
    /// Ends the cache so that the next one goes on with what it has: leaves on flash what its next start must know, and
    /// writes memory to the memory file (`CacheBuilder::memory_file`), if there is one.
    ///
    /// No other thread may change the cache from here on. Hits and handles keep their bytes. A second call does
    /// nothing. Takes as long as the file system does for the memory in use, and waits for flash, half a minute at
    /// most.
    ///
    /// # Errors
    /// `Configuration` names the memory file and why it could not be written: the next start is cold then.
    pub fn close(&self) -> Result<Option<MemorySaved>, Error> {
        let engine = self.engine();
        if engine.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(None);
        }
        // Maintenance ends when it sees the flag under this lock.
        let _maintaining = engine.maintaining.lock().expect("no holder of the lock panics");
        let flash_run = engine.flash().map_or(0, |flash| flash.tier.run_number());
        self.close_flash();
        let Some(file) = &engine.memory_file else { return Ok(None) };
        let pool = &engine.default_pool;
        file.save(&pool.store, &pool.participant(), &engine.clock, flash_run)
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
