//! The contents of a log after a restart: intact, torn, damaged, or with overwritten blocks.

mod kills;
mod wal_buffer;

use super::contents::*;
use super::head::*;
use super::log::*;

use super::record_ring::RECORDS;
use super::wal_buffer::{LogWrite, WalBuffer, remove_stale};
use crate::FlashHash;
use crate::device::{self, BLOCK};
use crate::recovery::LoggedDeletion;
use ebbtide_testkit::{Random, repeat_after_stalls};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const LIVES: Incarnations = Incarnations { small: 0x5ca1_ab1e, large: 0x1a26e };
const RUN: u64 = 0x0f0e_0d0c_0b0a_0908;
const BLOCKS: u32 = 3;
/// Offset of the ring of large objects.
const LARGE: u64 = BLOCK as u64 * (1 + BLOCKS as u64);

/// Longer than any step here takes: only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(120);

/// In memory where that is a filesystem: a log counts as lost when its file takes nothing for a second, as the disk of
/// a busy machine may.
fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

#[track_caller]
fn wait_until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it does not happen");
        thread::sleep(Duration::from_millis(1));
    }
}

fn open(folder: &TempDir) -> DeletionLog {
    let log = DeletionLog::open(&folder.path().join("log"), BLOCKS, None).unwrap();
    // The process that had it open before has ended, as far as the next one can tell.
    device::unlock(&log.log_file.file);
    log
}

fn started(folder: &TempDir) -> DeletionLog {
    let log = open(folder);
    log.begin(LIVES, RUN, 0, 0, 1000).unwrap();
    log
}

fn read(folder: &TempDir) -> Result<LogContents, Unreadable> {
    open(folder).read(LIVES, RUN)
}

/// Without a WAL buffer.
fn set_file(log: &mut DeletionLog, file: File) {
    log.log_file = Arc::new(log.log_file.with_file(file));
}

fn bytes(folder: &TempDir) -> Vec<u8> {
    fs::read(folder.path().join("log")).unwrap()
}

fn write(folder: &TempDir, offset: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(folder.path().join("log")).unwrap();
    file.write_all_at(bytes, offset).unwrap();
}

fn hash(number: u64) -> FlashHash {
    FlashHash::of(&number.to_le_bytes())
}

#[test]
fn a_log_is_these_bytes() {
    let folder = folder();
    let log = started(&folder);
    log.record_time(0x0102_0304);
    log.log_deletion(StoreKind::Small, FlashHash(0x1122_3344_5566_7788), 7);
    log.log_flush(StoreKind::Large, 9);
    let bytes = bytes(&folder);
    assert_eq!(bytes.len(), BLOCK * (1 + 2 * BLOCKS as usize));
    let hex = |range: std::ops::Range<usize>| -> String { bytes[range].iter().map(|b| format!("{b:02x}")).collect() };
    assert_eq!(hex(0..40), "6562627469646572030000000300000008090a0b0c0d0e0f0000000000000000cce7dde7fda702fe");
    assert_eq!(hex(512..528), "040302010000000014bb3c1f5caa7581");
    assert_eq!(hex(2048..2064), "0000000000000000d9ac876fbb3a7bc7");
    assert_eq!(
        hex(BLOCK..BLOCK + 48),
        "000000000000000000000000000000000000f2577a78d58c887766554433221107000000000000000000af70c675440a"
    );
    assert_eq!(
        hex(LARGE as usize..LARGE as usize + 48),
        "0000000000000000000000000000000000004d444288ac62000000000000000009000000000000800000bc8d22fa3b9e"
    );
    let kept = |at: usize| {
        matches!(at, 0..40 | 512..528 | 1024..1040 | 2048..2064 | 4096..4144)
            || (at >= LARGE as usize && at < LARGE as usize + 48)
    };
    assert!(bytes.iter().enumerate().all(|(at, &byte)| kept(at) || byte == 0));
}

