//! The format of a compact table: frames of sets, sets of entries, and the control word of a set.
//!
//! ```text
//! frame   | control 0 | control 1 | ... | pad to 64 B | set 0 | set 1 | ...              2080 KiB
//!
//! set     | entry 0 | entry 1 | ... | entry n-1 | unused |        1 to 8 cache lines
//!           ^ used last               ^ evicted next: the position is the order of use
//!
//! entry   | key | value | expiry: 4 |      no length, no pointer, no padding; the expiry only in tables with TTLs
//!
//! control  63          39 38                          7 6       1     0
//!         +--------------+-----------------------------+--------+------+
//!         | sequence:25  | negative:32, bit i: entry i | used:6 |lock:1|
//!         +--------------+-----------------------------+--------+------+
//! ```
//! A key belongs to one set. The set has 8 bytes beside its entries, so a set is as large as keeps them, and the bytes
//! that no entry fits, within 3.5 % of the entries where up to 32 entries allow it. A frame of zeros has empty sets.

use super::types::CompactSizes;
use crate::error::Error;
use crate::frames::FRAME_BYTES;

/// Entries of a set: one bit of the control word each.
pub const WAYS_MAX: usize = 32;
/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
/// Lines of a set: a get that misses reads all of them.
const LINES_MAX: usize = 8;
/// Bytes of the largest set.
pub const SET_BYTES_MAX: usize = LINES_MAX * LINE_BYTES;
/// Bytes of the largest entry: four fit the largest set.
pub const ENTRY_BYTES_MAX: usize = SET_BYTES_MAX / 4;
/// Bytes of an expiry.
const EXPIRY_BYTES: usize = 4;
/// Bytes of a control word.
pub const CONTROL_BYTES: usize = size_of::<u64>();
/// A larger set is not taken for less than this per mille of bytes beside the entries.
const OVERHEAD_PER_MILLE: usize = 35;

/// Where everything of a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub key_bytes: usize,
    pub value_bytes: usize,
    pub has_ttl: bool,
    pub entry_bytes: usize,
    pub set_bytes: usize,
    /// Entries of a set.
    pub ways: usize,
    /// Sets of a frame.
    pub sets_per_frame: u32,
    /// Bytes of a frame before its first set.
    first_set: usize,
}

/// Bytes of a set of `lines` lines beyond its entries, per mille of the entries.
const fn overhead_per_mille(entry_bytes: usize, lines: usize) -> usize {
    let used = ways(entry_bytes, lines) * entry_bytes;
    (lines * LINE_BYTES + CONTROL_BYTES - used) * 1000 / used
}

const fn ways(entry_bytes: usize, lines: usize) -> usize {
    let fitting = lines * LINE_BYTES / entry_bytes;
    if fitting < WAYS_MAX { fitting } else { WAYS_MAX }
}

/// Lines of a set of such entries: as few as keep the overhead small, four entries at least.
const fn lines(entry_bytes: usize) -> usize {
    let (mut best, mut lines) = (LINES_MAX, LINES_MAX);
    while lines > 0 {
        let overhead = overhead_per_mille_of(entry_bytes, lines);
        if overhead <= OVERHEAD_PER_MILLE || overhead < overhead_per_mille_of(entry_bytes, best) {
            best = lines;
        }
        lines -= 1;
    }
    best
}

/// As `overhead_per_mille`; the largest number where fewer than four entries fit.
const fn overhead_per_mille_of(entry_bytes: usize, lines: usize) -> usize {
    if ways(entry_bytes, lines) < 4 { usize::MAX } else { overhead_per_mille(entry_bytes, lines) }
}

const _: () = {
    assert!(lines(16) == 4 && ways(16, 4) == 16 && overhead_per_mille(16, 4) <= OVERHEAD_PER_MILLE);
    assert!(lines(8) == 4 && ways(8, 4) == WAYS_MAX);
    assert!(ways(ENTRY_BYTES_MAX, lines(ENTRY_BYTES_MAX)) == 4);
    assert!(1 + 6 + WAYS_MAX + 25 == u64::BITS as usize, "the parts of a control word");
    assert!(WAYS_MAX < 1 << 6, "the count of entries has 6 bits");
};

