//! The format of maps: entries sorted by key, then a log of changes.
//!
//! ```text
//! head:   structure, key type u32, value type u32, n u32, base end u32
//! table:  n x u32: offset of entry i | bytes of its key << 20
//! base:   n entries, sorted by the bytes of the key: key, value
//! base end:
//! log:    records: u32 { bytes of the value | bytes of the key << 20 | removed << 28 }, key, value
//! ```
//! Numbers are little-endian; offsets count from the start of the content, which has less than 2^20 bytes; keys have
//! at most 255. An entry ends where the next one begins, the last one at the base end. So an entry costs four bytes,
//! in the table or in its record.
//!
//! A lookup scans the log, whose last record of a key decides, then searches the table. A change appends a record. When
//! the space behind the log is used up, the whole is written again, sorted, without replaced and removed entries.
//!
//! The bytes may be those of anyone who could insert a value: every offset is checked.

use super::head::{Structure, take_u32};
use crate::error::Error;
use std::cmp::Ordering;

/// The longest key of an entry.
pub const MAP_KEY_MAX: usize = 255;
/// The content of a segment of 1 MiB, and so every offset, has less than 2^20 bytes.
const LENGTH_BITS: u32 = 20;
const LENGTH_MASK: u32 = (1 << LENGTH_BITS) - 1;
const REMOVED_BIT: u32 = 1 << 28;
/// Bytes in front of the table.
const FIXED_BYTES: usize = 20;
/// A rewritten map gets this part of its bytes for the log: so an edit copies four times its bytes on average.
const SPARE_SHARE: usize = 4;
/// Space for a few records also in a small map.
const SPARE_BYTES_MIN: usize = 128;

/// A map of bytes to bytes, in a structured value.
#[derive(Clone, Copy, Debug)]
pub struct SortedLog<'a> {
    structure: Structure,
    content: &'a [u8],
    count: usize,
    base_end: usize,
}

/// A change of an entry; `None` removes it.
pub type Change<'a> = (&'a [u8], Option<&'a [u8]>);
type Entry<'a> = (&'a [u8], &'a [u8]);

impl<'a> SortedLog<'a> {
    /// Checks the head.
    ///
    /// # Errors
    /// `WrongStructure`.
    pub fn open(structure: Structure, content: &'a [u8], types: [u32; 2]) -> Result<Self, Error> {
        let rest = structure.open(content, &types)?;
        let fields = || {
            let (count, rest) = take_u32(rest)?;
            let (base_end, _) = take_u32(rest)?;
            let (count, base_end) = (count as usize, base_end as usize);
            let base = count.checked_mul(4)?.checked_add(FIXED_BYTES)?;
            (base <= base_end && base_end <= content.len()).then_some((count, base_end))
        };
        let (count, base_end) = fields().ok_or_else(|| structure.damaged())?;
        Ok(Self { structure, content, count, base_end })
    }

