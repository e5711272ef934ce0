//! Transfers on real files, by the ring and by the pool alike: each test runs with both.

use ebbtide_flash::Error;
use ebbtide_flash::device::{
    BLOCK, Buffer, Device, Direction, Disk, DiskOptions, Engine, MIN_STRIPED_PATH_BYTES, OnTransfer, STRIPE,
    TransferOutcome, TransferRequest, UnwrittenRanges, read, write,
};
use ebbtide_testkit::Random;
use std::collections::{HashMap, HashSet};
use std::io::{Write, stderr};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

const ENGINES: [Engine; 2] = [Engine::Ring, Engine::Pool];
/// Limit for a test that a dead server thread would block.
const PATIENCE: Duration = Duration::from_secs(120);

fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn paths(directory: &Path, sizes: &[u64]) -> Vec<(PathBuf, u64)> {
    sizes.iter().enumerate().map(|(i, &bytes)| (directory.join(format!("part{i}")), bytes)).collect()
}

/// Runs `test` with each engine that works here, and prints which do not.
fn with_each(sizes: &[u64], queue_depth: usize, test: impl Fn(&Arc<Disk>)) {
    for engine in ENGINES {
        let directory = directory();
        let options = DiskOptions { engine: Some(engine), queue_depth, pool_threads: 4, ..DiskOptions::default() };
        match Disk::open(&paths(directory.path(), sizes), &options) {
            Ok(opened) => {
                assert!(opened.is_new);
                let disk = Arc::new(opened.disk);
                served(&disk, || test(&disk));
            }
            Err(error) if engine == Engine::Ring => tell(&format!("not tested with io_uring: {error}")),
            Err(error) => panic!("{error}"),
        }
    }
}

/// To the person who runs the tests, also when they pass.
fn tell(message: &str) {
    // Not by `eprintln`, which is shown for tests that fail.
    let _ = writeln!(stderr(), "{message}");
}

fn served(disk: &Disk, test: impl FnOnce()) {
    struct Stop<'a>(&'a Disk);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.stop();
        }
    }
    thread::scope(|scope| {
        for _ in 0..disk.threads() {
            scope.spawn(|| disk.serve());
        }
        let _stop = Stop(disk);
        test();
    });
    assert_eq!(disk.monitor().stats().under_way, 0);
}

fn filled(bytes: usize, seed: u64) -> Buffer {
    let mut buffer = Buffer::zeroed(bytes);
    let mut random = Random::new(seed);
    for word in buffer.chunks_exact_mut(8) {
        word.copy_from_slice(&random.number().to_le_bytes());
    }
    buffer
}

#[test]
fn what_is_written_is_read_at_every_size() {
    with_each(&[64 << 20], 8, |disk| {
        for (i, bytes) in [BLOCK, 3 * BLOCK, 1 << 20, (1 << 20) + BLOCK, 16 << 20].into_iter().enumerate() {
            let offset = disk.capacity() - (bytes + i * BLOCK) as u64;
            let written = write(&**disk, offset, filled(bytes, i as u64)).unwrap();
            let found = read(&**disk, offset, Buffer::zeroed(bytes)).unwrap();
            assert!(*found == *written, "{bytes} bytes");
        }
        disk.sync().unwrap();
        let stats = disk.monitor().stats();
        assert_eq!((stats.reads.transfers, stats.writes.transfers, stats.syncs), (5, 5, 1));
        assert_eq!(stats.reads.bytes, stats.writes.bytes);
        assert_eq!(stats.reads.latencies.count(), 5);
    });
}

#[test]
fn what_is_written_may_be_shared() {
    with_each(&[MIN_STRIPED_PATH_BYTES], 8, |disk| {
        let buffer = filled(2 << 20, 1);
        write(&**disk, 0, buffer.share(1 << 20)).unwrap();
        let found = read(&**disk, 0, Buffer::zeroed(2 << 20)).unwrap();
        assert!(found[..1 << 20] == buffer[..1 << 20]);
        assert!(found[1 << 20..].iter().all(|&b| b == 0));
    });
}

