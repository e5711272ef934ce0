//! Operations on the keys of one pool.

use crate::access::Access;
use crate::byte_size::ByteSize;
use crate::change::Tried;
use crate::error::{Error, WaitReason};
use crate::flash::read::{FlashProbe, FlashReads, ReadWake};
use crate::flash::resolve::{ReadOutcome, ReadPurpose};
use crate::insert::Insert;
use crate::lookup::{Item, Lookup};
use crate::meta_flags::MetaFlagsOutcome;
use crate::pool_options::PoolOptions;
use crate::pools::PoolRef;
use crate::removal::Removal;
use crate::retry::Patience;
use crate::scan::Scan;
use crate::upload::Upload;
use ebbtide_flash::device::ThreadRing;
use ebbtide_flash::{ByteRange, PoolStats as FlashPoolStats};
use ebbtide_store::{
    BATCH, Change, Changed, Count, CounterSnapshot, Flags, MetaFlagsChange, MetaFlagsLookup, Mode, Number, Policy,
    SegmentSnapshot, SegmentView, Stats, Store, Ttl,
};
use std::ops::ControlFlow;
use std::time::Duration;

/// A handle of one pool: a key space with its own index, segments and policy. A `Cache` is a handle of its
/// pool `default`, and has all of these methods. Clones are handles of the same pool.
#[derive(Clone)]
pub struct Pool(pub(crate) Access);

/// Reads.
impl Pool {
    /// Writes whose cache misses overlap.
    pub const WRITE_BATCH: usize = BATCH;

    /// Looks a key up. If only flash may have it the calling thread waits for the device: usually for less than a
    /// millisecond, and for half a minute at most if the device hangs. The promotion policy decides whether the value
    /// is copied to memory. [`Pool::without_waiting`] is for threads that must not wait.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Lookup<'_> {
        // Two ways, so that without flash the answer is made where the caller wants it.
        match &self.0.pool.flash {
            None => self.0.get_in_memory(key),
            Some(flash) => self.0.get_with_flash(flash, key),
        }
    }

    /// As `get`, of a range of the value: a hit that flash has answered has the bytes of the range only, which
    /// [`Item::range_to_vec`] copies. Of a long value on flash only the blocks that hold the range are read. Ranges
    /// that together have read as many bytes as the value has count as one get, which may promote it.
    pub fn get_range(&self, key: &[u8], range: ByteRange) -> Lookup<'_> {
        let lookup = self.0.get_in_memory(key);
        match &self.0.pool.flash {
            Some(flash) if self.0.waits && !lookup.is_hit() => self.0.get_range_from_flash(flash, key, range),
            _ => lookup,
        }
    }

    /// Looks a run of keys up as one batch, which overlaps their cache misses, and calls `answer` once per key, in
    /// order.
    pub fn get_batch<'a>(&'a self, keys: &[&[u8]], mut answer: impl FnMut(usize, Lookup<'a>)) {
        self.get_batch_while(keys, |i, lookup| {
            answer(i, lookup);
            ControlFlow::Continue(())
        });
    }

    /// As `get_batch`, until `answer` breaks. The keys behind are not looked up, which would count as a use.
    #[inline]
    pub fn get_batch_while<'a>(&'a self, keys: &[&[u8]], answer: impl FnMut(usize, Lookup<'a>) -> ControlFlow<()>) {
        match &self.0.pool.flash {
            Some(flash) if self.0.waits => self.0.get_batch_from_flash(flash, keys, answer),
            _ => self.0.get_batch_in_memory(keys, answer),
        }
    }

    /// Has what the next writes will change fetched from memory, so that their cache misses overlap: for at most
    /// [`Self::WRITE_BATCH`] keys, each with its pool. Nothing depends on it.
    pub fn prefetch_writes<'a, 'k>(keys: impl IntoIterator<Item = (&'a Self, &'k [u8])>) {
        Store::prefetch_writes(keys.into_iter().map(|(pool, key)| (&*pool.0.pool.store, key)));
    }

    /// Looks `count` keys of several pools of one cache up in memory, as one batch, and calls `answer` once per key, in
    /// order, until it breaks. The keys behind are not looked up.
    ///
    /// # Panics
    /// If the pools are of different caches.
    #[inline]
    pub fn get_batch_of_pools<'a, 'k>(
        count: usize,
        key_of: impl Fn(usize) -> (&'a Self, &'k [u8]),
        mut answer: impl FnMut(usize, Lookup<'a>) -> ControlFlow<()>,
    ) {
        if count == 0 {
            return;
        }
        let first = &*key_of(0).0.0.pool;
        let store_of = |index| {
            let (pool, key) = key_of(index);
            assert!(pool.0.pool.is_beside(first), "the pools are of one cache");
            (&*pool.0.pool.store, key)
        };
        let (participant, now_ms) = (first.participant(), first.clock.coarse_ms());
        let has_ended = |index, expiry| key_of(index).0.0.has_ended(expiry);
        Store::get_batch_of_stores(&participant, count, store_of, now_ms, has_ended, |index, item| {
            answer(index, key_of(index).0.0.lookup(item))
        });
    }

    /// As `get`, with a hit that is in memory and so has a valid CAS token. A value that only flash has is promoted
    /// under every policy; without space in memory it is a miss.
    pub fn get_with_token(&self, key: &[u8]) -> Lookup<'_> {
        self.0.get_with_token(key)
    }

    /// Looks a key up in memory, without counting a use.
    pub fn peek(&self, key: &[u8]) -> Lookup<'_> {
        self.0.peek(key)
    }

    /// Whether a get would find the key. Like a get it waits for flash, and counts as a use.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.get(key).is_hit()
    }

    /// Starts a scan of all entries.
    ///
    /// # Errors
    /// `ScanLimit`: at most eight scans at a time.
    pub fn scan(&self) -> Result<Scan, Error> {
        self.0.scan()
    }
}

