//! Real threads on a small cache whose evictions and expiries never rest. Every value tells its key and version, and
//! betrays torn bytes; every key has one writer, so that readers know which versions they may see.

mod common;

use common::read;
use ebbtide::memcached::{ByteSize, Cache, Error, Handle, Item, Lookup, Mode, Policy, Stored, Ttl};
use ebbtide_testkit::{Random, Stamp};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const KEYS: u64 = 600;
const WRITERS: u64 = 2;
const READERS: u64 = 2;
const RUN: Duration = Duration::from_millis(1200);
/// How much longer a run takes on a slow machine, at most, until it has done enough.
const PATIENCE: Duration = Duration::from_secs(120);

/// Known versions of a key. Both hold twice the version, plus one if the key was deleted after it.
#[derive(Default)]
struct Known {
    /// Written before an operation begins: nothing above this may be seen.
    started: AtomicU64,
    /// Written after an operation has ended: nothing below this may be seen by a read that begins later.
    done: AtomicU64,
}

struct Board {
    cache: Cache,
    keys: Vec<Known>,
    over: AtomicBool,
    hits: AtomicU64,
}

fn key_of(number: u64) -> Vec<u8> {
    format!("key{number}{}", "-".repeat(number as usize * 7 % 180)).into_bytes()
}

fn length_of(number: u64, version: u64) -> usize {
    match (number + version) % 23 {
        0 => 30_000,
        1 => 9000,
        2..6 => 2500,
        rest => 30 + rest as usize * 20,
    }
}

impl Board {
    fn has_done_enough(&self) -> bool {
        let stats = self.cache.stats();
        self.hits.load(Ordering::Relaxed) > 1000 && stats.evictions > 100 && stats.segments_evicted > 30
    }

