//! Recently evicted keys: the ghosts of S3-FIFO (Yang and others, SOSP'23, section 4.1) and 2Q.
//!
//! ```text
//! set of a hash       63      58 57         48        15     10 9          0
//! with ages          +----------+-------------+------+---------+------------+
//!                    |   tick   | fingerprint | .... |  tick   | fingerprint|      four ghosts, 0 = none
//!                    +----------+-------------+------+---------+------------+
//!                      oldest                          newest
//! without ages        63      56          8 7       0
//!                    +----------+--------+----------+
//!                    |  oldest  |  ....  |  newest  |      fingerprints of eight ghosts, 0 = none
//!                    +----------+--------+----------+
//! ```
//! A new ghost replaces the oldest of its set. How many evictions a key is remembered for matters: a key that returns
//! later than the cache could have kept it takes the place of one that is used. That number follows the number of
//! objects. Without ages it holds on average, and one set remembers twice as many evictions as another. Ages are exact:
//! a ghost counts for 16 ticks, each a 16th part of these evictions. They take twice the bytes, which a table has where
//! objects are not small.
//!
//! One of 32 other keys is mistaken for a ghost without ages, one of about 300 with them. Races lose ghosts, which is
//! harmless.

use super::resizable::ResizableTable;
use crate::error::Error;
use crate::sync::{AtomicU64, Ordering};

/// Ticks for which a ghost counts. Ticks repeat after four times as many; few ghosts stay in a set for as long.
const TICKS: u64 = 16;
/// The highest tick.
const TICK_MASK: u64 = 63;
const TICK_SHIFT: u32 = 10;
const _: () =
    assert!(TICK_MASK << TICK_SHIFT | ((1 << TICK_SHIFT) - 1) == u16::MAX as u64 && TICK_MASK + 1 == 4 * TICKS);
/// Sets with ages have space for this percentage of the remembered ghosts: with more space than for all, a full set
/// replaces few ghosts that count.
const SPARE_PERCENT: u64 = 130;
/// Ghosts of a set with ages, and without.
const AGED_GHOSTS: u64 = (u64::BITS / u16::BITS) as u64;
const PLAIN_GHOSTS: u64 = (u64::BITS / u8::BITS) as u64;
/// A change of the number of sets forgets all ghosts: it changes only if it is wrong by more than this part.
const SETS_PART: u64 = 8;
/// From this many remembered evictions on, one in `COUNT_STEP` evictions is counted, as that many.
const COUNT_ALL_BELOW: u64 = 4096;
const COUNT_STEP: u64 = 16;
/// The bits of a hash from here on select a set.
const SET_SHIFT: u32 = 32;
/// One in 128 unknown keys is taken for a ghost. In a loop that is longer than the cache no key returns in time, so
/// without that none would ever come to the old segments and stay there (bimodal insertion: Qureshi and others,
/// ISCA'07, section 4).
const CHANCE_BITS: u32 = 7;
/// An odd number whose product with a word has the bits of all of it in the upper ones (2^64 over the golden ratio).
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
/// Words of a history in front of the sets.
const HEAD_WORDS: usize = 3;

/// How the sets are used. In a word: whether they have ages in the highest bit, and their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SetShape {
    has_ages: bool,
    sets: u64,
}

/// A table of keys that were evicted.
pub struct Ghosts {
    sets: ResizableTable<AtomicU64>,
    shape: AtomicU64,
    /// Evictions for which a key is remembered.
    remembered: AtomicU64,
    /// Evictions so far, about.
    evictions: AtomicU64,
}

impl SetShape {
    const AGES_BIT: u64 = 1 << 63;

    fn of_word(word: u64) -> Self {
        Self { has_ages: word & Self::AGES_BIT != 0, sets: word & !Self::AGES_BIT }
    }

    fn word(self) -> u64 {
        self.sets | if self.has_ages { Self::AGES_BIT } else { 0 }
    }

    /// For `remembered` evictions in a table of `length` sets.
    fn fit(remembered: u64, length: u64, has_ages: bool) -> Self {
        let with_ages = remembered * SPARE_PERCENT / 100 / AGED_GHOSTS;
        // A table at the limit does not change from one to the other and back.
        let limit = if has_ages { length } else { length - length / SETS_PART };
        if with_ages <= limit {
            Self { has_ages: true, sets: with_ages.max(1) }
        } else {
            Self { has_ages: false, sets: (remembered / PLAIN_GHOSTS).clamp(1, length) }
        }
    }

