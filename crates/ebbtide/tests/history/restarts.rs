//! Histories of a cache with a memory file, with and without flash and pools, that is stopped and killed again and
//! again: what a record holds for one life holds for all of them.
//!
//! A life has the memory file, flash or both, as the operator of a server may start it. A life with one of them follows
//! and is followed by one with both: two that know nothing of each other cannot tell which is older. After a kill the
//! memory is empty, and flash has what its device and its deletion log had at that instant.

use crate::player::{Player, Table};
use crate::{Case, LIVES, Mover, ORIGIN_MS, THREADS};
use ebbtide::memcached::{ByteSize, Cache, Clock, MemoryStart, PoolOptions};
use ebbtide_flash::device::{Device, Faults, FaultyDevice};
use ebbtide_testkit::Random;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Operations of all cases together, unless `EBBTIDE_HISTORY_OPERATIONS` is set.
const OPERATIONS: u64 = 60_000;
/// Maximum of one case: its record of lives is short, and starts are many.
const OPERATIONS_MAX: u64 = 100_000;
/// A memory file alone and with flash, and both with a second pool.
const CASES: u64 = 4;
const KEYS: u64 = 1500;
/// Memory of one pool.
const POOL_BYTES: u64 = 1 << 20;
const OTHER: &str = "other";

/// The parts of a cache that a life is started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parts {
    Both,
    FileAlone,
    FlashAlone,
}

/// The caches of successive lives, and their files.
struct Lives {
    case: Case,
    has_flash: bool,
    names: Vec<&'static str>,
    folder: TempDir,
    device: Arc<FaultyDevice>,
    /// Number of the present deletion log.
    log: u64,
    random: Random,
    warm_starts: u64,
}

impl Lives {
    fn new(number: u64, seed: u64, operations: u64) -> Self {
        // Cases with several lives, of both modes of a memory file.
        let case = Case { number: 6 + number, seed, operations };
        let on_tmpfs = (seed + number / 2).is_multiple_of(2).then(|| tempfile::tempdir_in("/dev/shm").ok()).flatten();
        Self {
            has_flash: !number.is_multiple_of(2),
            names: if number < 2 { vec!["default"] } else { vec!["default", OTHER] },
            folder: on_tmpfs.unwrap_or_else(|| tempfile::tempdir().expect("a folder for the memory file")),
            device: Arc::new(case.device()),
            log: 0,
            random: Random::new(seed),
            warm_starts: 0,
            case,
        }
    }

    fn log_path(&self, number: u64) -> PathBuf {
        self.folder.path().join(format!("removals{number}"))
    }

    fn draw_parts(&mut self, before: Parts) -> Parts {
        if !self.has_flash {
            return Parts::FileAlone;
        }
        match self.random.uniform(3) {
            0 if before == Parts::Both => Parts::FileAlone,
            1 if before == Parts::Both => Parts::FlashAlone,
            _ => Parts::Both,
        }
    }

    fn build(&mut self, parts: Parts) -> Cache {
        let bytes = POOL_BYTES * self.names.len() as u64;
        let builder = Cache::builder().memory(ByteSize::bytes(bytes)).max_value(ByteSize::kib(256));
        let mut builder = builder.clock(Clock::Manual).seed(self.case.seed);
        if parts != Parts::FlashAlone {
            builder = builder.memory_file(self.folder.path().join("memory"));
        }
        if self.has_flash && parts != Parts::FileAlone {
            let options = self.case.options(Some(self.log_path(self.log)));
            let device = Arc::clone(&self.device) as Arc<dyn Device>;
            builder = builder.flash_device(device).flash_options(options).flash_promotion(self.case.promotion());
        }
        let others = self.names.iter().filter(|name| **name == OTHER);
        let builder = others.fold(builder, |builder, name| builder.pool(PoolOptions::named(*name)));
        let cache = builder.build().expect("the options are possible");
        if let Some(start) = cache.memory_start() {
            self.warm_starts += u64::from(matches!(start, MemoryStart::Warm { .. }));
        }
        let flash = cache.flash_stats().map_or_else(String::new, |stats| stats.notices.join(", "));
        println!("  {parts:?}: {:?}; {flash}", cache.memory_start().map(ToString::to_string));
        cache
    }

