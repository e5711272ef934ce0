//! libCacheSim's oracleGeneral: records of 24 bytes, little-endian, without padding.
//!
//! ```text
//! 0        4               12       16              24
//! | time:u32 | object id:u64 | size:u32 | next access:i64 |
//! ```
//! All requests are gets without expiry. The size is that of the whole object: as many bytes as every id fits are
//! taken for the key, the rest for the value. The next access is for clairvoyant policies and is not used.

use super::{Op, Request};
use crate::keys::FULL_WIDTH;

pub(super) const RECORD_SIZE: usize = 24;

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

pub(super) fn decode(record: &[u8; RECORD_SIZE]) -> Request {
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

/// Never is -1; libCacheSim's converters also write -2 and the largest number.
const NEVER: [i64; 3] = [-1, -2, i64::MAX];
/// More requests than a trace has: at this number it would be 24 TB long.
const MAX_REQUESTS: i64 = 1 << 40;
/// Largest object that is accepted: 1 TiB would not fit the field, and no published trace has one of 2 GiB.
const MAX_OBJECT_BYTES: u32 = 1 << 31;

/// Checks the records at the beginning of a file: times do not fall, sizes are below 2 GiB, and the next access,
/// counted in requests, lies behind the record's own position. The error names the first record (from 1) that cannot be
/// one.
pub(super) fn check_plausible(start: &[u8]) -> Result<(), String> {
    let mut latest = 0;
    for (position, record) in start.chunks_exact(RECORD_SIZE).enumerate() {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| record[at + i]));
        let next = i64::from_le_bytes(std::array::from_fn(|i| record[16 + i]));
        let (time, size) = (word(0), word(12));
        let fault = if time < latest {
            format!("its time falls from {latest} to {time}")
        } else if size > MAX_OBJECT_BYTES {
            format!("its size is {size} bytes")
        } else if !NEVER.contains(&next) && !(position as i64 + 1..MAX_REQUESTS).contains(&next) {
            format!("its next access is request {next}")
        } else {
            latest = time;
            continue;
        };
        return Err(format!("record {} is none of oracleGeneral: {fault}", position + 1));
    }
    if start.len() < RECORD_SIZE {
        return Err(format!("{} bytes are less than a record of oracleGeneral", start.len()));
    }
    Ok(())
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
    fn records_that_cannot_be_are_found() {
        let request =
            |time_seconds| Request { time_seconds, key: 7, key_size: 8, value_size: 92, op: Op::Get, ttl_seconds: 0 };
        let records = |all: &[(u64, i64)]| -> Vec<u8> {
            all.iter().flat_map(|&(time, next)| encode(&request(time), next)).collect()
        };
        assert_eq!(check_plausible(&records(&[(5, 1), (5, -1), (6, -2), (9, i64::MAX)])), Ok(()));
        for (bytes, reason) in [
            (records(&[(5, 1), (4, -1)]), "record 2 is none of oracleGeneral: its time falls from 5 to 4"),
            (records(&[(5, 0)]), "its next access is request 0"),
            (records(&[(5, 1), (5, 1)]), "its next access is request 1"),
            (records(&[(5, -3)]), "its next access is request -3"),
            (records(&[(5, 1 << 40)]), "its next access"),
            ([[0xFF; 4], [0; 4], [0; 4], [0xFF; 4], [0xFF; 4], [0xFF; 4]].concat(), "its size is"),
            (vec![0; 23], "less than a record"),
        ] {
            let error = check_plausible(&bytes).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