/// Writes.
impl Pool {
    /// A write of `value`: a set that never expires, unless the builder methods of [`Insert`] say otherwise.
    pub fn insert<'a>(&'a self, key: &'a [u8], value: &'a [u8]) -> Insert<'a> {
        Insert::new(&self.0, key, value)
    }

    /// Starts a value of exactly `length` bytes that arrives in pieces.
    ///
    /// # Errors
    /// As `Insert::apply`; `OutOfMemory` also while unfinished uploads hold half of the memory.
    pub fn upload(&self, key: &[u8], length: u64, flags: u32, ttl: Ttl, mode: Mode) -> Result<Upload, Error> {
        self.0.upload(false, key, length, flags.into(), ttl, mode)
    }

    /// Whether an upload will be published in this pool.
    pub fn receives(&self, upload: &Upload) -> bool {
        upload.is_of(&self.0.pool)
    }

    /// Removes a key. False if it was absent, or the cache is closed. If only flash may have the key the calling thread
    /// waits for the device, as a get does. A handle that does not wait answers by the approximate index of flash,
    /// which is true also for some absent keys; [`Pool::try_delete`] knows.
    pub fn delete(&self, key: &[u8]) -> bool {
        self.0.delete(key)
    }

    /// Removes a key if its value still has this CAS token.
    ///
    /// # Errors
    /// `OutOfMemory`, `WouldWait`: the value is on flash and must come to memory. `Closed`.
    pub fn delete_if(&self, key: &[u8], token: u64) -> Result<Changed<()>, Error> {
        self.0.delete_if(key, token)
    }

    /// Adds to the decimal number in an entry, modulo 2^64. `None` if the key is absent.
    ///
    /// # Errors
    /// `NotNumeric`; `OutOfMemory`, `WouldWait`.
    pub fn increment(&self, key: &[u8], delta: u64) -> Result<Option<u64>, Error> {
        self.change_number(key, Change::Add(delta))
    }

    /// Subtracts from the decimal number in an entry, down to 0. `None` if the key is absent.
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

    /// As `increment` or `decrement`; with a CAS token, only while the entry still has it. Returns the entry's new
    /// token, too.
    ///
    /// # Errors
    /// As `increment`.
    pub fn change(&self, key: &[u8], change: Change, expected: Option<u64>) -> Result<Changed<Number>, Error> {
        self.count(key, &Count { expected, ..Count::plain(change) })
    }

    /// Changes the decimal number in an entry by the rules of a [`Count`].
    ///
    /// # Errors
    /// As `increment`.
    pub fn count(&self, key: &[u8], count: &Count) -> Result<Changed<Number>, Error> {
        let pool = &*self.0.pool;
        let participant = pool.participant();
        let target = (key, pool.store.hash(key));
        self.0.change(key, |now_ms, absence| {
            let count = Count { initial: absence.allowed(count.initial), ticket: absence.ticket(), ..*count };
            let changed = pool.store.change_number(&participant, target, &count, now_ms)?;
            Ok(Tried::of(changed, changed == Changed::Absent))
        })
    }

    /// Gives an entry a new TTL. False if it is absent.
    ///
    /// # Errors
    /// `OutOfMemory`, `WouldWait`.
    pub fn touch(&self, key: &[u8], ttl: Ttl) -> Result<bool, Error> {
        self.touch_if(key, ttl, Some)
    }

    /// As `touch`, for an entry whose flags are wanted, as one operation. False, with nothing changed, for another one.
    ///
    /// # Errors
    /// As `touch`.
    pub fn touch_if(&self, key: &[u8], ttl: Ttl, flags_for: impl Fn(Flags) -> Option<Flags>) -> Result<bool, Error> {
        let pool = &*self.0.pool;
        let participant = pool.participant();
        let target = (key, pool.store.hash(key));
        self.0.change(key, |now_ms, _| {
            let mut is_unwanted = false;
            let is_touched = pool.store.touch_if(&participant, target, ttl, now_ms, |flags| {
                let new = flags_for(flags);
                is_unwanted = new.is_none();
                new
            })?;
            Ok(Tried::of(is_touched, !is_touched && !is_unwanted))
        })
    }

    /// The value, with a new TTL, as one operation. A TTL in the past removes the entry.
    ///
    /// # Errors
    /// As `touch`.
    pub fn get_and_touch(&self, key: &[u8], ttl: Ttl) -> Result<Lookup<'_>, Error> {
        let pool = &*self.0.pool;
        let participant = pool.participant();
        let hash = pool.store.hash(key);
        let item = self.0.change(key, |now_ms, _| {
            let item = pool.store.get_and_touch(&participant, key, hash, ttl, now_ms)?;
            let is_absent = item.is_none();
            Ok(Tried::of(item, is_absent))
        })?;
        Ok(self.0.lookup(item.filter(|item| !self.0.has_ended(item.expiry_seconds()))))
    }

    /// Looks an entry up, asks `change` for a change of its meta flags, and applies it, as one operation: of several
    /// callers that find an entry stale, one wins. `change` may be asked more than once; `None` leaves the entry as it
    /// is.
    ///
    /// # Errors
    /// `OutOfMemory`, `WouldWait`; `KeyLength`.
    pub fn update_meta_flags(
        &self,
        key: &[u8],
        lookup: MetaFlagsLookup,
        change: impl FnMut(&Item<'_>) -> Option<MetaFlagsChange>,
    ) -> Result<MetaFlagsOutcome<'_>, Error> {
        self.0.update_meta_flags(key, lookup, change)
    }

    /// Keeps the CAS token that a write answered, as [`Item::cas`] does; answers the token to hand out. The value must
    /// have been the key's since, and its bucket unchanged: otherwise the token is as good as without this.
    pub fn keep_cas(&self, key: &[u8], token: u64) -> u64 {
        let store = &self.0.pool.store;
        store.retain_token(key, store.hash(key), token)
    }

    /// Everything that is stored before now + `delay` is absent from then on. A delayed flush replaces one that waits.
    /// A closed cache is not flushed.
    pub fn flush(&self, delay: Duration) {
        let pool = &*self.0.pool;
        let participant = pool.participant();
        let Some(_change) = participant.begin_change() else { return };
        pool.store.flush(pool.clock.now_ms(), delay.as_millis() as u64);
        if let (Some(flash), true) = (&pool.flash, delay.as_millis() > 0) {
            flash.tier.announce_pool_flush(&flash.on_flash);
        }
        pool.wake();
    }
}

