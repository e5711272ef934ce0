//! Maintenance and eviction, a slice at a time, for the background thread and for writers without a free segment.
//!
//! Work is cut into slices, so that no thread is away for long. Each slice does the first of these that is due:
//!
//! | step | frees | may evict |
//! |---|---|---|
//! | resume a paused job | a run of segments | as the job was made |
//! | expire: flushed and expired segments, then those with many expired items | dead bytes | no |
//! | shrink: the topmost segment is emptied, for a smaller memory or the index | the topmost segment | yes |
//! | plan a job: dead segments, compaction, then the policy | a run of segments | yes, if the caller may |

use crate::chains::Seal;
use crate::epoch::Participant;
use crate::store::Store;
use crate::sync::{Ordering, yield_now};
use crate::time::Moment;

/// Free segments that maintenance keeps ready for writers: this share of all, at least two.
pub(crate) const FREE_TARGET_SHARE: u32 = 200;

/// Result of a call to `evict` or `maintain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Enough segments are free.
    Ready,
    /// Progress was made; more is needed.
    Working,
    /// Nothing can be done until another thread proceeds, which may not be running now. Memory is freed soon after.
    Waiting(Blocker),
    /// Nothing can be evicted now: all memory is being written, or held by handles or uploads.
    Stuck,
}

/// The thread that a writer waits for, in [`Progress::Waiting`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocker {
    /// A thread that is emptying segments.
    Job,
    /// A reader that was pinned when segments were retired: they are free when it unpins.
    Reader,
}

/// Caller of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// A thread that waits for memory.
    Writer,
    /// The thread of maintenance. `may_evict`: whether the lower tier can take evicted items.
    Maintenance { may_evict: bool },
}

impl Store {
    /// Frees memory for a writer that got `NeedSegment`: runs one slice unless a segment is free. The caller must not
    /// be pinned. Never sleeps: whether and how long to wait is the choice of the caller.
    pub fn evict(&self, participant: &Participant, now_ms: u64) -> Progress {
        self.evict_for(participant, now_ms, 1)
    }

