//! Reads of flash that nobody waits for on the spot.
//!
//! ```text
//! fetch -> same key asked for already? -> its read          (one read serves all who ask meanwhile)
//!       -> room for one more read?     -> under way -----> landed -----> promoted, dropped: room for the next
//!       -> may it queue?               -> queue ---^
//!       -> busy
//! ```
//! Reads under way and values that have landed and are still held are bounded together, in number and in bytes: the device's
//! queue keeps room for the upkeep of flash, and memory is bounded. What is in the queue begins when room is given back: by a
//! read that found nothing, or by whoever drops a value. So nothing is stuck as long as nobody who holds a value waits for
//! something in the queue, which [`WhenBusy`] lets callers avoid.
//!
//! One mutex guards all that. It is a leaf but for the tier's index, which is asked for sizes under it; landings run without it.

use crate::cache::Cache;
use crate::error::Error;
use crate::flash::resolve::Need;
use crate::flash::tier::FlashTier;
use ebbtide_flash::device::ThreadRing;
use ebbtide_flash::{FlashHit, FlashLookup, Key};
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Reads at once: what is left of the device's queue is for the upkeep of flash.
const MAX_READS: usize = 192;
/// The share of the memory of flash that values may take which have landed, or are about to.
const MAX_BYTES_SHARE: u64 = 4;
/// How often whoever waits for the device looks whether it has failed.
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a verification waits for the end of reads that nobody waits for, and how often it looks.
const MAX_QUIET_WAIT: Duration = Duration::from_secs(30);
const QUIET_STEP: Duration = Duration::from_millis(1);

/// Called once with what a fetch found, on whichever thread completes the read, maybe before the fetch returns. It must not
/// block. If it panics, only its own work is lost.
pub type OnRead = Box<dyn FnOnce(Fetched) + Send>;

/// What a fetch does when no more reads may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenBusy {
    /// It begins later. Whoever holds values of other fetches meanwhile must not wait for this one before dropping them.
    Queue,
    /// It is not done.
    Refuse,
}

/// What becomes of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// Flash has no such key. The landing is not called.
    Absent,
    /// The landing is called, or was.
    UnderWay,
    /// As `UnderWay`, after others.
    Queued,
    /// Too much is under way. The landing is not called.
    Refused,
}

/// What a fetch found, for [`Cache::raise`]; by default nothing.
#[derive(Clone, Default)]
pub struct Fetched(Option<Arc<HeldValue>>);

/// A value that was found, with its key.
pub(crate) struct Value {
    pub key: Box<[u8]>,
    pub found: FlashHit,
}

impl Fetched {
    /// Whether flash had the key.
    pub fn is_hit(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn value(&self) -> Option<&Arc<Value>> {
        self.0.as_ref().map(|held| &held.value)
    }
}

/// A value, and the room that it takes.
struct HeldValue {
    value: Arc<Value>,
    _permit: Permit,
}

/// A part of what reads and landed values may take; given back when dropped.
struct Permit {
    bytes: u64,
    is_held: bool,
    flash: Weak<FlashTier>,
}

/// The fetches of a cache.
pub(crate) struct PendingReads {
    max_bytes: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Keys of reads under way, and of the queue.
    waiters: HashMap<Box<[u8]>, Waiters>,
    /// Keys, each with the time in seconds at which it was asked for.
    queue: VecDeque<(Box<[u8]>, u32)>,
    permits: usize,
    permit_bytes: u64,
    held_bytes: u64,
    /// A thread begins what is in the queue, as long as there is room.
    is_starting_queued: bool,
}

/// Who waits for a key.
struct Waiters {
    is_queued: bool,
    callbacks: Vec<OnRead>,
}

impl PendingReads {
    /// For flash that has so much of the memory.
    pub fn new(memory_bytes: u64) -> Self {
        Self { max_bytes: memory_bytes / MAX_BYTES_SHARE, state: Mutex::default() }
    }

    /// What values may take that have landed, or are about to.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Bytes of values that have landed and are held. Those of reads under way are the tier's.
    pub fn held_bytes(&self) -> u64 {
        self.state().held_bytes
    }

