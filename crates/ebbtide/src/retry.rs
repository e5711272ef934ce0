//! Writes that find no memory: evictions, and the waits between one try and the next.
//!
//! ```text
//! write ---no segment---> evict a slice ---done------> write again
//!                             |
//!                             +---would wait---> the blocking API sleeps, and tries again until a bound in time
//!                                                a handle that does not wait answers `WouldWait`: its caller waits
//! ```
//! Every wait is bounded in time, not in tries: a thread that is waited for may not be running. The table of bounds is
//! in `docs/concurrency.md`, "What a write waits for".

use crate::error::{Error, WaitReason};
use crate::pool_state::PoolState;
use crate::removal_events;
use ebbtide_store::{Blocker, Error as StoreError, Participant, Progress, Write, Written};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long a write waits for another thread that has memory in hand: far longer than a thread is off its processor.
const MAX_THREAD_WAIT: Duration = Duration::from_secs(2);
/// How long a write waits for memory that handles or uploads hold, which may never be released.
const MAX_HELD_WAIT: Duration = Duration::from_millis(100);
/// A write that gets no segment because other writers take all evicted ones is refused after this.
pub(crate) const MAX_WRITE_TIME: Duration = Duration::from_secs(10);
/// Time after which a handle that does not wait pauses its eviction, for the other clients of its thread.
const MAX_WORK: Duration = Duration::from_millis(5);
/// Time for evictions of the last try of such a handle. The write is refused then.
const MAX_LAST_WORK: Duration = Duration::from_millis(50);
/// Before it sleeps or answers, a write gives its processor away for this long: a slice of eviction takes as long.
const MAX_YIELD: Duration = Duration::from_micros(100);
/// How long it sleeps between two tries: a quarter of what it has waited, within these bounds.
const MIN_SLEEP: Duration = Duration::from_micros(50);
const MAX_SLEEP: Duration = Duration::from_micros(500);
/// How long a long value waits behind others of which none ends, and in all.
const MAX_UPLOAD_STALL: Duration = Duration::from_secs(2);
const MAX_UPLOAD_WAIT: Duration = Duration::from_secs(10);

/// Behaviour of a handle that does not wait, where an operation would have to; see `Pool::set_patience`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Patience {
    /// It answers [`Error::WouldWait`], and nothing is done.
    #[default]
    Whole,
    /// As `Whole`, for an operation that has answered that before: it does not give its processor to the awaited thread
    /// first, because its caller comes again, and has other work.
    Again,
    /// As `Whole`, without waits for flash: an evicted value for which flash has no space is lost.
    WithoutFlash,
    /// It is refused as [`Error::OutOfMemory`].
    Spent,
}

impl Patience {
    /// The patience after an operation has answered `WouldWait` until its caller's bound.
    pub fn after(self, reason: WaitReason) -> Self {
        if reason == WaitReason::Demotion { Self::WithoutFlash } else { Self::Spent }
    }
}

/// The patience of a handle.
#[derive(Debug, Default)]
pub(crate) struct PatienceCell(AtomicU8);

impl Clone for PatienceCell {
    fn clone(&self) -> Self {
        Self(AtomicU8::new(self.0.load(Ordering::Relaxed)))
    }
}

impl PatienceCell {
    pub fn set(&self, patience: Patience) {
        self.0.store(patience as u8, Ordering::Relaxed);
    }

    pub fn get(&self) -> Patience {
        match self.0.load(Ordering::Relaxed) {
            0 => Patience::Whole,
            1 => Patience::Again,
            2 => Patience::WithoutFlash,
            _ => Patience::Spent,
        }
    }
}

/// Behaviour of an operation that would have to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    Sleeps,
    Answers(Patience),
}

/// How long a write has evicted and waited.
struct Attempt {
    waiting: Waiting,
    /// From the first time that it found no segment.
    started: Option<Instant>,
    /// The awaited event, and since when.
    waits: Option<(WaitReason, Instant)>,
}

impl Attempt {
    fn new(waiting: Waiting) -> Self {
        Self { waiting, started: None, waits: None }
    }

    fn patience(&self) -> Patience {
        match self.waiting {
            // The loop below ends its sleeps by itself.
            Waiting::Sleeps => Patience::Whole,
            Waiting::Answers(patience) => patience,
        }
    }

