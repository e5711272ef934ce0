//! A page of 4 KiB with small objects: a set's page, or a page of the log.
//!
//! ```text
//!  0        8        16       20       22       24   25  28
//!  +--------+--------+--------+--------+--------+----+---+----------+----------+------------+
//!  |checksum| moment | number | objects|  end   |gen | 0 | record   | record   | ... zeros  |
//!  +--------+--------+--------+--------+--------+----+---+----------+----------+------------+
//!
//!  record
//!  0          1                                              3
//!  +----------+----------------------------------------------+-------+--------+-----------+-----+-------+
//!  |key bytes | value bytes:11 flags:1 expiry:1 annotated:1  |[flags]|[expiry]|           | key | value |
//!  |          | pool:1 zero:1                                |       |        | [pool]    |     |       |
//!  +----------+----------------------------------------------+-------+--------+-----------+-----+-------+
//! ```
//! All numbers are little-endian. The checksum is XXH3 of all that follows it, with the area's salt as its seed: a page
//! of another cache is invalid. `number` is the page's number in the area, `end` the end of the records. `log_clock` is
//! the log's clock when the page was opened (log) or composed (set); `gen` counts a set's pages, modulo 256. The first
//! record of a set's page is evicted last; the last record of a log page is the newest. Fields in brackets are there if
//! their bit is set: otherwise 0. The pool, of two bytes, is the number of an incarnation of a pool (`pools`): a record
//! of another one is of another key. `annotated` says that the flags are an annotation of the cache, and not a
//! client's.

use crate::device::BLOCK;
use crate::object::{FIRST_POOL, FlashHash, Object};
use crate::pools::LivePools;
use std::ops::Range;
use twox_hash::XxHash3_64;

/// Bytes of a page.
pub const PAGE: usize = BLOCK;
/// Offset of the first record.
pub(crate) const HEADER: usize = 28;
/// Maximum bytes of a record, with its header, key and value: two fit a page. Objects under 2 KiB.
pub const MAX_RECORD_BYTES: usize = (PAGE - HEADER) / 2;

const RECORD_HEADER: usize = 3;
const VALUE_BITS: u16 = (1 << 11) - 1;
const FLAGS: u16 = 1 << 11;
const EXPIRY: u16 = 1 << 12;
const ANNOTATED: u16 = 1 << 13;
const POOL: u16 = 1 << 14;
/// Maximum number of records in a page, so that a byte counts them.
pub(crate) const MAX_OBJECTS: usize = 255;

const _: () = assert!(PAGE == 4096 && MAX_RECORD_BYTES <= VALUE_BITS as usize + 1);

/// Bytes of an object's record; `None` if the object is not small.
pub fn record_bytes(object: &Object<'_>) -> Option<usize> {
    let words = usize::from(object.client_flags != 0) + usize::from(object.expiry != 0);
    let optional = 4 * words + 2 * usize::from(object.key.pool != FIRST_POOL);
    let bytes = RECORD_HEADER + optional + object.key.bytes.len() + object.value_bytes();
    let key = (1..=usize::from(u8::MAX)).contains(&object.key.bytes.len());
    (key && bytes <= MAX_RECORD_BYTES).then_some(bytes)
}

/// The header of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageHeader {
    pub number: u32,
    pub log_clock: u64,
    pub generation: u8,
}

/// Appends records to a page.
pub(crate) struct PageWriter<'a> {
    page: &'a mut [u8],
    end: usize,
    objects: usize,
}

impl<'a> PageWriter<'a> {
    /// Continues a page without a checksum at `end`; `end` and `objects` are 0 for an empty one.
    pub fn resume(page: &'a mut [u8], end: usize, objects: usize) -> Self {
        assert_eq!(page.len(), PAGE);
        Self { page, end: end.max(HEADER), objects }
    }

    pub fn end(&self) -> usize {
        self.end
    }

