//! A process with a memory file is killed, at a step of the store or at any instant. Afterwards its acknowledged
//! entries are there with their lives or missing, and nothing older or foreign is.
//!
//! The test starts its own program as the process that is killed (`child`), arms one `KillPoint` in it, and reads its
//! journal after the kill. A start after a kill is cold with its reason, or the state of the last stop where the kill
//! was after the stop or before the file was taken. With flash, objects come back from there.

mod child;
mod journal;
mod pools;
mod structures;

use crate::common::folders;
use child::{Kill, Setup, Values};
use ebbtide::Cache;
use ebbtide::memcached::{MemoryStart, Pool};
use ebbtide_store::KillPoint;
use ebbtide_testkit::{Random, seeds};
use journal::{Known, Periods};
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time limit of one process, for a machine that stalls.
const PATIENCE: Duration = Duration::from_secs(120);

const POINTS: [KillPoint; 18] = [
    KillPoint::SplitWord,
    KillPoint::SplitSlot,
    KillPoint::ContractionWord,
    KillPoint::ContractionSlot,
    KillPoint::Displacement,
    KillPoint::Publication,
    KillPoint::Commit,
    KillPoint::RelocationCopy,
    KillPoint::RelocationSlot,
    KillPoint::Removal,
    KillPoint::Shrink,
    KillPoint::Resize,
    KillPoint::StartAnnounced,
    KillPoint::StartLoaded,
    KillPoint::StartInUse,
    KillPoint::StopBegin,
    KillPoint::StopImage,
    KillPoint::StopClean,
];

/// Points of edits and of moves of edited values.
const EDIT_POINTS: [KillPoint; 8] = [
    KillPoint::EditInvalidation,
    KillPoint::EditPublication,
    KillPoint::Demotion,
    KillPoint::Publication,
    KillPoint::RelocationCopy,
    KillPoint::RelocationSlot,
    KillPoint::Removal,
    KillPoint::StopClean,
];

fn is_of_start(point: KillPoint) -> bool {
    matches!(point, KillPoint::StartAnnounced | KillPoint::StartLoaded | KillPoint::StartInUse)
}

/// Passes of a point before the kill, at most: points of a start and a stop are passed once, a step of the index
/// hundreds of times.
fn passes(point: KillPoint, random: &mut Random) -> u64 {
    match point {
        KillPoint::Publication | KillPoint::Commit | KillPoint::Removal => random.uniform(20_000),
        KillPoint::EditInvalidation | KillPoint::EditPublication | KillPoint::Demotion => random.uniform(10_000),
        KillPoint::SplitSlot | KillPoint::Displacement | KillPoint::RelocationCopy | KillPoint::RelocationSlot => {
            random.uniform(2000)
        }
        KillPoint::SplitWord | KillPoint::ContractionWord | KillPoint::ContractionSlot => random.uniform(50),
        KillPoint::Shrink | KillPoint::Resize => random.uniform(2),
        _ => 0,
    }
}

/// Reason in a file after a kill in this step; `None`: the file is that of the last stop.
fn expected_reason(point: Option<KillPoint>) -> Option<&'static str> {
    match point {
        Some(KillPoint::StopClean | KillPoint::StartAnnounced | KillPoint::StartLoaded) => None,
        Some(KillPoint::StopBegin | KillPoint::StopImage) => Some("the last stop was cut short"),
        _ => Some("the last run was not stopped cleanly"),
    }
}

/// Kills and starts in one folder.
struct Lives {
    setup: Setup,
    known: Known,
    random: Random,
    found: u64,
    /// Values of flash among them.
    from_flash: u64,
}

impl Lives {
    fn new(folder: &Path, has_flash: bool, seed: u64) -> Self {
        let folder = folder.join(if has_flash { "flash" } else { "memory" });
        Self::of(Setup { folder, has_flash, values: Values::Plain }, seed)
    }

    fn with_pools(folder: &Path, seed: u64) -> Self {
        Self::of(Setup { folder: folder.join("pools"), has_flash: true, values: Values::InPools }, seed)
    }

    fn with_structures(folder: &Path, seed: u64) -> Self {
        Self::of(Setup { folder: folder.join("structures"), has_flash: true, values: Values::Structured }, seed)
    }

