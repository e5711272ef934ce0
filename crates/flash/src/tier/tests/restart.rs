//! Restarts: after stops, kills of the process and power cuts at any write, also of a start or a stop itself. A hit
//! after a restart is the latest version of its key, never a removed, overwritten, flushed, expired or damaged one.

mod boundary;
mod logs;
mod runs;
mod tokens;

use super::{SMALL, get, put_until, stamped};
use crate::deletion_log::DeletionLog;
use crate::device::{BLOCK, Delivery, Device, FaultyDevice, OpenError};
use crate::large::{Reclaim, Reinsertion};
use crate::tier::open::Opening;
use crate::{Error, FlashHash, Tier, TierOptions};
use ebbtide_testkit::{Random, seeds};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

const CAPACITY: usize = 3 << 20;
const KEYS: u64 = 300;

/// How the process or the machine ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The process is killed: completed writes are with the kernel.
    Kill,
    /// Power is cut: writes that were not synced may be lost, also those of the deletion log.
    Power,
}

struct World {
    random: Random,
    device: Arc<FaultyDevice>,
    folder: TempDir,
    /// The deletion log has WAL buffers, in the same folder.
    has_wal_buffers: bool,
    options: TierOptions,
    boot: u128,
    tier: Arc<Tier>,
    notices: Vec<String>,
    /// The version that flash may return for a key, and its expiry.
    current: HashMap<u64, (u64, u32)>,
    versions: u64,
    now: u32,
    /// The latest time passed to any tier.
    latest: u32,
    hits: u64,
}

type Files = Vec<(PathBuf, Vec<u8>)>;