#[test]
fn a_reopened_log_has_its_records_and_appends() {
    let folder = folder();
    let log = started(&folder);
    let removal = |number| LoggedDeletion { hash: hash(number), order: number };
    (0..200).for_each(|number| log.log_deletion(StoreKind::Small, hash(number), number));
    log.log_flush(StoreKind::Large, 70);
    log.record_time(2000);
    log.record_time(2001);
    drop(log);
    let log = open(&folder);
    let contents = log.read(LIVES, RUN).unwrap();
    assert_eq!(contents.small.as_ref().unwrap().deletions, (0..200).map(removal).collect::<Vec<_>>());
    assert_eq!((contents.small.as_ref().unwrap().flushed, contents.large.flushed, contents.latest), (0, 70, 2001));
    assert!(contents.large.deletions.is_empty());
    log.log_deletion(StoreKind::Large, hash(80), 80);
    (200..400).for_each(|number| log.log_deletion(StoreKind::Small, hash(number), number));
    let contents = read(&folder).unwrap();
    assert_eq!(contents.small.as_ref().unwrap().deletions.len(), 400);
    assert_eq!((contents.large.deletions, contents.large.flushed), (vec![removal(80)], 70));
}

/// Also after records are overwritten, a removed object counts as removed.
#[test]
fn a_wrapped_ring_reports_its_oldest_known_order() {
    let folder = folder();
    let mut random = Random::new(1);
    let mut log = started(&folder);
    let mut gone: HashMap<u64, u64> = HashMap::new();
    let mut flushed = 0;
    for order in 1..4000_u64 {
        let number = random.uniform(2000);
        // Concurrent appends are not in order.
        let order = order + random.uniform(20);
        if random.chance(1) && random.chance(20) {
            log.log_flush(StoreKind::Large, order);
            flushed = flushed.max(order);
        } else {
            log.log_deletion(StoreKind::Large, hash(number), order);
            let last = gone.entry(number).or_default();
            *last = order.max(*last);
        }
        if order.is_multiple_of(97) {
            log = open(&folder);
            let contents = log.read(LIVES, RUN).unwrap();
            let known: HashMap<FlashHash, u64> = contents.large.deletions.iter().map(|r| (r.hash, r.order)).collect();
            let orders = contents.large.deletions.iter().fold(known, |mut known, removal| {
                known.entry(removal.hash).and_modify(|order| *order = removal.order.max(*order));
                known
            });
            for (&number, &order) in &gone {
                let tells = contents.large.flushed.max(orders.get(&hash(number)).copied().unwrap_or(0));
                assert!(tells >= order, "{number} went at {order}, and the log tells {tells}");
            }
            assert!(contents.large.flushed >= flushed);
            let forgotten = (gone.len() * 10).saturating_sub(RECORDS * (BLOCKS as usize - 1) * 10);
            assert!(forgotten > 0 || contents.large.flushed == flushed, "nothing is given up before it must be");
            assert!(
                contents.small.as_ref().unwrap().deletions.is_empty() && contents.small.as_ref().unwrap().flushed == 0
            );
        }
    }
    let contents = read(&folder).unwrap();
    assert!(contents.large.deletions.len() > RECORDS * (BLOCKS as usize - 1));
    assert!(contents.large.flushed > 3000, "most was forgotten");
}

#[test]
fn a_torn_last_record_is_ignored_and_overwritten() {
    for records in [1, 5, RECORDS - 1, RECORDS] {
        for kept in [0, 1, 8, 16, 23] {
            let folder = folder();
            let log = started(&folder);
            (0..records as u64).for_each(|number| log.log_deletion(StoreKind::Large, hash(number), 1 + number));
            let end = LARGE as usize + 24 + 24 * records;
            let torn = end - 24 + kept;
            write(&folder, torn as u64, &vec![0; end - torn]);
            let log = open(&folder);
            assert_eq!(log.read(LIVES, RUN).unwrap().large.deletions.len(), records - 1);
            log.log_deletion(StoreKind::Large, hash(1000), 1000);
            log.log_deletion(StoreKind::Large, hash(1001), 1001);
            let deletions = read(&folder).unwrap().large.deletions;
            assert_eq!(deletions.len(), records + 1);
            assert_eq!(deletions.iter().find(|removal| removal.order == 1000).unwrap().hash, hash(1000));
        }
    }
}

