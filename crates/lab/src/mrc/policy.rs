//! Names of policies: the engine's with its own name before them, the references bare.

use std::fmt;
use std::str::FromStr;

use ebbtide::Policy;

use crate::reference::Reference;

/// Whose curve it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CurvePolicy {
    Engine(Policy),
    Reference(Reference),
    /// LRU by stack distances in buckets.
    LruBuckets,
}

const ENGINE: &str = "ebbtide";
const LRU_BUCKETS: &str = "lru-buckets";

impl FromStr for CurvePolicy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if let Some(reference) = Reference::from_name(name) {
            return Ok(Self::Reference(reference));
        }
        let name = &name.to_ascii_lowercase();
        if name == LRU_BUCKETS {
            return Ok(Self::LruBuckets);
        }
        match name.strip_prefix(ENGINE) {
            Some("") => Ok(Self::Engine(Policy::default())),
            Some(rest) if rest.starts_with(':') => {
                rest[1..].parse().map(Self::Engine).map_err(|error: ebbtide::UnknownPolicy| error.to_string())
            }
            _ => {
                let names: Vec<_> = Reference::ALL.iter().map(|(name, _)| *name).chain([LRU_BUCKETS]).collect();
                Err(format!("choose {ENGINE}, {ENGINE}:NAME of an engine's policy, or one of {}", names.join(", ")))
            }
        }
    }
}

impl fmt::Display for CurvePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(policy) if *policy == Policy::default() => f.write_str(ENGINE),
            Self::Engine(policy) => write!(f, "{ENGINE}:{}", policy.name()),
            Self::Reference(reference) => f.write_str(reference.name()),
            Self::LruBuckets => f.write_str(LRU_BUCKETS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_names_are_references() {
        for name in ["lru", "lru-buckets", "arc", "ebbtide", "ebbtide:lru", "ebbtide:merge"] {
            assert_eq!(name.parse::<CurvePolicy>().unwrap().to_string(), name);
        }
        for (name, known) in [("LRU", "lru"), ("ARC", "arc"), ("Ebbtide:Merge", "ebbtide:merge")] {
            assert_eq!(name.parse::<CurvePolicy>(), known.parse());
        }
        assert_eq!("ebbtide:s3fifo".parse::<CurvePolicy>().unwrap().to_string(), "ebbtide");
        assert_ne!("lru".parse::<CurvePolicy>(), "ebbtide:lru".parse());
        for name in ["merge", "ebbtide:arc", "ebbtidelru", ""] {
            assert!(name.parse::<CurvePolicy>().is_err(), "{name}");
        }
        assert!("best".parse::<CurvePolicy>().unwrap_err().contains(LRU_BUCKETS));
    }
}
