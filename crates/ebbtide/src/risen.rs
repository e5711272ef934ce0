//! What came from flash to memory since a scan began.
//!
//! A scan walks memory first. What flash had then and memory has by the time that flash is walked was not met in memory, and
//! must be met on flash; what was in memory all along must not be met again. So while a scan is under way promotions set a bit
//! by the key's hash. Two keys may share a bit: then one is met twice, and none is missed.
//!
//! A promotion sets the bits before it publishes, and no scan begins until it is over: one that began in between would not have
//! the bit, and not find the key in memory either.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard};

/// 128 KiB for each scan: of a hundred thousand promotions one in eleven others shares a bit.
const WORDS: usize = 1 << 14;
/// So many scans can be under way.
pub(crate) const SCANS_MOST: usize = 8;
const UNHARMED: &str = "nothing panics under this lock";

/// Keys that were promoted since a scan began, and some others.
pub(crate) struct RisenSince {
    words: Box<[AtomicU64]>,
}

/// Those of all scans. Promotions hold the lock for reading.
#[derive(Default)]
pub(crate) struct Risen(RwLock<Vec<Arc<RisenSince>>>);

impl RisenSince {
    fn bit(hash: u64) -> (usize, u64) {
        ((hash >> 6) as usize % WORDS, 1 << (hash % 64))
    }

    /// Whether the key with this hash may have been promoted.
    pub fn may_have(&self, hash: u64) -> bool {
        let (word, bit) = Self::bit(hash);
        self.words[word].load(Ordering::Relaxed) & bit != 0
    }
}

impl Risen {
    /// Begins to keep them, until `forget`; `None` if there are as many as there can be.
    pub fn keep(&self) -> Option<Arc<RisenSince>> {
        let since = Arc::new(RisenSince { words: (0..WORDS).map(|_| AtomicU64::new(0)).collect() });
        let mut all = self.0.write().expect(UNHARMED);
        if all.len() == SCANS_MOST {
            return None;
        }
        all.push(Arc::clone(&since));
        Some(since)
    }

    pub fn forget(&self, since: &Arc<RisenSince>) {
        self.0.write().expect(UNHARMED).retain(|other| !Arc::ptr_eq(other, since));
    }

    /// To be held while a key is promoted. Relaxed bits: who sees the item in memory sees what was stored before it.
    pub fn rise(&self, hash: u64) -> RwLockReadGuard<'_, Vec<Arc<RisenSince>>> {
        let since = self.0.read().expect(UNHARMED);
        let (word, bit) = RisenSince::bit(hash);
        since.iter().for_each(|since| _ = since.words[word].fetch_or(bit, Ordering::Relaxed));
        since
    }

    pub fn memory_bytes(&self) -> u64 {
        (self.0.read().expect(UNHARMED).len() * WORDS * size_of::<AtomicU64>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn what_is_noted_while_it_is_kept_is_known() {
        let risen = Risen::default();
        drop(risen.rise(1));
        let first = risen.keep().unwrap();
        drop(risen.rise(2 << 40 | 77));
        let second = risen.keep().unwrap();
        drop(risen.rise(3));
        assert!(!first.may_have(1) && first.may_have(2 << 40 | 77) && first.may_have(3));
        assert!(!second.may_have(2 << 40 | 77) && second.may_have(3));
        risen.forget(&first);
        drop(risen.rise(4));
        assert!(!first.may_have(4) && second.may_have(4));
        let more: Vec<_> = (1..SCANS_MOST).map(|_| risen.keep().unwrap()).collect();
        assert!(risen.keep().is_none());
        risen.forget(&more[0]);
        assert!(risen.keep().is_some());
        assert_eq!(risen.memory_bytes(), (SCANS_MOST as u64) << 17);
    }

    #[test]
    fn no_scan_begins_in_the_midst_of_a_promotion() {
        let (risen, is_over) = (Risen::default(), AtomicBool::new(false));
        let rising = risen.rise(1);
        thread::scope(|scope| {
            let scan = scope.spawn(|| {
                let since = risen.keep().unwrap();
                assert!(
                    is_over.load(Ordering::Relaxed),
                    "memory was walked before the key was there, and its bit is not set"
                );
                since
            });
            thread::sleep(Duration::from_millis(20));
            is_over.store(true, Ordering::Relaxed);
            drop(rising);
            assert!(!scan.join().unwrap().may_have(1));
        });
    }
}
