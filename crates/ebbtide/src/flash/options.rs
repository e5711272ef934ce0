//! Parsers of flash options, for command lines and configuration files: admission, reinsertion, reclaim order, and the
//! area of small objects.

use crate::byte_size::ByteSize;
use ebbtide_flash::admission::{AdmissionOptions, AdmissionPolicy, WriteBudget};
use ebbtide_flash::large::{Reclaim, Reinsertion};
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Which values are written to flash, and when. They can be changed at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashLimits {
    /// Shorter values are never written to flash: an eviction loses them. Initially 0, or the value of `FlashOptions`.
    pub min_value_bytes: u32,
    /// Values that expire sooner are never written to flash. Initially 10, or the value of `FlashOptions`.
    pub min_ttl_seconds: u32,
    /// Values that were not read for this long are demoted before their memory is needed. With `None`, the initial
    /// value, only evictions demote.
    pub max_idle_seconds: Option<u32>,
}

/// Admission to flash, as a text names it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlashAdmission {
    /// Policy and budget.
    pub options: AdmissionOptions,
    /// `None` where the text does not name it.
    pub min_ttl_seconds: Option<u32>,
}

/// A text that names no admission to flash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{part:?} is no admission to flash: write all, probability:0.5, reject-first:TIMES:KEYS or history:KEYS_PER_HOUR[:READS_PER_HOUR], \
     and behind it, if wanted, ,budget:10m (bytes a second) or ,budget:3dwpd (drive writes a day), and ,min-ttl:SECONDS"
)]
pub struct NotAnAdmission {
    part: String,
}

impl FromStr for FlashAdmission {
    type Err = NotAnAdmission;

    /// `all`, `probability:0.5`, `reject-first:1:2m`, `history:1m`, `history:1m:0.25`; each may be followed by
    /// `,budget:10m` or `,budget:3dwpd`, and by `,min-ttl:60`. Numbers of keys are written as sizes are.
    fn from_str(text: &str) -> Result<Self, NotAnAdmission> {
        let refuse = |part: &str| NotAnAdmission { part: part.to_owned() };
        let mut parts = text.split(',').map(str::trim);
        let policy = parts.next().unwrap_or_default();
        let policy = policy_of(policy).ok_or_else(|| refuse(policy))?;
        let mut admission =
            Self { options: AdmissionOptions { policy, ..AdmissionOptions::default() }, min_ttl_seconds: None };
        for part in parts {
            let is_new = match part.strip_prefix("min-ttl:") {
                Some(seconds) => {
                    let seconds = seconds.parse().map_err(|_| refuse(part))?;
                    admission.min_ttl_seconds.replace(seconds).is_none()
                }
                None => {
                    let budget = budget_of(part).ok_or_else(|| refuse(part))?;
                    admission.options.budget.replace(budget).is_none()
                }
            };
            is_new.then_some(()).ok_or_else(|| refuse(part))?;
        }
        Ok(admission)
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
pub struct FlashReclaim {
    pub order: Reclaim,
    /// Whether a block device gets a discard for each reclaimed region.
    pub discard: bool,
}

/// Why a text does not say how space on flash is taken back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAReclaim {
    #[error(
        "{part:?} is no reinsertion on flash: write auto (objects that were read, while copies of them are read more than new objects) or none"
    )]
    Reinsertion { part: String },
    #[error(
        "{part:?} is no order in which flash is reclaimed: write lru or fifo, and behind it, if a block device is to be \
         told, ,discard"
    )]
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

    /// `lru`, `fifo`; each may be followed by `,discard`.
    fn from_str(text: &str) -> Result<Self, NotAReclaim> {
        let order = text.strip_suffix(",discard");
        let discard = order.is_some();
        match order.unwrap_or(text) {
            "lru" => Ok(Self { order: Reclaim::Lru, discard }),
            "fifo" => Ok(Self { order: Reclaim::Fifo, discard }),
            _ => Err(NotAReclaim::Order { part: text.to_owned() }),
        }
    }
}

/// How small objects are stored on flash, as it can be read from a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashSmallObjects {
    /// Number of objects from which on a page of them is rewritten.
    pub rewrite_threshold: u8,
    /// Share of flash for objects under 2 KiB, in percent; `None` where the text does not name it.
    pub share_percent: Option<u8>,
    /// Share of their area for their log, in percent; `None` where the text does not name it.
    pub log_percent: Option<u8>,
}

