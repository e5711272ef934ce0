//! Pending reads of flash: one read per key, and a bound on all of them.
//!
//! ```text
//! start -> is the key being read?    -> its read             (one read serves all callers that ask meanwhile)
//!       -> is a permit free?         -> reading -----> value held -----> dropped: the permit starts a queued read
//!       -> may it queue?             -> queue ----^
//!       -> refused
//! ```
//! A permit covers a read and then the value that it found, until the last holder drops the value. The number of
//! permits and their bytes are bounded: the device's queue keeps places for maintenance, and the memory of values is
//! bounded. A returned permit starts the next queued read. The queue always moves as long as no caller that holds a
//! value waits for a queued read; [`WhenBusy`] lets callers avoid that.
//!
//! One mutex guards everything. It is a leaf of the lock order. Callbacks run without it.

use ebbtide_flash::{ByteRange, FlashHash, FlashHit, FlashLookup, Key, Probe, Tier};
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Reads at once. The rest of the device's queue is for the maintenance of flash.
const MAX_READS: usize = 192;
/// The part of the flash memory that values may take.
const MAX_BYTES_SHARE: u64 = 4;
/// Bytes that a read of a range may take beside the range: the front of the object, and the blocks in which the range
/// begins and ends.
const RANGE_EXTRA_BYTES: u64 = 16 << 10;
/// A verification waits this long until no read is pending.
const MAX_QUIET_WAIT: Duration = Duration::from_secs(30);
const QUIET_STEP: Duration = Duration::from_millis(1);

/// Called once with the result of a read, on the thread that completes it, maybe before `start` returns. It must not
/// block. A panic ends the callback and nothing else.
pub(crate) type OnRead = Box<dyn FnOnce(FlashRead) + Send>;

/// Treatment of a read for which no permit is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenBusy {
    /// The read starts later. A caller that holds values must drop them before it waits for a queued read.
    Queue,
    /// The read is not started.
    Refuse,
}

/// Result of asking for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// The callback is called, or was.
    Reading,
    /// As `Reading`, after other reads.
    Queued,
    /// No permit is free. The callback is not called.
    Refused,
}

/// The result of one read: a value, or none. Clones share the value and its permit.
#[derive(Clone, Default)]
pub(crate) struct FlashRead {
    held: Option<Arc<HeldValue>>,
    /// There is no value, though flash may have one: this lookup or others ended without a decision meanwhile, or the
    /// read began before its caller asked.
    is_undecided: bool,
}

/// A value that was found, with its key.
pub(crate) struct ReadValue {
    pub key: Box<[u8]>,
    pub hash: FlashHash,
    /// The number of its pool's incarnation when it was read.
    pub pool: u16,
    /// The range of the value that was read; `None`: all of it.
    pub range: Option<ByteRange>,
    pub found: FlashHit,
}

/// A value and its permit.
struct HeldValue {
    value: Arc<ReadValue>,
    _permit: Permit,
}

/// A part of the bound on reads and held values. Dropping it returns it.
struct Permit {
    bytes: u64,
    /// The read has ended with a value.
    is_held: bool,
    reads: Weak<PendingReads>,
}

/// The reads of a flash tier.
pub(crate) struct PendingReads {
    pub(crate) tier: Arc<Tier>,
    max_bytes: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By the keys that are being read or are queued, with the incarnations of their pools and the ranges.
    waiters: HashMap<WaiterKey, Waiters>,
    queue: VecDeque<Queued>,
    permits: usize,
    permit_bytes: u64,
    held_bytes: u64,
    /// A thread starts queued reads, for as long as permits are free.
    is_starting_queued: bool,
}

type WaiterKey = (u16, Option<ByteRange>, Box<[u8]>);

/// A key that is read, or a range of its value.
#[derive(Clone)]
struct ReadKey {
    bytes: Box<[u8]>,
    hash: FlashHash,
    pool: u16,
    range: Option<ByteRange>,
}

impl ReadKey {
    fn of_waiters(&self) -> WaiterKey {
        (self.pool, self.range, self.bytes.clone())
    }

