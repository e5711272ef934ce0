//! Promotion of flash hits: a hit is copied to memory, or served from the buffer that was read.
//!
//! A served object costs a device read at every use, and leaves memory to objects that are used more often. A promoted
//! object displaces another one, which then needs space on flash, and its copy stays on flash. A promotion pays if the
//! object is used again before memory evicts it, which a second use within such a time predicts. So by default the
//! window for a second hit is measured in evicted bytes, and is as long as memory keeps objects. Operations that need
//! more than a value, its key and flags always promote.

use ebbtide_flash::{FlashHash, RecentKeys};
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// A turn of the memory is over when as many bytes were evicted as it has. The bytes of an item are counted in parts of
/// a turn, of which there are 2 to the power of this.
const TURN_BITS: u32 = 36;
/// Maximum bytes that an item counts for, so that its part fits 64 bits.
const MAX_ITEM_BYTES: u64 = 1 << 27;
/// The window counts larger parts, 2 to the power of this to a turn: a hit on flash counts as the first of two for half
/// a turn to a whole one. Twice as long costs hits, half as long reads.
const STEP_BITS: u32 = 6;
const WINDOW_STEPS: u32 = 1 << STEP_BITS;
/// How long it does as in memcached.
const WINDOW_SECONDS: u32 = 60;
/// Part of flash's other memory that the filter of recent hits takes, in addition.
const FILTER_SHARE: u64 = 64;

/// The flash hits that are promoted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlashPromotion {
    /// Hits of a key that was hit on flash before, since memory evicted as much as it has, or half of that; and all
    /// hits while memory has evicted nothing. The window is shorter where more keys are hit than a 64th of the memory
    /// of flash has space for. The default: fewer misses and fewer bytes written than with `Always`, for some more
    /// reads.
    #[default]
    Auto,
    /// All: the next get of the key costs no read.
    Always,
    /// Hits of a key that was hit on flash in the minute before: half a minute is remembered at least, or less where
    /// more keys are hit than a 64th of the memory of flash has space for.
    SecondHit,
    /// None.
    Never,
    /// Promotes one in this number of the hits that `SecondHit` would promote, starting with the first, whatever their
    /// keys: as memcached's `ext_recache_rate`.
    OneIn(NonZeroU32),
}

/// A text that names no promotion policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{part:?} is no promotion from flash: write auto, always, second-hit, never, or one-in:N with N from 1 to 4294967295"
)]
pub struct NotAPromotion {
    part: String,
}

impl FromStr for FlashPromotion {
    type Err = NotAPromotion;

    /// `auto`, `always`, `second-hit`, `never`, `one-in:2000`.
    fn from_str(text: &str) -> Result<Self, NotAPromotion> {
        let refuse = || NotAPromotion { part: text.to_owned() };
        match text {
            "auto" => Ok(Self::Auto),
            "always" => Ok(Self::Always),
            "second-hit" => Ok(Self::SecondHit),
            "never" => Ok(Self::Never),
            _ => text.strip_prefix("one-in:").and_then(|n| n.parse().ok()).map(Self::OneIn).ok_or_else(refuse),
        }
    }
}

/// Treatment of a flash hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Promote,
    Serve,
}

/// The policy of a cache, which may be switched while it runs: the N of `OneIn`, or a number of its own.
pub(crate) struct PromotionSetting(AtomicU64);

/// The hits that the pool's policy has seen. Each policy uses the same filter, so that a switch needs no memory.
pub(crate) struct Promotions {
    recent: RecentKeys,
    memory_bytes: AtomicU64,
    /// Turns of the memory since the start, in parts of one.
    turns: AtomicU64,
    /// Of the last `OneIn`: its N in the upper half, and the hits since the last that it promoted in the lower half.
    one_in: AtomicU64,
}

/// Bytes of the filters that are part of this much memory of flash.
pub(crate) fn filters_within(flash_memory_bytes: u64) -> u64 {
    flash_memory_bytes / (FILTER_SHARE + 1)
}

/// Bytes of the filters that come on top of this much memory of flash.
pub(crate) fn filters_beside(others_bytes: u64) -> u64 {
    others_bytes / FILTER_SHARE
}

impl FlashPromotion {
    /// The policy that memcached's `ext_recache_rate` of this value stands for: 0 is none.
    pub fn from_recache_rate(rate: u32) -> Self {
        NonZeroU32::new(rate).map_or(Self::Never, Self::OneIn)
    }
}

