//! Restarts: from a checkpoint, from footers, after crashes at any point.

use super::super::format::RegionHeader;
use super::super::options::Options;
use super::super::{LargeLog, Reclaim, Recovered, Reinsertion};
use super::*;
use crate::FlashHash;
use crate::device::{BLOCK, Buffer, Delivery, Faults, FaultyDevice, read, write};
use crate::recovery::{LoggedDeletion, RecoveryInput};
use ebbtide_testkit::{Random, seeds};
use std::collections::HashMap;
use std::ops::Range;

const REGIONS: usize = 24;
const AREA: Range<u64> = 0..(REGIONS * REGION_BYTES) as u64;
const CHECKPOINT: Range<u64> = AREA.end..AREA.end + (64 << 10);
const DEVICE_BYTES: usize = CHECKPOINT.end as usize;

fn device(seed: u64) -> Arc<FaultyDevice> {
    Arc::new(FaultyDevice::new(DEVICE_BYTES, seed, Delivery::AtOnce))
}

fn filled(device: &Arc<FaultyDevice>, objects: u64) -> Arc<LargeLog> {
    let log = LargeLog::new(device.clone(), AREA, small()).unwrap();
    for i in 0..objects {
        insert(&log, i, &value(i, i, 3000), if i % 3 == 0 { 500 } else { 0 }, 1).unwrap();
    }
    log
}

fn recover(device: &Arc<FaultyDevice>, known: &RecoveryInput) -> (Arc<LargeLog>, Recovered) {
    let (log, recovered) = LargeLog::recover(device.clone(), AREA, small(), known, 1).unwrap();
    log.verify();
    (log, recovered)
}

fn found(log: &Arc<LargeLog>, objects: u64) -> Vec<u64> {
    (0..objects).filter(|&i| get(log, i, 1).inspect(|got| assert_eq!(*got, value(i, i, 3000))).is_some()).collect()
}

fn all(objects: u64) -> Vec<u64> {
    (0..objects).collect()
}

fn checkpointed() -> RecoveryInput {
    RecoveryInput { checkpoint: Some(CHECKPOINT), ..RecoveryInput::default() }
}

#[test]
fn a_checkpoint_brings_everything_back_once() {
    let device = device(1);
    let log = filled(&device, 100);
    remove(&log, 50);
    assert!(log.checkpoint_bytes() <= CHECKPOINT.end - CHECKPOINT.start);
    log.checkpoint(CHECKPOINT, 1).unwrap();
    assert_eq!(insert(&log, 1, b"late", 0, 1), Err(LargeDrop::Closed));
    let next_order = log.next_order();
    let reads = device.writes();
    let (log, recovered) = recover(&device, &checkpointed());
    assert_eq!((recovered.from_checkpoint, recovered.objects, device.writes() - reads), (true, 99, 1));
    assert_eq!(found(&log, 100), [&all(50)[..], &(51..100).collect::<Vec<_>>()].concat());
    assert!(log.next_order() > next_order);
    insert(&log, 7, b"new", 0, 1).unwrap();
    log.seal_all(1);
    let deletions = vec![LoggedDeletion { hash: FlashHash::of(&key(50)), order: next_order }];
    let (log, recovered) = recover(&device, &RecoveryInput { deletions, ..checkpointed() });
    assert!(!recovered.from_checkpoint, "it is used up");
    assert_eq!(get(&log, 7, 1), Some(b"new".to_vec()));
    assert_eq!(get(&log, 50, 1), None);
}

#[test]
fn what_was_removed_after_the_checkpoint_stays_removed() {
    let device = device(1);
    let log = filled(&device, 20);
    log.checkpoint(CHECKPOINT, 1).unwrap();
    assert!(remove(&log, 3));
    let deletions = vec![LoggedDeletion { hash: FlashHash::of(&key(3)), order: log.next_order() }];
    let (log, _) = recover(&device, &RecoveryInput { deletions, ..checkpointed() });
    assert_eq!(log.stats().objects, 19);
    assert_eq!(get(&log, 3, 1), None);
    log.checkpoint(CHECKPOINT, 1).unwrap();
    log.flush();
    let (log, recovered) = recover(&device, &RecoveryInput { flushed: log.next_order(), ..checkpointed() });
    assert_eq!((recovered.from_checkpoint, log.stats().objects), (true, 0));
}

