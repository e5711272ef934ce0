//! Resolving a flash hit: its value is promoted into memory, or served as it was found.
//!
//! ```text
//! hit ---> policy ---> promote, if the store has no item of the key and the copy is current ---> look in the store
//!               |         | memory is short
//!               +---------+-> serve, if the store has no item of the key and the copy is current
//! ```
//! The store checks both conditions under the lock of the key's buckets: `docs/concurrency.md`, "Flash: answers". The
//! lookup after a promotion does not count as a use: a promoted item must be used in memory to stay there.

use crate::access::Access;
use crate::error::Error;
use crate::flash::pending_reads::ReadValue;
use crate::flash::pool_flash::PoolFlash;
use crate::flash::promotion::Choice;
use crate::flash::read::{
    Blocking, EndedRead, FlashProbe, FlashReads, KeyAhead, Promotion, ReadKeys, ReadWaiter, ReadWake, Woken,
};
use crate::lookup::{Item, Lookup, flags_of};
use crate::pool_state::PoolState;
use crate::removal_events;
use crate::retry::{Patience, Waiting};
use ebbtide_flash::{ByteRange, Key};
use ebbtide_store::{Mode, Stored, Ttl, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Purpose of a read from flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPurpose {
    /// A plain get, which may be answered from flash.
    Answer,
    /// An operation that needs the value in memory.
    Memory,
    /// A change that depends on whether the key is present, by a handle that does not wait: as `Memory`. If flash does
    /// not have the key, the calling thread's next change of it knows.
    Change,
    /// A plain get whose hit the policy promotes: it was asked before the read.
    Promote,
    /// A range of the value of one key. Only the blocks that hold the range are read, and nothing is promoted.
    Range(ByteRange),
}

/// The next step of a caller that reads from flash.
#[derive(Debug)]
pub enum ReadOutcome<'a> {
    /// Reads are pending: the caller is woken and calls again.
    Pending,
    /// The key's value at this moment.
    Hit(Item<'a>),
    /// Flash does not have the key: the caller looks in memory, and does not ask flash again.
    Absent,
    /// The caller looks in memory, and does not ask flash again.
    MemoryDecides,
    /// Flash has the value, and memory has no place for it: `OutOfMemory` or `WouldWait`.
    Refused(Error),
}

/// Whether a promotion may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PromotionKind {
    /// The value must be in memory: the promotion evicts and waits.
    Required(Waiting),
    /// The value can be served from flash: the promotion takes memory only where that costs no other item.
    Optional,
}

impl PoolState {
    /// Promotes a value and counts the outcome. `WouldWait` of a required promotion is not counted.
    fn promote(&self, flash: &PoolFlash, value: &ReadValue, kind: PromotionKind) -> Result<Stored, Error> {
        let promoted = self.promote_uncounted(flash, value, kind);
        if kind != PromotionKind::Optional && promoted.as_ref().is_err_and(|error| !error.is_final()) {
            return promoted;
        }
        let counter = if promoted.is_ok() { &flash.promoted } else { &flash.promotions_refused };
        counter.fetch_add(1, Ordering::Relaxed);
        promoted
    }

    fn promote_uncounted(&self, flash: &PoolFlash, value: &ReadValue, kind: PromotionKind) -> Result<Stored, Error> {
        let participant = self.participant();
        let ReadValue { key, found, .. } = value;
        let copy = flash.copy_of(value);
        let expiry = u64::from(found.expiry);
        let until = (expiry != 0).then(|| expiry.saturating_sub(flash.epoch_seconds));
        let mode = Mode::Promote { copy, until };
        let (hash, value, flags) = (self.store.hash(key), found.value(), flags_of(found));
        let write = Write { key, hash, value, flags, ttl: Ttl::Never, mode, token: None };
        let may_continue = || kind != PromotionKind::Optional || self.has_spare_memory(flash);
        let store = |now_ms| {
            let _recording = flash.promoted_keys.record(hash);
            self.store.write(&participant, &write, now_ms)
        };
        let waiting = match kind {
            PromotionKind::Required(waiting) => waiting,
            PromotionKind::Optional => Waiting::Answers(Patience::Whole),
        };
        let written = self.write_with_eviction_while(may_continue, waiting, &participant, |now_ms| match kind {
            PromotionKind::Required(Waiting::Sleeps) => self.in_upload_order(|| store(self.clock.now_ms())),
            _ => store(now_ms),
        });
        // The caller has permits of reads, which the listener may wait for.
        removal_events::hand_over();
        written.map(|written| written.stored)
    }

    /// Whether an optional promotion may take memory: not while writers run out of free segments, nor while flash
    /// cannot take the evicted items, which may be nowhere else. With a manual clock evictions wait for flash.
    fn has_spare_memory(&self, flash: &PoolFlash) -> bool {
        let has = self.clock.is_manual() || !self.store.is_low() && flash.tier.has_space();
        if !has {
            self.wake();
        }
        has
    }

