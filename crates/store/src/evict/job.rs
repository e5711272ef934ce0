//! The one executor of evictions: empties a run of draining segments, keeps what the decision says, retires the run.
//!
//! Two passes over the run, each resumable at any item. **Scoring** looks every item up in the index: is it alive, how
//! often was it used? A histogram of the scores of all of them gives the exact score from which on items fit. **Applying**
//! copies what is kept to the destination and turns its slot there under the bucket lock, if the slot still points at the
//! old copy; everything else is unlinked. Readers go on reading the old copies until their grace period is over.
//!
//! The destination takes the place of the run in its chain, so that the chain stays sorted by time. What is kept of a whole run
//! fills a segment of its own; other survivors go on where those of an earlier eviction ended, and so does what a compaction
//! moves (see `open_destinations`).

use super::open_destinations::Destination;
use super::policy::{Aging, Retention};
use super::scores::{
    SCORE_EXPIRED, SCORE_MIN, SCORE_UNLINKED, SCORE_UNQUALIFIED, ScoreThreshold, ScoreTotals, threshold, use_per_byte,
};
use crate::epoch::Participant;
use crate::index::{Items, Slot};
use crate::item::ItemAt;
use crate::segment::{Location, Purpose, SegmentId};
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
/// A slice ends with the group that makes it so many bytes that were copied: about as long as its items otherwise take.
const SLICE_BYTES: u32 = 256 << 10;
/// The same with something below, of bytes that were copied or went there: its buffers may be as small as a few of these.
const SLICE_BYTES_TIERED: u32 = 16 << 10;
/// Large items that are all in use can keep evictions from freeing anything: a writer waits for this many at most.
const EVICTIONS_WITHOUT_GAIN_MAX: u32 = 64;

/// A run of segments being emptied.
pub(super) struct Job {
    sources: Vec<SegmentId>,
    retention: Retention,
    aging: Aging,
    phase: Phase,
    cursor: RunCursor,
    /// One score per item of the run, in order.
    scores: Vec<u8>,
    totals: Box<[ScoreTotals; 256]>,
    threshold: ScoreThreshold,
    /// It only makes the room that is needed now: what it leaves stays as it is, young or old, and is judged again.
    is_partial: bool,
    /// Where kept items go.
    destination: Option<Destination>,
    /// Of a job that keeps everything: where its items go on when that is full, if they do not all fit there.
    spare: Option<Destination>,
    has_switched_to_spare: bool,
    /// Free segments that were taken for what an eviction keeps.
    taken: usize,
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
struct RunCursor {
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

/// How many jobs exist, and how many have ended.
#[derive(Default)]
pub(super) struct JobCounts {
    running: AtomicU32,
    ended: AtomicU32,
}

impl JobCounts {
    pub fn running(&self) -> u32 {
        self.running.load(Ordering::Relaxed)
    }