    /// Something was evicted.
    fn record_progress(&mut self, now: Instant) -> Result<(), Error> {
        self.waits = None;
        let worked = now - *self.started.get_or_insert(now);
        let max = match self.waiting {
            Waiting::Sleeps => MAX_WRITE_TIME,
            Waiting::Answers(Patience::Spent) => MAX_LAST_WORK,
            Waiting::Answers(_) => MAX_WORK,
        };
        match self.waiting {
            _ if worked <= max => Ok(()),
            Waiting::Sleeps | Waiting::Answers(Patience::Spent) => {
                Err(Error::OutOfMemory { reason: "others take whatever is evicted" })
            }
            Waiting::Answers(_) => Err(Error::WouldWait { reason: WaitReason::Eviction }),
        }
    }

    /// Waits a little for `reason`. An error says that this is over.
    fn wait(&mut self, reason: WaitReason, limit: Duration, now: Instant) -> Result<(), Error> {
        let started = *self.started.get_or_insert(now);
        let since = match self.waits {
            Some((before, since)) if before == reason => since,
            _ => self.waits.insert((reason, now)).1,
        };
        let waited = now - since;
        // The awaited event may change at each look: yields are bounded in sum.
        let is_brief = matches!(reason, WaitReason::Eviction | WaitReason::Reader)
            && self.waiting != Waiting::Answers(Patience::Again)
            && waited < MAX_YIELD
            && (self.waiting == Waiting::Sleeps || now - started < MAX_WORK);
        match self.waiting {
            Waiting::Answers(Patience::Spent) if !is_brief => Err(Error::OutOfMemory { reason: reason.explain() }),
            Waiting::Answers(_) if !is_brief => Err(Error::WouldWait { reason }),
            Waiting::Sleeps if waited > limit || now - started > MAX_WRITE_TIME => {
                Err(Error::OutOfMemory { reason: reason.explain() })
            }
            Waiting::Sleeps if !is_brief => {
                thread::sleep((waited / 4).clamp(MIN_SLEEP, MAX_SLEEP));
                Ok(())
            }
            _ => {
                thread::yield_now();
                Ok(())
            }
        }
    }
}

impl PoolState {
    pub fn wait_limit(&self, reason: WaitReason) -> Duration {
        match reason {
            WaitReason::Eviction | WaitReason::Reader => MAX_THREAD_WAIT,
            WaitReason::Held => MAX_HELD_WAIT,
            WaitReason::Demotion => self.flash.as_ref().map_or(Duration::ZERO, |flash| flash.demotion_wait),
        }
    }

    /// Begins an upload that may have to wait for others: as long as these end, and a while longer.
    pub(crate) fn in_upload_order<T>(&self, begin: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let started = Instant::now();
        let (mut ended_before, mut since) = (self.store.uploads_ended(), started);
        loop {
            match begin() {
                // Other threads cannot use the memory that this thread holds.
                Err(error @ StoreError::UploadLimit { .. }) if !self.participant().is_pinned() => {
                    let (ended, now) = (self.store.uploads_ended(), Instant::now());
                    since = if ended == ended_before { since } else { now };
                    ended_before = ended;
                    if now - since > MAX_UPLOAD_STALL || now - started > MAX_UPLOAD_WAIT {
                        return Err(error);
                    }
                    thread::sleep(MAX_SLEEP);
                }
                other => return other,
            }
        }
    }

    /// A try of a write of a value in one piece; if the caller may wait, a write that makes a long value longer waits
    /// for its turn.
    pub(crate) fn write_in_upload_order(
        &self,
        waiting: Waiting,
        participant: &Participant,
        write: &Write<'_>,
        now_ms: u64,
    ) -> Result<Written, StoreError> {
        match waiting == Waiting::Sleeps && write.mode.extends() {
            true => self.in_upload_order(|| self.store.write(participant, write, self.clock.now_ms())),
            false => self.store.write(participant, write, now_ms),
        }
    }

    /// Runs a write until it has found memory, or would have to wait, or has waited long enough.
    pub(crate) fn write_with_eviction<T>(
        &self,
        waiting: Waiting,
        participant: &Participant,
        write: impl FnMut(u64) -> Result<T, StoreError>,
    ) -> Result<T, Error> {
        let may_go_on = || {
            if removal_events::are_many() {
                self.tell_removals(participant);
            }
            true
        };
        let written = self.write_with_eviction_while(may_go_on, waiting, participant, write);
        self.tell_removals(participant);
        written
    }

