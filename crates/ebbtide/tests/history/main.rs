//! Threads that run every operation of a cache over a failing device, with the histories of all keys.
//!
//! Invariants at any moment, whatever is in flight between memory and flash (a cache may lose entries at any time):
//! - **Nothing foreign**: the value of a key was written to that key, as a whole, with its flags. A value that was
//!   refused (by add, replace, cas, for want of memory) is never read.
//! - **Nothing stale**: a read does not return a value that was overwritten, deleted or flushed by an operation that
//!   returned before the read began; nor, after a read of a newer value, an older one.
//! - **Nothing expired**: an entry lives no longer than its last write or touch allows, and its reported TTL agrees.
//! - **Changes are changes of the current value**: an increment, an append, a cas or a delete with a token found a
//!   value that was not stale; no two increments return the same number; add is refused, replace and touch succeed only
//!   if a value may have been there.
//!
//! All of that holds from one life of the cache to the next, after a stop as after a kill.
//!
//! Memory has space for a part of the keys, flash for some more: so most values are evicted before their next use, and
//! regions, pages and the log of small objects are reclaimed all the time. Time is moved by hand. The device
//! reorders and delays what it is given, fails, flips bits, loses and misplaces writes. The values, lengths and lives
//! are drawn from a seed; how threads meet is not.
//!
//!     EBBTIDE_HISTORY_OPERATIONS=10000000 cargo test -p ebbtide --test history

mod loads;
mod player;
mod pools;
mod record;
mod restarts;
mod value;

use ebbtide::memcached::{ByteSize, Cache, Clock, FlashOptions, FlashPromotion, FlashStats, Policy};
use ebbtide_flash::admission::{AdmissionOptions, AdmissionPolicy as Admission};
use ebbtide_flash::device::{Delivery, Device, Faults, FaultyDevice};
use ebbtide_flash::large::{Reclaim, Reinsertion};
use ebbtide_testkit::Random;
use player::{Bounds, Player, Table};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

const THREADS: usize = 4;
/// Operations of all cases together, unless `EBBTIDE_HISTORY_OPERATIONS` is set.
const OPERATIONS: u64 = 200_000;
/// Maximum number of operations on a device: after more, too many of its regions have failed.
const MAX_OPERATIONS: u64 = 100_000;
const CASES: u64 = 8;
/// From this one on cases have several lives.
const CASES_WITH_ENDS: u64 = 6;
const LIVES: u64 = 6;
/// Start of a cache's time; the system's clock adds the elapsed part of the second since 1970.
const ORIGIN_MS: u64 = 1000;
/// How stale the coarse time of a get may be, with the system's clock.
const STALENESS_MS: u64 = 60_000;

/// Parameters of a case.
struct Case {
    number: u64,
    seed: u64,
    operations: u64,
}

impl Case {
    fn lives(&self) -> u64 {
        if self.number < CASES_WITH_ENDS { 1 } else { LIVES }
    }

    fn clock(&self) -> Clock {
        if self.number.is_multiple_of(2) && self.lives() == 1 { Clock::System } else { Clock::Manual }
    }

    fn device(&self) -> FaultyDevice {
        let delivery = match self.number % 3 {
            0 => Delivery::AtOnce,
            1 => Delivery::Later { queue_depth: 16 },
            _ => Delivery::Later { queue_depth: 200 },
        };
        FaultyDevice::new((2 << 20) + ((self.number as usize % 2) << 20), self.seed, delivery)
    }

    fn faults(&self) -> Faults {
        let faults = Faults {
            read_errors: 2000,
            write_errors: 1000,
            read_flips: 100,
            write_flips: 100,
            lost_writes: 50,
            misplaced_writes: 200,
            refusals: 50,
            delays: 20,
            ..Faults::default()
        };
        match self.lives() {
            1 => faults,
            // After a crash the intended content of lost writes is unknown.
            _ => Faults { lost_writes: 0, misplaced_writes: 0, write_flips: 0, ..faults },
        }
    }

