//! Changes that depend on whether their key is present, over both tiers.
//!
//! ```text
//! try, which creates nothing ---> memory has the key: the answer
//!     |              ^   ^
//!     | absent       |   +---- promoted ------- flash has it
//!     v              |                             ^
//! load ticket? ------+ memory has the key          |
//!     +-------------------------------> search flash --- not there ---> try, which may create the key
//!                    ^                                                     | the ticket is void
//!                    +-----------------------------------------------------+
//! ```
//! "Absent" is an answer only with a ticket that was taken before the search, and is valid after the try: another
//! thread may store a value and evict it to flash at any time. The protocol is described in `docs/concurrency.md`,
//! "Flash: changes".

use crate::access::Access;
use crate::error::{Error, WaitReason};
use crate::flash::absence_ticket::AbsenceTicket;
use crate::flash::pool_flash::PoolFlash;
use crate::flash::read::{FlashProbe, FlashReads};
use crate::flash::resolve::{ReadOutcome, ReadPurpose};
use crate::lookup::Lookup;
use crate::retry::{MAX_WRITE_TIME, Patience, Waiting};
use ebbtide_store::{Error as StoreError, Mode, Stored, Written};
use std::thread;
use std::time::{Duration, Instant};

/// Between two rounds of a change.
const ROUND_PAUSE: Duration = Duration::from_micros(50);

/// Whether a key that memory does not have is absent from flash, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// There is no flash: the key is absent.
    Certain,
    /// Flash may have it: the try creates nothing.
    Unknown,
    /// The key is absent, unless it has changed since this load ticket: then the try creates nothing.
    Since(u64),
}

impl Absence {
    /// `creation`, if the try may create the key.
    pub fn allowed<T>(self, creation: Option<T>) -> Option<T> {
        creation.filter(|_| self != Self::Unknown)
    }

    pub fn ticket(self) -> Option<u64> {
        if let Self::Since(ticket) = self { Some(ticket) } else { None }
    }
}

/// The result of a try.
#[derive(Debug)]
pub(crate) enum Tried<T> {
    /// Memory has the key, or it was created.
    Done(T),
    /// Memory does not have the key: the answer if flash does not have it either.
    Absent(T),
}

impl<T> Tried<T> {
    pub fn of(answer: T, is_absent: bool) -> Self {
        if is_absent { Self::Absent(answer) } else { Self::Done(answer) }
    }

    fn into_answer(self) -> T {
        match self {
            Self::Done(answer) | Self::Absent(answer) => answer,
        }
    }
}

impl Access {
    /// Runs a change that depends on whether its key is present, with evictions where it needs memory. `change` gets
    /// the time and what it may create.
    ///
    /// # Errors
    /// The errors of the change. `OutOfMemory`, with nothing changed, if flash has the value and memory has no
    /// space for it. `WouldWait` of a handle that does not wait also if flash must be searched: see
    /// [`ReadPurpose::Change`].
    pub fn change<T>(
        &self,
        key: &[u8],
        mut change: impl FnMut(u64, Absence) -> Result<Tried<T>, StoreError>,
    ) -> Result<T, Error> {
        let Some(flash) = &self.pool.flash else {
            return self.try_change(Absence::Certain, &mut change).map(Tried::into_answer);
        };
        let mut started = None;
        // Ends: at the bound, if others change or evict the key in each round.
        loop {
            if let Tried::Done(answer) = self.try_change(Absence::Unknown, &mut change)? {
                return Ok(answer);
            }
            if let Some(ticket) = self.search(flash, key)? {
                match self.try_change(Absence::Since(ticket.number()), &mut change)? {
                    Tried::Done(answer) => return Ok(answer),
                    Tried::Absent(answer) if ticket.is_valid() => {
                        self.leave_ticket(flash, ticket);
                        return Ok(answer);
                    }
                    Tried::Absent(_) => {}
                }
            }
            self.check_rounds(&mut started)?;
        }
    }

