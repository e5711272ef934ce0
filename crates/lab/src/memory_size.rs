//! A size of memory as the command line gives it: bytes, or a share of the trace's footprint.

use std::str::FromStr;

use ebbtide::ByteSize;

/// One size as it is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemorySize {
    /// Sizes that the command chooses by the footprint.
    Auto,
    Bytes(ByteSize),
    /// Percent of the bytes of all objects, keys and values.
    Percent(f64),
}

impl FromStr for MemorySize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        match text.strip_suffix('%').map(str::parse) {
            Some(Ok(percent)) if percent > 0.0 && percent <= 10_000.0 => Ok(Self::Percent(percent)),
            Some(_) => Err(format!("{text}: give a percentage above 0 and up to 10000")),
            None => text
                .parse::<ByteSize>()
                .map(Self::Bytes)
                .map_err(|error| format!("{error}, a share of the bytes of all objects, as in 10%, or auto")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_shares_or_auto() {
        let of = |text: &str| text.parse::<MemorySize>();
        assert_eq!(of("64m"), Ok(MemorySize::Bytes(ByteSize::mib(64))));
        assert_eq!((of("auto"), of("0.5%")), (Ok(MemorySize::Auto), Ok(MemorySize::Percent(0.5))));
        for text in ["-1%", "0%", "x%", "NaN%", "10001%", "many", ""] {
            assert!(of(text).is_err(), "{text}");
        }
        let message = of("many").unwrap_err();
        assert!(message.contains("\"many\"") && message.contains("10%") && message.contains("auto"), "{message}");
    }
}