/// Limits and counters.
impl Pool {
    pub fn name(&self) -> &str {
        &self.0.pool.name
    }

    /// Counters and gauges of this pool, in memory.
    pub fn stats(&self) -> Stats {
        self.0.pool.store.stats()
    }

    /// Counters and gauges of this pool on flash; `None` without flash.
    pub fn flash_stats(&self) -> Option<FlashPoolStats> {
        self.0.pool.flash.as_ref().map(|flash| flash.tier.pool_stats(&flash.on_flash))
    }

    /// Changes the bounds of this pool's memory. All pools are divided anew; pools that shrink evict in the background.
    /// From then on a [`crate::memcached::PoolController`] leaves this pool as it is, until [`Pool::release`].
    ///
    /// # Errors
    /// `Configuration` if the bounds do not fit; `PoolRemoved`.
    pub fn resize(&self, min: ByteSize, max: ByteSize) -> Result<(), Error> {
        let engine = &self.0.owner.0;
        let participant = self.0.pool.participant();
        let _change = participant.begin_change().ok_or(Error::Closed)?;
        engine.pools.fix(PoolRef::Store(&self.0.pool), min.as_bytes(), max.as_bytes())?;
        engine.run_soon();
        Ok(())
    }

    /// Changes bounds and weight to those of these options, and ends [`Pool::resize`]. Name, policy and largest value
    /// stay; [`Pool::set_policy`] changes the policy.
    ///
    /// # Errors
    /// As [`Pool::resize`].
    pub fn configure(&self, options: &PoolOptions) -> Result<(), Error> {
        let engine = &self.0.owner.0;
        let participant = self.0.pool.participant();
        let _change = participant.begin_change().ok_or(Error::Closed)?;
        engine.pools.configure(PoolRef::Store(&self.0.pool), options)?;
        engine.run_soon();
        Ok(())
    }