#[test]
fn flushes_before_the_checkpoint_are_ignored() {
    let device = device(1);
    let log = filled(&device, 20);
    assert!(remove(&log, 3));
    let forgotten = log.next_order();
    log.checkpoint(CHECKPOINT, 1).unwrap();
    let (_, recovered) = recover(&device, &RecoveryInput { flushed: forgotten, ..checkpointed() });
    assert_eq!((recovered.from_checkpoint, recovered.objects), (true, 19));
}

#[test]
fn damaged_or_oversized_checkpoints_are_not_used() {
    let device = device(1);
    let log = filled(&device, 100);
    let short = CHECKPOINT.start..CHECKPOINT.start + BLOCK as u64;
    log.checkpoint(CHECKPOINT, 1).unwrap();
    log.checkpoint(short, 1).unwrap();
    let (_, recovered) = recover(&device, &checkpointed());
    assert_eq!((recovered.from_checkpoint, recovered.objects), (false, 100), "not even the older one");
    for offset in [0, 60, BLOCK as u64, BLOCK as u64 + 700] {
        log.checkpoint(CHECKPOINT, 1).unwrap();
        device.flip(CHECKPOINT.start + offset, 2);
        let (log, recovered) = recover(&device, &checkpointed());
        assert_eq!((recovered.from_checkpoint, recovered.objects), (false, 100));
        assert_eq!(found(&log, 100), all(100));
    }
}

#[test]
fn footers_bring_back_what_was_written() {
    let device = device(1);
    let log = filled(&device, 100);
    insert(&log, 200, &value(200, 1, 150_000), 0, 1).unwrap();
    log.seal_all(1);
    insert(&log, 101, b"only in RAM", 0, 1).unwrap();
    let (log, recovered) = recover(&device, &RecoveryInput::default());
    assert_eq!(recovered.objects_gone, 0);
    assert_eq!((found(&log, 102), get(&log, 200, 1)), (all(100), Some(value(200, 1, 150_000))));
    let deletions = RecoveryInput {
        deletions: vec![LoggedDeletion { hash: FlashHash::of(&key(4)), order: 6 }],
        ..RecoveryInput::default()
    };
    let (log, recovered) = recover(&device, &deletions);
    assert_eq!((recovered.objects_gone, get(&log, 4, 1)), (1, None));
    let (log, _) = recover(&device, &RecoveryInput { flushed: 51, ..RecoveryInput::default() });
    assert_eq!(found(&log, 100), (50..100).collect::<Vec<_>>());
}

#[test]
fn the_later_version_counts_wherever_it_lies() {
    // The regions of two groups are open at the same time, so their order says nothing.
    for first_expires in [true, false] {
        let device = device(1);
        let log = LargeLog::new(device.clone(), AREA, small()).unwrap();
        let expiries = if first_expires { [500, 0] } else { [0, 500] };
        for version in 0..10 {
            insert(&log, 1, &value(1, version, 3000), expiries[version as usize % 2], 1).unwrap();
        }
        log.seal_all(1);
        let (log, recovered) = recover(&device, &RecoveryInput::default());
        assert_eq!(get(&log, 1, 1), Some(value(1, 9, 3000)));
        assert_eq!((recovered.objects, recovered.objects_gone), (1, 9));
    }
}