    fn is_near(self, other: Self) -> bool {
        self.has_ages == other.has_ages && self.sets.abs_diff(other.sets) <= self.sets / SETS_PART
    }

    /// Bits of a ghost.
    fn ghost_bits(self) -> u32 {
        if self.has_ages { u16::BITS } else { u8::BITS }
    }

    /// The fingerprint of a hash, never 0.
    fn fingerprint(self, hash: u64) -> u64 {
        let mask = if self.has_ages { (1 << TICK_SHIFT) - 1 } else { 0xFF };
        (hash & mask).max(1)
    }
}

impl Ghosts {
    /// A table of at most `bytes` bytes, which may get up to `max_bytes`.
    pub fn new(bytes: u64, max_bytes: u64) -> Result<Self, Error> {
        let sets = ResizableTable::new(Self::sets(bytes), Self::sets(max_bytes))?;
        let remembered = sets.length() as u64;
        let shape = SetShape::fit(remembered, remembered, true);
        Ok(Self {
            sets,
            shape: AtomicU64::new(shape.word()),
            remembered: AtomicU64::new(remembered),
            evictions: AtomicU64::new(0),
        })
    }

    /// Makes it a table of at most `bytes` bytes. The next `fit` gives ghosts a longer table.
    pub fn resize(&self, bytes: u64) {
        let sets = Self::sets(bytes).min(self.sets.max_length());
        let shape = self.shape();
        if shape.sets > sets as u64 {
            self.shape.store(SetShape { sets: sets as u64, ..shape }.word(), Ordering::Relaxed);
        }
        self.sets.set_length(sets);
    }

    fn sets(bytes: u64) -> usize {
        1 << (bytes as usize / size_of::<u64>()).max(1).ilog2()
    }

    /// Bytes that `new` takes for the same argument.
    pub fn bytes(bytes: u64) -> u64 {
        (Self::sets(bytes) * size_of::<u64>()) as u64
    }

    /// The shape, the remembered evictions, those so far, and all sets.
    pub fn words(&self) -> Vec<u64> {
        let head = [&self.shape, &self.remembered, &self.evictions];
        head.into_iter().chain(self.sets.iter()).map(|word| word.load(Ordering::Relaxed)).collect()
    }

    /// Bytes of the table that has these words.
    pub fn bytes_of(words: &[u64]) -> Option<u64> {
        let sets = words.len().checked_sub(HEAD_WORDS).filter(|sets| sets.is_power_of_two())?;
        Some((sets * size_of::<u64>()) as u64)
    }

    /// Takes over the words of a table of the same size.
    pub fn restore(&self, words: &[u64]) {
        let Some(([shape, remembered, evictions], sets)) = words.split_first_chunk::<HEAD_WORDS>() else { return };
        let is_ours =
            sets.len() == self.sets.length() && (1..=sets.len() as u64).contains(&SetShape::of_word(*shape).sets);
        if is_ours {
            self.shape.store(*shape, Ordering::Relaxed);
            self.remembered.store(*remembered, Ordering::Relaxed);
            self.evictions.store(*evictions, Ordering::Relaxed);
            self.sets.iter().zip(sets).for_each(|(set, word)| set.store(*word, Ordering::Relaxed));
        }
    }

    /// Sets the number of evictions for which a key is remembered. One thread at a time calls it.
    pub fn fit(&self, evictions: u64) {
        let (shape, length) = (self.shape(), self.sets.length() as u64);
        let wanted = SetShape::fit(evictions, length, shape.has_ages);
        if !shape.is_near(wanted) {
            // Of the ticks so far only the last bits are compared.
            let tick = self.tick() & TICK_MASK;
            self.remembered.store(evictions, Ordering::Relaxed);
            self.evictions.store(tick * self.tick_evictions(), Ordering::Relaxed);
            self.shape.store(wanted.word(), Ordering::Relaxed);
        }
    }

    fn shape(&self) -> SetShape {
        SetShape::of_word(self.shape.load(Ordering::Relaxed))
    }

    fn tick_evictions(&self) -> u64 {
        (self.remembered.load(Ordering::Relaxed) / TICKS).max(1)
    }

