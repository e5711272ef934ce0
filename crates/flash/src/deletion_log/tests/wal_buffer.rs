//! The WAL buffer of a log: its contents after a kill, and waits for a file that stalls.

use super::*;
use crate::deletion_log::log_file::TestFaults;
use crate::deletion_log::wal_buffer::ENTRIES;
use crate::deletion_log::writer;
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc;

/// With a WAL buffer.
fn open_with_wal_buffer(folder: &TempDir) -> DeletionLog {
    DeletionLog::open(&folder.path().join("log"), BLOCKS, Some(folder.path())).unwrap()
}

fn started_with_wal_buffer(folder: &TempDir) -> DeletionLog {
    let log = open_with_wal_buffer(folder);
    log.begin(LIVES, RUN, 0, 0, 1000).unwrap();
    log.begin_wal_buffer().unwrap();
    log
}

/// While it exists, writes to the file stall.
struct Stall(Arc<TestFaults>);

impl Drop for Stall {
    fn drop(&mut self) {
        self.0.stalls.store(false, Relaxed);
    }
}

fn stalled(folder: &TempDir) -> (DeletionLog, Stall) {
    let log = started_with_wal_buffer(folder);
    let test_faults = Arc::clone(&log.log_file.test_faults);
    test_faults.stalls.store(true, Relaxed);
    (log, Stall(test_faults))
}

fn wal_folder(folder: &TempDir) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "front")).collect()
}

fn small_orders(contents: &LogContents) -> Vec<u64> {
    contents.small.as_ref().map(|known| known.deletions.iter().map(|r| r.order).collect()).unwrap_or_default()
}

#[test]
fn a_wal_buffer_is_these_bytes() {
    let folder = folder();
    let wal_buffer = WalBuffer::create(folder.path(), 0x0102_0304_0506_0708, Path::new("/l")).unwrap();
    wal_buffer.append(3, 1, &LogWrite::new(0x1122_3344, b"write")).unwrap();
    wal_buffer.invalidate().unwrap();
    let path = wal_folder(&folder).pop().unwrap();
    assert!(fs::metadata(&path).unwrap().blocks() * 512 >= 4096 + 72 * 4096, "its memory is its own");
    assert_eq!(path.file_name().unwrap(), "ebbtide-0102030405060708.front");
    let bytes = fs::read(path).unwrap();
    assert_eq!(bytes.len(), 4096 + 72 * 4096);
    let hex = |range: std::ops::Range<usize>| -> String { bytes[range].iter().map(|b| format!("{b:02x}")).collect() };
    assert_eq!(hex(0..40), "656262746964656602000000000000000807060504030201daa6ee02451d8d8affffffffffffffff");
    let root = fs::metadata("/").unwrap();
    assert_eq!(bytes[40..56], [root.dev(), root.ino()].map(u64::to_le_bytes).concat());
    assert_eq!(hex(56..60), "02002f6c");
    assert_eq!(hex(4176..4200), "030000000000000044332211000000000500000000000000");
    assert_eq!(hex(4200..4256), "77726974650000".to_owned() + &"00".repeat(41) + "9e11115de643e202");
    assert!(bytes.iter().enumerate().all(|(at, &byte)| matches!(at, 0..60 | 4176..4256) || byte == 0));
}

/// Some records that the file has, and some that it lacks.
fn killed_with_records(folder: &TempDir, records: u64) -> DeletionLog {
    let log = started_with_wal_buffer(folder);
    (1..=records).for_each(|number| log.log_deletion(StoreKind::Small, hash(number), number));
    assert!(log.writer.drain(PATIENCE));
    (records + 1..=2 * records).for_each(|number| log.log_deletion(StoreKind::Large, hash(number), number));
    log.record_time(2000);
    log.kill();
    log
}