    pub fn objects(&self) -> usize {
        self.objects
    }

    fn position(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if self.end + bytes > PAGE || self.objects == MAX_OBJECTS {
            return None;
        }
        let position = &mut self.page[self.end..self.end + bytes];
        self.end += bytes;
        self.objects += 1;
        Some(position)
    }

    /// Copies a record. Returns whether there was space.
    pub fn push_record(&mut self, record: &[u8]) -> bool {
        self.position(record.len()).map(|position| position.copy_from_slice(record)).is_some()
    }

    /// Writes an object's record of `bytes`. Returns whether there was space.
    pub fn push(&mut self, object: &Object<'_>, bytes: usize) -> bool {
        let Some(position) = self.position(bytes) else {
            return false;
        };
        let mut lengths = object.value_bytes() as u16;
        let mut at = RECORD_HEADER;
        let mut put = |bytes: &[u8]| {
            position[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        if object.client_flags != 0 {
            lengths |= if object.is_annotated { FLAGS | ANNOTATED } else { FLAGS };
            put(&object.client_flags.to_le_bytes());
        }
        if object.expiry != 0 {
            lengths |= EXPIRY;
            put(&object.expiry.to_le_bytes());
        }
        if object.key.pool != FIRST_POOL {
            lengths |= POOL;
            put(&object.key.pool.to_le_bytes());
        }
        put(object.key.bytes);
        object.value.iter().for_each(|part| put(part));
        assert_eq!(at, bytes, "the record has another length");
        position[0] = object.key.bytes.len() as u8;
        position[1..RECORD_HEADER].copy_from_slice(&lengths.to_le_bytes());
        true
    }

    /// Writes the header, which completes the page.
    pub fn seal(self, salt: u64, header: PageHeader) {
        self.page[self.end..].fill(0);
        self.page[8..16].copy_from_slice(&header.log_clock.to_le_bytes());
        self.page[16..20].copy_from_slice(&header.number.to_le_bytes());
        self.page[20..22].copy_from_slice(&(self.objects as u16).to_le_bytes());
        self.page[22..24].copy_from_slice(&(self.end as u16).to_le_bytes());
        self.page[24..HEADER].copy_from_slice(&[header.generation, 0, 0, 0]);
        let checksum = checksum(salt, self.page);
        self.page[..8].copy_from_slice(&checksum.to_le_bytes());
    }
}

fn checksum(salt: u64, page: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(salt, &page[8..])
}

/// The header of a whole page with the right checksum.
pub(crate) fn open(page: &[u8], salt: u64) -> Option<PageHeader> {
    let word = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"));
    let end = usize::from(u16::from_le_bytes([page[22], page[23]]));
    if page.len() != PAGE || word(0) != checksum(salt, page) || !(HEADER..=PAGE).contains(&end) {
        return None;
    }
    let number = u32::from_le_bytes(page[16..20].try_into().expect("four bytes"));
    Some(PageHeader { number, log_clock: word(8), generation: page[24] })
}

/// The position and fields of a record in a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageRecord {
    /// The range of the whole record.
    pub range: Range<usize>,
    pub key: Range<usize>,
    pub value: Range<usize>,
    pub client_flags: u32,
    pub is_annotated: bool,
    pub expiry: u32,
    pub pool: u16,
}

impl PageRecord {
    pub fn hash(&self, page: &[u8], pools: &LivePools) -> FlashHash {
        pools.hash(self.pool, &page[self.key.clone()])
    }

    pub fn is_of(&self, page: &[u8], pool: u16, key: &[u8]) -> bool {
        self.pool == pool && &page[self.key.clone()] == key
    }