    /// As [`Access::change`], for a write of this mode, other than a set. `write` gets the time and the mode of a try.
    pub fn change_by_write(
        &self,
        key: &[u8],
        mode: Mode,
        mut write: impl FnMut(u64, Mode) -> Result<Written, StoreError>,
    ) -> Result<Written, Error> {
        if let Mode::Load(_) | Mode::Reload(_) = mode {
            self.promote_if_on_flash(key)?;
            let participant = self.pool.participant();
            return self.pool.write_with_eviction(self.waiting(), &participant, |now_ms| write(now_ms, mode));
        }
        self.change(key, |now_ms, absence| match (mode, absence) {
            (Mode::Add, Absence::Unknown) => Ok(Tried::of(Stored::NotStored.into(), !self.peek(key).is_hit())),
            (Mode::Add, Absence::Since(ticket)) => {
                let written = write(now_ms, Mode::AddSince(ticket))?;
                let is_refused = written.stored == Stored::Exists;
                Ok(Tried::of(if is_refused { Stored::NotStored.into() } else { written }, is_refused))
            }
            _ => {
                let written = write(now_ms, mode)?;
                Ok(Tried::of(written, matches!(written.stored, Stored::NotStored | Stored::NotFound)))
            }
        })
    }

    /// Looks a key up in both tiers. A hit is in memory, where the value of flash was promoted to.
    ///
    /// # Errors
    /// As [`Access::change`].
    pub fn find(&self, key: &[u8]) -> Result<Lookup<'_>, Error> {
        let Some(flash) = &self.pool.flash else { return Ok(self.get_in_memory(key)) };
        let mut started = None;
        // Ends: as in `change`.
        loop {
            let lookup = self.get_in_memory(key);
            if lookup.is_hit() {
                return Ok(lookup);
            }
            if let Some(ticket) = self.search(flash, key)?.filter(AbsenceTicket::is_valid) {
                self.leave_ticket(flash, ticket);
                return Ok(Lookup::Miss);
            }
            self.check_rounds(&mut started)?;
        }
    }

    /// Starts the search for a change of a key by a handle that does not wait, unless it has started. An outcome ends
    /// it.
    pub fn begin_search(
        &self,
        flash: &PoolFlash,
        reads: &mut FlashReads,
        probe: &mut FlashProbe,
        key: &[u8],
    ) -> Option<ReadOutcome<'_>> {
        if reads.ticket.as_ref().is_some_and(|ticket| ticket.is_of(&self.pool.store, key)) {
            return None;
        }
        // Reads that began before the ticket do not show that the key is absent.
        if !reads.collect() {
            return Some(ReadOutcome::Pending);
        }
        reads.forget_miss(flash.key(key));
        match self.take_ticket(key) {
            Ok(Some(ticket)) if ticket.is_certain() => {
                self.leave_ticket(flash, ticket);
                return Some(ReadOutcome::Absent);
            }
            Ok(Some(ticket)) => reads.ticket = Some(ticket),
            Ok(None) | Err(_) => return Some(ReadOutcome::MemoryDecides),
        }
        probe.place = None;
        None
    }

    /// Ends a search, whose outcome is not `Pending`.
    pub fn end_search(&self, flash: &PoolFlash, reads: &mut FlashReads, outcome: &ReadOutcome<'_>) {
        let ticket = reads.ticket.take();
        if let (Some(ticket), ReadOutcome::Absent) = (ticket, outcome) {
            flash.absent_keys.put(self.pool.participant().number(), ticket);
        }
    }

    fn try_change<T>(
        &self,
        absence: Absence,
        change: &mut impl FnMut(u64, Absence) -> Result<Tried<T>, StoreError>,
    ) -> Result<Tried<T>, Error> {
        let participant = self.pool.participant();
        self.pool.write_with_eviction(self.waiting(), &participant, |now_ms| change(now_ms, absence))
    }

    /// Searches flash for a key that memory does not have, and promotes its value. A ticket from before the search if
    /// flash does not have it; none if memory may have it now.
    fn search(&self, flash: &PoolFlash, key: &[u8]) -> Result<Option<AbsenceTicket>, Error> {
        if !self.waits {
            let known = flash.absent_keys.take(self.pool.participant().number());
            let known = known.filter(|ticket| ticket.is_of(&self.pool.store, key) && ticket.is_valid());
            if known.is_some() {
                return Ok(known);
            }
        }
        let Some(ticket) = self.take_ticket(key)? else { return Ok(None) };
        let Some(probe) = flash.probe(key).filter(|_| !ticket.is_certain()) else { return Ok(Some(ticket)) };
        if !self.waits {
            return Err(self.would_search());
        }
        match self.wait_for_flash(flash, &mut FlashReads::default(), probe, &[key], ReadPurpose::Memory) {
            ReadOutcome::Absent => Ok(Some(ticket)),
            ReadOutcome::Refused(error) => Err(error),
            ReadOutcome::Pending | ReadOutcome::Hit(_) | ReadOutcome::MemoryDecides => Ok(None),
        }
    }

    /// A command of a handle that does not wait may be several changes of one key: append, and add if that is refused.
    fn leave_ticket(&self, flash: &PoolFlash, ticket: AbsenceTicket) {
        if !self.waits {
            flash.absent_keys.put(self.pool.participant().number(), ticket);
        }
    }

    fn take_ticket(&self, key: &[u8]) -> Result<Option<AbsenceTicket>, Error> {
        AbsenceTicket::take(&self.pool.store, key, self.pool.clock.now_ms()).map_err(Error::from_store)
    }

    fn check_rounds(&self, started: &mut Option<Instant>) -> Result<(), Error> {
        match self.waits && started.get_or_insert_with(Instant::now).elapsed() < MAX_WRITE_TIME {
            true => {
                // Flash may be too busy to answer.
                thread::sleep(ROUND_PAUSE);
                Ok(())
            }
            false => Err(self.would_search()),
        }
    }

    fn would_search(&self) -> Error {
        let reason = WaitReason::Eviction;
        match self.waiting() {
            Waiting::Answers(Patience::Whole | Patience::Again | Patience::WithoutFlash) => Error::WouldWait { reason },
            Waiting::Answers(Patience::Spent) | Waiting::Sleeps => Error::OutOfMemory { reason: reason.explain() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::byte_size::ByteSize;
    use crate::cache::Cache;
    use crate::clock::Clock;
    use crate::flash::promotion::FlashPromotion;
    use crate::memcached::FlashOptions;
    use ebbtide_flash::Object;
    use ebbtide_flash::device::{Delivery, FaultyDevice};
    use ebbtide_store::{Policy, Ttl, Write};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    const KEY: &[u8] = b"key";
    const LIFE: Ttl = Ttl::Seconds(100);

    fn build(folder: &std::path::Path) -> Cache {
        let builder = Cache::builder().memory(ByteSize::mib(6)).clock(Clock::Manual);
        let builder = builder.flash_promotion(FlashPromotion::Never).policy(Policy::Fifo);
        builder.flash(folder.join("flash"), ByteSize::mib(256)).build().unwrap()
    }

    fn set(cache: &Cache, value: u8, ttl: Ttl) {
        cache.insert(KEY, &[value; 6000]).ttl(ttl).apply().unwrap();
    }

    /// Another thread evicts the key. The last segment of each TTL stays, so it writes values of both.
    fn evict(cache: &Cache) {
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        let fill = || {
            while cache.peek(KEY).is_hit() {
                let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
                let ttl = [Ttl::Never, Ttl::Seconds(104)][number as usize % 2];
                cache.insert(&number.to_le_bytes(), &[9; 6000]).ttl(ttl).apply().unwrap();
            }
        };
        std::thread::scope(|scope| scope.spawn(fill).join().unwrap());
    }

    /// The first byte of the value, and its length.
    fn found(cache: &Cache) -> Option<(u8, usize)> {
        cache.get(KEY).hit().map(|item| (item.to_vec()[0], item.len()))
    }

    #[test]
    fn a_value_evicted_before_each_try_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let cache = build(folder.path());
        let pool = &cache.engine().default_pool;
        let participant = pool.participant();
        set(&cache, 1, Ttl::Never);
        let mut tries = Vec::new();
        let touched = cache.0.change(KEY, |now_ms, absence| {
            if tries.len() < 3 {
                evict(&cache);
            }
            tries.push(absence);
            let is_touched = pool.store.touch(&participant, KEY, pool.store.hash(KEY), Ttl::seconds(70), now_ms)?;
            Ok(Tried::of(is_touched, !is_touched))
        });
        // Maintenance may evict it once more.
        assert_eq!(touched, Ok(true));
        assert!(tries.len() >= 4 && tries.iter().all(|absence| *absence == Absence::Unknown), "{tries:?}");
        cache.verify();
    }

    #[test]
    fn nothing_replaces_a_value_evicted_after_the_search() {
        let folder = tempfile::tempdir().unwrap();
        let cache = build(folder.path());
        let pool = &cache.engine().default_pool;
        let participant = pool.participant();
        let mut is_first = true;
        let added = cache.0.change_by_write(KEY, Mode::Add, |now_ms, mode| {
            if std::mem::take(&mut is_first) {
                set(&cache, 1, Ttl::Never);
                evict(&cache);
            }
            let (hash, flags, ttl) = (pool.store.hash(KEY), 0.into(), Ttl::Never);
            let write = Write { key: KEY, hash, value: &[2; 6000], flags, ttl, mode, token: None };
            pool.store.write(&participant, &write, now_ms)
        });
        assert_eq!((added.map(|written| written.stored), is_first), (Ok(Stored::NotStored), false));
        assert_eq!(found(&cache), Some((1, 6000)));
        cache.verify();
    }

    /// Searches flash for the key as a caller does that does not wait.
    fn search(handle: &Cache) {
        search_with(handle, FlashReads::default());
    }

    fn search_with(handle: &Cache, mut reads: FlashReads) {
        // Ends: a read ends.
        loop {
            let Some(probe) = handle.probe_flash(&reads, KEY) else { return };
            let outcome = handle.read_from_flash(&mut reads, probe, &[KEY], ReadPurpose::Change, || Box::new(|| ()));
            if !matches!(outcome, ReadOutcome::Pending) {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// A cache whose flash has an entry of the key that has expired: only a search knows that the key is absent.
    fn with_expired(folder: &std::path::Path) -> Cache {
        let cache = build(folder);
        set(&cache, 1, LIFE);
        evict(&cache);
        // Its region has objects that live longer.
        cache.maintain(Duration::from_secs(102));
        assert!(cache.engine().default_pool.flash.as_ref().unwrap().probe(KEY).is_some());
        cache
    }

    #[test]
    fn a_non_waiting_handle_creates_after_a_search() {
        let folder = tempfile::tempdir().unwrap();
        let cache = with_expired(folder.path());
        let handle = cache.without_waiting();
        let add = || handle.insert(KEY, &[2; 6000]).mode(Mode::Add).apply();
        let would_wait = Err(Error::WouldWait { reason: WaitReason::Eviction });
        assert_eq!(add(), would_wait);
        search(&handle);
        // Append and add are one command.
        assert_eq!(handle.insert(KEY, b"more").mode(Mode::Append).apply(), Ok(Stored::NotStored));
        assert_eq!(add(), Ok(Stored::Stored));
        assert_eq!((add(), found(&cache)), (Ok(Stored::NotStored), Some((2, 6000))));
        // Refused when the caller does not wait any longer.
        cache.delete(KEY);
        handle.set_patience(Patience::Spent);
        set(&cache, 3, Ttl::Never);
        evict(&cache);
        assert!(matches!(add(), Err(Error::OutOfMemory { .. })));
        assert_eq!(found(&cache), Some((3, 6000)));
        cache.verify();
    }

    #[test]
    fn storing_the_key_invalidates_a_search() {
        let folder = tempfile::tempdir().unwrap();
        let cache = with_expired(folder.path());
        let handle = cache.without_waiting();
        search(&handle);
        set(&cache, 3, Ttl::Never);
        evict(&cache);
        let add = || handle.insert(KEY, &[2; 6000]).mode(Mode::Add).apply();
        assert_eq!(add(), Err(Error::WouldWait { reason: WaitReason::Eviction }));
        assert_eq!(found(&cache), Some((3, 6000)));
        search(&handle);
        assert_eq!(add(), Ok(Stored::NotStored), "it was promoted");
        cache.verify();
    }

    #[test]
    fn a_read_from_before_the_search_shows_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let cache = with_expired(folder.path());
        let handle = cache.without_waiting();
        let mut reads = FlashReads::default();
        let probe = handle.probe_flash(&reads, KEY).expect("its entry has expired");
        handle.prefetch(&mut reads, probe, &[KEY], Box::new(|| ()));
        while !reads.collect() {
            std::thread::yield_now();
        }
        assert_eq!((reads.ended.len(), reads.found()), (1, 0));
        set(&cache, 3, Ttl::Never);
        evict(&cache);
        search_with(&handle, reads);
        assert_eq!(handle.insert(KEY, &[2; 6000]).mode(Mode::Add).apply(), Ok(Stored::NotStored));
        assert_eq!(found(&cache), Some((3, 6000)));
        cache.verify();
    }

    /// Between the ticket and the search another caller promotes the value, and flash reclaims its copy. It is evicted
    /// again before the change.
    #[test]
    fn values_promoted_and_evicted_during_search_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let cache = build(folder.path());
        let handle = cache.without_waiting();
        let flash = cache.engine().default_pool.flash.as_ref().unwrap();
        set(&cache, 1, Ttl::Never);
        evict(&cache);
        let mut reads = FlashReads::default();
        let mut probe = handle.probe_flash(&reads, KEY).expect("it was evicted");
        assert!(handle.0.begin_search(flash, &mut reads, &mut probe, KEY).is_none());
        assert!(cache.get_with_token(KEY).is_hit());
        flash.tier.remove(flash.key(KEY).hash);
        let outcome = handle.read_from_flash(&mut reads, probe, &[KEY], ReadPurpose::Change, || Box::new(|| ()));
        assert!(matches!(outcome, ReadOutcome::Absent), "{outcome:?}");
        evict(&cache);
        let added = handle.insert(KEY, &[2; 6000]).mode(Mode::Add).apply();
        assert_eq!(added, Err(Error::WouldWait { reason: WaitReason::Eviction }));
        assert_eq!(found(&cache), Some((1, 6000)));
        cache.verify();
    }

    /// An item in memory decides when its key expires, even if a copy on flash expires later.
    #[test]
    fn expiry_in_memory_makes_a_key_absent() {
        let folder = tempfile::tempdir().unwrap();
        let cache = build(folder.path());
        let handle = cache.without_waiting();
        let flash = cache.engine().default_pool.flash.as_ref().unwrap();
        cache.insert(KEY, b"1").ttl(Ttl::seconds(100_500)).apply().unwrap();
        let key = flash.key(KEY);
        let object = Object { key, value: &[b"1"], client_flags: 0, is_annotated: false, expiry: 104_000 };
        flash.tier.insert(&object, 2).unwrap();
        // Its segment has items that live longer, so that maintenance leaves it alone.
        for number in 0..100_u32 {
            cache.insert(&number.to_be_bytes(), &[9; 600]).ttl(Ttl::seconds(104_000)).apply().unwrap();
        }
        cache.maintain(Duration::from_secs(100_600));
        assert!(!cache.peek(KEY).is_hit() && flash.probe(KEY).is_some());
        search(&handle);
        assert_eq!(handle.touch(KEY, LIFE), Ok(false));
        assert_eq!(cache.increment(KEY, 1), Ok(None));
        assert!(!cache.get_with_token(KEY).is_hit());
        assert_eq!(cache.insert(KEY, &[2; 6000]).mode(Mode::Add).apply(), Ok(Stored::Stored));
        assert_eq!(found(&cache), Some((2, 6000)));
        cache.verify();
    }

    #[test]
    fn a_refused_device_read_is_no_absence() {
        let device = Arc::new(FaultyDevice::new(64 << 20, 7, Delivery::Later { queue_depth: 8 }));
        let options = FlashOptions { seal_seconds: 1, ..FlashOptions::default() };
        let builder = Cache::builder().memory(ByteSize::mib(6)).policy(Policy::Fifo).flash_options(options);
        let builder = builder.flash_promotion(FlashPromotion::Never).max_value(ByteSize::kib(64));
        let cache = builder.flash_device(device.clone()).build().unwrap();
        let handle = cache.without_waiting();
        set(&cache, 1, Ttl::Never);
        (0..3000_u32).for_each(|number| _ = cache.insert(&number.to_le_bytes(), &[9; 6000]).apply().unwrap());
        let large = || cache.flash_stats().unwrap().tier.large;
        let is_on_device = || {
            let before = large().hits_device;
            !cache.peek(KEY).is_hit() && cache.get(KEY).is_hit() && large().hits_device > before
        };
        while !is_on_device() {
            thread::sleep(Duration::from_millis(10));
        }
        device.stall();
        let read_ahead = |number: u32| {
            let (key, mut reads) = (number.to_le_bytes(), FlashReads::default());
            let probe = handle.probe_flash(&reads, &key)?;
            handle.prefetch(&mut reads, probe, &[&key], Box::new(|| ()));
            Some(reads)
        };
        let others: Vec<_> = (0..100).filter_map(read_ahead).collect();
        search(&handle);
        assert!(large().misses_refused > 0, "{:?}", large());
        let would_wait = Error::WouldWait { reason: WaitReason::Eviction };
        assert_eq!(handle.insert(KEY, &[2; 6000]).mode(Mode::Add).apply(), Err(would_wait));
        let is_evicted =
            |key: &[u8]| !cache.peek(key).is_hit() && handle.probe_flash(&FlashReads::default(), key).is_some();
        let evicted = (100..3000_u32).map(u32::to_le_bytes).find(|key| is_evicted(key)).expect("most of them are");
        let deleted = handle.try_delete(&mut FlashReads::default(), &evicted, || Box::new(|| ()));
        assert_eq!(deleted, Some(true), "the answer is that of the index");
        drop(others);
        device.resume();
        // A get misses while the queue is full.
        let look = |_| found(&cache).or_else(|| (thread::sleep(Duration::from_millis(1)), None).1);
        assert_eq!((0..60_000).find_map(look), Some((1, 6000)));
    }
}
