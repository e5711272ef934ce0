//! Open segments that jobs fill: survivors of evictions, and items that relocations copy.
//!
//! One job rarely fills a segment. The next job of the same kind in the same TTL bucket continues where it ended. In
//! between the segment is in this list: open, in its chain, and owned by the list. It leaves the list when a job takes
//! it, or when it is sealed: because it is full or has been open long enough, because everything in it has expired,
//! because it is evicted in its turn, or because all open segments are sealed.

use crate::chains::Seal;
use crate::segment::{Header, SegmentId, Segments};
use crate::sync::{Mutex, Ordering, lock};
use crate::time::Moment;

/// The share of all segments that may be in a list, and the largest number. Sealing them early would waste as much
/// memory: the share is only limited so that there are always sealed segments to evict.
pub(crate) const OPEN_SHARE: u32 = 16;
pub(crate) const OPEN_MAX: usize = 64;
/// A segment with less free space than this share is full.
pub(crate) const FULL_SHARE: u32 = 64;

/// An open segment that a job fills, or may fill later.
#[derive(Debug)]
pub(super) struct Destination {
    pub segment: SegmentId,
    pub offset: u32,
    pub seal_at_ms: u64,
    /// Whether it is in its chain.
    pub is_chained: bool,
}

/// Open segments without a job, in the order in which they were opened.
#[derive(Default)]
pub(crate) struct OpenDestinations(Mutex<Vec<Destination>>);

impl OpenDestinations {
    /// Takes a segment to continue in, of the TTL bucket and generation of `source`, for which `wanted` holds.
    pub(super) fn take(
        &self,
        segments: &Segments,
        source: &Header,
        moment: Moment,
        wanted: impl Fn(&Destination) -> bool,
    ) -> Option<Destination> {
        let mut open = lock(&self.0);
        let at = open.iter().position(|destination| {
            let header = segments.header(destination.segment);
            header.ttl_bucket.load(Ordering::Relaxed) == source.ttl_bucket.load(Ordering::Relaxed)
                && header.generation.load(Ordering::Relaxed) == source.generation.load(Ordering::Relaxed)
                && moment.ms < destination.seal_at_ms
                && wanted(destination)
        })?;
        Some(open.remove(at))
    }

    /// Returns a segment for the next job, or seals it if it is full. If there are too many, the fullest is sealed.
    pub(super) fn put_back(&self, segments: &Segments, destination: Destination) {
        debug_assert!(destination.offset > 0);
        let destination = Destination { is_chained: true, ..destination };
        if segments.segment_bytes() - destination.offset < segments.segment_bytes() / FULL_SHARE {
            segments.seal(destination.segment);
            return;
        }
        let max = (segments.limit() / OPEN_SHARE).clamp(1, OPEN_MAX as u32) as usize;
        let mut open = lock(&self.0);
        open.push(destination);
        while open.len() > max {
            let fullest = open.iter().enumerate().max_by_key(|(_, destination)| destination.offset);
            let (at, _) = fullest.expect("there are more than one");
            segments.seal(open.remove(at).segment);
        }
    }

    pub fn seal(&self, segments: &Segments, which: Seal) -> u32 {
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
                segments.seal(destination.segment);
            }
            !is_chosen
        });
        (before - open.len()) as u32
    }

    /// Seals a segment of the list if `wanted` holds. No job adds to it after that.
    pub fn seal_if(&self, segments: &Segments, segment: SegmentId, wanted: impl Fn(&Header) -> bool) {
        let mut open = lock(&self.0);
        let at = open.iter().position(|destination| destination.segment == segment);
        if let Some(at) = at.filter(|_| wanted(segments.header(segment))) {
            open.remove(at);
            segments.seal(segment);
        }
    }

    /// Calls `action` if a segment is in the list, while no job can add to it. Returns whether it is.
    pub(super) fn with_destination(&self, segment: SegmentId, action: impl FnOnce()) -> bool {
        let open = lock(&self.0);
        let is_here = open.iter().any(|destination| destination.segment == segment);
        if is_here {
            action();
        }
        is_here
    }

    pub fn count(&self) -> u32 {
        lock(&self.0).len() as u32
    }

    pub fn each(&self, mut visit: impl FnMut(SegmentId, u32)) {
        lock(&self.0).iter().for_each(|destination| visit(destination.segment, destination.offset));
    }
}
