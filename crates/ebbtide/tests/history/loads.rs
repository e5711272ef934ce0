//! Histories through the library's interface: threads that load beside everything else that changes a key, over memory
//! alone, a memory file, flash, and both, with pools that are resized, values that are held, and restarts. Flash is a
//! file, or a device that fails reads and writes, flips bits, refuses and delays, over stops and kills.
//!
//! - **A load publishes only if its key has not changed since the miss**: once a write, a removal or a flush has
//!   returned that began after a loader, nobody reads the value of that loader, in the cache or from another caller's
//!   load. The same holds for negative results.
//! - A loader that fails, panics or is cancelled publishes nothing, and releases those that wait for it.
//! - **A stale value is served within its window only**, and to a call with a loader only while another one loads.
//! - A held value keeps its bytes.
//!
//! Loaders change their own key in between, ask for it, fail, panic, find nothing, and are cancelled.

mod caller;

use crate::record::Record;
use crate::{Case as DeviceCase, Mover, THREADS, origins, unix_ms};
use caller::Caller;
use ebbtide::{ByteSize, Cache, Clock, Pool, PoolOptions};
use ebbtide_flash::device::{Device, Faults, FaultyDevice};
use ebbtide_testkit::Random;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Of all cases together, unless `EBBTIDE_HISTORY_OPERATIONS` says how many.
const OPERATIONS: u64 = 600_000;
/// Of one case, at most: its lives are few.
const OPERATIONS_MAX: u64 = 100_000;
const CASES: u64 = 6;
const LIVES: u64 = 4;
/// Minimum number of operations between two changes of the pools: changes by the clock leave a slow machine little to
/// find.
const OPERATIONS_PER_CHANGE: u64 = 100;
const KEYS: u64 = 900;
/// Memory of one of two pools.
const POOL_BYTES: u64 = 1 << 20;
const OTHER: &str = "other";

/// State that the threads of a pool share in one life.
pub struct Board<'a> {
    cache: &'a Cache,
    pub pool: Pool,
    pub record: &'a Record,
    pub mover: &'a Mover,
    pub counts: &'a Counts,
    /// The player that sees something wrong ends all.
    pub over: AtomicBool,
}

impl Board<'_> {
    /// Beside `manage`: values turn stale between two uses.
    fn move_time(&self, by: u64) {
        self.mover.go_on(self.cache.memcached(), by);
    }
}

/// Counts of all pools of a case: each event must have happened.
#[derive(Debug, Default)]
pub struct Counts {
    pub done: AtomicU64,
    pub hits: AtomicU64,
    /// Loaders that have returned a value.
    pub loaded: AtomicU64,
    /// Loaders that have failed, found nothing, panicked or were cancelled.
    pub failed: AtomicU64,
    /// Values of other loaders that calls with a loader have returned.
    pub joined: AtomicU64,
    /// Values past their TTL that calls with a loader have returned.
    pub stale: AtomicU64,
    /// Negative results that were found.
    pub absent: AtomicU64,
    /// Values that came from flash.
    pub from_flash: AtomicU64,
}

/// Flash of a case.
enum Flash {
    Absent,
    File,
    /// A device that fails, and the number of its deletion log.
    Device(Arc<FaultyDevice>, DeviceCase, u64),
}

/// Options of a case, and the files of its caches.
struct Case {
    folder: TempDir,
    has_file: bool,
    flash: Flash,
    seed: u64,
}

impl Case {
    fn new(number: u64, seed: u64) -> Self {
        let flash = match number / 2 {
            0 => Flash::Absent,
            1 => Flash::File,
            _ => {
                // Its faults are those of a device with several lives.
                let case = DeviceCase { number: 6 + (number + seed) % 2, seed, operations: 0 };
                Flash::Device(Arc::new(case.device()), case, 0)
            }
        };
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder for files");
        Self { folder, has_file: number % 2 == 1, flash, seed }
    }

    fn has_flash(&self) -> bool {
        !matches!(self.flash, Flash::Absent)
    }

    /// A cache in memory alone leaves nothing to another one.
    fn lives(&self) -> u64 {
        if self.has_file || self.has_flash() { LIVES } else { 1 }
    }

    fn clock(&self) -> Clock {
        if self.lives() == 1 { Clock::System } else { Clock::Manual }
    }

    fn log_path(&self, number: u64) -> PathBuf {
        self.folder.path().join(format!("removals{number}"))
    }

    fn build(&self) -> Cache {
        let builder = Cache::builder().memory(ByteSize::bytes(2 * POOL_BYTES)).max_value(ByteSize::kib(64));
        let mut builder = builder.pool(PoolOptions::named(OTHER)).clock(self.clock());
        if self.has_file {
            builder = builder.memory_file(self.folder.path().join("memory"));
        }
        builder = match &self.flash {
            Flash::Absent => builder,
            Flash::File => {
                let options = ebbtide::flash::Options::new().min_ttl(Duration::from_secs(1));
                builder.flash(self.folder.path().join("flash"), ByteSize::mib(8)).flash_options(options)
            }
            Flash::Device(device, case, log) => {
                let (options, device) =
                    (case.options(Some(self.log_path(*log))), Arc::clone(device) as Arc<dyn Device>);
                builder.engine(|engine| {
                    engine.flash_device(device).flash_options(options).flash_promotion(case.promotion())
                })
            }
        };
        builder.build().expect("the options are possible")
    }

