//! Sizes of the caches of a curve.

use ebbtide::ByteSize;

use crate::Error;
use crate::memory_size::MemorySize as Size;

/// Sizes that `auto` takes.
const AUTO: usize = 20;
/// The least of them, as a part of the footprint, and in bytes.
const AUTO_MIN_SHARE: f64 = 0.001;
const AUTO_MIN_BYTES: f64 = 4096.0;

/// The sizes in bytes, ascending, each once.
pub(super) fn resolve(sizes: &[Size], footprint_bytes: u64) -> Result<Vec<u64>, Error> {
    let footprint = footprint_bytes as f64;
    let mut bytes: Vec<u64> = Vec::new();
    for size in sizes {
        match *size {
            Size::Bytes(size) => bytes.push(size.as_bytes()),
            Size::Percent(percent) => bytes.push((footprint * percent / 100.0) as u64),
            Size::Auto => {
                let min_bytes = (footprint * AUTO_MIN_SHARE).max(AUTO_MIN_BYTES).min(footprint);
                let step = |at: usize| min_bytes * (footprint / min_bytes).powf(at as f64 / (AUTO - 1) as f64);
                bytes.extend((0..AUTO).map(|at| step(at).ceil() as u64));
            }
        }
    }
    bytes.sort_unstable();
    bytes.dedup();
    if bytes.first() != Some(&0) {
        return Ok(bytes);
    }
    // A share of an empty footprint is an error of the trace.
    let (value, reason) = match footprint_bytes {
        0 if !sizes.contains(&Size::Bytes(ByteSize::bytes(0))) => {
            ("auto", "the objects of the trace have no bytes; give sizes in bytes")
        }
        _ => ("0", "a cache has at least a byte; give a larger size or share"),
    };
    Err(Error::Configuration { option: "--sizes", value: value.to_owned(), reason: reason.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_shares_or_found() {
        let of = |texts: &[&str]| -> Result<Vec<u64>, Error> {
            let sizes: Vec<Size> = texts.iter().map(|text| text.parse().unwrap()).collect();
            resolve(&sizes, 1 << 30)
        };
        assert_eq!(of(&["1g", "10%", "1m"]).unwrap(), [1 << 20, (1 << 30) / 10, 1 << 30]);
        let auto = of(&["auto"]).unwrap();
        assert_eq!((auto.len(), auto[0], auto[19]), (20, 1_073_742, 1 << 30));
        assert!(auto.is_sorted());
        assert!(of(&["0.00000001%"]).is_err());
        let empty = resolve(&[Size::Auto], 0).unwrap_err().to_string();
        assert!(empty.contains("the objects of the trace have no bytes"), "{empty}");
        let one = resolve(&[Size::Auto], 100).unwrap();
        assert_eq!(one, [100], "of a tiny trace one size is all");
    }
}
