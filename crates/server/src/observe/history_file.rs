//! The minutes of the history on disk: a ring of fixed records, one for each minute of a week.
//!
//! ```text
//! 0    "EBBHIST1"
//! 8    record of minute 0 of the ring: 13 words of 8 bytes, little endian, and their checksum
//! 120  record of minute 1
//! ...
//! ```
//! A minute's place follows from its time, and a record is written again each second while its minute lasts. So there
//! is no head that could disagree with the records. A torn or foreign record fails its checksum or its place, and is
//! skipped. Nothing is synchronized: a crash of the machine may lose the last minutes.

use std::cmp::Reverse;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::history_point::{HistoryPoint, MINUTE_MS, MINUTES};

const MAGIC: &[u8; 8] = b"EBBHIST1";
const WORDS: usize = 13;
const RECORD: usize = (WORDS + 1) * 8;

#[derive(Debug)]
pub struct HistoryFile {
    file: File,
}

impl HistoryFile {
    /// Opens a file of an earlier run, or makes one.
    ///
    /// # Errors
    /// `InvalidData` for a file that holds something else; it stays as it is.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let length = file.metadata()?.len();
        if length == 0 {
            file.write_all_at(MAGIC, 0)?;
            return Ok(Self { file });
        }
        let mut magic = [0; 8];
        match file.read_exact_at(&mut magic, 0) {
            Ok(()) if magic == *MAGIC => Ok(Self { file }),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it is not a history of Ebbtide; name another file, or remove this one",
            )),
        }
    }

    /// The minutes that the file holds, at most a week back from the newest, oldest first.
    pub fn read(&self) -> Vec<HistoryPoint> {
        let mut points = Vec::new();
        let mut record = [0; RECORD];
        for slot in 0..MINUTES as u64 {
            if self.file.read_exact_at(&mut record, offset(slot)).is_err() {
                break;
            }
            points.extend(decode(&record).filter(|point| slot_of(point) == slot));
        }
        points.sort_by_key(|point| Reverse(point.time_unix_ms));
        let newest = points.first().map_or(0, |point| point.time_unix_ms);
        points.retain(|point| point.time_unix_ms + MINUTES as u64 * MINUTE_MS > newest);
        points.reverse();
        points
    }

    /// Writes the record of a minute. A full disk costs the history, and nothing else.
    pub fn write(&self, point: &HistoryPoint) {
        let _ = self.file.write_all_at(&encode(point), offset(slot_of(point)));
    }
}

fn slot_of(point: &HistoryPoint) -> u64 {
    point.time_unix_ms / MINUTE_MS % MINUTES as u64
}

fn offset(slot: u64) -> u64 {
    MAGIC.len() as u64 + slot * RECORD as u64
}

fn encode(point: &HistoryPoint) -> [u8; RECORD] {
    let words: [u64; WORDS] = [
        point.time_unix_ms,
        point.gets,
        point.hits,
        point.sets,
        point.evictions,
        point.expirations,
        point.bytes_read,
        point.bytes_written,
        point.items,
        point.used_bytes,
        point.connections,
        point.get_p50_us.to_bits(),
        point.get_p99_us.to_bits(),
    ];
    let mut record = [0; RECORD];
    for (bytes, word) in record.chunks_exact_mut(8).zip(words.into_iter().chain([checksum(&words)])) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    record
}

fn decode(record: &[u8; RECORD]) -> Option<HistoryPoint> {
    let mut words = [0u64; WORDS + 1];
    for (word, bytes) in words.iter_mut().zip(record.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    let (words, sum) = (&words[..WORDS], words[WORDS]);
    if sum != checksum(words) || words[0] == 0 {
        return None;
    }
    Some(HistoryPoint {
        time_unix_ms: words[0],
        gets: words[1],
        hits: words[2],
        sets: words[3],
        evictions: words[4],
        expirations: words[5],
        bytes_read: words[6],
        bytes_written: words[7],
        items: words[8],
        used_bytes: words[9],
        connections: words[10],
        get_p50_us: f64::from_bits(words[11]),
        get_p99_us: f64::from_bits(words[12]),
    })
}

/// FNV-1a over the words: it tells a torn record from a whole one.
fn checksum(words: &[u64]) -> u64 {
    words.iter().fold(0xCBF2_9CE4_8422_2325, |sum, word| (sum ^ word).wrapping_mul(0x0000_0100_0000_01B3))
}