    /// As `write_with_eviction`, and ends once `may_go_on` is false: asked before each try and each slice of evictions.
    pub(crate) fn write_with_eviction_while<T>(
        &self,
        may_go_on: impl Fn() -> bool,
        waiting: Waiting,
        participant: &Participant,
        mut write: impl FnMut(u64) -> Result<T, StoreError>,
    ) -> Result<T, Error> {
        if self.is_removed() {
            return Err(Error::PoolRemoved { name: self.name.to_string() });
        }
        let mut attempt = Attempt::new(waiting);
        let mut patience = attempt.patience();
        loop {
            if !may_go_on() {
                return Err(Error::OutOfMemory { reason: WaitReason::Demotion.explain() });
            }
            // Waits in it have bounds, and a closer waits for longer.
            let Some(_change) = participant.begin_change() else { return Err(Error::Closed) };
            let now_ms = self.clock.now_ms();
            let count = match write(now_ms) {
                Ok(done) => {
                    self.after_write(participant, now_ms);
                    return Ok(done);
                }
                Err(StoreError::NeedSegment) => 1,
                Err(StoreError::NeedSegments { count }) => count,
                Err(other) => return Err(Error::from_store(other)),
            };
            if participant.is_pinned() {
                return Err(Error::OutOfMemory { reason: "this thread holds a borrowed item: drop it first" });
            }
            match self.evict_slice(patience, participant, now_ms, count) {
                Ok(()) => attempt.record_progress(Instant::now())?,
                Err(WaitReason::Held) if !self.store.options().evicts => {
                    return Err(Error::OutOfMemory { reason: "the memory is full" });
                }
                Err(reason) => match attempt.wait(reason, self.wait_limit(reason), Instant::now()) {
                    // An evicted value is lost if flash does not take it in time.
                    Err(Error::OutOfMemory { .. }) if reason == WaitReason::Demotion => {
                        patience = patience.after(reason);
                    }
                    waited => waited?,
                },
            }
        }
    }

    /// A slice of eviction for a write that needs a number of segments, or the event that it must wait for.
    fn evict_slice(
        &self,
        patience: Patience,
        participant: &Participant,
        now_ms: u64,
        count: u32,
    ) -> Result<(), WaitReason> {
        // Also without patience: flash counts from a look before the eviction that fills it.
        let is_delayed = self.flash.as_ref().is_some_and(|flash| flash.delays_evictions(now_ms));
        if is_delayed && matches!(patience, Patience::Whole | Patience::Again) {
            return Err(WaitReason::Demotion);
        }
        match self.store.evict_for(participant, now_ms, count) {
            Progress::Ready | Progress::Working => Ok(()),
            Progress::Waiting(Blocker::Job) => Err(WaitReason::Eviction),
            Progress::Waiting(Blocker::Reader) => Err(WaitReason::Reader),
            Progress::Stuck => Err(WaitReason::Held),
        }
    }

