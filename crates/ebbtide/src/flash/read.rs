//! The state machine of reads from flash, for callers that wait and for callers that do not.
//!
//! ```text
//!            +--------- decide: none, the value is not the key's any more; at most MAX_READS_PER_KEY times
//!            v                                              |
//! probe -> start reads of the first key and of keys behind -> wait -> decide the first key's read -> answer
//!                                                             |
//!                                                             +-> a caller that does not wait is woken and calls again
//! ```
//! [`FlashReads`] is the state between two calls. Reads that have ended keep their values, and with them the permits of
//! `pending_reads.rs`, until the caller comes to their keys or drops them. A read that queues is waited for without any
//! held value: so callers never wait for each other.

use crate::flash::absence_ticket::AbsenceTicket;

use super::pending_reads::{FlashRead, PendingReads, Start, WhenBusy};
use ebbtide_flash::device::BlockingRing;
use ebbtide_flash::{ByteRange, FlashHash, Key, Probe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Reads of one key by one operation. Flash moves objects, and others change them: after this many changed values
/// memory decides.
const MAX_READS_PER_KEY: u32 = 4;
/// A thread that waits for the device asks this often whether the device has failed.
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Called once when all reads of a [`FlashReads`] have ended, on the thread that ends the last. It must not block.
pub type ReadWake = Box<dyn Fn() + Send + Sync>;

/// A key that flash may have: its hash on flash and where it is, from one look at the index of flash.
#[derive(Clone, Copy, Debug)]
pub struct FlashProbe {
    pub(crate) hash: FlashHash,
    /// The number of the pool's incarnation.
    pub(crate) pool: u16,
    /// `None`: a read of the key has ended already.
    pub(crate) place: Option<Probe>,
}

/// The reads from flash of one caller.
#[derive(Default)]
pub struct FlashReads {
    group: Option<Arc<ReadGroup>>,
    pub(crate) ended: Vec<EndedRead>,
    /// Of the key that is searched for a change.
    pub(crate) ticket: Option<AbsenceTicket>,
    /// Reads of the first key that found a value which was not the key's any more.
    attempts: u32,
}

/// A read that has ended.
pub(crate) struct EndedRead {
    key: Box<[u8]>,
    hash: FlashHash,
    pool: u16,
    pub read: FlashRead,
    /// Set when the promotion policy was asked.
    pub promotion: Promotion,
}

impl EndedRead {
    /// A pool that was flushed since has another hash.
    fn is_of(&self, key: Key<'_>) -> bool {
        (self.hash, self.pool) == (key.hash, key.pool) && *self.key == *key.bytes
    }
}

/// Result of a get's read: whether its value was promoted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Promotion {
    #[default]
    Undecided,
    Promoted,
    Served,
}

/// Reads that a caller waits for together.
struct ReadGroup {
    /// Reads that have not ended, and one more while reads are added.
    unfinished: AtomicUsize,
    ended: Mutex<Vec<EndedRead>>,
    wake: ReadWake,
}

/// How a caller waits for a group of reads: it blocks, or it is woken.
pub(crate) trait ReadWaiter {
    /// Reads are about to start.
    fn prepare(&mut self) -> ReadWake;

    /// Whether the reads have ended; else the caller goes away and is woken.
    fn wait(&mut self, reads: &FlashReads) -> bool;
}

/// A caller that is woken.
pub(crate) struct Woken<F>(pub F);

impl<F: FnMut() -> ReadWake> ReadWaiter for Woken<F> {
    fn prepare(&mut self) -> ReadWake {
        (self.0)()
    }

    fn wait(&mut self, reads: &FlashReads) -> bool {
        !reads.is_pending()
    }
}

/// A caller that blocks until its reads have ended or the device has failed.
pub(crate) struct Blocking<'a> {
    pending: &'a PendingReads,
    now: u32,
    /// The ring of this thread's transfers, and the signal of the last read.
    waits: Option<(Option<BlockingRing>, Receiver<()>)>,
}

