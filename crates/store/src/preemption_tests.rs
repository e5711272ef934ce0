//! Progress under preemption: more threads than processors, each of which sleeps at random while it holds a job, the
//! planner lock, a split, a stripe or an epoch. Every operation ends within a bound, and no acknowledged write is lost
//! in a store without evictions.
//!
//! `EBBTIDE_PREEMPTION_SECONDS` makes each test run for longer, `EBBTIDE_PREEMPTION_SEED` repeats a run.

use crate::evict::Progress;
use crate::ops::{Change, Changed, Count, Handle, Mode, Write};
use crate::options::Options;
use crate::pause_point::{PausePoint, set_pauses};
use crate::store::Store;
use crate::{Error, Participant, Ttl};
use ebbtide_testkit::{Random, Stamp};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NOW_MS: u64 = 5000;
/// A pause takes three milliseconds at most; a thread meets the pauses of all others, on a machine with other work.
const OPERATION_MAX: Duration = Duration::from_secs(60);
/// Handles that a thread keeps.
const HANDLES_MAX: usize = 3;

#[derive(Clone, Copy)]
struct Terms {
    options: fn() -> Options,
    keys_per_thread: u64,
    value_bytes: usize,
    flushes: bool,
    /// Whether acknowledged writes must be present.
    keeps: bool,
    /// Whether the memory holds all keys, so that no write may be refused.
    has_space: bool,
}

thread_local! {
    /// Buckets that this thread has locked to split or merge them.
    static SPLITS: Cell<u64> = const { Cell::new(0) };
    /// Waits of this thread for a turn at splitting.
    static SPLIT_WAITS: Cell<u64> = const { Cell::new(0) };
}

/// From now on the calling thread sometimes sleeps for up to three milliseconds at the points, more rarely at frequent
/// ones.
fn sleep_at_points(seed: u64) {
    let mut random = Random::new(seed);
    set_pauses(move |place| {
        let one_in = match place {
            PausePoint::Job | PausePoint::Claim | PausePoint::Split => 8,
            PausePoint::Stripe | PausePoint::Pin => 300,
            PausePoint::SplitWait => return SPLIT_WAITS.set(SPLIT_WAITS.get() + 1),
        };
        SPLITS.set(SPLITS.get() + u64::from(place == PausePoint::Split));
        if random.uniform(one_in) == 0 {
            std::thread::sleep(Duration::from_micros(random.uniform(3000)));
        }
    });
}

/// A thread with its own keys.
struct Client<'a> {
    store: &'a Arc<Store>,
    participant: Participant,
    thread: u64,
    random: Random,
    terms: Terms,
    /// By key: the version acknowledged last, 0 if there is none.
    versions: Vec<u64>,
    handles: Vec<(Handle, u64)>,
    refused: u64,
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

