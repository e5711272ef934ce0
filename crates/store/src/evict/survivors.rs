//! Segments that evictions have begun to fill with what they keep.
//!
//! The survivors of one eviction rarely fill a segment. The next eviction in the same TTL bucket goes on where it ends;
//! meanwhile it is kept here: open, in its chain, and owned by this list. A segment leaves the list for a job, which owns it
//! then, or it is sealed: when it is full or has been open long enough, when everything in it has expired, and whenever all open
//! segments are sealed.

use crate::chains::Seal;
use crate::segment::{SegmentId, Segments, State};
use crate::store::Store;
use crate::sync::{Mutex, Ordering, lock};
use crate::time::Moment;
use crate::ttl::TtlBucket;

/// The share of all segments that may be kept open here, and the most. Sealed early they would waste as much: the share is
/// only so small that there is always something sealed to evict.
const OPEN_SHARE: u32 = 16;
const OPEN_MAX: usize = 64;
/// A segment with less room than this share is full.
const FULL_SHARE: u32 = 64;

/// An open segment of survivors.
#[derive(Debug)]
pub(super) struct Destination {
    pub segment: SegmentId,
    pub offset: u32,
    pub seal_at_ms: u64,
    /// Whether it is in its chain.
    pub is_chained: bool,
}

/// The open segments of survivors that no job works at, the oldest first.
#[derive(Default)]
pub(crate) struct Survivors(Mutex<Vec<Destination>>);

impl Survivors {
    /// The segment to go on with in this TTL bucket and generation.
    pub(super) fn take(
        &self,
        segments: &Segments,
        bucket: TtlBucket,
        generation: u32,
        moment: Moment,
    ) -> Option<Destination> {
        let mut open = lock(&self.0);
        let at = open.iter().position(|destination| {
            let header = segments.header(destination.segment);
            usize::from(header.ttl_bucket.load(Ordering::Relaxed)) == bucket.index()
                && header.generation.load(Ordering::Relaxed) == generation
                && moment.ms < destination.seal_at_ms
        })?;
        Some(open.remove(at))
    }

    /// Keeps a segment for the next eviction, or seals it if it is full. With too many, the fullest is sealed.
    pub(super) fn give_back(&self, segments: &Segments, destination: Destination) {
        debug_assert!(destination.is_chained && destination.offset > 0);
        if segments.segment_bytes() - destination.offset < segments.segment_bytes() / FULL_SHARE {
            segments.header(destination.segment).pass_to(State::Sealed);
            return;
        }
        let most = (segments.limit() / OPEN_SHARE).clamp(1, OPEN_MAX as u32) as usize;
        let mut open = lock(&self.0);
        open.push(destination);
        while open.len() > most {
            let fullest = open.iter().enumerate().max_by_key(|(_, destination)| destination.offset);
            let (at, _) = fullest.expect("there are more than one");
            segments.header(open.remove(at).segment).pass_to(State::Sealed);
        }
    }

    fn seal(&self, segments: &Segments, which: Seal) -> u32 {
        let mut open = lock(&self.0);
        let before = open.len();
        open.retain(|destination| {
            let header = segments.header(destination.segment);
            let is_chosen = match which {
                Seal::All => true,
                Seal::Due(moment) => {
                    moment.ms >= destination.seal_at_ms || header.latest_expiry_seconds() <= moment.seconds()
                }
                Seal::Segment(segment) => destination.segment == segment,
            };
            if is_chosen {
                header.pass_to(State::Sealed);
            }
            !is_chosen
        });
        (before - open.len()) as u32
    }

    /// How many are open, for statistics.
    pub fn count(&self) -> u32 {
        lock(&self.0).len() as u32
    }

    /// Each with the end of its items, for `verify`.
    pub fn each(&self, mut visit: impl FnMut(SegmentId, u32)) {
        lock(&self.0).iter().for_each(|destination| visit(destination.segment, destination.offset));
    }
}