    /// `evict` for a writer that got `NeedSegments`: `Ready` when `count` segments are free at once.
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
            // Before a writer takes the topmost segment.
            self.release_free_top();
        }
        match progress {
            _ if self.segments.free_for_writers() >= count => Progress::Ready,
            Progress::Stuck if waiting > 0 => Progress::Waiting(Blocker::Reader),
            progress => progress,
        }
    }

    /// One slice for a writer. `waiting`: retired segments whose grace period lasts.
    fn evict_slice(&self, participant: &Participant, moment: Moment, waiting: u32) -> Progress {
        // Without a free segment an eviction copies nothing, and the segments that it retires wait for the same reader.
        if waiting >= self.retired_limit() || waiting > 0 && self.segments.free_count() == 0 {
            return Progress::Waiting(Blocker::Reader);
        }
        match self.run_due_step(participant, moment, Caller::Writer) {
            true => Progress::Working,
            false => self.run_or_choose_job(participant, moment, self.options.evicts),
        }
    }

    /// The first step that is due, of those that come before a new choice. False if none is. Paused jobs, which may be
    /// evictions, are resumed if the caller may evict.
    fn run_due_step(&self, participant: &Participant, moment: Moment, caller: Caller) -> bool {
        caller != (Caller::Maintenance { may_evict: false }) && self.resume_job(participant, moment)
            || self.expire_due(participant, moment)
            || self.needs_shrink() && self.shrink_top(participant, moment, caller)
    }

    /// Whether writers will soon run out of free segments, so that maintenance should run.
    pub fn is_low(&self) -> bool {
        self.options.evicts && self.segments.free_for_writers() < self.free_target() / 2 + 1
    }

    /// Whether the memory that writers take next is not yet prepared, so that maintenance should run.
    #[inline(always)]
    pub fn wants_pages(&self) -> bool {
        self.segments.wants_pages()
    }

    /// Whether writers must evict before they can write.
    pub fn has_no_free_segment(&self) -> bool {
        self.segments.free_for_writers() == 0
    }

    /// Retired segments that may wait for readers before evictions stop: a reader that stays pinned must not empty the
    /// store.
    pub(super) fn retired_limit(&self) -> u32 {
        4 * self.options.merge_run + self.free_target()
    }

    /// One slice of the work that is due: seals segments that have been open long enough, gives the index memory,
    /// expires, shrinks, evicts ahead of need. To be called every 100 ms, again at once after `Working`, and soon after
    /// `Waiting`.
    pub fn maintain(&self, participant: &Participant, now_ms: u64) -> Progress {
        self.maintain_slice(participant, now_ms, true)
    }

    /// `maintain` without evictions, while the lower tier cannot take evicted items.
    pub fn maintain_without_evicting(&self, participant: &Participant, now_ms: u64) -> Progress {
        self.maintain_slice(participant, now_ms, false)
    }

    fn maintain_slice(&self, participant: &Participant, now_ms: u64, may_evict: bool) -> Progress {
        let moment = self.moment(now_ms);
        if moment.ms >= self.maintenance.next_maintenance_ms.load(Ordering::Relaxed) {
            self.maintenance.next_maintenance_ms.store(moment.ms + 100, Ordering::Relaxed);
            self.seal_open(Seal::Due(moment));
        }
        let worked = self.prepare_index()
            || self.run_due_step(participant, moment, Caller::Maintenance { may_evict })
            || self.segments.prepare_pages();
        let reclaimed = self.segments.reclaim();
        let evicts = may_evict
            && !worked
            && self.options.evicts
            && reclaimed.waiting < self.retired_limit()
            && (self.segments.free_for_writers() < self.free_target() || self.evicts_for_index());
        let progress = if evicts { self.run_or_choose_job(participant, moment, true) } else { Progress::Ready };
        match progress {
            _ if worked || reclaimed.freed > 0 => Progress::Working,
            // When nothing else is due.
            Progress::Ready | Progress::Stuck if self.contract_index() => Progress::Working,
            Progress::Stuck => Progress::Ready,
            progress => progress,
        }
    }

    /// The number of free segments that maintenance keeps ready.
    fn free_target(&self) -> u32 {
        (self.segments.limit() / FREE_TARGET_SHARE).max(2)
    }

    /// One slice of a paused job or of a new one. `may_evict`: whether a new job may evict live items. `Stuck` if there
    /// is nothing to do.
    pub(super) fn run_or_choose_job(&self, participant: &Participant, moment: Moment, may_evict: bool) -> Progress {
        if self.resume_job(participant, moment) {
            return Progress::Working;
        }
        let jobs = &*self.maintenance.job_counts;
        let ended = jobs.ended();
        let has_others = || jobs.running() > 0;
        if has_others() && self.segments.free_count() == 0 {
            // Other jobs use the reserve as destinations: waiting for the segments that they free loses nothing.
            return Progress::Waiting(Blocker::Job);
        }
        match self.plan_job(participant, moment, may_evict) {
            Some(job) => {
                self.run_job_slice(participant, moment, job);
                Progress::Working
            }
            // The segments to choose from may belong to other jobs.
            None if has_others() => Progress::Waiting(Blocker::Job),
            // A job has ended since: a writer may have taken the segment that it freed, and there is more to choose
            // from.
            None if jobs.ended() != ended => Progress::Working,
            None => Progress::Stuck,
        }
    }

    /// Finishes all paused jobs.
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
pub(super) mod tests {
    use super::*;
    use crate::error::Error;
    use crate::evict::execute::SLICE_ITEMS;
    use crate::evict::policy::Policy;
    use crate::ops::{Mode, Write, Written};
    use crate::options::Options;
    use crate::segment::Purpose;
    use crate::ttl::Ttl;

    fn try_set(store: &Store, participant: &Participant, number: u32) -> Result<Written, Error> {
        let key = number.to_le_bytes();
        let (hash, ttl) = (store.hash(&key), Ttl::Never);
        let write = Write { key: &key, hash, value: &[7; 500], flags: 0.into(), ttl, mode: Mode::Set, token: None };
        store.write(participant, &write, 1000)
    }

    pub fn set(store: &Store, participant: &Participant, number: u32) {
        while try_set(store, participant, number).is_err() {
            assert_ne!(store.evict(participant, 1000), Progress::Stuck);
        }
    }

    /// A store of many small segments that has just evicted for the first time, and the number of keys set, from 0 on.
    pub fn just_full(writers: usize) -> (Store, Participant, u32) {
        let options = Options {
            memory_bytes: 16 << 20,
            segment_size: Some(16 << 10),
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
        let store = Store::new(Options { segment_size: Some(256 << 10), ..Options::default() }).unwrap();
        let participant = store.participate();
        let fill = |now_ms| {
            for key in 0..50_000u32 {
                let (key, ttl) = (key.to_le_bytes(), Ttl::seconds(10));
                let write = Write {
                    key: &key,
                    hash: store.hash(&key),
                    value: b"",
                    flags: 0.into(),
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
    fn items_of_one_millisecond_are_evicted_in_order() {
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
    fn a_request_too_large_is_refused_without_evictions() {
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
        let mut job = store.plan_job(&participant, store.moment(1000), true).expect("something is sealed");
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
    fn requests_too_large_beside_the_index_are_refused() {
        let (store, participant, _) = just_full(1);
        let limit = store.segments.limit();
        // The topmost segment is held as by an upload, so that it is not exchanged.
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
    fn the_index_grows_by_compactions() {
        let options = Options {
            memory_bytes: 4 << 20,
            segment_size: Some(16 << 10),
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