    /// Judges a value read by a thread that began when `done` was the state of the key.
    fn judge(&self, number: u64, done: u64, value: &[u8]) {
        let start = &value[..value.len().min(40)];
        let Some(stamp) = Stamp::read(value) else {
            panic!("key {number}: torn bytes, {} of them: {start:?}", value.len())
        };
        assert_eq!(stamp.key, number, "a foreign key's value");
        // Acquire: the version was stored as started before its value could be seen.
        let started = self.keys[number as usize].started.load(Ordering::Acquire);
        assert!(stamp.version * 2 >= done, "key {number}: version {} after {done} was done", stamp.version);
        assert!(
            stamp.version * 2 <= started,
            "key {number}: version {} before it was started, {started}",
            stamp.version
        );
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    fn done(&self, number: u64) -> u64 {
        self.keys[number as usize].done.load(Ordering::Acquire)
    }

    fn judge_item(&self, number: u64, done: u64, item: &Item<'_>) {
        assert_eq!(item.key(), key_of(number));
        assert_eq!(u64::from(item.flags()), number, "flags belong to the key");
        self.judge(number, done, &item.to_vec());
    }

    /// One operation of the key's only writer.
    fn write(&self, number: u64, random: &mut Random) {
        let known = &self.keys[number as usize];
        let key = key_of(number);
        let state = known.done.load(Ordering::Relaxed);
        let version = state / 2 + 1;
        let value = Stamp { key: number, version }.value(length_of(number, version));
        let ttl = [Ttl::seconds(1), Ttl::seconds(2), Ttl::seconds(1000), Ttl::Never][random.uniform(4) as usize];
        let insert = |mode| self.cache.insert(&key, &value).flags(number as u32).ttl(ttl).mode(mode).apply();
        let begin = || known.started.store(version * 2, Ordering::Release);
        let full = |error: Error| assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
        // Whether the new version is stored; if not, the old one may still be there, unless the operation was a set.
        let written = match random.uniform(20) {
            0 => {
                let was = self.cache.delete(&key);
                assert!(!was || state.is_multiple_of(2), "key {number}: deleted twice");
                known.done.store(state | 1, Ordering::Release);
                return;
            }
            1 | 2 => {
                let _ = self.cache.touch(&key, ttl).map_err(full);
                return;
            }
            3..6 => {
                let Lookup::Hit(item) = self.cache.get(&key) else { return };
                self.judge_item(number, state, &item);
                assert_eq!(state % 2, 0, "key {number}: it is deleted");
                let token = item.cas();
                drop(item);
                begin();
                insert(Mode::Cas(token))
                    .map(|stored| stored == Stored::Stored)
                    .unwrap_or_else(|error| (full(error), false).1)
            }
            6 => {
                begin();
                insert(Mode::Add).map(|stored| stored == Stored::Stored).unwrap_or_else(|error| (full(error), false).1)
            }
            7 => {
                begin();
                insert(Mode::Replace)
                    .map(|stored| stored == Stored::Stored)
                    .unwrap_or_else(|error| (full(error), false).1)
            }
            8 => {
                begin();
                self.upload(&key, &value, number, ttl, random.chance(30))
            }
            _ => {
                begin();
                match insert(Mode::Set) {
                    Ok(_) => true,
                    Err(error) => {
                        full(error);
                        known.done.store(version * 2 + 1, Ordering::Release);
                        return;
                    }
                }
            }
        };
        if written {
            known.done.store(version * 2, Ordering::Release);
        }
    }

    fn upload(&self, key: &[u8], value: &[u8], number: u64, ttl: Ttl, gives_up: bool) -> bool {
        // Add: a failed upload leaves the present value.
        let Ok(mut upload) = self.cache.upload(key, value.len() as u64, number as u32, ttl, Mode::Add) else {
            return false;
        };
        for (part, piece) in value.chunks(1000).enumerate() {
            if (gives_up && part == 3) || upload.write(piece).is_err() {
                return false;
            }
        }
        matches!(upload.finish(), Ok(Stored::Stored))
    }

    fn write_all(&self, writer: u64) {
        let mut random = Random::new(writer);
        while !self.over.load(Ordering::Relaxed) {
            let number = random.uniform(KEYS / WRITERS) * WRITERS + writer;
            self.write(number, &mut random);
        }
    }

    fn read_all(&self, reader: u64) {
        let mut random = Random::new(100 + reader);
        let mut handles: Vec<(u64, u64, Handle)> = Vec::new();
        while !self.over.load(Ordering::Relaxed) {
            let number = random.uniform(KEYS);
            match random.uniform(10) {
                0..3 => self.read_batch(&mut random),
                3 => {
                    let done = self.done(number);
                    if let Lookup::Hit(item) = self.cache.get(&key_of(number))
                        && let Ok(handle) = item.to_handle()
                    {
                        handles.push((number, done, handle));
                    }
                    if handles.len() > 20 {
                        let (number, done, handle) = handles.swap_remove(random.uniform(20) as usize);
                        self.judge(number, done, &read(&handle));
                    }
                }
                _ => {
                    let done = self.done(number);
                    if let Lookup::Hit(item) = self.cache.get(&key_of(number)) {
                        assert!(
                            done.is_multiple_of(2) || self.keys[number as usize].started.load(Ordering::Acquire) > done,
                            "deleted"
                        );
                        self.judge_item(number, done, &item);
                    }
                }
            }
        }
        for (number, done, handle) in handles {
            self.judge(number, done, &read(&handle));
        }
    }

    fn read_batch(&self, random: &mut Random) {
        let numbers: Vec<u64> = (0..random.between(1, 40)).map(|_| random.uniform(KEYS)).collect();
        let done: Vec<u64> = numbers.iter().map(|number| self.done(*number)).collect();
        let keys: Vec<Vec<u8>> = numbers.iter().map(|number| key_of(*number)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        self.cache.get_batch(&keys, |at, lookup| {
            if let Lookup::Hit(item) = lookup {
                self.judge_item(numbers[at], done[at], &item);
            }
        });
    }
}

fn stress(cache: Cache, mut disturb: impl FnMut(&Cache, u64)) {
    let keys = (0..KEYS).map(|_| Known::default()).collect();
    let board = Board { cache, keys, over: AtomicBool::new(false), hits: AtomicU64::new(0) };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn({
                    let board = &board;
                    move || stop_all_on_panic(board, || board.write_all(writer))
                })
            })
            .chain((0..READERS).map(|reader| {
                scope.spawn({
                    let board = &board;
                    move || stop_all_on_panic(board, || board.read_all(reader))
                })
            }))
            .collect();
        let started = Instant::now();
        let goes_on = || match started.elapsed() {
            run if run < RUN => true,
            run => run < PATIENCE && !board.has_done_enough(),
        };
        let mut round = 0;
        while goes_on() && !board.over.load(Ordering::Relaxed) {
            thread::park_timeout(Duration::from_millis(20));
            disturb(&board.cache, round);
            round += 1;
        }
        board.over.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().expect("no thread saw anything wrong"));
    });
    quiet(&board.cache);
    assert!(board.has_done_enough(), "few hits, or evictions rest: {:?}", board.cache.stats());
}

fn stop_all_on_panic(board: &Board, work: impl FnOnce()) {
    struct Stop<'a>(&'a Board);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.over.store(true, Ordering::Relaxed);
        }
    }
    let _stop = Stop(board);
    work();
}

/// Verifies when the background thread is idle: expiring entries have expired, and nothing moves.
fn quiet(cache: &Cache) {
    let soon = Instant::now() + Duration::from_millis(2300);
    let mut last = cache.stats();
    let mut still = 0;
    while still < 5 || Instant::now() < soon {
        thread::park_timeout(Duration::from_millis(40));
        let now = cache.stats();
        still = if now == last { still + 1 } else { 0 };
        last = now;
    }
    cache.verify();
}

