//! Shares: how much of one memory each pool gets.
//!
//! A pool asks for at least `min`, at most `max`, and between the two for memory in proportion to its weight. The
//! division is that of water into vessels: there is one level such that each pool has `weight * level` bytes, cut to
//! its bounds, and all pools together have the whole memory.
//!
//! ```text
//! total 12   a: weight 1, min 4       -> 4    held up by its min
//!            b: weight 1              -> 2    level 2
//!            c: weight 5, max 6       -> 6    held down by its max
//! ```
//! All numbers are integers. The bytes add up to `min(total, sum of max)` exactly: bytes left over by rounding go to
//! the pools with the largest remainders, one byte each.

use crate::hit_ratio::HitRatio;
use std::collections::HashSet;
use std::fmt::Write;

/// Pools that one memory can be divided among.
pub const POOLS_MAX: usize = 4096;
/// Characters of the longest name of a pool.
pub const NAME_CHARACTERS_MAX: usize = 64;
/// Pools that an error lists one by one.
const LISTED_POOLS: usize = 16;

/// Bounds and weight of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// 1 to 64 printable characters without blanks.
    pub name: String,
    /// Bytes that the pool has in any case.
    pub min_bytes: u64,
    /// Bytes that the pool never exceeds. `u64::MAX` is no bound.
    pub max_bytes: u64,
    /// Its part of the memory between the bounds of all pools, relative to the other weights. A pool of weight 0 gets
    /// its minimum, unless all pools that can take more have weight 0: these share equally.
    pub weight: u32,
    /// The worth of a hit of the pool to a controller, relative to hits of other pools. `divide` ignores it.
    pub hit_value: u32,
    /// Hit ratio for which a controller gives the pool memory before others share the rest. `divide` ignores it.
    pub target_hit_ratio: Option<HitRatio>,
    /// Smallest budget with which the pool works, whatever `min_bytes` is.
    pub floor_bytes: u64,
}

impl Share {
    /// A share of weight 1 without bounds, whose hits count once.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            min_bytes: 0,
            max_bytes: u64::MAX,
            weight: 1,
            hit_value: 1,
            target_hit_ratio: None,
            floor_bytes: 0,
        }
    }

    fn lower_bytes(&self) -> u64 {
        self.min_bytes.max(self.floor_bytes)
    }
}

/// Why a memory cannot be divided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SharesError {
    #[error("{count} pools: from 1 to {POOLS_MAX} can share a memory")]
    Count { count: usize },
    #[error(
        "the pool name `{name}` {reason}; 1 to {NAME_CHARACTERS_MAX} printable characters without blanks are needed"
    )]
    Name { name: String, reason: &'static str },
    #[error("two pools have the name `{name}`")]
    Duplicate { name: String },
    #[error("pool {name}: min, {min_bytes} bytes, is larger than max, {max_bytes} bytes")]
    MinAboveMax { name: String, min_bytes: u64, max_bytes: u64 },
    #[error("pool {name}: max, {max_bytes} bytes, is smaller than the {floor_bytes} bytes that the pool needs to work")]
    FloorAboveMax { name: String, floor_bytes: u64, max_bytes: u64 },
    #[error(
        "the pools need at least {needed_bytes} bytes and there are {total_bytes}: {list}; give more memory, or lower min"
    )]
    TooLittle {
        total_bytes: u64,
        /// Larger than any memory where minimums of absurd size are given.
        needed_bytes: u128,
        /// Lower bound of each pool.
        list: String,
    },
}

/// Refuses a name that is not 1 to 64 printable characters without blanks.
pub fn check_name(name: &str) -> Result<(), SharesError> {
    let is_blank = |c: char| c.is_whitespace();
    // Characters without width would make two names look alike.
    let is_hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{AD}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}')
    };
    let reason = if name.is_empty() {
        "is empty"
    } else if name.chars().any(is_hidden) {
        "has a character that cannot be printed"
    } else if name.chars().any(is_blank) {
        "has a blank"
    } else if name.chars().count() > NAME_CHARACTERS_MAX {
        "is too long"
    } else {
        return Ok(());
    };
    let shown = name.chars().take(NAME_CHARACTERS_MAX).flat_map(char::escape_debug).collect();
    Err(SharesError::Name { name: shown, reason })
}

