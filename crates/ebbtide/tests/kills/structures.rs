//! Structured values of the process that is killed. Each has one writer, which numbers its edits: after a kill a value
//! has all edits that were acknowledged, and of the one that was not all or nothing.
//!
//! ```text
//! words           version, last edit of each place, sum of all
//! fixed array     version, last edit of each place
//! map, range map  VERSION_KEY: version; place: version, last edit; a removal for each fourth edit
//! append buffer   a record for each edit: version, edit; the oldest are dropped now and then
//! ```
//! Edit `n` is of place `n % PLACES`. Edit 0 is the creation, whose moment is the version.

use super::child::Worker;
use super::journal::{Periods, Seen, What};
use ebbtide::{Error, InsertOptions, Pool};

const PLACES: usize = 7;
const VERSION_KEY: u64 = 1000;
/// Records of a buffer before the oldest are dropped, and after that.
const MAX_RECORDS: usize = 40;
const KEPT_RECORDS: usize = 5;
/// Keys that most operations are on: so few that they are edited in memory and after a promotion.
const BUSY_KEYS: u64 = 600;

#[derive(Clone, Copy, Debug)]
enum Structure {
    Words,
    FixedArray,
    Map,
    RangeMap,
    AppendBuffer,
}

/// `None`: the key has plain values.
fn structure(key: u32) -> Option<Structure> {
    let structures =
        [Structure::Words, Structure::FixedArray, Structure::Map, Structure::RangeMap, Structure::AppendBuffer];
    structures.get(key as usize % (structures.len() + 1)).copied()
}

pub fn is_structured(key: u32) -> bool {
    structure(key).is_some()
}

fn place(edit: u64) -> usize {
    edit as usize % PLACES
}

/// The last edit of each place after `count` of them; 0: none.
fn last_edits(count: u64) -> [u64; PLACES] {
    let mut last = [0; PLACES];
    (count.saturating_sub(PLACES as u64 - 1).max(1)..=count).for_each(|edit| last[place(edit)] = edit);
    last
}

/// Whether an edit of a map removes the entry of its place, which edit `n - PLACES` has written.
fn is_removal(edit: u64) -> bool {
    edit > PLACES as u64 && edit % 4 == 3
}
const _: () = assert!(!PLACES.is_multiple_of(4));

fn sum(words: &[u64]) -> u64 {
    words.iter().fold(0, |sum: u64, word| sum.wrapping_mul(31).wrapping_add(*word))
}

/// The words or elements of a value: version and places.
fn numbers(version: u64, count: u64) -> Vec<u64> {
    [version].into_iter().chain(last_edits(count)).collect()
}

/// The entries of a map.
fn entries(version: u64, count: u64) -> Vec<(u64, [u64; 2])> {
    let places = last_edits(count).into_iter().filter(|edit| *edit > 0 && !is_removal(*edit));
    let mut entries: Vec<(u64, [u64; 2])> = places.map(|edit| (place(edit) as u64, [version, edit])).collect();
    entries.sort_unstable();
    entries.push((VERSION_KEY, [version, 0]));
    entries
}

/// Version and edits of numbers, which must be those of one moment.
fn seen_of_numbers(found: &[u64], what: &str) -> Seen {
    let count = found[1..].iter().copied().max().unwrap_or(0);
    assert_eq!(found, numbers(found[0], count), "{what} is torn");
    Seen { version: found[0], count }
}

fn seen_of_entries(found: &[(u64, [u64; 2])], what: &str) -> Seen {
    let version = found.last().filter(|(key, _)| *key == VERSION_KEY).map(|(_, value)| value[0]);
    let version = version.unwrap_or_else(|| panic!("{what} has no version: {found:?}"));
    // The last edit may be a removal, which leaves no number.
    let last = found.iter().map(|(_, value)| value[1]).max().unwrap_or(0);
    let count =
        (last..=last + 1).find(|count| entries(version, *count) == found && (last == *count || is_removal(*count)));
    Seen { version, count: count.unwrap_or_else(|| panic!("{what} is torn: {found:?}")) }
}

fn seen_of_records<'a>(records: impl Iterator<Item = &'a [u8]>, what: &str) -> Seen {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let found: Vec<(u64, u64)> = records.map(|record| (number(&record[..8]), number(&record[8..]))).collect();
    let follows = |pair: &[(u64, u64)]| pair[1] == (pair[0].0, pair[0].1 + 1);
    assert!(!found.is_empty() && found.windows(2).all(follows), "{what} is torn: {found:?}");
    let (version, count) = found[found.len() - 1];
    Seen { version, count }
}

fn record(version: u64, edit: u64) -> [u8; 16] {
    (u128::from(edit) << 64 | u128::from(version)).to_le_bytes()
}

/// The value of a key.
pub fn read(pool: &Pool, key: u32) -> Result<Option<Seen>, Error> {
    let (name, what) = (key.to_le_bytes(), format!("key {key}"));
    Ok(match structure(key).expect("a structured key") {
        Structure::Words => pool.words(name).get()?.map(|words| {
            let (last, numbers) = words.split_last().expect("words are not empty");
            assert_eq!(*last, sum(numbers), "{what} is torn: {words:?}");
            seen_of_numbers(numbers, &what)
        }),
        Structure::FixedArray => {
            pool.fixed_array::<u64>(name).elements()?.map(|elements| seen_of_numbers(&elements, &what))
        }
        Structure::Map => match pool.map::<u64, [u64; 2]>(name).snapshot()? {
            Some(map) => Some(seen_of_entries(&map.entries()?, &what)),
            None => None,
        },
        Structure::RangeMap => match pool.range_map::<u64, [u64; 2]>(name).range(..)? {
            entries if entries.is_empty() => None,
            entries => Some(seen_of_entries(&entries, &what)),
        },
        Structure::AppendBuffer => {
            pool.append_buffer(name).records()?.map(|records| seen_of_records(records.iter(), &what))
        }
    })
}

