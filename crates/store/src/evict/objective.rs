//! The objective of evictions.
//!
//! | objective | value of a use | consequence |
//! |---|---|---|
//! | `objects` | one hit | memory goes to the uses per byte: a small item needs fewer uses than a large one |
//! | `bytes` | the bytes of the item | the uses per byte of memory times the bytes are the uses: size does not count |
//!
//! A cache in front of a slow network or an expensive origin saves bytes; one in front of a database saves queries.

use super::scores::use_per_byte;
use std::str::FromStr;

/// The objective of an eviction: hits, or the bytes that hits serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    /// The object hit ratio.
    #[default]
    Objects,
    /// The byte hit ratio.
    Bytes,
}

/// The size that all items have for `Objective::Bytes`: any one gives an order by uses.
const UNIT_BYTES: u64 = 64;

impl Objective {
    pub const ALL: [Self; 2] = [Self::Objects, Self::Bytes];

    /// The name in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Objects => "objects",
            Self::Bytes => "bytes",
        }
    }

    /// The score of an item with `frequency` uses and `bytes` bytes.
    pub(super) fn score(self, frequency: u8, bytes: u64) -> u8 {
        match self {
            Self::Objects => use_per_byte(frequency, bytes),
            Self::Bytes => use_per_byte(frequency, UNIT_BYTES),
        }
    }
}

/// A name that no objective has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no objective {name:?}; choose one of {}", Objective::ALL.map(Objective::name).join(", "))]
pub struct UnknownObjective {
    name: String,
}

impl FromStr for Objective {
    type Err = UnknownObjective;

    fn from_str(name: &str) -> Result<Self, UnknownObjective> {
        let named = Self::ALL.into_iter().find(|objective| objective.name().eq_ignore_ascii_case(name));
        named.ok_or_else(|| UnknownObjective { name: name.into() })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_objectives() {
        for objective in Objective::ALL {
            assert_eq!(objective.name().parse(), Ok(objective));
        }
        assert!("cost".parse::<Objective>().unwrap_err().to_string().contains("bytes"));
    }

    #[test]
    fn sizes_count_for_objects_only() {
        assert!(Objective::Objects.score(1, 100) > Objective::Objects.score(2, 10_000));
        assert!(Objective::Bytes.score(1, 100) < Objective::Bytes.score(2, 10_000));
        assert!(Objective::Bytes.score(127, 1) < u8::MAX, "all uses are told apart");
    }
}
