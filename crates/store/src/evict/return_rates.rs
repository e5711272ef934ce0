//! How many uses a young item needs, by how often items are used again.
//!
//! S3-FIFO moves an item from the young segments to the old ones after one use or after two. One use is right where a
//! used item is likely to be used again soon (recency), two where most items are used in pairs and never again (scans
//! with read-ahead, joins). The rule follows from a small sample of the keys, the probes. Two shares are measured:
//!
//! - of young probes with a single use, those that are used again within the time that an unused item stays in an old
//!   segment. While one use is enough such a probe is kept, and its next eviction shows whether it was used. While two
//!   are needed it is evicted, and an insertion of its key shows that it would have been used;
//! - of the probes that are evicted from old segments, those that are inserted again within as much time once more.
//!
//! If the first share is the lower one, the memory is worth more to the old segments: all young items need two uses.
//!
//! ```text
//! entry   63       34 33    32 31             0
//!        +-----------+--------+----------------+
//!        |  tag      |  kind  |  deadline, ms  |      0 = none; a table with one entry per place
//!        +-----------+--------+----------------+
//! ```
//! The table is small, and the sample thins out as items get more. Races lose entries or counts, which is harmless.

use super::resizable::ResizableTable;
use crate::error::Error;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// One in `1 << MIN_PROBE_BITS` keys is a probe at most.
const MIN_PROBE_BITS: u32 = 4;
/// Where the bits of a hash that select the probes begin.
const PROBE_SHIFT: u32 = 40;
const TAG_SHIFT: u32 = 34;
const KIND_SHIFT: u32 = 32;
/// The kinds of entries.
const YOUNG: u64 = 0;
const OLD: u64 = 1;
const KEPT: u64 = 2;
/// Probes that a share needs.
const MIN_PROBES: u32 = 32;
/// Probes after which the counts of a share are halved.
const WINDOW_PROBES: u32 = 400;
/// How much higher the share of young probes must be for a change back to one use, in percent.
const HYSTERESIS_PERCENT: u64 = 110;
/// The window of young probes follows the age of evicted old ones by this part.
const AGE_PART: u32 = 16;
/// Half of the times that a deadline can tell apart.
const MAX_AGE_MS: u64 = 1 << 30;

/// An evicted item, as the rates distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// From a young segment.
    Young { uses: u8 },
    /// From an old segment, which it has been in for this time without being used.
    Old { age_ms: u64 },
}

/// Probes of a kind, and how many of these were used again.
#[derive(Default)]
struct Rate {
    probes: AtomicU32,
    used: AtomicU32,
}

/// The sample of evicted keys, and the rule that follows from it.
pub struct ReturnRates {
    entries: ResizableTable<AtomicU64>,
    probe_bits: AtomicU32,
    young: Rate,
    old: Rate,
    old_age_ms: AtomicU32,
    needs_two_uses: AtomicBool,
}

impl ReturnRates {
    /// A table of at most `bytes` bytes, which may get up to `max_bytes`.
    pub fn new(bytes: u64, max_bytes: u64) -> Result<Self, Error> {
        Ok(Self {
            entries: ResizableTable::new(Self::entries(bytes), Self::entries(max_bytes))?,
            probe_bits: AtomicU32::new(MIN_PROBE_BITS),
            young: Rate::default(),
            old: Rate::default(),
            old_age_ms: AtomicU32::new(0),
            needs_two_uses: AtomicBool::new(false),
        })
    }

    /// Makes it a table of at most `bytes` bytes. The sample follows at the next `fit`.
    pub fn resize(&self, bytes: u64) {
        self.entries.set_length(Self::entries(bytes).min(self.entries.max_length()));
    }

    fn entries(bytes: u64) -> usize {
        1 << (bytes as usize / size_of::<u64>()).max(1).ilog2()
    }

    /// Bytes that `new` takes for the same argument.
    pub fn bytes(bytes: u64) -> u64 {
        (Self::entries(bytes) * size_of::<u64>()) as u64
    }

    /// Adapts the sample to the number of items, and the rule to the rates.
    pub fn fit(&self, items: u64) {
        let probes_max = (self.entries.length() as u64 / 2).max(1);
        let bits = (items / probes_max).max(1).ilog2().max(MIN_PROBE_BITS);
        if bits != self.probe_bits.load(Ordering::Relaxed) {
            self.probe_bits.store(bits, Ordering::Relaxed);
        }
        let two = self.needs_two_uses.load(Ordering::Relaxed);
        if let (Some(young), Some(old)) = (self.young.share(), self.old.share()) {
            let wanted = if two { young * 100 < old * HYSTERESIS_PERCENT } else { young < old };
            if wanted != two {
                self.needs_two_uses.store(wanted, Ordering::Relaxed);
            }
        }
    }

    /// Whether all young items need two uses, not only the probes.
    pub fn needs_two_uses(&self) -> bool {
        self.needs_two_uses.load(Ordering::Relaxed)
    }

    /// Whether the key is one of the sample.
    pub fn is_probe(&self, hash: u64) -> bool {
        (hash >> PROBE_SHIFT) & ((1 << self.probe_bits.load(Ordering::Relaxed)) - 1) == 0
    }

    fn entry(&self, hash: u64) -> &AtomicU64 {
        self.entries.at((hash >> u8::BITS) as usize & (self.entries.length() - 1))
    }

    /// The upper part of an entry without its kind.
    fn tag(hash: u64) -> u64 {
        hash.rotate_right(PROBE_SHIFT / 2) >> TAG_SHIFT
    }

    fn put(&self, hash: u64, kind: u64, deadline_ms: u32) {
        let word = Self::tag(hash) << TAG_SHIFT | kind << KIND_SHIFT | u64::from(deadline_ms);
        self.entry(hash).store(word, Ordering::Relaxed);
    }

