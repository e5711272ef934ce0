//! Zeros in the area of set pages, on devices that report unwritten blocks, correctly or not.

use super::super::{Counts, Options, PAGE, SmallDrop, SmallStore};
use super::{put, store_on, value};
use crate::device::{BLOCK, Device, DeviceMonitor, Direction, MemoryDevice, TransferRequest, UnwrittenRanges};
use crate::recovery::{LoggedDeletion, RecoveryInput};
use crate::{Error, FlashHash};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
/// Time that such a device takes for each write.
const SLOW: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(60);

/// How a device reports unwritten blocks.
#[derive(Clone, Copy, PartialEq)]
enum Knowledge {
    Right,
    /// It reports that no block was ever written.
    Wrong,
    /// It reports correctly, and refuses writes of zeros.
    Refusing,
    /// It reports correctly, and is slow to write zeros.
    Slow,
    /// It reports correctly, and its extents start and end within pages.
    Broken,
    /// It reports correctly, and refuses the second write of zeros.
    RefusingOne,
    /// It reports correctly, and never completes a write.
    Silent,
    /// It reports nothing.
    None,
}

struct Knowing {
    memory: MemoryDevice,
    knowledge: Knowledge,
    blocks: Mutex<Vec<bool>>,
    /// Number of writes of zeros.
    refused: AtomicU64,
    /// Bytes of other writes.
    zero_bytes: AtomicU64,
    /// Number of queries.
    asked: AtomicU64,
    /// Writes that never complete.
    kept: Mutex<Vec<TransferRequest>>,
}

impl Knowing {
    fn new(bytes: usize, knowledge: Knowledge) -> Arc<Self> {
        Arc::new(Self {
            memory: MemoryDevice::new(bytes),
            knowledge,
            blocks: Mutex::new(vec![false; bytes / BLOCK]),
            refused: AtomicU64::new(0),
            zero_bytes: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            kept: Mutex::default(),
        })
    }
}

impl Device for Knowing {
    fn capacity(&self) -> u64 {
        self.memory.capacity()
    }

    fn submit(&self, request: TransferRequest) -> Result<(), TransferRequest> {
        if request.direction == Direction::Read {
            return self.memory.submit(request);
        }
        request.check(self.capacity());
        if self.knowledge == Knowledge::Silent {
            self.kept.lock().unwrap().push(request);
            return Ok(());
        }
        let bytes = request.buffer.len();
        if request.buffer.iter().all(|&b| b == 0) {
            let is_refused = match self.knowledge {
                Knowledge::Refusing => true,
                Knowledge::RefusingOne => self.zero_bytes.load(Relaxed) > 0 && self.refused.load(Relaxed) == 0,
                _ => false,
            };
            if is_refused {
                self.refused.fetch_add(1, Relaxed);
                request.finish(Err(io::ErrorKind::Other.into()));
                return Ok(());
            }
            if self.knowledge == Knowledge::Slow {
                thread::sleep(SLOW);
            }
            self.zero_bytes.fetch_add(bytes as u64, Relaxed);
        }
        self.blocks.lock().unwrap()[request.offset as usize / BLOCK..][..bytes / BLOCK].fill(true);
        self.memory.submit(request)
    }

    /// Reports eight runs at a time.
    fn reserved(&self, bytes: Range<u64>) -> Option<UnwrittenRanges> {
        assert!(!bytes.is_empty(), "an empty question");
        self.asked.fetch_add(1, Relaxed);
        if self.knowledge == Knowledge::None {
            return None;
        }
        let (mut runs, mut at) = (Vec::new(), bytes.start);
        let blocks = self.blocks.lock().unwrap();
        let is_written = |offset: u64| self.knowledge != Knowledge::Wrong && blocks[offset as usize / BLOCK];
        while at < bytes.end && runs.len() < 8 {
            let end = (at..bytes.end).step_by(BLOCK).find(|&other| is_written(other) != is_written(at));
            let run = at..end.unwrap_or(bytes.end);
            at = run.end;
            if self.knowledge == Knowledge::Broken && !is_written(run.start) {
                let cuts = [run.start, run.start + 1024, run.start + 2048, run.end];
                runs.extend(cuts.windows(2).map(|cut| cut[0]..cut[1]));
                continue;
            }
            runs.extend(Some(run).filter(|run| !is_written(run.start)));
        }
        Some(UnwrittenRanges { bytes: runs, end: at })
    }

    fn wait_for_slot(&self) {}

    fn sync(&self) -> Result<(), Error> {
        self.memory.sync()
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), Error> {
        self.memory.discard(offset, bytes)
    }