#[test]
fn versions_are_compared_though_their_regions_overlap() {
    // In groups of expiry: key, group, in order. The first group's region is opened first.
    for (inserts, last) in [(vec![(1, 0), (1, 1), (2, 0)], 1), (vec![(3, 0), (1, 1), (1, 0), (2, 1)], 2)] {
        let device = device(1);
        let log = LargeLog::new(device.clone(), AREA, small()).unwrap();
        for (i, (key, expiry_group)) in inserts.into_iter().enumerate() {
            insert(&log, key, &value(key, i as u64, 3000), expiry_group * 500, 1).unwrap();
        }
        log.seal_all(1);
        let (log, recovered) = recover(&device, &RecoveryInput::default());
        assert_eq!((get(&log, 1, 1), recovered.objects_gone), (Some(value(1, last, 3000)), 1));
    }
}

#[test]
fn recovery_keeps_the_winner_of_concurrent_inserts() {
    for round in 0..20 {
        let device = device(round);
        let log = LargeLog::new(device.clone(), AREA, small()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let log = &log;
                scope.spawn(move || {
                    for i in 0..100 {
                        insert(log, i % 2, &value(i % 2, thread * 1000 + i, 1000), thread as u32 * 300, 1).unwrap();
                    }
                });
            }
        });
        let current = [0, 1].map(|number| get(&log, number, 1).unwrap());
        log.seal_all(1);
        let (log, _) = recover(&device, &RecoveryInput::default());
        assert_eq!([0, 1].map(|number| get(&log, number, 1).unwrap()), current);
    }
}

#[test]
fn another_identity_finds_nothing() {
    let device = device(1);
    filled(&device, 100).seal_all(1);
    let options = Options { identity: 8, ..small() };
    let (log, recovered) = LargeLog::recover(device.clone(), AREA, options, &checkpointed(), 1).unwrap();
    assert_eq!((recovered.objects, recovered.regions), (0, 0));
    log.verify();
    let (_, recovered) = recover(&device, &RecoveryInput::default());
    assert_eq!(recovered.objects, 0, "it was marked dead, too");
}

#[test]
fn a_region_that_cannot_be_read_stays_forgotten() {
    let device = device(1);
    filled(&device, 100).seal_all(1);
    // The last region is used first.
    let (second, third) = (REGIONS - 2, REGIONS - 3);
    let block = read(&*device, (second * REGION_BYTES) as u64, Buffer::zeroed(BLOCK)).unwrap();
    let header = RegionHeader::decode(&block[..64], 7, second as u32).unwrap();
    let mut left = all(100);
    for (region, offset) in [(second, header.footer_offset + 33), (third, 20)] {
        let damaged = (region * REGION_BYTES) as u64 + u64::from(offset);
        device.flip(damaged, 1);
        let (log, recovered) = recover(&device, &RecoveryInput::default());
        assert_eq!(recovered.regions_damaged, 1);
        let now_left = found(&log, 100);
        assert!(now_left.len() < left.len());
        left = now_left;
        device.flip(damaged, 1);
        assert_eq!(found(&recover(&device, &RecoveryInput::default()).0, 100), left);
    }
    device.set(Faults { read_errors: 1, write_errors: 1, ..Faults::default() });
    assert!(LargeLog::recover(device.clone(), AREA, small(), &RecoveryInput::default(), 1).is_err());
}

/// A log with the record of removals that a caller keeps, across crashes.
struct RegionSummary {
    log: Arc<LargeLog>,
    device: Arc<FaultyDevice>,
    options: Options,
    /// The current version, and its expiry.
    current: HashMap<u64, (u64, u32)>,
    known: RecoveryInput,
    random: Random,
    keys: u64,
    versions: u64,
    now: u32,
    /// A power cut may lose completed writes, so removals of absent objects are recorded, too.
    notes_all: bool,
    /// A new insert of a key always follows a removal: so an insert that is cut off has already removed the older
    /// version.
    removes_first: bool,
    hits: u64,
}