#[test]
fn a_file_reports_its_unwritten_blocks() {
    for sizes in [&[MIN_STRIPED_PATH_BYTES][..], &[MIN_STRIPED_PATH_BYTES + STRIPE, MIN_STRIPED_PATH_BYTES + STRIPE]] {
        with_each(sizes, 8, |disk| {
            let (end, block) = (disk.capacity(), BLOCK as u64);
            let stripe = if sizes.len() > 1 { STRIPE } else { 16 * block };
            let reserved = |bytes: Range<u64>| {
                let UnwrittenRanges { bytes, end } = disk.reserved(bytes)?;
                Some((bytes.into_iter().map(|run| (run.start, run.end)).collect::<Vec<_>>(), end))
            };
            let is_told =
                reserved(block..5 * block).inspect(|told| assert_eq!(*told, (vec![(block, 5 * block)], 5 * block)));
            if is_told.is_none() {
                return tell("not tested: this filesystem does not tell what is only reserved");
            }
            // The last one before a stripe's end, and the first one behind it.
            write(&**disk, stripe - block, filled(2 * BLOCK, 1)).unwrap();
            let (before, behind) =
                (reserved(0..stripe + 3 * block).unwrap(), reserved(stripe..stripe + 3 * block).unwrap());
            assert_eq!(before.0.first(), Some(&(0, stripe - block)));
            assert_eq!(behind, (vec![(stripe + block, stripe + 3 * block)], stripe + 3 * block));
            // An answer ends with its path's part of a stripe.
            let written_end = if sizes.len() > 1 { stripe } else { stripe + block };
            assert_eq!(reserved(stripe - block..stripe + block), Some((vec![], written_end)));
            let written = read(&**disk, stripe - block, Buffer::zeroed(2 * BLOCK)).unwrap();
            assert!(*written == *filled(2 * BLOCK, 1), "asking changes nothing");
            for at in (0..end).step_by(1 << 20) {
                write(&**disk, at, Buffer::zeroed((end - at).min(1 << 20) as usize)).unwrap();
            }
            let mut at = 0;
            while at < end {
                let (bytes, until) = reserved(at..end).unwrap();
                assert!(bytes.is_empty() && until > at, "zeros are written as well: {bytes:?}");
                at = until;
            }
        });
    }
}

#[test]
fn a_transfer_may_cross_stripes_of_several_paths() {
    with_each(&[3 * STRIPE, 2 * STRIPE, 4 * STRIPE], 8, |disk| {
        assert_eq!(disk.capacity(), 6 * STRIPE);
        let written = write(&**disk, STRIPE / 2, filled(5 * STRIPE as usize, 1)).unwrap();
        let found = read(&**disk, STRIPE / 2, Buffer::zeroed(5 * STRIPE as usize)).unwrap();
        assert!(*found == *written);
    });
}

/// Several threads write and read extents of their own, and compare with their last writes.
#[test]
fn many_transfers_at_once_agree_with_a_model() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 1500;
    with_each(&[MIN_STRIPED_PATH_BYTES, MIN_STRIPED_PATH_BYTES + STRIPE], 16, |disk| {
        let completed = Arc::new(AtomicUsize::new(0));
        thread::scope(|scope| {
            for id in 0..THREADS {
                let (completed, model, busy) = (completed.clone(), HashMap::new(), HashSet::new());
                let mut worker = Worker { disk, id, completed, model, busy, done: channel() };
                scope.spawn(move || worker.run(THREADS, ROUNDS));
            }
        });
        assert_eq!(completed.load(Relaxed) as u64, THREADS * ROUNDS);
        let stats = disk.monitor().stats();
        assert_eq!(stats.reads.transfers + stats.writes.transfers, THREADS * ROUNDS);
        assert!((2..=16).contains(&stats.max_under_way), "{}", stats.max_under_way);
    });
}

/// One thread of several; its extents are those whose number leaves `id` when divided by `threads`.
struct Worker<'a> {
    disk: &'a Disk,
    id: u64,
    completed: Arc<AtomicUsize>,
    /// Seed of the last write, by extent.
    model: HashMap<u64, u64>,
    /// Extents with a transfer under way.
    busy: HashSet<u64>,
    done: (Sender<Finished>, Receiver<Finished>),
}

