//! The one executor of evictions: empties a run of draining segments, keeps what the decision says, retires the run.
//!
//! Two passes over the run, each resumable at any item. **Scoring** looks every item up in the index: is it alive, how
//! often was it used? A histogram of the scores of all of them gives the exact score from which on items fit. **Applying**
//! copies what is kept to the destination and turns its slot there under the bucket lock, if the slot still points at the
//! old copy; everything else is unlinked. Readers go on reading the old copies until their grace period is over.
//!
//! The destination takes the place of the run in its chain, so that the chain stays sorted by time. A run of one segment has
//! no use for a destination of the same size: what it keeps is appended to the open segment of the life that is left.

use super::policy::{Aging, Keep};
use super::removal::{Cause, Farewell};
use super::{HistoryUse, Policy};
use crate::epoch::Participant;
use crate::index::Slot;
use crate::item::{ItemAt, Kind};
use crate::segment::{Location, Purpose, SegmentId, State};
use crate::stats::Counter;
use crate::store::{NewItem, Store};
use crate::sync::{AtomicU32, Ordering};
use crate::time::Moment;
use crate::ttl::TtlBucket;
use std::sync::Arc;

/// Items whose index lookups overlap.
const GROUP: usize = 16;
/// Scores of items that are not in the index any more, and of those that have expired.
const SCORE_GONE: u8 = 0;
const SCORE_EXPIRED: u8 = 1;
/// The lowest score of an item that is alive.
const SCORE_MIN: u8 = 2;

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

/// Where kept items go.
struct Destination {
    segment: SegmentId,
    offset: u32,
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
        let scored = matches!(keep, Keep::Best | Keep::Used);
        Self {
            sources,
            keep,
            aging,
            phase: if scored { Phase::Score } else { Phase::Apply },
            walk: Walk::default(),
            scores: Vec::new(),
            tally: Box::new([Tally::default(); 256]),
            cut: Cut { score: 0, dropped_at_score: 0 },
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
        job.begin_destination(store, segment, moment);
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

    /// The next items with the hashes of their keys, their buckets prefetched.
    fn next_group(&mut self, store: &Store, size: usize) -> Vec<(ItemAt, u64)> {
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
            self.walk.offset += item.header.size();
            let hash = store.hash_at(at);
            store.index.prefetch(hash);
            group.push((item, hash));
        }
        group
    }