fn create(pool: &Pool, key: u32, version: u64) -> Result<(), Error> {
    let (name, options) = (key.to_le_bytes(), InsertOptions::new());
    match structure(key).expect("a structured key") {
        Structure::Words => {
            let numbers = numbers(version, 0);
            let words = [&numbers[..], &[sum(&numbers)]].concat();
            pool.words(name).create(&words, options).map(|is_new| assert!(is_new, "key {key} was removed"))
        }
        Structure::FixedArray => {
            let array = pool.fixed_array::<u64>(name);
            array.create(&numbers(version, 0), options)?;
            Ok(())
        }
        Structure::Map => pool.map::<u64, [u64; 2]>(name).insert_many([(&VERSION_KEY, &[version, 0])], options),
        Structure::RangeMap => {
            pool.range_map::<u64, [u64; 2]>(name).insert_many([(&VERSION_KEY, &[version, 0])], options)
        }
        Structure::AppendBuffer => pool.append_buffer(name).append(record(version, 0)),
    }
}

/// Edit `count` of a value. False if it has left the cache.
fn edit(pool: &Pool, key: u32, version: u64, count: u64) -> Result<bool, Error> {
    let (name, place) = (key.to_le_bytes(), place(count));
    let change = |_: Option<[u64; 2]>| ((!is_removal(count)).then_some([version, count]), ());
    Ok(match structure(key).expect("a structured key") {
        Structure::Words => {
            let edited = pool.words(name).edit(|words| {
                words[1 + place] = count;
                words[1 + PLACES] = sum(&words[..=PLACES]);
            });
            edited?.is_some()
        }
        Structure::FixedArray => pool.fixed_array::<u64>(name).set(1 + place, &count)?,
        Structure::Map => pool.map::<u64, [u64; 2]>(name).update(&(place as u64), change)?.is_some(),
        Structure::RangeMap => pool.range_map::<u64, [u64; 2]>(name).update(&(place as u64), change)?.is_some(),
        Structure::AppendBuffer => {
            let buffer = pool.append_buffer(name);
            if buffer.records()?.is_some_and(|records| records.iter().count() >= MAX_RECORDS) {
                buffer.retain_last(KEPT_RECORDS)?;
            }
            // An absent buffer is created, and then has the last edit alone.
            buffer.append(record(version, count))?;
            true
        }
    })
}

impl Worker<'_> {
    /// A key of this thread: mostly a busy one.
    pub fn structured_key(&mut self, keys: u64) -> u64 {
        match self.random.chance(75) {
            true => self.random.uniform(BUSY_KEYS),
            false => self.random.uniform(keys),
        }
    }

    /// One operation on a structured key.
    pub fn change_structure(&mut self, pool: &Pool, key: u32) {
        let found = read(pool, key).unwrap();
        // A key may have been evicted. If it is there, its value is the one that this process acknowledged last.
        if let (Some(found), Some(known)) = (found, self.written.get(&key)) {
            assert_eq!(Some(found), *known, "key {key}");
        }
        match (self.random.uniform(20), found) {
            (0, Some(_)) => self.remove_structure(pool, key),
            (1, Some(_)) | (_, None) => {
                self.remove_structure(pool, key);
                self.create_structure(pool, key);
            }
            (2, Some(_)) => self.touch_structure(pool, key),
            (_, Some(found)) => self.edit_structure(pool, key, found),
        }
    }

    fn touch_structure(&mut self, pool: &Pool, key: u32) {
        let life = Periods::random(&mut self.random);
        let moment = self.journal.begin_life(key, What::Touch, life);
        let is_touched = pool.touch(key.to_le_bytes(), life.ttl()) == Ok(true);
        self.journal.end(key, if is_touched { What::Touch } else { What::Nothing }, moment);
    }

    fn remove_structure(&mut self, pool: &Pool, key: u32) {
        let moment = self.journal.begin(key, What::Delete);
        pool.remove(key.to_le_bytes());
        self.journal.end(key, What::Delete, moment);
        self.written.insert(key, None);
    }

    /// A creation that is refused leaves no value.
    fn create_structure(&mut self, pool: &Pool, key: u32) {
        let version = self.journal.begin(key, What::Set);
        let is_created = create(pool, key, version).is_ok();
        self.journal.end(key, if is_created { What::Set } else { What::Delete }, version);
        self.written.insert(key, is_created.then_some(Seen { version, count: 0 }));
    }

    /// An edit that is refused changes nothing.
    fn edit_structure(&mut self, pool: &Pool, key: u32, found: Seen) {
        // A buffer that was evicted since the look is created anew.
        let is_buffer = matches!(structure(key), Some(Structure::AppendBuffer));
        let what = if is_buffer { What::CountOrSet } else { What::Count };
        let moment = self.journal.begin(key, what);
        let next = Seen { count: found.count + 1, ..found };
        let is_edited = matches!(edit(pool, key, found.version, next.count), Ok(true));
        self.journal.end(key, if is_edited { what } else { What::Nothing }, moment);
        self.written.insert(key, Some(if is_edited { next } else { found }));
    }
}
