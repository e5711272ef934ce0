//! The keyed hash of the index.
//!
//! rapidhash V3 nano, with secrets derived from a random seed per cache: an attacker who does not know the seed cannot
//! choose keys that meet in a bucket. The seed and the version belong to a cache's persistent state.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_nano_inline};

/// Hashes keys with the secrets of one cache.
pub struct KeyHash {
    secrets: RapidSecrets,
}

impl KeyHash {
    pub fn new(seed: u64) -> Self {
        Self { secrets: RapidSecrets::seed(seed) }
    }

    #[inline(always)]
    pub fn hash(&self, key: &[u8]) -> u64 {
        rapidhash_v3_nano_inline::<true, false>(key, &self.secrets)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_keyed_and_fixed() {
        let one = KeyHash::new(1);
        assert_eq!(one.hash(b"key"), KeyHash::new(1).hash(b"key"));
        assert_ne!(one.hash(b"key"), KeyHash::new(2).hash(b"key"));
        assert_ne!(one.hash(b"key"), one.hash(b"kez"));
    }
}