#[test]
fn a_kill_keeps_records_of_the_wal_buffer() {
    let folder = folder();
    for records in [0, 1, 5, 200] {
        let log = killed_with_records(&folder, records);
        let before = bytes(&folder);
        let next = open_with_wal_buffer(&folder);
        let contents = next.read(LIVES, RUN).unwrap();
        assert_eq!(
            (contents.small.unwrap().deletions.len(), contents.large.deletions.len()),
            (records as usize, records as usize)
        );
        assert_eq!(contents.latest, 2000);
        assert!(bytes(&folder) != before, "the file lacked it");
        assert!(wal_folder(&folder).is_empty(), "it has it now");
        next.begin_wal_buffer().unwrap();
        next.log_deletion(StoreKind::Large, hash(9000), 9000);
        next.kill();
        let again = open_with_wal_buffer(&folder);
        assert_eq!(again.read(LIVES, RUN).unwrap().large.deletions.len(), records as usize + 1);
        again.kill();
        drop(log);
    }
}

#[test]
fn a_wrapped_wal_buffer_yields_its_last_round() {
    let folder = folder();
    let log = started_with_wal_buffer(&folder);
    for number in 1..=400 {
        log.log_deletion(StoreKind::Small, hash(number), number);
        if number % 100 == 0 {
            assert!(log.writer.drain(PATIENCE));
        }
    }
    (401..=405).for_each(|number| log.log_deletion(StoreKind::Small, hash(number), number));
    log.kill();
    let wal_buffer = WalBuffer::open(folder.path(), named_wal_buffer(&log.log_file.file).unwrap()).unwrap();
    assert_eq!(wal_buffer.writes().unwrap().unwrap().len(), 5);
    drop(wal_buffer);
    let known = open_with_wal_buffer(&folder).read(LIVES, RUN).unwrap().small.unwrap();
    assert_eq!(known.deletions.iter().map(|removal| removal.order).max(), Some(405));
    assert_eq!(known.deletions.len(), 405);
}

#[test]
fn direct_records_retire_the_old_wal_buffer() {
    let folder = folder();
    let log = killed_with_records(&folder, 5);
    let next = open_with_wal_buffer(&folder);
    next.read(LIVES, RUN).unwrap();
    // Its folder takes no other one.
    next.log_deletion(StoreKind::Large, hash(100), 100);
    next.record_time(3000);
    next.kill();
    let contents = open_with_wal_buffer(&folder).read(LIVES, RUN).unwrap();
    assert_eq!((contents.large.deletions.len(), contents.latest), (6, 3000));
    drop(log);
}

#[test]
fn a_log_without_its_wal_buffer_is_unreadable() {
    let folder = folder();
    let log = killed_with_records(&folder, 5);
    assert_eq!(open(&folder).read(LIVES, RUN).unwrap_err(), Unreadable::WithoutWalBuffer, "nobody says where");
    let path = wal_folder(&folder).pop().unwrap();
    let away = folder.path().join("away");
    fs::rename(&path, &away).unwrap();
    assert_eq!(open_with_wal_buffer(&folder).read(LIVES, RUN).unwrap_err(), Unreadable::WithoutWalBuffer);
    fs::write(&path, [0; 100]).unwrap();
    assert_eq!(open_with_wal_buffer(&folder).read(LIVES, RUN).unwrap_err(), Unreadable::WithoutWalBuffer);
    fs::rename(&away, &path).unwrap();
    write(&folder, WAL_BUFFER_SLOT + 3, &[0xee]);
    assert_eq!(open_with_wal_buffer(&folder).read(LIVES, RUN).unwrap_err(), Unreadable::Damaged);
    drop(log);
}

#[test]
fn a_stop_redirects_later_records_to_the_file() {
    let folder = folder();
    let log = started_with_wal_buffer(&folder);
    log.log_deletion(StoreKind::Small, hash(1), 1);
    assert!(log.stop().unwrap());
    assert!(wal_folder(&folder).is_empty());
    log.log_deletion(StoreKind::Small, hash(2), 2);
    log.kill();
    assert_eq!(open(&folder).read(LIVES, RUN).unwrap().small.unwrap().deletions.len(), 2);
}

#[test]
fn nobody_waits_for_a_file_that_takes_nothing() {
    // The record that finds the WAL buffer full waits for `MAX_STALL`.
    repeat_after_stalls(2 * writer::MAX_STALL, fill_a_wal_buffer_whose_file_takes_nothing);
}

