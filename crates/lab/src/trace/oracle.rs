//! libCacheSim's oracleGeneral: records of 24 bytes, little-endian, without padding.
//!
//! ```text
//! 0        4               12       16              24
//! | time:u32 | object id:u64 | size:u32 | next access:i64 |
//! ```
//! All requests are gets without expiry. The size is that of the whole object: as many bytes as every id fits are
//! taken for the key, the rest for the value. The next access is for clairvoyant policies and is not used.

use std::io::{self, Read};

use super::{Op, Request};
use crate::keys::FULL_WIDTH;

pub(super) const RECORD_SIZE: usize = 24;

/// One record, or what stands in its place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record {
    Request(Request),
    /// The file ends in the middle of a record, after so many bytes.
    Truncated(usize),
    End,
}

pub(super) fn read_record(input: &mut impl Read) -> io::Result<Record> {
    let mut record = [0; RECORD_SIZE];
    let mut filled = 0;
    while filled < RECORD_SIZE {
        match input.read(&mut record[filled..]) {
            Ok(0) if filled == 0 => return Ok(Record::End),
            Ok(0) => return Ok(Record::Truncated(filled)),
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Record::Request(decode(&record)))
}

/// The record of a request whose key is asked for again by the request at position `next` (from 0), or never (-1).
/// Times and sizes beyond 32 bits count as the largest.
pub(crate) fn encode(request: &Request, next: i64) -> [u8; RECORD_SIZE] {
    let time = u32::try_from(request.time_seconds).unwrap_or(u32::MAX);
    let size = request.key_size.saturating_add(request.value_size);
    let mut record = [0; RECORD_SIZE];
    record[..4].copy_from_slice(&time.to_le_bytes());
    record[4..12].copy_from_slice(&request.key.to_le_bytes());
    record[12..16].copy_from_slice(&size.to_le_bytes());
    record[16..].copy_from_slice(&next.to_le_bytes());
    record
}

fn decode(record: &[u8; RECORD_SIZE]) -> Request {
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| record[at + i]));
    let size = word(12);
    Request {
        time_seconds: u64::from(word(0)),
        key: u64::from_le_bytes(std::array::from_fn(|i| record[4 + i])),
        key_size: FULL_WIDTH,
        value_size: size.saturating_sub(FULL_WIDTH),
        op: Op::Get,
        ttl_seconds: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let request =
            Request { time_seconds: 9, key: 1 << 40, key_size: 20, value_size: 300, op: Op::Set, ttl_seconds: 60 };
        let record = encode(&request, 12);
        assert_eq!(record[16..], 12i64.to_le_bytes());
        let read = decode(&record);
        assert_eq!((read.time_seconds, read.key, read.key_size + read.value_size), (9, 1 << 40, 320));
    }

    #[test]
    fn a_record_and_a_truncated_one() {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&77u32.to_le_bytes());
        bytes.extend_from_slice(&0x0102_0304_0506_0708u64.to_le_bytes());
        bytes.extend_from_slice(&5000u32.to_le_bytes());
        bytes.extend_from_slice(&(-1i64).to_le_bytes());
        bytes.extend_from_slice(&[1, 2, 3]);
        let mut input = &bytes[..];
        let Record::Request(request) = read_record(&mut input).unwrap() else {
            panic!("no record");
        };
        assert_eq!(request.time_seconds, 77);
        assert_eq!(request.key, 0x0102_0304_0506_0708);
        assert_eq!(request.key_size + request.value_size, 5000);
        assert_eq!(read_record(&mut input).unwrap(), Record::Truncated(3));
        assert_eq!(read_record(&mut input).unwrap(), Record::End);
    }
}