impl Store {
    /// Seals open segments, of writers and of survivors. Answers how many.
    pub(crate) fn seal_open(&self, which: Seal) -> u32 {
        self.chains.seal_open(&self.segments, which) + self.maintenance.survivors.seal(&self.segments, which)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::epoch::Participant;
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

    fn set(store: &Store, participant: &Participant, number: u32, ttl: u32, now_ms: u64) {
        let key = number.to_le_bytes();
        let (hash, ttl) = (store.hash(&key), Ttl::seconds(ttl));
        let write = Write { key: &key, hash, value: &[7; 500], flags: 0, ttl, mode: Mode::Set, token: None };
        while store.write(participant, &write, now_ms).is_err() {
            assert_ne!(store.evict(participant, now_ms), Progress::Stuck);
        }
    }

    fn get(store: &Store, participant: &Participant, number: u32, now_ms: u64) -> bool {
        let key = number.to_le_bytes();
        store.get(participant, &key, store.hash(&key), now_ms).is_some()
    }

    /// Writes objects of which every tenth is used, until there are survivors. Answers how many were written.
    fn until_some_survive(store: &Store, participant: &Participant, ttl: u32, now_ms: u64) -> u32 {
        let mut number = 0;
        while store.maintenance.survivors.count() == 0 {
            set(store, participant, number, ttl, now_ms);
            if number.is_multiple_of(10) {
                get(store, participant, number, now_ms);
            }
            number += 1;
            assert!(number < 100_000, "nothing survives");
        }
        number
    }

    #[test]
    fn an_object_as_large_as_a_segment_survives_by_its_use() {
        let (store, participant) = store();
        let value = vec![7; store.contiguous_value_bytes(4)];
        for number in 0..1000u32 {
            let key = number.to_le_bytes();
            let (hash, ttl) = (store.hash(&key), Ttl::Never);
            let write = Write { key: &key, hash, value: &value, flags: 0, ttl, mode: Mode::Set, token: None };
            while store.write(&participant, &write, 1000).is_err() {
                assert_ne!(store.evict(&participant, 1000), Progress::Stuck);
            }
            assert!(get(&store, &participant, 0, 1000), "it is used all the time, {number} later");
        }
        assert!(store.stats().evictions > 900);
        store.verify(&participant, 1000);
    }

    #[test]
    fn a_write_does_not_wait_for_a_round_through_a_store_in_which_all_is_used() {
        let options = Options { memory_bytes: 4 << 20, segment_bytes: Some(4 << 10), ..Options::default() };
        let store = Store::new(options).unwrap();
        let participant = store.participate();
        let mut steps_most = 0;
        for number in 0..1500u32 {
            let key = number.to_le_bytes();
            let (hash, ttl) = (store.hash(&key), Ttl::Never);
            let write = Write { key: &key, hash, value: &[7; 3000], flags: 0, ttl, mode: Mode::Set, token: None };
            let mut steps = 0;
            while store.write(&participant, &write, 1000).is_err() {
                assert_ne!(store.evict(&participant, 1000), Progress::Stuck);
                steps += 1;
            }
            steps_most = steps.max(steps_most);
            get(&store, &participant, number, 1000);
        }
        assert!(steps_most < 100, "{steps_most} evictions before one write");
        store.verify(&participant, 1000);
    }

    #[test]
    fn survivors_of_many_evictions_share_a_segment() {
        let (store, participant) = store();
        let written = until_some_survive(&store, &participant, 10_000, 1000);
        let evicted_before = store.stats().segments_evicted;
        let mut segments = std::collections::HashSet::new();
        for number in written..written + 300 {
            set(&store, &participant, number, 10_000, 1000);
            get(&store, &participant, number / 10 * 10, 1000);
            store.maintenance.survivors.each(|segment, _| {
                segments.insert(segment);
            });
        }
        let evicted = store.stats().segments_evicted - evicted_before;
        assert!(evicted >= 6 && segments.len() as u64 <= evicted / 3, "{segments:?} after {evicted} evictions");
        assert!((0..50).step_by(10).all(|number| get(&store, &participant, number, 1000)), "what was used has stayed");
        store.verify(&participant, 1000);
    }

    #[test]
    fn survivors_of_several_lives_have_a_segment_each() {
        let (store, participant) = store();
        let lives = [100, 10_000, 1_000_000];
        let mut open_most = 0;
        for number in 0..12_000u32 {
            set(&store, &participant, number, lives[number as usize % 3], 1000);
            get(&store, &participant, number / 30 * 10, 1000);
            open_most = store.maintenance.survivors.count().max(open_most);
        }
        assert_eq!(open_most, 3);
        store.verify(&participant, 1000);
    }

    #[test]
    fn a_segment_of_survivors_is_sealed_when_its_time_has_come() {
        let (store, participant) = store();
        until_some_survive(&store, &participant, 100, 1000);
        store.maintain(&participant, 1500);
        let open = || {
            let mut segments = Vec::new();
            store.maintenance.survivors.each(|segment, _| segments.push(segment));
            segments
        };
        let early = open();
        assert_eq!(early.len(), 1);
        let later_ms = 1000 + store.chains.scale.open_ms(store.chains.scale.bucket(100));
        store.maintain(&participant, later_ms);
        assert!(!open().contains(&early[0]), "another may be open by now");
        while store.maintain(&participant, 102_000) == Progress::Working {}
        assert_eq!((store.stats().items, store.stats().segments_open), (0, 0));
        store.verify(&participant, 102_000);
    }

    #[test]
    fn survivors_do_not_outlive_a_flush() {
        let (store, participant) = store();
        let written = until_some_survive(&store, &participant, 10_000, 1000);
        store.flush(1000, 0);
        for number in 0..written {
            assert!(!get(&store, &participant, number, 1000));
            set(&store, &participant, number, 10_000, 1000);
            get(&store, &participant, number, 1000);
        }
        while store.maintain(&participant, 1000) == Progress::Working {}
        store.verify(&participant, 1000);
        assert!(store.stats().items > 0);
    }
}