fn fill_a_wal_buffer_whose_file_takes_nothing() {
    let folder = folder();
    let (log, stall) = stalled(&folder);
    let entries = ENTRIES as u64;
    let started = Instant::now();
    // Some are in the hands of the thread.
    (1..=entries).for_each(|number| log.log_deletion(StoreKind::Small, hash(number), number));
    assert!(started.elapsed() < writer::MAX_STALL, "they go to the WAL buffer");
    assert!(!log.is_broken() && log.stalled_for() > Duration::ZERO);
    (1..=2).for_each(|number| log.log_deletion(StoreKind::Large, hash(number), number));
    assert!(log.is_broken(), "the WAL buffer is full");
    let wal_buffer = WalBuffer::open(folder.path(), named_wal_buffer(&log.log_file.file).unwrap());
    assert!(wal_buffer.is_err(), "it is this one's");
    drop(stall);
    drop(log);
    assert_eq!(open(&folder).read(LIVES, RUN).unwrap_err(), Unreadable::WithoutWalBuffer, "nor without its WAL buffer");
    assert_eq!(open_with_wal_buffer(&folder).read(LIVES, RUN).unwrap_err(), Unreadable::Damaged);
}

#[test]
fn an_abandoned_wal_buffer_alone_invalidates_the_log() {
    let folder = folder();
    let (log, stall) = stalled(&folder);
    log.log_deletion(StoreKind::Small, hash(1), 1);
    log.abandon();
    // A kill, now.
    log.writer.unlock();
    assert_eq!(open_with_wal_buffer(&folder).read(LIVES, RUN).unwrap_err(), Unreadable::Damaged);
    drop(stall);
}