    /// Wraps around.
    pub fn ended(&self) -> u32 {
        // Acquire pairs with the Release in `Running::drop`: who sees the end sees what the job has freed.
        self.ended.load(Ordering::Acquire)
    }
}

/// Counts a job.
struct Running(Arc<JobCounts>);

impl Drop for Running {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `JobCounts::ended`.
        self.0.ended.fetch_add(1, Ordering::Release);
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Job {
    /// A job for segments that the caller claims: they drain before it runs.
    pub fn new(store: &Store, sources: Vec<SegmentId>, retention: Retention, aging: Aging) -> Self {
        let jobs = &store.maintenance.job_counts;
        jobs.running.fetch_add(1, Ordering::Relaxed);
        let scored = !matches!(retention, Retention::Nothing | Retention::All);
        Self {
            sources,
            retention,
            aging,
            phase: if scored { Phase::Score } else { Phase::Apply },
            cursor: RunCursor::default(),
            scores: Vec::new(),
            totals: Box::new([ScoreTotals::default(); 256]),
            threshold: ScoreThreshold { score: 0, dropped_at_threshold: 0 },
            is_partial: retention == Retention::All,
            destination: None,
            spare: None,
            has_switched_to_spare: false,
            taken: 0,
            lost_any: false,
            expired_any: false,
            _running: Running(Arc::clone(jobs)),
        }
    }

    /// The segments that the job empties.
    pub fn sources(&self) -> &[SegmentId] {
        &self.sources
    }

    /// A job that keeps everything alive: it has room for all of it from the start, in a begun segment or in a free one.
    /// `None`, and nothing has changed, if there is no such room.
    pub fn lossless(store: &Store, sources: Vec<SegmentId>, moment: Moment) -> Option<Self> {
        let header = |segment| store.segments.header(segment);
        let live: u32 = sources.iter().map(|source| header(*source).live_bytes()).sum();
        let latest = sources.iter().map(|source| header(*source).latest_expiry_seconds()).max();
        let latest = latest.filter(|seconds| *seconds != u64::MAX);
        let first = header(sources[0]);
        let suits = |open: &Destination| header(open.segment).is_young() == first.is_young();
        let fits = |open: &Destination| suits(open) && fits_in(store, open, live, latest).is_some();
        let compacted = &store.maintenance.compacted;
        let mut destination = compacted.take(&store.segments, first, moment, fits);
        let mut free = None;
        if destination.is_none() {
            free = Some(store.segments.take(Purpose::Merge)?);
            destination = compacted.take(&store.segments, first, moment, suits);
        }
        let mut job = Self::new(store, sources, Retention::All, Aging::None);
        job.destination = destination;
        job.spare = free.map(|segment| job.open_destination(store, segment, moment));
        Some(job)
    }

    /// Works through `items` items, or fewer if they are long. True when the job is done.
    pub fn run(&mut self, store: &Store, participant: &Participant, moment: Moment, items: u32) -> bool {
        let mut left = items as usize;
        let has_lower_tier = store.lower_tier.get().is_some();
        let bytes_max = if has_lower_tier { SLICE_BYTES_TIERED } else { SLICE_BYTES };
        let mut copied = 0;
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
                Phase::Apply => {
                    let moved = self.apply(store, participant, &group, moment);
                    copied += if has_lower_tier {
                        group.iter().map(|candidate| candidate.item.header.size()).sum()
                    } else {
                        moved
                    };
                }
            }
            if left == 0 || copied >= bytes_max {
                return false;
            }
        }
    }

    /// The next items that may still be there, their buckets prefetched.
    fn next_group(&mut self, store: &Store, size: usize) -> Vec<Candidate> {
        let mut group = Vec::with_capacity(size);
        while group.len() < size {
            let Some(&segment) = self.sources.get(self.cursor.source) else { break };
            if self.cursor.offset >= store.segments.header(segment).write_offset() {
                self.cursor.source += 1;
                self.cursor.offset = 0;
                continue;
            }
            let at = Location::new(segment, self.cursor.offset);
            // SAFETY: the job owns its draining sources: they keep their bytes until it retires them.
            let item = unsafe { ItemAt::read(&store.segments.arena, at) };
            store.segments.arena.prefetch(at.plus(FETCH_AHEAD_BYTES));
            self.cursor.offset += item.header.size();
            let score = self.scores.get(self.cursor.item).copied();
            self.cursor.item += 1;
            if score == Some(SCORE_UNLINKED) {
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
                None => SCORE_UNLINKED,
                Some(_) if !store.is_live(item, moment) => SCORE_EXPIRED,
                Some(found) => {
                    let unlinked = store.footprint(found.slot);
                    let total_bytes = u64::from(unlinked.size) + unlinked.body_bytes;
                    let score = self.score_of(store, found.slot, *hash, total_bytes);
                    let totals = &mut self.totals[usize::from(score)];
                    totals.items += 1;
                    totals.bytes += u64::from(unlinked.size);
                    totals.total_bytes += total_bytes;
                    score
                }
            };
            self.scores.push(score);
        }
    }

