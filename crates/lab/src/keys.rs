//! Keys of a given length from numbers.
//!
//! ```text
//! id = 4097, size 6:   1 0 1 0 0 0      base 64, least significant digit first, filled up with the digit zero
//! ```
//! Keys of one length are distinct because the digits are those of distinct numbers, and keys of different lengths
//! are distinct anyway. All characters are printable, so the keys also pass through the memcached protocol. A number
//! that needs more digits than the length allows gets a longer key (11 bytes hold every u64); the caller counts that.

/// The longest key of the memcached protocol, in bytes.
pub const MAX_KEY_SIZE: usize = 250;

/// Bytes that are enough for every id.
pub const FULL_WIDTH: u32 = 11;

const DIGITS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";

/// Space for one key, written again and again.
#[derive(Clone, Debug)]
pub struct KeyBuffer {
    bytes: [u8; MAX_KEY_SIZE],
    length: usize,
}

impl Default for KeyBuffer {
    fn default() -> Self {
        Self { bytes: [DIGITS[0]; MAX_KEY_SIZE], length: 0 }
    }
}

impl KeyBuffer {
    /// Writes the key of `id` with `size` bytes, or as near to that as the limits and distinctness allow.
    pub fn write(&mut self, id: u64, size: u32) -> &[u8] {
        self.length = key_length(id, size);
        let digits = self.length.min(FULL_WIDTH as usize);
        let mut rest = id;
        for byte in &mut self.bytes[..digits] {
            *byte = DIGITS[(rest & 63) as usize];
            rest >>= 6;
        }
        self.as_bytes()
    }

    /// As `write`, with a prefix, which is part of `size`. A key is at least as long as its prefix and its digits.
    pub fn write_after(&mut self, prefix: &[u8], id: u64, size: u32) -> &[u8] {
        let rest = self.write(id, size.saturating_sub(prefix.len() as u32)).len().min(MAX_KEY_SIZE - prefix.len());
        self.bytes.copy_within(..rest.min(FULL_WIDTH as usize), prefix.len());
        self.bytes[..prefix.len()].copy_from_slice(prefix);
        self.length = prefix.len() + rest;
        // The bytes behind the digits must be the digit zero: `write` relies on this.
        self.bytes[prefix.len() + rest.min(FULL_WIDTH as usize)..].fill(DIGITS[0]);
        self.as_bytes()
    }

    /// The key written last.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Actual length of the key of `id` for a requested length of `size` bytes.
pub fn key_length(id: u64, size: u32) -> usize {
    (size as usize).clamp(digits_of(id), MAX_KEY_SIZE)
}

fn digits_of(id: u64) -> usize {
    (64 - id.leading_zeros() as usize).div_ceil(6).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_have_the_length_asked_for() {
        let mut key = KeyBuffer::default();
        assert_eq!(key.write(4097, 6), b"101000");
        assert_eq!(key.write(0, 1), b"0");
        assert_eq!(key.write(63, 1), b"_");
        assert_eq!(key.write(7, 250).len(), 250);
        assert_eq!(key.write_after(b"pool1:", 4097, 10), b"pool1:1010");
        assert_eq!(key.write_after(b"pool1:", 4097, 3), b"pool1:101");
        assert_eq!(key.write_after(b"pool1:", 7, 250).len(), 250);
        assert_eq!(key.write(4097, 20), b"10100000000000000000", "nothing of the prefix is left");
    }

    #[test]
    fn a_shorter_key_overwrites_a_longer_one() {
        let mut key = KeyBuffer::default();
        key.write(u64::MAX, 40);
        assert_eq!(key.write(1, 20), b"10000000000000000000");
    }

    #[test]
    fn keys_too_short_to_be_distinct_grow() {
        let mut key = KeyBuffer::default();
        assert_eq!(key.write(64, 1), b"01");
        assert_eq!(key.write(u64::MAX, 0).len(), FULL_WIDTH as usize);
        assert_eq!(key.write(1, 100_000).len(), MAX_KEY_SIZE);
    }

    #[test]
    fn keys_are_distinct_per_id() {
        let mut key = KeyBuffer::default();
        for size in [1, 2, 3, 11, 20] {
            let distinct: HashSet<Vec<u8>> =
                (0..10_000).chain(u64::MAX - 1000..=u64::MAX).map(|id| key.write(id, size).to_vec()).collect();
            assert_eq!(distinct.len(), 11_001, "size {size}");
        }
    }
}