    /// The value as a hit, if it is the key's at this moment.
    fn serve(&self, flash: &PoolFlash, value: &Arc<ReadValue>) -> Option<Item<'_>> {
        let item = self.current_item(flash, value)?;
        flash.served.fetch_add(1, Ordering::Relaxed);
        Some(item)
    }

    /// As `serve`, not counted.
    pub fn current_item(&self, flash: &PoolFlash, value: &Arc<ReadValue>) -> Option<Item<'_>> {
        let (now_ms, found) = (self.clock.now_ms(), &value.found);
        let has_expired = found.expiry != 0 && found.expiry <= flash.seconds(now_ms);
        if has_expired {
            return None;
        }
        let hash = self.store.hash(&value.key);
        let token = self.store.token_of_copy(&value.key, hash, flash.copy_of(value), now_ms)?;
        Some(Item::on_flash(Arc::clone(value), self, token))
    }

    /// Asks the promotion policy about all values of the pool that it was not asked about, and promotes those that it
    /// chooses. Nothing is answered yet: a thread that holds an item promotes nothing.
    fn promote_chosen(&self, flash: &PoolFlash, ended: &mut [EndedRead]) {
        for ended in ended.iter_mut().filter(|ended| ended.promotion == Promotion::Undecided) {
            let value = ended.read.value().filter(|value| value.pool == flash.on_flash.number());
            let Some(value) = value else { continue };
            let choice = flash.choose_promotion(value.hash, self.clock.now_ms());
            match choice {
                Choice::Promote => self.promote_optionally(flash, ended),
                Choice::Serve => ended.promotion = Promotion::Served,
            }
        }
    }

    /// Promotes the value of a read, if memory takes it.
    fn promote_optionally(&self, flash: &PoolFlash, ended: &mut EndedRead) {
        let is_promoted =
            ended.read.value().is_some_and(|value| self.promote(flash, value, PromotionKind::Optional).is_ok());
        ended.promotion = if is_promoted { Promotion::Promoted } else { Promotion::Served };
    }
}

impl Access {
    /// The purpose of a lookup of a range: to read the range, or to promote a value whose ranges were used.
    pub fn range_purpose(&self, probe: &FlashProbe, range: ByteRange) -> ReadPurpose {
        let now_ms = self.pool.clock.now_ms();
        let is_promoted = self.pool.flash.as_ref().is_some_and(|flash| flash.promotes_range(probe, now_ms));
        if is_promoted { ReadPurpose::Promote } else { ReadPurpose::Range(range) }
    }

    /// Asks flash for a key that memory does not have. Without flash, or if flash does not have the key: none.
    pub fn probe_flash(&self, reads: &FlashReads, key: &[u8]) -> Option<FlashProbe> {
        let flash = self.pool.flash.as_ref()?;
        let of_flash = flash.key(key);
        if reads.has_ended(of_flash) {
            // The request was counted before the read: admission counts each request once.
            return Some(FlashProbe { hash: of_flash.hash, pool: of_flash.pool, place: None });
        }
        flash.probe_missed(key)
    }