    fn score_of(&self, store: &Store, slot: Slot, hash: u64, bytes: u64) -> u8 {
        let frequency = slot.frequency().saturating_add(store.maintenance.history.frequency(hash));
        match self.retention {
            Retention::Used if frequency == 0 => SCORE_UNQUALIFIED,
            Retention::Used => frequency.saturating_add(SCORE_MIN),
            Retention::Qualified { unused_bytes, bytes_per_use }
                if bytes > unused_bytes.saturating_add(u64::from(frequency) * bytes_per_use) =>
            {
                SCORE_UNQUALIFIED
            }
            Retention::Qualified { .. } | Retention::TopScored => use_per_byte(frequency, bytes),
            Retention::Nothing | Retention::All => panic!("{:?} needs no scores", self.retention),
        }
    }

    /// After scoring: where to cut, and where to put what is kept.
    fn decide(&mut self, store: &Store) {
        let segment_bytes = u64::from(store.segments.segment_bytes());
        let run = u64::from(store.options.merge_run);
        let live: u64 = self.totals.iter().map(|totals| totals.bytes).sum();
        let total: u64 = self.totals.iter().map(|totals| totals.total_bytes).sum();
        let is_alone = self.sources.len() == 1;
        let has_bodies = total - live > segment_bytes;
        // What the run may keep: its share by the length of runs, or all but what a run is to free, if that is more.
        let total_bytes_max = match self.retention {
            Retention::Qualified { .. } if !has_bodies => total,
            _ if is_alone && !has_bodies => total / run,
            _ => {
                let freed = if is_alone { run - 1 } else { self.sources.len() as u64 - 1 };
                (total / run).max(total.saturating_sub(freed * segment_bytes))
            }
        };
        // Of a few large items one makes up much of the segment: what has earned its place does not go for less than itself.
        let without_gain = store.maintenance.evictions_without_gain.load(Ordering::Relaxed);
        let (bytes_max, rounded): (_, fn(f64) -> f64) = match self.retention {
            Retention::Qualified { .. } if !has_bodies && without_gain >= EVICTIONS_WITHOUT_GAIN_MAX => {
                (segment_bytes / 2, f64::ceil)
            }
            Retention::Qualified { .. } if !has_bodies => (segment_bytes / 8 * 7, f64::floor),
            _ => (segment_bytes, f64::ceil),
        };
        // Long values free so much, one by one, that what has not earned its place can stay until it is needed.
        let lowest = if has_bodies { SCORE_UNQUALIFIED } else { SCORE_MIN };
        self.threshold = threshold(&self.totals, bytes_max, total_bytes_max, lowest, rounded);
        if self.threshold.score == SCORE_UNQUALIFIED {
            self.is_partial = true;
            self.aging = Aging::None;
        }
        self.phase = Phase::Apply;
        self.cursor = RunCursor::default();
    }

    /// Moves or unlinks each. Answers the bytes that were moved.
    fn apply(&mut self, store: &Store, participant: &Participant, group: &[Candidate], moment: Moment) -> u32 {
        let mut moved = 0;
        for Candidate { item, hash, score } in group {
            // What is dead already needs no room.
            let is_known = self.retention != Retention::All
                || store.index.find(*hash, |slot| slot.location() == item.at).is_some();
            let kept = is_known
                && self.is_kept(*score)
                && store.is_live(item, moment)
                && self.copy_item(store, participant, item, *hash, moment);
            if kept {
                moved += item.header.size();
                continue;
            }
            match store.unlink(participant, item, *hash, moment) {
                Some(true) => self.lost_any = true,
                Some(false) => self.expired_any = true,
                None => {}
            }
        }
        moved
    }

    fn is_kept(&mut self, score: Option<u8>) -> bool {
        match (self.retention, score) {
            (Retention::Nothing, _) => false,
            (Retention::All, _) => true,
            (_, None) => panic!("an item was not scored"),
            (_, Some(score)) if score == self.threshold.score && self.threshold.dropped_at_threshold > 0 => {
                self.threshold.dropped_at_threshold -= 1;
                false
            }
            (_, Some(score)) => score >= self.threshold.score.max(SCORE_UNQUALIFIED),
        }
    }

