//! The one executor of evictions: empties a run of draining segments, keeps what the decision says, retires the run.
//!
//! Two passes over the run, each resumable at any item. **Scoring** looks every item up in the index: is it alive, how
//! often was it used? A histogram of the scores of all of them gives the exact score from which on items fit. **Applying**
//! copies what is kept to the destination and turns its slot there under the bucket lock, if the slot still points at the
//! old copy; everything else is unlinked. Readers go on reading the old copies until their grace period is over.
//!
//! The destination takes the place of the run in its chain, so that the chain stays sorted by time. What is kept of a whole run
//! fills a segment of its own; other survivors go on where those of an earlier eviction ended (see `survivors`).

use super::policy::{Aging, Keep};
use super::survivors::Destination;
use crate::epoch::Participant;
use crate::index::{Items, Slot};
use crate::item::ItemAt;
use crate::segment::{Location, Purpose, SegmentId, State};
use crate::stats::Counter;
use crate::store::Store;
use crate::sync::{AtomicU32, Ordering};
use crate::time::Moment;
use crate::ttl::TtlBucket;
use std::sync::Arc;

/// Items whose index lookups overlap.
const GROUP: usize = 16;
/// How far ahead of the item that is looked at the memory is fetched.
const FETCH_AHEAD_BYTES: u32 = 1024;
/// Scores of items that are not in the index any more, of those that have expired, and of those alive that have not earned
/// their place.
const SCORE_GONE: u8 = 0;
const SCORE_EXPIRED: u8 = 1;
const SCORE_UNEARNED: u8 = 2;
/// The lowest score of an item that may be kept.
const SCORE_MIN: u8 = 3;

/// Large items that are all in use can keep evictions from freeing anything: a writer waits for this many at most.
const IN_VAIN_MAX: u32 = 64;

/// A run of segments being emptied.
pub(super) struct Job {
    sources: Vec<SegmentId>,
    keep: Keep,
    aging: Aging,
    phase: Phase,
    walk: Walk,
    /// One score per item of the run, in order.
    scores: Vec<u8>,
    tally: Box<[Tally; 256]>,
    cut: Cut,
    /// It only makes the room that is needed now: what it leaves stays as it is, young or old, and is judged again.
    trims: bool,
    /// Where kept items go.
    destination: Option<Destination>,
    /// What became of the items, for the statistics.
    lost_any: bool,
    expired_any: bool,
    _running: Running,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Score,
    Apply,
}

/// The next item to look at.
#[derive(Clone, Copy, Debug, Default)]
struct Walk {
    source: usize,
    offset: u32,
    item: usize,
}

/// An item of the run.
struct Candidate {
    item: ItemAt,
    /// Of its key.
    hash: u64,
    /// `None` before it is scored, or if it needs no score.
    score: Option<u8>,
}

/// What scored the same.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    items: u32,
    /// Bytes in the segments.
    bytes: u64,
    /// The same and the bodies of long values.
    total_bytes: u64,
}

/// From which score on items are kept.
#[derive(Clone, Copy, Debug)]
struct Cut {
    score: u8,
    /// Items of just that score that are dropped, the oldest, before the others are kept.
    dropped_at_score: u32,
}