    /// The value of a key.
    ///
    /// # Errors
    /// `WrongStructure` if the bytes are damaged.
    pub fn find(&self, key: &[u8]) -> Result<Option<&'a [u8]>, Error> {
        let mut last = None;
        self.each_record(|(changed, value)| {
            if changed == key {
                last = Some(value);
            }
        })?;
        match last {
            Some(value) => Ok(value),
            None => match self.position(key)? {
                Ok(entry) => Ok(Some(self.entry(entry)?.1)),
                Err(_) => Ok(None),
            },
        }
    }

    /// The entries with keys from `from` on and less than `to`, sorted.
    ///
    /// # Errors
    /// As `find`.
    pub fn range(&self, from: &[u8], to: Option<&[u8]>) -> Result<Vec<Entry<'a>>, Error> {
        let is_in = |key: &[u8]| key >= from && to.is_none_or(|to| key < to);
        let mut changes = Vec::new();
        self.each_record(|change| {
            if is_in(change.0) {
                changes.push(change);
            }
        })?;
        let first = self.position(from)?.unwrap_or_else(|first| first);
        let base = (first..self.count).map(|index| self.entry(index)).take_while(|entry| match entry {
            Ok((key, _)) => is_in(key),
            Err(_) => true,
        });
        merge(base, changes)
    }

    /// All entries, sorted by the bytes of their keys.
    ///
    /// # Errors
    /// As `find`.
    pub fn entries(&self) -> Result<Vec<Entry<'a>>, Error> {
        self.range(&[], None)
    }

    /// The content with some changes made, as a rewrite has it.
    ///
    /// # Errors
    /// As `find`.
    pub fn rewritten(&self, types: [u32; 2], changes: &[Change<'_>]) -> Result<Vec<u8>, Error> {
        let base = self.entries()?.into_iter().map(Ok);
        Ok(encode(self.structure, types, &merge(base, changes.to_vec())?))
    }

    fn each_record(&self, mut visit: impl FnMut(Change<'a>)) -> Result<(), Error> {
        let mut rest = &self.content[self.base_end..];
        while !rest.is_empty() {
            let (change, after) = take_record(rest).ok_or_else(|| self.structure.damaged())?;
            visit(change);
            rest = after;
        }
        Ok(())
    }

    /// The index of the entry with this key, or that of the first one behind it.
    fn position(&self, key: &[u8]) -> Result<Result<usize, usize>, Error> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            match self.entry(middle)?.0.cmp(key) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(Ok(middle)),
            }
        }
        Ok(Err(low))
    }

    fn entry(&self, index: usize) -> Result<Entry<'a>, Error> {
        let place = |index: usize| {
            let (word, _) = take_u32(self.content.get(FIXED_BYTES + 4 * index..)?)?;
            Some(((word & LENGTH_MASK) as usize, (word >> LENGTH_BITS) as usize))
        };
        let found = || {
            let (start, key_bytes) = place(index)?;
            let end = if index + 1 < self.count { place(index + 1)?.0 } else { self.base_end };
            self.content.get(start..end.min(self.base_end))?.split_at_checked(key_bytes)
        };
        found().ok_or_else(|| self.structure.damaged())
    }
}

/// The first record of a log, and the bytes behind it.
fn take_record(bytes: &[u8]) -> Option<(Change<'_>, &[u8])> {
    let (word, rest) = take_u32(bytes)?;
    let (key, rest) = rest.split_at_checked((word >> LENGTH_BITS) as usize & 0xFF)?;
    let (value, rest) = rest.split_at_checked((word & LENGTH_MASK) as usize)?;
    Some(((key, (word & REMOVED_BIT == 0).then_some(value)), rest))
}

/// Sorted entries after some changes, of which the last one of a key counts.
fn merge<'a>(
    base: impl Iterator<Item = Result<Entry<'a>, Error>>,
    mut changes: Vec<Change<'a>>,
) -> Result<Vec<Entry<'a>>, Error> {
    // The sort is stable: the last change of a key stays the last.
    changes.sort_by_key(|(key, _)| *key);
    let mut merged = Vec::new();
    let mut changes = changes.into_iter().peekable();
    let mut put = |(key, value): Change<'a>, next: Option<&Change<'a>>| {
        if let (Some(value), true) = (value, next.is_none_or(|next| next.0 != key)) {
            merged.push((key, value));
        }
    };
    for entry in base {
        let entry = entry?;
        let mut is_changed = false;
        while let Some(change) = changes.next_if(|change| change.0 <= entry.0) {
            is_changed |= change.0 == entry.0;
            put(change, changes.peek());
        }
        if !is_changed {
            put((entry.0, Some(entry.1)), None);
        }
    }
    while let Some(change) = changes.next() {
        put(change, changes.peek());
    }
    Ok(merged)
}