    /// Copies an item and turns its slot to the copy. False if there was no room or the item is not in the index.
    fn copy_item(
        &mut self,
        store: &Store,
        participant: &Participant,
        item: &ItemAt,
        hash: u64,
        moment: Moment,
    ) -> bool {
        let expiry = store.segments.header(item.at.segment()).expiry_seconds(item.header.expiry);
        let size = item.header.size();
        let fits = self.destination.as_ref().and_then(|at| fits_in(store, at, size, expiry));
        let Some(expiry_byte) = fits.or_else(|| self.next_destination(store, size, expiry, moment)) else {
            return false;
        };
        let destination = self.destination.as_mut().expect("the item fits");
        let to = Location::new(destination.segment, destination.offset);
        let moved = store.relocate_item(item, hash, to, expiry_byte, self.aging);
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
        let source = store.segments.header(self.sources[0]);
        let next = match self.retention {
            Retention::All => return self.switch_to_spare(store, size, expiry),
            _ if self.is_partial => None,
            _ => store.maintenance.survivors.take(&store.segments, source, moment, |_| true),
        };
        let next = next.and_then(|next| match fits_in(store, &next, size, expiry) {
            Some(expiry_byte) => Some((next, expiry_byte)),
            None => {
                store.segments.seal(next.segment);
                None
            }
        });
        let next = next.or_else(|| {
            let new = self.open_destination(store, store.segments.take(Purpose::Merge)?, moment);
            self.taken += 1;
            let expiry_byte = store.segments.header(new.segment).expiry_byte(expiry);
            if expiry_byte.is_none() {
                // Another thread has seen a later time, at which this item has expired.
                store.segments.retire(new.segment);
            }
            Some((new, expiry_byte?))
        });
        let (next, expiry_byte) = next?;
        self.switch_to(store, next);
        Some(expiry_byte)
    }

    /// The same for a job that keeps everything: its spare holds all that its sources do.
    fn switch_to_spare(&mut self, store: &Store, size: u32, expiry: Option<u64>) -> Option<u8> {
        let expiry_byte = self.spare.as_ref().and_then(|spare| fits_in(store, spare, size, expiry))?;
        let spare = self.spare.take().expect("the item fits");
        self.has_switched_to_spare = true;
        self.switch_to(store, spare);
        Some(expiry_byte)
    }

    /// Goes on in `next`; what was filled before is sealed.
    fn switch_to(&mut self, store: &Store, next: Destination) {
        if let Some(full) = self.destination.replace(next) {
            self.finish_destination(store, &full);
            store.segments.seal(full.segment);
        }
    }

    fn open_destination(&self, store: &Store, segment: SegmentId, moment: Moment) -> Destination {
        let (header, source) = (store.segments.header(segment), store.segments.header(self.sources[0]));
        let bucket = TtlBucket::from_index(source.ttl_bucket.load(Ordering::Relaxed).into());
        // A source may have been opened since the job's time was read: what its expiry bytes can just hold fits no earlier origin.
        let origin = |source: &SegmentId| store.segments.header(*source).origin_seconds.load(Ordering::Relaxed);
        let origin_ms = self.sources.iter().map(origin).max().unwrap_or(0) * 1000;
        let moment = Moment { ms: moment.ms.max(origin_ms), ..moment };
        store.chains.start(header, bucket, moment, source.generation.load(Ordering::Relaxed));
        let rounds = source.rounds.load(Ordering::Relaxed);
        if self.is_partial {
            header.stamp.store(self.oldest_stamp(store), Ordering::Relaxed);
            header.rounds.store(rounds, Ordering::Relaxed);
        } else {
            header.rounds.store(rounds.saturating_add(1), Ordering::Relaxed);
        }
        let seal_at_ms = store.chains.seal_at_ms(&store.segments, bucket, moment);
        Destination { segment, offset: 0, seal_at_ms, is_chained: false }
    }