/// Counts the jobs that exist.
struct Running(Arc<AtomicU32>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Job {
    pub fn new(store: &Store, sources: Vec<SegmentId>, keep: Keep, aging: Aging) -> Self {
        let running = &store.maintenance.running;
        running.fetch_add(1, Ordering::Relaxed);
        let scored = !matches!(keep, Keep::Nothing | Keep::All);
        Self {
            sources,
            keep,
            aging,
            phase: if scored { Phase::Score } else { Phase::Apply },
            walk: Walk::default(),
            scores: Vec::new(),
            tally: Box::new([Tally::default(); 256]),
            cut: Cut { score: 0, dropped_at_score: 0 },
            trims: keep == Keep::All,
            destination: None,
            lost_any: false,
            expired_any: false,
            _running: Running(Arc::clone(running)),
        }
    }

    /// The segments that the job empties.
    #[cfg(all(test, loom))]
    pub fn sources(&self) -> &[SegmentId] {
        &self.sources
    }

    /// A job that keeps everything alive: it has its destination from the start. Called by the claimer of the sources, which
    /// drain from here on. `None`, and nothing has changed, if no segment is free for it.
    pub fn lossless(store: &Store, sources: Vec<SegmentId>, moment: Moment) -> Option<Self> {
        let segment = store.segments.take(Purpose::Merge)?;
        for source in &sources {
            store.segments.header(*source).pass_to(State::Draining);
        }
        let mut job = Self::new(store, sources, Keep::All, Aging::None);
        job.destination = Some(job.begin_destination(store, segment, moment));
        Some(job)
    }

    /// Works through `items` items. True when the job is done.
    pub fn run(&mut self, store: &Store, participant: &Participant, moment: Moment, items: u32) -> bool {
        let mut left = items as usize;
        loop {
            let group = self.next_group(store, left.min(GROUP));
            if group.is_empty() {
                match self.phase {
                    Phase::Score => self.decide(store),
                    Phase::Apply => {
                        self.finish(store);
                        return true;
                    }
                }
                continue;
            }
            left = left.saturating_sub(group.len());
            match self.phase {
                Phase::Score => self.score(store, &group, moment),
                Phase::Apply => self.apply(store, participant, &group, moment),
            }
            if left == 0 {
                return false;
            }
        }
    }

    /// The next items that may still be there, their buckets prefetched.
    fn next_group(&mut self, store: &Store, size: usize) -> Vec<Candidate> {
        let mut group = Vec::with_capacity(size);
        while group.len() < size {
            let Some(&segment) = self.sources.get(self.walk.source) else { break };
            if self.walk.offset >= store.segments.header(segment).write_offset() {
                self.walk.source += 1;
                self.walk.offset = 0;
                continue;
            }
            let at = Location::new(segment, self.walk.offset);
            // SAFETY: the job owns its draining sources: they keep their bytes until it retires them.
            let item = unsafe { ItemAt::read(&store.segments.arena, at) };
            store.segments.arena.prefetch(at.plus(FETCH_AHEAD_BYTES));
            self.walk.offset += item.header.size();
            let score = self.scores.get(self.walk.item).copied();
            self.walk.item += 1;
            if score == Some(SCORE_GONE) {
                continue;
            }
            let hash = store.hash_at(at);
            store.index.prefetch(hash);
            group.push(Candidate { item, hash, score });
        }
        group
    }

    fn score(&mut self, store: &Store, group: &[Candidate], moment: Moment) {
        for Candidate { item, hash, .. } in group {
            let found = store.index.find(*hash, |slot| slot.location() == item.at);
            let score = match found {
                None => SCORE_GONE,
                Some(_) if !store.is_live(item, moment) => SCORE_EXPIRED,
                Some(found) => {
                    let unlinked = store.describe(found.slot);
                    let total_bytes = u64::from(unlinked.size) + unlinked.body_bytes;
                    let score = self.score_of(store, found.slot, *hash, total_bytes);
                    let tally = &mut self.tally[usize::from(score)];
                    tally.items += 1;
                    tally.bytes += u64::from(unlinked.size);
                    tally.total_bytes += total_bytes;
                    score
                }
            };
            self.scores.push(score);
        }
    }

    fn score_of(&self, store: &Store, slot: Slot, hash: u64, bytes: u64) -> u8 {
        let frequency = slot.frequency().saturating_add(store.maintenance.past.frequency(hash));
        match self.keep {
            Keep::Used if frequency == 0 => SCORE_UNEARNED,
            Keep::Used => frequency.saturating_add(SCORE_MIN),
            Keep::Earned { unused_bytes, bytes_per_use }
                if bytes > unused_bytes.saturating_add(u64::from(frequency) * bytes_per_use) =>
            {
                SCORE_UNEARNED
            }
            Keep::Earned { .. } | Keep::Best => per_byte(frequency, bytes),
            Keep::Nothing | Keep::All => panic!("{:?} needs no scores", self.keep),
        }
    }

    /// After scoring: where to cut, and where to put what is kept.
    fn decide(&mut self, store: &Store) {
        let segment_bytes = u64::from(store.segments.segment_bytes());
        let run = u64::from(store.options.merge_run);
        let live: u64 = self.tally.iter().map(|tally| tally.bytes).sum();
        let total: u64 = self.tally.iter().map(|tally| tally.total_bytes).sum();
        let is_alone = self.sources.len() == 1;
        let has_bodies = total - live > segment_bytes;
        // What the run may keep: its share by the length of runs, or all but what a run is to free, if that is more.
        let total_room = match self.keep {
            Keep::Earned { .. } if !has_bodies => total,
            _ if is_alone && !has_bodies => total / run,
            _ => {
                let freed = if is_alone { run - 1 } else { self.sources.len() as u64 - 1 };
                (total / run).max(total.saturating_sub(freed * segment_bytes))
            }
        };
        // Of a few large items one makes up much of the segment: what has earned its place does not go for less than itself.
        let in_vain = store.maintenance.in_vain.load(Ordering::Relaxed);
        let (room, rounded): (_, fn(f64) -> f64) = match self.keep {
            Keep::Earned { .. } if !has_bodies && in_vain >= IN_VAIN_MAX => (segment_bytes / 2, f64::ceil),
            Keep::Earned { .. } if !has_bodies => (segment_bytes / 8 * 7, f64::floor),
            _ => (segment_bytes, f64::ceil),
        };
        // Long values free so much, one by one, that what has not earned its place can stay until it is needed.
        let lowest = if has_bodies { SCORE_UNEARNED } else { SCORE_MIN };
        self.cut = cut(&self.tally, room, total_room, lowest, rounded);
        if self.cut.score == SCORE_UNEARNED {
            self.trims = true;
            self.aging = Aging::None;
        }
        self.phase = Phase::Apply;
        self.walk = Walk::default();
    }

    fn apply(&mut self, store: &Store, participant: &Participant, group: &[Candidate], moment: Moment) {
        for Candidate { item, hash, score } in group {
            let kept = self.wants(*score)
                && store.is_live(item, moment)
                && self.keep_item(store, participant, item, *hash, moment);
            if !kept {
                match store.unlink(participant, item, *hash, moment) {
                    Some(true) => self.lost_any = true,
                    Some(false) => self.expired_any = true,
                    None => {}
                }
            }
        }
    }

    fn wants(&mut self, score: Option<u8>) -> bool {
        match (self.keep, score) {
            (Keep::Nothing, _) => false,
            (Keep::All, _) => true,
            (_, None) => panic!("an item was not scored"),
            (_, Some(score)) if score == self.cut.score && self.cut.dropped_at_score > 0 => {
                self.cut.dropped_at_score -= 1;
                false
            }
            (_, Some(score)) => score >= self.cut.score.max(SCORE_UNEARNED),
        }
    }

    /// Copies an item and turns its slot to the copy. False if there was no room or the item is not in the index.
    fn keep_item(
        &mut self,
        store: &Store,
        participant: &Participant,
        item: &ItemAt,
        hash: u64,
        moment: Moment,
    ) -> bool {
        let expiry = store.segments.header(item.at.segment()).expiry_seconds(item.header.expiry);
        let size = item.header.size();
        let fits = self.destination.as_ref().and_then(|at| room_in(store, at, size, expiry));
        let Some(expiry_byte) = fits.or_else(|| self.next_destination(store, size, expiry, moment)) else {
            return false;
        };
        let destination = self.destination.as_mut().expect("there is room in it");
        let to = Location::new(destination.segment, destination.offset);
        let moved = store.move_item(item, hash, to, expiry_byte, self.aging);
        if moved {
            destination.offset += size;
            store.segments.header(destination.segment).append(destination.offset, expiry);
            store.counters.add(participant.number(), Counter::Survived, 1);
        }
        moved
    }

    /// Goes on to another destination, for an item of `size` bytes: the one that an earlier eviction left, or a new one.
    /// Answers the item's expiry there; `None` if there is no segment for it.
    fn next_destination(&mut self, store: &Store, size: u32, expiry: Option<u64>, moment: Moment) -> Option<u8> {
        if self.keep == Keep::All {
            return None;
        }
        let source = store.segments.header(self.sources[0]);
        let bucket = TtlBucket::from_index(source.ttl_bucket.load(Ordering::Relaxed).into());
        let generation = source.generation.load(Ordering::Relaxed);
        let survivors = &store.maintenance.survivors;
        let begun = if self.trims { None } else { survivors.take(&store.segments, bucket, generation, moment) };
        let begun = begun.and_then(|begun| match room_in(store, &begun, size, expiry) {
            Some(expiry_byte) => Some((begun, expiry_byte)),
            None => {
                store.segments.header(begun.segment).pass_to(State::Sealed);
                None
            }
        });
        let begun = begun.or_else(|| {
            let new = self.begin_destination(store, store.segments.take(Purpose::Merge)?, moment);
            let expiry_byte = store.segments.header(new.segment).expiry_byte(expiry);
            if expiry_byte.is_none() {
                // Another thread has seen a later time, at which this item has expired.
                store.segments.retire(new.segment);
            }
            Some((new, expiry_byte?))
        });
        let (next, expiry_byte) = begun?;
        if let Some(full) = self.destination.replace(next) {
            self.chain(store, &full);
            store.segments.header(full.segment).pass_to(State::Sealed);
        }
        Some(expiry_byte)
    }

    fn begin_destination(&self, store: &Store, segment: SegmentId, moment: Moment) -> Destination {
        let (header, source) = (store.segments.header(segment), store.segments.header(self.sources[0]));
        let bucket = TtlBucket::from_index(source.ttl_bucket.load(Ordering::Relaxed).into());
        store.chains.start(header, bucket, moment, source.generation.load(Ordering::Relaxed));
        let rounds = source.rounds.load(Ordering::Relaxed);
        if self.trims {
            header.stamp.store(source.stamp.load(Ordering::Relaxed), Ordering::Relaxed);
            header.rounds.store(rounds, Ordering::Relaxed);
        } else {
            header.rounds.store(rounds.saturating_add(1), Ordering::Relaxed);
        }
        let seal_at_ms = moment.ms.saturating_add(store.chains.scale.open_ms(bucket));
        Destination { segment, offset: 0, seal_at_ms, is_chained: false }
    }

    /// Gives a destination its place in the chain: before the run, and before every segment whose items it has.
    fn chain(&self, store: &Store, destination: &Destination) {
        let opened = |segment| store.segments.header(segment).opened_ms.load(Ordering::Relaxed);
        if destination.is_chained {
            if opened(destination.segment) <= opened(self.sources[0]) {
                return;
            }
            store.chains.remove(&store.segments, destination.segment);
        }
        store.chains.insert_before(&store.segments, self.sources[0], destination.segment);
    }

    /// A flush while the job ran looked for segments to drop when the job's destinations were open: it is to look again.
    fn look_for_flushed(&self, store: &Store) {
        let current = store.generation.load(Ordering::Acquire);
        let generation = store.segments.header(self.sources[0]).generation.load(Ordering::Relaxed);
        if self.keep != Keep::Nothing && generation != current {
            store.maintenance.note_flush(current);
        }
    }

    /// Every item is dealt with: the destination takes the run's place, the run retires.
    fn finish(&mut self, store: &Store) {
        match self.destination.take() {
            None => {}
            Some(empty) if empty.offset == 0 => store.segments.retire(empty.segment),
            Some(destination) => {
                self.chain(store, &destination);
                if self.trims {
                    store.segments.header(destination.segment).pass_to(State::Sealed);
                } else {
                    store
                        .maintenance
                        .survivors
                        .give_back(&store.segments, Destination { is_chained: true, ..destination });
                }
            }
        }
        self.look_for_flushed(store);
        if matches!(self.keep, Keep::Earned { .. }) {
            let in_vain = &store.maintenance.in_vain;
            let found = store.segments.free_for_writers() > 0;
            in_vain.store(if found { 0 } else { in_vain.load(Ordering::Relaxed).saturating_add(1) }, Ordering::Relaxed);
        }
        let counter = match (self.lost_any, self.expired_any) {
            (true, _) => Counter::SegmentsEvicted,
            (false, true) => Counter::SegmentsExpired,
            (false, false) => Counter::SegmentsCompacted,
        };
        for &segment in &self.sources {
            store.chains.remove(&store.segments, segment);
            debug_assert_eq!(store.segments.header(segment).live_items(), 0, "an emptied segment");
            store.segments.retire(segment);
        }
        store.counters.add(0, counter, self.sources.len() as u64);
    }
}

/// The expiry byte of an item of `size` bytes in a destination; `None` if it does not fit there.
fn room_in(store: &Store, destination: &Destination, size: u32, expiry: Option<u64>) -> Option<u8> {
    let fits = destination.offset + size <= store.segments.segment_bytes();
    fits.then(|| store.segments.header(destination.segment).expiry_byte(expiry)).flatten()
}

/// The score of an item by its use per byte (GreedyDual-Size-Frequency without aging; Segcache, section 3.6.3): eighths of
/// a power of two. An item that was never used counts as a sixteenth of a use, so that small ones stay first.
fn per_byte(frequency: u8, bytes: u64) -> u8 {
    let value = ((u64::from(frequency) * 16 + 1) << 23) / bytes.max(1);
    let exponent = value.max(1).ilog2();
    let eighths = if exponent >= 3 { value >> (exponent - 3) & 7 } else { 0 };
    (u64::from(exponent) * 8 + eighths).clamp(SCORE_MIN.into(), u8::MAX.into()) as u8
}

/// The score from which on items fit `room` bytes in a segment and `total_room` with their bodies; never below `lowest`.
/// `rounded` makes a whole number of those to drop.
fn cut(tally: &[Tally; 256], room: u64, total_room: u64, lowest: u8, rounded: fn(f64) -> f64) -> Cut {
    let (mut bytes, mut total) = (0, 0);
    for score in (lowest..=u8::MAX).rev() {
        let here = tally[usize::from(score)];
        if bytes + here.bytes > room || total + here.total_bytes > total_room {
            let share = |left: u64, wanted: u64| if wanted == 0 { 1.0 } else { left as f64 / wanted as f64 };
            let fits = share(room - bytes, here.bytes).min(share(total_room - total, here.total_bytes)).min(1.0);
            let dropped_at_score = rounded(f64::from(here.items) * (1.0 - fits)) as u32;
            return Cut { score, dropped_at_score };
        }
        bytes += here.bytes;
        total += here.total_bytes;
    }
    Cut { score: lowest, dropped_at_score: 0 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::evict::Progress;
    use crate::ops::{Mode, Write};
    use crate::options::Options;
    use crate::ttl::Ttl;

    #[test]
    fn the_cut_fills_the_room_exactly() {
        let mut tally = [Tally::default(); 256];
        tally[200] = Tally { items: 10, bytes: 1000, total_bytes: 1000 };
        tally[100] = Tally { items: 10, bytes: 1000, total_bytes: 5000 };
        let all = cut(&tally, 10_000, 10_000, SCORE_MIN, f64::ceil);
        assert_eq!((all.score, all.dropped_at_score), (SCORE_MIN, 0));
        let half = cut(&tally, 1500, 10_000, SCORE_MIN, f64::ceil);
        assert_eq!((half.score, half.dropped_at_score), (100, 5));
        let by_bodies = cut(&tally, 10_000, 2000, SCORE_MIN, f64::ceil);
        assert_eq!((by_bodies.score, by_bodies.dropped_at_score), (100, 8));
        let used = cut(&tally, 10_000, 10_000, 150, f64::ceil);
        assert_eq!((used.score, used.dropped_at_score), (150, 0));
    }

    #[test]
    fn scores_rank_use_per_byte() {
        assert!(per_byte(2, 100) > per_byte(1, 100));
        assert!(per_byte(1, 100) > per_byte(1, 200));
        assert_eq!(per_byte(127, 6).max(SCORE_MIN), per_byte(127, 6));
        assert!(per_byte(0, 1 << 30) >= SCORE_MIN && per_byte(0, 100) > per_byte(0, 1 << 20));
        assert!(per_byte(127, 6) > per_byte(63, 6), "the top of the scale is not cut off");
    }

    fn store() -> (Store, Participant) {
        let options = Options { memory_bytes: 1 << 20, value_bytes_max: 1 << 19, ..Options::default() };
        let store = Store::new(options).unwrap();
        let participant = store.participate();
        (store, participant)
    }

    fn set(store: &Store, participant: &Participant, key: &[u8], ttl: u32, now_ms: u64) -> (ItemAt, u64) {
        let hash = store.hash(key);
        let write =
            Write { key, hash, value: b"value", flags: 0, ttl: Ttl::seconds(ttl), mode: Mode::Set, token: None };
        store.write(participant, &write, now_ms).unwrap();
        (store.get(participant, key, hash, now_ms).unwrap().item_at(), hash)
    }

    #[test]
    fn a_job_goes_on_with_a_time_from_before_its_destination() {
        let (store, participant) = store();
        let (long, _) = set(&store, &participant, b"long", 127, 1000);
        let (short, _) = set(&store, &participant, b"short", 64, 1000);
        assert_eq!(long.at.segment(), short.at.segment());
        let (early, late) = (store.moment(50_000), store.moment(100_000));
        store.chains.seal_open(&store.segments, crate::chains::Seal::All);
        let mut job = Job::lossless(&store, vec![long.at.segment()], late).unwrap();
        assert!(!job.run(&store, &participant, late, 1));
        while !job.run(&store, &participant, early, 1) {}
        drop(job);
        assert!(store.get(&participant, b"long", store.hash(b"long"), 100_000).is_some());
        store.verify(&participant, 100_000);
    }

    #[test]
    fn nothing_is_moved_past_a_flush() {
        let (store, participant) = store();
        let (item, hash) = set(&store, &participant, b"key", 100, 1000);
        store.flush(1000, 0);
        let moment = store.moment(1000);
        let life = store.life(Ttl::seconds(100), moment).unwrap();
        let reserved = store.reserve(&participant, item.header.size(), life, moment).unwrap();
        let to = Location::new(reserved.segment, reserved.offset);
        assert!(!store.move_item(&item, hash, to, reserved.expiry_byte, Aging::None));
        drop(reserved);
        assert!(store.get(&participant, b"key", hash, 1000).is_none());
        store.verify(&participant, 1000);
    }

    #[test]
    fn of_long_values_only_the_oldest_unused_go_and_the_rest_stay_young() {
        let options = Options {
            memory_bytes: 4 << 20,
            segment_bytes: Some(4 << 10),
            value_bytes_max: 1 << 20,
            ..Options::default()
        };
        let store = Arc::new(Store::new(options).unwrap());
        let participant = store.participate();
        let get = |number: u32| {
            let key = number.to_le_bytes();
            store.get(&participant, &key, store.hash(&key), 1000).map(|item| item.item_at().at.segment())
        };
        let mut number = 0u32;
        while store.stats().evictions == 0 {
            let key = number.to_le_bytes();
            let make_room = || assert_ne!(store.evict(&participant, 1000), Progress::Stuck);
            let mut upload = store.upload(&key, store.hash(&key), 0, 50_000).unwrap();
            let mut left = &[1; 50_000][..];
            while upload.write(&mut left).is_err() {
                make_room();
            }
            while upload.finish(&participant, Ttl::Never, Mode::Set, None, 1000).is_err() {
                make_room();
            }
            assert!(number > 0 || get(0).is_some(), "the first is used once");
            number += 1;
        }
        assert!(number > 50, "{number} values of 50 KB fit 4 MiB");
        assert!(get(1).is_none() && store.stats().evictions <= 3, "{:?}", store.stats());
        let first = get(0).expect("what was used stays");
        assert_eq!(store.segments.header(first).rounds.load(Ordering::Relaxed), 0);
        assert!((4..number).all(|number| get(number).is_some()));
        store.verify(&participant, 1000);
    }
}