fn files_in(folder: &Path) -> Files {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn options() -> TierOptions {
    TierOptions {
        region_bytes: 64 << 10,
        seal_seconds: 5,
        rewrite_threshold: 1,
        small_share: Some(0.5),
        ..TierOptions::default()
    }
}

/// The log's WAL buffers, if it has any, are in the log's folder.
fn opening(
    device: &Arc<FaultyDevice>,
    log: PathBuf,
    options: &TierOptions,
    boot: u128,
    has_wal_buffers: bool,
) -> Opening {
    let wal_folder = log.parent().filter(|_| has_wal_buffers).map(Path::to_owned);
    let mut opening = Opening::of(Arc::clone(device) as Arc<dyn Device>, 7, Some(log), options).unwrap();
    opening.boot = Some(boot);
    opening.uses_wal_buffer = wal_folder.is_some();
    opening.wal_folder = wal_folder;
    opening
}

fn value_of(key: u64, version: u64) -> Vec<u8> {
    let mut random = Random::new(key << 32 | version);
    let bytes = match random.uniform(20) {
        0..12 => random.uniform(300),
        12..14 => random.uniform(SMALL as u64 - 16),
        14..19 => 2100 + random.uniform(6000),
        _ => 60_000 + random.uniform(60_000),
    };
    stamped(key, version, bytes)
}

impl World {
    /// One in four divides its capacity while it runs; in half of them the deletion log has WAL buffers.
    fn new(seed: u64) -> Self {
        let small_share = (seed % 4 != 2).then_some(0.5);
        let reclaim = [Reclaim::Lru, Reclaim::Fifo][seed as usize / 4 % 2];
        let reinsertion = [Reinsertion::Never, Reinsertion::Forced(1), Reinsertion::Forced(0), Reinsertion::Auto]
            [seed as usize / 2 % 4];
        Self::started(seed, TierOptions { small_share, reclaim, reinsertion, ..options() }, seed / 8 % 2 == 1)
    }

    fn with(seed: u64, options: TierOptions) -> Self {
        Self::started(seed, options, false)
    }

    fn started(seed: u64, options: TierOptions, has_wal_buffers: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let device = Arc::new(FaultyDevice::new(CAPACITY, seed, Delivery::AtOnce));
        let (tier, notices) =
            opening(&device, folder.path().join("log"), &options, 1, has_wal_buffers).start(10_000).unwrap();
        Self {
            random: Random::new(seed),
            device,
            folder,
            has_wal_buffers,
            options,
            boot: 1,
            tier,
            notices,
            current: HashMap::new(),
            versions: 0,
            now: 10_000,
            latest: 10_000,
            hits: 0,
        }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Removes a key, as DRAM does when the key changes.
    fn change(&mut self, key: u64) {
        self.tier.remove(FlashHash::of(&key.to_le_bytes()));
        self.current.remove(&key);
    }

    /// Inserts a new version of a key, as DRAM does when it evicts a changed key.
    fn demote(&mut self, key: u64) {
        if self.current.contains_key(&key) {
            self.change(key);
        }
        self.versions += 1;
        let version = self.versions;
        let expiry = if self.random.chance(30) { self.now + self.random.uniform(60) as u32 } else { 0 };
        if put_until(&self.tier, &key.to_le_bytes(), &value_of(key, version), expiry, self.now).is_some() {
            self.current.insert(key, (version, expiry));
        }
    }

    fn look_up(&mut self, key: u64) {
        let Some(found) = get(&self.tier, &key.to_le_bytes(), self.now) else { return };
        let word = |at: usize| u64::from_le_bytes(found.value()[at..at + 8].try_into().unwrap());
        let (version, expiry) = *self.current.get(&key).unwrap_or_else(|| panic!("key {key} is gone: {}", word(8)));
        assert_eq!((word(0), word(8)), (key, version));
        assert_eq!(found.value(), value_of(key, version), "a torn value");
        assert_eq!(found.expiry, expiry);
        assert!(expiry == 0 || expiry > self.latest, "key {key} had expired");
        self.hits += 1;
    }

    fn look_at_all(&mut self) -> u64 {
        let before = self.hits;
        (0..KEYS).for_each(|key| self.look_up(key));
        self.hits - before
    }

    fn step(&mut self) {
        let key = self.random.uniform(KEYS).min(self.random.uniform(KEYS));
        match self.random.uniform(1000) {
            0..500 => self.demote(key),
            500..650 => self.change(key),
            650..800 => self.look_up(key),
            800..980 => self.tier.maintain(self.now),
            980..995 => {
                self.now += self.random.uniform(8) as u32;
                self.latest = self.latest.max(self.now);
                self.tier.maintain(self.now);
            }
            _ if self.random.uniform(10) > 0 => {}
            _ => {
                self.tier.flush();
                self.current.clear();
            }
        }
    }

    /// The files of the deletion log and of its WAL buffer, which has all records that the log's file lacks.
    fn logged(&self) -> Files {
        files_in(self.folder.path())
    }

    /// The files beside the device, as they are after the first write that `is_it` says, given its offset and whether
    /// the device is cut.
    fn files_at(&self, is_it: impl Fn(u64, bool) -> bool + Send + 'static) -> Arc<Mutex<Option<Files>>> {
        let folder = self.folder.path().to_owned();
        let found: Arc<Mutex<Option<Files>>> = Arc::default();
        let files = Arc::clone(&found);
        self.device.watch(move |offset, is_cut| {
            if is_it(offset, is_cut) {
                files.lock().unwrap().get_or_insert_with(|| files_in(&folder));
            }
        });
        found
    }

    /// Restores these files, as if the process had ended then.
    fn put_back(&self, files: Files) {
        self.release();
        files_in(self.folder.path()).into_iter().for_each(|(path, _)| fs::remove_file(path).unwrap());
        files.into_iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    }

    /// Ends this run, here or at the cut of the device, and starts the next one.
    fn end(&mut self, end: End, log: Option<Vec<u8>>) {
        if end == End::Kill {
            self.device.sync().unwrap();
        } else {
            self.boot += 1;
            self.release();
            for (path, _) in self.logged().iter().filter(|(path, _)| *path != self.log()) {
                // WAL buffers are in memory and are lost.
                fs::remove_file(path).unwrap();
            }
            if let Some(log) = log {
                fs::write(self.log(), log).unwrap();
            }
        }
        self.device = Arc::new(self.device.power_cut(self.random.uniform(1 << 60)));
        // The clock is set forwards and back.
        self.now = self.now + self.random.uniform(300) as u32 - self.random.uniform(200) as u32;
        self.start();
    }

    /// Releases the tier as at the end of its process.
    fn release(&self) {
        let end = if self.has_wal_buffers { DeletionLog::kill } else { DeletionLog::close };
        self.tier.deletion_log.iter().for_each(end);
    }

    fn start(&mut self) {
        self.release();
        let opening = opening(&self.device, self.log(), &self.options, self.boot, self.has_wal_buffers);
        (self.tier, self.notices) = opening.start(self.now).unwrap();
        self.latest = if self.is_warm() { self.latest.max(self.now) } else { self.now };
    }

    fn is_warm(&self) -> bool {
        self.notices.iter().any(|notice| notice.starts_with("flash is warm"))
    }

    fn is_cold_because(&self, why: &str) -> bool {
        self.notices.iter().any(|notice| notice.starts_with("flash starts empty") && notice.contains(why))
    }
}

/// Runs steps until the device cuts a write.
fn run_to_cut(world: &mut World, end: End) {
    world.device.cut_at(world.device.writes() + 1 + world.random.uniform(60));
    while !world.device.is_cut() {
        world.step();
        if end == End::Kill {
            world.device.sync().unwrap();
        }
    }
}

#[test]
fn kills_at_any_write_recover_no_removed_object() {
    let (mut cuts, mut hits, mut warm) = (0, 0, 0);
    let that_divide = seeds(12, 75).map(|number| 102 + 4 * number);
    for seed in seeds(16, 100).chain(that_divide) {
        println!("seed {seed}");
        let mut world = World::new(seed);
        for _ in 0..10 {
            run_to_cut(&mut world, End::Kill);
            world.end(End::Kill, None);
            warm += u64::from(world.is_warm());
            hits += world.look_at_all();
            world.tier.verify();
            cuts += 1;
        }
    }
    assert_eq!(warm, cuts, "every start was warm");
    assert!(hits > 40 * cuts, "{hits} hits after {cuts} kills");
}

#[test]
fn kills_within_starts_and_stops_are_as_others() {
    let (mut warm, seeds) = (0, seeds(40, 250));
    let enough = seeds.end * 12 / 5;
    for seed in seeds {
        println!("seed {seed}");
        let mut world = World::new(1000 + seed);
        (0..300).for_each(|_| world.step());
        for round in 0..3 {
            (0..60).for_each(|_| world.step());
            world.device.sync().unwrap();
            world.device.cut_at(world.device.writes() + 1 + world.random.uniform(12));
            let at_cut = world.files_at(|_, is_cut| is_cut);
            if world.random.chance(70) {
                world.tier.close(world.now).unwrap();
            }
            if round < 2 {
                // This start is cut off: its later writes are discarded.
                world.release();
                let opening = opening(&world.device, world.log(), &world.options, world.boot, world.has_wal_buffers);
                drop(opening.start(world.now).unwrap());
            }
            at_cut.lock().unwrap().take().into_iter().for_each(|files| world.put_back(files));
            world.end(End::Kill, None);
            warm += u64::from(world.is_warm());
            world.look_at_all();
            world.tier.verify();
        }
    }
    assert!(warm > enough, "{warm} starts were warm");
}

#[test]
fn power_cuts_recover_only_complete_stops() {
    let (mut warm, mut cold, mut hits, seeds) = (0, 0, 0, seeds(32, 200));
    let enough = seeds.end;
    for seed in seeds {
        println!("seed {seed}");
        let mut world = World::new(5000 + seed);
        let mut log = fs::read(world.log()).unwrap();
        for _ in 0..4 {
            (0..100).for_each(|_| world.step());
            if world.random.chance(70) {
                if world.random.chance(50) {
                    world.device.cut_at(world.device.writes() + 1 + world.random.uniform(12));
                }
                world.tier.close(world.now).unwrap();
                // A stop syncs the log first.
                log = fs::read(world.log()).unwrap();
            } else {
                run_to_cut(&mut world, End::Power);
            }
            let kept = world.random.chance(70).then(|| log.clone());
            world.end(End::Power, kept);
            let came = world.look_at_all();
            assert!(world.is_warm() || came == 0);
            *(if world.is_warm() { &mut warm } else { &mut cold }) += 1;
            hits += came;
            world.tier.verify();
            log = fs::read(world.log()).unwrap();
        }
    }
    assert!(warm > enough && cold > enough && hits > 40 * warm, "{warm} warm starts, {cold} cold ones, {hits} hits");
}

#[test]
fn kills_stops_and_power_cuts_may_alternate() {
    let (mut hits, seeds) = (0, seeds(24, 60));
    let enough = 200 * seeds.end;
    for seed in seeds {
        println!("seed {seed}");
        let mut world = World::new(9000 + seed);
        for _ in 0..8 {
            (0..world.random.uniform(150)).for_each(|_| world.step());
            let end = if world.random.chance(80) { End::Kill } else { End::Power };
            if world.random.chance(50) {
                world.tier.close(world.now).unwrap();
            }
            world.end(end, None);
            hits += world.look_at_all();
            world.tier.verify();
        }
    }
    assert!(hits > enough, "{hits} hits");
}

fn reads(device: &FaultyDevice) -> u64 {
    device.monitor().stats().reads.transfers
}

#[test]
fn a_start_reads_a_bounded_part() {
    let mut world = World::new(1);
    (0..3000).for_each(|_| world.step());
    let objects = world.tier.stats().objects;
    world.tier.close(world.now).unwrap();
    assert_eq!(put_until(&world.tier, b"late", b"value", 0, world.now), None);
    assert_eq!(world.tier.stats().drops.closed, 1);
    let before = reads(&world.device);
    world.start();
    let read = "the first block, two tables of pools, the head of tokens, two heads and two bodies";
    assert_eq!(reads(&world.device) - before, 8, "{read}");
    assert!(world.is_warm());
    assert_eq!(world.tier.stats().objects, objects);
    let found = world.look_at_all();
    assert!(found > 100, "{found}");
    world.start();
    assert!(world.is_warm(), "{:?}", world.notices);
    assert!(world.notices[0].contains("after a crash"));
    let before = reads(&world.device);
    world.start();
    let layout = &world.tier.stats();
    let small_pages = (CAPACITY / 2 / BLOCK) as u64;
    let max = 1 + 2 * layout.large.regions + 3 * small_pages.div_ceil(64) + 20;
    assert!(reads(&world.device) - before <= max, "{} reads, {max} at most", reads(&world.device) - before);
    // Except for small objects in the same page as a removal of an earlier version.
    assert!(world.look_at_all() > found * 2 / 3);
}

#[test]
fn small_objects_beyond_scan_limit_are_dropped() {
    let few = TierOptions { scan_bytes: 1 << 20, ..options() };
    let mut world = World::with(20, few);
    (0..2000).for_each(|_| world.step());
    world.tier.close(world.now).unwrap();
    world.start();
    assert!(world.tier.stats().small.objects() > 100, "a checkpoint is no scan");
    world.start();
    assert!(world.notices.iter().any(|notice| notice.contains("small objects on flash are given up")));
    let stats = world.tier.stats();
    assert!(stats.small.objects() == 0 && stats.large.objects > 10, "{:?}", world.notices);
    world.look_at_all();
    (0..500).for_each(|_| world.step());
    world.options.scan_bytes = u64::MAX;
    world.end(End::Kill, None);
    assert!(world.is_warm() && world.look_at_all() > 50);
    world.tier.verify();
}

#[test]
fn changed_options_start_empty_and_are_named() {
    let other = |change: &dyn Fn(&mut TierOptions)| {
        let mut options = options();
        change(&mut options);
        options
    };
    for (options, why) in [
        (other(&|options| options.small_share = Some(0.3)), "the share of small objects is"),
        (other(&|options| options.log_percent = 20), "the log of small objects has 20 now, and was 10 percent"),
    ] {
        let mut world = World::new(3);
        (0..500).for_each(|_| world.step());
        world.tier.close(world.now).unwrap();
        let ours = std::mem::replace(&mut world.options, options);
        world.start();
        assert!(world.is_cold_because(why), "{:?}", world.notices);
        assert_eq!((world.tier.stats().objects, world.look_at_all()), (0, 0));
        world.current.clear();
        // A start with the earlier division finds nothing of that run either.
        world.options = ours;
        world.start();
        assert!(!world.is_warm() && world.look_at_all() == 0, "{:?}", world.notices);
    }
}

#[test]
fn a_start_with_other_memory_divides_as_before() {
    for small_share in [None, Some(0.5)] {
        for (first, then) in [(400 << 10, u64::MAX), (400 << 10, 1 << 20), (700 << 10, 450 << 10)] {
            let with = |memory_bytes| TierOptions { memory_bytes, small_share, ..options() };
            let mut world = World::with(5, with(first));
            (0..500).for_each(|_| world.step());
            for memory_bytes in [then, first, then] {
                world.tier.close(world.now).unwrap();
                let contents = world.tier.stats().objects;
                world.options = with(memory_bytes);
                world.start();
                assert!(world.is_warm(), "{small_share:?}, {first} and {then}: {:?}", world.notices);
                assert_eq!(world.tier.stats().objects, contents);
                assert!(world.look_at_all() > 20, "{contents}");
                (0..100).for_each(|_| world.step());
            }
        }
    }
}

#[test]
fn a_start_says_why_it_is_empty() {
    let mut world = World::new(4);
    assert!(world.is_cold_because("it is new"), "{:?}", world.notices);
    (0..500).for_each(|_| world.step());
    world.boot = 2;
    world.start();
    assert!(world.is_cold_because("the machine was started anew"), "{:?}", world.notices);
    assert_eq!(world.look_at_all(), 0);
    world.device.flip(20, 1);
    world.start();
    assert!(world.is_cold_because("first block is damaged"), "{:?}", world.notices);
    fs::remove_file(world.log()).unwrap();
    world.start();
    assert!(world.is_cold_because("its deletion log is missing"), "{:?}", world.notices);
    world.tier.maintain(world.now + 5000);
    world.start();
    assert!(world.is_cold_because("the clock went back by 5000 seconds"), "{:?}", world.notices);
    world.tier.remove(FlashHash::of(b"1"));
    let flip = |log: &Path, at: usize| {
        let mut bytes = fs::read(log).unwrap();
        bytes[at] ^= 1;
        fs::write(log, bytes).unwrap();
    };
    // The heads of both rings.
    flip(&world.log(), BLOCK + 3);
    world.start();
    let given_up = |notice: &String| notice.contains("given up: what was removed is not known");
    assert!(world.is_warm() && world.notices.iter().any(given_up), "{:?}", world.notices);
    flip(&world.log(), fs::read(world.log()).unwrap().len() / 2 + BLOCK / 2 + 3);
    world.start();
    assert!(world.is_cold_because("its deletion log is missing"), "{:?}", world.notices);
    assert_eq!(world.look_at_all(), 0);
    world.options.warm_restart = false;
    world.start();
    assert!(world.notices.is_empty(), "{:?}", world.notices);
    world.options.warm_restart = true;
    world.start();
    assert!(world.is_cold_because("the end of large objects is"), "{:?}", world.notices);
}

/// Flash cannot detect a run without flash in between; the operator can, by the age in the notice.
#[test]
fn a_start_reports_the_age_of_objects() {
    let mut world = World::new(4);
    (0..500).for_each(|_| world.step());
    for (seconds, age) in
        [(0, "0 s"), (119, "119 s"), (180, "3 min"), (3 * 3600 + 60, "3 h"), (200_000, "2 days"), (7000, "116 min")]
    {
        if seconds > 200 {
            world.tier.close(world.now).unwrap();
        }
        world.now += seconds;
        world.start();
        let is_told = |notice: &String| notice.ends_with(&format!("objects, written last {age} ago"));
        assert!(world.is_warm() && world.notices.iter().any(is_told), "{age}: {:?}", world.notices);
        world.tier.maintain(world.now);
    }
    world.tier.close(world.now).unwrap();
    world.now -= 300;
    world.start();
    assert!(world.notices.iter().any(|notice| notice.ends_with("written last 0 s ago")), "{:?}", world.notices);
}

#[test]
fn a_pending_flush_makes_the_restart_cold() {
    for (closes, comes) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut world = World::new(8);
        (0..500).for_each(|_| world.step());
        world.tier.announce_flush();
        (0..50).for_each(|key| world.demote(key));
        if comes {
            world.tier.flush();
            world.current.clear();
            (0..50).for_each(|key| world.demote(key));
        }
        if closes {
            world.tier.close(world.now).unwrap();
        }
        world.start();
        assert_eq!(world.is_warm(), comes, "{:?}", world.notices);
        let came = world.look_at_all();
        assert!(came == 0 || comes, "{came} came back");
        assert!(came > 0 || !comes || !closes, "nothing came back that was put there after the flush");
    }
}

#[test]
fn a_share_set_before_the_split_holds() {
    let mut world = World::with(11, TierOptions { small_share: None, ..options() });
    (0..3).for_each(|key| world.demote(key));
    world.tier.close(world.now).unwrap();
    world.options.small_share = Some(0.3);
    world.start();
    (0..2000).for_each(|_| world.step());
    world.tier.close(world.now).unwrap();
    world.start();
    assert!(world.is_warm(), "the same options: {:?}", world.notices);
}

/// A stop is complete even if the checkpoint is too small for all objects and an older one is in its area.
#[test]
fn a_stop_keeps_objects_of_any_length() {
    const BYTES: u64 = 6 << 20;
    const FIRST: u64 = 500;
    for length in [24, 60, 300, 1050, 2100] {
        let mut world = World::with(30, TierOptions { memory_bytes: 4 << 20, ..TierOptions::default() });
        world.device = Arc::new(FaultyDevice::new(BYTES as usize, 1, Delivery::AtOnce));
        world.start();
        let put = |world: &World, numbers: std::ops::Range<u64>| {
            for number in numbers {
                put_until(&world.tier, &number.to_le_bytes(), &vec![7; length], 0, world.now);
                if number % 64 == 0 {
                    world.tier.maintain(world.now);
                    if world.tier.wanted_memory(0) > 0 {
                        world.tier.grow_memory(1 << 16, 0);
                    }
                }
            }
        };
        put(&world, 0..FIRST);
        world.tier.close(world.now).unwrap();
        world.start();
        put(&world, FIRST..2 * BYTES / (length as u64 + 30));
        put(&world, 0..FIRST);
        (0..FIRST).for_each(|number| _ = world.tier.remove(FlashHash::of(&number.to_le_bytes())));
        let contents = world.tier.stats().objects;
        world.tier.close(world.now).unwrap();
        world.boot += 1;
        world.start();
        assert!(world.is_warm(), "{length} bytes: {:?}", world.notices);
        let found = world.tier.stats().objects;
        assert!(found > contents / 20 * 19, "{length} bytes: {found} of {contents}");
        let is_gone = |number: u64| get(&world.tier, &number.to_le_bytes(), world.now).is_none();
        assert!((0..FIRST).all(is_gone), "{length} bytes");
    }
}
