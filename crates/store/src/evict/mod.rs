//! Making room: expiry, eviction, compaction, and the way of segments back to the free list.
//!
//! Work is cut into slices, so that no thread is long away: a `Job` empties a run of segments and can be put down at any
//! item. Any thread can take up a job that another put down. Only the choice of a run is under a lock; it claims the run by
//! making its segments `Draining`.
//!
//! Before anything alive is evicted, dead segments are dropped, neighbours that fit one segment are compacted, and so is what
//! lies in segments of which much has been overwritten.

#[cfg(not(loom))]
mod aged;
mod begun;
mod choose;
mod claim;
mod expiry;
mod flushed;
mod ghosts;
mod history;
#[cfg(all(test, not(loom)))]
mod interleaved_tests;
mod job;
#[cfg(all(test, loom))]
mod loom_tests;
mod moves;
mod past;
mod policy;
mod removal;
mod scores;
mod shed;

#[cfg(not(loom))]
pub use aged::Aging;
pub use past::Past;
pub use policy::{Policy, UnknownPolicy};
pub use removal::{Cause, Removed, Sinks};

use crate::chains::Seal;
use crate::epoch::Participant;
use crate::store::Store;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, lock, yield_now};
use crate::time::Moment;
use begun::Begun;
use flushed::FlushedSearch;
use job::Job;
use std::sync::Arc;

/// Items that a slice works through: at 50 to 100 ns each it takes about 100 to 200 us.
const SLICE_ITEMS: u32 = 1500;
/// The same with something below, whose buffers take what is evicted: few enough that maintenance can wait for it in between.
const SLICE_ITEMS_OVER: u32 = 64;

/// Free segments that maintenance keeps ready for writers: this share of all, at least two.
const READY_SHARE: u32 = 200;

/// The state of evictions between slices.
pub(crate) struct Maintenance {
    /// Jobs that were put down.
    jobs: Mutex<Vec<Job>>,
    /// Jobs that exist, put down or at work.
    running: Arc<AtomicU32>,
    choosing: Mutex<choose::Scratch>,
    /// Segments that evictions fill with what they keep.
    survivors: Begun,
    /// Segments that compactions fill.
    compacted: Begun,
    pub(crate) past: Past,
    pub(crate) flushed: FlushedSearch,
    next_maintenance_ms: AtomicU64,
    /// Compactions that freed no more segments than they took, since one did or something was evicted.
    compactions_in_vain: AtomicU32,
    /// Evictions by use since a segment was free for writers.
    in_vain: AtomicU32,
}

/// What a call to `evict` or `maintain` came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A segment is free for writers.
    Ready,
    /// Something was done; more is needed.
    Working,
    /// Nothing can be evicted now: what is not free is being written, pinned or held by handles.
    Stuck,
}

impl Maintenance {
    pub fn new(past: Past) -> Self {
        Self {
            jobs: Mutex::default(),
            running: Arc::default(),
            choosing: Mutex::default(),
            survivors: Begun::default(),
            compacted: Begun::default(),
            past,
            flushed: FlushedSearch::default(),
            next_maintenance_ms: AtomicU64::new(0),
            compactions_in_vain: AtomicU32::new(0),
            in_vain: AtomicU32::new(0),
        }
    }

    fn begun(&self) -> impl Iterator<Item = &Begun> {
        [&self.survivors, &self.compacted].into_iter()
    }
}

impl Store {
    /// Makes room for a writer that got `NeedSegment`. The caller must not be pinned. Works until a segment is free, or a
    /// slice is over, or nothing can be done.
    pub fn evict(&self, participant: &Participant, now_ms: u64) -> Progress {
        self.evict_for(participant, now_ms, 1)
    }

    /// The same for a writer that got `NeedSegments`: `Ready` when that many segments are free at once.
    pub fn evict_for(&self, participant: &Participant, now_ms: u64, count: u32) -> Progress {
        assert!(!participant.is_pinned(), "a pinned thread would wait for itself");
        let moment = self.moment(now_ms);
        let mut waiting = self.segments.reclaim().waiting;
        if waiting > 0 && self.segments.free_count() == 0 {
            // A reader that was interrupted holds them up, and what an eviction keeps has no place before.
            yield_now();
            waiting = self.segments.reclaim().waiting;
        }
        if self.segments.free_for_writers() >= count {
            return Progress::Ready;
        }
        let may_work = count + self.segments.reserve() <= self.segments.usable() && waiting < self.waiting_limit();
        let shed = self.sheds() && self.shed_top(participant, moment);
        let worked = may_work
            && (shed
                || self.resume(participant, moment)
                || self.expire_due(participant, moment)
                || self.work(participant, moment, self.options.evicts));
        self.segments.reclaim();
        if self.sheds() {
            // Before it is taken for anything else.
            self.shed_free_top();
        }
        match (self.segments.free_for_writers() >= count, worked) {
            (true, _) => Progress::Ready,
            (false, true) => Progress::Working,
            (false, false) => Progress::Stuck,
        }
    }

