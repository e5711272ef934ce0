//! Zeros where pages will be, on a device that knows what was never written, or believes to.

use super::super::{Counts, Dropped, Options, PAGE, SmallStore};
use super::{put, store_on, value};
use crate::Error;
use crate::device::{Account, BLOCK, Device, Direction, Memory, Request, Reserved};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
/// How long such a device takes for each write.
const SLOW: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(60);

/// How a device knows what was written.
#[derive(Clone, Copy, PartialEq)]
enum Knowledge {
    Right,
    /// Nothing was ever written, it says.
    Wrong,
    /// It is right, and refuses writes of zeros.
    Refusing,
    /// It is right, and slow to write zeros.
    Slow,
}

struct Knowing {
    memory: Memory,
    knowledge: Knowledge,
    blocks: Mutex<Vec<bool>>,
    refused: AtomicU64,
}

impl Knowing {
    fn new(bytes: usize, knowledge: Knowledge) -> Arc<Self> {
        let (blocks, refused) = (Mutex::new(vec![false; bytes / BLOCK]), AtomicU64::new(0));
        Arc::new(Self { memory: Memory::new(bytes), knowledge, blocks, refused })
    }
}

impl Device for Knowing {
    fn capacity(&self) -> u64 {
        self.memory.capacity()
    }

    fn submit(&self, request: Request) -> Result<(), Request> {
        if request.direction == Direction::Write {
            let is_zeros = request.buffer.iter().all(|&b| b == 0);
            if is_zeros && self.knowledge == Knowledge::Refusing {
                self.refused.fetch_add(1, Relaxed);
                request.finish(Err(io::ErrorKind::Other.into()));
                return Ok(());
            }
            if is_zeros && self.knowledge == Knowledge::Slow {
                thread::sleep(SLOW);
            }
            let first = request.offset as usize / BLOCK;
            self.blocks.lock().unwrap()[first..][..request.buffer.len() / BLOCK].fill(true);
        }
        self.memory.submit(request)
    }

    /// Tells of eight runs at a time.
    fn reserved(&self, bytes: Range<u64>) -> Option<Reserved> {
        let (mut runs, mut at) = (Vec::new(), bytes.start);
        let blocks = self.blocks.lock().unwrap();
        let is_written = |offset: u64| self.knowledge != Knowledge::Wrong && blocks[offset as usize / BLOCK];
        while at < bytes.end && runs.len() < 8 {
            let end = (at..bytes.end).step_by(BLOCK).find(|&other| is_written(other) != is_written(at));
            let run = at..end.unwrap_or(bytes.end);
            at = run.end;
            runs.extend(Some(run).filter(|run| !is_written(run.start)));
        }
        Some(Reserved { bytes: runs, end: at })
    }

    fn wait_for_room(&self) {}

    fn sync(&self) -> Result<(), Error> {
        self.memory.sync()
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), Error> {
        self.memory.discard(offset, bytes)
    }

    fn account(&self) -> &Account {
        self.memory.account()
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
        while put(store, &key(i), &[i as u8; 500], 0, 1) == Err(Dropped::Busy) {
            store.maintain(1);
        }
    }
    store.maintain(1);
}

/// Does the upkeep until so many bytes of zeros were written, with rests between them.
fn keep_up(store: &SmallStore, is_enough: impl Fn(Counts) -> bool) {
    let began = Instant::now();
    while !is_enough(store.stats().counts) {
        assert!(began.elapsed() < PATIENCE, "{:?}", store.stats());
        store.maintain(1);
        thread::sleep(Duration::from_micros(100));
    }
}

#[test]
fn every_page_is_written_once_with_zeros_or_with_objects_and_objects_stay() {
    let device = Knowing::new(16 * MIB, Knowledge::Right);
    let store = store(&device, true);
    let pages = store.stats().sets * PAGE as u64;
    let begin = store.shared.offset(store.shared.division.first_set);
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
fn what_is_in_ram_is_believed_rather_than_the_device() {
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
fn none_are_written_where_nobody_wants_them_and_no_more_where_they_fail() {
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
fn the_device_is_left_to_others_for_three_quarters_of_the_time() {
    let device = Knowing::new(32 * MIB, Knowledge::Slow);
    let store = store(&device, true);
    let began = Instant::now();
    while store.stats().counts.zero_bytes_written < 20 * MIB as u64 {
        assert!(began.elapsed() < PATIENCE, "{:?}", store.stats());
        store.maintain(1);
    }
    // A mebibyte at most is written at once, and only the last one is not rested from.
    assert!(began.elapsed() >= 19 * 4 * SLOW, "{:?}", began.elapsed());
}