    fn monitor(&self) -> &DeviceMonitor {
        self.memory.monitor()
    }
}

fn store(device: &Arc<Knowing>, zeros_ahead: bool) -> SmallStore {
    store_on(Arc::clone(device) as Arc<dyn Device>, Options { zeros_ahead, ..Options::default() })
}

fn key(i: u32) -> [u8; 4] {
    i.to_le_bytes()
}

fn fill(store: &SmallStore, keys: Range<u32>) {
    for i in keys {
        while put(store, &key(i), &[i as u8; 500], 0, 1) == Err(SmallDrop::Busy) {
            store.maintain(1);
        }
    }
    store.maintain(1);
}

/// Runs maintenance until `is_enough`, with rests between the writes of zeros.
fn keep_up(store: &SmallStore, is_enough: impl Fn(Counts) -> bool) {
    let began = Instant::now();
    while !is_enough(store.stats().counts) {
        assert!(began.elapsed() < PATIENCE, "{:?}", store.stats());
        store.maintain(1);
        thread::sleep(Duration::from_micros(100));
    }
}

#[test]
fn zeros_fill_only_pages_without_objects() {
    let device = Knowing::new(16 * MIB, Knowledge::Right);
    let store = store(&device, true);
    let pages = store.stats().sets * PAGE as u64;
    let begin = store.shared.offset(store.shared.area_layout.first_set);
    // Between the zeros more and more pages are written.
    let step = |store: &SmallStore, upto: u64| keep_up(store, |counts| counts.zero_bytes_written >= upto);
    fill(&store, 0..1500);
    step(&store, pages / 8);
    fill(&store, 1500..6000);
    keep_up(&store, |_| device.reserved(begin..begin + pages).unwrap().bytes.is_empty());
    let Counts { zero_bytes_written, corrupt_pages, .. } = store.stats().counts;
    assert!((pages / 4..pages).contains(&zero_bytes_written), "{zero_bytes_written} of {pages}");
    fill(&store, 6000..9000);
    let found = (0..9000).filter(|&i| value(&store, &key(i)).is_some_and(|value| value == [i as u8; 500])).count();
    let ended = store.stats().counts.ended_evicted + store.stats().counts.ended_below_threshold;
    assert_eq!(found as u64 + ended, 9000, "{:?}", store.stats());
    assert_eq!((corrupt_pages, store.stats().counts.zero_bytes_written), (0, zero_bytes_written));
    store.verify();
}

#[test]
fn zeros_never_overwrite_pages_known_in_ram() {
    let device = Knowing::new(16 * MIB, Knowledge::Wrong);
    let store = store(&device, true);
    fill(&store, 0..8000);
    let is_found = |i: &u32| value(&store, &key(*i)).is_some();
    let found: Vec<u32> = (0..8000).filter(is_found).collect();
    let in_pages = store.stats().page_objects;
    assert!(in_pages > 3000, "{in_pages}");
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(500) {
        store.maintain(1);
    }
    assert!(store.stats().counts.zero_bytes_written > 0);
    assert!(found.iter().all(is_found));
    assert_eq!(store.stats().counts.corrupt_pages, 0);
}

#[test]
fn unwanted_or_failed_zero_fill_writes_nothing() {
    let device = Knowing::new(16 * MIB, Knowledge::Right);
    let unwanted = store(&device, false);
    fill(&unwanted, 0..8000);
    (0..100).for_each(|_| unwanted.maintain(1));
    assert_eq!(unwanted.stats().counts.zero_bytes_written, 0);

    let device = Knowing::new(16 * MIB, Knowledge::Refusing);
    let refused = store(&device, true);
    for _ in 0..100 {
        refused.maintain(1);
        thread::sleep(Duration::from_micros(100));
    }
    fill(&refused, 0..8000);
    let counts = refused.stats().counts;
    assert_eq!((device.refused.load(Relaxed), counts.zero_bytes_written, counts.write_errors), (1, 0, 1));
    assert!(value(&refused, &key(7999)).is_some());
}

#[test]
fn zero_fill_uses_a_quarter_of_device_time() {
    let device = Knowing::new(32 * MIB, Knowledge::Slow);
    let store = store(&device, true);
    let began = Instant::now();
    while store.stats().counts.zero_bytes_written < 20 * MIB as u64 {
        assert!(began.elapsed() < PATIENCE, "{:?}", store.stats());
        store.maintain(1);
    }
    // At most a mebibyte is written at once, and a rest follows all but the last write.
    assert!(began.elapsed() >= 19 * 4 * SLOW, "{:?}", began.elapsed());
}

