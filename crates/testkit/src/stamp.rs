//! Values that betray a torn or foreign read: each carries its key's number, a version, and a checksum over all of its
//! bytes.
//!
//! ```text
//! key number u64 | version u64 | filler, from key and version | checksum u64       little-endian
//! ```

use crate::random::Random;

const WORDS_BYTES: usize = 8;
/// The shortest stamped value.
const STAMP_BYTES: usize = 3 * WORDS_BYTES;

/// Key and version that a value carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub key: u64,
    pub version: u64,
}

impl Stamp {
    /// A value of at least `length` bytes.
    pub fn value(self, length: usize) -> Vec<u8> {
        let length = length.max(STAMP_BYTES);
        let mut value = Vec::with_capacity(length);
        value.extend_from_slice(&self.key.to_le_bytes());
        value.extend_from_slice(&self.version.to_le_bytes());
        value.extend(Random::new(self.key << 32 ^ self.version).bytes(length - STAMP_BYTES));
        value.extend_from_slice(&checksum(&value).to_le_bytes());
        value
    }

    /// Reads a value; `None` if its bytes are not as `value` wrote them.
    pub fn read(value: &[u8]) -> Option<Self> {
        if value.len() < STAMP_BYTES {
            return None;
        }
        let (rest, sum) = value.split_at(value.len() - WORDS_BYTES);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let (key, version) = (word(&value[..WORDS_BYTES]), word(&value[WORDS_BYTES..2 * WORDS_BYTES]));
        (word(sum) == checksum(rest)).then_some(Self { key, version })
    }
}

/// A product over all words and the length, so that neither lost nor moved bytes go unseen.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.chunks(WORDS_BYTES).fold(bytes.len() as u64, |sum, chunk| {
        let mut word = [0; WORDS_BYTES];
        word[..chunk.len()].copy_from_slice(chunk);
        (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
    })
}

#[cfg(test)]
mod tests {
    use super::Stamp;

    #[test]
    fn a_changed_byte_is_seen() {
        let stamp = Stamp { key: 7, version: 9 };
        for length in [0, 24, 25, 100, 5000] {
            let value = stamp.value(length);
            assert_eq!(value.len(), length.max(24));
            assert_eq!(Stamp::read(&value), Some(stamp));
            for at in 0..value.len() {
                let mut torn = value.clone();
                torn[at] ^= 0x10;
                assert_eq!(Stamp::read(&torn), None, "byte {at} of {length}");
            }
            assert_eq!(Stamp::read(&value[..value.len() - 1]), None);
        }
    }
}
