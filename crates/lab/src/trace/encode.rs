//! Records of lcs and vscsi as they are written; `records.rs` draws and reads them.
//!
//! lcs is written in version 3, which has operations and TTLs. Its header has the counts of the whole trace, so that it
//! comes last: the requests are held until then.
//!
//! ```text
//! lcs header   | magic:u64 | version:u64 | counts:i64 x 12 | 0 ... | magic:u64 |     8,192 bytes
//! counts       version of the counts, requests, objects, bytes of requests, bytes of objects, first time, last time,
//!              reads, writes, deletes, smallest object, largest object
//! ```
//! vscsi is written in version 1: reads and writes of blocks, without TTLs and deletes.

use std::collections::HashMap;

use super::records::{LCS_HEADER, LCS_MAGIC};
use super::{Op, Request};

const LCS_VERSION: u64 = 3;
const LCS_RECORD: usize = 36;
/// Version of the counts in the header.
const COUNTS_VERSION: i64 = 1;
const VSCSI_RECORD: usize = 32;
const VSCSI_VERSION: u16 = 1 << 8;
/// READ(10) and WRITE(10).
const SCSI_READ: u16 = 0x28;
const SCSI_WRITE: u16 = 0x2A;

/// The header of an lcs trace of these requests.
pub(super) fn lcs_header<'a>(requests: impl Iterator<Item = &'a Request>) -> Vec<u8> {
    let (mut first, mut last, mut count, mut bytes) = (None, 0, 0, 0);
    let (mut reads, mut writes, mut deletes) = (0, 0, 0);
    let mut objects: HashMap<u64, u64> = HashMap::new();
    for request in requests {
        let size = object_size(request);
        (first, last) = (first.or(Some(request.time_seconds)), request.time_seconds);
        (count, bytes) = (count + 1, bytes + size);
        match request.op {
            Op::Get | Op::Gets => reads += 1,
            Op::Delete => deletes += 1,
            _ => writes += 1,
        }
        objects.entry(request.key).or_insert(size);
    }
    let sizes = || objects.values().copied();
    let (smallest, largest) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
    let counts = [count, objects.len() as u64, bytes, sizes().sum(), first.unwrap_or(0), last];
    let mut header = Vec::with_capacity(LCS_HEADER);
    header.extend(LCS_MAGIC.to_le_bytes());
    header.extend(LCS_VERSION.to_le_bytes());
    header.extend(COUNTS_VERSION.to_le_bytes());
    for number in counts.into_iter().chain([reads, writes, deletes, smallest, largest]) {
        header.extend(i64::try_from(number).unwrap_or(i64::MAX).to_le_bytes());
    }
    header.resize(LCS_HEADER - size_of::<u64>(), 0);
    header.extend(LCS_MAGIC.to_le_bytes());
    header
}

/// The record of a request whose key is asked for again by the request at position `next`, or never (-1). Times beyond
/// 32 bits count as the largest.
pub(super) fn lcs_record(request: &Request, next: i64) -> [u8; LCS_RECORD] {
    let mut record = [0; LCS_RECORD];
    record[..4].copy_from_slice(&u32::try_from(request.time_seconds).unwrap_or(u32::MAX).to_le_bytes());
    record[4..12].copy_from_slice(&request.key.to_le_bytes());
    record[12..20].copy_from_slice(&object_size(request).to_le_bytes());
    record[20] = lcs_number(request.op);
    record[24..28].copy_from_slice(&request.ttl_seconds.to_le_bytes());
    record[28..].copy_from_slice(&next.to_le_bytes());
    record
}

/// The record at this position, from 0. Sizes beyond 32 bits count as the largest.
pub(super) fn vscsi_record(request: &Request, position: u64) -> [u8; VSCSI_RECORD] {
    let command = if matches!(request.op, Op::Get | Op::Gets) { SCSI_READ } else { SCSI_WRITE };
    let mut record = [0; VSCSI_RECORD];
    record[..4].copy_from_slice(&(position as u32).to_le_bytes());
    record[4..8].copy_from_slice(&u32::try_from(object_size(request)).unwrap_or(u32::MAX).to_le_bytes());
    record[12..14].copy_from_slice(&command.to_le_bytes());
    record[14..16].copy_from_slice(&VSCSI_VERSION.to_le_bytes());
    record[16..24].copy_from_slice(&request.key.to_le_bytes());
    record[24..].copy_from_slice(&request.time_seconds.saturating_mul(1_000_000).to_le_bytes());
    record
}

fn object_size(request: &Request) -> u64 {
    u64::from(request.key_size) + u64::from(request.value_size)
}

/// libCacheSim's number of an operation.
fn lcs_number(op: Op) -> u8 {
    match op {
        Op::Get => 1,
        Op::Gets => 2,
        Op::Set => 3,
        Op::Add => 4,
        Op::Cas => 5,
        Op::Replace => 6,
        Op::Append => 7,
        Op::Prepend => 8,
        Op::Delete => 9,
        Op::Incr => 10,
        Op::Decr => 11,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_of_lcs_counts_the_trace() {
        let request = |time_seconds, key, value_size, op| Request {
            time_seconds,
            key,
            key_size: 20,
            value_size,
            op,
            ttl_seconds: 0,
        };
        let trace = [request(5, 1, 80, Op::Get), request(6, 2, 30, Op::Set), request(9, 1, 0, Op::Delete)];
        let header = lcs_header(trace.iter());
        let word = |at: usize| u64::from_le_bytes(header[8 * at..8 * at + 8].try_into().unwrap());
        assert_eq!((header.len(), word(0), word(1023)), (LCS_HEADER, LCS_MAGIC, LCS_MAGIC));
        let counts: Vec<u64> = (1..14).map(word).collect();
        assert_eq!(counts, [3, 1, 3, 2, 170, 150, 5, 9, 1, 1, 1, 50, 100]);
    }
}
