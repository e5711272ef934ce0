//! Checks the segments of an image against its index, and their counts of live items.
//!
//! ```text
//! segment    checksum over the bytes in use -> in a segment of items: whole items up to the write offset
//! item       hash of its key -> a slot in a bucket of that key with its tag and location: the item is live
//! key        of two live items with one tag in the buckets of a key, the keys differ
//! value      the bodies of a live chained value are its own, as many as its bytes fill
//! ```
//! Segments are read from their first to their last byte, and the lookups of a batch of items overlap: no item is
//! reached through the index in random order. An item has one location and is counted once, so where a segment has as
//! many live items as slots (see `slot_counts`), each slot names a whole item in a bucket of its key. Nothing is read
//! outside the segments of the image, whatever the bytes are.
//!
//! Thread safety: any number of threads call `work` at once. A segment is checked by the thread that took its number.

use super::checksum;
use crate::hash::KeyHash;
use crate::index::{Candidates, Index};
use crate::item::{ItemAt, Kind};
use crate::segment::{Location, SegmentId, Segments, State};
use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering, lock};
use std::collections::HashMap;
use std::sync::OnceLock;

/// Items that are looked up together, so that the cache misses of the index overlap.
const BATCH: usize = 32;

/// The reason why an image is refused.
pub(super) type Damage = &'static str;

/// A segment as an image has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentRecord {
    pub segment: SegmentId,
    pub state: State,
    /// Bytes in use.
    pub length: u32,
    pub checksum: u64,
    /// Of a body: the next one, and the hash of its value's key.
    pub next: Option<SegmentId>,
    pub owner_hash: u64,
}

/// A body that no live value has claimed yet, or one has.
struct Body {
    next: Option<SegmentId>,
    owner_hash: u64,
    is_claimed: AtomicBool,
}

/// Counts of the live items of a segment.
#[derive(Default)]
struct Live {
    items: u32,
    bytes: u32,
    body_bytes: u64,
}

/// The segments and the index of an image, in place.
pub(super) struct CheckedSegments<'s> {
    segments: &'s Segments,
    hash: &'s KeyHash,
    index: &'s Index,
    records: &'s [SegmentRecord],
    bodies: HashMap<SegmentId, Body>,
    /// Whether the bytes are those of a file, which may have lost a part of them.
    is_in_place: bool,
    /// The first record that no thread has taken.
    next: AtomicUsize,
    claimed_bodies: AtomicUsize,
    /// Locations with one tag in the buckets of a key: they are read when all segments are known to be whole.
    same_tags: Mutex<Vec<(Location, Location)>>,
    damage: OnceLock<Damage>,
}

/// An item to be looked up.
struct PendingLookup {
    item: ItemAt,
    hash: u64,
    candidates: Candidates,
}

impl<'s> CheckedSegments<'s> {
    pub fn new(
        segments: &'s Segments,
        (hash, index): (&'s KeyHash, &'s Index),
        records: &'s [SegmentRecord],
        is_in_place: bool,
    ) -> Self {
        let body = |record: &SegmentRecord| {
            let SegmentRecord { next, owner_hash, .. } = *record;
            (record.segment, Body { next, owner_hash, is_claimed: AtomicBool::new(false) })
        };
        Self {
            segments,
            hash,
            index,
            records,
            bodies: records.iter().filter(|record| record.state == State::Body).map(body).collect(),
            is_in_place,
            next: AtomicUsize::new(0),
            claimed_bodies: AtomicUsize::new(0),
            same_tags: Mutex::default(),
            damage: OnceLock::new(),
        }
    }

    /// Checks segments until all are checked or one is damaged.
    pub fn work(&self) {
        // Ends: each turn takes another record.
        while self.damage.get().is_none() {
            // Relaxed: the records were complete before the threads started.
            let Some(record) = self.records.get(self.next.fetch_add(1, Ordering::Relaxed)) else { return };
            if let Err(damage) = self.check(record) {
                // The first of several damages is reported.
                let _ = self.damage.set(damage);
            }
        }
    }

    /// The result, after the last thread has left `work`.
    pub fn result(&self) -> Result<(), Damage> {
        if let Some(damage) = self.damage.get() {
            return Err(damage);
        }
        if self.claimed_bodies.load(Ordering::Relaxed) != self.bodies.len() {
            return Err("a segment belongs to no value");
        }
        let is_twice = |(one, other): &(Location, Location)| self.key(*one) == self.key(*other);
        if lock(&self.same_tags).iter().any(is_twice) { Err("a key is there twice") } else { Ok(()) }
    }

    /// The key of an item that a slot names, after all slots were found to name whole items.
    fn key(&self, at: Location) -> &[u8] {
        // SAFETY: the item is whole, and no thread changes it.
        unsafe {
            let item = ItemAt::read(&self.segments.arena, at);
            item.key(&self.segments.arena)
        }
    }