    /// Wakes maintenance when free segments run low or have no pages yet, or the index waits for memory. With a manual
    /// clock a slice runs here, so that many small objects do not outrun the index.
    fn after_write(&self, participant: &Participant, now_ms: u64) {
        if self.clock.is_manual() {
            self.flash.iter().for_each(|flash| flash.rebalance_memory());
            if self.store.needs_shrink() && !participant.is_pinned() {
                self.store.maintain(participant, now_ms);
            }
        } else if self.store.is_low() || self.store.wants_pages() || self.store.needs_shrink() {
            self.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::byte_size::ByteSize;
    use crate::cache::Cache;
    use ebbtide_flash::device::{Delivery, FaultyDevice};
    use ebbtide_testkit::repeat_after_stalls;
    use std::sync::Arc;

    /// A cache that evicts nothing, full of deleted items, and the number of its keys.
    fn full_of_deleted() -> (Cache, u32) {
        let builder = Cache::builder().memory(ByteSize::kib(512)).max_value(ByteSize::kib(4));
        let cache = builder.evict(false).build().unwrap();
        let insert = |number: &u32| cache.insert(&number.to_le_bytes(), &[7; 900]).apply().is_ok();
        let count = (0..).take_while(insert).count() as u32;
        (cache, count)
    }

    fn delete_all_but_first(cache: &Cache, count: u32) {
        (1..count).for_each(|number| assert!(cache.delete(&number.to_le_bytes())));
    }

    /// Repeats an operation for as long as it would wait for one of these.
    fn repeat_while<T>(reasons: &[WaitReason], operation: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
        let waits = |outcome: &_| matches!(outcome, Err(Error::WouldWait { reason }) if reasons.contains(reason));
        std::iter::repeat_with(operation).find(|outcome| !waits(outcome)).expect("it repeats for ever")
    }

    /// Repeats an operation for as long as it would wait for the background thread, which may be evicting.
    fn beside_maintenance<T>(operation: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
        repeat_while(&[WaitReason::Eviction], operation)
    }

    /// Writes until one is not stored.
    fn fill(cache: &Cache, from: u32) -> Error {
        let insert = |number: u32| cache.insert(&number.to_le_bytes(), &[8; 900]).apply();
        (from..).find_map(|number| beside_maintenance(|| insert(number)).err()).expect("the memory is bounded")
    }

    #[test]
    fn a_second_try_does_not_dwell() {
        let now = Instant::now();
        let wait = |patience| Attempt::new(Waiting::Answers(patience)).wait(WaitReason::Reader, MAX_THREAD_WAIT, now);
        assert_eq!(wait(Patience::Whole), Ok(()));
        assert_eq!(wait(Patience::Again), Err(Error::WouldWait { reason: WaitReason::Reader }));
    }

    #[test]
    fn writes_wait_for_readers_holding_deleted_memory() {
        repeat_after_stalls(MAX_THREAD_WAIT / 2, wait_for_a_reader);
    }

    fn wait_for_a_reader() {
        let (cache, count) = full_of_deleted();
        let first = 0_u32.to_le_bytes();
        let (reader, is_held) = (cache.clone(), std::sync::Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                let item = reader.get(&first).hit().expect("it was set");
                is_held.wait();
                // The waiting writer has evicted nothing for longer than a few of its tries take.
                is_held.wait();
                let until = Instant::now() + Duration::from_millis(5);
                while Instant::now() < until {
                    thread::yield_now();
                }
                drop(item);
            });
            is_held.wait();
            delete_all_but_first(&cache, count);
            let handle = cache.without_waiting();
            assert_eq!(fill(&handle, count), Error::WouldWait { reason: WaitReason::Reader });
            handle.set_patience(Patience::Again);
            assert_eq!(fill(&handle, count), Error::WouldWait { reason: WaitReason::Reader });
            handle.set_patience(Patience::Spent);
            assert!(matches!(fill(&handle, count), Error::OutOfMemory { .. }));
            is_held.wait();
            cache.insert(b"waits", &[9; 900]).apply().expect("the memory is free when the reader is gone");
        });
        cache.verify();
    }

    #[test]
    fn a_set_returning_would_wait_changes_nothing() {
        let (cache, count) = full_of_deleted();
        let (first, second) = (0_u32.to_le_bytes(), 1_u32.to_le_bytes());
        let is_held = std::sync::Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _item = cache.get(&first).hit().expect("it was set");
                is_held.wait();
                is_held.wait();
            });
            is_held.wait();
            (2..count).for_each(|number| assert!(cache.delete(&number.to_le_bytes())));
            let handle = cache.without_waiting();
            fill(&handle, count);
            let set = || beside_maintenance(|| handle.insert(&second, &[9; 900]).apply());
            assert_eq!(set(), Err(Error::WouldWait { reason: WaitReason::Reader }));
            assert_eq!(handle.get(&second).hit().unwrap().to_vec(), [7; 900]);
            handle.set_patience(Patience::Spent);
            assert!(matches!(set(), Err(Error::OutOfMemory { .. })));
            assert!(!handle.get(&second).is_hit(), "a refused set leaves no old value");
            handle.set_patience(Patience::Whole);
            is_held.wait();
        });
        cache.verify();
    }

    #[test]
    fn a_write_waits_until_flash_accepts_demotions() {
        let folder = tempfile::tempdir().unwrap();
        let builder = Cache::builder().memory(ByteSize::mib(16)).flash_demotion_wait(Duration::from_secs(60));
        let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(64)).build().unwrap();
        let flash = cache.engine().flash().unwrap();
        let handle = cache.without_waiting();
        let insert = |cache: &Cache, number: u32| cache.insert(&number.to_le_bytes(), &[7; 1000]).apply();
        // The background thread reads relocated items while the memory of the items shrinks for the index of flash.
        let passing = [WaitReason::Eviction, WaitReason::Reader];
        let insert_beside = |number: u32| repeat_while(&passing, || insert(&handle, number));
        let without_maintenance = flash.maintaining.lock().unwrap();
        let waiting = (0..100_000).find_map(|number| insert_beside(number).err().map(|error| (number, error)));
        drop(without_maintenance);
        let (number, error) = waiting.expect("flash takes a bounded number without its maintenance");
        assert_eq!(error, Error::WouldWait { reason: WaitReason::Demotion });
        // The background thread may see space for this one's evictions: it is stopped.
        let maintaining = cache.engine().maintaining.lock().unwrap();
        let before = flash.tier.stats().drops.total();
        (number..number + 3000).for_each(|number| _ = insert(&cache, number).unwrap());
        let drops = flash.tier.stats().drops;
        assert_eq!(drops.total(), before, "it waits before anything is lost: {drops:?}");
        drop(maintaining);
        let without_maintenance = flash.maintaining.lock().unwrap();
        handle.set_patience(Patience::Whole.after(WaitReason::Demotion));
        // The number that flash takes before depends on the space that its maintenance has freed.
        let drops = || flash.tier.stats().drops.total();
        let mut numbers = (1_u32 << 20..).take(200_000).take_while(|_| drops() == before);
        let refused = numbers.find_map(|number| insert_beside(number).err());
        drop(without_maintenance);
        assert_eq!(refused, None);
        assert!(drops() > before, "what waits no longer is lost");
    }

    /// Also while items give memory to the index of flash, which begins when the capacity is split.
    #[test]
    fn a_fill_over_flash_loses_hardly_anything() {
        const COUNT: u32 = 30_000;
        let folder = tempfile::tempdir().unwrap();
        let builder = Cache::builder().memory(ByteSize::mib(16)).flash_demotion_wait(Duration::from_secs(60));
        let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(256)).build().unwrap();
        (0..COUNT).for_each(|number| _ = cache.insert(&number.to_le_bytes(), &[7; 1000]).apply().unwrap());
        let lost = (0..COUNT).filter(|number| !cache.get(&number.to_le_bytes()).is_hit()).count() as u64;
        let stats = cache.engine().flash().unwrap().tier.stats();
        assert_eq!(stats.evictions.space, 0, "flash is nearly empty");
        // The background thread and this one may evict into the space that both have seen.
        let dropped = stats.drops.total();
        assert!(lost <= dropped && dropped < u64::from(COUNT) / 1000, "{lost} lost, {:?}", stats.drops);
    }

    #[test]
    fn a_stalled_device_delays_evictions_once() {
        const WAIT: Duration = Duration::from_secs(60);
        let device = Arc::new(FaultyDevice::new(64 << 20, 7, Delivery::Later { queue_depth: 64 }));
        let builder = Cache::builder().memory(ByteSize::mib(16)).flash_demotion_wait(WAIT);
        let cache = builder.flash_device(device.clone()).build().unwrap();
        let tier = &cache.engine().flash().unwrap().tier;
        let handle = cache.without_waiting();
        let mut numbers = 0_u64..;
        let mut is_delayed = || {
            let number = numbers.next().unwrap().to_le_bytes();
            handle.insert(&number, &[7; 1000]).apply() == Err(Error::WouldWait { reason: WaitReason::Demotion })
        };
        let mut fills = || (0..200_000).any(|_| is_delayed());
        device.stall();
        assert!(fills(), "flash takes a bounded number from a device that stalls");
        // A device that completes writes is slow, and does not stall.
        cache.skip_time(WAIT - Duration::from_secs(10)).unwrap();
        let writes = device.writes();
        while device.writes() == writes {
            assert!(device.step(), "writes are pending");
        }
        assert!(fills(), "a slow device delays evictions");
        cache.skip_time(Duration::from_secs(20)).unwrap();
        assert!(fills(), "since its last write it has not cost the bound");
        cache.skip_time(WAIT).unwrap();
        assert!(!fills(), "the device has cost its bound");
        assert!(tier.stats().drops.total() > 1000, "evictions go on: {:?}", tier.stats().drops);
        device.resume();
        let deadline = Instant::now() + Duration::from_secs(120);
        while !tier.has_space() {
            assert!(Instant::now() < deadline, "the device goes on");
            thread::sleep(Duration::from_millis(1));
        }
        device.stall();
        assert!(fills(), "the next stall counts anew");
        device.resume();
        drop(cache);
    }
}
