//! The history on disk: a ring of fixed records, one for each minute of a week, and the events of each kind.
//!
//! ```text
//! 0        "EBBHIST2"
//! 8        record of minute 0 of the ring: 13 words of 8 bytes, little endian, and their checksum
//! 120      record of minute 1
//! ...
//! 1128968  events: 8 kinds of 32 places of 512 bytes: begin, last, count, kind u8 and length of the reason u56,
//!          checksum of the record, reason
//! ```
//! A minute's place follows from its time, and a record is written again each second while its minute lasts. So there
//! is no head that could disagree with the records. A torn or foreign record fails its checksum or its place, and is
//! skipped; so is a record of the future, which a clock that was wrong has left. An event is written again whenever its
//! count grows; a new one takes the place of the oldest of its kind. A file of version 1 is one without events, and
//! becomes one of this version when it is opened. Nothing is synchronized: a crash of
//! the machine may lose the last minutes. One server at a time has the file, by a lock that the kernel releases with
//! the process.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use ebbtide::message;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::{AccessFlags, access};

use super::event_record::{self, EVENT_RECORD};
use super::events::{Event, EventKind, PLACES};
use super::history_point::{HistoryPoint, MINUTE_MS, MINUTES};

const MAGIC: &[u8; 8] = b"EBBHIST2";
/// A file without events.
const MAGIC_BEFORE: &[u8; 8] = b"EBBHIST1";
/// The magic number of all versions; one character, the version, follows.
const FAMILY: &[u8] = b"EBBHIST";
const WORDS: usize = 13;
const RECORD: usize = (WORDS + 1) * 8;

#[derive(Debug)]
pub struct HistoryFile {
    file: Flock<File>,
    /// The last write failed, which was reported.
    is_failing: Cell<bool>,
}

impl HistoryFile {
    /// Opens a file of an earlier run, or makes one.
    ///
    /// # Errors
    /// `InvalidData` for a file that holds something else or is of another version; it stays as it is.
    /// `ResourceBusy` for the file of another server.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let file = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
            Errno::EWOULDBLOCK => io::Error::new(
                io::ErrorKind::ResourceBusy,
                "another server writes its history there; name a file for each server",
            ),
            error => error.into(),
        })?;
        if !is_current(&file)? {
            file.write_all_at(MAGIC, 0)?;
        }
        Ok(Self { file, is_failing: Cell::new(false) })
    }

    /// Whether `open` would accept this path. Creates and changes nothing, and accepts the file of another server.
    ///
    /// # Errors
    /// Those of `open`, but `ResourceBusy`.
    pub fn check(path: &Path) -> io::Result<()> {
        match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => is_current(&file).map(drop),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
                access(folder, AccessFlags::W_OK | AccessFlags::X_OK).map_err(io::Error::from)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether another server has this file: `open` would refuse it.
    pub fn is_held(path: &Path) -> bool {
        let is_locked = |file| matches!(Flock::lock(file, FlockArg::LockSharedNonblock), Err((_, Errno::EWOULDBLOCK)));
        File::open(path).is_ok_and(is_locked)
    }

    /// The minutes that the file holds, of the week up to `now_unix_ms`, oldest first.
    pub fn read(&self, now_unix_ms: u64) -> Vec<HistoryPoint> {
        let first = now_unix_ms.saturating_sub(MINUTES as u64 * MINUTE_MS);
        let mut points = Vec::new();
        let mut record = [0; RECORD];
        for slot in 0..MINUTES as u64 {
            if self.file.read_exact_at(&mut record, offset(slot)).is_err() {
                break;
            }
            points.extend(decode(&record).filter(|point| slot_of(point) == slot));
        }
        points.retain(|point| (first..=now_unix_ms).contains(&point.time_unix_ms));
        points.sort_by_key(|point| point.time_unix_ms);
        points
    }

    /// The events that the file holds, of the week up to `now_unix_ms`, with their places.
    pub fn read_events(&self, now_unix_ms: u64) -> Vec<(usize, Event)> {
        let first = now_unix_ms.saturating_sub(MINUTES as u64 * MINUTE_MS);
        let mut record = [0; EVENT_RECORD];
        let places = (0..EventKind::ALL.len()).flat_map(|kind| (0..PLACES).map(move |place| (kind, place)));
        let events = places.filter_map(|(kind, place)| {
            self.file.read_exact_at(&mut record, event_offset(kind, place)).ok()?;
            let event = event_record::decode(&record).filter(|event| event.kind as usize == kind)?;
            let is_of_week = event.time_unix_ms >= first && event.last_unix_ms <= now_unix_ms;
            is_of_week.then_some((place, event))
        });
        events.collect()
    }

    /// Writes the record of a minute. A full disk costs the history, and nothing else: the first of several failures is
    /// reported.
    pub fn write(&self, point: &HistoryPoint) {
        self.write_record(&encode(point), offset(slot_of(point)));
    }

    /// Writes the event in a place of its kind, as `write`.
    pub fn write_event(&self, place: usize, event: &Event) {
        self.write_record(&event_record::encode(event), event_offset(event.kind as usize, place));
    }

    fn write_record(&self, record: &[u8], offset: u64) {
        let written = self.file.write_all_at(record, offset);
        let was_failing = self.is_failing.replace(written.is_err());
        if let Err(error) = written
            && !was_failing
        {
            message!("ebbtide: warning: --history-file: {error}; the history is kept in memory until a write succeeds");
        }
    }
}