    /// Continues the read of the first of these keys for a caller that does not wait. `pool_of` names the
    /// pool of a key behind; a key without one is not read ahead.
    pub fn read_from_flash<'p>(
        &self,
        reads: &mut FlashReads,
        probe: FlashProbe,
        keys: &[&[u8]],
        purpose: ReadPurpose,
        pool_of: &dyn Fn(&[u8]) -> Option<&'p Access>,
        wake: impl FnMut() -> ReadWake,
    ) -> ReadOutcome<'_> {
        let Some(flash) = &self.pool.flash else { return ReadOutcome::MemoryDecides };
        let mut probe = probe;
        if purpose == ReadPurpose::Change
            && let Some(outcome) = self.begin_search(flash, reads, &mut probe, keys[0])
        {
            return outcome;
        }
        let keys = read_keys(probe, keys, purpose);
        let ahead: &KeyAhead<'_> = &|key| pool_of(key).and_then(|access| access.key_ahead(flash, key));
        let outcome = self.resolve(flash, reads, &keys, purpose, ahead, &mut Woken(wake));
        let Some(outcome) = outcome else { return ReadOutcome::Pending };
        if purpose == ReadPurpose::Change {
            self.end_search(flash, reads, &outcome);
        }
        outcome
    }

    /// A key as the flash under all pools knows it, if memory does not have it.
    fn key_ahead<'k>(&self, flash: &PoolFlash, key: &'k [u8]) -> Option<Key<'k>> {
        let own = self.pool.flash.as_ref().filter(|own| Arc::ptr_eq(&own.shared, &flash.shared))?;
        (!self.peek(key).is_hit()).then(|| own.key(key))
    }

    /// Starts reads without an answer.
    pub fn prefetch(&self, reads: &mut FlashReads, probe: FlashProbe, keys: &[&[u8]], wake: ReadWake) {
        if let (Some(flash), Some(place)) = (&self.pool.flash, probe.place) {
            let now = flash.seconds(self.pool.clock.now_ms());
            let keys = read_keys(probe, keys, ReadPurpose::Answer);
            reads.start(&flash.reads, &keys, place, now, &|key| self.key_ahead(flash, key), wake);
        }
    }

    pub(crate) fn wait_for_flash(
        &self,
        flash: &PoolFlash,
        reads: &mut FlashReads,
        probe: FlashProbe,
        keys: &[&[u8]],
        purpose: ReadPurpose,
    ) -> ReadOutcome<'_> {
        let mut waiter = Blocking::new(&flash.reads, flash.seconds(self.pool.clock.now_ms()));
        let keys = read_keys(probe, keys, purpose);
        let ahead: &KeyAhead<'_> = &|key| self.key_ahead(flash, key);
        self.resolve(flash, reads, &keys, purpose, ahead, &mut waiter).expect("a blocking read has an outcome")
    }

    fn resolve(
        &self,
        flash: &PoolFlash,
        reads: &mut FlashReads,
        keys: &ReadKeys<'_>,
        purpose: ReadPurpose,
        ahead: &KeyAhead<'_>,
        waiter: &mut dyn ReadWaiter,
    ) -> Option<ReadOutcome<'_>> {
        let now = flash.seconds(self.pool.clock.now_ms());
        let key = keys.first.bytes;
        reads.run(&flash.reads, keys, now, ahead, waiter, |others, ended, is_last| {
            let is_decided = || {
                let store = &self.pool.store;
                self.peek(key).is_hit() || store.has_dead_item(key, store.hash(key), self.pool.clock.now_ms())
            };
            let decides = || (is_last || is_decided()).then_some(ReadOutcome::MemoryDecides);
            let is_undecided = ended.as_ref().is_some_and(|ended| ended.read.is_undecided());
            let Some(mut ended) = ended.filter(|ended| ended.read.value().is_some()) else {
                return Some(if is_undecided { ReadOutcome::MemoryDecides } else { ReadOutcome::Absent });
            };
            flash.on_flash.note_hits(1);
            if matches!(purpose, ReadPurpose::Memory | ReadPurpose::Change) {
                let value = ended.read.value().expect("it was filtered");
                return match self.pool.promote(flash, value, PromotionKind::Required(self.waiting())) {
                    Ok(_) => decides(),
                    Err(error) => Some(ReadOutcome::Refused(error)),
                };
            }
            if purpose == ReadPurpose::Promote {
                self.pool.promote_optionally(flash, &mut ended);
            } else if keys.range.is_none() {
                self.pool.promote_chosen(flash, std::slice::from_mut(&mut ended));
                let before = promoted(others);
                self.pool.promote_chosen(flash, others);
                // Memory has them when the caller comes to their keys.
                flash.on_flash.note_hits(promoted(others) - before);
            }
            let value = Arc::clone(ended.read.value().expect("it was filtered"));
            let is_promoted = ended.promotion == Promotion::Promoted;
            if keys.range.is_some() {
                flash.range_uses.note(value.hash, value.found.value().len() as u64, value.found.value_bytes);
            }
            // Before an item is held: a returned permit starts reads of others, and runs their callbacks.
            drop(ended);
            let item = if is_promoted { self.peek(key).hit() } else { self.pool.serve(flash, &value) };
            item.map(ReadOutcome::Hit).or_else(decides)
        })
    }

    /// A get, from memory first.
    #[inline(never)]
    pub fn get_with_flash(&self, flash: &PoolFlash, key: &[u8]) -> Lookup<'_> {
        match self.get_in_memory(key) {
            Lookup::Miss if self.waits => self.get_from_flash(flash, key),
            lookup => lookup,
        }
    }

    /// A get that has missed in memory.
    #[cold]
    pub fn get_from_flash(&self, flash: &PoolFlash, key: &[u8]) -> Lookup<'_> {
        let Some(probe) = flash.probe_missed(key) else { return Lookup::Miss };
        match self.wait_for_flash(flash, &mut FlashReads::default(), probe, &[key], ReadPurpose::Answer) {
            ReadOutcome::Hit(item) => Lookup::Hit(item),
            _ => self.get_in_memory(key),
        }
    }

    /// A range of a value, which memory does not have. A hit of flash that stays there has the bytes of the range only.
    #[cold]
    pub fn get_range_from_flash(&self, flash: &PoolFlash, key: &[u8], range: ByteRange) -> Lookup<'_> {
        let Some(probe) = flash.probe_missed(key) else { return Lookup::Miss };
        let purpose = self.range_purpose(&probe, range);
        match self.wait_for_flash(flash, &mut FlashReads::default(), probe, &[key], purpose) {
            ReadOutcome::Hit(item) => Lookup::Hit(item),
            _ => self.get_in_memory(key),
        }
    }

    /// A batch of gets. All keys that only flash has are read at once; nothing is held between the reads.
    #[cold]
    pub fn get_batch_from_flash<'a>(
        &'a self,
        flash: &PoolFlash,
        keys: &[&[u8]],
        mut answer: impl FnMut(usize, Lookup<'a>) -> ControlFlow<()>,
    ) {
        let mut reads = FlashReads::default();
        let (mut from, mut memory_decides) = (0, false);
        loop {
            let mut missing = None;
            self.get_batch_in_memory(&keys[from..], |i, lookup| {
                let number = from + i;
                if !lookup.is_hit()
                    && (i > 0 || !memory_decides)
                    && let Some(probe) = self.probe_flash(&reads, keys[number])
                {
                    missing = Some((number, probe));
                    return ControlFlow::Break(());
                }
                answer(number, lookup)
            });
            let Some((number, probe)) = missing else { return };
            match self.wait_for_flash(flash, &mut reads, probe, &keys[number..], ReadPurpose::Answer) {
                ReadOutcome::Hit(item) => {
                    if answer(number, Lookup::Hit(item)).is_break() {
                        return;
                    }
                    (from, memory_decides) = (number + 1, false);
                }
                _ => (from, memory_decides) = (number, true),
            }
        }
    }

    /// Promotes the value of a key if only flash may have it. A handle that does not wait does nothing.
    ///
    /// # Errors
    /// `OutOfMemory` if flash has the value and memory has no place for it: the operation must not treat the key as
    /// absent.
    #[inline]
    pub fn promote_if_on_flash(&self, key: &[u8]) -> Result<(), Error> {
        match &self.pool.flash {
            Some(flash) if self.waits => self.promote_from_flash(flash, key),
            _ => Ok(()),
        }
    }

    fn promote_from_flash(&self, flash: &PoolFlash, key: &[u8]) -> Result<(), Error> {
        let Some(probe) = flash.probe(key) else { return Ok(()) };
        if self.peek(key).is_hit() {
            return Ok(());
        }
        match self.wait_for_flash(flash, &mut FlashReads::default(), probe, &[key], ReadPurpose::Memory) {
            ReadOutcome::Refused(error) => Err(error),
            _ => Ok(()),
        }
    }

    /// A get whose hit is in memory and has a CAS token.
    pub fn get_with_token(&self, key: &[u8]) -> Lookup<'_> {
        if self.waits { self.find(key).unwrap_or(Lookup::Miss) } else { self.get_in_memory(key) }
    }
}

