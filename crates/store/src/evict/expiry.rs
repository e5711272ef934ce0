//! Expiry: segments in which everything has expired are dropped, and the expired bytes in other segments are kept few.
//!
//! The items of a segment do not expire in the same second, and a segment is emptied as a whole: expired items wait for
//! the others. The header holds the time of the next expiry and the bytes that have expired before:
//! ```text
//!               expired bytes              next expiry                                  latest expiry
//! ---------------------|------------------------|--------- ... -------------------------------|----> seconds
//!   counted at the last look     nothing expires in between                all has expired: dropped
//! ```
//! A search of a chain finds the segments whose next expiry has come. Their items are counted again, which reads the
//! metadata of each item and no index. The sum over all chains is the waiting memory. While it exceeds a 512th of all
//! memory, the segment with the best ratio of freed to copied bytes is emptied: its live items are relocated within the
//! TTL bucket. Expiry comes before every eviction.

use super::claim::Claim;
use crate::chains::ExpiredSegments;
use crate::epoch::Participant;
use crate::item::{ItemAt, Kind};
use crate::segment::{Location, SegmentId, State};
use crate::store::Store;
use crate::sync::lock;
use crate::time::Moment;
use crate::ttl::TtlBucket;

/// The share of the memory for expired items that wait: 0.195 %.
pub(crate) const EXPIRED_SHARE: u64 = 512;
/// A slice of counting ends with the segment that reaches this many bytes.
const COUNTED_BYTES: u32 = 512 << 10;
/// Segments that one rewriting tries to claim: others may be faster, or there is no space for the live items.
const CLAIMS_MAX: usize = 4;

impl Store {
    /// Drops or rewrites one segment: a flushed one, one whose last item has expired, or one with many expired items.
    /// False if there is none.
    pub(super) fn expire_due(&self, participant: &Participant, moment: Moment) -> bool {
        if self.drop_flushed(participant, moment) {
            return true;
        }
        let due: Vec<_> = self.chains.due(moment.seconds()).collect();
        let is_done = due.into_iter().any(|bucket| {
            let found = self.chains.find_expired(&self.segments, bucket, moment.seconds());
            match found.expired {
                Some(segment) => self.drop_segment(participant, segment, moment),
                None => self.count_expired_bytes(participant, bucket, &found, moment),
            }
        });
        is_done
            || self.chains.expired_bytes() > self.expired_limit() && self.rewrite_partly_expired(participant, moment)
    }

    /// Bytes of expired items that may wait in segments with live items.
    fn expired_limit(&self) -> u64 {
        self.memory_bytes() / EXPIRED_SHARE
    }

    /// Counts expired bytes in some of the segments that a search has returned. False if there are none.
    fn count_expired_bytes(
        &self,
        participant: &Participant,
        bucket: TtlBucket,
        found: &ExpiredSegments,
        moment: Moment,
    ) -> bool {
        let mut bytes = 0;
        for segment in &found.uncounted {
            if bytes < COUNTED_BYTES {
                bytes += self.count_segment(participant, *segment, moment);
            }
        }
        if bytes > 0 {
            // The sum of the chain is outdated: the next search computes it again.
            self.chains.schedule_check(bucket, moment.seconds());
        }
        bytes > 0
    }

    /// Counts expired bytes in a segment. Returns the bytes that it has read: 0 if the segment has another owner.
    fn count_segment(&self, participant: &Participant, segment: SegmentId, moment: Moment) -> u32 {
        // A segment that is sealed under the pin keeps its items as long as the pin.
        let _pin = participant.pin();
        let header = self.segments.header(segment);
        let is_sealed = header.state() == State::Sealed;
        if is_sealed {
            self.count_items(segment, moment);
        }
        let is_counted = is_sealed
            || self
                .open_destinations()
                .any(|list| list.with_destination(segment, || self.count_items(segment, moment)));
        if is_counted { header.write_offset() } else { 0 }
    }

    /// Counts a segment that has no writer, and keeps its items during the call.
    fn count_items(&self, segment: SegmentId, moment: Moment) {
        let header = self.segments.header(segment);
        let end = header.write_offset();
        let (mut offset, mut expired, mut next) = (0, 0, u64::MAX);
        while offset < end {
            // SAFETY: items are contiguous up to the write offset, and the caller keeps them in place.
            let item = unsafe { ItemAt::read(&self.segments.arena, Location::new(segment, offset)) };
            let expiry = self.expiry_seconds(&item).unwrap_or(u64::MAX);
            if expiry > moment.seconds() {
                next = expiry.min(next);
            } else {
                expired += self.bytes_with_bodies(&item);
            }
            offset += item.header.size();
        }
        header.note_expired(expired, next);
    }

    /// Bytes of an item, protected as in `item`, with its body segments.
    pub(crate) fn bytes_with_bodies(&self, item: &ItemAt) -> u64 {
        let size = item.header.size().into();
        if item.header.kind() != Kind::Chained {
            return size;
        }
        // SAFETY: the caller's.
        let chained = unsafe { item.chained(&self.segments.arena) };
        size + self.body_bytes(chained.total - item.tail().1)
    }

    /// Empties the segment with the best ratio of freed to copied bytes. False if too few bytes wait, or none can be
    /// claimed.
    fn rewrite_partly_expired(&self, participant: &Participant, moment: Moment) -> bool {
        let mut partial = Vec::new();
        for bucket in self.chains.partly_expired() {
            partial.extend(self.chains.find_expired(&self.segments, bucket, moment.seconds()).partial);
        }
        if self.chains.expired_bytes() <= self.expired_limit() {
            return false;
        }
        let gain = |&(segment, expired): &(SegmentId, u64)| {
            let header = self.segments.header(segment);
            let live = u64::from(header.live_bytes()) + header.body_bytes();
            expired as f64 * (expired as f64 / live.max(1) as f64)
        };
        partial.sort_by(|one, other| gain(other).total_cmp(&gain(one)));
        let job = partial.into_iter().take(CLAIMS_MAX).find_map(|(segment, _)| {
            self.claim(&lock(&self.maintenance.planner), Claim::PartlyExpired(segment), moment)
        });
        job.map(|job| self.run_job_slice(participant, moment, job)).is_some()
    }
}
