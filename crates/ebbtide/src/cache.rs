//! The cache.

use crate::builder::CacheBuilder;
use crate::byte_size::ByteSize;
use crate::clock::{Clock, Time};
use crate::error::Error;
use crate::flash::idle_demotion::IdleScan;
use crate::flash::read::WhenBusy;
use crate::flash::threads::{FlashShutdown, FlashThreads};
use crate::flash::tier::FlashTier;
use crate::lookup::{Item, Lookup};
use crate::retry::PatienceCell;
use crate::wakeup::Waker;
use ebbtide_flash::device::Health;
use ebbtide_store::{
    Change, Changed, Count, CounterSnapshot, Mode, Number, Participant, Progress, SegmentSnapshot, Stats, Store,
    Stored, Ttl, Write, Written,
};
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// A cheap clone; all clones are the same cache.
#[derive(Clone)]
pub struct Cache {
    pub(crate) shared: Arc<Shared>,
    pub(crate) _owner: Arc<Owner>,
    /// Whether operations wait for flash, for memory, and long values for others.
    pub(crate) waits: bool,
    /// Of one that does not.
    pub(crate) patience: PatienceCell,
}

/// What the clones have in common, with the uploads and scans that may outlive them, and no thread of the cache has: with the last of them
/// the cache ends, whatever those threads are at.
pub(crate) struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.flash_shutdown.close(true);
    }
}

/// What all clones share.
pub(crate) struct Shared {
    pub store: Arc<Store>,
    pub time: Time,
    pub waker: Waker,
    /// HeldValue by the background thread while it works.
    pub maintaining: Mutex<()>,
    /// Over memory, for idle values; held by the thread that works on them.
    pub idle_scan: Mutex<IdleScan>,
    pub clock: Clock,
    pub flash: Option<Arc<FlashTier>>,
    pub flash_shutdown: FlashShutdown,
    this: Weak<Shared>,
}

thread_local! {
    /// The caches that this thread has used, with its part in each.
    static PARTS: RefCell<Vec<(Weak<Shared>, Participant)>> = const { RefCell::new(Vec::new()) };
}

impl Shared {
    pub fn new(store: Store, time: Time, clock: Clock, flash: Option<(Arc<FlashTier>, FlashThreads)>) -> Arc<Self> {
        let (flash, threads) = flash.unzip();
        Arc::new_cyclic(|this| Self {
            store: Arc::new(store),
            time,
            waker: Waker::default(),
            maintaining: Mutex::new(()),
            idle_scan: Mutex::default(),
            clock,
            flash,
            flash_shutdown: threads.map_or_else(FlashShutdown::default, FlashShutdown::of),
            this: this.clone(),
        })
    }

    /// The calling thread's part.
    #[inline]
    pub fn participant(&self) -> Participant {
        let part = PARTS.try_with(|parts| {
            let parts = &mut *parts.borrow_mut();
            let mine = parts.iter().find(|(cache, _)| Weak::ptr_eq(cache, &self.this));
            mine.map(|(_, participant)| participant.clone()).unwrap_or_else(|| self.take_part(parts))
        });
        // A thread that ends may use the cache in the destructor of another thread-local.
        part.unwrap_or_else(|_| self.store.participate())
    }

    #[cold]
    fn take_part(&self, parts: &mut Vec<(Weak<Shared>, Participant)>) -> Participant {
        parts.retain(|(cache, _)| cache.strong_count() > 0);
        let participant = self.store.participate();
        parts.push((self.this.clone(), participant.clone()));
        participant
    }
}

