//! The process that is killed: threads that write, delete, overwrite, count, touch and flush, over so few bytes that
//! objects are evicted, while the memory limit changes.

use super::journal::{Journal, Periods, Seen, What};
use super::pools::{self, Steps};
use super::{PATIENCE, structures, test_name};
use ebbtide::memcached::{ByteSize, Cache, CacheBuilder, Clock, FlashOptions, Pool};
use ebbtide_store::{KillPoint, arm_kill};
use ebbtide_testkit::{Random, Stamp};
use std::collections::HashMap;
use std::env;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

const FOLDER: &str = "EBBTIDE_KILLS_FOLDER";
const HAS_FLASH: &str = "EBBTIDE_KILLS_FLASH";
const VALUES: &str = "EBBTIDE_KILLS_VALUES";
const SEED: &str = "EBBTIDE_KILLS_SEED";
/// A point and its passes.
const KILL: &str = "EBBTIDE_KILLS_POINT";
/// Steps of changes of pools after which the process ends itself.
const STEPS: &str = "EBBTIDE_KILLS_STEPS";

const CACHE_BYTES: u64 = 1 << 20;
const LARGER_BYTES: u64 = 2 << 20;
pub const KEYS: u32 = 18_000;
pub const THREADS: u32 = 3;
/// Operations of one thread.
const OPERATIONS: u64 = 12_000;
/// Operations between two turns of maintenance, which the first thread carries out.
const MAINTAIN_EVERY: u64 = 500;
/// Operations in which keys are written, changed, or deleted for the most part.
const PHASE: u64 = 2000;
/// Between two looks at whether flash is free.
const STEP: Duration = Duration::from_millis(10);
const COUNTS: u64 = 1 << 20;

/// The kind of values that a child writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    Plain,
    /// In three pools, which are removed, added and flushed.
    InPools,
    /// Structured ones beside plain ones.
    Structured,
}

/// One folder with its cache.
pub struct Setup {
    pub folder: PathBuf,
    pub has_flash: bool,
    pub values: Values,
}

/// When a process is killed, or ends itself.
#[derive(Clone, Copy, Debug)]
pub enum Kill {
    /// At a point of the store, after this number of passes.
    At(KillPoint, u64),
    /// After this number of steps of changes of pools.
    AfterSteps(u64),
}

/// A process that ends by a kill or with its operations.
pub struct Victim(Child);

impl Setup {
    /// Builds the cache. The kernel may end the transfers of a killed process after the process: until then flash is
    /// in use.
    pub fn build(&self) -> ebbtide::Cache {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match ebbtide::Cache::builder().engine(|_| self.builder()).build() {
                Ok(cache) => return cache,
                Err(error) => {
                    assert!(error.to_string().contains("in use") && Instant::now() < deadline, "{error}");
                    thread::sleep(STEP);
                }
            }
        }
    }

    fn builder(&self) -> CacheBuilder {
        let builder = Cache::builder().memory_ceiling(ByteSize::mib(8)).memory_file(self.folder.join("memory"));
        if self.values == Values::InPools {
            let builder = builder.memory(ByteSize::bytes(pools::CACHE_BYTES));
            return pools::configure(builder.flash(self.folder.join("flash"), ByteSize::mib(16)));
        }
        let builder = builder.memory(ByteSize::bytes(CACHE_BYTES));
        let mut builder = builder.max_value(ByteSize::kib(256)).clock(Clock::Manual);
        if self.has_flash {
            let options = FlashOptions {
                rewrite_threshold: 1,
                region_bytes: 64 << 10,
                seal_seconds: 1,
                ..FlashOptions::default()
            };
            builder = builder.flash(self.folder.join("flash"), ByteSize::mib(8)).flash_options(options);
        }
        builder
    }

    /// Bytes of all threads' journals.
    pub fn journal_bytes(&self) -> u64 {
        let length = |thread| fs::metadata(Journal::path(&self.folder, thread)).map_or(0, |metadata| metadata.len());
        (0..THREADS).map(length).sum()
    }

    pub fn spawn(&self, seed: u64, kill: Option<Kill>) -> Victim {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args([&test_name("a_kill_at_any_step_leaves_nothing_old"), "--exact", "--nocapture"]);
        command.env(FOLDER, &self.folder).env(SEED, seed.to_string());
        command.env(HAS_FLASH, if self.has_flash { "1" } else { "0" });
        command.env(VALUES, (self.values as u8).to_string());
        match kill {
            Some(Kill::At(point, passes)) => _ = command.env(KILL, format!("{}:{passes}", point as u8)),
            Some(Kill::AfterSteps(steps)) => _ = command.env(STEPS, steps.to_string()),
            None => {}
        }
        command.stdout(Stdio::null()).stderr(Stdio::from(fs::File::create(self.folder.join("stderr")).unwrap()));
        Victim(command.spawn().unwrap())
    }
}