#[test]
fn damage_is_seen_wherever_it_is() {
    let folder = folder();
    let log = started(&folder);
    (0..2 * RECORDS as u64 + 10).for_each(|number| log.log_deletion(StoreKind::Small, hash(number), 1 + number));
    (0..10).for_each(|number| log.log_deletion(StoreKind::Large, hash(number), 1 + number));
    let whole = bytes(&folder);
    let small = BLOCK;
    let large = LARGE as usize;
    // Head; heads of blocks, a record that others follow, in the same block or the next.
    for at in
        [3, 13, 20, small + 3, small + 9, small + 24, small + BLOCK - 41, small + BLOCK, large, large + 30, large + 220]
    {
        let mut damaged = [whole[at]];
        damaged[0] ^= 4;
        write(&folder, at as u64, &damaged);
        let found = DeletionLog::open(&folder.path().join("log"), BLOCKS, None).map(|log| log.read(LIVES, RUN));
        assert!(matches!(found, Err(_) | Ok(Err(_))), "byte {at}");
        write(&folder, at as u64, &whole[at..=at]);
    }
    write(&folder, TIME_SLOTS[0], &[0; 600]);
    assert_eq!(read(&folder).unwrap_err(), Unreadable::Damaged, "the time is gone");
    write(&folder, 0, &whole);
    assert_eq!(read(&folder).unwrap().small.unwrap().deletions.len(), 2 * RECORDS + 10);
    // A block of an earlier round where a later one must be.
    let log = open(&folder);
    log.read(LIVES, RUN).unwrap();
    (0..2 * RECORDS as u64).for_each(|number| log.log_deletion(StoreKind::Small, hash(number), 2000 + number));
    assert_eq!(read(&folder).unwrap().small.unwrap().deletions.len(), 2 * RECORDS + 10);
    write(&folder, BLOCK as u64, &whole[BLOCK..2 * BLOCK]);
    assert_eq!(read(&folder).map(|_| ()), Err(Unreadable::Damaged));
    fs::File::options().write(true).open(folder.path().join("log")).unwrap().set_len(5000).unwrap();
    assert!(read(&folder).is_err());
}

#[test]
fn another_life_or_another_size_is_no_log() {
    let folder = folder();
    assert_eq!(read(&folder).unwrap_err(), Unreadable::Missing);
    let log = started(&folder);
    log.log_deletion(StoreKind::Small, hash(1), 5);
    assert!(open(&folder).read(Incarnations { small: 1, ..LIVES }, RUN).unwrap().small.is_none());
    assert!(open(&folder).read(Incarnations { large: 1, ..LIVES }, RUN).is_err());
    let path = folder.path().join("log");
    assert!(DeletionLog::open(&path, BLOCKS + 1, None).unwrap().read(LIVES, RUN).is_err());
    log.restart_ring(StoreKind::Small, 99);
    let contents = open(&folder).read(Incarnations { small: 99, ..LIVES }, RUN).unwrap();
    assert!(contents.small.as_ref().unwrap().deletions.is_empty());
    log.begin(LIVES, RUN, 10, 20, 1).unwrap();
    let contents = read(&folder).unwrap();
    assert_eq!((contents.small.as_ref().unwrap().flushed, contents.large.flushed, contents.latest), (10, 20, 1));
    assert!(contents.small.as_ref().unwrap().deletions.is_empty());
}

/// As a start does, with a superblock in between.
#[test]
fn both_runs_are_accepted_only_while_both_stand() {
    let folder = folder();
    let log = started(&folder);
    let next = RUN + 1;
    let accepted = |run: u64| open(&folder).read(LIVES, run).is_ok();
    let refused = |run: u64| open(&folder).read(LIVES, run).is_err_and(|why| why == Unreadable::OtherRun);
    assert!(accepted(RUN) && refused(next) && refused(0));
    log.announce_run(next).unwrap();
    assert!(accepted(RUN) && accepted(next) && refused(next + 1) && refused(0));
    // A start that was killed here continues from the superblock that it finds.
    let again = open(&folder);
    again.read(LIVES, next).unwrap();
    again.announce_run(next + 1).unwrap();
    assert!(refused(RUN) && accepted(next) && accepted(next + 1));
    again.set_run(next + 1).unwrap();
    assert!(refused(next) && accepted(next + 1) && refused(0));
    drop(log);
}