impl RegionSummary {
    fn new(seed: u64, notes_all: bool, delivery: Delivery) -> Self {
        let device = Arc::new(FaultyDevice::new(DEVICE_BYTES, seed, delivery));
        let reinsertion = [Reinsertion::Never, Reinsertion::Forced(1), Reinsertion::Forced(0)][seed as usize % 3];
        let reclaim = [Reclaim::Fifo, Reclaim::Lru][seed as usize / 3 % 2];
        let options = Options { reclaim, reinsertion, discard: seed.is_multiple_of(2), ..small() };
        let log = LargeLog::new(device.clone(), AREA, options).unwrap();
        Self {
            log,
            device,
            options,
            current: HashMap::new(),
            known: RecoveryInput::default(),
            random: Random::new(seed),
            keys: 60,
            versions: 0,
            now: 1000,
            notes_all,
            removes_first: false,
            hits: 0,
        }
    }

    fn step(&mut self) {
        let number = self.random.uniform(self.keys);
        match self.random.uniform(1000) {
            0 => {
                self.log.flush();
                self.known.flushed = self.log.next_order();
                self.current.clear();
            }
            1..20 => self.now += self.random.uniform(100) as u32,
            20..40 => self.log.seal_all(self.now),
            40..120 => self.log.maintain(self.now),
            120..250 => self.remove(number),
            250..700 => self.insert(number),
            _ => self.look_up(number),
        }
    }

    fn note(&mut self, number: u64, order: u64) {
        self.known.deletions.push(LoggedDeletion { hash: FlashHash::of(&key(number)), order });
    }

    fn remove(&mut self, number: u64) {
        self.current.remove(&number);
        if remove(&self.log, number) || self.notes_all {
            self.note(number, self.log.next_order());
        }
    }

    /// Inserts as a tier does: an object that DRAM overwrites is removed from flash at once, and is inserted again
    /// later.
    fn insert(&mut self, number: u64) {
        if self.random.chance(50) || self.removes_first {
            self.remove(number);
        }
        self.versions += 1;
        let bytes = if self.random.chance(5) { self.random.uniform(150_000) } else { self.random.uniform(9000) };
        let expiry = if self.random.chance(60) { 0 } else { self.now + self.random.uniform(1000) as u32 };
        let stored = value(number, self.versions, bytes as usize);
        if let Ok(inserted) = insert(&self.log, number, &stored, expiry, self.now) {
            if inserted.replaced || self.notes_all {
                self.note(number, inserted.order);
            }
            self.current.insert(number, (self.versions, expiry));
        }
    }

    fn look_up(&mut self, number: u64) {
        let Some(found) = find(&self.log, number, self.now) else { return };
        let stamp = Stamp::read(found.value()).expect("a whole value");
        let (version, expiry) = *self.current.get(&number).expect("what is found was removed");
        assert_eq!(stamp, Stamp { key: number, version });
        assert!(expiry == 0 || expiry > self.now);
        self.hits += 1;
    }

    /// Continues with the state after a crash.
    fn crash(&mut self, seed: u64) {
        self.device = Arc::new(self.device.power_cut(seed));
        self.restart();
    }

    fn restart(&mut self) {
        let device = self.device.clone();
        (self.log, _) = LargeLog::recover(device, AREA, self.options, &self.known, self.now).unwrap();
        for number in 0..self.keys {
            self.look_up(number);
        }
        self.log.verify();
    }
}

#[test]
fn a_power_cut_recovers_no_stale_object() {
    let (mut hits, mut cuts) = (0, 0);
    for seed in seeds(120, 750) {
        let mut summary = RegionSummary::new(seed, true, Delivery::AtOnce);
        for crash in 0..4 {
            let write = summary.device.writes() + summary.random.between(1, 30);
            summary.device.cut_at(write);
            while !summary.device.is_cut() {
                summary.step();
            }
            let before = summary.hits;
            summary.crash(seed * 100 + crash);
            hits += summary.hits - before;
            cuts += 1;
        }
    }
    println!("{hits} objects came back after {cuts} cuts");
    assert!(hits > cuts * 3, "{hits} objects came back after {cuts} cuts");
}

