//! Zeros ahead of the pages of small objects, in a real file.

use ebbtide_flash::device::{Device, Disk, DiskOptions, MIN_STRIPED_PATH_BYTES, UnwrittenRanges};
use ebbtide_flash::small::{Options, SmallDrop, SmallStore};
use ebbtide_flash::{FlashLookup, Key, Object};
use std::io::{Write, stderr};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);
const KEYS: u32 = 5000;

fn put(store: &SmallStore, i: u32) -> Result<(), SmallDrop> {
    let key = i.to_le_bytes();
    let object =
        Object { key: Key::new(&key), value: &[&[i as u8; 500]], client_flags: 0, is_annotated: false, expiry: 0 };
    store.insert(&object, 1).map(drop)
}

fn is_found(store: &SmallStore, i: u32) -> bool {
    let (sender, receiver) = mpsc::channel();
    let found = match store.lookup(Key::new(&i.to_le_bytes()), 1, Box::new(move |found| sender.send(found).unwrap())) {
        FlashLookup::Absent => None,
        FlashLookup::Found(found) => Some(found),
        FlashLookup::Reading => receiver.recv_timeout(PATIENCE).unwrap(),
    };
    found.is_some_and(|found| found.value() == [i as u8; 500])
}

fn has_reserved(disk: &Disk) -> bool {
    let mut at = 0;
    while at < disk.capacity() {
        let UnwrittenRanges { bytes, end } = disk.reserved(at..disk.capacity()).unwrap();
        if !bytes.is_empty() {
            return true;
        }
        at = end;
    }
    false
}

/// Objects come, and go to pages between the zeros, until all of the file is written.
fn fill(store: &SmallStore, disk: &Disk) {
    let began = Instant::now();
    let mut next = 0;
    while next < KEYS || has_reserved(disk) {
        assert!(began.elapsed() < PATIENCE, "{:?}", store.stats());
        let few = (next..KEYS).take(KEYS as usize / 50);
        next += few.take_while(|&i| put(store, i) != Err(SmallDrop::Busy)).count() as u32;
        store.maintain(1);
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn zero_fill_completes_and_keeps_objects() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let paths = [(directory.path().join("flash"), MIN_STRIPED_PATH_BYTES)];
    let disk = Arc::new(Disk::open(&paths, &DiskOptions::default()).unwrap().disk);
    if disk.reserved(0..disk.capacity()).is_none_or(|reserved| reserved.bytes.is_empty()) {
        let _ = writeln!(stderr(), "not tested: this filesystem does not tell what is only reserved");
        return;
    }
    // All of the area are pages.
    let options = Options { zeros_ahead: true, log_percent: 0, ..Options::default() };
    let store = SmallStore::new(Arc::clone(&disk) as Arc<dyn Device>, 0..disk.capacity(), options).unwrap();
    thread::scope(|scope| {
        (0..disk.threads()).for_each(|_| drop(scope.spawn(|| disk.serve())));
        struct Stop<'a>(&'a Disk);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.stop();
            }
        }
        let _stop = Stop(&disk);
        fill(&store, &disk);
        let found = (0..KEYS).filter(|&i| is_found(&store, i)).count() as u64;
        let counts = store.stats().counts;
        let ended = counts.ended_evicted + counts.ended_below_threshold + counts.ended_unreadmitted;
        assert_eq!((found + ended, counts.corrupt_pages), (u64::from(KEYS), 0), "{counts:?}");
        assert!(counts.zero_bytes_written > MIN_STRIPED_PATH_BYTES / 4, "{counts:?}");
        store.verify();
    });
}
