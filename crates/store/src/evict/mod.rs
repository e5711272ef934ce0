//! Making room: expiry, eviction, compaction, and the way of segments back to the free list.
//!
//! Work is cut into slices, so that no thread is long away: a `Job` empties a run of segments and can be put down at any
//! item. Any thread can take up a job that another put down. Only the choice of a run is under a lock; it claims the run by
//! making its segments `Draining`.
//!
//! Before anything alive is evicted, dead segments are dropped, neighbours that fit one segment are compacted, and so is what
//! lies in segments of which much has been overwritten.

mod choose;
mod claim;
mod expiry;
mod flushed;
mod ghosts;
mod history;
#[cfg(not(loom))]
mod idle_demotion;
#[cfg(all(test, not(loom)))]
mod interleaved_tests;
mod job;
#[cfg(all(test, loom))]
mod loom_tests;
mod open_destinations;
mod relocate;

mod policy;
mod removal;
mod scores;
mod shrink;
mod sketch;

pub use history::History;
#[cfg(not(loom))]
pub use idle_demotion::IdleDemotion;
pub use policy::{Policy, UnknownPolicy};
pub use removal::{Cause, RemovalListeners, Removed};

use crate::chains::Seal;
use crate::epoch::Participant;
use crate::pause_point::{PausePoint, pause_point};
use crate::store::Store;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, lock, yield_now};
use crate::time::Moment;
use flushed::FlushedSearch;
use job::{Job, JobCounts};
use open_destinations::OpenDestinations;
use std::sync::Arc;

/// Items that a slice works through: at 50 to 100 ns each it takes about 100 to 200 us.
const SLICE_ITEMS: u32 = 1500;
/// The same with something below, whose buffers take what is evicted: few enough that maintenance can wait for it in between.
const SLICE_ITEMS_TIERED: u32 = 64;

/// Free segments that maintenance keeps ready for writers: this share of all, at least two.
const FREE_TARGET_SHARE: u32 = 200;

/// The state of evictions between slices.
pub(crate) struct Maintenance {
    /// Jobs that were put down.
    jobs: Mutex<Vec<Job>>,
    /// The count of those, and of jobs at work.
    job_counts: Arc<JobCounts>,
    planner: Mutex<choose::PlannerState>,
    /// Segments that evictions fill with what they keep.
    survivors: OpenDestinations,
    /// Segments that compactions fill.
    compacted: OpenDestinations,
    pub(crate) history: History,
    pub(crate) flushed: FlushedSearch,
    next_maintenance_ms: AtomicU64,
    /// Compactions that freed no more segments than they took, since one did or something was evicted.
    compactions_without_gain: AtomicU32,
    /// Evictions by use that freed no more segments than they took, since one did or a segment was free for writers.
    evictions_without_gain: AtomicU32,
}

/// What a call to `evict` or `maintain` came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A segment is free for writers.
    Ready,
    /// Something was done; more is needed.
    Working,
    /// Nothing can be done before another thread goes on, which may not be running now. Memory comes back soon after.
    Waiting(Blocker),
    /// Nothing can be evicted now: what is not free is being written, or held by handles or uploads.
    Stuck,
}

/// Whom a writer waits for, in [`Progress::Waiting`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocker {
    /// A thread that is emptying segments.
    Job,
    /// A reader that was pinned when segments were retired: they are free once it has unpinned.
    Reader,
}

impl Maintenance {
    pub fn new(history: History) -> Self {
        Self {
            jobs: Mutex::default(),
            job_counts: Arc::default(),
            planner: Mutex::default(),
            survivors: OpenDestinations::default(),
            compacted: OpenDestinations::default(),
            history,
            flushed: FlushedSearch::default(),
            next_maintenance_ms: AtomicU64::new(0),
            compactions_without_gain: AtomicU32::new(0),
            evictions_without_gain: AtomicU32::new(0),
        }
    }

    fn open_destinations(&self) -> impl Iterator<Item = &OpenDestinations> {
        [&self.survivors, &self.compacted].into_iter()
    }
}

impl Store {
    /// Makes room for a writer that got `NeedSegment`. The caller must not be pinned. Works until a segment is free, or a
    /// slice is over, or nothing can be done. Never sleeps: whether and how long to wait is the caller's choice.
    pub fn evict(&self, participant: &Participant, now_ms: u64) -> Progress {
        self.evict_for(participant, now_ms, 1)
    }