/// Divides `total_bytes`: the bytes of each pool, in the order of `shares`. The sum is `min(total_bytes, sum of max)`.
pub fn divide(total_bytes: u64, shares: &[Share]) -> Result<Vec<u64>, SharesError> {
    check(total_bytes, shares)?;
    let mut bytes: Vec<Option<u64>> = vec![None; shares.len()];
    // Ends: each round gives at least one pool its bytes for good, or is the last.
    while let Some(level) = Level::of_open(total_bytes, shares, &bytes) {
        // Bytes that the minimums add and the maximums remove at this level. If more are added, the final level is
        // lower, and a pool that has its minimum here has it there, too. If more are removed, the same holds for
        // maximums.
        let added: u128 = open(shares, &bytes).map(|(share, _)| level.missing(share)).sum();
        let removed: u128 = open(shares, &bytes).map(|(share, _)| level.excess(share)).sum();
        let bound = |share: &Share| {
            if added >= removed && level.missing(share) > 0 {
                Some(share.lower_bytes())
            } else if removed >= added && level.excess(share) > 0 {
                Some(share.max_bytes)
            } else {
                None
            }
        };
        let bounded: Vec<_> = open(shares, &bytes).filter_map(|(share, at)| Some((at, bound(share)?))).collect();
        if bounded.is_empty() {
            level.fill(shares, &mut bytes);
            break;
        }
        bounded.into_iter().for_each(|(at, bound)| bytes[at] = Some(bound));
    }
    Ok(bytes.into_iter().map(|bytes| bytes.expect("every pool has its bytes")).collect())
}

fn check(total_bytes: u64, shares: &[Share]) -> Result<(), SharesError> {
    if shares.is_empty() || shares.len() > POOLS_MAX {
        return Err(SharesError::Count { count: shares.len() });
    }
    let mut names = HashSet::new();
    for share in shares {
        let Share { name, min_bytes, max_bytes, floor_bytes, .. } = share;
        let (name, min_bytes, max_bytes, floor_bytes) = (name.clone(), *min_bytes, *max_bytes, *floor_bytes);
        check_name(&name)?;
        if !names.insert(&share.name) {
            return Err(SharesError::Duplicate { name });
        }
        if min_bytes > max_bytes {
            return Err(SharesError::MinAboveMax { name, min_bytes, max_bytes });
        }
        if floor_bytes > max_bytes {
            return Err(SharesError::FloorAboveMax { name, floor_bytes, max_bytes });
        }
    }
    let needed_bytes = shares.iter().map(|share| u128::from(share.lower_bytes())).sum();
    if needed_bytes > total_bytes.into() {
        return Err(SharesError::TooLittle { total_bytes, needed_bytes, list: list(shares) });
    }
    Ok(())
}

/// Lower bounds of the pools, the largest first.
fn list(shares: &[Share]) -> String {
    let mut needs: Vec<_> = shares.iter().map(|share| (share.lower_bytes(), share.name.as_str())).collect();
    needs.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let named: Vec<_> = needs.iter().take(LISTED_POOLS).map(|(bytes, name)| format!("{name} {bytes}")).collect();
    let mut list = named.join(", ");
    if let Some(others) = needs.get(LISTED_POOLS..).filter(|others| !others.is_empty()) {
        let bytes: u128 = others.iter().map(|(bytes, _)| u128::from(*bytes)).sum();
        let _ = write!(list, ", {} others {bytes}", others.len());
    }
    list
}

/// The pools that have no final bytes yet.
fn open<'s>(shares: &'s [Share], bytes: &'s [Option<u64>]) -> impl Iterator<Item = (&'s Share, usize)> {
    shares.iter().zip(bytes).enumerate().filter(|(_, (_, bytes))| bytes.is_none()).map(|(at, (share, _))| (share, at))
}

/// Bytes for each unit of weight: what is left, over the weights of the pools that are left. Products are exact: a
/// number of bytes has 64 bits, a sum of weights 44, and 4096 such products are added.
struct Level {
    left_bytes: u128,
    weights: u128,
    /// All weights are 0: each counts as 1.
    is_equal: bool,
}