impl Client<'_> {
    fn key(&self, key: u64) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.thread.to_le_bytes());
        bytes[8..].copy_from_slice(&key.to_le_bytes());
        bytes
    }

    /// Runs a write until it is done. `None` if the store is full and does not evict.
    fn write<T>(&self, mut write: impl FnMut() -> Result<T, Error>) -> Option<T> {
        let started = Instant::now();
        loop {
            let count = match write() {
                Err(Error::NeedSegment) => 1,
                Err(Error::NeedSegments { count }) => count,
                done => return Some(done.expect("it is a write that can be done")),
            };
            match self.store.evict_for(&self.participant, NOW_MS, count) {
                Progress::Ready | Progress::Working => {}
                Progress::Stuck if !self.store.options().evicts => return None,
                Progress::Waiting(_) | Progress::Stuck => std::thread::sleep(Duration::from_micros(50)),
            }
            assert!(started.elapsed() < OPERATION_MAX, "a write does not end: {:?}", self.store.stats());
        }
    }

    fn set(&mut self, key: u64) {
        let (name, version) = (self.key(key), self.versions[key as usize] + 1);
        let stamp = Stamp { key: self.thread << 32 | key, version };
        let length = self.terms.value_bytes / 2 + self.random.uniform(self.terms.value_bytes as u64) as usize;
        let value = stamp.value(length);
        let (hash, ttl) = (self.store.hash(&name), [Ttl::Never, Ttl::seconds(1000)][self.random.uniform(2) as usize]);
        let write = Write { key: &name, hash, value: &value, flags: 0.into(), ttl, mode: Mode::Set, token: None };
        match self.write(|| self.store.write(&self.participant, &write, NOW_MS)) {
            Some(_) => self.versions[key as usize] = version,
            None => self.refused += 1,
        }
    }

    fn get(&mut self, key: u64) {
        let (name, version) = (self.key(key), self.versions[key as usize]);
        let Some(item) = self.store.get(&self.participant, &name, self.store.hash(&name), NOW_MS) else {
            assert!(
                !self.terms.keeps || version == 0,
                "version {version} of key {key} is gone: {:?}",
                self.store.stats()
            );
            return;
        };
        let mut value = Vec::new();
        item.copy_to(&mut value);
        assert_eq!(Stamp::read(&value), Some(Stamp { key: self.thread << 32 | key, version }));
        if self.handles.len() == HANDLES_MAX {
            self.handles.remove(self.random.uniform(HANDLES_MAX as u64) as usize);
        }
        if self.random.chance(20)
            && let Ok(handle) = item.to_handle(self.store)
        {
            self.handles.push((handle, version));
        }
    }

    fn delete(&mut self, key: u64) {
        let name = self.key(key);
        let was_there = self.store.delete(&self.participant, &name, self.store.hash(&name), NOW_MS);
        assert!(!self.terms.keeps || was_there == (self.versions[key as usize] > 0));
        self.versions[key as usize] = 0;
    }

    /// A key that all threads increment.
    fn count(&self, counted: &std::sync::atomic::AtomicU64) {
        let hash = self.store.hash(b"counter");
        let count = Count { initial: Some((1, Ttl::Never)), ..Count::plain(Change::Add(1)) };
        let change = || self.store.change_number(&self.participant, (b"counter", hash), &count, NOW_MS);
        match self.write(change) {
            Some(Changed::Done(_)) => _ = counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            Some(other) => panic!("{other:?}"),
            None => {}
        }
    }

    fn step(&mut self, counted: &std::sync::atomic::AtomicU64) {
        let started = Instant::now();
        let key = self.random.uniform(self.terms.keys_per_thread);
        match self.random.uniform(100) {
            0..45 => self.set(key),
            45..75 => self.get(key),
            75..90 => self.delete(key),
            // Rarely: a flush frees more than is written between two evictions.
            90 if self.terms.flushes && self.random.uniform(50) == 0 => self.store.flush(NOW_MS, 0),
            91..94 => _ = self.store.maintain(&self.participant, NOW_MS),
            _ => self.count(counted),
        }
        assert!(started.elapsed() < 2 * OPERATION_MAX, "an operation takes {:?}", started.elapsed());
    }
}

fn threads() -> u64 {
    4 * std::thread::available_parallelism().map_or(2, |count| count.get().min(8)) as u64
}

fn run(terms: Terms) -> Arc<Store> {
    let store = Arc::new(Store::new((terms.options)()).unwrap());
    let seed = setting("EBBTIDE_PREEMPTION_SEED", 7);
    let run = Duration::from_secs(setting("EBBTIDE_PREEMPTION_SECONDS", 1));
    let threads = threads();
    let counted = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (store, counted) = (&store, &counted);
            scope.spawn(move || {
                sleep_at_points(seed << 16 | thread);
                let versions = vec![0; terms.keys_per_thread as usize];
                let random = Random::new(seed << 8 | thread);
                let participant = store.participate();
                let mut client =
                    Client { store, participant, thread, random, terms, versions, handles: Vec::new(), refused: 0 };
                let end = Instant::now() + run;
                while Instant::now() < end {
                    client.step(counted);
                }
                assert!(!terms.has_space || client.refused == 0, "{} refused: {:?}", client.refused, store.stats());
                client.handles.clear();
                (0..terms.keys_per_thread).for_each(|key| client.get(key));
            });
        }
    });
    let expected = counted.into_inner();
    if terms.keeps && expected > 0 {
        let participant = store.participate();
        let item = store.get(&participant, b"counter", store.hash(b"counter"), NOW_MS).expect("it was counted");
        let mut text = Vec::new();
        item.copy_to(&mut text);
        assert_eq!(String::from_utf8(text).unwrap(), expected.to_string(), "seed {seed}");
    }
    store.verify(&store.participate(), NOW_MS);
    store
}

#[test]
fn every_operation_ends_in_a_tiny_cache() {
    let options = || Options {
        memory_bytes: 512 << 10,
        segment_size: Some(8 << 10),
        value_bytes_max: 32 << 10,
        writers: 8,
        ..Options::default()
    };
    let store =
        run(Terms { options, keys_per_thread: 200, value_bytes: 1500, flushes: true, keeps: false, has_space: false });
    assert!(store.stats().evictions > 0, "{:?}", store.stats());
}

