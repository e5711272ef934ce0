//! A hit ratio as an option: a share of gets in millionths, so that options can be compared.

use std::fmt;
use std::str::FromStr;

const MILLION: u32 = 1_000_000;

/// A share of gets that hit, above 0 and below 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HitRatio(u32);

/// A number that is no hit ratio of a cache.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}`: give a share of all gets above 0 and below 1, as 0.95 or 95%")]
pub struct InvalidHitRatio {
    given: String,
}

impl HitRatio {
    /// The nearest millionth.
    ///
    /// # Errors
    /// A number that is not above 0 and below 1.
    pub fn new(ratio: f64) -> Result<Self, InvalidHitRatio> {
        let millionths = (ratio * f64::from(MILLION)).round();
        let is_allowed = millionths >= 1.0 && millionths < f64::from(MILLION);
        if is_allowed { Ok(Self(millionths as u32)) } else { Err(InvalidHitRatio { given: ratio.to_string() }) }
    }

    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / f64::from(MILLION)
    }
}

impl FromStr for HitRatio {
    type Err = InvalidHitRatio;

    fn from_str(text: &str) -> Result<Self, InvalidHitRatio> {
        let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
        let ratio = number.trim_end().parse::<f64>().ok().and_then(|number| Self::new(number / unit).ok());
        ratio.ok_or_else(|| InvalidHitRatio { given: text.to_owned() })
    }
}

impl fmt::Display for HitRatio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_percent_are_understood() {
        assert_eq!("0.95".parse::<HitRatio>(), HitRatio::new(0.95));
        assert_eq!("95%".parse::<HitRatio>().unwrap().to_string(), "0.95");
        assert_eq!("99.95 %".parse::<HitRatio>().unwrap().as_f64(), 0.9995);
        for text in ["0", "1", "95", "-0.5", "100%", "nan", "", "%"] {
            let refusal = text.parse::<HitRatio>().unwrap_err().to_string();
            assert!(refusal.starts_with(&format!("`{text}`: ")) && refusal.contains("95%"), "{refusal}");
        }
    }
}
