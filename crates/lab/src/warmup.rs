//! `--warmup` of `mrc` and `advise`: the beginning of a trace that fills caches and does not count.

use std::fmt;
use std::str::FromStr;

use crate::generate::CountArg;

/// Length of a warmup.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Warmup {
    Requests(u64),
    /// Part of all requests.
    Share(f64),
    /// By the time of the trace.
    Seconds(u64),
}

impl FromStr for Warmup {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refusal = || format!("`{text}` is no warmup, such as 20m requests, 25% of them, or 600s");
        if let Some(percent) = text.strip_suffix('%') {
            let percent = percent.parse::<f64>().ok().filter(|percent| *percent > 0.0 && *percent < 100.0);
            return percent.map(|percent| Self::Share(percent / 100.0)).ok_or_else(refusal);
        }
        if let Some(seconds) = text.strip_suffix('s') {
            let seconds = seconds.parse().ok().filter(|&seconds| seconds > 0);
            return seconds.map(Self::Seconds).ok_or_else(refusal);
        }
        text.parse().map(|CountArg(count)| Self::Requests(count)).map_err(|_| refusal())
    }
}

impl fmt::Display for Warmup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requests(count) => write!(f, "{count}"),
            Self::Share(share) => write!(f, "{}%", share * 100.0),
            Self::Seconds(seconds) => write!(f, "{seconds}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_shares_and_seconds_are_understood() {
        let expected = [
            ("5000", Warmup::Requests(5000)),
            ("2m", Warmup::Requests(2_000_000)),
            ("25%", Warmup::Share(0.25)),
            ("600s", Warmup::Seconds(600)),
        ];
        for (text, warmup) in expected {
            assert_eq!(text.parse(), Ok(warmup));
        }
        for refused in ["", "0", "0%", "100%", "-1%", "nan%", "0s", "s", "x", "1.5"] {
            assert!(refused.parse::<Warmup>().is_err(), "{refused}");
        }
    }
}
