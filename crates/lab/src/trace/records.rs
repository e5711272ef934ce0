//! Binary traces: records of one length after a header, little-endian, without padding.
//!
//! ```text
//! oracleGeneral  | time:u32 | id:u64 | size:u32 | next:i64 |
//! lcs 1          | time:u32 | id:u64 | size:u32 | next:i64 |
//! lcs 2          | time:u32 | id:u64 | size:u32 | op:u8 tenant:u24 | next:i64 |
//! lcs 3 to 8     | time:u32 | id:u64 | size:i64 | op:u8 tenant:u24 | ttl:u32 | next:i64 | features |
//! vscsi 1        | sn:u32 | length:u32 | nsg:u32 | command:u16 | version:u16 | block:u64 | time:u64 |
//! vscsi 2        | command:u16 | version:u16 | sn:u32 | length:u32 | nsg:u32 | block:u64 | time:u64 | rt:u64 |
//! ```
//! Only lcs has a header, of 8,192 bytes.
//! lcs and vscsi are formats of libCacheSim. Its header of lcs begins with a magic number and the version; the high
//! byte of the version of vscsi is 1 or 2, its time is in microseconds. A size is that of the whole object: as many
//! bytes as every id fits are taken for the key.

use std::io::{self, Read};

use super::oracle;
use super::text::Fault;
use super::{Op, Request};
use crate::keys::FULL_WIDTH;

pub(super) const LCS_MAGIC: u64 = 0x1234_5678_9ABC_DEF0;
pub(super) const LCS_HEADER: usize = 8192;
/// Features of 4 bytes at the end of a record, by the version of lcs from 3 on.
const LCS_FEATURES: [usize; 6] = [0, 1, 2, 4, 8, 16];
/// The longest record: lcs 8.
const MAX_RECORD: usize = 100;

/// Offset of the time in a record of vscsi.
const VSCSI_TIME: usize = 24;
/// The longest transfer that is accepted: 2^31 bytes, of which no disk moves as many by one command.
const MAX_TRANSFER_BYTES: u32 = 1 << 31;
/// The latest time that is accepted: the year 2100.
const MAX_MICROSECONDS: u64 = 130 * 366 * 86_400 * 1_000_000;
/// How far times may fall: requests are recorded in the order of their ends.
const MAX_DISORDER_MICROSECONDS: u64 = 60 * 1_000_000;

/// How records are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordFormat {
    Oracle,
    Lcs { version: usize },
    Vscsi { version: u16 },
}

impl RecordFormat {
    /// Detects lcs by its magic number. The error names an unknown version.
    pub(super) fn lcs(start: &[u8]) -> Result<Self, String> {
        let word =
            |at: usize| start.get(at..at + 8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("8 bytes")));
        match (word(0), word(8)) {
            (Some(LCS_MAGIC), Some(version @ 1..=8)) => Ok(Self::Lcs { version: version as usize }),
            (Some(LCS_MAGIC), version) => Err(format!("lcs of version {} is not known", version.unwrap_or(0))),
            _ => Err("it does not begin with the magic number of lcs".to_owned()),
        }
    }

    /// Detects vscsi by the version in every record, and by its times and lengths. The error names the first record
    /// (from 1) that is no vscsi record.
    pub(super) fn vscsi(start: &[u8]) -> Result<Self, String> {
        for (version, at) in [(1, 14), (2, 2)] {
            let layout = Self::Vscsi { version };
            let mut records = start.chunks_exact(layout.size()).peekable();
            if records.peek().is_some() && records.all(|record| half(record, at) >> 8 == version) {
                return check_vscsi(start.chunks_exact(layout.size()), version).map(|()| layout);
            }
        }
        Err("its records have no version of vscsi".to_owned())
    }

    pub(super) fn header_size(self) -> usize {
        if matches!(self, Self::Lcs { .. }) { LCS_HEADER } else { 0 }
    }

    fn size(self) -> usize {
        match self {
            Self::Oracle => oracle::RECORD_SIZE,
            Self::Lcs { version: 1 } => 24,
            Self::Lcs { version: 2 } => 28,
            Self::Lcs { version } => 36 + 4 * LCS_FEATURES[version - 3],
            Self::Vscsi { version: 1 } => 32,
            Self::Vscsi { .. } => 40,
        }
    }

    fn decode(self, record: &[u8]) -> Result<Request, Fault> {
        let object = |time_seconds, key, size: u64, op, ttl_seconds| {
            let size = u32::try_from(size).map_err(|_| format!("an object of {size} bytes is more than 2^32"))?;
            let key_size = FULL_WIDTH.min(size);
            Ok(Request { time_seconds, key, key_size, value_size: size - key_size, op, ttl_seconds })
        };
        match self {
            Self::Oracle => Ok(oracle::decode(record.try_into().expect("a record has its size"))),
            Self::Lcs { version: 1 } => {
                object(word(record, 0).into(), long(record, 4), word(record, 12).into(), Op::Get, 0)
            }
            Self::Lcs { version: 2 } => {
                object(word(record, 0).into(), long(record, 4), word(record, 12).into(), lcs_op(record[16])?, 0)
            }
            Self::Lcs { .. } => {
                let (op, ttl) = (lcs_op(record[20])?, word(record, 24));
                object(word(record, 0).into(), long(record, 4), long(record, 12), op, ttl)
            }
            Self::Vscsi { version } => {
                let (length, command) = vscsi_offsets(version);
                let (block, microseconds) = (long(record, 16), long(record, VSCSI_TIME));
                let op = scsi_op(half(record, command));
                object(microseconds / 1_000_000, block, word(record, length).into(), op, 0)
            }
        }
    }
}

