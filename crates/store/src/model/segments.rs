//! The segments of a model: which objects each holds, in which chain it is, and which are free.
//!
//! There are as many segments as in the store, with a capacity scaled by the sampling rate. The last item of a segment
//! of the store does not fit, and leaves half of its size unused on average. In a segment that is smaller by the
//! sampling rate the unused part must be smaller by the same rate, so an item may exceed the end:
//! ```text
//! rate 1      fits while offset + size     <= capacity     unused: size / 2 on average
//! rate -> 0   fits while offset + size / 2 <= capacity     unused: nothing on average
//! ```

use crate::index::Slot;
use crate::segment::{Location, STAMP_SHIFT, SegmentId};
use crate::time::Moment;
use crate::ttl::TtlBucket;

/// Where a segment is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Free,
    /// A TTL bucket writes to it.
    Open,
    /// Evictions or relocations copy to it.
    Destination,
    Sealed,
}

/// An item of an object: bytes in its segment, bytes of bodies, and the second of its expiry, `u64::MAX` for never.
#[derive(Clone, Copy, Debug)]
pub(super) struct ItemShape {
    pub size: u64,
    pub body_bytes: u64,
    pub expiry_seconds: u64,
}

#[derive(Debug)]
pub(super) struct ModelSegment {
    pub life: Life,
    /// The objects that were written to it, by their number. An object that is not at this place any more is dead.
    pub objects: Vec<u32>,
    pub written_bytes: u64,
    pub live_items: u32,
    pub live_bytes: u64,
    pub body_bytes: u64,
    pub stamp: u64,
    pub seal_at_ms: u64,
    pub latest_expiry: u64,
    /// The next expiry of an item that is not in `expired_bytes`.
    pub next_expiry: u64,
    pub expired_bytes: u64,
    pub rounds: u8,
    pub bucket: TtlBucket,
}

impl ModelSegment {
    fn free() -> Self {
        Self {
            life: Life::Free,
            objects: Vec::new(),
            written_bytes: 0,
            live_items: 0,
            live_bytes: 0,
            body_bytes: 0,
            stamp: 0,
            seal_at_ms: 0,
            latest_expiry: 0,
            next_expiry: u64::MAX,
            expired_bytes: 0,
            rounds: 0,
            bucket: TtlBucket::NEVER,
        }
    }

    pub fn is_young(&self) -> bool {
        self.rounds == 0
    }
}

/// All segments of a model.
pub(super) struct SegmentTable {
    segments: Vec<ModelSegment>,
    free: Vec<SegmentId>,
    /// By TTL bucket; the first is the oldest.
    chains: Vec<Vec<SegmentId>>,
    /// Sealed segments and destinations without a live item.
    pub dead: Vec<SegmentId>,
    pub capacity_bytes: u64,
    /// The part of an item that must fit.
    fit_share: f64,
    last_stamp: u64,
    /// No item that is not counted expires before this second.
    pub next_check: u64,
    pub expired_bytes: u64,
}

impl SegmentTable {
    pub fn new(buckets: usize, segment_bytes: u32, sample_rate: f64) -> Self {
        Self {
            segments: Vec::new(),
            free: Vec::new(),
            chains: vec![Vec::new(); buckets],
            dead: Vec::new(),
            capacity_bytes: ((f64::from(segment_bytes) * sample_rate) as u64).max(1),
            fit_share: f64::midpoint(1.0, sample_rate),
            last_stamp: 0,
            next_check: u64::MAX,
            expired_bytes: 0,
        }
    }

    pub fn at(&self, segment: SegmentId) -> &ModelSegment {
        &self.segments[segment.index()]
    }

    pub fn at_mut(&mut self, segment: SegmentId) -> &mut ModelSegment {
        &mut self.segments[segment.index()]
    }

    /// Segments that are not free.
    pub fn in_use(&self) -> usize {
        self.segments.len() - self.free.len()
    }

    pub fn count(&self) -> u32 {
        self.segments.len() as u32
    }

    pub fn ids(&self) -> impl Iterator<Item = SegmentId> + use<> {
        (1..=self.count()).map(SegmentId::new)
    }

    /// A free segment, started now in a TTL bucket.
    pub fn take(&mut self, life: Life, bucket: TtlBucket, moment: Moment, seal_at_ms: u64) -> SegmentId {
        let segment = self.free.pop().unwrap_or_else(|| {
            self.segments.push(ModelSegment::free());
            SegmentId::new(self.count())
        });
        self.last_stamp = (moment.ms << STAMP_SHIFT).max(self.last_stamp + 1);
        let stamp = self.last_stamp;
        let taken = self.at_mut(segment);
        debug_assert_eq!(taken.life, Life::Free);
        (taken.life, taken.bucket, taken.stamp, taken.seal_at_ms) = (life, bucket, stamp, seal_at_ms);
        segment
    }