    fn options(&self, deletion_log: Option<PathBuf>) -> FlashOptions {
        let policy = if self.number % 4 == 3 { Admission::Probability(0.7) } else { Admission::All };
        FlashOptions {
            admission: AdmissionOptions { policy, min_ttl_seconds: 1, ..AdmissionOptions::default() },
            small_share: (self.number % 3 != 1).then_some(0.4),
            region_bytes: 32 << 10,
            reclaim: if self.number.is_multiple_of(2) { Reclaim::Fifo } else { Reclaim::Lru },
            reinsertion: [Reinsertion::Never, Reinsertion::Auto][self.number as usize / 2 % 2],
            discard: true,
            seal_seconds: 3,
            rewrite_threshold: 1,
            deletion_log,
            ..FlashOptions::default()
        }
    }

    fn promotion(&self) -> FlashPromotion {
        let words = ["always", "second-hit", "never", "one-in:2"];
        words[(self.number / 2 + self.seed) as usize % words.len()].parse().expect("a promotion")
    }

    fn cache(&self, device: &Arc<FaultyDevice>, deletion_log: Option<PathBuf>) -> Cache {
        let policy = if self.number % 4 < 2 { Policy::S3Fifo } else { Policy::Merge };
        let builder = Cache::builder().memory(ByteSize::kib(512)).policy(policy).clock(self.clock()).seed(self.seed);
        let device = Arc::clone(device) as Arc<dyn Device>;
        let builder = builder.flash_promotion(self.promotion());
        builder
            .flash_device(device)
            .flash_options(self.options(deletion_log))
            .build()
            .expect("the options are possible")
    }
}

/// Moves time.
struct Mover {
    clock: Clock,
    built: [Instant; 2],
    /// The time at which the cache was built is not before and not after these.
    origins: [u64; 2],
    started: AtomicU64,
    done: AtomicU64,
}

impl Mover {
    fn bounds(&self) -> Bounds {
        // The later one last.
        let done = self.done.load(SeqCst);
        let passed = self.built.map(|built| match self.clock {
            Clock::System => built.elapsed().as_millis() as u64,
            Clock::Manual => 0,
        });
        let started = self.started.load(SeqCst);
        let staleness = if self.clock == Clock::System { STALENESS_MS } else { 0 };
        Bounds {
            earliest: self.origins[0] + done + passed[1],
            latest: self.origins[1] + started + passed[0] + 1,
            staleness,
        }
    }

    fn go_on(&self, cache: &Cache, by: u64) {
        let to = self.started.fetch_add(by, SeqCst) + by;
        match self.clock {
            Clock::System => {
                cache.skip_time(Duration::from_millis(by)).expect("the clock is the system's");
                self.done.fetch_add(by, SeqCst);
            }
            Clock::Manual => {
                cache.maintain(Duration::from_millis(to));
                self.done.fetch_max(to, SeqCst);
            }
        }
    }
}

fn unix_ms() -> u64 {
    UNIX_EPOCH.elapsed().expect("a time after 1970").as_millis() as u64
}

/// Where the time of a cache may begin that was built between two moments.
fn origins(clock: Clock, before: u64, after: u64) -> [u64; 2] {
    match clock {
        Clock::Manual => [ORIGIN_MS; 2],
        Clock::System if before / 1000 == after / 1000 => [before, after].map(|unix| ORIGIN_MS + unix % 1000),
        Clock::System => [ORIGIN_MS, ORIGIN_MS + 999],
    }
}

/// Moves time while others are at work.
fn move_time(table: &Table, mover: &Mover, case: &Case, is_over: impl Fn() -> bool) {
    let mut random = Random::new(case.seed);
    while !is_over() {
        thread::sleep(Duration::from_millis(2));
        if random.uniform(300) == 0 && case.lives() == 1 {
            // A flush that is to come, and comes.
            let operation = table.record.begin(THREADS, mover.bounds().earliest);
            table.cache.flush(Duration::from_secs(1000));
            mover.go_on(&table.cache, 1_001_000);
            table.record.flushed(operation);
            table.record.over(THREADS);
        } else {
            mover.go_on(&table.cache, random.uniform(if case.lives() == 1 { 400 } else { 100 }));
        }
    }
}

