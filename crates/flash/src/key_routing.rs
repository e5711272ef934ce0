//! Which rules divide keys among pools, so that a start finds objects in pools that their keys have left.
//!
//! ```text
//! start or reload with other rules ---> unfinished ---the caller has deleted them---> finished
//!                                         |
//!                                         +--- yet other rules, or a damaged number ---> unknown
//! ```
//! Such an object is not found, as its key is looked up in another pool, where newer values may be. It would be found
//! again after a change back. So objects of an unfinished change are used only by a start with the same rules, and
//! those of an unknown one never.

use twox_hash::XxHash3_64;

/// The number of the rules by which the caller divides keys among pools, and whether their change is finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyRouting(u64);

impl KeyRouting {
    const UNFINISHED: u64 = 1 << 63;
    /// Unfinished, of no rules.
    pub const UNKNOWN: Self = Self(u64::MAX);

    /// Of rules in any form that is equal for equal rules; empty for none.
    pub fn of(rules: &[u8]) -> Self {
        if rules.is_empty() { Self::default() } else { Self(XxHash3_64::oneshot(rules) & !Self::UNFINISHED) }
    }

    /// As `to_word` returned it.
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub fn to_word(self) -> u64 {
        self.0
    }

    /// Whether objects of earlier rules may be in pools that their keys have left.
    pub fn is_unfinished(self) -> bool {
        self.0 & Self::UNFINISHED != 0
    }

    pub fn finished(self) -> Self {
        Self(self.0 & !Self::UNFINISHED)
    }

    pub fn unfinished(self) -> Self {
        Self(self.0 | Self::UNFINISHED)
    }

    /// The key routing of a start with these rules over what a run with the rules of `before` left.
    ///
    /// # Errors
    /// The reason why it may not use what it finds.
    pub fn after(self, before: Self) -> Result<Self, String> {
        match (before.finished() == self, before.is_unfinished()) {
            _ if before == Self::UNKNOWN => {
                Err("it is not known by which prefixes the last run has divided keys among pools".to_owned())
            }
            (true, _) => Ok(before),
            (false, false) => Ok(self.unfinished()),
            (false, true) => Err("the last run ended before it had deleted the entries that changed prefixes gave to \
                                  other pools, and the prefixes have changed again"
                .to_owned()),
        }
    }

    /// The key routing of a run that changes the rules of `before` to these.
    pub fn started_after(self, before: Self) -> Self {
        // After two unfinished changes the caller deletes by the second rules alone: what it finds may be from before
        // the first ones.
        self.after(before).map_or(Self::UNKNOWN, Self::unfinished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_change_is_continued_alone() {
        let (none, one, other) = (KeyRouting::of(b""), KeyRouting::of(b"one"), KeyRouting::of(b"other"));
        assert!(none.to_word() == 0 && one != other && one != none);
        assert_eq!(one.after(one), Ok(one));
        for (now, before) in [(one, none), (none, one), (other, one)] {
            let changing = now.after(before).unwrap();
            assert!(changing.is_unfinished() && changing.finished() == now);
            assert_eq!(KeyRouting::from_word(changing.to_word()), changing);
            assert_eq!(now.after(changing), Ok(changing), "it goes on");
            assert!(before.after(changing).is_err());
            assert_eq!(now.after(changing.finished()), Ok(now));
        }
    }

    #[test]
    fn a_change_over_an_unfinished_one_is_unknown() {
        let (none, one, other) = (KeyRouting::of(b""), KeyRouting::of(b"one"), KeyRouting::of(b"other"));
        assert_eq!(one.started_after(none), one.unfinished());
        assert_eq!(one.started_after(one), one.unfinished());
        assert_eq!(one.started_after(one.unfinished()), one.unfinished());
        let unknown = other.started_after(one.unfinished());
        assert!(unknown == KeyRouting::UNKNOWN && unknown.is_unfinished());
        for rules in [none, one, other] {
            assert!(rules.after(unknown).is_err());
            assert_eq!(rules.started_after(unknown), unknown);
        }
    }
}