    /// The record that starts at `start`, if it ends up to `end`.
    fn read(page: &[u8], start: usize, end: usize) -> Option<Self> {
        let take = |at: &mut usize, bytes: usize| {
            let range = *at..*at + bytes;
            *at += bytes;
            (*at <= end).then_some(range)
        };
        let mut at = start;
        let head = take(&mut at, RECORD_HEADER)?;
        let lengths = u16::from_le_bytes([page[head.start + 1], page[head.start + 2]]);
        if lengths & !(VALUE_BITS | FLAGS | EXPIRY | ANNOTATED | POOL) != 0 {
            return None;
        }
        let mut number = |bit: u16| {
            if lengths & bit == 0 {
                return Some(0);
            }
            Some(u32::from_le_bytes(page[take(&mut at, 4)?].try_into().expect("four bytes")))
        };
        let client_flags = number(FLAGS)?;
        let expiry = number(EXPIRY)?;
        let pool = match lengths & POOL {
            0 => FIRST_POOL,
            _ => u16::from_le_bytes(page[take(&mut at, 2)?].try_into().expect("two bytes")),
        };
        let key = take(&mut at, usize::from(page[head.start])).filter(|key| !key.is_empty())?;
        let value = take(&mut at, usize::from(lengths & VALUE_BITS))?;
        let is_annotated = lengths & ANNOTATED != 0;
        Some(Self { range: start..at, key, value, client_flags, is_annotated, expiry, pool })
    }
}

/// The records of a page that [`open`] approved, first to last.
pub(crate) fn records(page: &[u8]) -> impl Iterator<Item = PageRecord> + '_ {
    let objects = usize::from(u16::from_le_bytes([page[20], page[21]])).min(MAX_OBJECTS);
    let end = usize::from(u16::from_le_bytes([page[22], page[23]])).min(PAGE);
    let mut at = HEADER;
    (0..objects).map_while(move |_| {
        let record = PageRecord::read(page, at, end)?;
        at = record.range.end;
        Some(record)
    })
}

/// Bytes of the records of each pool.
pub(crate) fn pool_bytes(page: &[u8]) -> Vec<(u16, u64)> {
    let mut pools: Vec<(u16, u64)> = Vec::new();
    for PageRecord { pool, range, .. } in records(page) {
        match pools.iter_mut().find(|(number, _)| *number == pool) {
            Some((_, bytes)) => *bytes += range.len() as u64,
            None => pools.push((pool, range.len() as u64)),
        }
    }
    pools
}

/// The record of a key, with its position.
pub(crate) fn find(page: &[u8], pool: u16, key: &[u8]) -> Option<(usize, PageRecord)> {
    records(page).enumerate().find(|(_, record)| record.is_of(page, pool, key))
}