/// How a life ends: the device and the deletion log of the next one.
fn end(
    table: &mut Table,
    device: &FaultyDevice,
    case: &Case,
    life: u64,
    folder: &Path,
) -> (Arc<FaultyDevice>, PathBuf, FlashStats) {
    let log = |life: u64| folder.join(format!("removals{life}"));
    let stats = table.cache.flash_stats().expect("there is flash");
    let (now, next) = (log(life), log(life + 1));
    let copy = || _ = fs::copy(&now, &next).expect("there is a log");
    let killed = case.seed + life;
    if killed.is_multiple_of(3) {
        device.set(Faults::default());
        table.cache.close_flash();
        copy();
        return (Arc::new(device.killed(killed)), next, stats);
    }
    let device = device.killed(killed);
    copy();
    (Arc::new(device), next, stats)
}

fn run(case: &Case) -> (u64, FlashStats) {
    let folder = tempfile::tempdir().expect("a folder for deletion logs");
    let mut deletion_log = folder.path().join("removals0");
    let mut device = Arc::new(case.device());
    let (before, unix) = (Instant::now(), unix_ms());
    let cache = case.cache(&device, Some(deletion_log));
    let built = [before, Instant::now()];
    let origins = origins(case.clock(), unix, unix_ms());
    let mover =
        Arc::new(Mover { clock: case.clock(), built, origins, started: AtomicU64::new(0), done: AtomicU64::new(0) });
    let pool = cache.pool("default").expect("every cache has it");
    let mut table = Table::new(cache, pool, 1500 + case.seed % 600, &mover);
    let mut life = 1;
    loop {
        device.set(case.faults());
        let (last, seed) = (case.operations * life / case.lives(), case.seed * LIVES + life);
        thread::scope(|scope| {
            let table = &table;
            let play = |thread| scope.spawn(move || Player::new(table, thread, seed).play(last));
            let players: Vec<_> = (0..THREADS).map(play).collect();
            move_time(table, &mover, case, || players.iter().all(|player| player.is_finished()));
            players.into_iter().for_each(|player| player.join().expect("nobody saw anything wrong"));
        });
        table.record.verify().unwrap_or_else(|wrong| panic!("{wrong}"));
        if life == case.lives() {
            break;
        }
        let stats;
        (device, deletion_log, stats) = end(&mut table, &device, case, life - 1, folder.path());
        println!("  life {life} {}", stats.notices.join(", "));
        device.set(Faults { read_errors: 2000, read_flips: 1000, ..Faults::default() });
        table.cache = case.cache(&device, Some(deletion_log));
        table.pool = table.cache.pool("default").expect("every cache has it");
        mover.go_on(&table.cache, 0);
        life += 1;
    }
    device.set(Faults::default());
    table.cache.verify();
    (table.hits.into_inner(), table.cache.flash_stats().expect("there is flash"))
}

#[test]
fn nothing_stale_foreign_or_expired_is_ever_read() {
    let asked = std::env::var("EBBTIDE_HISTORY_OPERATIONS").ok();
    let operations = asked.map_or(OPERATIONS, |number| number.parse().expect("a number of operations"));
    let rounds = operations.div_ceil(CASES * MAX_OPERATIONS);
    let mut found = 0;
    for round in 0..rounds {
        for number in 0..CASES {
            let case = Case { number, seed: round * CASES + number, operations: operations / rounds / CASES };
            let began = Instant::now();
            println!("case {number}, seed {}", case.seed);
            let (hits, flash) = run(&case);
            println!("{:?}: {hits} hits, {} promoted, {} served", began.elapsed(), flash.promoted, flash.served);
            println!("  {:?}", flash.tier.drops);
            found += flash.promoted + flash.served;
        }
    }
    assert!(found > operations / 100, "only {found} came from flash");
}