    /// Asserts that no read is under way and nothing is held, after what nobody waits for has ended.
    pub fn verify(&self) {
        let deadline = Instant::now() + MAX_QUIET_WAIT;
        while self.state().permits > 0 && Instant::now() < deadline {
            thread::sleep(QUIET_STEP);
        }
        let state = self.state();
        assert_eq!((state.permits, state.permit_bytes), (0, 0), "reads do not end, or values are held");
        assert!(state.waiters.is_empty() && state.queue.is_empty(), "reads are forgotten");
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics under this lock")
    }
}

impl State {
    /// Takes room for a read, if there is some. The only one always fits.
    fn acquire(&mut self, bytes: u64, max_bytes: u64) -> bool {
        let fits = self.permits < MAX_READS && self.permit_bytes + bytes <= max_bytes || self.permits == 0;
        if fits {
            self.permits += 1;
            self.permit_bytes += bytes;
        }
        fits
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(flash) = self.flash.upgrade() else { return };
        let mut state = flash.reads.state();
        state.permits -= 1;
        state.permit_bytes -= self.bytes;
        state.held_bytes -= if self.is_held { self.bytes } else { 0 };
        let is_awaited = !state.queue.is_empty();
        drop(state);
        if is_awaited {
            flash.start_queued();
        }
    }
}

impl FlashTier {
    fn fetch(self: &Arc<Self>, key: &[u8], now: u32, when_busy: WhenBusy, on_read: OnRead) -> Fetch {
        let hash = Key::new(key).hash;
        if !self.tier.could_exist(hash) {
            return Fetch::Absent;
        }
        let bytes = self.tier.bytes_to_read(hash);
        let mut state = self.reads.state();
        match state.waiters.get_mut(key) {
            Some(waiters) if waiters.is_queued && when_busy == WhenBusy::Refuse => return Fetch::Refused,
            Some(waiters) => {
                waiters.callbacks.push(on_read);
                return if waiters.is_queued { Fetch::Queued } else { Fetch::UnderWay };
            }
            None => {}
        }
        let is_queued = !state.queue.is_empty() || !state.acquire(bytes, self.reads.max_bytes);
        if is_queued && when_busy == WhenBusy::Refuse {
            return Fetch::Refused;
        }
        let key = Box::<[u8]>::from(key);
        state.waiters.insert(key.clone(), Waiters { is_queued, callbacks: vec![on_read] });
        if is_queued {
            state.queue.push_back((key, now));
            return Fetch::Queued;
        }
        drop(state);
        self.read(key, now, bytes);
        Fetch::UnderWay
    }

