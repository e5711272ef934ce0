//! Planning: which segments are emptied next. Lossless choices come first, then the choice of the policy. A plan only
//! proposes; the claim checks again (see `claim`).

use super::candidates::{PlannedEviction, PlannerState, SparseSegment};
use super::claim::Claim;
use super::jobs::Job;
use super::policy::choose;
use super::sampled_segment::SampledSegment;
use crate::chains::Seal;
use crate::epoch::Participant;
use crate::options::Options;
use crate::pause_point::{PausePoint, pause_point};
use crate::segment::{Header, SegmentId, State};
use crate::store::Store;
use crate::sync::{Ordering, lock};
use crate::time::Moment;

/// Segments that one choice samples; a larger store is sampled piece by piece.
pub(crate) const SAMPLE_SEGMENTS: usize = 4096;
/// Neighbours are compacted when the first is at most this full.
pub(crate) const COMPACT_FILL_MAX: f64 = 0.6;
/// After this many compactions in a row that took as many segments as they freed, the policy evicts.
pub(crate) const COMPACTIONS_WITHOUT_GAIN_MAX: u32 = 16;
/// The policy chooses this part of a sample at once, so at most this part changes before the next sample.
pub(crate) const PLANNED_SHARE: usize = 128;
/// Sparse segments that one sample keeps, the emptiest.
const SPARSE_MAX: usize = 16;

impl Store {
    /// Plans and claims the next job.
    pub(super) fn plan_job(&self, participant: &Participant, moment: Moment, may_evict: bool) -> Option<Job> {
        let mut planner = lock(&self.maintenance.planner);
        pause_point(PausePoint::Claim);
        let job = self.next_job(&mut planner, participant, moment, may_evict);
        // Of the thread while it plans: those of hundreds of stores would be as much as their other tables.
        planner.views = Vec::new();
        job
    }

    fn next_job(
        &self,
        planner: &mut PlannerState,
        participant: &Participant,
        moment: Moment,
        may_evict: bool,
    ) -> Option<Job> {
        // Ends: an entry is taken once, and listed again only after the segment was reused.
        while let Some(segment) = self.segments.take_dead() {
            if let Some(job) = self.claim(planner, Claim::Dead(segment), moment) {
                return Some(job);
            }
        }
        if let Some(job) = self.compact_sparse(planner, moment, may_evict) {
            return Some(job);
        }
        if let Some(job) = may_evict.then(|| self.evict_planned(planner, moment)).flatten() {
            return Some(job);
        }
        let mut has_sealed = false;
        let mut looked = 0;
        loop {
            looked += SAMPLE_SEGMENTS;
            let free_win = self.sample_segments(planner, moment);
            let job = free_win.and_then(|claim| self.claim(planner, claim, moment));
            if let Some(job) = job.or_else(|| self.compact_sparse(planner, moment, may_evict)) {
                return Some(job);
            }
            // A store that does not evict refuses the write next, so all segments are sampled before.
            if !may_evict && looked >= self.segments.limit() as usize {
                return None;
            }
            if !may_evict {
                continue;
            }
            if let Some(job) = self.evict_sampled(planner, participant, moment) {
                return Some(job);
            }
            // Only the open segments of writers are left. They are sealed once, as handles may hold all of those, too.
            if has_sealed || self.seal_open(Seal::All) == 0 {
                // Segments that other threads are emptying are free soon.
                let others = self.maintenance.job_counts.running();
                return if others > 0 { None } else { self.evict_held(planner, participant, moment) };
            }
            has_sealed = true;
        }
    }

    /// Lets the policy choose among segments that handles hold. They are free only when the handles are dropped, but
    /// the bodies of their long values are free at once, unless a handle holds these, too: the heads of many long
    /// values may lie in one segment, and a handle of one of them must not keep the others.
    fn evict_held(&self, planner: &mut PlannerState, participant: &Participant, moment: Moment) -> Option<Job> {
        planner.views.clear();
        let mut add = |segment, header: &Header| {
            if header.pins() > 0 && header.body_bytes() > 0 && planner.views.len() < SAMPLE_SEGMENTS {
                planner.views.push(view(segment, header));
            }
        };
        let sealed = |segment: &SegmentId| self.segments.header(*segment).state() == State::Sealed;
        self.segments.ids().filter(sealed).for_each(|segment| add(segment, self.segments.header(segment)));
        self.each_open_destination(|segment, _| add(segment, self.segments.header(segment)));
        self.evict_sampled(planner, participant, moment)
    }