impl<'a> Blocking<'a> {
    /// # Panics
    /// If the thread completes the transfers of its own ring: it would wait for itself.
    pub fn new(pending: &'a PendingReads, now: u32) -> Self {
        assert!(
            !pending.tier.has_thread_ring(),
            "a thread with a ring would wait for itself: use Cache::without_waiting"
        );
        Self { pending, now, waits: None }
    }
}

impl ReadWaiter for Blocking<'_> {
    fn prepare(&mut self) -> ReadWake {
        let (sender, receiver) = mpsc::channel();
        self.waits = Some((self.pending.tier.blocking_ring(), receiver));
        // The receiver is gone if this thread has panicked.
        Box::new(move || _ = sender.send(()))
    }

    fn wait(&mut self, reads: &FlashReads) -> bool {
        let Some((mut ring, receiver)) = self.waits.take() else { return true };
        let started = Instant::now();
        // The thread that judges the device otherwise may wait for it, too.
        let has_failed = || {
            let waited = started.elapsed().as_secs() as u32;
            waited > 0 && self.pending.tier.has_failed(self.now.saturating_add(waited))
        };
        // This thread's transfers first, and all of them: other threads may wait for them.
        while let Some(moving) = ring.as_mut().filter(|ring| !ring.is_empty()) {
            if !moving.wait(HEALTH_CHECK_INTERVAL) && has_failed() {
                self.pending.cancel();
                ring = None;
            }
        }
        // A decision may wait for transfers of maintenance, which must not use a ring that no thread turns.
        drop(ring);
        while reads.is_pending() {
            match receiver.recv_timeout(HEALTH_CHECK_INTERVAL) {
                Err(RecvTimeoutError::Timeout) if has_failed() => self.pending.cancel(),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        true
    }
}

/// The keys of a run of lookups, from the first that waits for flash on.
pub(crate) struct ReadKeys<'a> {
    pub first: Key<'a>,
    pub probe: FlashProbe,
    /// The range of the first key's value that is read; `None`: all of it.
    pub range: Option<ByteRange>,
    /// Keys behind, of any pools, which are read ahead.
    pub others: &'a [&'a [u8]],
}