#[test]
fn only_unreferenced_wal_buffers_are_swept() {
    let folder = folder();
    let elsewhere = tempfile::tempdir().unwrap();
    let path_of = |name: &str| elsewhere.path().join(name);
    let mut runs = RUN..;
    // The path of its WAL buffer, too.
    let begin = |name: &str| {
        let before = wal_folder(&folder);
        let path = path_of(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let log = DeletionLog::open(&path, BLOCKS, Some(folder.path())).unwrap();
        log.begin(LIVES, runs.next().unwrap(), 0, 0, 1000).unwrap();
        log.begin_wal_buffer().unwrap();
        let wal_buffer = wal_folder(&folder).into_iter().find(|path| !before.contains(path)).unwrap();
        (log, wal_buffer)
    };
    let age = |wal_buffer: &Path| {
        let time = std::time::SystemTime::now() - Duration::from_secs(25 * 60 * 60);
        File::options().write(true).open(wal_buffer).unwrap().set_modified(time).unwrap();
    };
    let names = ["gone", "mount/away", "mount/old", "other", "left", "used", "flash.removals"];
    let [gone, away, old, other, left, used, flash] = names.map(begin);
    let half_made = [1, 2].map(|number| folder.path().join(format!("ebbtide-{number:016x}.front")));
    half_made.iter().for_each(|path| fs::write(path, [0; 5000]).unwrap());
    let kept = vec![away.1.clone(), left.1.clone(), used.1.clone(), half_made[1].clone()];
    [&gone, &away, &old, &left, &other, &flash].into_iter().for_each(|(log, _)| log.kill());
    [&old.1, &left.1, &used.1, &half_made[0]].into_iter().for_each(|wal_buffer| age(wal_buffer));
    ["gone", "used"].into_iter().for_each(|name| fs::remove_file(path_of(name)).unwrap());
    // An unmount leaves another folder in its place.
    fs::rename(path_of("mount"), path_of("unmounted")).unwrap();
    fs::create_dir(path_of("mount")).unwrap();
    other.0.name_wal_buffer(77).unwrap();
    remove_stale(folder.path());
    let (found, kept) = (wal_folder(&folder), kept);
    assert!(found.len() == kept.len() && kept.iter().all(|path| found.contains(path)), "{found:?}");
    let left = DeletionLog::open(&path_of("left"), BLOCKS, Some(folder.path())).unwrap();
    assert!(left.read(LIVES, RUN + 4).is_ok());
}

#[test]
fn dropping_an_abandoned_log_ignores_a_stalled_file() {
    let folder = folder();
    let (log, stall) = stalled(&folder);
    log.log_deletion(StoreKind::Small, hash(1), 1);
    wait_until(|| log.log_file.test_faults.is_reached.load(Relaxed));
    log.abandon();
    let (told, ended) = mpsc::channel();
    let dropper = thread::spawn(move || {
        drop(log);
        told.send(()).unwrap();
    });
    let is_bounded = ended.recv_timeout(PATIENCE).is_ok();
    drop(stall);
    dropper.join().unwrap();
    assert!(is_bounded, "it waits for as long as the file does nothing");
}

#[test]
fn removals_during_a_stalled_stop_wait_briefly() {
    let folders: Vec<_> = (0..10).map(|_| folder()).collect();
    // A machine that stalls makes single ones wait.
    let is_bounded = folders.iter().any(|folder| removal_beside_a_stop(folder) < Duration::from_secs(2));
    assert!(is_bounded, "each removal waits for two seconds");
}

/// The wait of a removal while a stop waits for the file.
fn removal_beside_a_stop(folder: &TempDir) -> Duration {
    let (log, stall) = stalled(folder);
    log.log_deletion(StoreKind::Small, hash(1), 1);
    thread::scope(|scope| {
        scope.spawn(|| log.stop());
        thread::sleep(Duration::from_millis(200));
        let started = Instant::now();
        log.log_deletion(StoreKind::Large, hash(2), 2);
        let waited = started.elapsed();
        drop(stall);
        waited
    })
}

#[test]
fn a_log_closed_during_a_stall_reopens_later() {
    let folder = folder();
    let (log, stall) = stalled(&folder);
    log.log_deletion(StoreKind::Small, hash(1), 1);
    log.close();
    drop(stall);
    wait_until(|| DeletionLog::open(&folder.path().join("log"), BLOCKS, Some(folder.path())).is_ok());
}

#[test]
fn slow_files_delay_removals_a_second_at_most() {
    // A machine that stalls makes single ones wait.
    let is_bounded = (0..10).any(|_| longest_removal_beside_a_slow_file() < Duration::from_millis(1700));
    assert!(is_bounded, "in each of ten runs somebody waits longer");
}

fn longest_removal_beside_a_slow_file() -> Duration {
    let folder = folder();
    let log = started_with_wal_buffer(&folder);
    log.log_file.test_faults.delay_ms.store(950, Relaxed);
    log.log_deletion(StoreKind::Small, hash(1), 1);
    wait_until(|| log.log_file.test_faults.is_reached.load(Relaxed));
    let mut longest = Duration::ZERO;
    for n in 2..=ENTRIES as u64 + 50 {
        let started = Instant::now();
        log.log_deletion(StoreKind::Small, hash(n), n);
        longest = longest.max(started.elapsed());
    }
    log.log_file.test_faults.delay_ms.store(0, Relaxed);
    longest
}

#[test]
fn a_failed_stop_leaves_an_unacceptable_log() {
    let folder = folder();
    let path = folder.path().join("log");
    let mut log = started_with_wal_buffer(&folder);
    log.log_deletion(StoreKind::Small, hash(1), 1);
    assert!(log.writer.drain(PATIENCE));
    // A disk that refuses all writes, also to a file that is opened again (read-only after an error).
    set_file(&mut log, File::open(&path).unwrap());
    fs::rename(&path, folder.path().join("away")).unwrap();
    assert!(log.stop().is_err());
    assert!(log.lacks_mark(), "the WAL buffer is marked, but the file may not name it any more");
    log.log_deletion(StoreKind::Small, hash(2), 2);
    log.kill();
    drop(log);
    fs::rename(folder.path().join("away"), &path).unwrap();
    let contents = open_with_wal_buffer(&folder).read(LIVES, RUN).map(|contents| small_orders(&contents));
    assert!(contents.is_err(), "{contents:?}");
}

#[test]
fn a_write_failure_leaves_an_unacceptable_log() {
    let folder = folder();
    let log = started_with_wal_buffer(&folder);
    log.log_deletion(StoreKind::Small, hash(1), 1);
    log.log_file.test_faults.fails.store(true, Relaxed);
    log.log_deletion(StoreKind::Small, hash(2), 2);
    wait_until(|| log.is_broken());
    log.log_deletion(StoreKind::Small, hash(3), 3);
    log.kill();
    drop(log);
    assert_eq!(open_with_wal_buffer(&folder).read(LIVES, RUN).unwrap_err(), Unreadable::Damaged);
}

#[test]
fn an_unmounted_log_keeps_its_wal_buffer() {
    let (folder, elsewhere) = (folder(), tempfile::tempdir().unwrap());
    let log = killed_with_records(&folder, 5);
    drop(log);
    // The folder of the log is not mounted; its WAL buffers are elsewhere.
    let mount = folder.path().with_extension("unmounted");
    let memory = tempfile::tempdir().unwrap();
    wal_folder(&folder).iter().for_each(|wal_buffer| {
        fs::copy(wal_buffer, memory.path().join(wal_buffer.file_name().unwrap())).unwrap();
    });
    fs::rename(folder.path(), &mount).unwrap();
    // Another server starts.
    let other = DeletionLog::open(&elsewhere.path().join("log"), BLOCKS, Some(memory.path())).unwrap();
    other.begin(LIVES, RUN + 1, 0, 0, 1).unwrap();
    other.begin_wal_buffer().unwrap();
    other.sweep_wal_buffers();
    fs::rename(&mount, folder.path()).unwrap();
    assert!(
        DeletionLog::open(&folder.path().join("log"), BLOCKS, Some(memory.path())).unwrap().read(LIVES, RUN).is_ok()
    );
}

#[test]
fn a_pipe_as_log_blocks_no_sweep() {
    let folder = folder();
    let log = started_with_wal_buffer(&folder);
    log.kill();
    drop(log);
    let path = folder.path().join("log");
    fs::remove_file(&path).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let at = folder.path().to_owned();
    let (told, ended) = mpsc::channel();
    thread::spawn(move || {
        remove_stale(&at);
        told.send(()).unwrap();
    });
    assert!(ended.recv_timeout(PATIENCE).is_ok(), "the sweep waits for a writer of the pipe");
}

#[test]
fn a_closed_log_begins_nothing_again() {
    let folder = folder();
    let log = started_with_wal_buffer(&folder);
    log.close();
    let next = open_with_wal_buffer(&folder);
    next.read(LIVES, RUN).unwrap();
    next.begin_wal_buffer().unwrap();
    next.log_deletion(StoreKind::Small, hash(2), 2);
    assert!(next.writer.drain(PATIENCE));
    let before = bytes(&folder);
    log.restart_ring(StoreKind::Small, 99);
    thread::sleep(Duration::from_millis(100));
    assert!(before == bytes(&folder));
}

#[test]
fn a_torn_wal_buffer_entry_keeps_earlier_ones() {
    let folder = folder();
    let log = started_with_wal_buffer(&folder);
    // An earlier generation lies beneath.
    (1..=20).for_each(|n| log.log_deletion(StoreKind::Small, hash(n), n));
    assert!(log.writer.drain(PATIENCE));
    let path = wal_folder(&folder).pop().unwrap();
    let old = fs::read(&path).unwrap();
    (21..=24).for_each(|n| log.log_deletion(StoreKind::Small, hash(n), n));
    log.kill();
    let (new, file) = (fs::read(&path).unwrap(), bytes(&folder));
    for entry in 0..4 {
        for cut in 0..80 {
            let mut torn = new.clone();
            let at = BLOCK + entry * 80 + cut;
            torn[at..].copy_from_slice(&old[at..]);
            fs::write(&path, &torn).unwrap();
            write(&folder, 0, &file);
            let log = open_with_wal_buffer(&folder);
            let orders = small_orders(&log.read(LIVES, RUN).unwrap());
            assert!(orders.len() >= 20 + entry, "{entry} {cut}: {orders:?}");
            let once = bytes(&folder);
            log.read(LIVES, RUN).unwrap();
            assert!(once == bytes(&folder));
        }
    }
}

#[test]
fn a_closed_abandoned_log_is_locked_until_written() {
    let folder = folder();
    let (log, stall) = stalled(&folder);
    log.log_deletion(StoreKind::Small, hash(1), 1);
    wait_until(|| log.log_file.test_faults.is_reached.load(Relaxed));
    log.abandon();
    log.close();
    let open = || DeletionLog::open(&folder.path().join("log"), BLOCKS, Some(folder.path()));
    assert_eq!(open().err().unwrap().kind(), io::ErrorKind::WouldBlock);
    drop(stall);
    assert_eq!(open_with_wal_buffer(&folder).read(LIVES, RUN).unwrap_err(), Unreadable::Damaged);
}

#[test]
fn a_timed_out_stop_recovers_as_a_crash() {
    let folder = folder();
    let (mut log, stall) = stalled(&folder);
    log.max_drain = Duration::from_millis(100);
    log.log_deletion(StoreKind::Small, hash(1), 1);
    assert_eq!(log.stop().unwrap_err().kind(), io::ErrorKind::TimedOut);
    log.log_deletion(StoreKind::Small, hash(2), 2);
    drop(stall);
    log.kill();
    assert_eq!(small_orders(&open_with_wal_buffer(&folder).read(LIVES, RUN).unwrap()), [1, 2]);
}

#[test]
fn records_during_a_file_write_are_kept() {
    let folder = folder();
    let log = started_with_wal_buffer(&folder);
    log.log_file.test_faults.delay_ms.store(60, Relaxed);
    log.log_deletion(StoreKind::Small, hash(1), 1);
    thread::sleep(Duration::from_millis(40));
    // The thread has the first; these are in the WAL buffer when it returns.
    (2..=4).for_each(|number| log.log_deletion(StoreKind::Small, hash(number), number));
    thread::sleep(Duration::from_millis(50));
    (5..=6).for_each(|number| log.log_deletion(StoreKind::Small, hash(number), number));
    log.kill();
    assert_eq!(small_orders(&open_with_wal_buffer(&folder).read(LIVES, RUN).unwrap()), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_stop_after_close_spares_the_next_log() {
    let folder = folder();
    let log = started_with_wal_buffer(&folder);
    log.log_deletion(StoreKind::Large, hash(7), 7);
    log.close();
    let next = open_with_wal_buffer(&folder);
    next.read(LIVES, RUN).unwrap();
    next.begin_wal_buffer().unwrap();
    assert!(log.stop().is_err());
    next.log_deletion(StoreKind::Large, hash(8), 8);
    next.kill();
    assert_eq!(open_with_wal_buffer(&folder).read(LIVES, RUN).unwrap().large.deletions.len(), 2);
}

#[test]
fn a_log_lost_after_idling_reports_no_wait() {
    // The rest takes two seconds.
    repeat_after_stalls(Duration::from_millis(2500), lose_a_log_after_a_long_rest);
}

fn lose_a_log_after_a_long_rest() {
    let folder = folder();
    let log = started_with_wal_buffer(&folder);
    thread::sleep(Duration::from_millis(2000));
    log.abandon();
    assert!(log.stalled_for() < Duration::from_millis(1500), "{:?}", log.stalled_for());
}

#[test]
fn a_record_after_idling_reports_no_wait() {
    // The rest takes two seconds.
    repeat_after_stalls(Duration::from_millis(2500), record_after_a_long_rest);
}

fn record_after_a_long_rest() {
    let folder = folder();
    let (log, _stall) = stalled(&folder);
    thread::sleep(Duration::from_millis(2000));
    log.log_deletion(StoreKind::Small, hash(1), 1);
    assert!(log.stalled_for() < Duration::from_millis(1500), "{:?}", log.stalled_for());
}

#[test]
fn an_unnamed_wal_buffer_takes_no_records() {
    let folder = folder();
    let mut log = open_with_wal_buffer(&folder);
    log.begin(LIVES, RUN, 0, 0, 1000).unwrap();
    set_file(&mut log, File::open(folder.path().join("log")).unwrap());
    assert!(log.begin_wal_buffer().is_err());
    assert!(log.writer.take_wal_buffer().is_none() && wal_folder(&folder).is_empty());
}

#[test]
fn a_stop_ends_beside_continuous_records() {
    // A batch takes 20 ms.
    repeat_after_stalls(Duration::from_millis(1500), stop_beside_records);
}

fn stop_beside_records() {
    let folder = folder();
    let log = started_with_wal_buffer(&folder);
    log.log_file.test_faults.delay_ms.store(20, Relaxed);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            (1..).take_while(|_| !is_over.load(Relaxed)).for_each(|number| {
                log.log_deletion(StoreKind::Small, hash(number), number);
                thread::sleep(Duration::from_micros(200));
            });
        });
        thread::sleep(Duration::from_millis(50));
        let started = Instant::now();
        let stopped = log.stop();
        is_over.store(true, Relaxed);
        assert!(stopped.unwrap() && started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    });
}