impl PromotionSetting {
    const WORDS: [FlashPromotion; 4] =
        [FlashPromotion::Auto, FlashPromotion::Always, FlashPromotion::SecondHit, FlashPromotion::Never];
    /// The first number that stands for one of these words.
    const FIRST_WORD: u64 = 1 << 32;

    pub fn new(policy: FlashPromotion) -> Self {
        let setting = Self(AtomicU64::new(0));
        setting.set(policy);
        setting
    }

    pub fn set(&self, policy: FlashPromotion) {
        let number = match policy {
            FlashPromotion::OneIn(n) => n.get().into(),
            word => {
                let index = Self::WORDS.iter().position(|known| *known == word).expect("the others are words");
                Self::FIRST_WORD + index as u64
            }
        };
        self.0.store(number, Ordering::Relaxed);
    }

    pub fn get(&self) -> FlashPromotion {
        let number = self.0.load(Ordering::Relaxed);
        match number.checked_sub(Self::FIRST_WORD) {
            Some(index) => Self::WORDS[index as usize],
            None => FlashPromotion::from_recache_rate(number as u32),
        }
    }
}

impl Promotions {
    /// Promotions over a memory of `memory_bytes`, and flash with `flash_memory_bytes` of its own.
    pub fn new(memory_bytes: u64, flash_memory_bytes: u64) -> Self {
        Self {
            recent: RecentKeys::new(filters_within(flash_memory_bytes) as usize),
            memory_bytes: AtomicU64::new(memory_bytes),
            turns: AtomicU64::new(0),
            one_in: AtomicU64::new(0),
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        self.recent.memory_bytes() as u64
    }

    /// Sets the bytes of memory.
    pub fn note_memory(&self, bytes: u64) {
        self.memory_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Memory has evicted something.
    pub fn note_evicted(&self, bytes: u64) {
        let memory_bytes = self.memory_bytes.load(Ordering::Relaxed).max(1);
        self.turns.fetch_add((bytes.min(MAX_ITEM_BYTES) << TURN_BITS).div_ceil(memory_bytes), Ordering::Relaxed);
    }

    /// Whether the policy promotes a hit. Counts the hit. `now` is in seconds.
    pub fn choose(&self, policy: FlashPromotion, key: FlashHash, now: u32) -> Choice {
        let is_second = || self.recent.seen(key, now, WINDOW_SECONDS);
        let promotes = match policy {
            FlashPromotion::Auto => match self.turns.load(Ordering::Relaxed) {
                0 => true,
                turns => self.recent.seen(key, (turns >> (TURN_BITS - STEP_BITS)) as u32, WINDOW_STEPS),
            },
            FlashPromotion::Always => true,
            FlashPromotion::Never => false,
            FlashPromotion::SecondHit => is_second(),
            FlashPromotion::OneIn(n) => is_second() && self.is_turn(n.get()),
        };
        if promotes { Choice::Promote } else { Choice::Serve }
    }

    /// Whether a hit is the first of `n`. Another number than before starts with its first hit.
    fn is_turn(&self, n: u32) -> bool {
        let hits = |state: u64| if (state >> 32) as u32 == n { state as u32 } else { 0 };
        let next = |state| Some(u64::from(n) << 32 | u64::from((hits(state) + 1) % n));
        let before = self.one_in.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        before.is_ok_and(|before| hits(before) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTO: FlashPromotion = FlashPromotion::Auto;

    fn promotions() -> Promotions {
        Promotions::new(64 << 20, 1 << 20)
    }

    /// Indexes of the hits that are promoted. A hit is a key and its time.
    fn promoted(text: &str, hits: &[(u64, u32)]) -> Vec<usize> {
        let (promotions, policy) = (promotions(), text.parse().unwrap());
        let comes =
            |(key, now): (u64, u32)| promotions.choose(policy, FlashHash(key << 32 | key), now) == Choice::Promote;
        (0..hits.len()).filter(|&hit| comes(hits[hit])).collect()
    }

    #[test]
    fn each_policy_brings_its_hits_back() {
        let hits = [(1, 100), (2, 100), (1, 101), (1, 102), (2, 129), (3, 130), (3, 131), (2, 400), (2, 401)];
        assert_eq!(promoted("always", &hits), (0..9).collect::<Vec<_>>());
        assert_eq!(promoted("never", &hits), []);
        assert_eq!(promoted("second-hit", &hits), [2, 3, 4, 6, 8]);
        assert_eq!(promoted("one-in:1", &hits), [2, 3, 4, 6, 8]);
        assert_eq!(promoted("one-in:2", &hits), [2, 4, 8]);
        assert_eq!(promoted("one-in:4000000000", &hits), [2]);
    }

    #[test]
    fn a_second_hit_within_one_turnover_promotes() {
        for (evicted_mib, comes_back) in [(0, true), (31, true), (32, true), (63, true), (64, false), (1000, false)] {
            let promotions = promotions();
            let promotes = |key: u64| promotions.choose(AUTO, FlashHash(key << 32 | key), 7) == Choice::Promote;
            assert!(promotes(1), "memory has evicted nothing");
            promotions.note_evicted(64 << 20);
            assert!(!promotes(1));
            promotions.note_evicted(evicted_mib << 20);
            assert_eq!(promotes(1), comes_back, "{evicted_mib} of 64");
            assert!(promotes(1), "that was one more");
        }
        let grows = promotions();
        grows.note_evicted(64 << 20);
        assert_eq!(grows.choose(AUTO, FlashHash(1), 0), Choice::Serve);
        grows.note_memory(640 << 20);
        grows.note_evicted(100 << 20);
        assert_eq!(grows.choose(AUTO, FlashHash(1), 0), Choice::Promote, "a sixth of what it has now");
    }

    #[test]
    fn turns_keep_their_length_after_many_turns() {
        for turns in [1 << 26, 1 << 28] {
            let promotions = promotions();
            let promotes = |key: u64| promotions.choose(AUTO, FlashHash(key << 32 | key), 7) == Choice::Promote;
            promotions.turns.store((turns - 3_u64) << TURN_BITS, Ordering::Relaxed);
            assert!(!promotes(1));
            (0..6).for_each(|_| promotions.note_evicted(64 << 20));
            assert!(!promotes(1) && promotes(1), "{turns}");
            (0..1000).for_each(|_| promotions.note_evicted(64 << 20));
            assert!(!promotes(1), "{turns}");
        }
    }

    #[test]
    fn a_switched_policy_begins_its_window_anew() {
        let promotions = promotions();
        let hit = |policy, now| promotions.choose(policy, FlashHash(1), now) == Choice::Promote;
        let one_in = FlashPromotion::OneIn(NonZeroU32::new(1).unwrap());
        // Many turns are a number far above that of the seconds, and below it after the next switch.
        promotions.turns.store(1_000_000 << TURN_BITS, Ordering::Relaxed);
        assert!(!hit(AUTO, 7) && hit(AUTO, 7));
        assert!(!hit(one_in, 7) && hit(one_in, 7));
        assert!(!hit(one_in, 100) && hit(one_in, 100), "a minute is over");
        assert!(!hit(AUTO, 100) && hit(AUTO, 100));
        (0..2).for_each(|_| promotions.note_evicted(64 << 20));
        assert!(!hit(AUTO, 100), "memory has turned over");
    }

    #[test]
    fn another_rate_starts_with_its_first_hit() {
        let promotions = promotions();
        let hit = |n| {
            let policy = FlashPromotion::OneIn(NonZeroU32::new(n).unwrap());
            promotions.choose(policy, FlashHash(1), 7) == Choice::Promote
        };
        assert!(!hit(3), "it was not hit before");
        assert_eq!([3, 3, 3, 3, 3].map(hit), [true, false, false, true, false]);
        assert_eq!([2, 2, 2].map(hit), [true, false, true]);
        assert_eq!([u32::MAX, u32::MAX, 1, 1].map(hit), [true, false, true, true]);
    }

    #[test]
    fn a_setting_keeps_each_policy() {
        let setting = PromotionSetting::new(FlashPromotion::default());
        for text in ["auto", "always", "second-hit", "never", "one-in:1", "one-in:4294967295"] {
            let policy = text.parse().unwrap();
            setting.set(policy);
            assert_eq!(setting.get(), policy);
        }
        assert_eq!(FlashPromotion::from_recache_rate(0), FlashPromotion::Never);
    }

    #[test]
    fn state_takes_what_was_said() {
        let max = filters_within(1 << 20);
        assert!((max / 2..=max).contains(&promotions().memory_bytes()));
    }

    #[test]
    fn each_policy_has_its_words() {
        assert_eq!("auto".parse(), Ok(FlashPromotion::default()));
        assert_eq!("one-in:2000".parse(), Ok(FlashPromotion::OneIn(NonZeroU32::new(2000).unwrap())));
        for text in
            ["", "Always", "second", "never:1", "one-in", "one-in:", "one-in:0", "one-in:x", "one-in:4294967296"]
        {
            let refusal = text.parse::<FlashPromotion>().unwrap_err().to_string();
            assert!(
                refusal.contains(&format!("{text:?} is no promotion")) && refusal.contains("one-in:N"),
                "{refusal}"
            );
        }
    }
}