#[test]
fn extents_within_pages_cause_no_empty_transfers() {
    let device = Knowing::new(16 * MIB, Knowledge::Broken);
    let store = store(&device, true);
    let pages = store.stats().sets * PAGE as u64;
    keep_up(&store, |counts| counts.zero_bytes_written >= pages);
    assert_eq!(store.stats().counts.zero_bytes_written, pages);
}

#[test]
fn zeros_that_were_written_count_though_others_failed() {
    let device = Knowing::new(16 * MIB, Knowledge::RefusingOne);
    let store = store(&device, true);
    let begin = store.shared.offset(store.shared.area_layout.first_set) as usize / BLOCK;
    device.blocks.lock().unwrap()[begin + 3] = true;
    keep_up(&store, |counts| counts.write_errors > 0);
    let counts = store.stats().counts;
    assert_eq!((counts.write_errors, counts.zero_bytes_written), (1, device.zero_bytes.load(Relaxed)));
    let asked = device.asked.load(Relaxed);
    for _ in 0..100 {
        store.maintain(1);
        thread::sleep(Duration::from_micros(100));
    }
    assert_eq!(device.asked.load(Relaxed), asked, "no more where one failed");
}

#[test]
fn an_empty_page_keeps_hiding_removed_objects() {
    for zeros_ahead in [false, true] {
        let device = Knowing::new(16 * MIB, Knowledge::Wrong);
        let options = Options { zeros_ahead, tombstones_per_group: 1, ..Options::default() };
        let store = store_on(Arc::clone(&device) as Arc<dyn Device>, options.clone());
        let set = |i: u32| store.shared.area_layout.set_layout.set(FlashHash::of(&key(i)));
        let twin = (2..).find(|&i| set(i) == set(1)).unwrap();
        let neighbour = (2..).find(|&i| set(i) != set(1) && set(i) / 128 == set(1) / 128).unwrap();
        [1, twin, neighbour].iter().for_each(|&i| assert!(put(&store, &key(i), b"old", 0, 1).is_ok()));
        // There is no space for the second tombstone, so its set is emptied, and an empty page hides its objects.
        let remove = |i| {
            assert!(store.remove(FlashHash::of(&key(i))));
            LoggedDeletion { hash: FlashHash::of(&key(i)), order: store.next_order() }
        };
        let deletions = vec![remove(neighbour), remove(twin)];
        store.seal(1);
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(500) {
            store.maintain(1);
        }
        assert_eq!(store.stats().counts.zero_bytes_written > 0, zeros_ahead);
        assert!(!store.remove(FlashHash::of(&key(1))), "nobody logs a removal of what is not there");
        let known = RecoveryInput { deletions, ..RecoveryInput::default() };
        let area = 8192..device.capacity();
        let (store, _) = SmallStore::recover(Arc::clone(&device) as _, area, options, &known, 1).unwrap();
        assert_eq!(value(&store, &key(1)), None, "it had ended; zeros ahead: {zeros_ahead}");
    }
}

#[test]
fn a_stop_on_a_silent_device_is_bounded() {
    let device = Knowing::new(16 * MIB, Knowledge::Silent);
    let end = device.capacity() - MIB as u64;
    let max_checkpoint_wait = Duration::from_millis(100);
    let options = Options { zeros_ahead: true, max_checkpoint_wait, ..Options::default() };
    let store = SmallStore::new(device, 8192..end, options).unwrap();
    put(&store, &key(1), b"one", 0, 1).unwrap();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(store.checkpoint(end..end + MIB as u64, 1)));
    let stopped = receiver.recv_timeout(Duration::from_secs(60));
    assert!(stopped.is_ok_and(|stopped| stopped.is_err()));
}

#[test]
fn unknown_or_complete_extents_are_queried_no_more() {
    let device = Knowing::new(16 * MIB, Knowledge::None);
    let ignorant = store(&device, true);
    (0..100).for_each(|_| ignorant.maintain(1));
    assert_eq!(device.asked.load(Relaxed), 1);

    let device = Knowing::new(16 * MIB, Knowledge::Right);
    let whole = store(&device, true);
    keep_up(&whole, |counts| counts.zero_bytes_written == whole.stats().sets * PAGE as u64);
    thread::sleep(Duration::from_millis(100));
    whole.maintain(1);
    let asked = device.asked.load(Relaxed);
    (0..100).for_each(|_| whole.maintain(1));
    assert_eq!(device.asked.load(Relaxed), asked);
}