    fn check(&self, record: &SegmentRecord) -> Result<(), Damage> {
        if self.is_in_place && !self.segments.allocate(record.segment) {
            return Err("the file system has no memory for the bytes that the file has lost");
        }
        // SAFETY: the bytes have memory, and no thread changes them.
        let bytes = unsafe { self.segments.arena.slice(Location::new(record.segment, 0), record.length as usize) };
        if checksum(record.segment, bytes) != record.checksum {
            return Err("the bytes of a segment have another checksum");
        }
        if record.state != State::Body {
            let live = self.check_items(record)?;
            let header = self.segments.header(record.segment);
            if (live.items, live.bytes, live.body_bytes)
                != (header.live_items(), header.live_bytes(), header.body_bytes())
            {
                return Err("a segment holds other live items than it counts");
            }
        }
        Ok(())
    }

    /// Walks the items of a segment.
    fn check_items(&self, record: &SegmentRecord) -> Result<Live, Damage> {
        let header = self.segments.header(record.segment);
        let (mut live, mut batch) = (Live::default(), Vec::with_capacity(BATCH));
        let (mut offset, mut items) = (0, 0);
        let (mut written_bytes, mut expired_bytes) = (0, 0);
        // Ends: an item has at least one byte.
        while offset < record.length {
            let at = Location::new(record.segment, offset);
            // SAFETY: the bytes up to the length have memory, and no thread changes them.
            let item = unsafe { ItemAt::read_within(&self.segments.arena, at, record.length) };
            let item = item.ok_or("a segment holds no whole items")?;
            // SAFETY: the item is within the bytes of its segment.
            let key = unsafe { item.key(&self.segments.arena) };
            let hash = self.hash.hash(key);
            batch.push(PendingLookup { item, hash, candidates: self.index.prefetch(hash) });
            if batch.len() == BATCH {
                self.look_up(&mut batch, &mut live)?;
            }
            let bytes = u64::from(item.header.size()) + self.body_bytes(&item)?;
            // SAFETY: as above.
            let expiry = unsafe { item.expiry_seconds(&self.segments.arena, header) }.unwrap_or(u64::MAX);
            if expiry > header.latest_expiry_seconds() {
                return Err("an item expires after its segment");
            }
            written_bytes += bytes;
            expired_bytes += if expiry < header.next_expiry_seconds() { bytes } else { 0 };
            items += 1;
            offset += item.header.size();
        }
        self.look_up(&mut batch, &mut live)?;
        let has_counts = items == header.written_items()
            && (expired_bytes..=written_bytes).contains(&header.expired_written_bytes());
        if has_counts { Ok(live) } else { Err("a segment holds other items than it counts") }
    }

    /// Bytes of the bodies of an item, live or not.
    fn body_bytes(&self, item: &ItemAt) -> Result<u64, Damage> {
        if item.header.kind() != Kind::Chained {
            return Ok(0);
        }
        // SAFETY: the item is within the bytes of its segment, and has the prefix of a chained one.
        let (total, first) = unsafe { item.chained_words(&self.segments.arena) };
        let tail = item.tail().1;
        if total <= tail || first == 0 {
            return Err("a long value has no bodies");
        }
        Ok(u64::from(total - tail).next_multiple_of(self.segments.segment_bytes().into()))
    }

    /// Counts those items of a batch that a slot names, and empties the batch.
    fn look_up(&self, batch: &mut Vec<PendingLookup>, live: &mut Live) -> Result<(), Damage> {
        for PendingLookup { item, hash, candidates } in batch.drain(..) {
            let (mut is_live, mut same_tags) = (false, Vec::new());
            self.index.each_match(candidates, hash, |slot| match slot.location() == item.at {
                true => is_live = true,
                // The item with the lower location notes the pair.
                false if slot.location() > item.at => same_tags.push((item.at, slot.location())),
                false => {}
            });
            if is_live {
                if !same_tags.is_empty() {
                    lock(&self.same_tags).append(&mut same_tags);
                }
                live.items += 1;
                live.bytes += item.header.size();
                live.body_bytes += self.claim_bodies(&item, hash)?;
            }
        }
        Ok(())
    }

    /// Takes the bodies of a live item for it. Returns their bytes.
    fn claim_bodies(&self, item: &ItemAt, hash: u64) -> Result<u64, Damage> {
        let bytes = self.body_bytes(item)?;
        if bytes == 0 {
            return Ok(0);
        }
        // SAFETY: as in `body_bytes`.
        let (_, first) = unsafe { item.chained_words(&self.segments.arena) };
        let mut next = SegmentId::from_link(first);
        for _ in 0..bytes / u64::from(self.segments.segment_bytes()) {
            let body = next.and_then(|segment| self.bodies.get(&segment)).filter(|body| body.owner_hash == hash);
            let body = body.ok_or("a value goes on in no segment of a value")?;
            // Relaxed: the swap alone decides; ends a value that goes in a circle, too.
            if body.is_claimed.swap(true, Ordering::Relaxed) {
                return Err("two values share a segment");
            }
            self.claimed_bodies.fetch_add(1, Ordering::Relaxed);
            next = body.next;
        }
        if next.is_none() { Ok(bytes) } else { Err("a value has no end") }
    }
}
