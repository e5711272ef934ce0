//! A stop that leaves all that the next start must know.

use super::Tier;
use super::superblock::{RunState, Superblock};
use crate::Error;
use crate::deletion_log::DeletionLog;
use crate::device::{self, BLOCK};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Tier {
    /// Writes what only RAM knows, so that the next start has all objects, also after one of the machine. Waits for the
    /// device, which must still be served; not for long if that does nothing. From the call on nothing is inserted; of
    /// what is removed later only the log of removals knows. `now` is in seconds since 1970. Does nothing where nothing
    /// is kept.
    ///
    /// # Errors
    ///
    /// What the device did. The next start is then one after a crash.
    pub fn close(self: &Arc<Self>, now: u32) -> Result<(), Error> {
        self.is_closed.store(true, Relaxed);
        // While a flush is to come, there is nothing that a start should find.
        let Some(area) = self.checkpoint.as_ref().filter(|_| !self.flush_is_pending.load(Relaxed)) else {
            return Ok(());
        };
        let now = self.observe_time(now);
        self.inserting.iter().for_each(|one| drop(one.lock().unwrap()));
        if !self.capacity_split.wait_until_idle() {
            return Err(Error::Sync { source: io::ErrorKind::TimedOut.into() });
        }
        // A block is left for the other one, even if that does not fit.
        let large_checkpoint = self.small.checkpoint(area.start..area.end - BLOCK as u64, now)?;
        self.large.checkpoint(large_checkpoint..area.end, now)?;
        self.pools.write_last(&*self.device)?;
        let stopped = self.removals.as_ref().map_or(Ok(false), DeletionLog::stop);
        let is_logged = stopped.map_err(|source| Error::Sync { source })?;
        let superblock = self.superblock.lock().unwrap();
        let clean = Superblock { state: RunState::Clean { large_checkpoint, is_logged }, latest: now, ..*superblock };
        device::write(&*self.device, 0, clean.encode())?;
        self.device.sync()
    }

    /// Writes nothing more, and lets others open what it has open: something may hold the tier for longer. For a tier
    /// that was closed, and a device that has stopped.
    pub fn release(&self) {
        self.removals.iter().for_each(DeletionLog::close);
        self.device.unlock();
    }

    /// When the log of removals has broken and could not be marked, the superblock is to say that no crash is recovered
    /// from.
    pub(super) fn check_deletion_log(self: &Arc<Self>) {
        let lacks_mark = self.removals.as_ref().is_some_and(DeletionLog::lacks_mark);
        if lacks_mark && !self.is_unlogged.load(Relaxed) {
            let mut superblock = self.superblock.lock().unwrap();
            superblock.state = RunState::Running { boot: 0 };
            self.is_unlogged.store(self.submit_superblock(&superblock), Relaxed);
        }
    }
}