/// A key as flash knows it, if it is to be read ahead: memory does not have it.
pub(crate) type KeyAhead<'f> = dyn for<'k> Fn(&'k [u8]) -> Option<Key<'k>> + 'f;

impl FlashReads {
    /// Whether reads have not ended.
    pub fn is_pending(&self) -> bool {
        // Acquire pairs with the AcqRel in `ReadGroup::end`.
        self.group.as_ref().is_some_and(|group| group.unfinished.load(Ordering::Acquire) > 0)
    }

    /// Whether reads were started and not yet collected.
    pub fn is_waiting(&self) -> bool {
        self.group.is_some()
    }

    /// Takes over the values of reads that have ended. False while a read has not.
    pub fn collect(&mut self) -> bool {
        if self.is_pending() {
            return false;
        }
        if let Some(group) = self.group.take() {
            self.ended.append(&mut group.ended.lock().expect("nothing panics under this lock"));
        }
        true
    }

    /// Drops all held values, unless a read has not ended. A key that is still needed is read again.
    pub fn release(&mut self) {
        if self.collect() {
            self.ended.clear();
            self.ticket = None;
        }
    }

    /// Gives reads up that may never end.
    pub fn abandon(&mut self) {
        self.group = None;
        self.ticket = None;
    }

    /// Values that are held.
    pub fn found(&self) -> usize {
        self.ended.iter().filter(|ended| ended.read.value().is_some()).count()
    }

    /// Whether a read of this key has ended.
    pub(crate) fn has_ended(&self, key: Key<'_>) -> bool {
        self.ended.iter().any(|ended| ended.is_of(key))
    }

    /// Drops the read of this key that has found nothing.
    pub(crate) fn forget_miss(&mut self, key: Key<'_>) {
        self.ended.retain(|ended| !ended.is_of(key) || ended.read.value().is_some());
    }

    fn take(&mut self, key: Key<'_>) -> Option<EndedRead> {
        let position = self.ended.iter().position(|ended| ended.is_of(key))?;
        Some(self.ended.swap_remove(position))
    }

    /// Reads the first key until `decide` has an answer. `None`: the waiter goes away, and calls again when it is
    /// woken.
    ///
    /// `decide` gets the read of the first key, or none if flash does not have the key; and whether that was the last
    /// attempt, which must be answered. The loop ends, because each round is a started read and their number is
    /// bounded.
    pub(crate) fn run<T>(
        &mut self,
        pending: &Arc<PendingReads>,
        keys: &ReadKeys<'_>,
        now: u32,
        ahead: &KeyAhead<'_>,
        waiter: &mut dyn ReadWaiter,
        mut decide: impl FnMut(&mut Vec<EndedRead>, Option<EndedRead>, bool) -> Option<T>,
    ) -> Option<T> {
        let mut place = keys.probe.place;
        loop {
            if !waiter.wait(self) {
                return None;
            }
            self.collect();
            if let Some(ended) = self.take(keys.first) {
                self.attempts += 1;
                let decided = decide(&mut self.ended, Some(ended), self.attempts == MAX_READS_PER_KEY);
                if decided.is_some() {
                    self.attempts = 0;
                    return decided;
                }
            }
            // A second read needs another look, also by a caller that comes again: the place has another version.
            let known = place.take().filter(|_| self.attempts == 0);
            let Some(first_place) = known.or_else(|| pending.tier.probe(keys.first.hash)) else {
                self.attempts = 0;
                return decide(&mut self.ended, None, true);
            };
            self.start(pending, keys, first_place, now, ahead, waiter.prepare());
        }
    }

    /// Starts reads of the first key, and of the keys behind that memory does not have while permits are free.
    pub(crate) fn start(
        &mut self,
        pending: &Arc<PendingReads>,
        keys: &ReadKeys<'_>,
        first_place: Probe,
        now: u32,
        ahead: &KeyAhead<'_>,
        wake: ReadWake,
    ) {
        let group = Arc::new(ReadGroup { unfinished: AtomicUsize::new(1), ended: Mutex::default(), wake });
        match group.add(pending, keys.first, keys.range, first_place, now, WhenBusy::Queue) {
            Start::Queued => self.ended.clear(),
            Start::Reading => {
                for key in keys.others.iter().filter_map(|key| ahead(key)) {
                    let place = pending.tier.probe(key.hash).filter(|_| !self.has_ended(key));
                    let Some(place) = place else { continue };
                    if group.add(pending, key, None, place, now, WhenBusy::Refuse) == Start::Refused {
                        break;
                    }
                }
            }
            Start::Refused => unreachable!("a read that may queue starts or queues"),
        }
        group.end();
        self.group = Some(group);
    }
}

impl ReadGroup {
    fn add(
        self: &Arc<Self>,
        pending: &Arc<PendingReads>,
        key: Key<'_>,
        range: Option<ByteRange>,
        place: Probe,
        now: u32,
        when_busy: WhenBusy,
    ) -> Start {
        self.unfinished.fetch_add(1, Ordering::Relaxed);
        let (group, their_key, hash, pool) = (Arc::clone(self), Box::<[u8]>::from(key.bytes), key.hash, key.pool);
        let on_read = Box::new(move |read| {
            let ended = EndedRead { key: their_key, hash, pool, read, promotion: Promotion::default() };
            group.ended.lock().expect("nothing panics under this lock").push(ended);
            if group.end() {
                (group.wake)();
            }
        });
        let start = pending.start(key, range, place, now, when_busy, on_read);
        if start == Start::Refused {
            self.unfinished.fetch_sub(1, Ordering::Relaxed);
        }
        start
    }

    /// A read has ended, or no more are added. Whether that was the last.
    fn end(&self) -> bool {
        self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1
    }
}