/// An object of two parts, for tests.
#[cfg(test)]
pub(crate) fn object<'a>(key: &'a [u8], value: &'a [&'a [u8]], expiry: u32) -> Object<'a> {
    Object { key: crate::object::Key::new(key), value, client_flags: 0, is_annotated: false, expiry }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Buffer;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn a_page_is_these_bytes() {
        let mut page = Buffer::zeroed(PAGE);
        let mut writer = PageWriter::resume(&mut page, 0, 0);
        let parts: &[&[u8]] = &[b"va", b"lue"];
        let full = Object { client_flags: 0x0102_0304, ..object(b"key", parts, 0x0a0b_0c0d) };
        let bare = object(b"k", &[b"v"], 0);
        let other = Object { key: crate::object::Key { pool: 0x0807, ..bare.key }, ..bare };
        let annotated = Object { is_annotated: true, ..full };
        for object in [full, bare, other, annotated] {
            let bytes = record_bytes(&object).unwrap();
            assert!(writer.push(&object, bytes));
        }
        let header = PageHeader { number: 7, log_clock: 0x1122_3344_5566_7788, generation: 5 };
        writer.seal(42, header);
        let expected = "8877665544332211".to_owned() // moment
            + "07000000" // number
            + "0400" // objects
            + "4e00" // end
            + "05000000" // generation
            + "03" + "0518" + "04030201" + "0d0c0b0a" + "6b6579" + "76616c7565"
            + "01" + "0100" + "6b" + "76"
            + "01" + "0140" + "0708" + "6b" + "76"
            + "03" + "0538" + "04030201" + "0d0c0b0a" + "6b6579" + "76616c7565";
        assert_eq!(hex(&page[8..0x4e]), expected);
        assert_eq!(hex(&page[..8]), CHECKSUM);
        assert!(page[0x4e..].iter().all(|&b| b == 0));
        assert_eq!(open(&page, 42), Some(header));
        let all: Vec<_> = records(&page).collect();
        assert_eq!((&page[all[0].key.clone()], &page[all[0].value.clone()]), (&b"key"[..], &b"value"[..]));
        assert_eq!((all[0].client_flags, all[0].expiry), (0x0102_0304, 0x0a0b_0c0d));
        assert_eq!((all[1].client_flags, all[1].expiry), (0, 0));
        assert_eq!([all[0].is_annotated, all[1].is_annotated, all[3].is_annotated], [false, false, true]);
        assert_eq!(find(&page, 0, b"k"), Some((1, all[1].clone())));
        assert_eq!(find(&page, 0x0807, b"k"), Some((2, all[2].clone())));
        assert_eq!(find(&page, 1, b"k"), None);
    }

    const CHECKSUM: &str = "c7a767d4aeacec89";

    #[test]
    fn a_changed_bit_or_salt_fails_the_checksum() {
        let mut page = Buffer::zeroed(PAGE);
        let mut writer = PageWriter::resume(&mut page, 0, 0);
        assert!(writer.push(&object(b"key", &[b"value"], 0), 11));
        writer.seal(1, PageHeader { number: 0, log_clock: 1, generation: 0 });
        assert!(open(&page, 1).is_some() && open(&page, 2).is_none());
        for at in (0..64).chain([PAGE - 1]) {
            page[at] ^= 16;
            assert_eq!(open(&page, 1), None, "byte {at}");
            page[at] ^= 16;
        }
    }

    #[test]
    fn records_of_other_pools_do_not_match() {
        let mut page = Buffer::zeroed(PAGE);
        let mut writer = PageWriter::resume(&mut page, 0, 0);
        let lengths = (POOL | 1).to_le_bytes();
        assert!(writer.push_record(&[1, lengths[0], lengths[1], 7, 0, b'k', b'o']));
        assert!(writer.push(&object(b"k", &[b"v"], 0), 5));
        writer.seal(1, PageHeader { number: 0, log_clock: 1, generation: 0 });
        let pools: Vec<_> = records(&page).map(|record| record.pool).collect();
        assert_eq!(pools, [7, 0]);
        assert_eq!(
            find(&page, 0, b"k").map(|(position, record)| page[record.value][0] == b'v' && position == 1),
            Some(true)
        );
    }

    #[test]
    fn only_small_objects_have_records() {
        let value = [0u8; MAX_RECORD_BYTES];
        let bytes = |key: &[u8], value: &[u8], expiry| record_bytes(&object(key, &[value], expiry));
        assert_eq!(bytes(b"k", &value[..2030], 0), Some(MAX_RECORD_BYTES));
        assert_eq!(bytes(b"k", &value[..2031], 0), None);
        assert_eq!(bytes(b"k", &value[..2030], 1), None);
        assert_eq!(bytes(b"", b"v", 0), None);
        assert_eq!(bytes(&[7; 256], b"v", 0), None);
    }

    #[test]
    fn records_with_wrong_lengths_end_the_page() {
        let mut page = Buffer::zeroed(PAGE);
        page[20..24].copy_from_slice(&[255, 0, 0, 16]);
        page[HEADER] = 250;
        page[HEADER + 1..HEADER + 3].copy_from_slice(&(VALUE_BITS | FLAGS | EXPIRY | POOL).to_le_bytes());
        page[PAGE - 5] = 250;
        assert_eq!(records(&page).count(), 1);
    }
}