#[test]
fn logged_removals_suffice_after_a_process_crash() {
    let mut hits = 0;
    for seed in 0..60 {
        let mut summary = RegionSummary::new(seed, false, Delivery::AtOnce);
        for crash in 0..4 {
            for _ in 0..summary.random.between(20, 300) {
                summary.step();
            }
            // Completed writes are in the system's memory: the process's crash does not lose them.
            summary.device.sync().unwrap();
            let before = summary.hits;
            summary.crash(seed * 100 + crash);
            hits += summary.hits - before;
        }
    }
    assert!(hits > 1000, "{hits} objects came back");
}

/// If all regions have failed, nothing more is written.
const MAX_STEPS: usize = 5000;

#[test]
fn kills_with_faults_recover_no_stale_object() {
    let (mut hits, mut lost, seeds) = (0, 0, seeds(48, 300));
    let (min_hits, min_lost) = (seeds.end * 100 / 3, seeds.end * 10 / 3);
    for seed in seeds {
        println!("seed {seed}");
        let mut summary =
            RegionSummary { keys: 200, removes_first: true, ..RegionSummary::new(seed, false, Delivery::AtOnce) };
        for crash in 0..6 {
            if seed % 4 > 0 {
                summary.device.set(Faults { read_errors: 20, write_errors: 20, ..Faults::default() });
            }
            summary.device.cut_at(summary.device.writes() + summary.random.between(1, 120));
            for _ in 0..MAX_STEPS {
                if summary.device.is_cut() {
                    break;
                }
                summary.step();
                // Completed writes are in the system's memory: a kill does not lose them.
                summary.device.sync().unwrap();
            }
            lost += summary.log.stats().regions_retired;
            let before = summary.hits;
            summary.crash(seed * 100 + crash);
            hits += summary.hits - before;
        }
    }
    assert!(hits > min_hits && lost > min_lost, "{hits} objects came back, {lost} regions failed");
}

#[test]
fn clean_and_unclean_restarts_may_follow_each_other() {
    for seed in 0..40 {
        let mut summary = RegionSummary::new(seed, false, Delivery::AtOnce);
        for _ in 0..4 {
            for _ in 0..summary.random.between(20, 200) {
                summary.step();
            }
            summary.known.checkpoint = summary.random.chance(50).then_some(CHECKPOINT);
            if let Some(checkpoint) = summary.known.checkpoint.clone() {
                summary.log.checkpoint(checkpoint, summary.now).unwrap();
                for _ in 0..summary.random.uniform(10) {
                    let number = summary.random.uniform(60);
                    summary.remove(number);
                }
            }
            summary.restart();
        }
        assert!(summary.hits > 20);
    }
}

/// Two starts in turn, of which the first one wrote nothing that was found.
#[test]
fn torn_writes_do_not_expose_an_older_life() {
    // It fills its sectors.
    const LONG: usize = 9163;
    let device = device(1);
    let put = |version| {
        let (log, _) = recover(&device, &RecoveryInput::default());
        for (number, bytes) in [(2, 900), (1, LONG), (3, 1000)] {
            insert(&log, number, &value(number, version, bytes), 0, 1).unwrap();
        }
        log.seal_all(1);
    };
    // The region that is used first.
    let begin = ((REGIONS - 1) * REGION_BYTES) as u64;
    let written = || read(&*device, begin, Buffer::zeroed(3 * BLOCK)).unwrap();
    put(1);
    let first = written();
    // The power fails before its header is there.
    write(&*device, begin, Buffer::zeroed(BLOCK)).unwrap();
    put(2);
    // The power fails again, before the sectors in the middle of the write are durable.
    let mut torn = written();
    torn[1024..10_240].copy_from_slice(&first[1024..10_240]);
    write(&*device, begin, torn).unwrap();
    let (log, recovered) = recover(&device, &RecoveryInput::default());
    assert_eq!((recovered.objects, get(&log, 3, 1)), (3, Some(value(3, 2, 1000))));
    assert!(get(&log, 1, 1) != Some(value(1, 1, LONG)), "the first version is found after the second one");
}