    /// The same for a writer that got `NeedSegments`: `Ready` when that many segments are free at once.
    pub fn evict_for(&self, participant: &Participant, now_ms: u64, count: u32) -> Progress {
        assert!(!participant.is_pinned(), "a pinned thread would wait for itself");
        let moment = self.moment(now_ms);
        let waiting = self.segments.reclaim().waiting;
        if self.segments.free_for_writers() >= count {
            return Progress::Ready;
        }
        let progress = match count + self.segments.reserve() <= self.segments.usable() {
            true => self.evict_slice(participant, moment, waiting),
            false => return Progress::Stuck,
        };
        let waiting = self.segments.reclaim().waiting;
        if self.needs_shrink() {
            // Before it is taken for anything else.
            self.release_free_top();
        }
        match progress {
            _ if self.segments.free_for_writers() >= count => Progress::Ready,
            Progress::Stuck if waiting > 0 => Progress::Waiting(Blocker::Reader),
            progress => progress,
        }
    }

    /// A slice of eviction for a writer. `waiting`: retired segments that a reader holds up.
    fn evict_slice(&self, participant: &Participant, moment: Moment, waiting: u32) -> Progress {
        // Without a free segment an eviction keeps nothing, and what it retires would wait for the same reader.
        if waiting >= self.retired_limit() || waiting > 0 && self.segments.free_count() == 0 {
            return Progress::Waiting(Blocker::Reader);
        }
        let worked = self.needs_shrink() && self.shrink_top(participant, moment)
            || self.resume_job(participant, moment)
            || self.expire_due(participant, moment);
        if worked { Progress::Working } else { self.run_or_choose_job(participant, moment, self.options.evicts) }
    }

    /// Whether writers will soon run out of free segments: maintenance should look.
    pub fn is_low(&self) -> bool {
        self.options.evicts && self.segments.free_for_writers() < self.free_target() / 2 + 1
    }

    /// Whether writers have to evict for themselves.
    pub fn has_no_free_segment(&self) -> bool {
        self.segments.free_for_writers() == 0
    }

    /// Retired segments that may wait for readers before evictions stop: a reader that stays pinned must not empty the
    /// store.
    fn retired_limit(&self) -> u32 {
        4 * self.options.merge_run + self.free_target()
    }

    /// One slice of the work that is due: seals what has been open long enough, removes what has expired, evicts ahead of
    /// need, finds memory for the index, gives memory back. To be called every 100 ms, again at once while it answers `Working`,
    /// and soon after `Waiting`.
    pub fn maintain(&self, participant: &Participant, now_ms: u64) -> Progress {
        self.maintain_slice(participant, now_ms, true)
    }

    /// The same without evictions, for as long as what lies below could not take what is evicted.
    pub fn maintain_without_evicting(&self, participant: &Participant, now_ms: u64) -> Progress {
        self.maintain_slice(participant, now_ms, false)
    }

    fn maintain_slice(&self, participant: &Participant, now_ms: u64, may_evict: bool) -> Progress {
        let moment = self.moment(now_ms);
        if moment.ms >= self.maintenance.next_maintenance_ms.load(Ordering::Relaxed) {
            self.maintenance.next_maintenance_ms.store(moment.ms + 100, Ordering::Relaxed);
            self.seal_open(Seal::Due(moment));
        }
        // A job that was put down may evict.
        let worked = self.prepare_index()
            || may_evict && self.resume_job(participant, moment)
            || self.expire_due(participant, moment)
            || self.needs_shrink() && self.shrink_top(participant, moment);
        let reclaimed = self.segments.reclaim();
        let evicts = may_evict
            && !worked
            && self.options.evicts
            && self.segments.free_for_writers() < self.free_target()
            && reclaimed.waiting < self.retired_limit();
        let progress = if evicts { self.run_or_choose_job(participant, moment, true) } else { Progress::Ready };
        match progress {
            _ if worked || reclaimed.freed > 0 => Progress::Working,
            Progress::Stuck => Progress::Ready,
            progress => progress,
        }
    }

    /// Free segments that maintenance aims at.
    fn free_target(&self) -> u32 {
        (self.segments.limit() / FREE_TARGET_SHARE).max(2)
    }

    /// A slice of a job that was put down or of a new one. `may_evict`: whether live items may be lost by it. `Stuck` if
    /// there was nothing to do.
    fn run_or_choose_job(&self, participant: &Participant, moment: Moment, may_evict: bool) -> Progress {
        if self.resume_job(participant, moment) {
            return Progress::Working;
        }
        let jobs = &*self.maintenance.job_counts;
        let ended = jobs.ended();
        let has_others = || jobs.running() > 0;
        if has_others() && self.segments.free_count() == 0 {
            // The reserve is the others' destinations: what they free is awaited rather than lost here.
            return Progress::Waiting(Blocker::Job);
        }
        match self.choose(participant, moment, may_evict) {
            Some(job) => {
                self.run_job_slice(participant, moment, job);
                Progress::Working
            }
            // What could be chosen may be theirs.
            None if has_others() => Progress::Waiting(Blocker::Job),
            // Or were: what one of them freed may be a writer's again already, and there is more to choose from.
            None if jobs.ended() != ended => Progress::Working,
            None => Progress::Stuck,
        }
    }

