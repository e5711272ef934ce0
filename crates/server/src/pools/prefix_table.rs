//! Longest prefix match over keys, in an immutable sorted table.
//!
//! ```text
//! prefixes   "a"   "a:"   "a:b"   "b"       sorted
//! parents     -    "a"    "a:"     -        the longest other prefix that a prefix begins with
//! heads      the first eight bytes of each, as numbers: searched first, eight of them are a cache line
//! ```
//! Let `p` be the greatest prefix that is not greater than the key, and `m` the longest one that the key begins with.
//! All strings from `m` to the key begin with `m`, so `p` does: `m` is `p` or one of the prefixes of `p`. A lookup
//! takes two binary searches and follows as many links as prefixes are nested.

/// The end of a chain of nested prefixes.
const NONE: u32 = u32::MAX;

/// Prefixes, each with the number of its pool.
#[derive(Debug, Default)]
pub struct PrefixTable {
    heads: Box<[u64]>,
    prefixes: Box<[Prefix]>,
}

#[derive(Debug)]
struct Prefix {
    bytes: Box<[u8]>,
    pool: u32,
    /// The longest other prefix that this one begins with.
    parent: u32,
}

/// The first eight bytes, zeros behind a shorter text: never greater for a smaller text.
fn head(text: &[u8]) -> u64 {
    match text.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..text.len()].copy_from_slice(text);
            u64::from_be_bytes(bytes)
        }
    }
}

impl PrefixTable {
    /// Prefixes with the numbers of their pools. Each prefix is there once.
    pub fn new<'p>(prefixes: impl IntoIterator<Item = (&'p [u8], usize)>) -> Self {
        let mut sorted: Vec<_> = prefixes.into_iter().collect();
        sorted.sort_unstable();
        let mut table: Vec<Prefix> = Vec::with_capacity(sorted.len());
        for (bytes, pool) in sorted {
            let mut parent = table.len().checked_sub(1).map_or(NONE, |last| last as u32);
            // Ends: a parent is before its child in the table.
            while parent != NONE && !bytes.starts_with(&table[parent as usize].bytes) {
                parent = table[parent as usize].parent;
            }
            table.push(Prefix { bytes: bytes.into(), pool: pool as u32, parent });
        }
        Self { heads: table.iter().map(|prefix| head(&prefix.bytes)).collect(), prefixes: table.into() }
    }

    /// The number of the pool whose prefix is the longest one that the key begins with; 0 without one.
    pub fn find(&self, key: &[u8]) -> usize {
        let head = head(key);
        let start = self.heads.partition_point(|other| *other < head);
        let same = self.heads[start..].partition_point(|other| *other == head);
        let same = &self.prefixes[start..start + same];
        let count = start + same.partition_point(|prefix| *prefix.bytes <= *key);
        let mut at = count.checked_sub(1).map_or(NONE, |last| last as u32);
        // Ends: a parent is before its child in the table.
        while at != NONE {
            let prefix = &self.prefixes[at as usize];
            if key.starts_with(&prefix.bytes) {
                return prefix.pool as usize;
            }
            at = prefix.parent;
        }
        0
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
            // Behind eight equal bytes, too, where heads do not tell prefixes apart.
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
