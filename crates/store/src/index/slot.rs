//! Slots and the control word of a bucket.
//!
//! ```text
//! Slot     63        52 51      44 43                  21 20                 0
//!         +------------+----------+----------------------+--------------------+
//!         |   tag:12   |  freq:8  |      segment:23      |     offset:21      |      0 = empty
//!         +------------+----------+----------------------+--------------------+
//!          bit 7 of freq: already counted in this quantum; bits 0-6: the count
//!
//! Control  63     62              47 46                                      0
//!         +------+------------------+----------------------------------------+
//!         |lock:1|  last access:16  |              sequence:47               |
//!         +------+------------------+----------------------------------------+
//!          last access: the quantum in which the bucket was last read; sequence: changes with every change
//!
//! Bucket  word 0: control; words 1-7: slots                                     64 B, one cache line
//! ```

use crate::mapping::Zeroed;
use crate::segment::{Location, SegmentId};
use crate::sync::AtomicU64;

/// Slots in a bucket: as many as fit its cache line. Loom's buckets are small, so that few keys fill them.
pub const BUCKET_SLOTS: usize = if cfg!(loom) { 2 } else { 7 };

const LOCATION_BITS: u32 = 44;
const FREQUENCY_SHIFT: u32 = LOCATION_BITS;
const TAG_SHIFT: u32 = 52;
const LOCATION_MASK: u64 = (1 << LOCATION_BITS) - 1;
const COUNTED_BIT: u64 = 0x80 << FREQUENCY_SHIFT;
/// The largest frequency.
pub const FREQUENCY_LIMIT: u8 = 127;
/// Up to here the counter is exact (Segcache, section 3.6.3).
pub const FREQUENCY_EXACT: u8 = 16;

/// The twelve bits of a key's hash that a slot keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(u16);

impl Tag {
    #[inline(always)]
    pub fn of(hash: u64) -> Self {
        Self((hash >> TAG_SHIFT) as u16)
    }

    /// Whether the word of a slot has this tag.
    #[inline(always)]
    pub fn is_of(self, word: u64) -> bool {
        (word ^ u64::from(self.0) << TAG_SHIFT) < 1 << TAG_SHIFT
    }
}

/// The location of an item, with twelve bits of its key's hash and its frequency.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Slot(u64);

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_empty() {
            return f.write_str("Slot(empty)");
        }
        write!(f, "Slot(tag {:03x}, frequency {}, {:?})", self.tag().0, self.frequency(), self.location())
    }
}

impl Slot {
    pub const EMPTY: Self = Self(0);

    pub fn new(tag: Tag, frequency: u8, at: Location) -> Self {
        debug_assert!(frequency <= FREQUENCY_LIMIT);
        Self(u64::from(tag.0) << TAG_SHIFT | u64::from(frequency) << FREQUENCY_SHIFT | at.bits())
    }

    #[inline(always)]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    #[inline(always)]
    pub const fn word(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline(always)]
    pub fn tag(self) -> Tag {
        Tag((self.0 >> TAG_SHIFT) as u16)
    }

    /// Accesses counted, at most one per quantum; exact below 16.
    #[inline(always)]
    pub fn frequency(self) -> u8 {
        (self.0 >> FREQUENCY_SHIFT) as u8 & FREQUENCY_LIMIT
    }

    #[inline(always)]
    pub fn location(self) -> Location {
        Location::from_bits(self.0 & LOCATION_MASK)
    }

    pub fn segment(self) -> SegmentId {
        self.location().segment()
    }

    #[inline(always)]
    pub fn is_counted(self) -> bool {
        self.0 & COUNTED_BIT != 0
    }

    /// The slot for another location, with another frequency.
    pub fn moved(self, to: Location, frequency: u8) -> Self {
        Self::new(self.tag(), frequency, to)
    }

    /// The slot after an access in a new quantum: Segcache's approximate and smoothed frequency counter (section
    /// 3.6.3), exact below 16, then counting with probability 1 / frequency. `random` draws a number that is uniform
    /// over u32, where chance decides.
    #[inline(always)]
    pub fn counted(self, random: impl FnOnce() -> u32) -> Self {
        let frequency = self.frequency();
        let counts = frequency < FREQUENCY_EXACT
            || frequency < FREQUENCY_LIMIT && (u64::from(random()) * u64::from(frequency)) >> 32 == 0;
        let word = if counts { self.0 + (1 << FREQUENCY_SHIFT) } else { self.0 };
        Self(word | COUNTED_BIT)
    }