#[test]
fn a_full_cache_that_keeps_everything_loses_nothing() {
    let options = || Options {
        memory_bytes: 4 << 20,
        segment_size: Some(16 << 10),
        value_bytes_max: 64 << 10,
        writers: 8,
        evicts: false,
        ..Options::default()
    };
    let store =
        run(Terms { options, keys_per_thread: 48, value_bytes: 12_000, flushes: false, keeps: true, has_space: false });
    assert_eq!((store.stats().evictions, store.stats().index_replaced), (0, 0), "{:?}", store.stats());
}

#[test]
fn overwritten_bytes_are_found_beside_other_claims() {
    // Twice as much as all values, which are overwritten all the time: most writes find memory only by a compaction.
    let options = || Options {
        memory_bytes: threads() * 40 * 3000 + (256 << 10),
        segment_size: Some(32 << 10),
        value_bytes_max: 16 << 10,
        writers: 8,
        evicts: false,
        ..Options::default()
    };
    let store =
        run(Terms { options, keys_per_thread: 40, value_bytes: 1500, flushes: false, keeps: true, has_space: true });
    assert!(store.stats().segments_compacted > 0, "{:?}", store.stats());
}

#[test]
fn nothing_is_lost_with_free_memory() {
    let options = || Options { memory_bytes: 64 << 20, segment_size: Some(64 << 10), writers: 8, ..Options::default() };
    let store =
        run(Terms { options, keys_per_thread: 300, value_bytes: 400, flushes: false, keeps: true, has_space: true });
    assert_eq!((store.stats().evictions, store.stats().index_replaced), (0, 0), "{:?}", store.stats());
}

fn insert(store: &Store, participant: &Participant, number: u64) {
    let key = number.to_le_bytes();
    let hash = store.hash(&key);
    let write = Write { key: &key, hash, value: b"v", flags: 0.into(), ttl: Ttl::Never, mode: Mode::Set, token: None };
    while store.write(participant, &write, NOW_MS).is_err() {
        assert_ne!(store.evict(participant, NOW_MS), Progress::Stuck);
    }
}

/// Inserts of all threads by a number that each has.
fn by_number(inserts: Vec<Vec<u64>>) -> Vec<u64> {
    let longest = inserts.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).map(|number| inserts.iter().filter_map(|inserts| inserts.get(number)).sum()).collect()
}

fn count(inserts: &mut Vec<u64>, number: u64) {
    inserts.resize(inserts.len().max(number as usize + 1), 0);
    inserts[number as usize] += 1;
}

/// Inserts beside threads that are preempted while they split: the load, the splits and the waits of each insert have
/// bounds, and no neighbour is replaced.
fn grow_under_preemption(options: Options, writers: u64, keys: u64) {
    let store = Store::new(options).unwrap();
    let excess = || store.counters.items() as f64 - 0.9 * store.index.capacity() as f64;
    // An estimate of the items in batches; two keys for each thread; as many by chance.
    let max_excess = store.index.capacity() as f64 / 64.0 + 4.0 * writers as f64;
    let write = |writer: u64| {
        sleep_at_points(writer);
        let (participant, mut splits, mut waits) = (store.participate(), Vec::new(), Vec::new());
        for number in writer * keys..(writer + 1) * keys {
            let before = (SPLITS.get(), SPLIT_WAITS.get());
            insert(&store, &participant, number);
            count(&mut splits, SPLITS.get() - before.0);
            count(&mut waits, SPLIT_WAITS.get() - before.1);
            assert!(excess() <= max_excess, "{} keys more than a load of 0.90: {:?}", excess(), store.stats());
        }
        (splits, waits)
    };
    let (splits, waits) = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..writers).map(|writer| scope.spawn(move || write(writer))).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).unzip()
    });
    let (splits, waits) = (by_number(splits), by_number(waits));
    let stats = store.stats();
    assert!(waits.len() <= 2 && splits[1] > keys / 200, "{splits:?}, {waits:?}");
    assert!(splits.len() as u64 <= 2 + writers, "{splits:?}");
    assert_eq!(waits.get(1), Some(&stats.index_split_waits), "some waited, once");
    assert_eq!((stats.items, stats.evictions, stats.index_replaced), (writers * keys, 0, 0), "{stats:?}");
    store.verify(&store.participate(), NOW_MS);
}

#[test]
fn an_insert_waits_for_one_turn_at_most() {
    grow_under_preemption(Options { memory_bytes: 256 << 20, writers: 16, ..Options::default() }, 16, 20_000);
}

#[test]
fn a_tiny_index_grows_beside_preempted_splitters() {
    let options =
        Options { memory_bytes: 2 << 20, segment_size: Some(16 << 10), value_bytes_max: 1000, ..Options::default() };
    grow_under_preemption(Options { writers: 8, ..options }, threads(), 16_000 / threads());
}