#[test]
fn readers_see_only_what_was_written() {
    for policy in [Policy::Merge, Policy::S3Fifo] {
        let cache =
            Cache::builder().memory(ByteSize::mib(1)).max_value(ByteSize::kib(64)).policy(policy).build().unwrap();
        stress(cache, |_, _| {});
    }
}

#[test]
fn readers_see_written_values_during_resizes() {
    let cache = Cache::builder().memory(ByteSize::mib(1)).max_value(ByteSize::kib(64)).build().unwrap();
    stress(cache, |cache, round| {
        cache.resize(ByteSize::kib([512, 1024, 700, 2048][round as usize % 4])).expect("the sizes are possible");
    });
}

#[test]
fn readers_see_only_what_was_written_between_flushes() {
    let cache = Cache::builder().memory(ByteSize::kib(512)).max_value(ByteSize::kib(64)).build().unwrap();
    stress(cache, |cache, round| {
        cache.flush(Duration::from_millis(if round % 2 == 0 { 0 } else { 3 }));
    });
}

#[test]
fn counters_lose_no_increment() {
    // Space for everything: nothing is evicted, but merges of dead space move the counters.
    let cache = Cache::builder().memory(ByteSize::mib(1)).build().unwrap();
    let counters: Vec<Vec<u8>> = (0..40).map(|number| format!("{:0>1$}", number, 1 + number).into_bytes()).collect();
    for key in &counters {
        cache.insert(key, b"0").apply().unwrap();
    }
    let totals: Vec<[AtomicU64; 2]> = counters.iter().map(|_| Default::default()).collect();
    let end = Instant::now() + RUN;
    thread::scope(|scope| {
        for thread in 0..3 {
            let (cache, counters, totals) = (&cache, &counters, &totals);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                let mut log = [[0_u64; 2]; 40];
                while Instant::now() < end {
                    let at = random.uniform(40) as usize;
                    let delta = random.uniform(50);
                    match random.uniform(4) {
                        0 => {
                            let Lookup::Hit(item) = cache.get(&counters[at]) else { panic!("counter {at} is gone") };
                            let (token, text) = (item.cas(), item.to_vec());
                            drop(item);
                            let number: u64 = std::str::from_utf8(&text).unwrap().trim_end().parse().unwrap();
                            let new = (number + delta).to_string();
                            let stored = cache.insert(&counters[at], new.as_bytes()).mode(Mode::Cas(token)).apply();
                            log[at][0] += if stored == Ok(Stored::Stored) { delta } else { 0 };
                        }
                        // Dead space: overwritten at once.
                        1 => drop(
                            cache
                                .insert(format!("filler{thread}").as_bytes(), &[0; 1500])
                                .ttl(Ttl::seconds(100))
                                .apply(),
                        ),
                        _ => {
                            let number = cache.increment(&counters[at], delta).unwrap();
                            assert!(number.is_some(), "counter {at} is gone");
                            log[at][1] += delta;
                        }
                    }
                }
                for (total, mine) in totals.iter().zip(log) {
                    total[0].fetch_add(mine[0], Ordering::Relaxed);
                    total[1].fetch_add(mine[1], Ordering::Relaxed);
                }
            });
        }
    });
    quiet(&cache);
    let evictions = cache.stats().evictions;
    for (key, total) in counters.iter().zip(&totals) {
        let expected = total[0].load(Ordering::Relaxed) + total[1].load(Ordering::Relaxed);
        assert_eq!(cache.increment(key, 0), Ok(Some(expected)), "{} evictions", evictions);
    }
    assert_eq!(evictions, 0);
}

#[test]
fn appends_from_many_threads_are_all_there() {
    let cache = Cache::builder().memory(ByteSize::mib(8)).max_value(ByteSize::mib(1)).build().unwrap();
    cache.insert(b"log", b"").apply().unwrap();
    let lines = 1500_u32;
    thread::scope(|scope| {
        for thread in 0..3_u32 {
            let cache = &cache;
            scope.spawn(move || {
                for line in 0..lines {
                    let text = format!("{thread} {line:05};");
                    assert_eq!(cache.insert(b"log", text.as_bytes()).mode(Mode::Append).apply(), Ok(Stored::Stored));
                }
            });
        }
    });
    let log = String::from_utf8(cache.get(b"log").hit().expect("nothing is evicted").to_vec()).unwrap();
    for thread in 0..3_u32 {
        let start = format!("{thread} ");
        let mine: Vec<&str> = log.split_terminator(';').filter(|line| line.starts_with(&start)).collect();
        assert_eq!(mine.len(), lines as usize, "thread {thread}");
        assert!(mine.is_sorted(), "lines of thread {thread} are in order");
    }
    quiet(&cache);
}
