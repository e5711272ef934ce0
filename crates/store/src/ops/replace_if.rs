//! replace_if: a new value, if the caller accepts the present one.
//!
//! ```text
//! look up, pinned -> the caller reads the value -> write -> lock both buckets -> the same item, with the same word?
//!     -> publish -> unlock
//! ```
//! The caller decides without a lock, and again if the key has another item by then. It depends on the value alone:
//! tokens are not compared, so a change of a neighbour in the bucket is no reason to start over.

use super::read::Item;
use super::write::{Mode, Stored, Terms, Write, check_key};
use crate::condition::Outcome;
use crate::epoch::Participant;
use crate::error::Error;
use crate::item::{Extension, Kind};
use crate::store::{Head, Store};
use crate::time::Moment;

impl Store {
    /// Carries out a write in mode `Replace` if `accepts` is true of the present item, as one operation. `NotFound`
    /// if the key is absent, `NotStored` if its item is not accepted: nothing was changed. `accepts` is called again
    /// if the item has changed or moved meanwhile.
    ///
    /// # Errors
    /// As [`Store::write`]. A value that does not fit a segment needs the memory of all its segments at once.
    pub fn replace_if(
        &self,
        participant: &Participant,
        write: &Write<'_>,
        now_ms: u64,
        accepts: impl Fn(&Item<'_>) -> bool,
    ) -> Result<Stored, Error> {
        assert_eq!(write.mode, Mode::Replace, "a present value is replaced");
        check_key(write.key)?;
        let moment = self.moment(now_ms);
        // Ends: each further round another operation on the key has ended, or maintenance has moved the item.
        loop {
            let Some(item) = self.get(participant, write.key, write.hash, now_ms) else {
                return Ok(Stored::NotFound);
            };
            if !accepts(&item) {
                return Ok(Stored::NotStored);
            }
            match self.replace(participant, write, &item, moment)? {
                Outcome::Absent => return Ok(Stored::NotFound),
                Outcome::Present | Outcome::Flushed => {}
                done @ Outcome::Done { .. } => return Ok(self.written(participant, write.mode, done).stored),
            }
        }
    }

    /// Writes a value and publishes it in the place of an item, once.
    fn replace(
        &self,
        participant: &Participant,
        write: &Write<'_>,
        item: &Item<'_>,
        moment: Moment,
    ) -> Result<Outcome, Error> {
        let target = (write.key, write.hash);
        let Some(life) = self.lifetime(write.ttl, moment) else {
            return Ok(self.remove(participant, target, item.unchanged(), moment));
        };
        let length = write.value.len() as u64;
        if length > self.options.value_bytes_max {
            return Err(Error::TooLarge { bytes: length, limit: self.options.value_bytes_max });
        }
        let (flags, exact, kind, value_length) = (write.flags, life.exact, Kind::Plain, length as u32);
        let extension = Extension { token: write.token, ..Extension::default() };
        let head = Head { key: write.key, flags, extension, exact, kind, value_length };
        if head.fits(self.segments.segment_bytes()) {
            return self.write_plain(participant, &head, target, write.value, (life, item.unchanged()), moment);
        }
        let terms = Terms { condition: item.unchanged(), life: Some(life), extension };
        self.write_chained_once(participant, write, &terms, moment.ms)
    }
}