    fn of(setup: Setup, seed: u64) -> Self {
        fs::create_dir(&setup.folder).unwrap();
        // The first process finds the file of a stop.
        setup.build().close().unwrap();
        Self { setup, known: Known::default(), random: Random::new(seed), found: 0, from_flash: 0 }
    }

    /// Has a process be killed at a point.
    fn kill_at(&mut self, point: KillPoint) {
        let mut passes = passes(point, &mut self.random);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut child = self.setup.spawn(self.random.uniform(1 << 40), Some(Kill::At(point, passes)));
            let is_killed = child.wait_for_kill();
            if is_killed && is_of_start(point) {
                // A second start is cut short, too.
                assert!(self.setup.spawn(0, Some(Kill::At(point, 0))).wait_for_kill());
            }
            self.check(is_killed.then_some(Some(point)));
            if is_killed {
                return;
            }
            // Ends: the operations of a process pass each point, how often depends on how its threads meet.
            assert!(Instant::now() < deadline, "no process has passed {point:?}");
            passes = 0;
        }
    }

    /// Has a process end itself between two steps of changes of its pools.
    fn kill_between_steps(&mut self) {
        let mut steps = self.random.uniform(12);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut child = self.setup.spawn(self.random.uniform(1 << 40), Some(Kill::AfterSteps(steps)));
            let is_killed = child.wait_for_kill();
            self.check(is_killed.then_some(None));
            if is_killed {
                return;
            }
            // Ends: each process changes its pools.
            assert!(Instant::now() < deadline, "no process has changed its pools");
            steps = 0;
        }
    }

    /// Has a process be killed when it has written some of its journal.
    fn kill_at_random(&mut self) {
        let length = self.setup.journal_bytes() + self.random.uniform(600_000);
        let mut child = self.setup.spawn(self.random.uniform(1 << 40), None);
        let deadline = Instant::now() + PATIENCE;
        while self.setup.journal_bytes() < length && child.is_running() {
            assert!(Instant::now() < deadline, "the process does nothing");
            thread::sleep(Duration::from_micros(self.random.uniform(2000)));
        }
        let is_killed = child.kill();
        // A process that is killed in its stop or start may have left a clean file.
        self.check_any(!is_killed);
    }

    /// Checks the file of a process: with the reason of this kill, or after its clean stop.
    fn check(&mut self, kill: Option<Option<KillPoint>>) {
        let reason = kill.and_then(expected_reason);
        let cache = self.setup.build();
        match (cache.memcached().memory_start().unwrap(), reason) {
            (MemoryStart::Warm { .. }, None) => {}
            (MemoryStart::Cold { reason }, Some(expected)) if reason.contains(expected) => {}
            (start, expected) => panic!("killed at {kill:?}, {expected:?} expected: {start}"),
        }
        self.look(cache);
    }

    fn check_any(&mut self, was_stopped: bool) {
        let cache = self.setup.build();
        let start = cache.memcached().memory_start().unwrap();
        assert!(!was_stopped || matches!(start, MemoryStart::Warm { .. }), "{start}");
        self.look(cache);
    }

    /// Compares each value and its life with the journal, and stops.
    fn look(&mut self, library: Cache) {
        self.known.read(&self.setup.folder);
        let cache = library.memcached();
        let flash = cache.flash_stats().map_or_else(String::new, |stats| stats.notices.join(", "));
        println!("{}; {flash}", cache.memory_start().unwrap());
        let pool = |name: String| (name.clone(), cache.pool(&name).unwrap());
        let pools: HashMap<String, Pool> = cache.pools().into_iter().map(pool).collect();
        for key in 0..child::KEYS {
            let is_pooled = self.setup.values == Values::InPools;
            let (pool, key_in_pool) = if is_pooled { pools::place(key) } else { ("default", key) };
            let value = pools[pool].get(&key_in_pool.to_le_bytes()).hit();
            let found = value.map(|value| (value.to_vec(), Periods::of(value.ttl())));
            let Some((bytes, life)) = found else { continue };
            let is_structured = self.setup.values == Values::Structured && structures::is_structured(key);
            let seen = match is_structured {
                true => structures::read(&library, key).unwrap(),
                false => Some(child::read(key, &bytes)),
            };
            // Of two looks at a structure the second one may follow its eviction.
            let Some(seen) = seen else { continue };
            let start = || cache.memory_start().unwrap();
            self.known.saw(key, seen, life).unwrap_or_else(|wrong| panic!("{wrong}; {}", start()));
            self.found += 1;
        }
        self.from_flash += cache.flash_stats().map_or(0, |stats| stats.promoted + stats.served);
        cache.verify();
        cache.close().unwrap();
    }
}