/// Whether a file has the magic number of this version; one that has a part of it, or that of version 1, gets it.
///
/// # Errors
/// `InvalidData` for a file that holds something else or is of another version.
fn is_current(file: &File) -> io::Result<bool> {
    let mut start = [0; MAGIC.len()];
    let length = (file.metadata()?.len() as usize).min(start.len());
    file.read_exact_at(&mut start[..length], 0)?;
    let start = &start[..length];
    // A kill while a new file was made leaves a part of the magic number.
    if start == MAGIC_BEFORE || MAGIC.starts_with(start) {
        return Ok(start == MAGIC);
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, refusal(start)))
}

/// Why a file that begins with `start` is none of this version.
fn refusal(start: &[u8]) -> String {
    match start.strip_prefix(FAMILY) {
        Some(version) => format!(
            "it is a history in version {} and this server writes version {}; name another file, or remove this one",
            version.escape_ascii(),
            MAGIC[FAMILY.len()..].escape_ascii()
        ),
        None => "it is not a history of Ebbtide; name another file, or remove this one".to_owned(),
    }
}

fn slot_of(point: &HistoryPoint) -> u64 {
    point.time_unix_ms / MINUTE_MS % MINUTES as u64
}

fn offset(slot: u64) -> u64 {
    MAGIC.len() as u64 + slot * RECORD as u64
}