impl Level {
    /// `None` if every pool has its bytes.
    fn of_open(total_bytes: u64, shares: &[Share], bytes: &[Option<u64>]) -> Option<Self> {
        let taken: u128 = bytes.iter().flatten().map(|bytes| u128::from(*bytes)).sum();
        let weights: u128 = open(shares, bytes).map(|(share, _)| u128::from(share.weight)).sum();
        let count = open(shares, bytes).count() as u128;
        let left_bytes = u128::from(total_bytes) - taken;
        let is_equal = weights == 0;
        (count > 0).then_some(Self { left_bytes, weights: if is_equal { count } else { weights }, is_equal })
    }

    /// Bytes of a pool at this level, times `weights`.
    fn scaled(&self, share: &Share) -> u128 {
        self.left_bytes * if self.is_equal { 1 } else { u128::from(share.weight) }
    }

    /// Bytes that a pool is short of its lower bound, times `weights`.
    fn missing(&self, share: &Share) -> u128 {
        (u128::from(share.lower_bytes()) * self.weights).saturating_sub(self.scaled(share))
    }

    /// Bytes that a pool exceeds its upper bound by, times `weights`.
    fn excess(&self, share: &Share) -> u128 {
        self.scaled(share).saturating_sub(u128::from(share.max_bytes) * self.weights)
    }