    /// Stops or kills the cache of the tables, and builds the next one.
    fn restart(&mut self, tables: &mut [Table], (before, next): (Parts, Parts)) {
        let cache = tables[0].cache.clone();
        // Cheap, and unused afterwards.
        let placeholder = Cache::builder().memory(ByteSize::kib(512)).clock(Clock::Manual).build().unwrap();
        self.device.set(Faults::default());
        if self.random.chance(60) {
            cache.close().expect("the file can be written");
        }
        if self.has_flash && before != Parts::FileAlone {
            let seed = self.random.uniform(1 << 20);
            self.device = Arc::new(self.device.killed(seed));
            fs::copy(self.log_path(self.log), self.log_path(self.log + 1)).expect("there is a log");
            self.log += 1;
        }
        drop(cache);
        attach(tables, &placeholder, &["default"]);
        let cache = self.build(next);
        attach(tables, &cache, &self.names);
    }
}

/// Gives each table its pool of a cache; tables of pools that it lacks get the last one.
fn attach(tables: &mut [Table], cache: &Cache, names: &[&str]) {
    for (number, table) in tables.iter_mut().enumerate() {
        table.pool = cache.pool(names[number.min(names.len() - 1)]).expect("it was built with it");
        table.cache = cache.clone();
    }
}

/// Runs operations on all tables, by threads, until each table has had `last` of them.
fn play(tables: &[Table], mover: &Mover, last: u64, seed: u64) {
    thread::scope(|scope| {
        let per_table = THREADS / tables.len();
        let places = tables.iter().flat_map(|table| (0..per_table).map(move |thread| (table, thread)));
        let players = places.map(|(table, thread)| scope.spawn(move || Player::new(table, thread, seed).play(last)));
        let players: Vec<_> = players.collect();
        let mut random = Random::new(seed);
        while !players.iter().all(|player| player.is_finished()) {
            thread::sleep(Duration::from_millis(2));
            mover.go_on(&tables[0].cache, random.uniform(100));
        }
        players.into_iter().for_each(|player| player.join().expect("nobody saw anything wrong"));
    });
    tables.iter().for_each(|table| table.record.verify().unwrap_or_else(|wrong| panic!("{wrong}")));
}

/// Hits and warm starts.
fn run(number: u64, seed: u64, operations: u64) -> (u64, u64) {
    let built = [Instant::now(); 2];
    let (started, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let mover = Arc::new(Mover { clock: Clock::Manual, built, origins: [ORIGIN_MS; 2], started, done });
    let mut lives = Lives::new(number, seed, operations);
    let mut parts = lives.draw_parts(Parts::FileAlone);
    let cache = lives.build(parts);
    let pool = |name: &str| cache.pool(name).expect("it was built with it");
    let table = |name: &&str| Table::new(cache.clone(), pool(name), KEYS, &mover);
    let mut tables: Vec<Table> = lives.names.iter().map(table).collect();
    drop(cache);
    for life in 1..=LIVES {
        lives.device.set(lives.case.faults());
        play(&tables, &mover, operations / tables.len() as u64 * life / LIVES, seed * LIVES + life);
        tables[0].cache.verify();
        if life < LIVES {
            let next = lives.draw_parts(parts);
            lives.restart(&mut tables, (parts, next));
            parts = next;
            mover.go_on(&tables[0].cache, 0);
        }
    }
    lives.device.set(Faults::default());
    (tables.iter().map(|table| table.hits.load(SeqCst)).sum(), lives.warm_starts)
}

#[test]
fn lives_of_a_memory_file_read_nothing_stale() {
    let asked = std::env::var("EBBTIDE_HISTORY_OPERATIONS").ok();
    let operations = asked.map_or(OPERATIONS, |number| number.parse().expect("a number of operations"));
    let rounds = operations.div_ceil(CASES * OPERATIONS_MAX);
    let (mut hits, mut warm_starts) = (0, 0);
    for seed in 0..rounds {
        for number in 0..CASES {
            println!("case {number}, seed {seed}");
            let (found, warm) = run(number, seed, operations / rounds / CASES);
            hits += found;
            warm_starts += warm;
        }
    }
    println!("{hits} hits, {warm_starts} warm starts");
    assert!(hits > operations / 20, "{hits} hits");
    assert!(warm_starts >= CASES * rounds, "{warm_starts} warm starts");
}
