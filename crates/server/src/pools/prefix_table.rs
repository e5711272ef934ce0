//! Longest prefix match over keys, in an immutable hash table.
//!
//! ```text
//! prefixes   "a"   "a:"   "a:b"   "b"
//! lengths    3   2   1                   each once, the longest first
//! ```
//! A lookup hashes the first bytes of the key once for each length, until a prefix of that length is found. Prefixes
//! have a few lengths. In a binary search over sorted prefixes each step would compare texts in memory, since prefixes
//! of tenants have their first bytes in common.

use std::collections::HashMap;

use rapidhash::fast::RandomState;

/// Prefixes, each with the number of its pool.
#[derive(Debug, Default)]
pub struct PrefixTable {
    /// Each length of a prefix once, descending.
    lengths: Box<[usize]>,
    pools: HashMap<Box<[u8]>, usize, RandomState>,
}

impl PrefixTable {
    /// Prefixes with the numbers of their pools. Each prefix occurs once.
    pub fn new<'p>(prefixes: impl IntoIterator<Item = (&'p [u8], usize)>) -> Self {
        let pools: HashMap<Box<[u8]>, usize, RandomState> =
            prefixes.into_iter().map(|(bytes, pool)| (bytes.into(), pool)).collect();
        let mut lengths: Vec<usize> = pools.keys().map(|prefix| prefix.len()).collect();
        lengths.sort_unstable_by(|one, other| other.cmp(one));
        lengths.dedup();
        Self { lengths: lengths.into(), pools }
    }

    /// The number of the pool whose prefix is the longest one that the key begins with; 0 without one.
    pub fn find(&self, key: &[u8]) -> usize {
        let mut prefixes = self.lengths.iter().filter_map(|length| key.get(..*length));
        prefixes.find_map(|prefix| self.pools.get(prefix)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(prefixes: &[&str], key: &str) -> usize {
        PrefixTable::new(prefixes.iter().zip(1..).map(|(prefix, pool)| (prefix.as_bytes(), pool))).find(key.as_bytes())
    }

    #[test]
    fn the_longest_prefix_wins() {
        let prefixes = ["a", "a:b", "a:", "b"];
        for (key, pool) in [("a", 1), ("ax", 1), ("a:", 3), ("a:c", 3), ("a:b", 2), ("a:bc", 2), ("b", 4), ("c", 0)] {
            assert_eq!(find(&prefixes, key), pool, "{key}");
        }
        assert_eq!(find(&[], "a"), 0);
    }

    #[test]
    fn keys_shorter_than_every_prefix_match_none() {
        assert_eq!(find(&["users:", "user"], "use"), 0);
        assert_eq!(find(&["tenant-0001:", "tenant-0002:"], "tenant-0"), 0);
        assert_eq!(find(&["tenant-0001:", "tenant-0002:"], "tenant-0002:x"), 2);
    }

    /// Against a search of all prefixes, over all short texts of three letters, zero bytes included.
    #[test]
    fn every_key_matches_as_by_a_linear_search() {
        let mut texts: Vec<Vec<u8>> = vec![Vec::new()];
        for length in 0..4 {
            let longer: Vec<Vec<u8>> = texts.iter().filter(|text| text.len() == length).cloned().collect();
            texts.extend(longer.iter().flat_map(|text| [0, b'a', 255].map(|byte| [&text[..], &[byte]].concat())));
        }
        let fill = b"12345678";
        for start in 1..40 {
            for lead in [&fill[..0], &fill[..6], &fill[..]] {
                let chosen: Vec<Vec<u8>> =
                    texts.iter().skip(start).step_by(start).map(|text| [lead, &text[..]].concat()).collect();
                let table = PrefixTable::new(chosen.iter().zip(1..).map(|(prefix, pool)| (&prefix[..], pool)));
                for text in &texts {
                    let key = [lead, &text[..]].concat();
                    let matching = (0..chosen.len()).filter(|at| key.starts_with(&chosen[*at]));
                    let longest = matching.max_by_key(|at| chosen[*at].len()).map_or(0, |at| at + 1);
                    assert_eq!(table.find(&key), longest, "{key:?} in {chosen:?}");
                }
            }
        }
    }
}