    /// Bytes that are read, if the whole value takes `whole`.
    fn max_bytes(&self, whole: u64) -> u64 {
        self.range.map_or(whole, |range| range.length.saturating_add(RANGE_EXTRA_BYTES).min(whole))
    }
}

/// A read without a permit.
struct Queued {
    key: ReadKey,
    /// When it was asked for, in seconds.
    now: u32,
}

/// The callers that wait for a key.
struct Waiters {
    /// The number of callers that asked before the read began. `None`: it is queued.
    asked_before: Option<usize>,
    callbacks: Vec<OnRead>,
}

impl Waiters {
    fn is_queued(&self) -> bool {
        self.asked_before.is_none()
    }
}

impl FlashRead {
    pub fn value(&self) -> Option<&Arc<ReadValue>> {
        self.held.as_ref().map(|held| &held.value)
    }

    pub fn is_undecided(&self) -> bool {
        self.is_undecided
    }
}

impl State {
    /// Takes a permit if one is free. The only read always gets one.
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
        let Some(reads) = self.reads.upgrade() else { return };
        let mut state = reads.state();
        state.permits -= 1;
        state.permit_bytes -= self.bytes;
        state.held_bytes -= if self.is_held { self.bytes } else { 0 };
        let has_queue = !state.queue.is_empty();
        drop(state);
        if has_queue {
            reads.start_queued();
        }
    }
}

impl PendingReads {
    /// For a tier with this much memory.
    pub fn new(tier: Arc<Tier>, memory_bytes: u64) -> Self {
        Self { tier, max_bytes: memory_bytes / MAX_BYTES_SHARE, state: Mutex::default() }
    }

    /// The bound on the bytes of reads and held values.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Bytes of held values. The tier counts those of reads that have not ended.
    pub fn held_bytes(&self) -> u64 {
        self.state().held_bytes
    }

    /// Reads that wait for a permit.
    #[cfg(test)]
    pub fn queued(&self) -> usize {
        self.state().queue.len()
    }

    /// Asserts that no read is pending and no value is held, after abandoned reads have ended.
    pub fn verify(&self) {
        let deadline = Instant::now() + MAX_QUIET_WAIT;
        while self.state().permits > 0 && Instant::now() < deadline {
            thread::sleep(QUIET_STEP);
        }
        let state = self.state();
        assert_eq!((state.permits, state.permit_bytes), (0, 0), "reads do not end, or values are held");
        assert!(state.waiters.is_empty() && state.queue.is_empty(), "a read has waiters and no permit");
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics under this lock")
    }

    /// Reads a key of which the tier's probe has answered `place`, or a range of its value.
    pub fn start(
        self: &Arc<Self>,
        key: Key<'_>,
        range: Option<ByteRange>,
        place: Probe,
        now: u32,
        when_busy: WhenBusy,
        on_read: OnRead,
    ) -> Start {
        let key = ReadKey { bytes: key.bytes.into(), hash: key.hash, pool: key.pool, range };
        let bytes = key.max_bytes(place.bytes());
        let of_waiters = key.of_waiters();
        let mut state = self.state();
        match state.waiters.get_mut(&of_waiters) {
            Some(waiters) if waiters.is_queued() && when_busy == WhenBusy::Refuse => return Start::Refused,
            Some(waiters) => {
                waiters.callbacks.push(on_read);
                return if waiters.is_queued() { Start::Queued } else { Start::Reading };
            }
            None => {}
        }
        let is_queued = !state.queue.is_empty() || !state.acquire(bytes, self.max_bytes);
        if is_queued && when_busy == WhenBusy::Refuse {
            return Start::Refused;
        }
        let asked_before = (!is_queued).then_some(1);
        state.waiters.insert(of_waiters, Waiters { asked_before, callbacks: vec![on_read] });
        if is_queued {
            state.queue.push_back(Queued { key, now });
            return Start::Queued;
        }
        drop(state);
        self.read(key, Some(place), now, bytes);
        Start::Reading
    }