    /// Removes the entry of a probe. Returns its kind and deadline.
    fn take(&self, hash: u64) -> Option<(u64, u32)> {
        let entry = self.entry(hash);
        let word = entry.load(Ordering::Relaxed);
        (word != 0 && word >> TAG_SHIFT == Self::tag(hash)).then(|| {
            entry.store(0, Ordering::Relaxed);
            (word >> KIND_SHIFT & 3, word as u32)
        })
    }

    /// Records that a young probe with a single use is kept.
    pub fn note_kept(&self, hash: u64) {
        self.young.note_probe();
        self.put(hash, KEPT, 0);
    }

    /// Records that a probe in an old segment was used since it came there.
    pub fn note_used(&self, hash: u64) {
        if let Some((KEPT, _)) = self.take(hash) {
            self.young.note_used();
        }
    }

    /// Records an eviction of a probe.
    pub fn note_evicted(&self, hash: u64, evicted: Evicted, now_ms: u64) {
        let (kind, window_ms) = match evicted {
            Evicted::Young { uses } if uses == 0 || !self.needs_two_uses() => return,
            Evicted::Young { .. } => {
                self.young.note_probe();
                (YOUNG, self.old_age_ms.load(Ordering::Relaxed))
            }
            Evicted::Old { age_ms } => {
                self.old.note_probe();
                (OLD, self.note_age(age_ms))
            }
        };
        self.put(hash, kind, (now_ms as u32).wrapping_add(window_ms));
    }

    /// Returns the mean age of the old items evicted last, with this one.
    fn note_age(&self, age_ms: u64) -> u32 {
        let age = age_ms.min(MAX_AGE_MS) as u32;
        let mean = self.old_age_ms.load(Ordering::Relaxed);
        let next = if mean == 0 { age } else { mean - mean / AGE_PART + age / AGE_PART };
        self.old_age_ms.store(next, Ordering::Relaxed);
        next
    }

    /// Records that a probe is inserted which was not in the cache.
    pub fn note_inserted(&self, hash: u64, now_ms: u64) {
        let Some((kind, deadline_ms)) = self.take(hash) else { return };
        let is_in_time = deadline_ms.wrapping_sub(now_ms as u32) as i32 >= 0;
        match kind {
            YOUNG if is_in_time => self.young.note_used(),
            OLD if is_in_time => self.old.note_used(),
            _ => {}
        }
    }
}

impl Rate {
    fn note_probe(&self) {
        let probes = self.probes.fetch_add(1, Ordering::Relaxed) + 1;
        if probes >= WINDOW_PROBES {
            self.probes.store(probes / 2, Ordering::Relaxed);
            self.used.store(self.used.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
        }
    }

    fn note_used(&self) {
        self.used.fetch_add(1, Ordering::Relaxed);
    }

    /// The share that was used again, of 10,000; `None` if there are too few probes.
    fn share(&self) -> Option<u64> {
        let (probes, used) = (self.probes.load(Ordering::Relaxed), self.used.load(Ordering::Relaxed));
        (probes >= MIN_PROBES).then(|| (u64::from(used) + 1) * 10_000 / (u64::from(probes) + 2))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Hashes of probes.
    fn probe(number: u64) -> u64 {
        let mixed =
            (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed & !(0xFF << PROBE_SHIFT)
    }

    /// Young probes with a single use and old ones, of which one in `young` and one in `old` are used again.
    fn feed(rates: &ReturnRates, young: u64, old: u64) {
        for number in 0..800u64 {
            let now = number * 100;
            let (once, unused) = (probe(2 * number), probe(2 * number + 1));
            let two = rates.needs_two_uses();
            match two {
                true => rates.note_evicted(once, Evicted::Young { uses: 1 }, now),
                false => rates.note_kept(once),
            }
            if number.is_multiple_of(young) {
                match two {
                    true => rates.note_inserted(once, now + 10),
                    false => rates.note_used(once),
                }
            }
            rates.note_evicted(unused, Evicted::Old { age_ms: 1000 }, now);
            if number.is_multiple_of(old) {
                rates.note_inserted(unused, now + 10);
            }
            rates.fit(1000);
        }
    }

    #[test]
    fn the_rule_follows_the_higher_share() {
        let rates = ReturnRates::new(4096, 4096).unwrap();
        assert!(rates.is_probe(probe(7)) && !rates.needs_two_uses(), "without evidence one use is enough");
        feed(&rates, 8, 2);
        assert!(rates.needs_two_uses());
        feed(&rates, 2, 8);
        assert!(!rates.needs_two_uses());
    }

    #[test]
    fn a_late_insertion_does_not_count() {
        let rates = ReturnRates::new(4096, 4096).unwrap();
        for number in 0..100u64 {
            rates.note_evicted(probe(number), Evicted::Old { age_ms: 1000 }, 5000);
            rates.note_inserted(probe(number), if number < 50 { 5400 } else { 7000 });
        }
        assert_eq!(rates.old.used.load(Ordering::Relaxed), 50);
        assert_eq!(rates.old.probes.load(Ordering::Relaxed), 100);
    }

    #[test]
    fn the_sample_thins_out_as_items_get_more() {
        let rates = ReturnRates::new(1024, 1024).unwrap();
        let probes = |items| {
            rates.fit(items);
            (0..100_000u64).filter(|number| rates.is_probe(number.wrapping_mul(0x9E37_79B9_7F4A_7C15))).count()
        };
        assert!((5500..7000).contains(&probes(100)), "one in 16");
        assert!((40..200).contains(&probes(64 << 10)), "one in 1024");
    }
}