    /// Lets the policy choose among the sample, and claims its choices. Segments that a handle or a job holds by now
    /// are skipped.
    fn evict_sampled(&self, planner: &mut PlannerState, participant: &Participant, moment: Moment) -> Option<Job> {
        if !planner.views.is_empty() {
            self.policy_state.history().fit(self.counters.items());
        }
        // Ends: each choice removes a view.
        while !planner.views.is_empty() {
            self.choose_evictions(planner, participant);
            if let Some(job) = self.evict_planned(planner, moment) {
                return Some(job);
            }
        }
        None
    }

    /// Samples segments, and stops at one that is free of loss. Open destinations are sampled, too: they are evicted in
    /// their turn, full or not.
    fn sample_segments(&self, planner: &mut PlannerState, moment: Moment) -> Option<Claim> {
        planner.views.clear();
        planner.sparse.clear();
        planner.planned.clear();
        let limit = self.segments.limit();
        planner.views.reserve((limit as usize).min(SAMPLE_SEGMENTS));
        let mut compact = None;
        for step in 0..limit {
            if planner.views.len() >= SAMPLE_SEGMENTS {
                planner.cursor = (planner.cursor + step) % limit;
                break;
            }
            let segment = self.segments.at_position((planner.cursor + step) % limit + 1);
            let header = self.segments.header(segment);
            if header.state() != State::Sealed || header.pins() > 0 {
                continue;
            }
            if self.is_dead(header, moment) {
                planner.sparse.clear();
                return Some(Claim::Dead(segment));
            }
            let live = f64::from(header.live_bytes());
            if compact.is_none() && live < COMPACT_FILL_MAX * f64::from(self.segments.segment_bytes()) {
                compact = self.fitting_neighbours(segment).map(|_| Claim::Neighbours(segment));
            }
            if let Some(copied) = self.copied_per_freed_byte(header) {
                planner.sparse.push(SparseSegment { segment, copied });
            }
            planner.views.push(view(segment, header));
        }
        let mut dead = None;
        self.each_open_destination(|segment, _| {
            let header = self.segments.header(segment);
            if header.pins() == 0 {
                planner.views.push(view(segment, header));
                dead = dead.or(self.is_dead(header, moment).then_some(segment));
            }
        });
        if let Some(segment) = dead {
            planner.sparse.clear();
            return Some(Claim::Dead(segment));
        }
        planner.sparse.sort_unstable_by(|one, other| one.copied.total_cmp(&other.copied));
        planner.sparse.truncate(SPARSE_MAX);
        planner.sparse.shrink_to(SPARSE_MAX);
        planner.sparse.reverse();
        compact
    }

    /// Lets the policy choose among the views, which are not empty: one run, or several single segments.
    fn choose_evictions(&self, planner: &mut PlannerState, participant: &Participant) {
        let PlannerState { views, planned, .. } = planner;
        let max = (views.len() / PLANNED_SHARE).max(1);
        while planned.len() < max && !views.is_empty() {
            let choice = {
                let Options { objective, merge_run, .. } = self.options;
                choose(self.policy_state.policy(), objective, views, merge_run, participant.random())
            };
            let at = views.iter().position(|view| view.segment == choice.first).expect("it was chosen among them");
            planned.push(PlannedEviction { choice, stamp: views.swap_remove(at).stamp });
            if choice.count > 1 {
                break;
            }
        }
        planned.reverse();
    }

    /// Claims the next planned eviction.
    fn evict_planned(&self, planner: &mut PlannerState, moment: Moment) -> Option<Job> {
        while let Some(planned) = planner.planned.pop() {
            if let Some(job) = self.claim(planner, Claim::Planned(planned), moment) {
                self.maintenance.compactions_without_gain.store(0, Ordering::Relaxed);
                return Some(job);
            }
        }
        None
    }