/// A test that fails leaves no process behind.
impl Drop for Victim {
    fn drop(&mut self) {
        // It has ended, but after a failure.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

impl Victim {
    pub fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Waits for the end. Returns whether it was a kill.
    pub fn wait_for_kill(&mut self) -> bool {
        let status = self.0.wait().unwrap();
        assert!(status.success() || status.signal() == Some(9), "{status}: see `stderr` in the folder");
        status.signal() == Some(9)
    }

    /// Kills it. False if it had ended.
    pub fn kill(&mut self) -> bool {
        self.0.kill().unwrap();
        self.wait_for_kill()
    }
}

pub fn is_child() -> bool {
    env::var_os(FOLDER).is_some()
}

/// All kinds of values: small ones, some of which are numbers, and a few that are longer than a segment.
fn length(key: u32, version: u64, values: Values) -> usize {
    let mut random = Random::new(u64::from(key) << 32 ^ version);
    if values == Values::InPools {
        return pools::length(&mut random);
    }
    match random.uniform(2000) {
        0 => 150_000,
        1..40 => 2000 + random.uniform(6000) as usize,
        _ => 24 + random.uniform(60) as usize,
    }
}

fn is_number(key: u32) -> bool {
    key.is_multiple_of(4)
}

fn value(key: u32, version: u64, values: Values) -> Vec<u8> {
    match is_number(key) {
        true => (version * COUNTS).to_string().into_bytes(),
        false => Stamp { key: key.into(), version }.value(length(key, version, values)),
    }
}

/// The version and the count in the bytes of a value.
pub fn read(key: u32, bytes: &[u8]) -> Seen {
    if is_number(key) {
        let text = std::str::from_utf8(bytes).unwrap_or_else(|_| panic!("key {key} has no number: {bytes:?}"));
        let number: u64 = text.trim_end().parse().unwrap_or_else(|_| panic!("key {key} has no number: {text}"));
        return Seen { version: number / COUNTS, count: number % COUNTS };
    }
    let stamp = Stamp::read(bytes).unwrap_or_else(|| panic!("key {key}: {} torn bytes", bytes.len()));
    assert_eq!(stamp.key, u64::from(key), "a foreign value");
    Seen { version: stamp.version, count: 0 }
}

/// Works until it is killed or has done its operations, and then stops cleanly.
pub fn run() {
    let text = |name: &str| env::var(name).unwrap();
    let number = |text: &str| text.parse::<u64>().unwrap();
    let folder = PathBuf::from(text(FOLDER));
    let kill = env::var(KILL).ok().map(|kill| {
        let (point, passes) = kill.split_once(':').unwrap();
        let points = super::POINTS.into_iter().chain(super::EDIT_POINTS);
        let point = points.into_iter().find(|known| *known as u64 == number(point));
        (point.unwrap(), number(passes))
    });
    let is_of_start = kill.is_some_and(|(point, _)| super::is_of_start(point));
    let arm = || kill.into_iter().for_each(|(point, passes)| arm_kill(point, passes));
    if is_of_start {
        arm();
    }
    let steps = Steps::until_kill(env::var(STEPS).ok().map(|steps| number(&steps)));
    let all = [Values::Plain, Values::InPools, Values::Structured];
    let values = all[number(&text(VALUES)) as usize];
    let setup = Setup { folder: folder.clone(), has_flash: text(HAS_FLASH) == "1", values };
    let cache = setup.build();
    if !is_of_start {
        // A start resizes memory that the last run resized: a kill there leaves the file of the last stop.
        arm();
    }
    let clock = AtomicU64::new(Journal::next_moment(&folder, THREADS));
    let (seed, is_over) = (number(&text(SEED)), AtomicBool::new(false));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let worker = Worker {
                cache: cache.memcached(),
                structured: (values == Values::Structured).then(|| cache.pool("default").unwrap()),
                written: HashMap::new(),
                journal: Journal::open(&folder, thread, &clock),
                random: Random::new(seed << 8 | u64::from(thread)),
                thread,
                values,
            };
            let (is_over, steps) = (&is_over, &steps);
            scope.spawn(move || worker.work(is_over, steps));
        }
    });
    cache.verify();
    cache.close().unwrap();
}

