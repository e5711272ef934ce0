//! A stop, which writes the state that the next start needs.

use super::Tier;
use super::superblock::{RunState, Superblock};
use super::token_section::{self, PoolTokens};
use crate::Error;
use crate::deletion_log::DeletionLog;
use crate::device::{self, BLOCK};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Tier {
    /// Writes the state that is only in RAM, so that the next start finds all objects, also after a restart of the
    /// machine. Waits for the device, which must still be served; the wait is short if the device does nothing. From
    /// the call on every insert is dropped, and later removals are only in the deletion log. `now` is in seconds
    /// since 1970. Does nothing if nothing is kept for another start.
    ///
    /// # Errors
    ///
    /// The error of the device. The next start is then one after a crash.
    pub fn close(self: &Arc<Self>, now: u32) -> Result<(), Error> {
        self.close_with_tokens(now, Vec::new)
    }

    /// As [`Tier::close`], with the CAS tokens of pools for the next start ([`Tier::take_tokens`]). `tokens` is called
    /// when no insert can follow: a token that it returns is of the object that flash holds, or of a key that flash
    /// does not hold.
    ///
    /// # Errors
    ///
    /// As [`Tier::close`].
    pub fn close_with_tokens(
        self: &Arc<Self>,
        now: u32,
        tokens: impl FnOnce() -> Vec<PoolTokens>,
    ) -> Result<(), Error> {
        self.is_closed.store(true, Relaxed);
        // While a flush is pending, a start must find nothing.
        let Some(area) = self.checkpoint.as_ref().filter(|_| !self.flush_is_pending.load(Relaxed)) else {
            return Ok(());
        };
        let now = self.observe_time(now);
        self.inserting.iter().for_each(|one| drop(one.lock().unwrap()));
        if !self.capacity_split.wait_until_idle() {
            return Err(Error::Sync { source: io::ErrorKind::TimedOut.into() });
        }
        // One block stays free for the checkpoint of large objects, even if that does not fit.
        let large_checkpoint = self.small.checkpoint(area.start..area.end - BLOCK as u64, now)?;
        let large_bytes = self.large.checkpoint(large_checkpoint..area.end, now)?;
        let free = large_checkpoint + large_bytes..area.end;
        token_section::write(&*self.device, &free, self.runs().present, &tokens())?;
        self.pools.write_last(&*self.device)?;
        let stopped = self.deletion_log.as_ref().map_or(Ok(false), DeletionLog::stop);
        let is_logged = stopped.map_err(|source| Error::Sync { source })?;
        let superblock = self.superblock.lock().unwrap();
        let clean = Superblock { state: RunState::Clean { large_checkpoint, is_logged }, latest: now, ..*superblock };
        device::write(&*self.device, 0, clean.encode())?;
        self.device.sync()
    }

    /// The CAS tokens that the last stop kept, once; none if the start was not one after a stop.
    pub fn take_tokens(&self) -> Vec<PoolTokens> {
        std::mem::take(&mut *self.tokens.lock().unwrap())
    }

    /// Stops writing and unlocks all files, so that others can open them while references to the tier remain. Only for
    /// a tier that was closed and a device that has stopped.
    pub fn release(&self) {
        self.deletion_log.iter().for_each(DeletionLog::close);
        self.device.unlock();
    }

    /// If the deletion log broke and could not be marked, submits a superblock that forbids recovery from a crash.
    pub(super) fn check_deletion_log(self: &Arc<Self>) {
        let lacks_mark = self.deletion_log.as_ref().is_some_and(DeletionLog::lacks_mark);
        if lacks_mark && !self.is_unlogged.load(Relaxed) {
            let mut superblock = self.superblock.lock().unwrap();
            superblock.state = RunState::Running { boot: 0 };
            self.is_unlogged.store(self.submit_superblock(&superblock), Relaxed);
        }
    }
}