/// Why a text does not say how small objects are stored on flash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{part:?} does not say how small objects are stored: write the number of objects for which a page is rewritten, a \
     number from 1 to 255, and behind it, if wanted, ,share:PERCENT, a number from 1 to 99, and ,log:PERCENT, a number \
     from 0 to 50"
)]
pub struct NotSmallObjects {
    part: String,
}

impl FlashSmallObjects {
    pub const THRESHOLDS: RangeInclusive<u8> = 1..=u8::MAX;
    pub const SHARE_PERCENTS: RangeInclusive<u8> = 1..=99;
    pub const LOG_PERCENTS: RangeInclusive<u8> = 0..=50;
}

impl FromStr for FlashSmallObjects {
    type Err = NotSmallObjects;

    /// `2`, `2,share:20`, `2,log:30`, `2,share:20,log:30`.
    fn from_str(text: &str) -> Result<Self, NotSmallObjects> {
        let mut parts = text.split(',').map(str::trim);
        let number = |part: &str, digits: &str, range: RangeInclusive<u8>| {
            let number = digits.parse().ok().filter(|number| range.contains(number));
            number.ok_or_else(|| NotSmallObjects { part: part.to_owned() })
        };
        let threshold = parts.next().unwrap_or_default();
        let mut small = Self {
            rewrite_threshold: number(threshold, threshold, Self::THRESHOLDS)?,
            share_percent: None,
            log_percent: None,
        };
        for part in parts {
            let (name, digits) = part.split_once(':').unwrap_or((part, ""));
            let before = match name {
                "share" => small.share_percent.replace(number(part, digits, Self::SHARE_PERCENTS)?),
                "log" => small.log_percent.replace(number(part, digits, Self::LOG_PERCENTS)?),
                _ => return Err(NotSmallObjects { part: part.to_owned() }),
            };
            if before.is_some() {
                return Err(NotSmallObjects { part: part.to_owned() });
            }
        }
        Ok(small)
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
            let FlashAdmission { options, min_ttl_seconds } = text.parse().unwrap();
            assert_eq!((options.policy, options.budget, min_ttl_seconds), (policy, budget, None), "{text}");
        }
        for text in ["history:1m,min-ttl:60,budget:10m", "history:1m, budget:10m, min-ttl:60"] {
            let FlashAdmission { options, min_ttl_seconds } = text.parse().unwrap();
            assert_eq!(options.budget, Some(WriteBudget::BytesPerSecond(10 << 20)), "{text}");
            assert_eq!((options.policy, min_ttl_seconds), (history(MIN_READS), Some(60)), "{text}");
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
            "all,min-ttl:x",
            "all,min-ttl:1,min-ttl:1",
            "all,budget:1m,budget:1m",
            "min-ttl:1",
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
        for (text, order, discard) in [
            ("lru", Reclaim::Lru, false),
            ("fifo", Reclaim::Fifo, false),
            ("lru,discard", Reclaim::Lru, true),
            ("fifo,discard", Reclaim::Fifo, true),
        ] {
            assert_eq!(text.parse(), Ok(FlashReclaim { order, discard }), "{text}");
        }
        for text in ["LRU", "discard", "lru,trim", "lru,discard,discard"] {
            let refusal = text.parse::<FlashReclaim>().unwrap_err().to_string();
            assert!(refusal.starts_with(&format!("{text:?} is no order")), "{refusal}");
            assert!(refusal.contains("lru or fifo"), "{refusal}");
        }
    }

    #[test]
    fn parses_the_area_of_small_objects() {
        let small = |rewrite_threshold, share_percent, log_percent| FlashSmallObjects {
            rewrite_threshold,
            share_percent,
            log_percent,
        };
        for (text, expected) in [
            ("2", small(2, None, None)),
            ("255,share:99", small(255, Some(99), None)),
            ("1,log:0", small(1, None, Some(0))),
            ("4,share:20,log:30", small(4, Some(20), Some(30))),
            ("4, log:30, share:20", small(4, Some(20), Some(30))),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in [
            "",
            "0",
            "256",
            "2,",
            "share:20",
            "2,share:0",
            "2,share:100",
            "2,log:51",
            "2,log",
            "2,x:1",
            "2,log:1,log:1",
        ] {
            let refusal = text.parse::<FlashSmallObjects>().unwrap_err().to_string();
            assert!(refusal.contains("from 1 to 99") && refusal.contains("1 to 255"), "{refusal}");
        }
    }
}
