//! Expiry in a model: as in the store, segments in which all has expired are dropped, and segments with many expired
//! bytes are emptied.

use super::SegmentModel;
use super::segments::Life;
use crate::evict::decisions::EXPIRED_SHARE;
use crate::segment::SegmentId;
use crate::time::Moment;

impl SegmentModel {
    pub(super) fn expire_due(&mut self, moment: Moment) {
        if self.segments.next_check > moment.seconds() {
            return;
        }
        let mut next_check = u64::MAX;
        for segment in self.segments.ids() {
            let found = self.segments.at(segment);
            match found.life {
                Life::Free => continue,
                Life::Sealed | Life::Destination if found.latest_expiry <= moment.seconds() => {
                    self.drop_segment(segment);
                    continue;
                }
                _ if found.next_expiry <= moment.seconds() => self.count_expired(segment, moment),
                _ => {}
            }
            next_check = next_check.min(self.segments.at(segment).next_expiry);
        }
        self.segments.next_check = next_check;
        self.rewrite_partly_expired(moment);
    }

    /// Empties a segment in which nothing is alive.
    pub(super) fn drop_segment(&mut self, segment: SegmentId) {
        self.leave_destinations(segment);
        let objects = std::mem::take(&mut self.segments.at_mut(segment).objects);
        for (place, &number) in objects.iter().enumerate() {
            if self.is_at(number, segment, place) {
                self.unlink(number);
            }
        }
        self.segments.at_mut(segment).objects = objects;
        self.segments.release(segment);
    }

    fn count_expired(&mut self, segment: SegmentId, moment: Moment) {
        let (mut expired, mut next) = (0, u64::MAX);
        for (place, &number) in self.segments.at(segment).objects.iter().enumerate() {
            if self.is_at(number, segment, place) {
                let shape = &self.objects[number as usize].shape;
                match shape.expiry_seconds <= moment.seconds() {
                    true => expired += shape.size + shape.body_bytes,
                    false => next = next.min(shape.expiry_seconds),
                }
            }
        }
        self.segments.note_expired(segment, expired, next);
    }

    /// Ends: each round frees a segment, and relocated items have not expired.
    fn rewrite_partly_expired(&mut self, moment: Moment) {
        let limit = (self.options.memory_bytes as f64 * self.sample_rate) as u64 / EXPIRED_SHARE;
        let mut rounds = self.segments.count();
        while self.segments.expired_bytes > limit && rounds > 0 {
            rounds -= 1;
            let gain = |segment: &SegmentId| {
                let found = self.segments.at(*segment);
                let expired = found.expired_bytes as f64;
                expired * expired / (found.live_bytes + found.body_bytes).max(1) as f64
            };
            let candidates = self.segments.ids().filter(|segment| {
                let found = self.segments.at(*segment);
                matches!(found.life, Life::Sealed | Life::Destination) && found.expired_bytes > 0
            });
            let Some(best) = candidates.max_by(|one, other| gain(one).total_cmp(&gain(other))) else { return };
            self.leave_destinations(best);
            self.relocate(&[best], moment);
        }
    }
}