    /// Puts a segment at the end of its chain, or in front of another one.
    pub fn chain(&mut self, segment: SegmentId, before: Option<SegmentId>) {
        let chain = &mut self.chains[self.segments[segment.index()].bucket.index()];
        let at = before.and_then(|before| chain.iter().position(|other| *other == before)).unwrap_or(chain.len());
        chain.insert(at, segment);
    }

    /// Puts a chained destination in front of `before`, unless it is older.
    pub fn chain_earlier(&mut self, segment: SegmentId, before: SegmentId) {
        let chain = &mut self.chains[self.segments[segment.index()].bucket.index()];
        let position = |wanted| chain.iter().position(|other| *other == wanted);
        if let (Some(place), Some(at)) = (position(segment), position(before))
            && place > at
        {
            chain.remove(place);
            chain.insert(at, segment);
        }
    }

    /// Sealed segments from `first` on along its chain, at most `count`, while `wanted` holds.
    pub fn run(&self, first: SegmentId, count: usize, mut wanted: impl FnMut(&ModelSegment) -> bool) -> Vec<SegmentId> {
        let chain = &self.chains[self.at(first).bucket.index()];
        let at = chain.iter().position(|segment| *segment == first).unwrap_or(chain.len());
        let sealed = |segment: &&SegmentId| self.at(**segment).life == Life::Sealed && wanted(self.at(**segment));
        chain[at..].iter().take(count).take_while(sealed).copied().collect()
    }

    pub fn fits(&self, segment: SegmentId, size: u64) -> bool {
        let written = self.at(segment).written_bytes;
        written == 0 || written as f64 + size as f64 * self.fit_share <= self.capacity_bytes as f64
    }

    /// Whether a destination has no space worth keeping it open.
    pub fn is_full(&self, segment: SegmentId, full_share: u32) -> bool {
        let written = self.at(segment).written_bytes;
        self.capacity_bytes.saturating_sub(written) < self.capacity_bytes / u64::from(full_share)
    }

    /// Writes an item to the end of a segment. Returns its location.
    pub fn append(&mut self, segment: SegmentId, object: u32, shape: &ItemShape) -> Location {
        self.next_check = self.next_check.min(shape.expiry_seconds);
        let into = self.at_mut(segment);
        let at = Location::new(segment, into.objects.len() as u32);
        into.objects.push(object);
        into.written_bytes += shape.size;
        into.live_items += 1;
        into.live_bytes += shape.size;
        into.body_bytes += shape.body_bytes;
        into.latest_expiry = into.latest_expiry.max(shape.expiry_seconds);
        into.next_expiry = into.next_expiry.min(shape.expiry_seconds);
        at
    }

    /// The item of a slot is dead from now on.
    pub fn remove_live(&mut self, slot: Slot, shape: &ItemShape) {
        let segment = slot.segment();
        let from = self.at_mut(segment);
        from.live_items -= 1;
        from.live_bytes -= shape.size;
        from.body_bytes -= shape.body_bytes;
        if from.live_items == 0 && matches!(from.life, Life::Sealed | Life::Destination) {
            self.dead.push(segment);
        }
    }

    pub fn seal(&mut self, segment: SegmentId) {
        let sealed = self.at_mut(segment);
        sealed.life = Life::Sealed;
        if sealed.live_items == 0 {
            self.dead.push(segment);
        }
    }

    /// Sets the expired bytes of a segment, and when the next item in it expires.
    pub fn note_expired(&mut self, segment: SegmentId, bytes: u64, next: u64) {
        self.expired_bytes += bytes;
        let counted = self.at_mut(segment);
        let before = std::mem::replace(&mut counted.expired_bytes, bytes);
        counted.next_expiry = next;
        self.expired_bytes -= before;
    }

    /// Frees a segment without a live item.
    pub fn release(&mut self, segment: SegmentId) {
        let bucket = self.at(segment).bucket.index();
        self.chains[bucket].retain(|other| *other != segment);
        self.note_expired(segment, 0, u64::MAX);
        let freed = self.at_mut(segment);
        debug_assert_eq!(freed.live_items, 0);
        let mut objects = std::mem::take(&mut freed.objects);
        objects.clear();
        *freed = ModelSegment { objects, ..ModelSegment::free() };
        self.free.push(segment);
    }
}
