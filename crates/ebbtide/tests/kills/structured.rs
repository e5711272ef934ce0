//! Kills beside edits of structured values: after each kill, what an acknowledged edit has left is there or missing,
//! whole, and nothing older is there.
//!
//! All threads of the process that is killed edit all values. The part of a thread in a value is the moments of its
//! edits: the last two in words and maps, where an edit finds the former one, and all that the buffer keeps in a
//! buffer. So a part must be the end of what the thread's journal has for the value, or missing with the value.

use super::PATIENCE;
use super::child::Victim;
use ebbtide::memcached::FlashOptions;
use ebbtide::{ByteSize, Cache, Clock, Error, InsertOptions, Policy};
use ebbtide_store::{KillPoint, arm_kill};
use ebbtide_testkit::{Random, seeds};
use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

const FOLDER: &str = "EBBTIDE_STRUCTURED_KILLS_FOLDER";
/// Seed, number of the point, its passes.
const LIFE: &str = "EBBTIDE_STRUCTURED_KILLS_LIFE";

const THREADS: usize = 3;
const KEYS: u32 = 1200;
const STRUCTURES: [&str; 4] = ["words", "map", "range map", "buffer"];
/// Operations of one thread.
const OPERATIONS: u64 = 4000;
const MAINTAIN_EVERY: u64 = 100;
/// Records that are left in a buffer when it has become long.
const KEPT_RECORDS: usize = 8;

/// Points that edits, evictions and stops pass.
const POINTS: [KillPoint; 7] = [
    KillPoint::Publication,
    KillPoint::Commit,
    KillPoint::RelocationCopy,
    KillPoint::RelocationSlot,
    KillPoint::Removal,
    KillPoint::StopBegin,
    KillPoint::StopClean,
];

/// What an operation does to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum What {
    Edit,
    Delete,
    /// The end of an operation that was refused.
    Nothing,
}

/// A line of a journal, before an operation or after it.
///
/// ```text
/// value u32 | what u8 | ended u8 | 0 u16 | moment of the begin u64 | moment of the record u64 | former edit u64
/// ```
/// The former edit is what an edit has found of its thread; 0 if it has found nothing.
#[derive(Clone, Copy, Debug)]
struct Record {
    value: u32,
    what: What,
    is_end: bool,
    begin: u64,
    at: u64,
    former: u64,
}

const RECORD_BYTES: usize = 32;

