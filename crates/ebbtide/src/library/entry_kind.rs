//! Entry kinds: what the library notes of an entry in its annotation, the word of 32 bits in place of client flags.
//!
//! ```text
//! cost class u5 | kind u3 | second u24: of the end of its TTL, since 1970, the lower bits
//! ```
//! The store reads the cost class, for the objective `cost`.
//! The store keeps the end of a long life with a unit of up to 1/64 of it, which is too coarse for the end of a short
//! TTL before a long window. Seconds are compared modulo 2^24, so a TTL before a window has less than 97 days, and a
//! window has 97 days at most.
//!
//! Flash and the memory file keep the word and the bit that tells it from flags, so kinds survive demotions and
//! restarts, and an entry of a client is plain, whatever its flags are.

use crate::lookup::Item;
use ebbtide_store::Flags;

const STALE: u32 = 1;
const ABSENT: u32 = 2;
const FAILED: u32 = 3;
const IDLE: u32 = 4;
const SECOND_MASK: u32 = (1 << 24) - 1;
const KIND_MASK: u32 = 7;
/// A longer TTL before a window would look as if it were over.
pub(super) const MAX_FRESH_SECONDS: u64 = 1 << 23;
/// Later after the end of its TTL an entry would look fresh again.
pub(super) const MAX_STALE_SECONDS: u64 = 1 << 23;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    Plain,
    /// It may be served after this second, the end of its TTL, until the end of the life that the store knows.
    ServedStale {
        fresh_until: u32,
    },
    /// A loader has found that the key has no value.
    Absent,
    /// A loader has failed.
    Failed,
    /// Its TTL begins anew with uses.
    Idle,
}

impl EntryKind {
    #[inline]
    pub fn of(item: &Item<'_>) -> Self {
        Self::of_annotation(item.annotation())
    }

    pub fn of_flags(flags: Flags) -> Self {
        Self::of_annotation(flags.to_annotation())
    }

    #[inline]
    pub fn of_annotation(word: u32) -> Self {
        match word >> 24 & KIND_MASK {
            STALE => Self::ServedStale { fresh_until: word & SECOND_MASK },
            ABSENT => Self::Absent,
            FAILED => Self::Failed,
            IDLE => Self::Idle,
            _ => Self::Plain,
        }
    }

    /// The annotation without a cost class; 0 is none.
    pub fn annotation(self) -> u32 {
        match self {
            Self::Plain => 0,
            Self::ServedStale { fresh_until } => STALE << 24 | fresh_until,
            Self::Absent => ABSENT << 24,
            Self::Failed => FAILED << 24,
            Self::Idle => IDLE << 24,
        }
    }

    /// The kind of an entry that may be served after this second since 1970.
    pub fn served_stale(fresh_until: u64) -> Self {
        Self::ServedStale { fresh_until: fresh_until as u32 & SECOND_MASK }
    }

    /// The flags of an entry that is of no kind any more, with its cost.
    pub fn without_kind(flags: Flags) -> Flags {
        Flags::from_parts(flags.to_annotation() & !(KIND_MASK << 24 | SECOND_MASK), true)
    }

    /// Whether the entry has a value for its readers.
    #[inline]
    pub fn has_value(self) -> bool {
        !matches!(self, Self::Absent | Self::Failed)
    }

    /// Whether the TTL is over at this second since 1970.
    pub fn is_stale(self, now: u64) -> bool {
        let Self::ServedStale { fresh_until } = self else { return false };
        u64::from((now as u32).wrapping_sub(fresh_until) & SECOND_MASK) < MAX_STALE_SECONDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_keep_the_kind() {
        let kinds = [EntryKind::Plain, EntryKind::Absent, EntryKind::Failed, EntryKind::Idle];
        for kind in kinds.into_iter().chain([EntryKind::served_stale(1_800_000_000)]) {
            assert_eq!(EntryKind::of_annotation(kind.annotation()), kind);
            let with_cost = Flags::annotation_with_cost(kind.annotation(), 31);
            assert_eq!(EntryKind::of_annotation(with_cost), kind);
            assert_eq!(EntryKind::without_kind(Flags::annotation(with_cost)), Flags::annotation(31 << 27));
        }
        assert_eq!(EntryKind::of_annotation(123), EntryKind::Plain);
    }

    #[test]
    fn an_entry_is_stale_after_its_ttl() {
        // The second has a bit above the 24 that are kept.
        for end in [100, (1 << 24) + 5, 1_800_000_000] {
            let kind = EntryKind::served_stale(end);
            assert!(!kind.is_stale(end - 1) && !kind.is_stale(end - 90), "{end}");
            assert!(kind.is_stale(end) && kind.is_stale(end + MAX_STALE_SECONDS - 1), "{end}");
        }
        assert!(!EntryKind::Plain.is_stale(u64::MAX));
    }
}
