//! Waits of a connection: for reads of flash, and for memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ebbtide::memcached::{FlashReads, Patience, WaitReason};

use crate::inbox::{ConnectionKey, Inbox};

/// The reads and the memory that a connection waits for, and the values read for it.
#[derive(Default)]
pub struct ConnectionWait {
    pub(crate) reads: FlashReads,
    /// True when the reads are for a delete, which can proceed without them.
    pub(crate) is_delete: bool,
    /// Work of another thread.
    task: Option<Arc<Task>>,
    /// The wait of the command for memory, if it has one.
    pub(crate) memory: Option<MemoryWait>,
    /// The command waits for memory and is executed again later.
    pub(crate) waits_for_memory: bool,
}

/// Work of another thread for a parked connection.
struct Task {
    is_done: AtomicBool,
    inbox: Arc<Inbox>,
    connection_key: ConnectionKey,
}

/// Parks a connection until it is dropped.
pub struct WakeOnDrop(Arc<Task>);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `ConnectionWait::take_completed`.
        self.0.is_done.store(true, Ordering::Release);
        self.0.inbox.notify_reads_done(self.0.connection_key);
    }
}

impl ConnectionWait {
    /// Parks the connection until the result is dropped, for work other than reads of keys.
    pub fn park_for_task(&mut self, inbox: Arc<Inbox>, connection_key: ConnectionKey) -> WakeOnDrop {
        let task = Arc::new(Task { is_done: AtomicBool::new(false), inbox, connection_key });
        self.reads.release();
        self.is_delete = false;
        self.task = Some(Arc::clone(&task));
        WakeOnDrop(task)
    }

    /// True while the connection is parked.
    pub fn is_parked(&self) -> bool {
        self.reads.is_waiting() || self.task.is_some() || self.waits_for_memory
    }

    /// Ends the wait of a delete, whose read may hang; the delete is executed again. True if a delete waited.
    pub fn abandon_delete_wait(&mut self) -> bool {
        let abandons = self.is_delete && self.reads.is_waiting();
        if abandons {
            self.reads.abandon();
        }
        abandons
    }

    /// Collects completed reads. False while a read or a task is pending or the command waits for memory.
    pub fn take_completed(&mut self) -> bool {
        // Acquire pairs with the Release in `WakeOnDrop::drop`.
        self.task = self.task.take().filter(|task| !task.is_done.load(Ordering::Acquire));
        self.reads.collect() && self.task.is_none() && !self.waits_for_memory
    }

    /// Drops completed reads, unless a read is pending. A connection that waits for its client must not hold memory
    /// that reads of other connections need; a dropped value is read again.
    pub fn release_completed(&mut self) {
        self.reads.release();
    }
}

/// Longest wait of a command, even when the reason of its wait changes: then it is refused.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The wait of a command for memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryWait {
    started: Instant,
    reason: WaitReason,
    /// The time at which its patience changes.
    deadline: Instant,
    patience: Patience,
}

impl MemoryWait {
    fn start(reason: WaitReason, limit: Duration, now: Instant) -> Self {
        Self { started: now, reason, deadline: now + limit, patience: Patience::Again }
    }

    /// The wait after a retry at `now`.
    fn retry_at(self, reason: WaitReason, limit: Duration, now: Instant) -> Self {
        let patience = self.patience_at(now);
        let is_same = (reason, patience) == (self.reason, self.patience);
        let deadline = if is_same { self.deadline } else { (now + limit).min(self.started + WAIT_MAX) };
        Self { started: self.started, reason, deadline, patience }
    }

    fn patience_at(self, now: Instant) -> Patience {
        match now {
            _ if now >= self.started + WAIT_MAX => Patience::Spent,
            _ if now >= self.deadline => self.patience.after(self.reason),
            _ => self.patience,
        }
    }
}

impl ConnectionWait {
    /// Parks the connection until [`ConnectionWait::retry`], and drops its completed reads: reads of other connections
    /// need the memory.
    pub(crate) fn wait_for_memory(&mut self, reason: WaitReason, limit: Duration) {
        self.reads.release();
        let now = Instant::now();
        self.memory = Some(match self.memory {
            Some(wait) => wait.retry_at(reason, limit, now),
            None => MemoryWait::start(reason, limit, now),
        });
        self.waits_for_memory = true;
    }

    /// True while the connection is parked for memory.
    pub fn waits_for_memory(&self) -> bool {
        self.waits_for_memory
    }

    /// Unparks the connection: its command is executed again.
    pub fn retry(&mut self) {
        self.waits_for_memory = false;
    }

    /// Ends the wait: the command has been executed or refused.
    pub fn end_memory_wait(&mut self) {
        self.memory = None;
        self.waits_for_memory = false;
    }

    pub(crate) fn patience(&self) -> Patience {
        self.memory.map_or(Patience::Whole, |wait| wait.patience_at(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wait_ends_by_its_limit() {
        let (started, ms) = (Instant::now(), Duration::from_millis);
        let wait = MemoryWait::start(WaitReason::Demotion, ms(50), started);
        assert_eq!(wait.patience_at(started + ms(49)), Patience::Again);
        assert_eq!(wait.patience_at(started + ms(50)), Patience::WithoutFlash);
        let again = wait.retry_at(WaitReason::Demotion, ms(50), started + ms(30));
        assert_eq!(again.patience_at(started + ms(50)), Patience::WithoutFlash, "a try does not prolong it");
        let evicting = again.retry_at(WaitReason::Eviction, ms(2000), started + ms(60));
        assert_eq!(evicting.patience_at(started + ms(2059)), Patience::WithoutFlash, "flash is waited for no more");
        assert_eq!(evicting.patience_at(started + ms(2060)), Patience::Spent);
        let reasons = [WaitReason::Reader, WaitReason::Eviction].into_iter().cycle();
        let alternating = (1..100).zip(reasons).fold(wait, |wait, (step, reason)| {
            let now = started + ms(step * 1000);
            wait.retry_at(reason, ms(2000), now)
        });
        assert_eq!(alternating.patience_at(started + ms(99_000)), Patience::Spent);
        let soon = (1..10).zip([WaitReason::Reader, WaitReason::Eviction].into_iter().cycle());
        let soon = soon.fold(MemoryWait::start(WaitReason::Held, ms(100), started), |wait, (step, reason)| {
            wait.retry_at(reason, ms(2000), started + ms(step * 90))
        });
        assert_eq!(soon.patience_at(started + ms(900)), Patience::Again);
    }
}