impl Record {
    fn encode(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&self.value.to_le_bytes());
        (bytes[4], bytes[5]) = (self.what as u8, self.is_end.into());
        for (place, word) in bytes[8..].chunks_exact_mut(8).zip([self.begin, self.at, self.former]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Self {
        let word = |at: usize| u64::from_le_bytes(bytes[at..][..8].try_into().unwrap());
        let what = [What::Edit, What::Delete, What::Nothing][usize::from(bytes[4])];
        let value = u32::from_le_bytes(bytes[..4].try_into().unwrap());
        Self { value, what, is_end: bytes[5] == 1, begin: word(8), at: word(16), former: word(24) }
    }
}

fn journal(folder: &Path, thread: usize) -> PathBuf {
    folder.join(format!("journal-{thread}"))
}

fn open(folder: &Path) -> Cache {
    let deadline = Instant::now() + PATIENCE;
    loop {
        // Evicts by age, so that values go to flash however often they are edited.
        let builder = Cache::builder().memory(ByteSize::mib(1)).clock(Clock::Manual).policy(Policy::Fifo);
        let options =
            FlashOptions { rewrite_threshold: 1, region_bytes: 64 << 10, seal_seconds: 1, ..FlashOptions::default() };
        let builder = builder.memory_file(folder.join("memory")).flash(folder.join("flash"), ByteSize::mib(8));
        let builder = builder.engine(|engine| engine.max_value(ByteSize::kib(64)).flash_options(options));
        match builder.build() {
            Ok(cache) => return cache,
            // The kernel may end the transfers of a killed process after the process.
            Err(error) => {
                assert!(error.to_string().contains("in use") && Instant::now() < deadline, "{error}");
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

fn name(value: u32) -> (&'static str, String) {
    let structure = STRUCTURES[value as usize % STRUCTURES.len()];
    (structure, format!("{structure} {value}"))
}

/// A thread of the process that is killed.
struct Editor<'c> {
    cache: &'c Cache,
    thread: usize,
    random: Random,
    journal: File,
    clock: &'c AtomicU64,
}

impl Editor<'_> {
    fn write(&mut self, value: u32, what: What, begin: Option<u64>, former: u64) -> u64 {
        let at = self.clock.fetch_add(1, SeqCst);
        let record = Record { value, what, is_end: begin.is_some(), begin: begin.unwrap_or(at), at, former };
        self.journal.write_all(&record.encode()).unwrap();
        at
    }

    fn work(mut self) {
        for operation in 0..OPERATIONS {
            if self.thread == 0 && operation.is_multiple_of(MAINTAIN_EVERY) {
                self.cache.maintain(Duration::from_millis(operation));
            }
            let value = self.random.below(KEYS.into()) as u32;
            let (structure, name) = name(value);
            match self.random.below(100) {
                0..2 => {
                    let begin = self.write(value, What::Delete, None, 0);
                    self.cache.remove(&name);
                    self.write(value, What::Delete, Some(begin), 0);
                }
                // Evicts.
                2..30 => {
                    let number = self.random.below(20_000);
                    drop(self.cache.insert(number.to_le_bytes(), vec![7; 100 + number as usize % 900]));
                }
                30..35 => drop(self.cache.get(&name)),
                _ => {
                    let begin = self.write(value, What::Edit, None, 0);
                    match self.edit(structure, &name, begin) {
                        Ok(former) => self.write(value, What::Edit, Some(begin), former),
                        Err(_) => self.write(value, What::Nothing, Some(begin), 0),
                    };
                }
            }
        }
    }

    /// Answers the former edit of this thread.
    fn edit(&self, structure: &str, name: &str, moment: u64) -> Result<u64, Error> {
        let (cache, thread, options) = (self.cache, self.thread as u64, InsertOptions::new);
        let next = |old: Option<[u64; 2]>| {
            let former = old.map_or(0, |part| part[1]);
            (Some([former, moment]), former)
        };
        match structure {
            "words" => cache.words(name).edit_or_create(&[0; 2 * THREADS + 1], options(), |words| {
                let former = words[2 * self.thread + 1];
                words[2 * self.thread..][..2].copy_from_slice(&[former, moment]);
                words[2 * THREADS] = sum(words);
                former
            }),
            "map" => {
                let map = cache.map::<u64, [u64; 2]>(name);
                // Ends: the value is absent again only by an eviction or a delete.
                loop {
                    match map.update(&thread, next)? {
                        Some(former) => return Ok(former),
                        None => drop(map.create(options())?),
                    }
                }
            }
            "range map" => {
                let map = cache.range_map::<u64, [u64; 2]>(name);
                // Ends: as above.
                loop {
                    match map.update(&thread, next)? {
                        Some(former) => return Ok(former),
                        None => drop(map.create(options())?),
                    }
                }
            }
            _ => {
                let buffer = cache.append_buffer(name);
                if moment.is_multiple_of(20) {
                    buffer.retain_last(KEPT_RECORDS)?;
                }
                buffer.append([thread.to_le_bytes(), moment.to_le_bytes()].concat()).map(|()| 0)
            }
        }
    }
}

fn sum(words: &[u64]) -> u64 {
    words[..2 * THREADS].iter().fold(0, |sum: u64, word| sum.wrapping_mul(31).wrapping_add(*word))
}

/// The part of each thread in a value: moments of its last edits, the oldest first. `None` if the value is missing.
fn parts(cache: &Cache, value: u32) -> Option<[Vec<u64>; THREADS]> {
    let (structure, name) = name(value);
    let mut parts: [Vec<u64>; THREADS] = Default::default();
    let mut add = |thread: u64, moment: u64| parts[thread as usize].extend((moment != 0).then_some(moment));
    let entries = match structure {
        "words" => {
            let words = cache.words(&name).get().unwrap()?;
            assert_eq!(words[2 * THREADS], sum(&words), "{name} is torn: {words:?}");
            words.chunks_exact(2).zip(0..).map(|(part, thread)| (thread, [part[0], part[1]])).collect()
        }
        "map" => cache.map(&name).snapshot().unwrap()?.entries().unwrap(),
        "range map" => cache.range_map(&name).range(..).unwrap(),
        _ => {
            let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
            for record in cache.append_buffer(&name).records().unwrap()?.iter() {
                assert_eq!(record.len(), 16, "{name} is torn");
                add(word(&record[..8]), word(&record[8..]));
            }
            Vec::<(u64, [u64; 2])>::new()
        }
    };
    entries.into_iter().for_each(|(thread, part)| part.into_iter().for_each(|moment| add(thread, moment)));
    Some(parts)
}

#[derive(Clone, Copy, Debug)]
struct Edited {
    moment: u64,
    end: u64,
    /// It was acknowledged; others may have had their effect, or not.
    is_sure: bool,
}

/// Edits by value and thread, the oldest first. Edits in front of a delete are dropped.
#[derive(Default)]
struct Known {
    edits: BTreeMap<(u32, usize), Vec<Edited>>,
    read: [usize; THREADS],
}

impl Known {
    /// Reads what the journals have since the last call. No process writes them.
    fn read(&mut self, folder: &Path) {
        let mut records = Vec::new();
        for thread in 0..THREADS {
            let bytes = fs::read(journal(folder, thread)).unwrap_or_default();
            let whole = bytes[self.read[thread]..].chunks_exact(RECORD_BYTES);
            assert!(whole.remainder().is_empty(), "a record is written by one call");
            records.extend(whole.map(|bytes| (thread, Record::decode(bytes))));
            self.read[thread] = bytes.len();
        }
        let killed_at = records.iter().map(|(_, record)| record.at).max().unwrap_or(0);
        let ends: BTreeMap<u64, Record> =
            records.iter().filter(|(_, record)| record.is_end).map(|(_, record)| (record.begin, *record)).collect();
        let mut effects: Vec<(u64, usize, Record)> = Vec::new();
        for (thread, record) in records.into_iter().filter(|(_, record)| !record.is_end) {
            // A delete takes no edit that ends after its begin; so it is applied when the latest of them has begun.
            match (record.what, ends.get(&record.begin)) {
                (What::Delete, Some(end)) => effects.push((end.at, thread, *end)),
                (What::Edit, Some(end)) if end.what == What::Edit => effects.push((record.begin, thread, *end)),
                (What::Edit, None) => effects.push((record.begin, thread, Record { at: killed_at, ..record })),
                _ => {}
            }
        }
        effects.sort_by_key(|(moment, ..)| *moment);
        for (_, thread, record) in effects {
            self.apply(thread, record);
        }
    }

    fn apply(&mut self, thread: usize, Record { value, what, is_end, begin, at, former }: Record) {
        if what == What::Delete {
            for thread in 0..THREADS {
                self.edits.entry((value, thread)).or_default().retain(|edit| edit.end >= begin);
            }
            return;
        }
        if former != 0 {
            self.judge(value, thread, &[former]);
        }
        let edits = self.edits.entry((value, thread)).or_default();
        edits.push(Edited { moment: begin, end: at, is_sure: is_end });
    }

    /// Judges the part of a thread: it is the end of what the thread has edited.
    fn judge(&mut self, value: u32, thread: usize, found: &[u64]) {
        let edits = self.edits.entry((value, thread)).or_default();
        let mut known = edits.iter().rev();
        for moment in found.iter().rev() {
            let met = known.find(|edit| edit.is_sure || edit.moment == *moment);
            let what = name(value).1;
            let is_right = met.is_some_and(|edit| edit.moment == *moment);
            assert!(is_right, "{what}: thread {thread} has {found:?}, and may have the end of {edits:?}");
        }
        // An edit that a kill has cut short is decided by now.
        if let Some(last) = found.last() {
            edits.retain(|edit| edit.moment <= *last);
            edits.iter_mut().filter(|edit| edit.moment == *last).for_each(|edit| edit.is_sure = true);
        }
    }
}

/// Kills and starts in one folder.
struct Lives<'f> {
    folder: &'f Path,
    known: Known,
    random: Random,
    found: u64,
}

impl Lives<'_> {
    fn spawn(&mut self, point: Option<KillPoint>) -> Victim {
        let (point, passes) = match point {
            Some(KillPoint::StopBegin | KillPoint::StopClean) | None => (point, 0),
            Some(_) => (point, self.random.below(2000)),
        };
        let life = format!("{} {} {passes}", self.random.below(1 << 40), point.map_or(0, |point| point as u8));
        Victim::start("structured::kills_leave_structured_values_whole", self.folder, |command| {
            command.env(FOLDER, self.folder).env(LIFE, life);
        })
    }

    /// Kills the process when it has written some of its journals.
    fn kill_soon(&mut self, mut victim: Victim) {
        let length = |thread| fs::metadata(journal(self.folder, thread)).map_or(0, |metadata| metadata.len());
        let length = || (0..THREADS).map(length).sum::<u64>();
        let (enough, deadline) = (length() + self.random.below(500_000), Instant::now() + PATIENCE);
        while length() < enough && victim.is_running() {
            assert!(Instant::now() < deadline, "the process does nothing");
            thread::sleep(Duration::from_millis(1));
        }
        victim.kill();
    }

    /// Compares each value with the journals, and stops.
    fn look(&mut self) {
        self.known.read(self.folder);
        let cache = open(self.folder);
        let before = self.found;
        for value in 0..KEYS {
            let Some(parts) = parts(&cache, value) else { continue };
            self.found += 1;
            for (thread, part) in parts.iter().enumerate() {
                self.known.judge(value, thread, part);
            }
        }
        println!("{}: {} values", cache.memcached().memory_start().unwrap(), self.found - before);
        cache.verify();
        cache.close().unwrap();
    }
}

fn run_child() {
    let folder = PathBuf::from(env::var_os(FOLDER).unwrap());
    let life: Vec<u64> = env::var(LIFE).unwrap().split(' ').map(|number| number.parse().unwrap()).collect();
    if let Some(point) = POINTS.into_iter().find(|point| *point as u64 == life[1]) {
        arm_kill(point, life[2]);
    }
    let cache = open(&folder);
    let last = |thread| {
        let bytes = fs::read(journal(&folder, thread)).ok()?;
        Some(Record::decode(bytes.chunks_exact(RECORD_BYTES).next_back()?).at)
    };
    let clock = AtomicU64::new((0..THREADS).filter_map(last).max().unwrap_or(0) + 1);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let journal = File::options().append(true).create(true).open(journal(&folder, thread)).unwrap();
            let random = Random::new(life[0] << 8 | thread as u64);
            let editor = Editor { cache: &cache, thread, random, journal, clock: &clock };
            scope.spawn(move || editor.work());
        }
    });
    cache.verify();
    cache.close().unwrap();
}

#[test]
fn kills_leave_structured_values_whole() {
    if env::var_os(FOLDER).is_some() {
        // The process that is killed is this test, too.
        return run_child();
    }
    let folder = tempfile::tempdir().unwrap();
    open(folder.path()).close().unwrap();
    let mut lives = Lives { folder: folder.path(), known: Known::default(), random: Random::new(40), found: 0 };
    for seed in seeds(8, 3000) {
        // Half of the kills at any instant.
        let point = (seed % 2 == 1).then(|| POINTS[(seed / 2) as usize % POINTS.len()]);
        let mut victim = lives.spawn(point);
        match point {
            // A process that does not pass the point so often stops cleanly.
            Some(_) => _ = victim.wait_for_kill(),
            None => lives.kill_soon(victim),
        }
        lives.look();
    }
    println!("{} values found after kills", lives.found);
    assert!(lives.found > 1000, "{} values found after kills", lives.found);
}