#[test]
fn a_pool_end_record_has_the_pools_number() {
    let folder = folder();
    let log = started(&folder);
    log.log_pool_end(StoreKind::Large, 0x0807, 0x0304);
    let (whole, at) = (bytes(&folder), LARGE as usize + 24);
    let record: String = whole[at..at + 18].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(record, "010000000000000004030000000000800708");
    let contents = read(&folder).unwrap();
    assert_eq!((contents.large.ended_pools, contents.large.flushed), (vec![0x0807], 0));
    assert!(contents.small.unwrap().ended_pools.is_empty());
}

#[test]
fn what_is_no_log_is_left_alone() {
    let folder = folder();
    let path = folder.path().join("log");
    fs::write(&path, "Dear reader, this is no log.").unwrap();
    assert_eq!(DeletionLog::open(&path, BLOCKS, None).err().unwrap().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(bytes(&folder), b"Dear reader, this is no log.");
    assert!(DeletionLog::open(folder.path(), BLOCKS, None).is_err(), "a directory");
    // As filesystems begin.
    let mut image = vec![0; 8192];
    image[1080] = 0x53;
    fs::write(&path, &image).unwrap();
    assert_eq!(DeletionLog::open(&path, BLOCKS, None).err().unwrap().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(bytes(&folder), image);
    fs::File::create(&path).unwrap().set_len(100 << 20).unwrap();
    assert!(DeletionLog::open(&path, BLOCKS, None).is_err(), "longer than any log, whatever is in it");
    fs::remove_file(&path).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(DeletionLog::open(&path, BLOCKS, None).is_err(), "a pipe, which nobody waits for");
    fs::remove_file(&path).unwrap();
    fs::write(&path, [0; 5000]).unwrap();
    assert_eq!(read(&folder).unwrap_err(), Unreadable::Missing, "what is all zeros may become one");
}

#[test]
fn a_log_that_fails_writes_is_invalidated() {
    let folder = folder();
    let path = folder.path().join("log");
    started(&folder).log_deletion(StoreKind::Small, hash(1), 1);
    let mut log = open(&folder);
    log.read(LIVES, RUN).unwrap();
    // A file that cannot be written any more, as on a disk that failed.
    set_file(&mut log, File::open(&path).unwrap());
    log.log_deletion(StoreKind::Small, hash(2), 2);
    assert!(log.is_broken() && !log.lacks_mark() && !log.stop().unwrap());
    log.log_deletion(StoreKind::Small, hash(3), 3);
    log.record_time(3000);
    assert_eq!(read(&folder).unwrap_err(), Unreadable::Damaged);
}

#[test]
fn removals_after_a_stop_are_durable_or_invalidate() {
    let folder = folder();
    let mut log = started(&folder);
    // It takes all that is written, and syncs nothing.
    let device = || File::options().write(true).open("/dev/null").unwrap();
    set_file(&mut log, device());
    log.log_deletion(StoreKind::Small, hash(1), 1);
    assert!(!log.is_broken());
    assert!(log.stop().is_err() && log.is_broken(), "nobody is told of it again");
    set_file(&mut log, File::options().read(true).write(true).open(folder.path().join("log")).unwrap());
    log.begin(LIVES, RUN, 0, 0, 1000).unwrap();
    assert!(log.stop().unwrap());
    log.log_deletion(StoreKind::Small, hash(2), 2);
    assert!(!log.is_broken());
    set_file(&mut log, device());
    log.log_deletion(StoreKind::Small, hash(3), 3);
    assert!(log.is_broken());
    assert_eq!(read(&folder).unwrap_err(), Unreadable::Damaged);
}

#[test]
fn threads_append_at_the_same_time() {
    let folder = folder();
    let log = DeletionLog::open(&folder.path().join("log"), 16, None).unwrap();
    log.begin(LIVES, RUN, 0, 0, 1).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let log = &log;
            scope.spawn(move || (0..500).for_each(|i| log.log_deletion(StoreKind::Large, hash(thread * 500 + i), i)));
        }
    });
    log.close();
    let next = DeletionLog::open(&folder.path().join("log"), 16, None).unwrap();
    log.log_deletion(StoreKind::Large, hash(2000), 2000);
    log.record_time(2);
    log.abandon();
    let log = next;
    let contents = log.read(LIVES, RUN).unwrap();
    let hashes: std::collections::HashSet<FlashHash> =
        contents.large.deletions.iter().map(|removal| removal.hash).collect();
    assert!((0..2000).all(|number| hashes.contains(&hash(number))) && hashes.len() == 2000);
}