    /// The mask that opens a new quantum for a slot.
    pub const UNCOUNT: u64 = !COUNTED_BIT;
}

const LOCK_BIT: u64 = 1 << 63;
const SEQUENCE_BITS: u32 = 47;
const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;

/// Word 0 of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control(u64);

impl Control {
    #[inline(always)]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    #[inline(always)]
    pub const fn word(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub const fn is_locked(self) -> bool {
        self.0 & LOCK_BIT != 0
    }

    pub const fn locked(self) -> Self {
        Self(self.0 | LOCK_BIT)
    }

    #[inline(always)]
    pub const fn sequence(self) -> u64 {
        self.0 & SEQUENCE_MASK
    }

    #[inline(always)]
    pub const fn last_access(self) -> u16 {
        (self.0 >> SEQUENCE_BITS) as u16
    }

    pub const fn accessed(self, quantum: u16) -> Self {
        Self(self.0 & !(0xFFFF << SEQUENCE_BITS) | (quantum as u64) << SEQUENCE_BITS)
    }

    /// Unlocked, with another sequence.
    pub fn released(self, sequence: u64) -> Self {
        assert!(sequence <= SEQUENCE_MASK, "the sequence of a bucket has run out");
        Self(self.0 & !(LOCK_BIT | SEQUENCE_MASK) | sequence)
    }

    /// Whether nothing changed between two reads of the control word, and no writer held the lock at either.
    #[inline(always)]
    pub const fn proves_unchanged(self, later: Self) -> bool {
        const WATCHED: u64 = LOCK_BIT | SEQUENCE_MASK;
        !self.is_locked() && self.0 & WATCHED == later.0 & WATCHED
    }
}

/// One cache line of the index.
#[cfg_attr(not(loom), repr(C, align(64)))]
pub struct Bucket {
    pub control: AtomicU64,
    pub slots: [AtomicU64; BUCKET_SLOTS],
}

// SAFETY: atomics of zero are all-zero bytes and need no drop.
unsafe impl Zeroed for Bucket {
    #[cfg(loom)]
    fn zeroed() -> Self {
        Self { control: AtomicU64::new(0), slots: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Bucket>() == 64 && align_of::<Bucket>() == 64);
const _: () = assert!(LOCATION_BITS + 8 + 12 == 64);
const _: () = assert!(1 + 16 + SEQUENCE_BITS == 64);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_packed_as_drawn() {
        let at = Location::new(SegmentId::new(0x2B_CDEF), 0x12345);
        let slot = Slot::new(Tag::of(0xFED0_0000_0000_0000), 5, at);
        assert_eq!(slot.word(), 0xFED0_5579_BDE1_2345);
        assert_eq!((slot.tag(), slot.frequency(), slot.location()), (Tag(0xFED), 5, at));
        assert!(!slot.is_counted() && slot.counted(|| 0).is_counted());
    }

    #[test]
    fn the_counter_is_exact_below_sixteen_then_slows() {
        let mut slot = Slot::new(Tag(1), 0, Location::new(SegmentId::new(1), 0));
        for expected in 1..=16 {
            slot = slot.counted(|| u32::MAX);
            assert_eq!(slot.frequency(), expected);
        }
        assert_eq!(slot.counted(|| u32::MAX).frequency(), 16, "an unlucky draw");
        assert_eq!(slot.counted(|| 0).frequency(), 17, "a lucky draw");
        let full = slot.moved(slot.location(), FREQUENCY_LIMIT);
        assert_eq!(full.counted(|| 0).frequency(), FREQUENCY_LIMIT);
        assert_eq!((full.counted(|| 0).tag(), full.counted(|| 0).location()), (full.tag(), full.location()));
    }

    #[test]
    fn a_control_word_keeps_its_fields_apart() {
        let control = Control::from_word(0).accessed(0xFFFF).released(SEQUENCE_MASK).locked();
        assert_eq!((control.last_access(), control.sequence(), control.is_locked()), (0xFFFF, SEQUENCE_MASK, true));
        let released = control.released(1);
        assert_eq!((released.last_access(), released.sequence(), released.is_locked()), (0xFFFF, 1, false));
        assert!(released.proves_unchanged(released.accessed(3)));
        assert!(
            !released.proves_unchanged(released.locked()) && !released.locked().proves_unchanged(released.locked())
        );
    }
}