    fn score(&mut self, store: &Store, group: &[(ItemAt, u64)], moment: Moment) {
        for (item, hash) in group {
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
        let history = match (store.options.policy, &store.maintenance.history) {
            (Policy::TinyLfu, Some(history)) => history.estimate(hash),
            _ => 0,
        };
        let frequency = slot.frequency().saturating_add(history);
        match self.keep {
            Keep::Used => frequency.saturating_add(SCORE_MIN),
            _ => per_byte(frequency, bytes),
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
        let total_room = if is_alone && !has_bodies {
            total / run
        } else {
            let freed = if is_alone { run - 1 } else { self.sources.len() as u64 - 1 };
            (total / run).max(total.saturating_sub(freed * segment_bytes))
        };
        let lowest = if self.keep == Keep::Used { SCORE_MIN + 1 } else { SCORE_MIN };
        self.cut = cut(&self.tally, segment_bytes, total_room, lowest);
        self.phase = Phase::Apply;
        self.walk = Walk::default();
    }

    fn apply(&mut self, store: &Store, participant: &Participant, group: &[(ItemAt, u64)], moment: Moment) {
        for (item, hash) in group {
            let score = self.scores.get(self.walk.item).copied();
            self.walk.item += 1;
            if score == Some(SCORE_GONE) {
                continue;
            }
            let kept = self.wants(score)
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
            (_, Some(score)) => score >= self.cut.score.max(SCORE_MIN),
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
        let is_alone = self.sources.len() == 1 && self.keep != Keep::All;
        let has_bodies = item.header.kind == Kind::Chained;
        let kept = if is_alone && !has_bodies && self.destination.is_none() {
            let life = (store.bucket_until(expiry, moment), expiry);
            match store.reserve(participant, item.header.size(), life, moment) {
                Ok(reserved) => {
                    let to = Location::new(reserved.segment, reserved.offset);
                    let moved = store.move_item(item, hash, to, reserved.expiry_byte, self.aging);
                    if moved {
                        reserved.commit(&store.segments);
                    }
                    moved
                }
                Err(_) => false,
            }
        } else {
            self.keep_in_destination(store, item, hash, expiry, moment)
        };
        if kept {
            store.counters.add(participant.number(), Counter::Survived, 1);
        }
        kept
    }

    fn keep_in_destination(
        &mut self,
        store: &Store,
        item: &ItemAt,
        hash: u64,
        expiry: Option<u64>,
        moment: Moment,
    ) -> bool {
        if self.destination.is_none() {
            let Some(segment) = store.segments.take(Purpose::Merge) else { return false };
            self.begin_destination(store, segment, moment);
        }
        let destination = self.destination.as_mut().expect("it was just made");
        let size = item.header.size();
        if destination.offset + size > store.segments.segment_bytes() {
            return false;
        }
        let header = store.segments.header(destination.segment);
        // Another thread may have begun the destination at a later time, at which this item has expired.
        let Some(expiry_byte) = header.expiry_byte(expiry) else { return false };
        let to = Location::new(destination.segment, destination.offset);
        let moved = store.move_item(item, hash, to, expiry_byte, self.aging);
        if moved {
            destination.offset += size;
            header.append(destination.offset, expiry);
        }
        moved
    }

    fn begin_destination(&mut self, store: &Store, segment: SegmentId, moment: Moment) {
        let (header, source) = (store.segments.header(segment), store.segments.header(self.sources[0]));
        let bucket = TtlBucket::from_index(source.ttl_bucket.load(Ordering::Relaxed).into());
        store.chains.start(header, bucket, moment, source.generation.load(Ordering::Relaxed));
        let rounds = source.rounds.load(Ordering::Relaxed);
        if self.keep == Keep::All {
            header.stamp_ms.store(source.stamp_ms.load(Ordering::Relaxed), Ordering::Relaxed);
            header.rounds.store(rounds, Ordering::Relaxed);
        } else {
            header.rounds.store(rounds.saturating_add(1), Ordering::Relaxed);
        }
        self.destination = Some(Destination { segment, offset: 0 });
    }

    /// Every item is dealt with: the destination takes the run's place, the run retires.
    fn finish(&mut self, store: &Store) {
        if let Some(destination) = self.destination.take() {
            let header = store.segments.header(destination.segment);
            if destination.offset == 0 {
                store.segments.retire(destination.segment);
            } else {
                store.chains.insert_before(&store.segments, self.sources[0], destination.segment);
                header.pass_to(State::Sealed);
            }
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

/// The score of an item by its use per byte (GreedyDual-Size-Frequency without aging; Segcache, section 3.6.3): eighths of
/// a power of two. An item that was never used counts as a sixteenth of a use, so that small ones stay first.
fn per_byte(frequency: u8, bytes: u64) -> u8 {
    let value = ((u64::from(frequency) * 16 + 1) << 23) / bytes.max(1);
    let exponent = value.max(1).ilog2();
    let eighths = if exponent >= 3 { value >> (exponent - 3) & 7 } else { 0 };
    (u64::from(exponent) * 8 + eighths).clamp(SCORE_MIN.into(), u8::MAX.into()) as u8
}

/// The score from which on items fit `room` bytes in a segment and `total_room` with their bodies; never below `lowest`.
fn cut(tally: &[Tally; 256], room: u64, total_room: u64, lowest: u8) -> Cut {
    let (mut bytes, mut total) = (0, 0);
    for score in (lowest..=u8::MAX).rev() {
        let here = tally[usize::from(score)];
        if bytes + here.bytes > room || total + here.total_bytes > total_room {
            let share = |left: u64, wanted: u64| if wanted == 0 { 1.0 } else { left as f64 / wanted as f64 };
            let fits = share(room - bytes, here.bytes).min(share(total_room - total, here.total_bytes)).min(1.0);
            let dropped_at_score = (f64::from(here.items) * (1.0 - fits)).ceil() as u32;
            return Cut { score, dropped_at_score };
        }
        bytes += here.bytes;
        total += here.total_bytes;
    }
    Cut { score: lowest, dropped_at_score: 0 }
}

fn aged(frequency: u8, aging: Aging) -> u8 {
    match aging {
        Aging::Reset => 0,
        Aging::Halve => frequency / 2,
        Aging::Decrement => frequency.saturating_sub(1),
        Aging::None => frequency,
    }
}

impl Store {
    /// Turns the slot of an item to a copy at `to`, which the caller owns. False if the item is not in the index any more,
    /// or was flushed before the segment of `to` was opened: there it would be present again.
    fn move_item(&self, item: &ItemAt, hash: u64, to: Location, expiry_byte: u8, aging: Aging) -> bool {
        let generation = |at: Location| self.segments.header(at.segment()).generation.load(Ordering::Relaxed);
        if generation(item.at) != generation(to) {
            return false;
        }
        let arena = &self.segments.arena;
        let size = item.header.size() as usize;
        let copy = || {
            let header = crate::item::ItemHeader { expiry: expiry_byte, ..item.header };
            // SAFETY: the source drains and keeps its bytes; the destination is unpublished and the caller's.
            unsafe {
                arena.copy(item.at, to, size);
                arena.write(to, &header.encode());
            }
        };
        let is_numeric = item.header.kind == Kind::Numeric;
        if !is_numeric {
            copy();
        }
        let mut pair = self.index.lock_pair(hash);
        let Some(place) = pair.find(|slot| slot.location() == item.at) else {
            return false;
        };
        if is_numeric {
            // Its word changes under the bucket lock only, and its place in the copy depends on the address.
            self.copy_number(item, to, expiry_byte);
        }
        let unlinked = self.describe(place.slot);
        let frequency = aged(pair.reread(&place).frequency(), aging);
        pair.replace(&place, place.slot.moved(to, frequency));
        drop(pair);
        self.segments.header(item.at.segment()).remove_live(unlinked.size, unlinked.body_bytes);
        let new =
            NewItem { at: to, size: unlinked.size, body_bytes: unlinked.body_bytes, token: None, inherits_body: true };
        self.segments.header(to.segment()).add_live(new.size, new.body_bytes);
        true
    }

    fn copy_number(&self, item: &ItemAt, to: Location, expiry_byte: u8) {
        let arena = &self.segments.arena;
        let header = crate::item::ItemHeader { expiry: expiry_byte, ..item.header };
        let head = header.value_offset();
        // SAFETY: as in `move_item`; the bucket lock keeps the number still.
        unsafe {
            arena.copy(item.at, to, head as usize);
            arena.write(to, &header.encode());
            let (number, width) = item.number(arena);
            self.write_number(to.plus(head), number, width);
        }
    }

    /// Counts an item that maintenance took out of the index, and tells who wants to know of it.
    pub(super) fn note_unlinked(
        &self,
        participant: &Participant,
        item: &ItemAt,
        was_live: bool,
        farewell: Option<Farewell>,
        moment: Moment,
    ) {
        let thread = participant.number();
        let (cause, counter) = match was_live {
            true => (Cause::Memory, Counter::Evicted),
            false if self.was_flushed(item) => (Cause::Flushed, Counter::Flushed),
            false => (Cause::Expired, Counter::Expired),
        };
        self.counters.add(thread, Counter::Unlinked, 1);
        self.counters.add(thread, counter, 1);
        if let Some(farewell) = farewell {
            self.bid_farewell(farewell, cause, moment);
        }
    }

    /// Takes an item of a draining segment out of the index, if it is still there, and answers whether it was alive.
    fn unlink(&self, participant: &Participant, item: &ItemAt, hash: u64, moment: Moment) -> Option<bool> {
        let mut pair = self.index.lock_pair(hash);
        let place = pair.find(|slot| slot.location() == item.at)?;
        let is_live = self.is_live(item, moment);
        let unlinked = self.describe(place.slot);
        let farewell = self.prepare_farewell(participant, place.slot, pair.control(Some(&place)));
        pair.remove(&place);
        drop(pair);
        self.account_unlinked(&unlinked);
        self.retire_body(&unlinked);
        self.note_unlinked(participant, item, is_live, farewell, moment);
        if let (Some(history), HistoryUse::Ghosts, true) =
            (&self.maintenance.history, self.maintenance.history_use, is_live)
        {
            history.add(hash);
        }
        Some(is_live)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ops::{Mode, Write};
    use crate::options::Options;
    use crate::ttl::Ttl;

    #[test]
    fn the_cut_fills_the_room_exactly() {
        let mut tally = [Tally::default(); 256];
        tally[200] = Tally { items: 10, bytes: 1000, total_bytes: 1000 };
        tally[100] = Tally { items: 10, bytes: 1000, total_bytes: 5000 };
        let all = cut(&tally, 10_000, 10_000, SCORE_MIN);
        assert_eq!((all.score, all.dropped_at_score), (SCORE_MIN, 0));
        let half = cut(&tally, 1500, 10_000, SCORE_MIN);
        assert_eq!((half.score, half.dropped_at_score), (100, 5));
        let by_bodies = cut(&tally, 10_000, 2000, SCORE_MIN);
        assert_eq!((by_bodies.score, by_bodies.dropped_at_score), (100, 8));
        let used = cut(&tally, 10_000, 10_000, 150);
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
}