    fn tick(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed) / self.tick_evictions()
    }

    fn set(&self, shape: SetShape, hash: u64) -> &AtomicU64 {
        // Less than the sets of the shape, which were in the table. Its address space stays when it gets shorter.
        self.sets.at((((hash >> SET_SHIFT) * shape.sets) >> SET_SHIFT) as usize)
    }

    /// Remembers a key that was evicted.
    pub fn add(&self, hash: u64) {
        let shape = self.shape();
        let mut ghost = shape.fingerprint(hash);
        if shape.has_ages {
            self.count(hash);
            ghost |= (self.tick() & TICK_MASK) << TICK_SHIFT;
        }
        let set = self.set(shape, hash);
        set.store(set.load(Ordering::Relaxed) << shape.ghost_bits() | ghost, Ordering::Relaxed);
    }

    /// Counts an eviction. Many threads evict at once, so most do not touch the count.
    fn count(&self, hash: u64) {
        let step = if self.remembered.load(Ordering::Relaxed) < COUNT_ALL_BELOW { 1 } else { COUNT_STEP };
        if (hash >> TICK_SHIFT).is_multiple_of(step) {
            self.evictions.fetch_add(step, Ordering::Relaxed);
        }
    }

    /// As `take`; also true for one in `1 << CHANCE_BITS` other keys, once their sets have ghosts. Without ages, other
    /// keys are mistaken for ghosts more often than that.
    pub fn take_or_chance(&self, hash: u64) -> bool {
        let shape = self.shape();
        // The set has other content at the next insertion of the key.
        let word = self.set(shape, hash).load(Ordering::Relaxed);
        let is_lucky = (word ^ hash).wrapping_mul(MIX) >> (u64::BITS - CHANCE_BITS) == 0;
        self.take(hash) || shape.has_ages && word != 0 && is_lucky
    }

    /// Whether the key was evicted recently. Removes the ghost.
    pub fn take(&self, hash: u64) -> bool {
        let shape = self.shape();
        let (set, fingerprint, bits) = (self.set(shape, hash), shape.fingerprint(hash), shape.ghost_bits());
        let word = set.load(Ordering::Relaxed);
        let mask = (1 << bits) - 1;
        let now = if shape.has_ages { self.tick() } else { 0 };
        let is_it = |ghost: u64| match shape.has_ages {
            true => {
                let age = now.wrapping_sub(ghost >> TICK_SHIFT) & TICK_MASK;
                ghost & ((1 << TICK_SHIFT) - 1) == fingerprint && age <= TICKS
            }
            false => ghost == fingerprint,
        };
        let place = (0..u64::BITS).step_by(bits as usize).find(|at| is_it(word >> at & mask));
        if let Some(at) = place {
            set.store(word & !(mask << at), Ordering::Relaxed);
        }
        place.is_some()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn hash(number: u64) -> u64 {
        let mixed = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed ^ mixed >> 32
    }

    #[test]
    fn a_ghost_is_taken_once() {
        let ghosts = Ghosts::new(1000, 1000).unwrap();
        assert_eq!(Ghosts::bytes(1000), 512);
        ghosts.add(hash(1));
        assert!(!ghosts.take(hash(2)));
        assert!(ghosts.take(hash(1)));
        assert!(!ghosts.take(hash(1)));
    }

    /// The share of ghosts in a range, of `evicted` that were added in the order of their numbers.
    fn known(ghosts: &Ghosts, range: std::ops::Range<u64>) -> f64 {
        let count = range.end - range.start;
        range.filter(|number| ghosts.take(hash(*number))).count() as f64 / count as f64
    }

    #[test]
    fn a_table_with_space_remembers_exactly() {
        let ghosts = Ghosts::new(1 << 20, 1 << 20).unwrap();
        ghosts.fit(10_000);
        (0..100_000).for_each(|number| ghosts.add(hash(number)));
        let new = known(&ghosts, 96_000..100_000);
        let old = known(&ghosts, 85_000..88_500);
        assert!(new > 0.95, "{new} of the newest");
        assert!(old < 0.02, "{old} of those that are too old");
    }

    #[test]
    fn ghosts_without_ages_cover_objects() {
        let ghosts = Ghosts::new(16 << 10, 16 << 10).unwrap();
        ghosts.fit(10_000);
        assert!(!ghosts.shape().has_ages);
        (0..100_000).for_each(|number| ghosts.add(hash(number)));
        let new = known(&ghosts, 98_000..100_000);
        let old = known(&ghosts, 0..50_000);
        assert!(new > 0.95, "{new} of the newest");
        assert!(old < 0.05, "{old} of the old ones, by chance");
    }

    #[test]
    fn a_few_strangers_pass_for_ghosts() {
        let ghosts = Ghosts::new(1 << 20, 1 << 20).unwrap();
        ghosts.fit(10_000);
        let passed = |from: u64| (from..from + 64_000).filter(|number| ghosts.take_or_chance(hash(*number))).count();
        assert_eq!(passed(1_000_000), 0, "nothing was evicted yet");
        (0..20_000).for_each(|number| ghosts.add(hash(number)));
        let first = passed(1_000_000);
        assert!((400..1000).contains(&first), "{first} of 64,000; 500 by chance, up to 260 by equal fingerprints");
        let again: Vec<u64> = (0..500)
            .filter(|_| {
                (20_000..24_000).for_each(|number| ghosts.add(hash(number)));
                ghosts.take_or_chance(hash(7))
            })
            .collect();
        assert!(!again.is_empty() && again.len() < 50, "{} of 500 times the same key", again.len());
    }

    #[test]
    fn small_drifts_forget_no_ghost() {
        let ghosts = Ghosts::new(1 << 20, 1 << 20).unwrap();
        ghosts.fit(10_000);
        (0..5000).for_each(|number| ghosts.add(hash(number)));
        ghosts.fit(10_900);
        ghosts.fit(9_200);
        assert!(known(&ghosts, 0..5000) > 0.9);
        assert_eq!(ghosts.remembered.load(Ordering::Relaxed), 10_000);
    }

    #[test]
    fn words_make_an_equal_table() {
        let (ghosts, other) = (Ghosts::new(1 << 16, 1 << 16).unwrap(), Ghosts::new(1 << 16, 1 << 16).unwrap());
        ghosts.fit(5000);
        (0..20_000).for_each(|number| ghosts.add(hash(number)));
        let words = ghosts.words();
        assert_eq!(Ghosts::bytes_of(&words), Some(1 << 16));
        other.restore(&words);
        assert_eq!(other.words(), words);
        assert!(known(&other, 16_000..20_000) > 0.9);
    }

    /// Words in an image, which another build of the same format reads. Other words need another kind of history.
    #[test]
    fn ghosts_in_an_image_are_golden() {
        let evicted = |evictions: u64| {
            let ghosts = Ghosts::new(32, 32).unwrap();
            ghosts.fit(evictions);
            (0..24).for_each(|number| ghosts.add(hash(number)));
            ghosts.words()
        };
        let with_ages =
            [0x8000_0000_0000_0003, 10, 24, 0x3FBB_4999_51EB, 0x2495_3BFD_55E9_6388, 0x47A3_4F9D_5B84_5D84, 0];
        let without_ages = [4, 100, 0, 0xBBEB, 77_916_806_683_016, 1_061_007_751_401, 16_885_233_566_950_982_788];
        let golden = [with_ages, without_ages];
        assert_eq!([10, 100].map(evicted), golden, "with ages, and without");
        for words in golden {
            let restored = Ghosts::new(32, 32).unwrap();
            restored.restore(&words);
            assert!((18..24).all(|number| restored.take(hash(number))) && !restored.take(hash(100)));
        }
    }

    /// An image may have any numbers.
    #[test]
    fn restored_counts_may_be_of_any_size() {
        let ghosts = Ghosts::new(1 << 10, 1 << 10).unwrap();
        let mut words = ghosts.words();
        (words[1], words[2]) = (1, u64::MAX);
        ghosts.restore(&words);
        ghosts.fit(300);
        ghosts.add(hash(1));
        assert!(ghosts.take(hash(1)));
    }

    #[test]
    fn a_shorter_table_stays_in_its_bounds() {
        let ghosts = Ghosts::new(1 << 16, 1 << 16).unwrap();
        ghosts.fit(20_000);
        ghosts.resize(1 << 10);
        assert!(ghosts.shape().sets <= 128);
        (0..1000).for_each(|number| ghosts.add(hash(number)));
        ghosts.fit(20_000);
        assert_eq!(ghosts.shape(), SetShape { has_ages: false, sets: 128 });
    }
}