/// The extent, the seed if it was a write, and the result.
type Finished = (u64, Option<u64>, TransferOutcome);

impl Worker<'_> {
    const EXTENT: usize = 4 * BLOCK;

    fn run(&mut self, threads: u64, rounds: u64) {
        let extents = self.disk.capacity() / Self::EXTENT as u64 / threads;
        let mut random = Random::new(self.id);
        for round in 0..rounds {
            // Half of the work is on few extents, so that there is something to read.
            let among = if random.chance(50) { 32 } else { extents };
            let extent = random.uniform(among) * threads + self.id;
            while self.busy.len() >= 12 || self.busy.contains(&extent) {
                self.settle();
            }
            let seed = round * threads + self.id;
            let blocks = random.between(1, 4) as usize;
            match random.chance(50) {
                true => self.submit(extent, Some(seed), filled(Self::EXTENT, seed)),
                false => self.submit(extent, None, filled(blocks * BLOCK, seed)),
            }
        }
        while !self.busy.is_empty() {
            self.settle();
        }
    }

    fn submit(&mut self, extent: u64, written: Option<u64>, buffer: Buffer) {
        let direction = if written.is_some() { Direction::Write } else { Direction::Read };
        let (sender, completed) = (self.done.0.clone(), self.completed.clone());
        let done: OnTransfer = Box::new(move |outcome| {
            completed.fetch_add(1, Relaxed);
            sender.send((extent, written, outcome)).unwrap();
        });
        let mut request = TransferRequest { direction, offset: extent * Self::EXTENT as u64, buffer, done };
        while let Err(refused) = self.disk.submit(request) {
            self.disk.wait_for_slot();
            request = refused;
        }
        self.busy.insert(extent);
    }

    fn settle(&mut self) {
        let (extent, written, outcome) = self.done.1.recv_timeout(PATIENCE).unwrap();
        outcome.result.unwrap();
        assert!(self.busy.remove(&extent), "completed twice");
        match written {
            Some(seed) => drop(self.model.insert(extent, seed)),
            None => {
                let contents = self.model.get(&extent);
                let expected = contents.map_or(Buffer::zeroed(Self::EXTENT), |&seed| filled(Self::EXTENT, seed));
                assert!(*outcome.buffer == expected[..outcome.buffer.len()], "thread {}, extent {extent}", self.id);
            }
        }
    }
}

#[test]
fn a_full_queue_refuses_and_completes_accepted_once() {
    for engine in ENGINES {
        let directory = directory();
        let options = DiskOptions { engine: Some(engine), queue_depth: 8, pool_threads: 2, ..DiskOptions::default() };
        let Ok(opened) = Disk::open(&paths(directory.path(), &[MIN_STRIPED_PATH_BYTES]), &options) else {
            tell("not tested with io_uring: refused");
            continue;
        };
        let outcomes = Arc::new(Mutex::new(vec![0; 20]));
        let submit = |i: usize, direction| {
            let outcomes = outcomes.clone();
            let done = Box::new(move |outcome: TransferOutcome| {
                assert!(outcome.result.is_ok());
                outcomes.lock().unwrap()[i] += 1;
            });
            let request = TransferRequest { direction, offset: 0, buffer: Buffer::zeroed(BLOCK), done };
            opened.disk.submit(request).is_ok()
        };
        // No thread serves the queue yet: half of it may be writes.
        let taken: Vec<bool> = (0..10).map(|i| submit(i, Direction::Write)).collect();
        assert_eq!(taken, [[true; 4].as_slice(), &[false; 6]].concat());
        let taken: Vec<bool> = (10..20).map(|i| submit(i, Direction::Read)).collect();
        assert_eq!(taken, [[true; 4].as_slice(), &[false; 6]].concat());
        assert_eq!(opened.disk.monitor().stats().refusals, 12);
        // Requests accepted before the stop complete after it.
        opened.disk.stop();
        served(&opened.disk, || ());
        let once = [[1; 4].as_slice(), &[0; 6], &[1; 4], &[0; 6]].concat();
        assert_eq!(*outcomes.lock().unwrap(), once);
        assert!(read(&opened.disk, 0, Buffer::zeroed(BLOCK)).is_err(), "it has stopped");
    }
}

