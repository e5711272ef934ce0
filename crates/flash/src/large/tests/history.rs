//! The history of each key, which decides whether a hit is valid.
//!
//! Every operation has a begin and an end on one clock. A version may be seen by a lookup if its insert began before
//! the lookup ended and nothing else happened to the key wholly between the insert's end and the lookup's begin. A
//! version whose insert was dropped may never be seen.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Number of changes of a key that are remembered; a lookup that lasts longer is not judged.
const REMEMBERED: usize = 512;
const UNDER_WAY: u64 = u64::MAX;

pub struct History {
    clock: AtomicU64,
    keys: Vec<Mutex<Changes>>,
}

#[derive(Default)]
struct Changes {
    changes: VecDeque<Change>,
    /// Ends of changes that are not remembered are at most this.
    forgotten: u64,
}

struct Change {
    /// `None` for a removal.
    version: Option<u64>,
    begin: u64,
    end: u64,
    is_dropped: bool,
}

impl History {
    pub fn new(keys: u64) -> Self {
        Self { clock: AtomicU64::new(1), keys: (0..keys).map(|_| Mutex::default()).collect() }
    }

    pub fn now(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst)
    }

    /// Starts a change of some keys; returns its identifier.
    pub fn begin(&self, keys: impl Iterator<Item = u64>, version: Option<u64>) -> u64 {
        let begin = self.now();
        for key in keys {
            let mut known = self.keys[key as usize].lock().unwrap();
            if known.changes.len() == REMEMBERED {
                let oldest = known.changes.pop_front().expect("it is not empty");
                known.forgotten = known.forgotten.max(oldest.end);
            }
            known.changes.push_back(Change { version, begin, end: UNDER_WAY, is_dropped: false });
        }
        begin
    }

    pub fn end(&self, keys: impl Iterator<Item = u64>, begin: u64, is_dropped: bool) {
        for key in keys {
            let mut known = self.keys[key as usize].lock().unwrap();
            let end = self.now();
            if let Some(change) = known.changes.iter_mut().find(|change| change.begin == begin) {
                change.end = end;
                change.is_dropped = is_dropped;
            }
        }
    }

    /// Judges a hit of a lookup that began then and ends now.
    pub fn check(&self, key: u64, version: u64, begin: u64) {
        let known = self.keys[key as usize].lock().unwrap();
        let end = self.now();
        let insert = known.changes.iter().find(|change| change.version == Some(version));
        let Some(insert) = insert else {
            assert!(known.forgotten >= begin, "key {key}: version {version} was there long before the lookup");
            return;
        };
        assert!(insert.begin < end && !insert.is_dropped, "key {key}: version {version} was never there");
        let hides = |change: &&Change| !change.is_dropped && insert.end < change.begin && change.end < begin;
        if let Some(change) = known.changes.iter().find(hides) {
            panic!(
                "key {key}: version {version}, inserted in {}..{}, was found in {begin}..{end}, after {:?} in {}..{}",
                insert.begin, insert.end, change.version, change.begin, change.end
            );
        }
    }
}

#[test]
fn a_stale_hit_is_seen() {
    let one = || std::iter::once(0);
    let history = History::new(1);
    let insert = history.begin(one(), Some(1));
    history.end(one(), insert, false);
    let early = history.now();
    let removal = history.begin(one(), None);
    history.check(0, 1, early);
    history.end(one(), removal, false);
    history.check(0, 1, early);
    let late = history.now();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| history.check(0, 1, late))).is_err());
}