    /// A slice of a job that was put down. False if there is none.
    fn resume_job(&self, participant: &Participant, moment: Moment) -> bool {
        let waiting = lock(&self.maintenance.jobs).pop();
        waiting.map(|job| self.run_job_slice(participant, moment, job)).is_some()
    }

    fn run_job_slice(&self, participant: &Participant, moment: Moment, mut job: Job) {
        let items = if self.lower_tier.get().is_some() { SLICE_ITEMS_TIERED } else { SLICE_ITEMS };
        pause_point(PausePoint::Job);
        if !job.run(self, participant, moment, items) {
            pause_point(PausePoint::Job);
            lock(&self.maintenance.jobs).push(job);
        }
    }

    /// Finishes the jobs that were put down.
    pub fn finish_jobs(&self, participant: &Participant, now_ms: u64) {
        let moment = self.moment(now_ms);
        while self.maintenance.job_counts.running() > 0 {
            if self.run_or_choose_job(participant, moment, false) != Progress::Working {
                yield_now();
            }
        }
        self.segments.reclaim();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::ops::{Mode, Write, Written};
    use crate::options::Options;
    use crate::segment::Purpose;
    use crate::ttl::Ttl;

    fn try_set(store: &Store, participant: &Participant, number: u32) -> Result<Written, Error> {
        let key = number.to_le_bytes();
        let (hash, ttl) = (store.hash(&key), Ttl::Never);
        let write = Write { key: &key, hash, value: &[7; 500], flags: 0, ttl, mode: Mode::Set, token: None };
        store.write(participant, &write, 1000)
    }

    pub(super) fn set(store: &Store, participant: &Participant, number: u32) {
        while try_set(store, participant, number).is_err() {
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
        let max = (0..100_000).find(|_| store.evict_for(&participant, 1000, limit - reserve) != Progress::Working);
        assert!(max.is_some());
        assert_eq!(store.segments.free_for_writers(), limit - reserve);
        store.verify(&participant, 1000);
    }

    #[test]
    fn a_writer_waits_for_an_interrupted_job() {
        let (store, participant, number) = just_full(1);
        let taken: Vec<_> = std::iter::from_fn(|| store.segments.take(Purpose::Merge)).collect();
        let mut job = store.choose(&participant, store.moment(1000), true).expect("something is sealed");
        store.seal_open(Seal::All);
        let evictions = store.stats().evictions;
        for _ in 0..1000 {
            assert!(try_set(&store, &participant, number).is_err());
            assert_eq!(store.evict(&participant, 1000), Progress::Waiting(Blocker::Job));
        }
        assert_eq!(store.stats().evictions, evictions, "what the job frees is awaited");
        taken.into_iter().for_each(|segment| store.segments.retire(segment));
        while !job.run(&store, &participant, store.moment(1000), SLICE_ITEMS) {}
        drop(job);
        assert_eq!(store.evict(&participant, 1000), Progress::Ready, "it goes on");
        try_set(&store, &participant, number).unwrap();
        store.verify(&participant, 1000);
    }

    #[test]
    fn a_store_that_keeps_everything_waits_for_readers() {
        let options = Options { memory_bytes: 256 << 10, value_bytes_max: 4000, evicts: false, ..Options::default() };
        let store = Store::new(options).unwrap();
        let participant = store.participate();
        let mut number = 0;
        while try_set(&store, &participant, number).is_ok() {
            number += 1;
        }
        assert_eq!(store.evict(&participant, 1000), Progress::Stuck, "everything is alive");
        let reader = store.participate();
        let pin = reader.pin();
        for dead in 0..number {
            let key = dead.to_le_bytes();
            assert!(store.delete(&participant, &key, store.hash(&key), 1000));
        }
        while store.evict(&participant, 1000) == Progress::Working {}
        assert_eq!(store.evict(&participant, 1000), Progress::Waiting(Blocker::Reader));
        drop(pin);
        assert_eq!(store.evict(&participant, 1000), Progress::Ready, "the grace period is over");
        try_set(&store, &participant, number).unwrap();
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