    /// The eviction policy.
    pub fn policy(&self) -> Policy {
        self.0.pool.store.policy()
    }

    /// Evicts by another policy from now on, until the next start. Entries keep their ages and frequencies; a policy
    /// that remembers evicted keys begins without any.
    ///
    /// # Errors
    /// `Configuration` if the memory of the pool does not hold what the policy remembers; `PoolRemoved`; `Closed`.
    pub fn set_policy(&self, policy: Policy) -> Result<(), Error> {
        self.0.pool.set_policy(policy)
    }

    /// Ends [`Pool::resize`]: the bounds of the options hold again, and a [`crate::memcached::PoolController`] may move
    /// memory of this pool.
    ///
    /// # Errors
    /// `Configuration` if the bounds of the options do not fit by now; `PoolRemoved`.
    pub fn release(&self) -> Result<(), Error> {
        let engine = &self.0.owner.0;
        let participant = self.0.pool.participant();
        let _change = participant.begin_change().ok_or(Error::Closed)?;
        engine.pools.release(PoolRef::Store(&self.0.pool))?;
        engine.run_soon();
        Ok(())
    }

    /// The longest value in one piece, for keys of up to 250 bytes. A longer one better arrives by [`Pool::upload`].
    pub fn contiguous_limit(&self) -> usize {
        self.0.pool.store.contiguous_value_bytes(250)
    }

    /// The largest value.
    pub fn max_value(&self) -> ByteSize {
        ByteSize::bytes(self.0.pool.store.options().value_bytes_max)
    }

    /// Whether a full pool evicts; else it refuses writes.
    pub fn evicts(&self) -> bool {
        self.0.pool.store.options().evicts
    }

    /// The counters that are cheap to ask for often.
    pub fn counter_snapshot(&self) -> CounterSnapshot {
        self.0.pool.store.counter_snapshot()
    }

    /// Memory by use. Reads the headers of all segments, 128 bytes each; approximate while others write.
    pub fn segment_snapshot(&self) -> SegmentSnapshot {
        self.0.pool.store.segment_snapshot(self.0.pool.clock.now_ms())
    }

    /// Shows each segment in use that holds items, in no order; approximate while others write.
    pub fn view_segments(&self, view: impl FnMut(SegmentView)) {
        self.0.pool.store.view_segments(view);
    }

