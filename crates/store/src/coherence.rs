//! Counts of locks and of accesses to shared memory, for measurements: atomics that count, and a model of caches.
//!
//! A thread that records notes each lock that it takes, by the line of code that takes it. With the feature
//! `coherence` the atomics of the crate are those of this file, and each access is noted as well. The model has a cache
//! of unlimited size for each processor: a read fetches the line if the processor does not have it, and a write takes
//! the line from all others. A fetched line, and one taken from another processor, is a transfer. One thread may act
//! for many processors in turn, so that the counts depend on no scheduler.
//!
//! Not modelled: bytes of items, which are no atomics; the words of the standard library's own locks but the first.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::panic::Location;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
/// Processors of the model, one bit each.
const PROCESSORS_MAX: u32 = u64::BITS;

/// Kind of an access to a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// A mutex or a bucket is locked.
    Lock,
    Load,
    Store,
    ReadModifyWrite,
}

/// A line of code, and the kind of its accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    pub file: &'static str,
    pub line: u32,
    pub access: Access,
}

/// How often a line of code did it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteCounts {
    /// Accesses; of locks: the acquired ones.
    pub count: u64,
    /// Locks that another thread held, and compare-exchanges that failed.
    pub failed: u64,
    /// Accesses for which the cache line had to come from another processor.
    pub transfers: u64,
}

/// Recorded accesses of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording(pub BTreeMap<Site, SiteCounts>);

impl Recording {
    pub fn merge(&mut self, other: &Self) {
        for (site, counts) in &other.0 {
            let sum = self.0.entry(*site).or_default();
            sum.count += counts.count;
            sum.failed += counts.failed;
            sum.transfers += counts.transfers;
        }
    }

    /// Locks that were taken.
    pub fn locks(&self) -> u64 {
        self.0.iter().filter(|(site, _)| site.access == Access::Lock).map(|(_, counts)| counts.count).sum()
    }
}

#[derive(Default)]
struct Recorder {
    recording: Recording,
    processor: u32,
    /// The processors that have each line, a bit each.
    holders: HashMap<usize, u64>,
}

thread_local! {
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
}

/// Records the calling thread's accesses from now on, as processor 0.
pub fn start() {
    RECORDER.with(|recorder| *recorder.borrow_mut() = Some(Recorder::default()));
}

/// Ends the recording of the calling thread.
///
/// # Panics
/// Without `start`.
pub fn stop() -> Recording {
    let recorder = RECORDER.with(|recorder| recorder.borrow_mut().take());
    recorder.expect("a recording was started").recording
}

/// Resets the counts, and keeps the processors of all lines.
pub fn clear() {
    RECORDER.with(|recorder| {
        if let Some(recorder) = &mut *recorder.borrow_mut() {
            recorder.recording = Recording::default();
        }
    });
}

/// Attributes the calling thread's accesses from now on to this processor of the model.
pub fn act_as(processor: u32) {
    assert!(processor < PROCESSORS_MAX, "the model has {PROCESSORS_MAX} processors");
    RECORDER.with(|recorder| {
        if let Some(recorder) = &mut *recorder.borrow_mut() {
            recorder.processor = processor;
        }
    });
}

/// Notes an access to a word at the caller's line of code.
#[track_caller]
pub(crate) fn note<T>(word: &T, access: Access, is_done: bool) {
    let at = Location::caller();
    RECORDER.with(|recorder| {
        if let Some(recorder) = &mut *recorder.borrow_mut() {
            recorder.note(std::ptr::from_ref(word).addr(), Site { file: at.file(), line: at.line(), access }, is_done);
        }
    });
}

impl Recorder {
    fn note(&mut self, address: usize, site: Site, is_done: bool) {
        let me = 1 << self.processor;
        let holders = self.holders.entry(address / LINE_BYTES).or_insert(me);
        let is_transfer = match site.access {
            Access::Load => *holders & me == 0,
            Access::Lock | Access::Store | Access::ReadModifyWrite => *holders != me,
        };
        *holders = if site.access == Access::Load { *holders | me } else { me };
        let counts = self.recording.0.entry(site).or_default();
        counts.count += u64::from(is_done);
        counts.failed += u64::from(!is_done);
        counts.transfers += u64::from(is_transfer);
    }
}

#[cfg(feature = "coherence")]
pub use counted::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};

/// The atomics of the standard library, counted.
#[cfg(feature = "coherence")]
mod counted {
    use super::{Access, note};
    use std::sync::atomic::{self, Ordering};