/// The content of a map with these entries, sorted by key.
pub fn encode(structure: Structure, types: [u32; 2], entries: &[Entry<'_>]) -> Vec<u8> {
    let data: usize = entries.iter().map(|(key, value)| key.len() + value.len()).sum();
    let base_end = FIXED_BYTES + 4 * entries.len() + data;
    let mut content = structure.head(&[types[0], types[1], entries.len() as u32, base_end as u32]);
    content.reserve(base_end - content.len());
    let mut start = FIXED_BYTES + 4 * entries.len();
    for (key, value) in entries {
        // A content that is too long for an offset is refused before it is stored.
        let word = start as u32 & LENGTH_MASK | (key.len() as u32) << LENGTH_BITS;
        content.extend(word.to_le_bytes());
        start += key.len() + value.len();
    }
    for (key, value) in entries {
        content.extend_from_slice(key);
        content.extend_from_slice(value);
    }
    content
}

/// The records of some changes.
pub fn records(changes: &[Change<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in changes {
        let length = value.map_or(REMOVED_BIT, |value| value.len() as u32 & LENGTH_MASK);
        bytes.extend((length | (key.len() as u32) << LENGTH_BITS).to_le_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value.unwrap_or_default());
    }
    bytes
}

/// Space for the log of a map that is written with this content.
pub fn spare_of(content: &[u8]) -> usize {
    (content.len() / SPARE_SHARE).max(SPARE_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const TYPES: [u32; 2] = [1, 2];

    #[test]
    fn the_format_has_the_documented_bytes() {
        let mut content = encode(Structure::Map, TYPES, &[(b"a", b"xy"), (b"bc", b"z")]);
        content.extend(records(&[(b"bc", None), (b"d", Some(b"w"))]));
        let expected: &[&[u8]] = &[
            &[0xEB, 0x7D, 3, 1],
            &[1, 0, 0, 0, 2, 0, 0, 0],
            &[2, 0, 0, 0, 34, 0, 0, 0],
            &[28, 0, 0x10, 0, 31, 0, 0x20, 0],
            b"axybcz",
            &[0, 0, 0x20, 0x10],
            b"bc",
            &[1, 0, 0x10, 0],
            b"dw",
        ];
        assert_eq!(content, expected.concat());
    }

    #[test]
    fn an_entry_costs_four_bytes() {
        let keys: Vec<Vec<u8>> = (0..1000_u32).map(|number| number.to_be_bytes().to_vec()).collect();
        let entries: Vec<Entry<'_>> = keys.iter().map(|key| (&key[..], &b"a value of some bytes"[..])).collect();
        let data: usize = entries.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert_eq!(encode(Structure::Map, TYPES, &entries).len() - data - FIXED_BYTES, 4 * entries.len());
        let changes: Vec<Change<'_>> = entries.iter().map(|(key, value)| (*key, Some(*value))).collect();
        assert_eq!(records(&changes).len() - data, 4 * entries.len());
    }

    #[test]
    fn changes_and_rewrites_match_a_plain_map() {
        let mut random = ebbtide_testkit::Random::new(40);
        for _ in 0..200 {
            let mut content = encode(Structure::Map, TYPES, &[]);
            let mut plain: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            for _ in 0..random.uniform(60) {
                let key = vec![b'k'; 1 + random.uniform(3) as usize]
                    .into_iter()
                    .chain([random.uniform(9) as u8])
                    .collect::<Vec<u8>>();
                let value = vec![random.uniform(256) as u8; random.uniform(20) as usize];
                let removed = random.uniform(3) == 0;
                let change: [Change<'_>; 1] = [(&key, (!removed).then_some(&value))];
                if random.uniform(10) == 0 {
                    content =
                        SortedLog::open(Structure::Map, &content, TYPES).unwrap().rewritten(TYPES, &change).unwrap();
                } else {
                    content.extend(records(&change));
                }
                match removed {
                    true => _ = plain.remove(&key),
                    false => _ = plain.insert(key.clone(), value.clone()),
                }
                let map = SortedLog::open(Structure::Map, &content, TYPES).unwrap();
                assert_eq!(map.find(&key).unwrap(), plain.get(&key).map(|value| &value[..]));
                let entries: Vec<Entry<'_>> = plain.iter().map(|(key, value)| (&key[..], &value[..])).collect();
                assert_eq!(map.entries().unwrap(), entries);
                let (from, to) = (&b"kk\x03"[..], &b"kkk\x02"[..]);
                let range = map.range(from, Some(to)).unwrap();
                assert!(range.iter().eq(entries.iter().filter(|(key, _)| *key >= from && *key < to)));
            }
        }
    }

    #[test]
    fn damaged_bytes_are_an_error_and_no_panic() {
        let mut random = ebbtide_testkit::Random::new(41);
        let mut whole = encode(Structure::Map, TYPES, &[(b"a", b"xy"), (b"bc", b"z"), (b"q", b"")]);
        whole.extend(records(&[(b"bc", None), (b"d", Some(b"w"))]));
        let mut refused = 0;
        for _ in 0..5000 {
            let mut content = whole.clone();
            let place = random.uniform(content.len() as u64) as usize;
            content[place] = random.uniform(256) as u8;
            content.truncate(content.len() - random.uniform(3) as usize);
            let read = || -> Result<(), Error> {
                let map = SortedLog::open(Structure::Map, &content, TYPES)?;
                map.find(b"bc")?;
                map.rewritten(TYPES, &[(b"e", Some(b""))]).map(drop)
            };
            refused += u32::from(read().is_err());
        }
        assert!(refused > 1000, "{refused}");
    }
}