impl Cache {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let _owner = Arc::new(Owner(Arc::clone(&shared)));
        Self { shared, _owner, waits: true, patience: PatienceCell::default() }
    }

    pub fn builder() -> CacheBuilder {
        CacheBuilder::default()
    }

    /// Looks a key up. With flash the calling thread waits for the device if only that may have the key: usually for less than a millisecond, but until
    /// it is given up, for half a minute, if it hangs. What is found there comes back to memory as the promotion policy says.
    /// [`Cache::without_waiting`] is for threads that must not wait.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Lookup<'_> {
        match (self.get_in_memory(key), &self.shared.flash) {
            (Lookup::Miss, Some(flash)) if self.waits => self.get_from_flash(flash, key),
            (lookup, _) => lookup,
        }
    }

    #[inline(always)]
    pub(crate) fn get_in_memory(&self, key: &[u8]) -> Lookup<'_> {
        let shared = &*self.shared;
        let now_ms = shared.time.coarse_ms();
        self.lookup(shared.store.get(&shared.participant(), key, shared.store.hash(key), now_ms))
    }

    #[inline(always)]
    pub(crate) fn lookup<'a>(&'a self, item: Option<ebbtide_store::Item<'a>>) -> Lookup<'a> {
        match item {
            Some(item) if !self.shared.time.has_expired(item.expiry_seconds()) => {
                Lookup::Hit(Item::in_memory(item, &self.shared.store))
            }
            Some(_) => self.expired(),
            None => Lookup::Miss,
        }
    }

    #[cold]
    fn expired(&self) -> Lookup<'_> {
        self.shared.store.count_expired(&self.shared.participant());
        Lookup::Miss
    }

    /// Looks a run of keys up as one batch, which overlaps their cache misses, and calls `answer` once per key, in order.
    pub fn get_batch<'a>(&'a self, keys: &[&[u8]], mut answer: impl FnMut(usize, Lookup<'a>)) {
        self.get_batch_while(keys, |i, lookup| {
            answer(i, lookup);
            ControlFlow::Continue(())
        });
    }

    /// As `get_batch`, until `answer` breaks: the keys behind are not looked up, which would count as a use.
    #[inline]
    pub fn get_batch_while<'a>(&'a self, keys: &[&[u8]], answer: impl FnMut(usize, Lookup<'a>) -> ControlFlow<()>) {
        match &self.shared.flash {
            Some(flash) if self.waits => self.get_batch_from_flash(flash, keys, answer),
            _ => self.get_batch_in_memory(keys, answer),
        }
    }

    #[inline]
    pub(crate) fn get_batch_in_memory<'a>(
        &'a self,
        keys: &[&[u8]],
        mut answer: impl FnMut(usize, Lookup<'a>) -> ControlFlow<()>,
    ) {
        let shared = &*self.shared;
        let now_ms = shared.time.coarse_ms();
        let participant = shared.participant();
        shared.store.get_batch(&participant, keys, now_ms, |i, item| answer(i, self.lookup(item)));
    }

    /// Whether a get would find the key. As a get it waits for flash, and counts as a use.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.get(key).is_hit()
    }

    /// A write of `value`; a set that never expires unless the builder methods of [`Insert`] say otherwise.
    pub fn insert<'a>(&'a self, key: &'a [u8], value: &'a [u8]) -> Insert<'a> {
        Insert { cache: self, key, value, flags: 0, ttl: Ttl::Never, mode: Mode::Set, token: None }
    }

    /// Adds to the decimal number in an entry, modulo 2^64. `None` if the key is absent.
    ///
    /// # Errors
    /// `NotNumeric`; `OutOfMemory`, `WouldWait`.
    pub fn increment(&self, key: &[u8], delta: u64) -> Result<Option<u64>, Error> {
        self.change_number(key, Change::Add(delta))
    }

    /// Subtracts from the decimal number in an entry, not below 0. `None` if the key is absent.
    ///
    /// # Errors
    /// As `increment`.
    pub fn decrement(&self, key: &[u8], delta: u64) -> Result<Option<u64>, Error> {
        self.change_number(key, Change::Subtract(delta))
    }

    fn change_number(&self, key: &[u8], change: Change) -> Result<Option<u64>, Error> {
        match self.change(key, change, None)? {
            Changed::Done(number) => Ok(Some(number.value)),
            Changed::Absent | Changed::Exists => Ok(None),
        }
    }

    /// As `increment` or `decrement`; with a CAS token, only while the entry still has it. Answers the entry's new token,
    /// too.
    ///
    /// # Errors
    /// As `increment`.
    pub fn change(&self, key: &[u8], change: Change, expected: Option<u64>) -> Result<Changed<Number>, Error> {
        self.count(key, &Count { expected, ..Count::plain(change) })
    }

    /// Changes the decimal number in an entry on the terms of a count.
    ///
    /// # Errors
    /// As `increment`.
    pub fn count(&self, key: &[u8], count: &Count) -> Result<Changed<Number>, Error> {
        let shared = &*self.shared;
        shared.promote_if_on_flash(self.waits, key)?;
        let participant = shared.participant();
        let target = (key, shared.store.hash(key));
        let change = |now_ms| shared.store.change_number(&participant, target, count, now_ms);
        shared.write_with_eviction(self.waiting(), &participant, change)
    }

    /// Gives an entry a new life. False if it is absent.
    ///
    /// # Errors
    /// `OutOfMemory`, `WouldWait`.
    pub fn touch(&self, key: &[u8], ttl: Ttl) -> Result<bool, Error> {
        let shared = &*self.shared;
        shared.promote_if_on_flash(self.waits, key)?;
        let participant = shared.participant();
        let hash = shared.store.hash(key);
        let touch = |now_ms| shared.store.touch(&participant, key, hash, ttl, now_ms);
        shared.write_with_eviction(self.waiting(), &participant, touch)
    }

    /// The value, with a new life, as one operation; a life that is over already removes the entry.
    ///
    /// # Errors
    /// As `touch`.
    pub fn get_and_touch(&self, key: &[u8], ttl: Ttl) -> Result<Lookup<'_>, Error> {
        let shared = &*self.shared;
        shared.promote_if_on_flash(self.waits, key)?;
        let participant = shared.participant();
        let hash = shared.store.hash(key);
        let touch = |now_ms| shared.store.get_and_touch(&participant, key, hash, ttl, now_ms);
        let item = shared.write_with_eviction(self.waiting(), &participant, touch)?;
        Ok(self.lookup(item))
    }

    /// Everything that is stored before now + `delay` is gone from then on. A delayed flush replaces one that waits.
    pub fn flush(&self, delay: Duration) {
        self.shared.store.flush(self.shared.time.now_ms(), delay.as_millis() as u64);
        if let (Some(flash), true) = (&self.shared.flash, delay.as_millis() > 0) {
            flash.tier.announce_flush();
        }
        self.shared.waker.wake();
    }

    /// The longest value that lies in one piece, for keys of up to 250 bytes; longer ones better arrive by
    /// [`Cache::upload`].
    pub fn contiguous_limit(&self) -> usize {
        self.shared.store.contiguous_value_bytes(250)
    }

    /// The largest value.
    pub fn max_value(&self) -> ByteSize {
        ByteSize::bytes(self.shared.store.options().value_bytes_max)
    }

    /// Whether a full cache evicts; else it refuses writes.
    pub fn evicts(&self) -> bool {
        self.shared.store.options().evicts
    }

    /// Counters and gauges. With flash the memory counts what flash takes of it.
    pub fn stats(&self) -> Stats {
        let mut stats = self.shared.store.stats();
        if let Some(flash) = &self.shared.flash {
            let (limit, used) = flash.memory();
            stats.memory_limit_bytes += limit;
            stats.memory_used_bytes += used;
        }
        stats
    }

    /// The few of them that are cheap to ask for often.
    pub fn counter_snapshot(&self) -> CounterSnapshot {
        self.shared.store.counter_snapshot()
    }

    /// Where the memory is. Walks the headers of all segments, 128 bytes each; approximate while others write.
    pub fn segment_snapshot(&self) -> SegmentSnapshot {
        self.shared.store.segment_snapshot(self.shared.time.now_ms())
    }

    /// How the device of flash is, as it was found within the last second; `None` without flash.
    pub fn flash_health(&self) -> Option<Health> {
        self.shared.flash.as_ref().map(|flash| flash.tier.health())
    }

    /// Changes the memory limit; what flash has of it stays as it is. Shrinking evicts, and gives memory back to the system; with the system's clock it goes on
    /// in the background, with a manual one it is done before the answer.
    ///
    /// # Errors
    /// `Configuration` if the new limit cannot hold what the cache is set up for.
    pub fn resize(&self, memory: ByteSize) -> Result<(), Error> {
        let shared = &*self.shared;
        let resize = |for_flash| {
            let resized = shared.store.resize(memory.as_bytes().saturating_sub(for_flash));
            resized.map_err(|error| match Error::from_store(error) {
                Error::Configuration { option, reason, .. } => {
                    let beside = if for_flash > 0 { format!(", beside {for_flash} for flash") } else { String::new() };
                    Error::Configuration { option, value: memory.as_bytes().to_string(), reason: reason + &beside }
                }
                other => other,
            })
        };
        shared.flash.as_ref().map_or_else(|| resize(0), |flash| flash.memory_split.with_flash_bytes(resize))?;
        match shared.clock {
            Clock::System => shared.waker.wake(),
            Clock::Manual => self.run_maintenance(shared.time.now_ms()),
        }
        Ok(())
    }

    /// With `Clock::Manual`: moves time on to this long after the cache was built (it never goes back) and does all
    /// maintenance that is due.
    ///
    /// # Panics
    /// If the cache goes by the system's clock.
    pub fn maintain(&self, since_start: Duration) {
        assert_eq!(self.shared.clock, Clock::Manual, "maintain is for caches with a manual clock");
        let now_ms = self.shared.time.set(since_start);
        self.run_maintenance(now_ms);
    }

    /// For tests of programs that go by the system's clock: moves this cache's time on, as if so long had passed. What
    /// has expired by then is gone when this returns; its memory follows in the background. Time moves a thousand years
    /// at most, all skips together.
    ///
    /// # Errors
    /// `Configuration` with a manual clock, which [`Cache::maintain`] moves.
    pub fn skip_time(&self, time: Duration) -> Result<(), Error> {
        if !self.shared.time.skip(time) {
            return Err(Error::Configuration {
                option: "clock",
                value: "Manual".to_owned(),
                reason: "skip_time is for caches with the system's clock; call maintain".to_owned(),
            });
        }
        self.shared.waker.wake();
        Ok(())
    }

    /// The life that ends when the wall clock reaches this many seconds since 1970; with a manual clock, whose 1970 is
    /// a second before the start, when that does. An entry with it is never served later, and not lost a second earlier
    /// unless the wall clock is set meanwhile or the life is longer than 128 s (then up to 1/64 of it).
    pub fn ttl_until(&self, unix_seconds: u64) -> Ttl {
        self.shared.time.until(unix_seconds)
    }

    /// How long a life is that begins now; `None` if it never ends.
    pub fn ttl_duration(&self, ttl: Ttl) -> Option<Duration> {
        self.shared.time.ttl_duration(ttl)
    }

    /// How far [`Cache::skip_time`] has moved time in all; zero outside of tests.
    pub fn skipped_time(&self) -> Duration {
        Duration::from_millis(self.shared.time.skipped_ms())
    }

    fn run_maintenance(&self, now_ms: u64) {
        self.shared.rebalance_memory();
        let participant = self.shared.participant();
        while self.shared.store.maintain(&participant, now_ms) == Progress::Working {}
        self.shared.move_idle(&participant, now_ms);
        if let Some(flash) = &self.shared.flash {
            flash.maintain(now_ms);
        }
    }

    /// Walks everything and asserts every invariant of the engine. For tests: slow, and all threads but the cache's own
    /// must be quiet.
    pub fn verify(&self) {
        let _quiet = self.shared.maintaining.lock().expect("the background thread has panicked");
        self.shared.store.verify(&self.shared.participant(), self.shared.time.now_ms());
        if let Some(flash) = &self.shared.flash {
            flash.verify();
        }
    }
}