    fn set_faults(&self, are_set: bool) {
        if let Flash::Device(device, case, _) = &self.flash {
            device.set(if are_set { case.faults() } else { Faults::default() });
        }
    }

    /// Stops a cache, or kills it: then the next one has what the device had at that moment.
    fn end(&mut self, cache: Cache, is_killed: bool) {
        self.set_faults(false);
        if !is_killed {
            cache.close().expect("the file can be written");
        }
        if let Flash::Device(device, case, log) = &mut self.flash {
            *device = Arc::new(device.killed(case.seed + *log));
            let (before, next) = (*log, *log + 1);
            *log = next;
            fs::copy(self.log_path(before), self.log_path(next)).expect("there is a log");
        }
    }
}

/// Changes the pools as an operator does, until the callers of a life are done.
fn manage(cache: &Cache, boards: [&Board<'_>; 2], random: &mut Random, is_over: impl Fn() -> bool) {
    let (mover, done) = (boards[0].mover, &boards[0].counts.done);
    let mut due = done.load(Relaxed);
    while !is_over() {
        thread::sleep(Duration::from_millis(1));
        if done.load(Relaxed) < due {
            continue;
        }
        due += OPERATIONS_PER_CHANGE;
        mover.go_on(cache.memcached(), random.uniform(300));
        match random.uniform(30) {
            0..6 => {
                let (low, high) = (random.uniform(1024), 1024 + random.uniform(1024));
                boards[1].pool.resize(ByteSize::kib(low), ByteSize::kib(high)).expect("the bounds fit");
            }
            6 => boards[1].pool.release().expect("it is there"),
            7..10 => {
                let memory = ByteSize::bytes(2 * POOL_BYTES + (random.uniform(2) << 19));
                cache.resize(memory).expect("the pools fit");
            }
            10 => {
                let board = boards[random.uniform(2) as usize];
                let operation = board.record.begin(THREADS, mover.bounds().earliest);
                board.pool.invalidate_all();
                board.record.flushed(operation);
                board.record.over(THREADS);
            }
            _ => {}
        }
    }
}

/// Runs operations on both pools until `last` of them are done.
fn play(cache: &Cache, (records, mover): (&[Record; 2], &Mover), counts: &Counts, last: u64, seed: u64) {
    let board = |name: &str, record| Board {
        cache,
        pool: cache.pool(name).expect("it was built with it"),
        record,
        mover,
        counts,
        over: AtomicBool::new(false),
    };
    let boards = [board("default", &records[0]), board(OTHER, &records[1])];
    thread::scope(|scope| {
        let places = boards.iter().flat_map(|board| (0..THREADS / 2).map(move |thread| (board, thread)));
        let callers = places.map(|(board, thread)| scope.spawn(move || Caller::new(board, thread, seed).play(last)));
        let callers: Vec<_> = callers.collect();
        let is_over = || callers.iter().all(|caller| caller.is_finished());
        manage(cache, [&boards[0], &boards[1]], &mut Random::new(seed), is_over);
        callers.into_iter().for_each(|caller| caller.join().expect("nobody saw anything wrong"));
    });
    records.iter().for_each(|record| record.verify().unwrap_or_else(|wrong| panic!("{wrong}")));
}

fn run(case: &mut Case, operations: u64) -> Counts {
    let (before, unix) = (Instant::now(), unix_ms());
    let mut cache = case.build();
    let built = [before, Instant::now()];
    let origins = origins(case.clock(), unix, unix_ms());
    let (started, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let mover = Mover { clock: case.clock(), built, origins, started, done };
    let records = [0; 2].map(|_| Record::new(KEYS, THREADS + 1));
    let (counts, mut random) = (Counts::default(), Random::new(case.seed));
    for life in 1..=case.lives() {
        case.set_faults(true);
        play(&cache, (&records, &mover), &counts, operations * life / case.lives(), case.seed * LIVES + life);
        cache.verify();
        if let Some(flash) = cache.memcached().flash_stats() {
            counts.from_flash.fetch_add(flash.promoted + flash.served, Relaxed);
        }
        if life < case.lives() {
            case.end(cache, random.chance(30));
            cache = case.build();
            mover.go_on(cache.memcached(), 0);
        }
    }
    counts
}

#[test]
fn loads_publish_nothing_older_than_a_change() {
    let asked = std::env::var("EBBTIDE_HISTORY_OPERATIONS").ok();
    let operations = asked.map_or(OPERATIONS, |number| number.parse().expect("a number of operations"));
    let rounds = operations.div_ceil(CASES * OPERATIONS_MAX);
    for seed in 0..rounds {
        for number in 0..CASES {
            let began = Instant::now();
            let (mut case, operations) = (Case::new(number, seed), operations / rounds / CASES);
            let counts = run(&mut case, operations);
            println!("case {number}, seed {seed}, {:?}: {counts:?}", began.elapsed());
            let enough = |count: &AtomicU64, share: u64| count.load(Relaxed) > operations / share;
            assert!(!case.has_flash() || enough(&counts.from_flash, 2000), "{counts:?}");
            assert!(enough(&counts.hits, 20) && enough(&counts.loaded, 20) && enough(&counts.failed, 50), "{counts:?}");
            assert!(enough(&counts.joined, 2000) && enough(&counts.absent, 2000), "{counts:?}");
            assert!(enough(&counts.stale, 4000), "{counts:?}");
        }
    }
}