pub struct Worker<'c> {
    pub cache: &'c Cache,
    /// For structured values.
    pub structured: Option<ebbtide::Pool>,
    /// The structured values that this process has written and removed.
    pub written: HashMap<u32, Option<Seen>>,
    pub journal: Journal<'c>,
    pub random: Random,
    pub thread: u32,
    pub values: Values,
}

impl Worker<'_> {
    fn work(mut self, is_over: &AtomicBool, steps: &Steps) {
        for operation in 0..OPERATIONS {
            if is_over.load(SeqCst) {
                return;
            }
            if self.thread == 0 && operation.is_multiple_of(MAINTAIN_EVERY) {
                self.maintain(operation);
            }
            if self.thread == 0 && self.values == Values::InPools {
                self.change_pools(operation, steps);
            }
            // Each key has one writer, so its acknowledged changes have an order.
            let keys = u64::from(KEYS / THREADS);
            let structured = self.structured.clone();
            let number = if structured.is_some() { self.structured_key(keys) } else { self.random.uniform(keys) };
            let key = number as u32 * THREADS + self.thread;
            if let Some(pool) = structured.filter(|_| structures::is_structured(key)) {
                self.change_structure(&pool, key);
                continue;
            }
            let writes = [95, 60, 10][(operation / PHASE % 3) as usize];
            match self.random.uniform(100) {
                drawn if drawn < writes => self.set(key),
                _ if self.thread == 0
                    && self.values == Values::Plain
                    && operation < OPERATIONS / 2
                    && self.random.uniform(4000) == 0 =>
                {
                    self.flush()
                }
                _ => match self.random.uniform(10) {
                    0..3 if is_number(key) => self.count(key),
                    3 => self.touch(key),
                    4 => self.get(key),
                    _ => self.delete(key),
                },
            }
        }
        is_over.store(true, SeqCst);
    }

    fn maintain(&mut self, operation: u64) {
        if self.values != Values::InPools {
            self.cache.maintain(Duration::from_millis(operation));
        }
        if self.random.uniform(4) == 0 {
            let (less, more) = match self.values {
                Values::InPools => (pools::CACHE_BYTES, pools::LARGER_BYTES),
                Values::Plain | Values::Structured => (CACHE_BYTES, LARGER_BYTES),
            };
            let bytes = if self.random.chance(50) { less } else { more };
            self.cache.resize(ByteSize::bytes(bytes)).unwrap();
        }
    }

    pub fn set(&mut self, key: u32) {
        let life = if self.random.chance(10) { Periods::random(&mut self.random) } else { Periods::ENDLESS };
        let version = self.journal.begin_life(key, What::Set, life);
        // A write that is refused leaves no value.
        let value = value(key, version, self.values);
        let insert = |(pool, key): (Pool, [u8; 4])| pool.insert(&key, &value).ttl(life.ttl()).apply().is_ok();
        let is_stored = self.pool(key).is_some_and(insert);
        self.journal.end(key, if is_stored { What::Set } else { What::Delete }, version);
    }

    fn count(&mut self, key: u32) {
        let moment = self.journal.begin(key, What::Count);
        match self.pool(key).map(|(pool, key)| pool.increment(&key, 1)) {
            Some(Ok(Some(_))) => self.journal.end(key, What::Count, moment),
            None | Some(Ok(None) | Err(_)) => self.journal.end(key, What::Nothing, moment),
        }
    }

    fn touch(&mut self, key: u32) {
        let life = Periods::random(&mut self.random);
        let moment = self.journal.begin_life(key, What::Touch, life);
        // A touch that is refused changes nothing.
        let is_touched = self.pool(key).is_some_and(|(pool, key)| pool.touch(&key, life.ttl()) == Ok(true));
        self.journal.end(key, if is_touched { What::Touch } else { What::Nothing }, moment);
    }

    fn get(&mut self, key: u32) {
        if let Some((pool, key)) = self.pool(key) {
            drop(pool.get(&key));
        }
    }

    fn delete(&mut self, key: u32) {
        let moment = self.journal.begin(key, What::Delete);
        self.pool(key).iter().for_each(|(pool, key)| _ = pool.delete(key));
        self.journal.end(key, What::Delete, moment);
    }

    fn flush(&mut self) {
        let moment = self.journal.begin(0, What::Flush);
        self.cache.flush(Duration::ZERO);
        self.journal.end(0, What::Flush, moment);
    }
}