/// A write that is being described.
#[must_use = "a write does nothing before apply"]
pub struct Insert<'a> {
    cache: &'a Cache,
    key: &'a [u8],
    value: &'a [u8],
    flags: u32,
    ttl: Ttl,
    mode: Mode,
    token: Option<u64>,
}

impl Insert<'_> {
    pub fn ttl(mut self, ttl: Ttl) -> Self {
        self.ttl = ttl;
        self
    }

    /// Client flags.
    pub fn flags(mut self, flags: u32) -> Self {
        self.flags = flags;
        self
    }

    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// The CAS token that the value gets, and keeps until it changes; by default the cache makes one.
    pub fn token(mut self, token: Option<u64>) -> Self {
        self.token = token;
        self
    }

    /// The key, and bytes of the value.
    pub(crate) fn target(&self) -> (&[u8], usize) {
        (self.key, self.value.len())
    }

    /// Carries the write out.
    ///
    /// # Errors
    /// `KeyLength`, `ValueTooLarge`, `OutOfMemory`, `WouldWait`. After a set that failed no old value stays behind, except
    /// after `WouldWait`; other modes leave it as it was.
    pub fn apply(self) -> Result<Stored, Error> {
        self.apply_with_token().map(|written| written.stored)
    }

    /// Carries the write out and answers the CAS token of what it stored.
    ///
    /// # Errors
    /// As `apply`.
    pub fn apply_with_token(self) -> Result<Written, Error> {
        let Self { cache, key, value, flags, ttl, mode, token } = self;
        if value.len() > cache.shared.store.contiguous_value_bytes(key.len()) && !mode.extends() {
            let length = value.len() as u64;
            let when_busy = if cache.waits { WhenBusy::Queue } else { WhenBusy::Refuse };
            let mut upload = cache.upload_when(when_busy, key, length, flags, ttl, mode)?.token(token);
            upload.write(value)?;
            return upload.finish_with_token();
        }
        let shared = &*cache.shared;
        if mode != Mode::Set {
            shared.promote_if_on_flash(cache.waits, key)?;
        }
        let participant = shared.participant();
        let write = Write { key, hash: shared.store.hash(key), value, flags, ttl, mode, token };
        let written = shared.write_in_upload_order(cache.waiting(), &participant, &write);
        if mode == Mode::Set && written.as_ref().is_err_and(Error::is_final) {
            cache.delete_unread(key);
        }
        written
    }
}