#[test]
fn a_stop_amid_the_work_completes_everything_once() {
    with_each(&[MIN_STRIPED_PATH_BYTES], 16, |disk| {
        let (submitted, completed, good) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)), Arc::default());
        thread::scope(|scope| {
            for id in 0..3_u64 {
                let (submitted, completed, good): (_, _, &Arc<AtomicUsize>) = (&submitted, &completed, &good);
                scope.spawn(move || {
                    for i in 0..500 {
                        let (completed, good) = (completed.clone(), good.clone());
                        let done = Box::new(move |outcome: TransferOutcome| {
                            completed.fetch_add(1, Relaxed);
                            good.fetch_add(usize::from(outcome.result.is_ok()), Relaxed);
                        });
                        let direction = if i % 2 == 0 { Direction::Read } else { Direction::Write };
                        let offset = (id * 500 + i) * BLOCK as u64;
                        let mut request = TransferRequest { direction, offset, buffer: Buffer::zeroed(BLOCK), done };
                        while let Err(refused) = disk.submit(request) {
                            disk.wait_for_slot();
                            request = refused;
                        }
                        submitted.fetch_add(1, Relaxed);
                    }
                });
            }
            while completed.load(Relaxed) < 100 {
                thread::yield_now();
            }
            disk.stop();
        });
        while disk.monitor().stats().under_way > 0 {
            thread::yield_now();
        }
        assert_eq!(submitted.load(Relaxed), 1500);
        assert!(good.load(Relaxed) >= 100);
        // The last completion is counted before it is called.
        while completed.load(Relaxed) < 1500 {
            thread::yield_now();
        }
    });
}

#[test]
fn a_completion_may_submit() {
    fn chain(disk: Arc<Disk>, left: u64, sender: Sender<TransferOutcome>) {
        let next = disk.clone();
        let done: OnTransfer = Box::new(move |outcome| match left {
            0 => sender.send(outcome).unwrap(),
            _ => chain(next, left - 1, sender),
        });
        let request = TransferRequest {
            direction: Direction::Write,
            offset: left * BLOCK as u64,
            buffer: filled(BLOCK, left),
            done,
        };
        assert!(disk.submit(request).is_ok(), "the one before is over");
    }
    with_each(&[MIN_STRIPED_PATH_BYTES], 2, |disk| {
        let (sender, receiver) = channel();
        chain(disk.clone(), 50, sender);
        receiver.recv_timeout(PATIENCE).unwrap().result.unwrap();
        for block in 0..=50 {
            let found = read(&**disk, block * BLOCK as u64, Buffer::zeroed(BLOCK)).unwrap();
            assert!(*found == *filled(BLOCK, block));
        }
    });
}

#[test]
fn reads_beyond_a_shrunken_file_fail() {
    with_each(&[MIN_STRIPED_PATH_BYTES], 4, |disk| {
        let path = disk.paths().next().unwrap().to_owned();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(2 << 20).unwrap();
        assert!(matches!(
            read(&**disk, 4 << 20, Buffer::zeroed(BLOCK)),
            Err(Error::Transfer { offset: 4_194_304, .. })
        ));
        read(&**disk, 0, Buffer::zeroed(BLOCK)).unwrap();
        assert_eq!(disk.monitor().stats().reads.errors, 1);
    });
}

#[test]
fn discards_of_files_keep_their_space() {
    with_each(&[MIN_STRIPED_PATH_BYTES], 4, |disk| {
        let path = disk.paths().next().unwrap().to_owned();
        let blocks = || std::fs::metadata(&path).unwrap().blocks();
        let before = blocks();
        assert!(before >= MIN_STRIPED_PATH_BYTES / 512);
        disk.discard(0, 16 << 20).unwrap();
        assert_eq!(blocks(), before);
        let stats = disk.monitor().stats();
        assert_eq!((stats.discards, stats.discards_refused), (0, 1));
    });
}
