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
use crate::hybrid::Hybrid;
use crate::raise::Need;
use ebbtide_flash::device::ThreadRing;
use ebbtide_flash::{Found, Key, Lookup};
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Reads at once: what is left of the device's queue is for the upkeep of flash.
const READS_MOST: usize = 192;
/// The share of the memory of flash that values may take which have landed, or are about to.
const BYTES_SHARE: u64 = 4;
/// How often whoever waits for the device looks whether it has failed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long a verification waits for the end of reads that nobody waits for, and how often it looks.
const QUIET_MOST: Duration = Duration::from_secs(30);
const QUIET_STEP: Duration = Duration::from_millis(1);

/// Called once with what a fetch found, on whichever thread completes the read, maybe before the fetch returns. It must not
/// block. If it panics, only its own work is lost.
pub type Landing = Box<dyn FnOnce(Fetched) + Send>;

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
pub struct Fetched(Option<Arc<Held>>);

/// A value that was found, with its key.
pub(crate) struct Value {
    pub key: Box<[u8]>,
    pub found: Found,
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
struct Held {
    value: Arc<Value>,
    _room: Room,
}

/// A part of what reads and landed values may take; given back when dropped.
struct Room {
    bytes: u64,
    has_landed: bool,
    hybrid: Weak<Hybrid>,
}

/// The fetches of a cache.
pub(crate) struct Fetches {
    bytes_most: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Keys of reads under way, and of the queue.
    asked: HashMap<Box<[u8]>, Asked>,
    /// Keys, each with the time in seconds at which it was asked for.
    queue: VecDeque<(Box<[u8]>, u32)>,
    rooms: usize,
    room_bytes: u64,
    landed_bytes: u64,
    /// A thread begins what is in the queue, as long as there is room.
    is_starting: bool,
}

/// Who waits for a key.
struct Asked {
    is_queued: bool,
    landings: Vec<Landing>,
}

impl Fetches {
    /// For flash that has so much of the memory.
    pub fn new(memory_bytes: u64) -> Self {
        Self { bytes_most: memory_bytes / BYTES_SHARE, state: Mutex::default() }
    }

    /// What values may take that have landed, or are about to.
    pub fn bytes_most(&self) -> u64 {
        self.bytes_most
    }

    /// Bytes of values that have landed and are held. Those of reads under way are the tier's.
    pub fn landed_bytes(&self) -> u64 {
        self.state().landed_bytes
    }

    /// Asserts that no read is under way and nothing is held, after what nobody waits for has ended.
    pub fn verify(&self) {
        let deadline = Instant::now() + QUIET_MOST;
        while self.state().rooms > 0 && Instant::now() < deadline {
            thread::sleep(QUIET_STEP);
        }
        let state = self.state();
        assert_eq!((state.rooms, state.room_bytes), (0, 0), "reads do not end, or values are held");
        assert!(state.asked.is_empty() && state.queue.is_empty(), "fetches are forgotten");
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics under this lock")
    }
}

impl State {
    /// Takes room for a read, if there is some. The only one always fits.
    fn take_room(&mut self, bytes: u64, bytes_most: u64) -> bool {
        let fits = self.rooms < READS_MOST && self.room_bytes + bytes <= bytes_most || self.rooms == 0;
        if fits {
            self.rooms += 1;
            self.room_bytes += bytes;
        }
        fits
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let Some(hybrid) = self.hybrid.upgrade() else { return };
        let mut state = hybrid.fetches.state();
        state.rooms -= 1;
        state.room_bytes -= self.bytes;
        state.landed_bytes -= if self.has_landed { self.bytes } else { 0 };
        let is_awaited = !state.queue.is_empty();
        drop(state);
        if is_awaited {
            hybrid.fetch_queued();
        }
    }
}

impl Hybrid {
    fn fetch(self: &Arc<Self>, key: &[u8], now: u32, when_busy: WhenBusy, landing: Landing) -> Fetch {
        let hash = Key::new(key).hash;
        if !self.tier.could_exist(hash) {
            return Fetch::Absent;
        }
        let bytes = self.tier.bytes_to_read(hash);
        let mut state = self.fetches.state();
        match state.asked.get_mut(key) {
            Some(asked) if asked.is_queued && when_busy == WhenBusy::Refuse => return Fetch::Refused,
            Some(asked) => {
                asked.landings.push(landing);
                return if asked.is_queued { Fetch::Queued } else { Fetch::UnderWay };
            }
            None => {}
        }
        let is_queued = !state.queue.is_empty() || !state.take_room(bytes, self.fetches.bytes_most);
        if is_queued && when_busy == WhenBusy::Refuse {
            return Fetch::Refused;
        }
        let key = Box::<[u8]>::from(key);
        state.asked.insert(key.clone(), Asked { is_queued, landings: vec![landing] });
        if is_queued {
            state.queue.push_back((key, now));
            return Fetch::Queued;
        }
        drop(state);
        self.read(key, now, bytes);
        Fetch::UnderWay
    }

