//! Bytes and money in words.

use ebbtide::ByteSize;

pub(super) fn size(bytes: f64) -> String {
    ByteSize::bytes(bytes.max(0.0) as u64).to_string()
}

/// Two places after the decimal point, more for small amounts.
pub(super) fn money(amount: f64) -> String {
    match amount {
        1000.0.. => format!("{amount:.0}"),
        0.1.. => format!("{amount:.2}"),
        amount if amount > 0.0 => {
            let places = (2.0 - amount.log10().floor()).clamp(2.0, 12.0) as usize;
            format!("{amount:.places$}")
        }
        _ => "0".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_prices_keep_their_digits() {
        for (amount, text) in
            [(0.0, "0"), (12_345.6, "12346"), (12.345, "12.35"), (0.5, "0.50"), (0.00488, "0.00488"), (0.05, "0.0500")]
        {
            assert_eq!(money(amount), text);
        }
    }
}
