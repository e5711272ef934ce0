//! Parsers of flash options, for command lines and configuration files: admission, reinsertion and reclaim order.

use crate::byte_size::ByteSize;
use ebbtide_flash::admission::{AdmissionOptions, AdmissionPolicy, WriteBudget};
use ebbtide_flash::large::{Reclaim, Reinsertion};
use std::str::FromStr;

/// Which values are written to flash, and when. They can be changed at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashLimits {
    /// Shorter values are never written to flash: an eviction loses them. 0 at first, or what `FlashOptions`
    /// say.
    pub min_value_bytes: u32,
    /// Values that expire sooner are never written to flash. 10 at first, or what `FlashOptions` say.
    pub min_ttl_seconds: u32,
    /// Values that nobody has read for this long are demoted before their memory is needed. With `None`, as at first,
    /// only evictions demote.
    pub max_idle_seconds: Option<u32>,
}

/// What is written to flash, as it can be read from a text.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlashAdmission(pub AdmissionOptions);

/// Why a text does not say what is written to flash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{part:?} is no admission to flash: write all, probability:0.5, reject-first:TIMES:KEYS or history:KEYS_PER_HOUR[:READS_PER_HOUR], \
     and behind it, if wanted, a budget as ,budget:10m (bytes a second) or ,budget:3dwpd (drive writes a day)"
)]
pub struct NotAnAdmission {
    part: String,
}

impl FromStr for FlashAdmission {
    type Err = NotAnAdmission;

    /// `all`, `probability:0.5`, `reject-first:1:2m`, `history:1m`, `history:1m:0.25`; each may be followed by
    /// `,budget:10m` or `,budget:3dwpd`. Numbers of keys are written as sizes are.
    fn from_str(text: &str) -> Result<Self, NotAnAdmission> {
        let (policy, budget) = match text.split_once(',') {
            Some((policy, budget)) => (policy, Some(budget)),
            None => (text, None),
        };
        let refuse = |part: &str| NotAnAdmission { part: part.to_owned() };
        Ok(Self(AdmissionOptions {
            policy: policy_of(policy).ok_or_else(|| refuse(policy))?,
            budget: budget.map(|text| budget_of(text).ok_or_else(|| refuse(text))).transpose()?,
            ..AdmissionOptions::default()
        }))
    }
}

fn policy_of(text: &str) -> Option<AdmissionPolicy> {
    let mut words = text.split(':');
    let policy = match words.next()? {
        "all" => AdmissionPolicy::All,
        "probability" => AdmissionPolicy::Probability(words.next()?.parse().ok()?),
        "reject-first" => {
            AdmissionPolicy::RejectFirst { times: words.next()?.parse().ok()?, keys: count_of(words.next()?)? }
        }
        "history" => AdmissionPolicy::History {
            keys_per_hour: count_of(words.next()?)?,
            min_reads: words.next().map_or(Some(MIN_READS), |reads| reads.parse().ok())?,
        },
        _ => return None,
    };
    words.next().is_none().then_some(policy)
}

fn budget_of(text: &str) -> Option<WriteBudget> {
    let amount = text.strip_prefix("budget:")?;
    match amount.strip_suffix("dwpd") {
        Some(writes) => Some(WriteBudget::DriveWritesPerDay(writes.parse().ok()?)),
        None => Some(WriteBudget::BytesPerSecond(amount.parse::<ByteSize>().ok()?.as_bytes())),
    }
}

fn count_of(text: &str) -> Option<usize> {
    usize::try_from(text.parse::<ByteSize>().ok()?.as_bytes()).ok()
}

/// An object is worth a write that is read from flash once in ten hours.
const MIN_READS: f64 = 0.1;

/// Which objects are written again when the region of flash that they lie in is reclaimed, as it can be read from a
/// text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashReinsertion(pub Reinsertion);

/// Which region of flash is reclaimed first, as it can be read from a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashReclaim(pub Reclaim);

/// Why a text does not say how space on flash is taken back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAReclaim {
    #[error(
        "{part:?} is no reinsertion on flash: write auto (objects that were read, while copies of them are read more than new objects) or none"
    )]
    Reinsertion { part: String },
    #[error("{part:?} is no order in which flash is reclaimed: write lru or fifo")]
    Order { part: String },
}

impl FromStr for FlashReinsertion {
    type Err = NotAReclaim;

    /// `auto`, `none`.
    fn from_str(text: &str) -> Result<Self, NotAReclaim> {
        match text {
            "auto" => Ok(Self(Reinsertion::Auto)),
            "none" => Ok(Self(Reinsertion::Never)),
            _ => Err(NotAReclaim::Reinsertion { part: text.to_owned() }),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_every_admission() {
        let history = |min_reads| AdmissionPolicy::History { keys_per_hour: 1 << 20, min_reads };
        for (text, policy, budget) in [
            ("all", AdmissionPolicy::All, None),
            ("probability:0.25", AdmissionPolicy::Probability(0.25), None),
            ("reject-first:2:5k", AdmissionPolicy::RejectFirst { times: 2, keys: 5120 }, None),
            ("history:1m", history(MIN_READS), None),
            ("history:1m:0.5,budget:10m", history(0.5), Some(WriteBudget::BytesPerSecond(10 << 20))),
            ("all,budget:1.5dwpd", AdmissionPolicy::All, Some(WriteBudget::DriveWritesPerDay(1.5))),
        ] {
            let FlashAdmission(options) = text.parse().unwrap();
            assert_eq!((options.policy, options.budget), (policy, budget), "{text}");
        }
        let texts = [
            "",
            "al",
            "all:1",
            "probability",
            "probability:x",
            "reject-first:1",
            "history",
            "all,",
            "all,10m",
            "all,budget:",
        ];
        for text in texts {
            let refusal = text.parse::<FlashAdmission>().unwrap_err().to_string();
            assert!(refusal.contains("is no admission to flash: write all"), "{refusal}");
        }
    }

    #[test]
    fn parses_every_reinsertion_and_order() {
        for (text, reinsertion) in [("auto", Reinsertion::Auto), ("none", Reinsertion::Never)] {
            assert_eq!(text.parse(), Ok(FlashReinsertion(reinsertion)), "{text}");
        }
        for text in ["", "non", "none:1", "hits:1", "percent:0"] {
            let refusal = text.parse::<FlashReinsertion>().unwrap_err().to_string();
            assert!(
                refusal.starts_with(&format!("{text:?} is no reinsertion")) && refusal.contains("or none"),
                "{refusal}"
            );
        }
        assert_eq!("lru".parse(), Ok(FlashReclaim(Reclaim::Lru)));
        assert_eq!("fifo".parse(), Ok(FlashReclaim(Reclaim::Fifo)));
        let refusal = "LRU".parse::<FlashReclaim>().unwrap_err().to_string();
        assert!(refusal.contains("\"LRU\"") && refusal.contains("lru or fifo"), "{refusal}");
    }
}