    /// Nothing more goes to a destination. Of a compaction it is as old as the oldest that it has: nobody has looked at the items.
    fn finish_destination(&self, store: &Store, destination: &Destination) {
        self.chain(store, destination);
        if self.retention == Retention::All {
            let header = store.segments.header(destination.segment);
            header.stamp.fetch_min(self.oldest_stamp(store), Ordering::Relaxed);
        }
    }

    fn oldest_stamp(&self, store: &Store) -> u64 {
        let stamps = self.sources.iter().map(|source| store.segments.header(*source).stamp.load(Ordering::Relaxed));
        stamps.min().expect("a run has a segment")
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
    fn recheck_flush(&self, store: &Store) {
        let source = store.segments.header(self.sources[0]);
        if self.retention != Retention::Nothing && source.is_flushed(store.generation.load(Ordering::Acquire)) {
            store.maintenance.flushed.note();
        }
    }

    /// Every item is dealt with: the destination takes the run's place, the run retires.
    fn finish(&mut self, store: &Store) {
        for destination in [self.destination.take(), self.spare.take()].into_iter().flatten() {
            if destination.offset == 0 {
                store.segments.retire(destination.segment);
                continue;
            }
            self.finish_destination(store, &destination);
            let maintenance = &store.maintenance;
            let list = match self.retention {
                Retention::All => &maintenance.compacted,
                _ if self.is_partial => {
                    store.segments.seal(destination.segment);
                    continue;
                }
                _ => &maintenance.survivors,
            };
            list.put_back(&store.segments, destination);
        }
        self.recheck_flush(store);
        // What expired is had back, whatever became of the rest.
        if self.retention == Retention::All && !self.expired_any {
            let without_gain = &store.maintenance.compactions_without_gain;
            let gained = self.sources.len() > usize::from(self.has_switched_to_spare);
            without_gain.store(if gained { 0 } else { without_gain.load(Ordering::Relaxed) + 1 }, Ordering::Relaxed);
        }
        if matches!(self.retention, Retention::Qualified { .. }) {
            let without_gain = &store.maintenance.evictions_without_gain;
            // A writer that waits takes what this job frees: after each of them none may be free.
            let found = self.sources.len() > self.taken || store.segments.free_for_writers() > 0;
            without_gain.store(
                if found { 0 } else { without_gain.load(Ordering::Relaxed).saturating_add(1) },
                Ordering::Relaxed,
            );
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
fn fits_in(store: &Store, destination: &Destination, size: u32, expiry: Option<u64>) -> Option<u8> {
    let fits = destination.offset + size <= store.segments.segment_bytes();
    fits.then(|| store.segments.header(destination.segment).expiry_byte(expiry)).flatten()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::evict::Progress;
    use crate::ops::{Mode, Write};
    use crate::options::Options;
    use crate::ttl::Ttl;

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
        let mut job = store.claim_relocation(long.at.segment(), late).unwrap();
        assert!(!job.run(&store, &participant, late, 1));
        while !job.run(&store, &participant, early, 1) {}
        drop(job);
        assert!(store.get(&participant, b"long", store.hash(b"long"), 100_000).is_some());
        store.verify(&participant, 100_000);
    }

    #[test]
    fn a_job_keeps_what_its_source_can_hold_whatever_its_time() {
        let (store, participant) = store();
        // A thread that was interrupted after this.
        let early = store.moment(99_999);
        // As many segments are open as may be: the next TTLs share one, whose byte holds the longest of them just so.
        (8..32).for_each(|octave| _ = set(&store, &participant, &[octave], 1 << octave, 99_999));
        let (item, hash) = set(&store, &participant, b"key", 255, 100_000);
        assert_eq!(item.header.expiry, u8::MAX, "{item:?}");
        store.seal_open(crate::chains::Seal::All);
        let mut job = store.claim_relocation(item.at.segment(), early).unwrap();
        while !job.run(&store, &participant, early, 1) {}
        drop(job);
        assert_eq!(store.stats().evictions, 0);
        let item = store.get(&participant, b"key", hash, 354_999).expect("it lives for 255 s");
        assert_eq!(item.expiry_seconds(), Some(355));
        drop(item);
        store.verify(&participant, 100_000);
    }

    #[test]
    fn a_slice_copies_long_objects_for_no_longer_than_short_ones() {
        let options = Options { memory_bytes: 64 << 20, segment_bytes: Some(1 << 20), ..Options::default() };
        let store = Store::new(options).unwrap();
        let participant = store.participate();
        for number in 0..90u32 {
            let key = number.to_le_bytes();
            let (hash, ttl) = (store.hash(&key), Ttl::Never);
            let write = Write { key: &key, hash, value: &[7; 10_000], flags: 0, ttl, mode: Mode::Set, token: None };
            store.write(&participant, &write, 1000).unwrap();
        }
        store.seal_open(crate::chains::Seal::All);
        let moment = store.moment(1000);
        let segment = store.get(&participant, &[0; 4], store.hash(&[0; 4]), 1000).unwrap().item_at().at.segment();
        let mut job = store.claim_relocation(segment, moment).unwrap();
        let mut before = 0;
        while !job.run(&store, &participant, moment, u32::MAX) {
            let copied = job.destination.as_ref().expect("something was copied").offset;
            assert!(copied > before && copied - before < 2 * SLICE_BYTES, "{before} {copied}");
            before = copied;
        }
        assert!(before > SLICE_BYTES, "it took more than a slice");
        drop(job);
        store.verify(&participant, 1000);
    }

    #[test]
    fn nothing_is_moved_past_a_flush() {
        let (store, participant) = store();
        let (item, hash) = set(&store, &participant, b"key", 100, 1000);
        store.flush(1000, 0);
        let moment = store.moment(1000);
        let life = store.lifetime(Ttl::seconds(100), moment).unwrap();
        let reserved = store.reserve(&participant, item.header.size(), life, moment).unwrap();
        let to = Location::new(reserved.segment, reserved.offset);
        assert!(!store.relocate_item(&item, hash, to, reserved.expiry_byte, Aging::None));
        drop(reserved);
        assert!(store.get(&participant, b"key", hash, 1000).is_none());
        store.verify(&participant, 1000);
    }

    #[test]
    fn evictions_of_which_writers_take_each_segment_are_not_in_vain() {
        let options = Options {
            memory_bytes: 1 << 20,
            segment_bytes: Some(16 << 10),
            value_bytes_max: 1 << 18,
            ..Options::default()
        };
        let store = Store::new(options).unwrap();
        let participant = store.participate();
        let set = |number: u32| {
            let key = number.to_le_bytes();
            let (hash, ttl) = (store.hash(&key), Ttl::Never);
            let write = Write { key: &key, hash, value: &[7; 500], flags: 0, ttl, mode: Mode::Set, token: None };
            while store.write(&participant, &write, 1000).is_err() {
                assert_ne!(store.evict(&participant, 1000), Progress::Stuck);
            }
        };
        let is_there = |number: u32| {
            let key = number.to_le_bytes();
            store.get(&participant, &key, store.hash(&key), 1000).is_some()
        };
        (0..10_000).for_each(set);
        assert!(store.stats().segments_evicted > 2 * u64::from(EVICTIONS_WITHOUT_GAIN_MAX), "{:?}", store.stats());
        // Of a segment three quarters are used.
        let hot = || (10_000..10_600).filter(|number| number % 4 > 0);
        (10_000..10_600).for_each(set);
        (0..3).for_each(|_| assert!(hot().all(is_there)));
        (20_000..30_000).for_each(set);
        assert_eq!(hot().filter(|number| !is_there(*number)).count(), 0, "of {} that are used", hot().count());
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