impl Layout {
    /// # Errors
    /// `Options` if the key has no byte, or key, value and expiry have more than 128.
    pub fn new(sizes: CompactSizes) -> Result<Self, Error> {
        let CompactSizes { key_bytes, value_bytes, has_ttl } = sizes;
        let entry_bytes = key_bytes.saturating_add(value_bytes).saturating_add(if has_ttl { EXPIRY_BYTES } else { 0 });
        if key_bytes == 0 || entry_bytes > ENTRY_BYTES_MAX {
            let ttl = if has_ttl { ", 4 for the TTL" } else { "" };
            return Err(Error::Options {
                option: "compact",
                value: format!("key {key_bytes}, value {value_bytes}{ttl}"),
                reason: format!(
                    "a key has 1 byte at least, and an entry has {ENTRY_BYTES_MAX} at most: use a pool of kind store \
                     for longer ones"
                ),
            });
        }
        // A frame of a model has two lines.
        let set_lines = if cfg!(loom) { 1 } else { lines(entry_bytes) };
        let set_bytes = set_lines * LINE_BYTES;
        // Each set needs its control word; the first set begins on a line.
        let mut sets = FRAME_BYTES / (set_bytes + CONTROL_BYTES);
        while first_set(sets) + sets * set_bytes > FRAME_BYTES {
            sets -= 1;
        }
        Ok(Self {
            key_bytes,
            value_bytes,
            has_ttl,
            entry_bytes,
            set_bytes,
            ways: ways(entry_bytes, set_lines),
            sets_per_frame: sets as u32,
            first_set: first_set(sets),
        })
    }

    /// Where the control word of a set is, in its frame.
    pub fn control_at(&self, set: u32) -> usize {
        set as usize * CONTROL_BYTES
    }

    /// Where the first byte of a set is, in its frame.
    pub fn set_at(&self, set: u32) -> usize {
        self.first_set + set as usize * self.set_bytes
    }

    /// Bytes of a set with its control word.
    pub fn bytes_per_set(&self) -> u64 {
        (self.set_bytes + CONTROL_BYTES) as u64
    }
}

/// Bytes of a frame before its first set.
const fn first_set(sets: usize) -> usize {
    (sets * CONTROL_BYTES).next_multiple_of(LINE_BYTES)
}

/// The control word of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetControl(pub u64);

impl SetControl {
    pub const LOCK: u64 = 1;
    const USED_SHIFT: u32 = 1;
    const USED_MASK: u64 = (1 << 6) - 1;
    const NEGATIVE_SHIFT: u32 = 7;
    const SEQUENCE_SHIFT: u32 = 39;

    pub fn is_locked(self) -> bool {
        self.0 & Self::LOCK != 0
    }

    /// Entries of the set. More than a set has only in memory that is no set.
    pub fn used(self) -> usize {
        (self.0 >> Self::USED_SHIFT & Self::USED_MASK) as usize
    }

    /// A bit for each entry that is a negative result.
    pub fn negatives(self) -> u32 {
        (self.0 >> Self::NEGATIVE_SHIFT) as u32
    }

    pub fn is_negative(self, position: usize) -> bool {
        self.negatives() >> position & 1 != 0
    }

    /// Changes with each change of the set.
    pub fn sequence(self) -> u32 {
        (self.0 >> Self::SEQUENCE_SHIFT) as u32
    }

    /// The unlocked word after a change.
    pub fn changed_to(self, used: usize, negatives: u32) -> Self {
        let sequence = (self.0 >> Self::SEQUENCE_SHIFT).wrapping_add(1) << Self::SEQUENCE_SHIFT;
        Self(sequence | u64::from(negatives) << Self::NEGATIVE_SHIFT | (used as u64) << Self::USED_SHIFT)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_control_word_keeps_its_parts_apart() {
        let mut control = SetControl(0);
        for round in 1..100u32 {
            control = control.changed_to((round % 33) as usize, u32::MAX >> (round % 32));
            assert_eq!(control.used(), (round % 33) as usize);
            assert_eq!(control.negatives(), u32::MAX >> (round % 32));
            assert_eq!((control.sequence(), control.is_locked()), (round, false));
        }
        let last = SetControl(u64::MAX << SetControl::SEQUENCE_SHIFT);
        assert_eq!(last.changed_to(0, 0).sequence(), 0, "the sequence wraps around");
    }

    #[test]
    fn sets_of_keys_fill_their_lines() {
        for key_bytes in 8..=ENTRY_BYTES_MAX {
            let layout = Layout::new(CompactSizes { key_bytes, value_bytes: 0, has_ttl: false }).unwrap();
            let raw = layout.ways * key_bytes;
            let bytes = layout.set_bytes + CONTROL_BYTES;
            assert!(layout.ways >= 4 && bytes * 100 <= raw * 128, "{key_bytes}: {bytes} for {raw}");
            let sets = layout.sets_per_frame;
            assert!(layout.set_at(sets) <= FRAME_BYTES && layout.control_at(sets) <= layout.set_at(0));
        }
    }

    #[test]
    fn entries_that_fit_no_set_are_refused() {
        let refused = |key_bytes, value_bytes, has_ttl| {
            Layout::new(CompactSizes { key_bytes, value_bytes, has_ttl }).unwrap_err().to_string()
        };
        assert!(refused(0, 8, false).contains("key 0, value 8"));
        assert!(refused(100, 29, false).contains("128 at most"));
        assert!(refused(100, 28, true).contains("4 for the TTL"));
        assert!(refused(usize::MAX, usize::MAX, true).contains("128 at most"));
    }
}
