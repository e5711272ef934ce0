//! The journal of a process that is killed: a file for each thread, with a record before and after each operation. A
//! kill of the process loses no byte that a write call took. A write call that a kill cuts short ends at a page, so no
//! record lies in two.
//!
//! ```text
//! record   key u32 | what u8 | ended u8 | life u16 | moment of the begin u64 | moment of the record u64 | 0 u64
//! ```
//! The moment at which a write begins is the version of its value, and sets and touches have the life that they give.
//! Between two processes a journal is cut to its last record, which has the moment to go on from.

use super::pools;
use ebbtide::memcached::Ttl;
use ebbtide_testkit::Random;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

const RECORD_BYTES: usize = 32;
const _: () = assert!(4096 % RECORD_BYTES == 0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum What {
    Set,
    Delete,
    /// One more.
    Count,
    Flush,
    Nothing,
    /// A flush or a removal of the pool whose number is in place of the key.
    FlushPool,
    /// Another life.
    Touch,
    /// One more, or a new value that has this one alone and never expires.
    CountOrSet,
}

impl What {
    fn of(byte: u8) -> Self {
        let all = [
            Self::Set,
            Self::Delete,
            Self::Count,
            Self::Flush,
            Self::Nothing,
            Self::FlushPool,
            Self::Touch,
            Self::CountOrSet,
        ];
        all[usize::from(byte)]
    }
}

/// The life of a value from its last set or touch on, in periods; 0: it never ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Periods(u16);

impl Periods {
    pub const ENDLESS: Self = Self(0);
    /// An expiry is up to 16,384 seconds early with this many of them, and a test ends within one.
    const MAX: u64 = 16;
    const SECONDS: u32 = 100_000;

    pub fn random(random: &mut Random) -> Self {
        Self(random.uniform(Self::MAX + 1) as u16)
    }

    pub fn ttl(self) -> Ttl {
        if self == Self::ENDLESS { Ttl::Never } else { Ttl::seconds(u32::from(self.0) * Self::SECONDS) }
    }

    /// The life of which this is left.
    pub fn of(left: Option<Duration>) -> Self {
        left.map_or(Self::ENDLESS, |left| {
            let periods = left.as_secs_f64() / f64::from(Self::SECONDS);
            assert!(periods > 0.5, "{left:?} is no life that a test gives");
            Self(periods.round() as u16)
        })
    }
}

/// The value of a key: a version, and how often it was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub version: u64,
    pub count: u64,
}

/// The journal of one thread.
pub struct Journal<'c> {
    file: File,
    clock: &'c AtomicU64,
}

impl<'c> Journal<'c> {
    pub fn path(folder: &Path, thread: u32) -> PathBuf {
        folder.join(format!("journal-{thread}"))
    }

    pub fn open(folder: &Path, thread: u32, clock: &'c AtomicU64) -> Self {
        let file = File::options().append(true).create(true).open(Self::path(folder, thread)).unwrap();
        Self { file, clock }
    }

    /// A moment after all of the journals.
    pub fn next_moment(folder: &Path, threads: u32) -> u64 {
        let journals = (0..threads).filter_map(|thread| fs::read(Self::path(folder, thread)).ok());
        let last = |bytes: Vec<u8>| Some(Record::decode(bytes.chunks_exact(RECORD_BYTES).next_back()?).at);
        journals.filter_map(last).max().unwrap_or(0) + 1
    }

    /// Notes that an operation begins which gives no life. Returns its moment.
    pub fn begin(&mut self, key: u32, what: What) -> u64 {
        self.begin_life(key, what, Periods::ENDLESS)
    }

    /// As `begin`, for a set or touch with this life.
    pub fn begin_life(&mut self, key: u32, what: What, life: Periods) -> u64 {
        let at = self.clock.fetch_add(1, SeqCst);
        self.write(Record { key, what, is_end: false, life, begin: at, at });
        at
    }

    /// Notes the result of the operation, before it is acknowledged.
    pub fn end(&mut self, key: u32, what: What, begin: u64) {
        let at = self.clock.fetch_add(1, SeqCst);
        self.write(Record { key, what, is_end: true, life: Periods::ENDLESS, begin, at });
    }

    fn write(&mut self, record: Record) {
        self.file.write_all(&record.encode()).unwrap();
    }
}

#[derive(Clone, Copy, Debug)]
struct Record {
    key: u32,
    what: What,
    is_end: bool,
    life: Periods,
    begin: u64,
    at: u64,
}