/// Checks that no transfer is too long, and that no time is of the far future or falls far below an earlier one.
fn check_vscsi<'r>(records: impl Iterator<Item = &'r [u8]>, version: u16) -> Result<(), String> {
    let mut latest = 0;
    for (index, record) in records.enumerate() {
        let (length, time) = (word(record, vscsi_offsets(version).0), long(record, VSCSI_TIME));
        let fault = if length > MAX_TRANSFER_BYTES {
            format!("its length is {length} bytes")
        } else if time > MAX_MICROSECONDS {
            format!("its time is {time} us")
        } else if time + MAX_DISORDER_MICROSECONDS < latest {
            format!("its time falls from {latest} to {time} us")
        } else {
            latest = latest.max(time);
            continue;
        };
        return Err(format!("record {} is none of vscsi: {fault}", index + 1));
    }
    Ok(())
}

/// Offsets of the length and the command in a record of this version of vscsi.
fn vscsi_offsets(version: u16) -> (usize, usize) {
    if version == 1 { (4, 12) } else { (8, 0) }
}

fn half(record: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([record[at], record[at + 1]])
}

fn word(record: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|index| record[at + index]))
}

fn long(record: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|index| record[at + index]))
}

/// libCacheSim's numbers of operations; those of block traces are read, write and update.
fn lcs_op(number: u8) -> Result<Op, Fault> {
    Ok(match number {
        // Traces that were converted without operations have 0.
        0 | 1 | 12 => Op::Get,
        2 => Op::Gets,
        3 | 13 | 14 => Op::Set,
        4 => Op::Add,
        5 => Op::Cas,
        6 => Op::Replace,
        7 => Op::Append,
        8 => Op::Prepend,
        9 => Op::Delete,
        10 => Op::Incr,
        11 => Op::Decr,
        _ => return Err(format!("unknown operation {number}")),
    })
}

/// WRITE(6), WRITE(10), WRITE(16) and WRITE(12); every other command reads.
fn scsi_op(command: u16) -> Op {
    if matches!(command & 0xFF, 0x0A | 0x2A | 0x8A | 0xAA) { Op::Set } else { Op::Get }
}

/// Reads records one after the other.
pub(super) struct Records<R> {
    input: R,
    layout: RecordFormat,
    number: u64,
}

impl<R: Read> Records<R> {
    /// `input` stands after the header.
    pub(super) fn new(input: R, layout: RecordFormat) -> Self {
        Self { input, layout, number: 0 }
    }