    /// Claims the emptiest sampled segment that still deserves a compaction on its own.
    fn compact_sparse(&self, planner: &mut PlannerState, moment: Moment, may_evict: bool) -> Option<Job> {
        let without_gain = &self.maintenance.compactions_without_gain;
        while !may_evict || without_gain.load(Ordering::Relaxed) < COMPACTIONS_WITHOUT_GAIN_MAX {
            let SparseSegment { segment, .. } = planner.sparse.pop()?;
            let job = self.claim(planner, Claim::Sparse(segment), moment);
            if job.is_some() {
                return job;
            }
        }
        None
    }
}

fn view(segment: SegmentId, header: &Header) -> SampledSegment {
    SampledSegment {
        segment,
        stamp: header.stamp.load(Ordering::Relaxed),
        live_items: header.live_items(),
        live_bytes: u64::from(header.live_bytes()) + header.body_bytes(),
        latest_expiry_seconds: header.latest_expiry_seconds(),
        rounds: header.rounds.load(Ordering::Relaxed),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::evict::maintenance::tests::{just_full, set};
    use crate::evict::{Blocker, Progress};
    use crate::ops::{Mode, Write};
    use crate::segment::{Purpose, STAMP_SHIFT};
    use crate::ttl::Ttl;

    #[test]
    fn only_dead_segments_are_claimed_as_dead() {
        let store =
            Store::new(Options { memory_bytes: 1 << 20, value_bytes_max: 1 << 19, ..Options::default() }).unwrap();
        let participant = store.participate();
        let hash = store.hash(b"key");
        let write = Write {
            key: b"key",
            hash,
            value: b"value",
            flags: 0.into(),
            ttl: Ttl::seconds(100),
            mode: Mode::Set,
            token: None,
        };
        store.write(&participant, &write, 1000).unwrap();
        let segment = store.get(&participant, b"key", hash, 1000).unwrap().item_at().at.segment();
        let moment = store.moment(2000);
        let claim = |moment| store.claim(&lock(&store.maintenance.planner), Claim::Dead(segment), moment);
        assert!(claim(moment).is_none(), "it is open");
        store.seal_open(Seal::All);
        assert!(claim(moment).is_none(), "it holds a live item");
        let mut job = claim(store.moment(101_000)).expect("it has expired");
        while !job.run(&store, &participant, moment, 1) {}
        drop(job);
        store.verify(&participant, 101_000);
    }

    #[test]
    fn plans_are_claimed_in_order_unless_outdated() {
        let (store, participant, _) = just_full(1);
        let moment = store.moment(1000);
        let planned = || -> Vec<_> {
            let planner = lock(&store.maintenance.planner);
            planner.planned.iter().rev().map(|planned| (planned.choice.first, planned.stamp)).collect()
        };
        let all = planned();
        assert!(all.len() >= 5 && all.is_sorted_by_key(|&(_, stamp)| stamp), "{all:?}");
        let header = |segment| store.segments.header(segment);
        assert!(store.segments.ids().all(|segment| {
            let stamp = header(segment).stamp.load(Ordering::Relaxed);
            header(segment).state() != State::Sealed || stamp >= all[0].1
        }));
        header(all[0].0).stamp.fetch_add(1 << STAMP_SHIFT, Ordering::Relaxed);
        let mut job = store.plan_job(&participant, moment, true).unwrap();
        assert_eq!([all[0], all[1]].map(|(segment, _)| header(segment).state()), [State::Sealed, State::Draining]);
        assert_eq!(planned(), all[2..]);
        while !job.run(&store, &participant, moment, 1) {}
        drop(job);
        assert!(store.plan_job(&participant, moment, false).is_none(), "what is alive stays");
        assert!(planned().is_empty(), "it has looked around");
        store.verify(&participant, 1000);
    }

    #[test]
    fn dead_segments_are_taken_before_plans() {
        let (store, participant, number) = just_full(1);
        let evictions = store.stats().evictions;
        // The younger half dies: hundreds of segments without a live item.
        for number in number / 2..number {
            let key = number.to_le_bytes();
            store.delete(&participant, &key, store.hash(&key), 1000);
        }
        (number..number + 300).for_each(|number| set(&store, &participant, number));
        assert_eq!(store.stats().evictions, evictions, "nothing alive goes while so much is dead");
        store.verify(&participant, 1000);
    }

    /// A full store with more segments than one sample, each with the key of one long item.
    fn large() -> (Store, Participant, Vec<u32>) {
        let options = Options {
            memory_bytes: 40 << 20,
            segment_size: Some(4 << 10),
            value_bytes_max: 3900,
            policy: crate::Policy::Fifo,

            ..Options::default()
        };
        let store = Store::new(options).unwrap();
        let participant = store.participate();
        let mut keys = Vec::new();
        while store.segments.free_for_writers() > 0 {
            keys.push(keys.len() as u32);
            set_long(&store, &participant, keys.len() as u32 - 1, 3000);
        }
        assert!(store.segments.limit() as usize > 2 * SAMPLE_SEGMENTS);
        (store, participant, keys)
    }

    fn set_long(store: &Store, participant: &Participant, number: u32, bytes: usize) {
        let key = number.to_le_bytes();
        let (hash, value) = (store.hash(&key), vec![7; bytes]);
        let write =
            Write { key: &key, hash, value: &value, flags: 0.into(), ttl: Ttl::Never, mode: Mode::Set, token: None };
        while store.write(participant, &write, 1000).is_err() {
            assert_ne!(store.evict(participant, 1000), Progress::Stuck);
        }
    }

    fn delete(store: &Store, participant: &Participant, number: u32) {
        let key = number.to_le_bytes();
        assert!(store.delete(participant, &key, store.hash(&key), 1000));
    }

    #[test]
    fn a_dead_segment_is_found_anywhere() {
        let (store, participant, keys) = large();
        let evictions = store.stats().evictions;
        let dead = [100, keys.len() / 2, keys.len() - 100];
        dead.iter().for_each(|at| delete(&store, &participant, keys[*at]));
        (0..dead.len() as u32).for_each(|number| set_long(&store, &participant, u32::MAX - number, 3000));
        assert_eq!(store.stats().evictions, evictions, "as many segments are dead as are needed");
        set_long(&store, &participant, 1 << 30, 3000);
        assert!(store.stats().evictions > evictions);
        store.verify(&participant, 1000);
    }

    #[test]
    fn a_choice_without_evictions_samples_all_segments() {
        let (store, participant, keys) = large();
        let moment = store.moment(1000);
        keys[..8].iter().for_each(|number| delete(&store, &participant, *number));
        while let Some(job) = store.plan_job(&participant, moment, false) {
            store.run_job_slice(&participant, moment, job);
        }
        store.segments.reclaim();
        // The two newest segments are nearly empty: they fit one.
        (0..2).for_each(|number| {
            store.seal_open(Seal::All);
            set_long(&store, &participant, u32::MAX - number, 100);
        });
        store.seal_open(Seal::All);
        let key = u32::MAX.to_le_bytes();
        let little = store.get(&participant, &key, store.hash(&key), 1000).unwrap().item_at().at.segment();
        lock(&store.maintenance.planner).cursor = little.number() % store.segments.limit();
        let job = store.plan_job(&participant, moment, false).expect("two neighbours fit one segment");
        assert!(job.sources().contains(&little));
        store.run_job_slice(&participant, moment, job);
        store.verify(&participant, 1000);
    }

    #[test]
    fn dead_open_segments_are_taken_first() {
        let (store, participant, keys) = large();
        set_long(&store, &participant, u32::MAX, 3000);
        let evictions = store.stats().evictions;
        delete(&store, &participant, u32::MAX);
        store.seal_open(Seal::All);
        set_long(&store, &participant, u32::MAX, 3000);
        assert_eq!(store.stats().evictions, evictions, "one of {} is dead", keys.len());
        store.verify(&participant, 1000);
    }

    #[test]
    fn an_eviction_passes_over_all_that_handles_hold() {
        let (store, participant, keys) = large();
        let moment = store.moment(1000);
        store.seal_open(Seal::All);
        let mut planner = lock(&store.maintenance.planner);
        assert!(store.sample_segments(&mut planner, moment).is_none(), "nothing is dead");
        let free = planner.views[planner.views.len() / 2].segment;
        let held: Vec<_> = store.segments.ids().filter(|segment| *segment != free).collect();
        held.iter().for_each(|segment| _ = store.segments.header(*segment).pin());
        let job = store.evict_sampled(&mut planner, &participant, moment);
        held.iter().for_each(|segment| _ = store.segments.header(*segment).unpin());
        drop(planner);
        let mut job = job.expect("one of all is not held");
        assert_eq!(job.sources(), [free], "of {}", keys.len());
        while !job.run(&store, &participant, moment, 1) {}
        drop(job);
        store.verify(&participant, 1000);
    }

    /// A segment that another thread empties is free soon, so a held segment keeps its items.
    #[test]
    fn held_heads_stay_while_others_evict() {
        let options = Options {
            memory_bytes: 1 << 20,
            segment_size: Some(4 << 10),
            value_bytes_max: 1 << 18,
            ..Options::default()
        };
        let store = Store::new(options).unwrap();
        let participant = store.participate();
        let write = |number: u32| {
            let (key, value, mode) = (&number.to_le_bytes(), &[7; 10_000], Mode::Set);
            let (hash, ttl) = (store.hash(key), Ttl::Never);
            store.write(&participant, &Write { key, hash, value, flags: 0.into(), ttl, mode, token: None }, 1000)
        };
        assert!((0..1000).any(|number| write(number).is_err()), "it is full");
        store.seal_open(Seal::All);
        let is_sealed = |segment: &SegmentId| store.segments.header(*segment).state() == State::Sealed;
        let heads: Vec<_> = store.segments.ids().filter(is_sealed).collect();
        let (first, held) = heads.split_first().expect("there are long values");
        held.iter().for_each(|segment| _ = store.segments.header(*segment).pin());
        let moment = store.moment(1000);
        let mut job = store.plan_job(&participant, moment, true).expect("one is not held");
        assert_eq!(job.sources(), [*first]);
        let items = store.stats().items;
        assert!(store.segments.free_count() > 0);
        assert_eq!(store.evict_for(&participant, 1000, 8), Progress::Waiting(Blocker::Job));
        assert_eq!(store.stats().items, items);
        while !job.run(&store, &participant, moment, 1) {}
        drop(job);
        // Without another thread at work some of them go.
        let items = store.stats().items;
        assert_eq!(store.evict_for(&participant, 1000, 200), Progress::Working);
        assert!(store.stats().items < items);
        held.iter().for_each(|segment| _ = store.segments.header(*segment).unpin());
        store.finish_jobs(&participant, 1000);
        store.verify(&participant, 1000);
    }

    #[test]
    fn a_compaction_without_a_destination_does_not_begin() {
        let options = Options { memory_bytes: 1 << 20, value_bytes_max: 1 << 19, evicts: false, ..Options::default() };
        let store = Store::new(options).unwrap();
        let participant = store.participate();
        for key in [&b"one"[..], b"two"] {
            let hash = store.hash(key);
            let write =
                Write { key, hash, value: b"value", flags: 0.into(), ttl: Ttl::Never, mode: Mode::Set, token: None };
            store.write(&participant, &write, 1000).unwrap();
            store.seal_open(Seal::All);
        }
        let taken: Vec<_> = std::iter::from_fn(|| store.segments.take(Purpose::Merge)).collect();
        while store.evict(&participant, 1000) == Progress::Working {}
        taken.into_iter().for_each(|segment| store.segments.retire(segment));
        assert_eq!(store.stats().items, 2);
        store.segments.reclaim();
        let progress = store.run_or_choose_job(&participant, store.moment(1000), false);
        assert_eq!(progress, Progress::Working, "with a free segment they are compacted");
        assert_eq!((store.stats().items, store.stats().segments_compacted), (2, 2));
        store.verify(&participant, 1000);
    }

    #[test]
    fn a_compaction_keeps_the_oldest_stamp() {
        let options = Options { memory_bytes: 1 << 20, value_bytes_max: 1 << 19, ..Options::default() };
        let store = Store::new(options).unwrap();
        let participant = store.participate();
        let segment_of = |key: &[u8]| {
            let item = store.get(&participant, key, store.hash(key), 1000).expect("nothing is lost");
            item.item_at().at.segment()
        };
        for key in [&b"one"[..], b"two"] {
            let hash = store.hash(key);
            let write =
                Write { key, hash, value: b"value", flags: 0.into(), ttl: Ttl::Never, mode: Mode::Set, token: None };
            store.write(&participant, &write, 1000).unwrap();
            store.seal_open(Seal::All);
        }
        let header = |key| store.segments.header(segment_of(key));
        // Like survivors that took the place of their source in the chain, with a stamp of their own.
        let oldest = header(b"two").stamp.load(Ordering::Relaxed);
        header(b"one").stamp.store(oldest + 1_000_000, Ordering::Relaxed);
        header(b"one").rounds.store(1, Ordering::Relaxed);
        let moment = store.moment(1000);
        assert!(store.plan_job(&participant, moment, false).is_none(), "one is old, the other young");
        header(b"one").rounds.store(0, Ordering::Relaxed);
        let mut job = store.plan_job(&participant, moment, false).expect("they are neighbours");
        while !job.run(&store, &participant, moment, 1) {}
        drop(job);
        assert_eq!(segment_of(b"one"), segment_of(b"two"));
        assert_eq!(header(b"one").stamp.load(Ordering::Relaxed), oldest);
        store.verify(&participant, 1000);
    }
}

#[cfg(all(test, loom))]
mod plan_models {
    use super::*;
    use crate::chains::Seal;
    use crate::evict::policy::{Aging, EvictionChoice, Retention};
    use crate::loom_tests::{Client, model, store};
    use crate::ttl::Ttl;
    use crate::{Mode, Stored, Write};
    use loom::thread;
    use std::sync::Arc;

    /// A store with a plan for a segment that is free by now: all its items died, and it was emptied as by an expiry or
    /// a flush.
    fn planned_and_emptied() -> Arc<Store> {
        let store = store(4, 0);
        let client = Client::new(&store);
        let moment = store.moment(client.now_ms);
        client.set(b"o", 1);
        store.seal_open(Seal::All);
        let segment = store.segments.ids().find(|id| store.segments.header(*id).state() == State::Sealed).unwrap();
        let stamp = store.segments.header(segment).stamp.load(Ordering::Relaxed);
        let choice = EvictionChoice { first: segment, count: 1, retention: Retention::Nothing, aging: Aging::None };
        lock(&store.maintenance.planner).planned.push(PlannedEviction { choice, stamp });
        client.delete(b"o");
        let mut job = store.claim(&lock(&store.maintenance.planner), Claim::Dead(segment), moment).unwrap();
        while !job.run(&store, &client.participant, moment, u32::MAX) {}
        drop(job);
        store.segments.reclaim();
        drop(client);
        store
    }

    /// A plan may name a segment that was emptied since and is a body of a value now.
    #[test]
    fn a_plan_claims_no_body() {
        model(2, || {
            let store = planned_and_emptied();
            let client = Client::new(&store);
            let moment = store.moment(client.now_ms);
            let uploader = {
                let store = Arc::clone(&store);
                thread::spawn(move || {
                    let client = Client::new(&store);
                    let (key, value) = (b"k", &[b'7'; 70]);
                    let hash = store.hash(key);
                    let write =
                        Write { key, hash, value, flags: 0.into(), ttl: Ttl::Never, mode: Mode::Set, token: None };
                    let written = store.write(&client.participant, &write, client.now_ms);
                    assert_eq!(written.map(|written| written.stored), Ok(Stored::Stored));
                })
            };
            let job = store.evict_planned(&mut lock(&store.maintenance.planner), moment);
            if let Some(mut job) = job {
                while !job.run(&store, &client.participant, moment, u32::MAX) {}
            }
            uploader.join().unwrap();
            if let Some(item) = store.get(&client.participant, b"k", store.hash(b"k"), client.now_ms) {
                let mut value = Vec::new();
                item.copy_to(&mut value);
                assert_eq!(value, [b'7'; 70]);
            }
            client.verify();
        });
    }

    /// A plan may name a segment that holds younger items now.
    #[test]
    fn a_plan_claims_no_reused_segment() {
        model(2, || {
            let store = planned_and_emptied();
            let client = Client::new(&store);
            let moment = store.moment(client.now_ms);
            let writer = {
                let store = Arc::clone(&store);
                thread::spawn(move || {
                    Client::new(&store).set(b"k", 2);
                    store.seal_open(Seal::All);
                })
            };
            let job = store.evict_planned(&mut lock(&store.maintenance.planner), moment);
            assert!(job.is_none(), "what was planned is gone");
            writer.join().unwrap();
            client.verify();
        });
    }
}