/// Reads whose values were promoted.
fn promoted(ended: &[EndedRead]) -> u64 {
    ended.iter().filter(|ended| ended.promotion == Promotion::Promoted).count() as u64
}

pub(crate) fn read_keys<'a>(probe: FlashProbe, keys: &'a [&'a [u8]], purpose: ReadPurpose) -> ReadKeys<'a> {
    let first = Key { bytes: keys[0], hash: probe.hash, pool: probe.pool };
    let range = if let ReadPurpose::Range(range) = purpose { Some(range) } else { None };
    let others = if range.is_some() || purpose == ReadPurpose::Promote { &[] } else { &keys[1..] };
    ReadKeys { first, probe, range, others }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::byte_size::ByteSize;
    use crate::cache::Cache;
    use crate::clock::Clock;
    use crate::flash::promotion::FlashPromotion;
    use crate::memcached::{FlashOptions, PoolOptions};
    use ebbtide_flash::Object;
    use std::time::{Duration, Instant};

    fn build(folder: &std::path::Path, promotion: FlashPromotion) -> Cache {
        let builder = Cache::builder().memory(ByteSize::mib(6)).clock(Clock::Manual).flash_promotion(promotion);
        builder.flash(folder.join("flash"), ByteSize::mib(64)).build().unwrap()
    }

    /// Reads a key as a get does, and leaves the value where it is.
    fn read(cache: &Cache, key: &[u8]) -> FlashReads {
        let (flash, mut reads) = (cache.engine().default_pool.flash.as_ref().unwrap(), FlashReads::default());
        let probe = flash.probe(key).expect("it was just inserted");
        cache.prefetch(&mut reads, probe, &[key], Box::new(|| ()));
        while !reads.collect() {
            std::thread::yield_now();
        }
        assert_eq!(reads.found(), 1);
        reads
    }

    fn find(cache: &Cache, key: &[u8]) -> Arc<ReadValue> {
        Arc::clone(read(cache, key).ended[0].read.value().unwrap())
    }

    fn resolve<'a>(cache: &'a Cache, reads: &mut FlashReads, key: &[u8]) -> ReadOutcome<'a> {
        let probe = cache.probe_flash(reads, key).unwrap();
        cache.read_from_flash(reads, probe, &[key], ReadPurpose::Answer, || Box::new(|| ()))
    }

    #[test]
    fn a_stale_value_is_neither_promoted_nor_served() {
        let folder = tempfile::tempdir().unwrap();
        let cache = build(folder.path(), FlashPromotion::Never);
        let pool = &*cache.engine().default_pool;
        let flash = cache.engine().default_pool.flash.as_ref().unwrap();
        let key = Key::new(b"key");
        let leave: [&dyn Fn(); 2] = [&|| _ = cache.delete(b"key"), &|| cache.flush(Duration::ZERO)];
        for (leave, bytes) in leave.into_iter().flat_map(|leave| [(leave, 100), (leave, 9000)]) {
            let evict = |value: &[u8]| {
                let object = Object { key, value: &[value], client_flags: 0, is_annotated: false, expiry: 0 };
                flash.tier.insert(&object, 2).unwrap();
            };
            evict(&vec![1; bytes]);
            let found = find(&cache, key.bytes);
            leave();
            evict(&vec![2; bytes]);
            assert!(pool.serve(flash, &found).is_none(), "{bytes} bytes");
            assert_eq!(
                pool.promote_uncounted(flash, &found, PromotionKind::Required(Waiting::Answers(Patience::Spent))),
                Ok(Stored::NotStored)
            );
            assert_eq!(cache.get(b"key").hit().unwrap().to_vec(), vec![2; bytes]);
            cache.delete(b"key");
        }
    }

    #[test]
    fn a_late_promotion_keeps_its_expiry() {
        for (late, stored) in [(97, Stored::Stored), (99, Stored::NotStored)] {
            promote_late(100, late, stored);
        }
        // In units of more than a second, too.
        for (expiry, late) in [(1001, 2), (3601, 1000), (86_399, 2), (10_000_001, 2)] {
            promote_late(expiry, late, Stored::Stored);
        }
    }

    /// Promotes an object of this expiry after this many seconds, if it has not expired, and looks when it does.
    fn promote_late(expiry: u32, late: u64, stored: Stored) {
        let folder = tempfile::tempdir().unwrap();
        let cache = build(folder.path(), FlashPromotion::Always);
        let pool = &*cache.engine().default_pool;
        let flash = cache.engine().default_pool.flash.as_ref().unwrap();
        let key = Key::new(b"key");
        let object = Object { key, value: &[b"value"], client_flags: 7, is_annotated: false, expiry };
        flash.tier.insert(&object, 2).unwrap();
        let found = find(&cache, key.bytes);
        // A manual clock begins a second before the start.
        let since_start = u64::from(expiry) - 1;
        let left = Duration::from_secs(since_start.saturating_sub(late));
        cache.maintain(Duration::from_secs(late));
        let item = pool.serve(flash, &found);
        assert_eq!(item.is_some(), stored == Stored::Stored);
        assert!(item.is_none_or(|item| item.ttl() == Some(left) && item.flags() == 7));
        assert_eq!(
            pool.promote_uncounted(flash, &found, PromotionKind::Required(Waiting::Answers(Patience::Spent))),
            Ok(stored)
        );
        let ttl = cache.peek(b"key").hit().and_then(|item| item.ttl());
        assert_eq!(ttl, (stored == Stored::Stored).then_some(left));
        if stored == Stored::Stored {
            cache.maintain(Duration::from_millis(since_start * 1000 - 1));
            assert!(cache.get(b"key").is_hit(), "{expiry} s: it expires with the next millisecond");
        }
        cache.maintain(Duration::from_secs(since_start));
        assert!(!cache.get(b"key").is_hit(), "it has expired");
    }

    #[test]
    fn a_refused_promotion_is_served_from_flash() {
        const KEYS: u32 = 1000;
        let folder = tempfile::tempdir().unwrap();
        let cache = build(folder.path(), FlashPromotion::Always);
        let value = [7; 9000];
        (0..KEYS).for_each(|number| _ = cache.insert(&number.to_le_bytes(), &value).apply().unwrap());
        cache.insert(b"held", &value).apply().unwrap();
        // A thread that holds an item evicts nothing.
        let held = cache.get(b"held").hit().unwrap();
        let found = (0..KEYS).filter(|number| cache.get(&number.to_le_bytes()).is_hit()).count();
        let keys: Vec<[u8; 4]> = (0..KEYS).map(u32::to_le_bytes).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let mut in_batch = 0;
        cache.get_batch(&keys, |_, lookup| in_batch += usize::from(lookup.is_hit()));
        drop(held);
        let stats = cache.flash_stats().unwrap();
        assert!(stats.promotions_refused > 500 && stats.served >= stats.promotions_refused, "{stats:?}");
        assert_eq!((found, in_batch), (KEYS as usize, KEYS as usize));
    }

    #[test]
    fn a_range_reads_its_blocks_and_promotes_nothing() {
        const BYTES: usize = 200 << 10;
        let folder = tempfile::tempdir().unwrap();
        let options = FlashOptions { seal_seconds: 1, ..FlashOptions::default() };
        let builder = Cache::builder().memory(ByteSize::mib(6)).clock(Clock::Manual).flash_options(options);
        let builder = builder.flash_promotion(FlashPromotion::Always);
        let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(64)).build().unwrap();
        let flash = cache.engine().default_pool.flash.as_ref().unwrap();
        let value: Vec<u8> = (0..BYTES).map(|i| (i / 7) as u8).collect();
        let insert = |value: &[u8]| {
            let object =
                Object { key: Key::new(b"key"), value: &[value], client_flags: 9, is_annotated: false, expiry: 0 };
            flash.tier.insert(&object, 2).unwrap();
        };
        insert(&value);
        cache.maintain(Duration::from_secs(100));
        // Its regions are on the device, and in no buffer.
        flash.tier.settle(flash.seconds(cache.engine().clock.now_ms()));
        let read = |offset: usize, length: usize| {
            let before = flash.tier.stats().large.read_bytes;
            let range = ByteRange { offset: offset as u64, length: length as u64 };
            let item = cache.get_range(b"key", range).hit().unwrap();
            assert_eq!(item.flags(), 9);
            let end = (offset + length).min(BYTES);
            assert!(item.range_to_vec(range) == value[offset.min(end)..end], "{length} bytes from {offset}");
            flash.tier.stats().large.read_bytes - before
        };
        for _ in 0..3 {
            let bytes = [read(BYTES / 2, 4096), read(5, 100), read(BYTES - 1, 4096), read(BYTES, 1)];
            assert!(bytes.iter().all(|&bytes| (4096..=24 << 10).contains(&bytes)), "{bytes:?} bytes are read");
        }
        assert!(!cache.peek(b"key").is_hit(), "the value stays on flash");
        assert_eq!(cache.flash_stats().unwrap().promoted, 0);
        assert!(cache.get(b"key").is_hit() && cache.peek(b"key").is_hit(), "a get promotes it");
        assert_eq!(read(BYTES / 2, 4096), 0, "memory has it");
        cache.delete(b"key");
        insert(b"short");
        let range = ByteRange { offset: 1, length: 3 };
        assert_eq!(cache.get_range(b"key", range).hit().unwrap().range_to_vec(range), b"hor");
        cache.delete(b"key");
        assert!(!cache.get_range(b"key", range).is_hit());
    }

    #[test]
    fn a_hit_locks_the_index_of_flash_twice() {
        use FlashPromotion::{Always, Never};
        // Part of a region, and too long to be read whole for a range.
        let value = vec![7; 40 << 10];
        for (promotion, is_on_device) in [(Never, false), (Never, true), (Always, false), (Always, true)] {
            let folder = tempfile::tempdir().unwrap();
            let options = FlashOptions { seal_seconds: 1, ..FlashOptions::default() };
            let builder = Cache::builder().memory(ByteSize::mib(6)).clock(Clock::Manual).flash_options(options);
            let builder = builder.flash_promotion(promotion);
            let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(64)).build().unwrap();
            let flash = cache.engine().default_pool.flash.as_ref().unwrap();
            let key = flash.key(b"key");
            let object = Object { key, value: &[&value], client_flags: 0, is_annotated: false, expiry: 0 };
            assert!(flash.tier.stats().large.region_bytes > 48 << 10);
            flash.tier.insert(&object, 2).unwrap();
            if is_on_device {
                cache.maintain(Duration::from_secs(100));
                flash.tier.settle(flash.seconds(cache.engine().clock.now_ms()));
                // Its region leaves the buffer after the transfer.
                while flash.tier.stats().large.hits_device == 0 {
                    find(&cache, b"key");
                }
            }
            let before = flash.tier.stats().large;
            let locks = |lookup: &dyn Fn() -> bool| {
                let before = flash.tier.index_locks(key.hash);
                assert!(lookup());
                flash.tier.index_locks(key.hash) - before
            };
            let what = format!("{promotion:?}, on the device: {is_on_device}");
            let range = ByteRange { offset: 20 << 10, length: 100 };
            assert_eq!(locks(&|| cache.get_range(b"key", range).is_hit()), 2, "a range, {what}");
            assert_eq!(locks(&|| cache.get(b"key").is_hit()), 2, "{what}");
            assert_eq!(cache.peek(b"key").is_hit(), promotion == Always, "{what}");
            let large = flash.tier.stats().large;
            let hits = [large.hits_memory - before.hits_memory, large.hits_device - before.hits_device];
            assert_eq!(hits, if is_on_device { [0, 2] } else { [2, 0] }, "{what}");
        }
    }

    #[test]
    fn a_kept_probe_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let options = FlashOptions { seal_seconds: 1, ..FlashOptions::default() };
        let builder = Cache::builder().memory(ByteSize::mib(6)).clock(Clock::Manual).flash_options(options);
        let builder = builder.flash_promotion(FlashPromotion::Never);
        let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(64)).build().unwrap();
        let flash = cache.engine().default_pool.flash.as_ref().unwrap();
        let insert = |value: &[u8]| {
            let key = flash.key(b"key");
            let object = Object { key, value: &[value], client_flags: 0, is_annotated: false, expiry: 0 };
            flash.tier.insert(&object, 2).unwrap();
        };
        insert(&[1; 9000]);
        cache.maintain(Duration::from_secs(100));
        flash.tier.settle(flash.seconds(cache.engine().clock.now_ms()));
        // Its region leaves the buffer after the transfer: then each read ends after its call.
        while flash.tier.stats().large.hits_device == 0 {
            find(&cache, b"key");
        }
        let probe = flash.probe(b"key").unwrap();
        let mut reads = read(&cache, b"key");
        insert(&[2; 9000]);
        let read = |reads: &mut FlashReads| {
            let outcome = cache.read_from_flash(reads, probe, &[b"key"], ReadPurpose::Answer, || Box::new(|| ()));
            match outcome {
                ReadOutcome::Pending => None,
                ReadOutcome::Hit(item) => Some(item.to_vec()),
                other => panic!("flash has the key: {other:?}"),
            }
        };
        // The place has the old value for as long as its region lives.
        let value = std::iter::repeat_with(|| read(&mut reads)).find_map(|value| value);
        assert_eq!(value, Some(vec![2; 9000]));
    }

    #[test]
    fn keys_of_other_pools_are_read_ahead() {
        let folder = tempfile::tempdir().unwrap();
        let options = FlashOptions { seal_seconds: 1, ..FlashOptions::default() };
        let builder = Cache::builder().memory(ByteSize::mib(16)).clock(Clock::Manual).flash_options(options);
        let builder = builder.pool(PoolOptions::named("a")).pool(PoolOptions::named("b"));
        let builder = builder.flash_promotion(FlashPromotion::Always);
        let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(64)).build().unwrap();
        let pools = [cache.pool("a").unwrap(), cache.pool("b").unwrap()];
        let keys: [&[u8]; 3] = [b"of a", b"of b", b"nobody's"];
        for (pool, key) in pools.iter().zip(keys) {
            let flash = pool.0.pool.flash.as_ref().unwrap();
            let object = Object {
                key: flash.key(key),
                value: &[key, &[7; 9000]],
                client_flags: 0,
                is_annotated: false,
                expiry: 0,
            };
            flash.tier.insert(&object, 2).unwrap();
        }
        cache.maintain(Duration::from_secs(100));
        let flash = cache.engine().default_pool.flash.as_ref().unwrap();
        flash.tier.settle(flash.seconds(cache.engine().clock.now_ms()));

        let mut reads = FlashReads::default();
        let pool_of = |key: &[u8]| pools.iter().zip(keys).find(|(_, of_pool)| *of_pool == key).map(|(pool, _)| pool);
        for (number, pool) in pools.iter().enumerate() {
            let probe = pool.probe_flash(&reads, keys[number]).unwrap();
            let item = loop {
                let (keys, wake) = (&keys[number..], || -> ReadWake { Box::new(|| ()) });
                match pool.read_from_flash_over(&mut reads, probe, keys, ReadPurpose::Answer, &pool_of, wake) {
                    ReadOutcome::Hit(item) => break item,
                    ReadOutcome::Pending => {
                        assert_eq!(number, 0, "it was read ahead");
                        while !reads.collect() {
                            std::thread::yield_now();
                        }
                        assert_eq!(reads.found(), 2, "both keys were read");
                    }
                    other => panic!("{other:?}"),
                }
            };
            assert!(item.to_vec().starts_with(keys[number]));
            drop(item);
            let in_memory = pools.each_ref().map(|pool| keys.map(|key| pool.peek(key).is_hit()));
            assert_eq!(in_memory, [[true, false, false], [false, number == 1, false]], "each in its pool");
        }
        assert_eq!(reads.found(), 0);
    }

    #[test]
    fn a_promotion_counts_as_no_use() {
        let folder = tempfile::tempdir().unwrap();
        let cache = build(folder.path(), FlashPromotion::Always);
        let keys: Vec<[u8; 4]> = (0..1000_u32).map(u32::to_le_bytes).collect();
        keys.iter().for_each(|key| _ = cache.insert(key, &[7; 9000]).apply().unwrap());
        // Evicted a moment ago, which without flash would count as a use when the key returns.
        let key = keys.iter().rfind(|key| !cache.peek(&key[..]).is_hit()).expect("not all fit in memory");
        let uses = || {
            let (mut scan, mut uses) = (cache.scan().unwrap(), None);
            while scan.advance(|entry| uses = uses.or((entry.key() == key).then(|| entry.frequency()))) {}
            uses
        };
        let get = || cache.get(key).hit().map(|item| item.to_vec());
        let in_batch = || {
            let mut value = None;
            cache.get_batch(&[key], |_, lookup| value = lookup.hit().map(|item| item.to_vec()));
            value
        };
        let gets: [&dyn Fn() -> Option<Vec<u8>>; 2] = [&get, &in_batch];
        for (get, second) in gets.into_iter().zip([10, 30]) {
            assert!(!cache.peek(key).is_hit());
            for (second, counted) in [(second, 0), (second + 10, 1)] {
                cache.maintain(Duration::from_secs(second));
                assert_eq!(get(), Some(vec![7; 9000]));
                assert!(cache.peek(key).is_hit(), "it was promoted");
                assert_eq!(uses(), Some(counted));
            }
            keys.iter().for_each(|key| _ = cache.insert(key, &[8; 9000]).apply().unwrap());
            keys.iter().for_each(|key| _ = cache.insert(key, &[7; 9000]).apply().unwrap());
        }
        assert_eq!(cache.flash_stats().unwrap().promoted, 2);
    }

    #[test]
    fn a_promotion_evicts_nothing_while_flash_is_full() {
        const MAX_LOOKUPS: u64 = 400;
        let folder = tempfile::tempdir().unwrap();
        let options = FlashOptions { small_share: Some(0.5), ..FlashOptions::default() };
        let builder = Cache::builder().memory(ByteSize::mib(6)).flash_options(options);
        let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(64)).build().unwrap();
        let flash = cache.engine().default_pool.flash.as_ref().unwrap();
        let insert = |key: &[u8]| {
            let object =
                Object { key: Key::new(key), value: &[&[7; 1500]], client_flags: 0, is_annotated: false, expiry: 0 };
            flash.tier.insert(&object, 2)
        };
        let mut found = [b"first", b"other"].map(|key| {
            insert(key).unwrap();
            read(&cache, key)
        });
        assert!(matches!(resolve(&cache, &mut found[0], b"first"), ReadOutcome::Hit(_)));
        assert!(cache.peek(b"first").is_hit());

        let without_maintenance = flash.maintaining.lock().unwrap();
        (0..10_000_u32).take_while(|_| flash.tier.has_space()).for_each(|number| _ = insert(&number.to_le_bytes()));
        assert!(!flash.tier.has_space() && flash.tier.stats().drops.total() == 0);
        assert!(matches!(resolve(&cache, &mut found[1], b"other"), ReadOutcome::Hit(_)));
        let mut answers = Vec::new();
        cache.get_batch(&[b"other"], |_, lookup| answers.push(lookup.is_hit()));
        assert_eq!((answers, cache.peek(b"other").is_hit()), (vec![true], false), "it stays on flash");
        // Evictions in the background wait for longer than a device stalls, unless writers wait for them.
        let store = &cache.engine().default_pool.store;
        let full = (1..=MAX_LOOKUPS).filter_map(|now_ms| flash.full_for(now_ms)).max().expect("flash is full");
        assert!(flash.waits_ahead_of_need(store, Duration::ZERO, full + Duration::from_secs(600)));
        assert!(cache.get_with_token(b"other").is_hit() && cache.peek(b"other").is_hit(), "a token needs it in memory");
        drop(without_maintenance);
    }

    #[test]
    fn a_thread_local_destructor_reads_flash() {
        struct AtEnd(Cache, Vec<[u8; 4]>, std::sync::mpsc::Sender<usize>);
        impl Drop for AtEnd {
            fn drop(&mut self) {
                self.2.send(self.1.iter().filter(|key| self.0.get(&key[..]).is_hit()).count()).unwrap();
            }
        }
        thread_local!(static AT_END: std::cell::OnceCell<AtEnd> = const { std::cell::OnceCell::new() });
        let folder = tempfile::tempdir().unwrap();
        let cache = build(folder.path(), FlashPromotion::Never);
        let keys: Vec<[u8; 4]> = (0..1000_u32).map(u32::to_le_bytes).collect();
        keys.iter().for_each(|key| _ = cache.insert(key, &[7; 9000]).apply().unwrap());
        let (sender, found) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // Destructors run from the last to the first that was needed.
            assert!(AT_END.with(|at_end| at_end.set(AtEnd(cache.clone(), keys, sender))).is_ok());
            assert!(cache.get(&0_u32.to_le_bytes()).is_hit());
        });
        assert_eq!(found.recv(), Ok(1000));
    }

    #[test]
    fn handles_of_flash_hits_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let cache = build(folder.path(), FlashPromotion::Never);
        let flash = cache.engine().default_pool.flash.as_ref().unwrap();
        let value = vec![7; 9000];
        let object =
            Object { key: Key::new(b"key"), value: &[&value], client_flags: 3, is_annotated: false, expiry: 0 };
        flash.tier.insert(&object, 2).unwrap();
        let limit = flash.reads.max_bytes();
        let handle = || cache.get(b"key").hit().unwrap().to_handle();
        let mut handles: Vec<_> = (0..limit / 9000).map(|_| handle().unwrap()).collect();
        let refusal = handle().err();
        assert_eq!(refusal, Some(Error::PinnedLimit { pinned_bytes: limit / 9000 * 9000, limit }));
        handles.pop();
        let last = handle().unwrap();
        drop(handles);
        drop(cache);
        assert_eq!((last.slice_at(0), last.slice_at(8999), last.flags()), (&value[..], &value[8999..], 3));
        build(folder.path(), FlashPromotion::Never);
    }

    #[test]
    fn callbacks_of_other_reads_run_unpinned() {
        use crate::flash::pending_reads::{FlashRead, Start, WhenBusy};
        use std::sync::{Mutex, mpsc};
        const RELEASE_STEP: Duration = Duration::from_secs(1);
        let folder = tempfile::tempdir().unwrap();
        let cache = build(folder.path(), FlashPromotion::Always);
        let flash = cache.engine().default_pool.flash.as_ref().unwrap();
        let insert = |key: &[u8]| {
            let object =
                Object { key: Key::new(key), value: &[&[7; 9000]], client_flags: 0, is_annotated: false, expiry: 0 };
            flash.tier.insert(&object, 2).unwrap();
        };
        let start = |key: &[u8], when_busy, on_read| {
            let key = Key::new(key);
            flash.reads.start(key, None, flash.tier.probe(key.hash).unwrap(), 2, when_busy, on_read)
        };
        // Values that others hold take all permits.
        let held: Arc<Mutex<Vec<FlashRead>>> = Arc::default();
        for number in 0..100_000_u32 {
            insert(&number.to_le_bytes());
            let theirs = Arc::clone(&held);
            let on_read = Box::new(move |read| theirs.lock().unwrap().push(read));
            if start(&number.to_le_bytes(), WhenBusy::Refuse, on_read) == Start::Refused {
                break;
            }
        }
        // In a buffer that is not written yet: a read of it ends at once.
        insert(b"got");
        insert(b"other");
        let (sender, results) = mpsc::channel();
        std::thread::scope(|scope| {
            let getter = scope.spawn(|| cache.get(b"got").is_hit());
            // The getter is the first in the queue: it holds no value, and the next permit is its own.
            let deadline = Instant::now() + Duration::from_secs(120);
            while flash.reads.queued() == 0 {
                assert!(Instant::now() < deadline, "the getter queues");
                std::thread::yield_now();
            }
            let pool = Arc::clone(&cache.engine().default_pool);
            let on_read = Box::new(move |read: FlashRead| {
                sender.send((pool.participant().is_pinned(), read.value().is_some())).unwrap();
            });
            assert_eq!(start(b"other", WhenBusy::Queue, on_read), Start::Queued);
            // A read that has not ended yet is not among those held, and one without a value has no permit.
            let mut released = Instant::now() - RELEASE_STEP;
            while !getter.is_finished() {
                assert!(Instant::now() < deadline, "the getter has its permit");
                if released.elapsed() >= RELEASE_STEP {
                    let one = held.lock().unwrap().pop();
                    drop(one);
                    released = Instant::now();
                }
                std::thread::yield_now();
            }
            assert!(getter.join().unwrap());
            assert!(cache.peek(b"got").is_hit(), "it was promoted");
            let (is_pinned, is_hit) = results.recv_timeout(Duration::from_secs(120)).unwrap();
            assert!(is_hit);
            assert!(!is_pinned, "the callback of another read runs while the getter's item is alive");
        });
        held.lock().unwrap().clear();
    }
}