    macro_rules! counted {
        ($name:ident, $value:ty) => {
            #[repr(transparent)]
            #[derive(Debug, Default)]
            pub struct $name(atomic::$name);

            #[allow(dead_code, reason = "not every type needs every operation")]
            impl $name {
                pub const fn new(value: $value) -> Self {
                    Self(atomic::$name::new(value))
                }

                #[track_caller]
                pub fn load(&self, ordering: Ordering) -> $value {
                    note(self, Access::Load, true);
                    self.0.load(ordering)
                }

                #[track_caller]
                pub fn store(&self, value: $value, ordering: Ordering) {
                    note(self, Access::Store, true);
                    self.0.store(value, ordering);
                }

                #[track_caller]
                pub fn swap(&self, value: $value, ordering: Ordering) -> $value {
                    note(self, Access::ReadModifyWrite, true);
                    self.0.swap(value, ordering)
                }

                #[track_caller]
                pub fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    let outcome = self.0.compare_exchange(current, new, success, failure);
                    note(self, Access::ReadModifyWrite, outcome.is_ok());
                    outcome
                }

                #[track_caller]
                pub fn fetch_update(
                    &self,
                    set: Ordering,
                    fetch: Ordering,
                    update: impl FnMut($value) -> Option<$value>,
                ) -> Result<$value, $value> {
                    note(self, Access::ReadModifyWrite, true);
                    self.0.fetch_update(set, fetch, update)
                }

                pub fn get_mut(&mut self) -> &mut $value {
                    self.0.get_mut()
                }
            }
        };
    }

    macro_rules! counted_arithmetic {
        ($name:ident, $value:ty, $($operation:ident),*) => {
            #[allow(dead_code, reason = "not every type needs every operation")]
            impl $name {
                $(
                    #[track_caller]
                    pub fn $operation(&self, value: $value, ordering: Ordering) -> $value {
                        note(self, Access::ReadModifyWrite, true);
                        self.0.$operation(value, ordering)
                    }
                )*
            }
        };
    }

    counted!(AtomicBool, bool);
    counted!(AtomicU8, u8);
    counted!(AtomicU16, u16);
    counted!(AtomicU32, u32);
    counted!(AtomicU64, u64);
    counted!(AtomicUsize, usize);
    counted_arithmetic!(AtomicU8, u8, fetch_add, fetch_sub, fetch_max, fetch_min, fetch_and, fetch_or);
    counted_arithmetic!(AtomicU16, u16, fetch_add, fetch_sub, fetch_max, fetch_min, fetch_and, fetch_or);
    counted_arithmetic!(AtomicU32, u32, fetch_add, fetch_sub, fetch_max, fetch_min, fetch_and, fetch_or);
    counted_arithmetic!(AtomicU64, u64, fetch_add, fetch_sub, fetch_max, fetch_min, fetch_and, fetch_or);
    counted_arithmetic!(AtomicUsize, usize, fetch_add, fetch_sub, fetch_max, fetch_min, fetch_and, fetch_or);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::ops::{Mode, Write};
    use crate::options::Options;
    use crate::store::Store;
    use crate::ttl::Ttl;

    fn set(store: &Store, participant: &crate::Participant, number: u32) -> Result<(), Error> {
        let key = number.to_le_bytes();
        let (hash, ttl) = (store.hash(&key), Ttl::Never);
        let write = Write { key: &key, hash, value: &[7; 200], flags: 0.into(), ttl, mode: Mode::Set, token: None };
        store.write(participant, &write, 1000).map(drop)
    }

    fn locks(work: impl FnOnce()) -> u64 {
        start();
        work();
        stop().locks()
    }

    #[test]
    fn gets_lock_nothing_sets_at_most_three() {
        let store = Store::new(Options::default()).unwrap();
        let participant = store.participate();
        (0..1000).for_each(|number| set(&store, &participant, number).unwrap());
        let get = |number: u32| {
            let key = number.to_le_bytes();
            store.get(&participant, &key, store.hash(&key), 1000).is_some()
        };
        assert_eq!(locks(|| assert!((0..1000).all(get))), 0, "hits");
        assert_eq!(locks(|| assert!(!(1000..2000).any(get))), 0, "misses");
        let overwrite = || (0..100).for_each(|number| set(&store, &participant, number).unwrap());
        let insert = || (5000..5100).for_each(|number| set(&store, &participant, number).unwrap());
        for taken in [locks(overwrite), locks(insert)] {
            assert!((100 * 2..=100 * 3).contains(&taken), "{taken}: a stripe and both buckets of the key");
        }
        store.verify(&participant, 1000);
    }

    #[test]
    fn lines_transfer_after_writes_by_other_processors() {
        let words = [0_u64; 2 * LINE_BYTES / size_of::<u64>()];
        start();
        for (processor, access, transfers) in [
            (0, Access::Store, 0),
            (0, Access::ReadModifyWrite, 0),
            (1, Access::Load, 1),
            (1, Access::Load, 0),
            (0, Access::Load, 0),
            (0, Access::Store, 1),
            (1, Access::ReadModifyWrite, 1),
            (1, Access::Store, 0),
        ] {
            act_as(processor);
            clear();
            note(&words[0], access, true);
            let counts = RECORDER.with(|recorder| recorder.borrow().as_ref().unwrap().recording.clone());
            let found: u64 = counts.0.values().map(|counts| counts.transfers).sum();
            assert_eq!(found, transfers, "processor {processor}, {access:?}");
        }
        stop();
    }
}