    /// Starts a read that has a permit. Without a place it has ended.
    fn read(self: &Arc<Self>, key: ReadKey, place: Option<Probe>, now: u32, bytes: u64) {
        let permit = Permit { bytes, is_held: false, reads: Arc::downgrade(self) };
        let (reads, their_key) = (Arc::clone(self), key.clone());
        let shared_permit = Arc::new(Mutex::new(Some(permit)));
        let their_permit = Arc::clone(&shared_permit);
        let take = |permit: &Mutex<Option<Permit>>| {
            permit.lock().expect("nothing panics under this lock").take().expect("a read ends once")
        };
        let before = self.tier.undecided_lookups();
        let done = move |found| reads.finish(their_key, (found, before), take(&their_permit));
        let of_flash = Key { bytes: &key.bytes, hash: key.hash, pool: key.pool };
        let read = |place| self.tier.read(of_flash, place, key.range, now, Box::new(done));
        match place.map_or(FlashLookup::Absent, read) {
            FlashLookup::Absent => self.finish(key, (None, before), take(&shared_permit)),
            FlashLookup::Found(found) => self.finish(key, (Some(found), before), take(&shared_permit)),
            FlashLookup::Reading => {}
        }
    }

    /// A read has ended. `before`: undecided lookups when it started.
    fn finish(&self, key: ReadKey, (found, before): (Option<FlashHit>, u64), mut permit: Permit) {
        let is_undecided = found.is_none() && self.tier.undecided_lookups() != before;
        let waiters = {
            let mut state = self.state();
            if let Some(found) = &found {
                // The probe knows the bytes of the first part of a value only.
                let more = (found.value().len() as u64).saturating_sub(permit.bytes);
                state.permit_bytes += more;
                permit.bytes += more;
                state.held_bytes += permit.bytes;
                permit.is_held = true;
            }
            // A cancelled read has no waiters.
            state.waiters.remove(&key.of_waiters())
        };
        let ReadKey { bytes: key, hash, pool, range } = key;
        let value = found.map(|found| Arc::new(ReadValue { key, hash, pool, range, found }));
        let held = value.map(|value| Arc::new(HeldValue { value, _permit: permit }));
        let Some(waiters) = waiters else { return };
        let asked_before = waiters.asked_before.unwrap_or(0);
        for (number, on_read) in waiters.callbacks.into_iter().enumerate() {
            let began_earlier = held.is_none() && number >= asked_before;
            call(on_read, FlashRead { held: held.clone(), is_undecided: is_undecided || began_earlier });
        }
    }

    /// Answers all pending reads as misses, which say nothing of flash: it may have the keys, unless its device has
    /// failed, and then a second look finds none. A read of the device keeps its permit until it ends.
    #[cold]
    pub fn cancel(&self) {
        let waiters = {
            let mut state = self.state();
            state.queue.clear();
            std::mem::take(&mut state.waiters)
        };
        for on_read in waiters.into_values().flat_map(|waiters| waiters.callbacks) {
            call(on_read, FlashRead { held: None, is_undecided: true });
        }
    }

    /// Starts queued reads while permits are free. One thread at a time does it: a read that ends at once returns its
    /// permit to that thread's loop.
    #[cold]
    fn start_queued(self: &Arc<Self>) {
        let mut state = self.state();
        if std::mem::replace(&mut state.is_starting_queued, true) {
            return;
        }
        while let Some(queued) = state.queue.front() {
            // The mutex is held: the tier's index is the only lock inside it.
            // Its place may be another one by now, or none.
            let place = self.tier.probe(queued.key.hash);
            let bytes = queued.key.max_bytes(place.map_or(0, |place| place.bytes()));
            if !state.acquire(bytes, self.max_bytes) {
                break;
            }
            let Queued { key, now } = state.queue.pop_front().expect("it has a front");
            if let Some(waiters) = state.waiters.get_mut(&key.of_waiters()) {
                waiters.asked_before = Some(waiters.callbacks.len());
            }
            drop(state);
            self.read(key, place, now, bytes);
            state = self.state();
        }
        state.is_starting_queued = false;
    }
}

/// The thread has more callbacks to call and reads to complete: a panic ends here, after its message was printed.
fn call(on_read: OnRead, read: FlashRead) {
    let _ = catch_unwind(AssertUnwindSafe(|| on_read(read)));
}

#[cfg(test)]
mod tests;
