//! What a change must find under the locks of its key, and whether it does.

use crate::index::{LockedPair, Slot, SlotPlace};
use crate::item::{ItemAt, Kind};
use crate::segment::Location;
use crate::store::Store;

/// What a write must find under the locks of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Always,
    Absent,
    Present,
    Token(u64),
    /// The index has no slot for the key, and this copy below is current.
    Copy(u64),
    /// Of a removal: the key is live, or the copy below that was found is current, or none was found.
    Found(Option<u64>),
    /// The very item that was read under a pin that the caller still holds.
    Unchanged(SeenItem),
}

/// An item that was read under a pin. The pin keeps its segment from another life, and published bytes do not change: as
/// long as the key's slot names this place, the item is what was read. Only the word of a numeric item changes where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeenItem {
    pub at: Location,
    pub number: SeenNumber,
}

/// What must hold of the number of a numeric item that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeenNumber {
    /// Nothing: the write does not depend on it.
    Any,
    /// It is this: the write was made from it.
    Equal(u64),
    /// Nobody has counted since its bucket had this sequence: the write is bound to the token of that.
    Uncounted { sequence: u64 },
}

/// How a condition was met or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done {
        /// What a `gets` would answer from here on.
        token: u64,
    },
    /// Nothing alive is there.
    Absent,
    /// Something alive is there, or another version than the condition names.
    Present,
    /// A flush since the reservation has made the new item worthless: reserve and write it again.
    Flushed,
}

impl Outcome {
    pub fn is_done(self) -> bool {
        matches!(self, Self::Done { .. })
    }
}

impl Store {
    /// The outcome of a change whose condition does not hold. `place` is that of the key, `live` too if its item is alive.
    #[inline(always)]
    pub(crate) fn check_condition(
        &self,
        pair: &LockedPair<'_>,
        (key, hash): (&[u8], u64),
        condition: Condition,
        (place, live): (Option<SlotPlace>, Option<SlotPlace>),
    ) -> Option<Outcome> {
        let is_current = |copy| self.lower_tier.get().is_some_and(|tier| tier.is_current(key, copy));
        match (condition, &live) {
            (Condition::Always, _) | (Condition::Absent, None) | (Condition::Present, Some(_)) => None,
            (Condition::Found(_), Some(_)) | (Condition::Found(None), None) => None,
            // A dead item in memory means that the key is absent, whatever lies below.
            (Condition::Found(Some(copy)), None) => (place.is_none() && !is_current(copy)).then_some(Outcome::Present),
            (Condition::Absent | Condition::Copy(_), Some(_)) => Some(Outcome::Present),
            (Condition::Copy(copy), None) => (place.is_some() || !is_current(copy)).then_some(Outcome::Present),
            (Condition::Present | Condition::Token(_) | Condition::Unchanged { .. }, None) => Some(Outcome::Absent),
            (Condition::Token(token), Some(place)) => {
                let fits = self.token_fits(&self.item(place.slot), hash, pair.sequence(place), token);
                (!fits).then_some(Outcome::Present)
            }
            (Condition::Unchanged(seen), Some(place)) => {
                let is_same = place.slot.location() == seen.at && self.has_number(pair, place, seen.number);
                (!is_same).then_some(Outcome::Present)
            }
        }
    }

    /// Whether the number of an item, if it is numeric, is as it was read.
    fn has_number(&self, pair: &LockedPair<'_>, place: &SlotPlace, seen: SeenNumber) -> bool {
        let item = self.item(place.slot);
        if item.header.kind != Kind::Numeric {
            return true;
        }
        match seen {
            SeenNumber::Any => true,
            // SAFETY: the item's bucket is locked.
            SeenNumber::Equal(number) => unsafe { item.number(&self.segments.arena) }.0 == number,
            SeenNumber::Uncounted { sequence } => pair.sequence(place) == sequence,
        }
    }

    /// Gives a copy the number of its original as it is now. The caller holds the bucket of the original, where no increment
    /// can come between.
    pub(crate) fn transfer_number(&self, original: Slot, copy: Location) {
        let (original, arena) = (self.item(original), &self.segments.arena);
        if original.header.kind == Kind::Numeric {
            // SAFETY: the original's bucket is locked, and the copy, of the same kind, is written and not published.
            unsafe { ItemAt::read(arena, copy).set_number(arena, original.number(arena).0) };
        }
    }
}