impl Record {
    fn encode(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&self.key.to_le_bytes());
        (bytes[4], bytes[5]) = (self.what as u8, u8::from(self.is_end));
        bytes[6..8].copy_from_slice(&self.life.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.begin.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.at.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Self {
        let word = |at: usize| u64::from_le_bytes(bytes[at..][..8].try_into().unwrap());
        let key = u32::from_le_bytes(bytes[..4].try_into().unwrap());
        let life = Periods(u16::from_le_bytes(bytes[6..8].try_into().unwrap()));
        Self { key, what: What::of(bytes[4]), is_end: bytes[5] == 1, life, begin: word(8), at: word(16) }
    }
}

/// A value that a key may have, its life, and when the last change of it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Possible {
    seen: Seen,
    life: Periods,
    end: u64,
}

/// The values that each key may have, by the journals up to now. A key may always be missing.
#[derive(Default)]
pub struct Known {
    possible: BTreeMap<u32, Vec<Possible>>,
    /// The last record of each journal, which a journal begins with once it was read.
    last: BTreeMap<u32, Vec<u8>>,
}

impl Known {
    /// Reads the records since the last call, and cuts the journals. No process writes them.
    pub fn read(&mut self, folder: &Path) {
        let mut records = Vec::new();
        for thread in 0.. {
            let path = Journal::path(folder, thread);
            let Ok(bytes) = fs::read(&path) else { break };
            let known = self.last.get(&thread).map_or(0, Vec::len);
            let new = bytes[known..].chunks_exact(RECORD_BYTES);
            assert!(new.remainder().is_empty(), "a record is written by one call");
            if let Some(last) = new.clone().next_back() {
                fs::write(path, last).unwrap();
                self.last.insert(thread, last.to_vec());
            }
            records.extend(new.map(Record::decode));
        }
        // Operations without an end were over when the process was.
        let killed_at = records.iter().map(|record| record.at).max().unwrap_or(0);
        // An operation takes effect where it begins: of one key they follow each other, and a flush looks at ends.
        let ends: BTreeMap<u64, Record> =
            records.iter().filter(|record| record.is_end).map(|record| (record.begin, *record)).collect();
        let mut begins: Vec<Record> = records.into_iter().filter(|record| !record.is_end).collect();
        begins.sort_by_key(|record| record.begin);
        for begin in begins {
            self.apply(begin, ends.get(&begin.begin), killed_at);
        }
    }

    fn apply(&mut self, begin: Record, end: Option<&Record>, killed_at: u64) {
        let flushed = match begin.what {
            What::Flush => Some(0..u32::MAX),
            What::FlushPool => Some(pools::keys(begin.key)),
            _ => None,
        };
        if let Some(keys) = flushed {
            if end.is_some() {
                let values = self.possible.range_mut(keys);
                values.for_each(|(_, values)| values.retain(|value| value.end >= begin.begin));
            }
            return;
        }
        let values = self.possible.entry(begin.key).or_default();
        let moment = end.map_or(killed_at, |end| end.at);
        let written = Possible { seen: Seen { version: begin.begin, count: 0 }, life: begin.life, end: moment };
        let counted = |value: &Possible| Possible {
            seen: Seen { count: value.seen.count + 1, ..value.seen },
            end: moment,
            ..*value
        };
        let touched = |value: &Possible| Possible { life: begin.life, end: moment, ..*value };
        let of_new = |value: &Possible| Possible { life: Periods::ENDLESS, ..counted(value) };
        let changed: Vec<Possible> = match (begin.what, end.map(|end| end.what)) {
            (_, Some(What::Set)) | (What::Set, None) => vec![written],
            (_, Some(What::Count)) | (What::Count, None) => values.iter().map(counted).collect(),
            (_, Some(What::Touch)) | (What::Touch, None) => values.iter().map(touched).collect(),
            (_, Some(What::CountOrSet)) | (What::CountOrSet, None) => {
                values.iter().flat_map(|value| [counted(value), of_new(value)]).collect()
            }
            (_, Some(What::Delete)) => Vec::new(),
            // It may be missing, as ever.
            _ => return,
        };
        // It was killed: it took effect, or not.
        let before = if end.is_none() { std::mem::take(values) } else { Vec::new() };
        *values = Vec::new();
        for value in before.into_iter().chain(changed) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
    }

    /// Judges a value that was found, while no process writes.
    ///
    /// # Errors
    /// The values that the key may have.
    pub fn saw(&mut self, key: u32, seen: Seen, life: Periods) -> Result<(), String> {
        let values = self.possible.entry(key).or_default();
        match values.iter().find(|value| (value.seen, value.life) == (seen, life)).copied() {
            Some(value) => {
                *values = vec![value];
                Ok(())
            }
            None => Err(format!("key {key} has {seen:?} with {life:?}, and may have {values:?}")),
        }
    }
}
