//! Ranges of values as uses.
//!
//! A lookup of a range reads a part of a value, so it is a part of a use. When ranges together have read as many bytes
//! as the value has, that is one use: the next lookup of a range asks the promotion policy, as a get does, and if the
//! policy promotes, it reads the whole value. So a value that is read by ranges alone comes to memory as often as it
//! would by gets, and the device reads at most twice the bytes of the ranges for that.
//!
//! The bytes are counted in a table of fixed size. Keys with the same entry take bytes off each other, as in
//! Misra-Gries: the key that reads more keeps the entry. A lost count delays a promotion and nothing else, so the words
//! are Relaxed.
//!
//! ```text
//! entry   bits 32 to 63 of the key's hash u32 | bytes u32; all ones: a use is complete
//! ```

use ebbtide_flash::FlashHash;
use std::sync::atomic::{AtomicU64, Ordering};

const ENTRIES: usize = 4096;
/// Bytes of the table, which are part of the memory of flash.
pub(super) const BYTES: u64 = (ENTRIES * size_of::<AtomicU64>()) as u64;
const COMPLETE: u64 = u32::MAX as u64;

/// Bytes that ranges have read, for some keys.
pub(super) struct RangeUses(Box<[AtomicU64]>);

impl Default for RangeUses {
    fn default() -> Self {
        Self((0..ENTRIES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl RangeUses {
    fn entry(&self, key: FlashHash) -> (&AtomicU64, u64) {
        (&self.0[key.0 as usize % ENTRIES], key.0 >> 32)
    }

    /// A range of a value was read.
    pub fn note(&self, key: FlashHash, range_bytes: u64, value_bytes: u64) {
        let (entry, tag) = self.entry(key);
        let word = entry.load(Ordering::Relaxed);
        let (owner, bytes) = (word >> 32, word & COMPLETE);
        let (owner, bytes) = match () {
            () if owner == tag => (tag, bytes + range_bytes),
            () if bytes <= range_bytes => (tag, range_bytes),
            () => (owner, bytes - range_bytes),
        };
        let is_complete = owner == tag && bytes >= value_bytes;
        let bytes = if is_complete { COMPLETE } else { bytes.min(COMPLETE - 1) };
        entry.store(owner << 32 | bytes, Ordering::Relaxed);
    }

    /// Whether ranges have read as much of a value as it has; the count begins anew then.
    pub fn take_use(&self, key: FlashHash) -> bool {
        let (entry, tag) = self.entry(key);
        let is_complete = entry.load(Ordering::Relaxed) == tag << 32 | COMPLETE;
        if is_complete {
            entry.store(tag << 32, Ordering::Relaxed);
        }
        is_complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: u64 = 1 << 20;

    fn key(number: u64) -> FlashHash {
        FlashHash(number << 32 | 7)
    }

    /// Whether the next lookup reads the whole value.
    fn note(uses: &RangeUses, number: u64, bytes: u64) -> bool {
        uses.note(key(number), bytes, LONG);
        uses.take_use(key(number))
    }

    #[test]
    fn ranges_totalling_the_value_are_one_use() {
        let uses = RangeUses::default();
        assert!(!uses.take_use(key(1)));
        for round in 0..3 {
            let complete: Vec<_> = (0..256).filter(|_| note(&uses, 1, 4096)).collect();
            assert_eq!(complete, [255], "round {round}");
        }
        assert!(note(&uses, 1, LONG) && !note(&uses, 1, 0), "all of it at once");
        uses.note(key(1), LONG, LONG);
        uses.note(key(1), 1, LONG);
        assert!(uses.take_use(key(1)) && !uses.take_use(key(1)), "a use is taken once");
        uses.note(key(1), u64::MAX >> 32, u64::MAX);
        assert!(!uses.take_use(key(1)));
    }

    #[test]
    fn the_key_that_reads_more_keeps_its_entry() {
        let uses = RangeUses::default();
        let mut uses_of = [0; 2];
        for number in 0..10_000 {
            let other = u64::from(number % 4 == 0);
            uses_of[other as usize] += u32::from(note(&uses, 1 + other, 4096));
        }
        assert!(uses_of[0] >= 15 && uses_of[1] == 0, "{uses_of:?}");
    }
}