    /// Gives all open pools, whose bounds hold at this level, their bytes. The bytes that rounding leaves over are
    /// fewer than the pools with a remainder, and such a pool has less than its max.
    fn fill(&self, shares: &[Share], bytes: &mut [Option<u64>]) {
        let part = |share: &Share| (self.scaled(share) / self.weights, self.scaled(share) % self.weights);
        let mut parts: Vec<_> = open(shares, bytes).map(|(share, at)| (part(share), at)).collect();
        let rounded: u128 = parts.iter().map(|((bytes, _), _)| bytes).sum();
        parts.sort_by_key(|((_, remainder), at)| (std::cmp::Reverse(*remainder), *at));
        let over = usize::try_from(self.left_bytes - rounded).expect("less than one byte for each pool");
        for (place, ((part, _), at)) in parts.into_iter().enumerate() {
            bytes[at] = Some(u64::try_from(part).expect("a part of the total") + u64::from(place < over));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(name: &str, weight: u32, min_bytes: u64, max_bytes: u64) -> Share {
        Share { min_bytes, max_bytes, weight, ..Share::named(name) }
    }

    /// The levels that give each pool its bytes, to a byte: the common part of all ranges. `None` if there is no such
    /// level, and so no division by the definition.
    fn level_of(bytes: &[u64], shares: &[Share]) -> Option<(f64, f64)> {
        let mut range = (0f64, f64::INFINITY);
        for (bytes, share) in bytes.iter().zip(shares) {
            let weight = f64::from(share.weight);
            let (low, high) = ((*bytes as f64 - 1.0) / weight, (*bytes as f64 + 1.0) / weight);
            if *bytes > share.lower_bytes() {
                range.0 = range.0.max(low);
            }
            if *bytes < share.max_bytes {
                range.1 = range.1.min(high);
            }
        }
        (range.0 <= range.1).then_some(range)
    }

    #[test]
    fn memory_is_divided_by_weight_within_bounds() {
        let shares = [share("a", 1, 4, u64::MAX), share("b", 1, 0, u64::MAX), share("c", 5, 0, 6)];
        assert_eq!(divide(12, &shares), Ok(vec![4, 2, 6]));
        assert_eq!(divide(1 << 40, &[Share::named("whole")]), Ok(vec![1 << 40]));
        assert_eq!(divide(10, &[share("a", 1, 0, 3), share("b", 1, 0, 4)]), Ok(vec![3, 4]), "all are at their max");
        assert_eq!(divide(10, &[share("a", 0, 1, 9), share("b", 1, 0, 7)]), Ok(vec![3, 7]), "weight 0 takes the rest");
        assert_eq!(divide(7, &[share("a", 0, 0, 9), share("b", 0, 0, 9)]), Ok(vec![4, 3]));
        let floor = Share { floor_bytes: 8, ..share("small", 1, 2, u64::MAX) };
        assert_eq!(divide(10, &[floor, Share::named("b")]), Ok(vec![8, 2]), "a floor is a min");
    }

    #[test]
    fn random_divisions_are_exact_and_have_one_level() {
        let mut seed = 1u64;
        let mut random = |limit: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 20) % limit
        };
        let mut refused = 0;
        for round in 0..20_000 {
            // Small numbers make rounding matter, large ones the range of the arithmetic.
            let unit = if round % 2 == 0 { 1 } else { 1 << 40 };
            let count = 1 + random(12) as usize;
            let shares: Vec<_> = (0..count)
                .map(|number| {
                    let min = random(20) * unit;
                    let max = if random(3) == 0 { u64::MAX } else { min + random(40) * unit + random(unit) };
                    let weight = if random(8) == 0 { u32::MAX } else { 1 + random(9) as u32 };
                    share(&number.to_string(), weight, min, max)
                })
                .collect();
            let total = random(200) * unit + random(unit);
            let bytes = match divide(total, &shares) {
                Ok(bytes) => bytes,
                Err(SharesError::TooLittle { needed_bytes, .. }) if needed_bytes > total.into() => {
                    refused += 1;
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            let maximum: u128 = shares.iter().map(|share| u128::from(share.max_bytes)).sum();
            let sum: u128 = bytes.iter().map(|bytes| u128::from(*bytes)).sum();
            assert_eq!(sum, maximum.min(total.into()), "{total} for {shares:?}");
            let is_within = |(bytes, share): (&u64, &Share)| (share.min_bytes..=share.max_bytes).contains(bytes);
            assert!(bytes.iter().zip(&shares).all(is_within), "{bytes:?} for {shares:?}");
            assert!(level_of(&bytes, &shares).is_some(), "{total}: {bytes:?} for {shares:?}");
        }
        assert!((1000..10_000).contains(&refused), "{refused} refused");
    }

    #[test]
    fn impossible_shares_are_refused_with_all_numbers() {
        let message = |total, shares: &[Share]| divide(total, shares).unwrap_err().to_string();
        let too_much = message(100, &[share("a", 1, 60, 90), Share { floor_bytes: 50, ..Share::named("b") }]);
        assert!(too_much.contains("at least 110 bytes and there are 100: a 60, b 50;"), "{too_much}");
        let huge: Vec<_> = (0..20).map(|number| share(&number.to_string(), 1, u64::MAX, u64::MAX)).collect();
        let sum = 4 * u128::from(u64::MAX);
        assert!(message(1, &huge).contains(&format!(", 4 others {sum};")));
        assert!(message(9, &[share("a", 1, 5, 4)]).contains("pool a: min, 5 bytes, is larger than max, 4 bytes"));
        let floor = Share { floor_bytes: 5, ..share("a", 1, 0, 4) };
        assert!(message(9, &[floor]).contains("max, 4 bytes, is smaller than the 5 bytes"));
        assert!(message(9, &[Share::named("a"), Share::named("a")]).contains("two pools have the name `a`"));
        let many: Vec<_> = (0..10_000).map(|number| Share::named(number.to_string())).collect();
        assert!(message(9, &many).starts_with("10000 pools"));
        assert!(message(9, &[]).starts_with("0 pools"));
    }

    #[test]
    fn names_are_printable_and_without_blanks() {
        for name in ["a", "users/eu-1:sessions", "größe", &"x".repeat(64)] {
            assert_eq!(check_name(name), Ok(()));
        }
        for (name, reason) in [
            ("", "is empty"),
            ("a b", "has a blank"),
            ("a\u{A0}b", "has a blank"),
            ("a\tb", "cannot be printed"),
            ("a\u{200B}", "cannot be printed"),
            (&"x".repeat(65), "is too long"),
        ] {
            let message = check_name(name).unwrap_err().to_string();
            assert!(message.contains(reason) && !message.contains(['\t', '\u{200B}']), "{message}");
        }
    }
}