/// The name of a test of this module, for the program itself.
fn test_name(name: &str) -> String {
    let module = module_path!().split_once("::").map_or("", |(_, module)| module);
    format!("{module}::{name}")
}

/// One for each mode of a memory file, without flash and with it.
fn all_lives(folders: &[TempDir]) -> Vec<Lives> {
    let cases = folders.iter().flat_map(|folder| [false, true].map(|has_flash| (folder, has_flash)));
    cases.zip(0..).map(|((folder, has_flash), seed)| Lives::new(folder.path(), has_flash, seed)).collect()
}

#[test]
fn a_kill_at_any_step_leaves_nothing_old() {
    if child::is_child() {
        // The process that is killed is this test, too.
        return child::run();
    }
    let folders = folders();
    let mut lives = all_lives(&folders);
    let cases = lives.len();
    for seed in seeds(1, 200) {
        for (number, point) in POINTS.into_iter().enumerate() {
            // The result of a kill depends on the case in a start and a stop, and not in a step of the store.
            match point {
                KillPoint::StartAnnounced => {
                    let with_flash = lives.iter_mut().filter(|lives| lives.setup.has_flash);
                    with_flash.for_each(|lives| lives.kill_at(point));
                }
                KillPoint::StartLoaded
                | KillPoint::StartInUse
                | KillPoint::StopBegin
                | KillPoint::StopImage
                | KillPoint::StopClean => lives.iter_mut().for_each(|lives| lives.kill_at(point)),
                _ => lives[(number + seed as usize) % cases].kill_at(point),
            }
        }
    }
    let found: Vec<u64> = lives.iter().map(|lives| lives.found).collect();
    println!("values found after kills: {found:?}");
    assert!(found.iter().sum::<u64>() > 1000, "{found:?}");
}

#[test]
fn a_kill_at_any_instant_leaves_nothing_old() {
    let folders = folders();
    let mut lives = all_lives(&folders);
    let cases = lives.len();
    seeds(10, 2000).for_each(|seed| lives[seed as usize % cases].kill_at_random());
    println!("values found after kills: {:?}", lives.iter().map(|lives| lives.found).collect::<Vec<_>>());
}

#[test]
fn kills_between_pool_changes_restore_nothing_removed() {
    let folder = tempfile::tempdir().unwrap();
    let mut lives = Lives::with_pools(folder.path(), 1);
    seeds(4, 400).for_each(|_| lives.kill_between_steps());
    seeds(1, 400).for_each(|_| lives.kill_at_random());
    println!("values found after kills: {}, {} on flash", lives.found, lives.from_flash);
    assert!(lives.from_flash > 1000, "{} values on flash", lives.from_flash);
}

#[test]
fn a_kill_amid_edits_loses_and_tears_none() {
    let folders = folders();
    let mut lives: Vec<Lives> =
        folders.iter().zip(0..).map(|(folder, seed)| Lives::with_structures(folder.path(), seed)).collect();
    let cases = lives.len();
    for seed in seeds(1, 200) {
        for (number, point) in EDIT_POINTS.into_iter().enumerate() {
            lives[(number + seed as usize) % cases].kill_at(point);
        }
    }
    seeds(4, 1000).for_each(|seed| lives[seed as usize % cases].kill_at_random());
    let (found, from_flash) = lives.iter().fold((0, 0), |sum, lives| (sum.0 + lives.found, sum.1 + lives.from_flash));
    println!("values found after kills: {found}, {from_flash} on flash");
    assert!(from_flash > 1000, "{from_flash} values on flash");
}