    /// PendingReads the first of these keys, and of the others what there is room for, and calls `each` with the number of every one that
    /// was found. Waits for the device, until it is judged to have failed. Not for threads that serve it.
    pub(crate) fn read_and_wait(self: &Arc<Self>, keys: &[&[u8]], now: u32, mut each: impl FnMut(usize, &Arc<Value>)) {
        assert!(
            !self.tier.has_thread_ring(),
            "a thread with a ring of its own waits for itself: use Cache::without_waiting"
        );
        let mut ring = self.tier.blocking_ring();
        let (sender, receiver) = mpsc::channel();
        for (number, key) in keys.iter().enumerate() {
            let when_busy = if number == 0 { WhenBusy::Queue } else { WhenBusy::Refuse };
            let sender = sender.clone();
            // Nobody waits if this thread has panicked.
            let on_read = Box::new(move |fetched| drop(sender.send((number, fetched))));
            match self.fetch(key, now, when_busy, on_read) {
                Fetch::Absent | Fetch::UnderWay => {}
                Fetch::Queued | Fetch::Refused => break,
            }
        }
        drop(sender);
        let began = Instant::now();
        // Whoever judges the device otherwise may wait for it as well.
        let has_failed = || {
            let waited = began.elapsed().as_secs() as u32;
            waited > 0 && self.tier.has_failed(now.saturating_add(waited))
        };
        // What this thread moves comes first, and all of it: others may wait for it, and `each` for them.
        while let Some(moving) = ring.as_mut().filter(|ring| !ring.is_empty()) {
            if !moving.wait(HEALTH_CHECK_INTERVAL) && has_failed() {
                self.cancel_reads();
                ring = None;
            }
        }
        // Who moves nothing needs no ring.
        drop(ring);
        loop {
            match receiver.recv_timeout(HEALTH_CHECK_INTERVAL) {
                Ok((number, fetched)) => fetched.value().into_iter().for_each(|value| each(number, value)),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) if has_failed() => self.cancel_reads(),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// PendingReads one key; waits for the device as `read_and_wait` does.
    pub(crate) fn read_one(self: &Arc<Self>, key: &[u8], now_ms: u64) -> Option<Arc<Value>> {
        let mut found = None;
        self.read_and_wait(&[key], self.seconds(now_ms), |_, value| found = Some(Arc::clone(value)));
        found
    }

    /// Begins a read for which there is room.
    fn read(self: &Arc<Self>, key: Box<[u8]>, now: u32, bytes: u64) {
        let permit = Permit { bytes, is_held: false, flash: Arc::downgrade(self) };
        let (flash, theirs) = (Arc::clone(self), key.clone());
        let reading = Arc::new(Mutex::new(Some(permit)));
        let permit = Arc::clone(&reading);
        let take =
            |permit: &Mutex<Option<Permit>>| permit.lock().expect("nothing panics here").take().expect("it ends once");
        let finish_read = move |found| flash.finish_read(&theirs, found, take(&permit));
        match self.tier.lookup(Key::new(&key), now, Box::new(finish_read)) {
            FlashLookup::Absent => self.finish_read(&key, None, take(&reading)),
            FlashLookup::FlashHit(found) => self.finish_read(&key, Some(found), take(&reading)),
            FlashLookup::Reading => {}
        }
    }

    fn finish_read(&self, key: &[u8], found: Option<FlashHit>, mut permit: Permit) {
        let waiters = {
            let mut state = self.reads.state();
            if let Some(found) = &found {
                // A value of several parts is larger than what tells of its first one.
                let more = (found.value().len() as u64).saturating_sub(permit.bytes);
                state.permit_bytes += more;
                permit.bytes += more;
                state.held_bytes += permit.bytes;
                permit.is_held = true;
            }
            // Nobody waits any more if the fetch was given up.
            state.waiters.remove(key)
        };
        let value = found.map(|found| Arc::new(Value { key: key.into(), found }));
        let fetched = Fetched(value.map(|value| Arc::new(HeldValue { value, _permit: permit })));
        for on_read in waiters.into_iter().flat_map(|waiters| waiters.callbacks) {
            call(on_read, fetched.clone());
        }
    }

    /// All fetches are misses. What is under way still takes room until it ends.
    #[cold]
    pub(crate) fn cancel_reads(&self) {
        let waiters = {
            let mut state = self.reads.state();
            state.queue.clear();
            std::mem::take(&mut state.waiters)
        };
        for on_read in waiters.into_values().flat_map(|waiters| waiters.callbacks) {
            call(on_read, Fetched(None));
        }
    }

    /// Begins what is in the queue, as far as there is room. One thread does that: what ends at once makes room for the next.
    #[cold]
    fn start_queued(self: &Arc<Self>) {
        let mut state = self.reads.state();
        if std::mem::replace(&mut state.is_starting_queued, true) {
            return;
        }
        while let Some((key, now)) = state.queue.front() {
            let (bytes, now) = (self.tier.bytes_to_read(Key::new(key).hash), *now);
            if !state.acquire(bytes, self.reads.max_bytes) {
                break;
            }
            let (key, _) = state.queue.pop_front().expect("it has a front");
            if let Some(waiters) = state.waiters.get_mut(&key) {
                waiters.is_queued = false;
            }
            drop(state);
            self.read(key, now, bytes);
            state = self.reads.state();
        }
        state.is_starting_queued = false;
    }
}

/// Whoever tells has more to tell, and reads to move: a panic ends here. Its message is out.
fn call(on_read: OnRead, fetched: Fetched) {
    let _ = catch_unwind(AssertUnwindSafe(|| on_read(fetched)));
}

impl Cache {
    /// Another name of this cache that never waits, for threads that must not: what only flash has is absent for it, so they
    /// [`fetch`](Cache::fetch) what they need before; a write that would wait for memory answers [`Error::WouldWait`], and is
    /// to be tried again; a long value that needs more memory than those under way leave is refused.
    pub fn without_waiting(&self) -> Self {
        let mut other = self.clone();
        other.waits = false;
        other
    }

    /// Whether flash may have a key that memory has not: to be asked after a miss. No I/O; wrong for a few keys that flash has
    /// not. Always false without flash.
    #[inline]
    pub fn may_be_on_flash(&self, key: &[u8]) -> bool {
        self.shared.flash.as_ref().is_some_and(|flash| flash.may_contain(key))
    }

    /// Reads a key from flash; `landing` is called when that is over. All who fetch a key at once share one read.
    pub fn fetch(&self, key: &[u8], when_busy: WhenBusy, on_read: OnRead) -> Fetch {
        let shared = &*self.shared;
        let Some(flash) = &shared.flash else { return Fetch::Absent };
        flash.fetch(key, flash.seconds(shared.time.now_ms()), when_busy, on_read)
    }

    /// Has the calling thread move by itself what it fetches, for as long as it keeps this: one thread is woken for each read
    /// then, not two. None without flash, without io_uring, and if the thread has such a ring. The thread must use a name of the cache
    /// that does not wait ([`Cache::without_waiting`]): it would wait for itself, and one that does wait for flash panics.
    pub fn thread_ring(&self) -> Option<ThreadRing> {
        self.shared.flash.as_ref()?.tier.thread_ring()
    }

    /// Brings what a fetch has found into memory, unless its key has changed since. True if it is worth to look again, false if
    /// it found nothing.
    ///
    /// # Errors
    /// `OutOfMemory` if memory has no room for it: flash has the value all the same. `WouldWait`, of a handle that does not
    /// wait.
    pub fn promote(&self, fetched: &Fetched) -> Result<bool, Error> {
        let (Some(flash), Some(value)) = (&self.shared.flash, fetched.value()) else { return Ok(false) };
        self.shared.promote_counted(flash, value, Need::Memory(self.waiting())).map(|_| true)
    }
}

#[cfg(test)]
mod tests;