    /// Calls `listener` for every entry that is evicted, has expired or was flushed; not for entries that a caller
    /// deletes or overwrites.
    ///
    /// The thread that removes the entry calls it, a writing thread or the maintenance thread, in the middle of its
    /// work: the listener must be quick, and must not use the cache. It is told of an expired or flushed entry when its
    /// memory is taken back, which may be long after the entry was last served; an entry that is overwritten before
    /// that is not reported. A panic ends the call of the listener and nothing else.
    ///
    /// ```
    /// # use ebbtide::memcached::{Cache, Cause, ByteSize};
    /// # use std::sync::atomic::{AtomicU64, Ordering};
    /// # static EVICTED: AtomicU64 = AtomicU64::new(0);
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.on_removal(|removal| {
    ///     if removal.cause() == Cause::Memory {
    ///         EVICTED.fetch_add(1, Ordering::Relaxed);
    ///     }
    /// })?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `ListenerLimit`: at most four listeners. They stay as long as the pool does.
    pub fn on_removal(&self, listener: impl Fn(Removal<'_>) + Send + Sync + 'static) -> Result<(), Error> {
        self.0.on_removal(listener)
    }
}

/// Callers that do not wait.
impl Pool {
    /// A handle that never waits, for threads that must not: it misses keys that only flash has, so that its caller
    /// reads them by [`Pool::read_from_flash`]; a write that would wait for memory answers [`Error::WouldWait`], to be
    /// tried again; a long value that needs more memory than other uploads leave is refused.
    pub fn without_waiting(&self) -> Self {
        Self(Access { waits: false, ..self.0.clone() })
    }

    /// How long an operation may wait for this. After that its caller tries once more with [`Patience::after`] the
    /// reason.
    pub fn wait_limit(&self, reason: WaitReason) -> Duration {
        self.0.pool.wait_limit(reason)
    }

    /// For a handle that does not wait: whether its next operations answer `WouldWait`, or use the memory that there
    /// is.
    pub fn set_patience(&self, patience: Patience) {
        self.0.patience.set(patience);
    }

    /// Asks flash for a key that memory does not have. No I/O. `None` if flash does not have it; wrong for a few absent
    /// keys.
    #[inline]
    pub fn probe_flash(&self, reads: &FlashReads, key: &[u8]) -> Option<FlashProbe> {
        self.0.probe_flash(reads, key)
    }

    /// Continues the read of the first of these keys, with its probe, and reads the keys behind ahead, those that
    /// memory does not have. To be called again after [`ReadOutcome::Pending`], when the wake-up that `wake` made was
    /// called: then the key was read, and its value is promoted or served.
    pub fn read_from_flash(
        &self,
        reads: &mut FlashReads,
        probe: FlashProbe,
        keys: &[&[u8]],
        purpose: ReadPurpose,
        wake: impl FnMut() -> ReadWake,
    ) -> ReadOutcome<'_> {
        self.read_from_flash_over(reads, probe, keys, purpose, &|_| Some(self), wake)
    }

    /// As `read_from_flash`, of keys of several pools: `pool_of` names the pool of each key behind the first. A key
    /// without a pool, or of a pool of another cache, is not read ahead.
    pub fn read_from_flash_over<'p>(
        &self,
        reads: &mut FlashReads,
        probe: FlashProbe,
        keys: &[&[u8]],
        purpose: ReadPurpose,
        pool_of: &dyn Fn(&[u8]) -> Option<&'p Self>,
        wake: impl FnMut() -> ReadWake,
    ) -> ReadOutcome<'_> {
        self.0.read_from_flash(reads, probe, keys, purpose, &|key| pool_of(key).map(|pool| &pool.0), wake)
    }

    /// Starts the reads of `read_from_flash`. [`FlashReads::collect`] takes their values over, for a later call of it.
    pub fn prefetch(&self, reads: &mut FlashReads, probe: FlashProbe, keys: &[&[u8]], wake: ReadWake) {
        self.0.prefetch(reads, probe, keys, wake);
    }

    /// As `delete`. `None`: flash is being read, and nothing has changed; to be called again after the wake-up.
    pub fn try_delete(&self, reads: &mut FlashReads, key: &[u8], wake: impl FnMut() -> ReadWake) -> Option<bool> {
        self.0.try_delete(reads, key, wake)
    }

    /// Lets the calling thread complete its reads of flash by itself while it keeps this ring: a read then wakes one
    /// thread, not two. `None` without flash, without io_uring, and if the thread has a ring. The thread must use
    /// handles that do not wait: it would wait for itself, and a handle that waits for flash panics.
    pub fn thread_ring(&self) -> Option<ThreadRing> {
        self.0.pool.flash.as_ref()?.tier.thread_ring()
    }
}

#[cfg(test)]
mod tests {
    use crate::memcached::{ByteSize, Cache, Clock, PoolOptions};
    use ebbtide_store::{Mode, Stored, Ttl, Write};

    #[test]
    fn late_writes_to_removed_pools_are_misses() {
        let builder = Cache::builder().memory(ByteSize::mib(8)).max_value(ByteSize::kib(64)).clock(Clock::Manual);
        let cache = builder.pool(PoolOptions::named("a")).build().unwrap();
        let pool = cache.pool("a").unwrap();
        cache.remove_pool("a").unwrap();
        // A write that has passed the check before the removal.
        let state = &*pool.0.pool;
        let (key, hash) = (&b"key"[..], state.store.hash(b"key"));
        let write =
            Write { key, hash, value: b"value", flags: 0.into(), ttl: Ttl::Never, mode: Mode::Set, token: None };
        let written = state.store.write(&state.participant(), &write, state.clock.now_ms()).unwrap();
        assert_eq!(written.stored, Stored::Stored);
        assert!(!pool.get(key).is_hit() && !pool.peek(key).is_hit());
    }
}
