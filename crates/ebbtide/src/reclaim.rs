//! The words that say how space on flash is taken back, for command lines and files of options.

use ebbtide_flash::large::{Reclaim, Reinsertion};
use std::str::FromStr;

/// Which objects are written again when the region of flash that they lie in is reclaimed, as it can be read from a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashReinsertion(pub Reinsertion);

/// Which region of flash is reclaimed first, as it can be read from a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashReclaim(pub Reclaim);

/// Why a text does not say how space on flash is taken back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAReclaim {
    #[error(
        "{part:?} is no reinsertion on flash: write auto (read since it was written, if such copies are read again more than what is new), none, hits:1 to hits:3 (read so often), or percent:0 to percent:100"
    )]
    Reinsertion { part: String },
    #[error("{part:?} is no order in which flash is reclaimed: write lru or fifo")]
    Order { part: String },
}

impl FromStr for FlashReinsertion {
    type Err = NotAReclaim;

    /// `auto`, `none`, `hits:2`, `percent:30`.
    fn from_str(text: &str) -> Result<Self, NotAReclaim> {
        let count = |count: &str, most| count.parse().ok().filter(|count| *count <= most);
        let reinsertion = match text.split_once(':') {
            None if text == "auto" => Some(Reinsertion::Auto),
            None if text == "none" => Some(Reinsertion::Never),
            Some(("hits", hits)) => count(hits, HITS_MOST).filter(|hits| *hits > 0).map(Reinsertion::Hits),
            Some(("percent", percent)) => count(percent, 100).map(Reinsertion::Percent),
            _ => None,
        };
        reinsertion.map(Self).ok_or_else(|| NotAReclaim::Reinsertion { part: text.to_owned() })
    }
}

impl FromStr for FlashReclaim {
    type Err = NotAReclaim;

    /// `lru`, `fifo`.
    fn from_str(text: &str) -> Result<Self, NotAReclaim> {
        match text {
            "lru" => Ok(Self(Reclaim::Lru)),
            "fifo" => Ok(Self(Reclaim::Fifo)),
            _ => Err(NotAReclaim::Order { part: text.to_owned() }),
        }
    }
}

/// As far as the index of flash counts.
const HITS_MOST: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_choice_has_its_words() {
        for (text, reinsertion) in [
            ("auto", Reinsertion::Auto),
            ("none", Reinsertion::Never),
            ("hits:1", Reinsertion::Hits(1)),
            ("hits:3", Reinsertion::Hits(3)),
            ("percent:0", Reinsertion::Percent(0)),
            ("percent:100", Reinsertion::Percent(100)),
        ] {
            assert_eq!(text.parse(), Ok(FlashReinsertion(reinsertion)), "{text}");
        }
        for text in ["", "non", "none:1", "hits", "hits:", "hits:0", "hits:4", "hits:x", "percent:101", "percent:-1"] {
            let refusal = text.parse::<FlashReinsertion>().unwrap_err().to_string();
            assert!(
                refusal.starts_with(&format!("{text:?} is no reinsertion")) && refusal.contains("hits:3"),
                "{refusal}"
            );
        }
        assert_eq!("lru".parse(), Ok(FlashReclaim(Reclaim::Lru)));
        assert_eq!("fifo".parse(), Ok(FlashReclaim(Reclaim::Fifo)));
        let refusal = "LRU".parse::<FlashReclaim>().unwrap_err().to_string();
        assert!(refusal.contains("\"LRU\"") && refusal.contains("lru or fifo"), "{refusal}");
    }
}
