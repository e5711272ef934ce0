//! Expiry: segments in which everything has expired are dropped, and few expired bytes wait in those that live on.
//!
//! The items of a segment do not all expire in the same second. Those that have wait for the others, as a segment is emptied as
//! a whole. The header of a segment tells when its next item expires and how many bytes have expired before:
//! ```text
//!               expired bytes              next expiry                                  latest expiry
//! ---------------------|------------------------|--------- ... -------------------------------|----> seconds
//!   counted at the last look     nothing expires in between                all has expired: dropped
//! ```
//! A look at a chain finds the segments whose next expiry has come. Their items are counted again: that reads the five bytes
//! of each item, and no index. The sum over all chains is the memory that waits. While it is above a 512th of all memory, the
//! segment from which most is gained for the least copies is rewritten: what is alive goes on to another segment of the TTL
//! bucket, by the job that compacts. This comes before every eviction.

use super::claim::Claim;
use crate::chains::ExpiredSegments;
use crate::epoch::Participant;
use crate::item::{ItemAt, Kind};
use crate::segment::{Location, SegmentId, State};
use crate::store::Store;
use crate::sync::lock;
use crate::time::Moment;
use crate::ttl::TtlBucket;

/// The share of the memory in which expired items may wait for their neighbours: 0.195 %.
const EXPIRED_SHARE: u64 = 512;
/// A slice of counting ends with the segment that makes it so many bytes.
const COUNTED_BYTES: u32 = 512 << 10;
/// Segments that one rewriting tries to claim: others may be ahead of it, or there is no place for what is alive.
const CLAIMS_MAX: usize = 4;

impl Store {
    /// A slice of the removal of what is dead: of one segment that was flushed, or whose last item has expired, or in which
    /// much has expired. False if there is none.
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

    /// Bytes of expired items that may wait in segments that live on.
    fn expired_limit(&self) -> u64 {
        self.memory_bytes() / EXPIRED_SHARE
    }

    /// Counts the segments that a look has found to be counted, or some of them. False if there is none.
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
            // The sum of the chain is that of before: the next look makes it anew.
            self.chains.schedule_check(bucket, moment.seconds());
        }
        bytes > 0
    }

    /// Counts what has expired in a segment. Answers the bytes that it has looked through: none if the segment belongs to
    /// someone else.
    fn count_segment(&self, participant: &Participant, segment: SegmentId, moment: Moment) -> u32 {
        // What is seen sealed under the pin keeps its items until the pin is gone, whoever empties it.
        let _pin = participant.pin();
        let header = self.segments.header(segment);
        let is_sealed = header.state() == State::Sealed;
        if is_sealed {
            self.count_items(segment, moment);
        }
        let is_counted = is_sealed
            || self
                .maintenance
                .open_destinations()
                .any(|list| list.with_destination(segment, || self.count_items(segment, moment)));
        if is_counted { header.write_offset() } else { 0 }
    }

    /// The same, of a segment to which nobody adds, and which keeps its items meanwhile.
    fn count_items(&self, segment: SegmentId, moment: Moment) {
        let header = self.segments.header(segment);
        let end = header.write_offset();
        let (mut offset, mut expired, mut next) = (0, 0, u64::MAX);
        while offset < end {
            // SAFETY: items lie one after the other up to the write offset, and stay: the caller's.
            let item = unsafe { ItemAt::read(&self.segments.arena, Location::new(segment, offset)) };
            let expiry = header.expiry_seconds(item.header.expiry).unwrap_or(u64::MAX);
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
        if item.header.kind != Kind::Chained {
            return size;
        }
        // SAFETY: the caller's.
        let chained = unsafe { item.chained(&self.segments.arena) };
        size + self.body_bytes(chained.total - item.tail().1)
    }

    /// A slice of the rewriting of the segment from which most is to be had. False if too little waits, or none can be claimed.
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