    /// Whether writers will soon run out of free segments: maintenance should look.
    pub fn is_low(&self) -> bool {
        self.options.evicts && self.segments.free_for_writers() < self.ready_target() / 2 + 1
    }

    /// Whether writers have to evict for themselves.
    pub fn is_out_of_room(&self) -> bool {
        self.segments.free_for_writers() == 0
    }

    /// Retired segments that may wait for readers before evictions stop: a reader that stays pinned must not empty the
    /// store.
    fn waiting_limit(&self) -> u32 {
        4 * self.options.merge_run + self.ready_target()
    }

    /// One slice of the work that is due: seals what has been open long enough, removes what has expired, evicts ahead of
    /// need, finds memory for the index, gives memory back. To be called every 100 ms, again at once while it answers `Working`.
    pub fn maintain(&self, participant: &Participant, now_ms: u64) -> Progress {
        let moment = self.moment(now_ms);
        if moment.ms >= self.maintenance.next_maintenance_ms.load(Ordering::Relaxed) {
            self.maintenance.next_maintenance_ms.store(moment.ms + 100, Ordering::Relaxed);
            self.seal_open(Seal::Due(moment));
        }
        let worked = self.prepare_index()
            || self.resume(participant, moment)
            || self.expire_due(participant, moment)
            || self.sheds() && self.shed_top(participant, moment);
        let reclaimed = self.segments.reclaim();
        let evicts = !worked
            && self.options.evicts
            && self.segments.free_for_writers() < self.ready_target()
            && reclaimed.waiting < self.waiting_limit();
        let worked = worked || evicts && self.work(participant, moment, true);
        let freed = reclaimed.freed > 0;
        if worked || freed { Progress::Working } else { Progress::Ready }
    }

    /// Free segments that maintenance aims at.
    fn ready_target(&self) -> u32 {
        (self.segments.limit() / READY_SHARE).max(2)
    }

    /// A slice of a job that waits or of a new one. `may_evict`: whether live items may be lost by it. False if there was
    /// nothing to do.
    fn work(&self, participant: &Participant, moment: Moment, may_evict: bool) -> bool {
        if self.resume(participant, moment) {
            return true;
        }
        let others = self.maintenance.running.load(Ordering::Relaxed);
        if others > 0 && self.segments.free_count() == 0 {
            // The reserve is the others' destinations: what they free is awaited rather than lost here.
            yield_now();
            return true;
        }
        let Some(job) = self.choose(participant, moment, may_evict) else {
            return false;
        };
        self.run_slice(participant, moment, job);
        true
    }

    /// A slice of a job that was put down. False if there is none.
    fn resume(&self, participant: &Participant, moment: Moment) -> bool {
        let waiting = lock(&self.maintenance.jobs).pop();
        waiting.map(|job| self.run_slice(participant, moment, job)).is_some()
    }

    fn run_slice(&self, participant: &Participant, moment: Moment, mut job: Job) {
        let items = if self.below.get().is_some() { SLICE_ITEMS_OVER } else { SLICE_ITEMS };
        if !job.run(self, participant, moment, items) {
            lock(&self.maintenance.jobs).push(job);
        }
    }

