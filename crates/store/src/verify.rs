//! Verification: walks the whole store and asserts every invariant. For tests: no other thread may use the store
//! meanwhile.

use crate::epoch::Participant;
use crate::item::{ItemAt, Kind};
use crate::segment::{Location, SegmentId, State};
use crate::stats::TtlBucketSnapshot;
use crate::store::Store;
use crate::sync::Ordering;
use std::collections::{HashMap, HashSet};

/// The sums over the slots of a segment.
#[derive(Default)]
struct SlotTotals {
    items: u32,
    bytes: u32,
    body_bytes: u64,
    locations: HashSet<Location>,
}

impl Store {
    /// Asserts that every slot points at an item with its tag and key, in a bucket of that key, that no key is there
    /// twice; that live counts and bytes match; that chains are sorted by time; that every segment is in exactly one
    /// place and every body belongs to exactly one value; and that the memory is within its budget.
    pub fn verify(&self, participant: &Participant, now_ms: u64) {
        self.finish_jobs(participant, now_ms);
        let (totals, bodies) = self.verify_slots();
        let mut owners: HashMap<SegmentId, &str> = HashMap::new();
        let mut place = |segment: SegmentId, what, state| {
            assert_eq!(self.segments.header(segment).state(), state, "{what} segment {segment:?}");
            assert_eq!(owners.insert(segment, what), None, "segment {segment:?} is in two locations");
        };
        self.segments.verify_frames();
        for segment in self.segments.free_list() {
            place(segment, "free", State::Free);
        }
        for segment in self.segments.withheld_list() {
            place(segment, "withheld", State::Absent);
        }
        self.segments.retired_list().into_iter().for_each(|segment| place(segment, "retired", State::Retired));
        bodies.into_iter().for_each(|segment| place(segment, "body", State::Body));
        let mut chained_open = Vec::new();
        self.chains.each_chain(&self.segments, |bucket, chain| {
            let mut opened = 0;
            for &segment in chain {
                let header = self.segments.header(segment);
                if header.state() == State::Open {
                    chained_open.push(segment);
                }
                place(segment, "chained", if header.state() == State::Open { State::Open } else { State::Sealed });
                let at = header.opened_ms.load(Ordering::Relaxed);
                assert!(at >= opened, "chain {bucket:?} is sorted by time");
                opened = at;
                assert_eq!(usize::from(header.ttl_bucket.load(Ordering::Relaxed)), bucket.index());
                self.verify_segment(segment, totals.get(&segment));
            }
        });
        let check_open = |segment, offset| {
            let header = self.segments.header(segment);
            assert_eq!((header.state(), header.write_offset()), (State::Open, offset), "an open segment");
        };
        let mut owned = HashSet::new();
        self.chains.each_open(|segment, offset| {
            check_open(segment, offset);
            assert!(owned.insert(segment), "{segment:?} has two owners");
        });
        assert_eq!(owned.len(), self.chains.open_count() as usize, "the count of open segments");
        self.each_open_destination(|segment, offset| {
            check_open(segment, offset);
            assert!(owned.insert(segment), "{segment:?} has two owners");
        });
        let open: HashSet<_> = chained_open.into_iter().collect();
        assert_eq!(open, owned, "every open segment of a chain has an owner");
        let uploading = self.upload_bytes.load(Ordering::Relaxed);
        if uploading == 0 {
            for segment in self.segments.ids() {
                assert!(
                    owners.contains_key(&segment),
                    "segment {segment:?} is nowhere, {:?}",
                    self.segments.header(segment).state()
                );
            }
        }
        assert!(totals.keys().all(|segment| owners.get(segment) == Some(&"chained")), "slots point into chains");
        let items: u64 = totals.values().map(|totals| u64::from(totals.items)).sum();
        assert_eq!(self.counters.items(), items, "the count of objects");
        self.verify_snapshot(&totals, now_ms);
        if self.resize_done() {
            let stats = self.stats();
            assert!(stats.memory_used_bytes <= stats.memory_limit_bytes, "{stats:?}");
        }
    }

    /// Asserts that the snapshot, exact in a quiet store, matches the slots and the budget.
    fn verify_snapshot(&self, totals: &HashMap<SegmentId, SlotTotals>, now_ms: u64) {
        let snapshot = self.segment_snapshot(now_ms);
        let bytes: u64 = totals.values().map(|totals| u64::from(totals.bytes) + totals.body_bytes).sum();
        assert_eq!(snapshot.live_bytes + snapshot.expired_bytes, bytes, "bytes of objects");
        let sum = |field: fn(&TtlBucketSnapshot) -> u64| snapshot.ttl_buckets.iter().map(field).sum::<u64>();
        assert_eq!(sum(|bucket| bucket.items), self.counters.items(), "objects by TTL bucket");
        assert_eq!(sum(|bucket| bucket.live_bytes), snapshot.live_bytes, "live bytes by TTL bucket");
        assert_eq!(sum(|bucket| bucket.expired_bytes), snapshot.expired_bytes, "expired bytes by TTL bucket");
        let used = snapshot.segments_open + snapshot.segments_sealed + snapshot.segments_retired;
        assert_eq!(used + snapshot.segments_free, u64::from(self.segments.limit()), "every segment is counted once");
        let spent = snapshot.index_bytes + snapshot.metadata_bytes + snapshot.dead_bytes + bytes;
        if self.resize_done() {
            assert_eq!(
                spent + snapshot.free_bytes,
                self.budget.memory_bytes(),
                "the parts of the memory add up: {snapshot:?}"
            );
        }
    }