fn event_offset(kind: usize, place: usize) -> u64 {
    offset(MINUTES as u64) + ((kind * PLACES + place) * EVENT_RECORD) as u64
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

/// FNV-1a over the words: detects a torn record.
fn checksum(words: &[u64]) -> u64 {
    words.iter().fold(0xCBF2_9CE4_8422_2325, |sum, word| (sum ^ word).wrapping_mul(0x0000_0100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000;

    fn at(minutes_ago: u64) -> HistoryPoint {
        HistoryPoint { time_unix_ms: NOW - minutes_ago * MINUTE_MS, gets: minutes_ago + 1, ..HistoryPoint::default() }
    }

    /// A file with these minutes.
    fn file_with(points: &[HistoryPoint]) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let file = HistoryFile::open(&path).unwrap();
        points.iter().for_each(|point| file.write(point));
        (folder, path)
    }

    fn gets(path: &Path) -> Vec<u64> {
        HistoryFile::open(path).unwrap().read(NOW).iter().map(|point| point.gets).collect()
    }

    #[test]
    fn a_torn_record_is_skipped_alone() {
        let (_folder, path) = file_with(&[at(2), at(1), at(0)]);
        let whole = std::fs::read(&path).unwrap();
        let (old, new) = (encode(&at(1)), encode(&HistoryPoint { gets: 77, ..at(1) }));
        let place = offset(slot_of(&at(1))) as usize;
        for cut in 0..=RECORD {
            let mut torn = whole.clone();
            torn[place..place + cut].copy_from_slice(&new[..cut]);
            std::fs::write(&path, &torn).unwrap();
            let middle = match &torn[place..place + RECORD] {
                record if record == old => vec![2],
                record if record == new => vec![77],
                _ => vec![],
            };
            assert_eq!(gets(&path), [vec![3], middle, vec![1]].concat(), "{cut} of {RECORD} bytes");
        }
    }

    #[test]
    fn events_have_their_places_behind_the_minutes() {
        assert_eq!((event_offset(0, 0), event_offset(7, 31)), (1_128_968, 1_128_968 + 255 * 512));
        let (_folder, path) = file_with(&[at(1)]);
        let event = |minutes_ago: u64, kind| {
            let time = NOW - minutes_ago * MINUTE_MS;
            Event { time_unix_ms: time, kind, reason: format!("{minutes_ago}"), count: 1, last_unix_ms: time }
        };
        let file = HistoryFile::open(&path).unwrap();
        let (flush, resize) = (event(9, EventKind::Flush), event(10, EventKind::Resize));
        file.write_event(0, &flush);
        file.write_event(31, &resize);
        file.write_event(1, &event(8 * 24 * 60, EventKind::Flush));
        let future = Event { time_unix_ms: NOW + 1, last_unix_ms: NOW + 1, ..event(0, EventKind::Flush) };
        file.write_event(2, &future);
        // A record of one kind among those of another.
        file.write_record(&event_record::encode(&flush), event_offset(EventKind::Resize as usize, 3));
        assert_eq!(file.read_events(NOW), [(31, resize), (0, flush)]);
        assert_eq!(file.read(NOW).len(), 1);
    }

    #[test]
    fn a_file_of_version_1_is_taken_over() {
        let (_folder, path) = file_with(&[at(2), at(1)]);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[..8].copy_from_slice(MAGIC_BEFORE);
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(gets(&path), [3, 2]);
        assert_eq!(HistoryFile::open(&path).unwrap().read_events(NOW), []);
        assert_eq!(&std::fs::read(&path).unwrap()[..8], MAGIC);
    }

    #[test]
    fn a_truncated_file_keeps_its_whole_records() {
        let mut points: Vec<HistoryPoint> = (0..5).map(at).collect();
        points.sort_by_key(slot_of);
        let (_folder, path) = file_with(&points);
        let length = std::fs::metadata(&path).unwrap().len();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        for kept in [length - 1, offset(slot_of(&points[3])), offset(slot_of(&points[1])) + 5, 8, 3, 0] {
            file.set_len(kept).unwrap();
            let whole = points.iter().filter(|point| offset(slot_of(point)) + RECORD as u64 <= kept).count();
            assert_eq!(gets(&path).len(), whole, "{kept} bytes");
        }
        assert_eq!(std::fs::read(&path).unwrap(), MAGIC, "a part of the magic number is completed");
    }

    #[test]
    fn another_version_is_refused_by_its_number() {
        let (_folder, path) = file_with(&[]);
        std::fs::write(&path, b"EBBHIST3 and what follows").unwrap();
        let refused = HistoryFile::open(&path).unwrap_err().to_string();
        assert!(refused.contains("version 3") && refused.contains("version 2"), "{refused}");
        assert_eq!(HistoryFile::check(&path).unwrap_err().to_string(), refused);
    }

    #[test]
    fn records_of_the_future_hide_no_others() {
        let future = HistoryPoint { time_unix_ms: NOW + 30 * 24 * 60 * MINUTE_MS + 7 * MINUTE_MS, ..at(0) };
        let old = HistoryPoint { time_unix_ms: NOW - (MINUTES as u64 + 3) * MINUTE_MS, ..at(0) };
        let (_folder, path) = file_with(&[at(1), future, old]);
        assert_eq!(gets(&path), [2]);
    }

    #[test]
    fn a_record_in_a_wrong_slot_is_skipped() {
        let (_folder, path) = file_with(&[at(1)]);
        let file = HistoryFile::open(&path).unwrap();
        file.file.write_all_at(&encode(&at(1)), offset(slot_of(&at(5)))).unwrap();
        drop(file);
        assert_eq!(gets(&path), [2]);
    }

    #[test]
    fn two_servers_do_not_share_a_file() {
        let (_folder, path) = file_with(&[]);
        let first = HistoryFile::open(&path).unwrap();
        HistoryFile::check(&path).unwrap();
        assert!(HistoryFile::is_held(&path));
        let refused = HistoryFile::open(&path).unwrap_err();
        assert!(refused.to_string().contains("another server"), "{refused}");
        drop(first);
        assert!(!HistoryFile::is_held(&path) && !HistoryFile::is_held(&path.with_extension("absent")));
        HistoryFile::open(&path).unwrap();
    }

    #[test]
    fn a_failed_write_is_noted_and_writes_continue() {
        let (_folder, path) = file_with(&[]);
        let file = Flock::lock(std::fs::File::open(&path).unwrap(), FlockArg::LockShared).unwrap();
        let read_only = HistoryFile { file, is_failing: Cell::new(false) };
        read_only.write(&at(0));
        assert!(read_only.is_failing.get());
        drop(read_only);
        let writable = HistoryFile { is_failing: Cell::new(true), ..HistoryFile::open(&path).unwrap() };
        writable.write(&at(0));
        assert!(!writable.is_failing.get());
    }
}