    /// Fetches the first of these keys, and of the others what there is room for, and calls `each` with the number of every one that
    /// was found. Waits for the device, until it is judged to have failed. Not for threads that serve it.
    pub(crate) fn fetch_and_wait(self: &Arc<Self>, keys: &[&[u8]], now: u32, mut each: impl FnMut(usize, &Arc<Value>)) {
        assert!(
            !self.tier.is_moved_here(),
            "a thread with a ring of its own waits for itself: use Cache::without_waiting"
        );
        let mut ring = self.tier.waiting_ring();
        let (sender, receiver) = mpsc::channel();
        for (number, key) in keys.iter().enumerate() {
            let when_busy = if number == 0 { WhenBusy::Queue } else { WhenBusy::Refuse };
            let sender = sender.clone();
            // Nobody waits if this thread has panicked.
            let landing = Box::new(move |fetched| drop(sender.send((number, fetched))));
            match self.fetch(key, now, when_busy, landing) {
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
            if !moving.wait(LOOK_AGAIN) && has_failed() {
                self.give_fetches_up();
                ring = None;
            }
        }
        // Who moves nothing needs no ring.
        drop(ring);
        loop {
            match receiver.recv_timeout(LOOK_AGAIN) {
                Ok((number, fetched)) => fetched.value().into_iter().for_each(|value| each(number, value)),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) if has_failed() => self.give_fetches_up(),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Fetches one key; waits for the device as `fetch_and_wait` does.
    pub(crate) fn find(self: &Arc<Self>, key: &[u8], now_ms: u64) -> Option<Arc<Value>> {
        let mut found = None;
        self.fetch_and_wait(&[key], self.seconds(now_ms), |_, value| found = Some(Arc::clone(value)));
        found
    }

    /// Begins a read for which there is room.
    fn read(self: &Arc<Self>, key: Box<[u8]>, now: u32, bytes: u64) {
        let room = Room { bytes, has_landed: false, hybrid: Arc::downgrade(self) };
        let (hybrid, theirs) = (Arc::clone(self), key.clone());
        let reading = Arc::new(Mutex::new(Some(room)));
        let room = Arc::clone(&reading);
        let take = |room: &Mutex<Option<Room>>| room.lock().expect("nothing panics here").take().expect("it ends once");
        let landed = move |found| hybrid.landed(&theirs, found, take(&room));
        match self.tier.lookup(Key::new(&key), now, Box::new(landed)) {
            Lookup::Absent => self.landed(&key, None, take(&reading)),
            Lookup::Found(found) => self.landed(&key, Some(found), take(&reading)),
            Lookup::Reading => {}
        }
    }

    fn landed(&self, key: &[u8], found: Option<Found>, mut room: Room) {
        let asked = {
            let mut state = self.fetches.state();
            if let Some(found) = &found {
                // A value of several parts is larger than what tells of its first one.
                let more = (found.value().len() as u64).saturating_sub(room.bytes);
                state.room_bytes += more;
                room.bytes += more;
                state.landed_bytes += room.bytes;
                room.has_landed = true;
            }
            // Nobody waits any more if the fetch was given up.
            state.asked.remove(key)
        };
        let value = found.map(|found| Arc::new(Value { key: key.into(), found }));
        let fetched = Fetched(value.map(|value| Arc::new(Held { value, _room: room })));
        for landing in asked.into_iter().flat_map(|asked| asked.landings) {
            tell(landing, fetched.clone());
        }
    }

    /// All fetches are misses. What is under way still takes room until it ends.
    #[cold]
    pub(crate) fn give_fetches_up(&self) {
        let asked = {
            let mut state = self.fetches.state();
            state.queue.clear();
            std::mem::take(&mut state.asked)
        };
        for landing in asked.into_values().flat_map(|asked| asked.landings) {
            tell(landing, Fetched(None));
        }
    }

    /// Begins what is in the queue, as far as there is room. One thread does that: what ends at once makes room for the next.
    #[cold]
    fn fetch_queued(self: &Arc<Self>) {
        let mut state = self.fetches.state();
        if std::mem::replace(&mut state.is_starting, true) {
            return;
        }
        while let Some((key, now)) = state.queue.front() {
            let (bytes, now) = (self.tier.bytes_to_read(Key::new(key).hash), *now);
            if !state.take_room(bytes, self.fetches.bytes_most) {
                break;
            }
            let (key, _) = state.queue.pop_front().expect("it has a front");
            if let Some(asked) = state.asked.get_mut(&key) {
                asked.is_queued = false;
            }
            drop(state);
            self.read(key, now, bytes);
            state = self.fetches.state();
        }
        state.is_starting = false;
    }
}

/// Whoever tells has more to tell, and reads to move: a panic ends here. Its message is out.
fn tell(landing: Landing, fetched: Fetched) {
    let _ = catch_unwind(AssertUnwindSafe(|| landing(fetched)));
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
        self.shared.hybrid.as_ref().is_some_and(|hybrid| hybrid.may_have(key))
    }

    /// Reads a key from flash; `landing` is called when that is over. All who fetch a key at once share one read.
    pub fn fetch(&self, key: &[u8], when_busy: WhenBusy, landing: Landing) -> Fetch {
        let shared = &*self.shared;
        let Some(hybrid) = &shared.hybrid else { return Fetch::Absent };
        hybrid.fetch(key, hybrid.seconds(shared.time.now_ms()), when_busy, landing)
    }

    /// Has the calling thread move by itself what it fetches, for as long as it keeps this: one thread is woken for each read
    /// then, not two. None without flash, without io_uring, and if the thread has such a ring. The thread must use a name of the cache
    /// that does not wait ([`Cache::without_waiting`]): it would wait for itself, and one that does wait for flash panics.
    pub fn own_ring(&self) -> Option<ThreadRing> {
        self.shared.hybrid.as_ref()?.tier.own_ring()
    }

    /// Brings what a fetch has found into memory, unless its key has changed since. True if it is worth to look again, false if
    /// it found nothing.
    ///
    /// # Errors
    /// `OutOfMemory` if memory has no room for it: flash has the value all the same. `WouldWait`, of a handle that does not
    /// wait.
    pub fn promote(&self, fetched: &Fetched) -> Result<bool, Error> {
        let (Some(hybrid), Some(value)) = (&self.shared.hybrid, fetched.value()) else { return Ok(false) };
        self.shared.promote_counted(hybrid, value, Need::Memory(self.waiting())).map(|_| true)
    }
}

#[cfg(test)]
mod tests;