    /// Finishes the jobs that were put down.
    pub fn finish_jobs(&self, participant: &Participant, now_ms: u64) {
        let moment = self.moment(now_ms);
        while self.maintenance.running.load(Ordering::Relaxed) > 0 {
            self.work(participant, moment, false);
        }
        self.segments.reclaim();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ops::{Mode, Write};
    use crate::options::Options;
    use crate::ttl::Ttl;

    pub(super) fn set(store: &Store, participant: &Participant, number: u32) {
        let key = number.to_le_bytes();
        let (hash, ttl) = (store.hash(&key), Ttl::Never);
        let write = Write { key: &key, hash, value: &[7; 500], flags: 0, ttl, mode: Mode::Set, token: None };
        while store.write(participant, &write, 1000).is_err() {
            assert_ne!(store.evict(participant, 1000), Progress::Stuck);
        }
    }

    /// A store of many small segments that has just begun to evict, and how many keys were set, from 0 on.
    pub(super) fn just_full(writers: usize) -> (Store, Participant, u32) {
        let options = Options {
            memory_bytes: 16 << 20,
            segment_bytes: Some(16 << 10),
            policy: Policy::Fifo,
            writers,
            ..Options::default()
        };
        let store = Store::new(options).unwrap();
        let participant = store.participate();
        let mut number = 0;
        while store.stats().evictions == 0 {
            set(&store, &participant, number);
            number += 1;
        }
        (store, participant, number)
    }

    #[test]
    fn dead_segments_go_slice_by_slice() {
        let store = Store::new(Options { segment_bytes: Some(256 << 10), ..Options::default() }).unwrap();
        let participant = store.participate();
        let fill = |now_ms| {
            for key in 0..50_000u32 {
                let (key, ttl) = (key.to_le_bytes(), Ttl::seconds(10));
                let write = Write {
                    key: &key,
                    hash: store.hash(&key),
                    value: b"",
                    flags: 0,
                    ttl,
                    mode: Mode::Set,
                    token: None,
                };
                store.write(&participant, &write, now_ms).unwrap();
            }
        };
        let removed = |now_ms| {
            let mut before = store.stats();
            while store.maintain(&participant, now_ms) == Progress::Working {
                let stats = store.stats();
                assert!(stats.expired - before.expired <= SLICE_ITEMS.into(), "{stats:?}");
                before = stats;
            }
            assert_eq!((before.items, before.segments_free), (0, before.segments_total));
            store.verify(&participant, now_ms);
        };
        fill(1000);
        store.flush(1000, 0);
        removed(1000);
        fill(2000);
        removed(12_000);
    }

    #[test]
    fn what_was_written_in_one_millisecond_is_evicted_in_order() {
        let options = Options { memory_bytes: 2 << 20, policy: Policy::Fifo, ..Options::default() };
        let store = Store::new(options).unwrap();
        let participant = store.participate();
        let numbers = 0..20_000u32;
        numbers.clone().for_each(|number| set(&store, &participant, number));
        let is_there = |number: &u32| {
            let key = number.to_le_bytes();
            store.get(&participant, &key, store.hash(&key), 1000).is_some()
        };
        let oldest = numbers.clone().find(is_there).expect("the last one is there");
        assert!((1..19_000).contains(&oldest), "{oldest}");
        assert!((oldest..numbers.end).all(|number| is_there(&number)), "all after {oldest} are there");
        store.verify(&participant, 1000);
    }

    #[test]
    fn what_never_fits_is_refused_and_costs_nothing() {
        let (store, participant, _) = just_full(64);
        let (limit, reserve) = (store.segments.limit(), store.segments.reserve());
        assert!(reserve > 1);
        let before = store.stats().evictions;
        for count in limit - reserve + 1..=limit + 1 {
            assert_eq!(store.evict_for(&participant, 1000, count), Progress::Stuck, "{count} of {limit}");
        }
        assert_eq!(store.stats().evictions, before);
        let most = (0..100_000).find(|_| store.evict_for(&participant, 1000, limit - reserve) != Progress::Working);
        assert!(most.is_some());
        assert_eq!(store.segments.free_for_writers(), limit - reserve);
        store.verify(&participant, 1000);
    }

    #[test]
    fn what_never_fits_beside_the_index_is_refused_and_costs_nothing() {
        let (store, participant, _) = just_full(1);
        let limit = store.segments.limit();
        // The topmost segment is held as by an upload, so that none is exchanged for it.
        let mut held: Vec<_> = std::iter::from_fn(|| store.segments.take(crate::segment::Purpose::Merge)).collect();
        while !held.contains(&crate::segment::SegmentId::new(limit)) {
            assert_ne!(store.evict(&participant, 1000), Progress::Stuck);
            held.extend(store.segments.take(crate::segment::Purpose::Merge));
        }
        held.iter().filter(|held| held.number() < limit).for_each(|held| store.segments.retire(*held));
        store.segments.reclaim();
        while store.segments.usable() + 5 > limit {
            assert!(store.segments.withhold_free() || store.evict(&participant, 1000) != Progress::Stuck);
        }
        let before = store.stats().evictions;
        let count = store.segments.usable() - store.segments.reserve() + 1;
        assert!(count + store.segments.reserve() <= limit);
        assert_eq!(store.evict_for(&participant, 1000, count), Progress::Stuck);
        assert_eq!(store.stats().evictions, before);
        store.segments.retire(crate::segment::SegmentId::new(limit));
        store.verify(&participant, 1000);
    }

    #[test]
    fn the_index_grows_where_compactions_make_the_room() {
        let options = Options {
            memory_bytes: 4 << 20,
            segment_bytes: Some(16 << 10),
            policy: Policy::Fifo,
            value_bytes_max: 3900,
            ..Options::default()
        };
        let store = Store::new(options).unwrap();
        let participant = store.participate();
        let (mut seed, mut new) = (7u64, 0u32);
        for _ in 0..60_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let dice = (seed >> 33) as u32;
            new += u32::from(dice % 10 >= 6);
            let number = if dice % 10 < 6 { 1 << 30 | (dice / 10 % 2000) } else { new };
            set(&store, &participant, number);
        }
        let stats = store.stats();
        assert_eq!(stats.index_replaced, 0, "nothing goes for want of a slot: {stats:?}");
        store.verify(&participant, 1000);
    }
}