    fn verify_slots(&self) -> (HashMap<SegmentId, SlotTotals>, Vec<SegmentId>) {
        let mut totals: HashMap<SegmentId, SlotTotals> = HashMap::new();
        let mut keys: HashSet<Vec<u8>> = HashSet::new();
        let mut bodies = Vec::new();
        let split = self.index.split();
        self.index.each_slot(|bucket, slot| {
            let item = self.item(slot);
            // SAFETY: the store is quiet, and slots point at published items.
            let key = unsafe { item.key(&self.segments.arena) }.to_vec();
            let hash = self.hash(&key);
            assert_eq!(slot.tag(), crate::index::Tag::of(hash), "{slot:?} has its key's tag");
            let candidates = split.candidates(hash);
            assert!(candidates.first == bucket || candidates.second == bucket, "{slot:?} is in a bucket of its key");
            assert!(keys.insert(key), "a key is in the index twice: {slot:?}");
            let unlinked = self.footprint(slot);
            let entry = totals.entry(slot.segment()).or_default();
            entry.items += 1;
            entry.bytes += unlinked.size;
            entry.body_bytes += unlinked.body_bytes;
            assert!(entry.locations.insert(item.at), "two slots point at {slot:?}");
            if item.header.kind() == Kind::Structured {
                // SAFETY: as above.
                let is_sound = unsafe { item.is_sound(&self.segments.arena) };
                assert!(is_sound, "the structured item of {slot:?} ends within its bytes");
            }
            if item.header.kind() == Kind::Chained {
                // SAFETY: as above.
                let chained = unsafe { item.chained(&self.segments.arena) };
                self.segments.each_body(chained.first_body, chained.total - item.tail().1, |segment, _| {
                    let header = self.segments.header(segment);
                    assert_eq!(header.is_body.load(Ordering::Relaxed), 1);
                    assert_eq!(header.owner_hash.load(Ordering::Relaxed), hash, "a body knows its owner");
                    bodies.push(segment);
                });
            }
        });
        (totals, bodies)
    }

    /// Asserts that the counters of a segment match the slots, and that its bytes are whole items with known latest
    /// expiry.
    fn verify_segment(&self, segment: SegmentId, totals: Option<&SlotTotals>) {
        let header = self.segments.header(segment);
        let none = SlotTotals::default();
        let totals = totals.unwrap_or(&none);
        assert_eq!(header.live_items(), totals.items, "live items of {segment:?}");
        assert_eq!(header.live_bytes(), totals.bytes, "live bytes of {segment:?}");
        assert_eq!(header.body_bytes(), totals.body_bytes, "body bytes of {segment:?}");
        let end = header.write_offset();
        assert!(end <= self.segments.segment_bytes());
        let (mut offset, mut items, mut found) = (0, 0, 0);
        let (mut bytes, mut expired_bytes) = (0, 0);
        while offset < end {
            let at = Location::new(segment, offset);
            // SAFETY: the store is quiet, and items lie one after the other up to the write offset.
            let item = unsafe { ItemAt::read(&self.segments.arena, at) };
            // SAFETY: as above.
            let (flags, extension, exact) = unsafe { item.metadata(&self.segments.arena) };
            assert_eq!(extension.length(flags, exact), item.header.extension_length(), "the extension of {at:?}");
            let expiry = self.expiry_seconds(&item).unwrap_or(u64::MAX);
            assert!(expiry <= header.latest_expiry_seconds(), "{at:?} expires after its segment");
            bytes += self.bytes_with_bodies(&item);
            expired_bytes += if expiry < header.next_expiry_seconds() { self.bytes_with_bodies(&item) } else { 0 };
            found += u32::from(totals.locations.contains(&at));
            items += 1;
            offset += item.header.size();
        }
        assert_eq!(offset, end, "{segment:?} ends with an item");
        assert_eq!(items, header.written_items(), "items written to {segment:?}");
        let counted = expired_bytes..=bytes;
        assert!(
            counted.contains(&header.expired_written_bytes()),
            "items that expire before the next expiry are counted"
        );
        assert_eq!(found, totals.items, "slots point at items of {segment:?}");
    }
}
