//! What a connection waits for: reads of flash, and memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ebbtide::{Cache, Fetch, Fetched, Patience, WaitReason, WhenBusy};

use crate::inbox::{ConnectionKey, Inbox};
use crate::sync::lock;

/// The reads and the memory that a connection waits for, and its completed reads.
#[derive(Default)]
pub struct ConnectionWait {
    pub(crate) group: Option<Arc<ReadGroup>>,
    /// True when the reads are for a delete, which can proceed without them.
    pub(crate) is_delete: bool,
    pub(crate) completed: Vec<CompletedRead>,
    /// Consecutive reads whose result was not current.
    pub(crate) attempts: u32,
    /// The wait of the command for memory, if it has one.
    pub(crate) memory: Option<MemoryWait>,
    /// The command waits for memory and is executed again later.
    pub(crate) waits_for_memory: bool,
}

pub(crate) struct CompletedRead {
    pub(crate) key: Box<[u8]>,
    pub(crate) fetched: Fetched,
}

/// Reads of flash that a connection waits for together.
pub(crate) struct ReadGroup {
    /// Reads that have not completed, plus one while reads are added.
    unfinished: AtomicUsize,
    completed: Mutex<Vec<CompletedRead>>,
    inbox: Arc<Inbox>,
    connection_key: ConnectionKey,
}

impl ConnectionWait {
    /// True while the connection is parked.
    pub fn is_parked(&self) -> bool {
        self.group.is_some() || self.waits_for_memory
    }

    /// Ends the wait of a delete, whose read may hang; the delete is executed again. True if a delete waited.
    pub fn abandon_delete_wait(&mut self) -> bool {
        let gives_up = self.is_delete && self.group.is_some();
        if gives_up {
            self.group = None;
        }
        gives_up
    }

    /// Collects completed reads. False while a read is pending or the command waits for memory.
    pub fn take_completed(&mut self) -> bool {
        let Some(group) = &self.group else { return !self.waits_for_memory };
        // Acquire pairs with the AcqRel in `ReadGroup::end`.
        if group.unfinished.load(Ordering::Acquire) > 0 {
            return false;
        }
        self.completed.append(&mut lock(&group.completed));
        self.group = None;
        true
    }

    /// Drops completed reads, unless a read is pending. A connection that waits for its client must not hold memory
    /// that reads of other connections need; a dropped value is read again.
    pub fn release_completed(&mut self) {
        if self.take_completed() {
            self.completed.clear();
        }
    }

    fn position(&self, key: &[u8]) -> Option<usize> {
        self.completed.iter().position(|completed| *completed.key == *key)
    }

    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.position(key).is_some()
    }

    pub(crate) fn take(&mut self, key: &[u8]) -> Option<CompletedRead> {
        self.position(key).map(|position| self.completed.swap_remove(position))
    }
}

impl ReadGroup {
    /// An empty group of the connection, which counts as unfinished until [`ReadGroup::end`].
    pub(crate) fn new(inbox: Arc<Inbox>, connection_key: ConnectionKey) -> Self {
        Self { unfinished: AtomicUsize::new(1), completed: Mutex::default(), inbox, connection_key }
    }

    /// Starts a read and adds it to the group.
    pub(crate) fn add(self: &Arc<Self>, cache: &Cache, key: &[u8], when_busy: WhenBusy) -> Fetch {
        self.unfinished.fetch_add(1, Ordering::Relaxed);
        let (group, owned_key) = (Arc::clone(self), Box::<[u8]>::from(key));
        let on_read = Box::new(move |fetched| {
            lock(&group.completed).push(CompletedRead { key: owned_key, fetched });
            if group.end() {
                group.inbox.notify_reads_done(group.connection_key);
            }
        });
        let fetch = cache.fetch(key, when_busy, on_read);
        if matches!(fetch, Fetch::Absent | Fetch::Refused) {
            self.unfinished.fetch_sub(1, Ordering::Relaxed);
        }
        fetch
    }

    /// Counts one read as completed, or ends the adding of reads. True for the last one.
    pub(crate) fn end(&self) -> bool {
        self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// Parks a connection until it is dropped, for work other than reads of keys.
pub struct WakeOnDrop(pub(crate) Arc<ReadGroup>);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        if self.0.end() {
            self.0.inbox.notify_reads_done(self.0.connection_key);
        }
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
        Self { started: now, reason, deadline: now + limit, patience: Patience::Whole }
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
        self.completed.clear();
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
        assert_eq!(wait.patience_at(started + ms(49)), Patience::Whole);
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
        assert_eq!(soon.patience_at(started + ms(900)), Patience::Whole);
    }
}