    /// The number of the record returned last, counted from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The next request, or the error of its record; `None` at the end. Ends: every turn of the loop reads a record.
    pub(super) fn next(&mut self) -> io::Result<Option<Result<Request, Fault>>> {
        let mut buffer = [0; MAX_RECORD];
        let record = &mut buffer[..self.layout.size()];
        self.number += 1;
        let mut filled = 0;
        while filled < record.len() {
            match self.input.read(&mut record[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => {
                    return Ok(Some(Err(format!("the file ends after {filled} of {} bytes", record.len()))));
                }
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(self.layout.decode(record)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], layout: RecordFormat) -> Vec<Result<Request, Fault>> {
        let mut records = Records::new(bytes, layout);
        std::iter::from_fn(|| records.next().unwrap()).collect()
    }

    #[test]
    fn lcs_is_known_by_its_magic_number() {
        let mut header = vec![0; LCS_HEADER];
        header[..8].copy_from_slice(&LCS_MAGIC.to_le_bytes());
        header[8] = 3;
        let layout = RecordFormat::lcs(&header).unwrap();
        assert_eq!((layout, layout.header_size()), (RecordFormat::Lcs { version: 3 }, LCS_HEADER));
        header[8] = 9;
        assert!(RecordFormat::lcs(&header).unwrap_err().contains("version 9"));
        assert!(RecordFormat::lcs(b"short").is_err());
        let sizes = (1..=8).map(|version| RecordFormat::Lcs { version }.size()).collect::<Vec<_>>();
        assert_eq!(sizes, [24, 28, 36, 40, 44, 52, 68, 100]);
    }

    #[test]
    fn a_record_of_lcs_has_operation_and_ttl() {
        let mut record = Vec::new();
        record.extend(7_u32.to_le_bytes());
        record.extend(77_u64.to_le_bytes());
        record.extend(500_i64.to_le_bytes());
        record.extend([3, 1, 0, 0]);
        record.extend(60_u32.to_le_bytes());
        record.extend((-1_i64).to_le_bytes());
        let requests = all(&record, RecordFormat::Lcs { version: 3 });
        let request = requests[0].as_ref().unwrap();
        assert_eq!((request.time_seconds, request.key, request.op, request.ttl_seconds), (7, 77, Op::Set, 60));
        assert_eq!(request.key_size + request.value_size, 500);
        record[20] = 99;
        assert!(all(&record, RecordFormat::Lcs { version: 3 })[0].is_err());
        assert!(
            all(&record[..30], RecordFormat::Lcs { version: 3 })[0].as_ref().unwrap_err().contains("after 30 of 36")
        );
    }

    #[test]
    fn both_versions_of_vscsi_are_read() {
        let mut first = Vec::new();
        for part in [&1_u32.to_le_bytes()[..], &4096_u32.to_le_bytes(), &[0; 4], &[0x2A, 0], &[0, 1]] {
            first.extend(part);
        }
        first.extend(9_u64.to_le_bytes());
        first.extend(3_000_000_u64.to_le_bytes());
        let layout = RecordFormat::vscsi(&first).unwrap();
        assert_eq!(layout, RecordFormat::Vscsi { version: 1 });
        let request = all(&first, layout)[0].clone().unwrap();
        assert_eq!((request.time_seconds, request.key, request.op), (3, 9, Op::Set));
        assert_eq!(request.key_size + request.value_size, 4096);
        let mut second = Vec::new();
        for part in [&[0x28_u8, 0][..], &[0, 2], &[0; 4], &512_u32.to_le_bytes(), &[0; 4]] {
            second.extend(part);
        }
        for long in [9_u64, 5_000_000, 0] {
            second.extend(long.to_le_bytes());
        }
        let layout = RecordFormat::vscsi(&second).unwrap();
        let request = all(&second, layout)[0].clone().unwrap();
        assert_eq!((request.time_seconds, request.key, request.op), (5, 9, Op::Get));
        assert!(RecordFormat::vscsi(&[0; 80]).is_err());
    }

    #[test]
    fn files_that_resemble_vscsi_are_refused() {
        // Version 2 at offset 2, its length at 8, its time at 24.
        let record = |length: u32, microseconds: u64| {
            let mut record = [0_u8; 40];
            record[3] = 2;
            record[8..12].copy_from_slice(&length.to_le_bytes());
            record[24..32].copy_from_slice(&microseconds.to_le_bytes());
            record
        };
        let tell = |records: &[[u8; 40]]| RecordFormat::vscsi(&records.concat());
        let minute = 60_000_000;
        assert!(tell(&[record(512, 2 * minute), record(1 << 31, minute), record(0, 9 * minute)]).is_ok());
        for (records, fault) in [
            (vec![record(512, 5), record((1 << 31) + 1, 6)], "record 2 is none of vscsi: its length is"),
            (vec![record(512, u64::MAX)], "record 1 is none of vscsi: its time is"),
            (vec![record(512, 2 * minute), record(512, minute - 1)], "its time falls from 120000000 to 59999999 us"),
        ] {
            let error = tell(&records).unwrap_err();
            assert!(error.contains(fault), "{error}");
        }
        // Numbers of 16 bits between 256 and 511.
        let numbers: Vec<u8> = (0..400_u16).flat_map(|number| (256 + number % 256).to_le_bytes()).collect();
        assert!(RecordFormat::vscsi(&numbers).is_err());
    }
}
