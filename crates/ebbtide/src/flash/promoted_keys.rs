//! Keys promoted from flash to memory since a scan began.
//!
//! A scan walks memory first. An object that is promoted after that walk and before the walk of flash was not visited
//! in memory, so it must be visited on flash. An object that was in memory all along must not be visited again. So each
//! promotion during a scan sets a bit by the key's hash. Two keys may share a bit: then one is visited twice, and none
//! is missed.
//!
//! A promotion sets the bits before it publishes, and no scan begins until it is over: one that began in between would
//! not have the bit, and not find the key in memory either.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard};

/// 128 KiB for each scan: of a hundred thousand promotions one in eleven others shares a bit.
const WORDS: usize = 1 << 14;
/// Maximum number of concurrent scans.
pub(crate) const MAX_SCANS: usize = 8;
const UNHARMED: &str = "nothing panics under this lock";

/// Keys that were promoted since a scan began, and some others.
pub(crate) struct PromotedSince {
    words: Box<[AtomicU64]>,
}

/// Promoted keys of all scans. Promotions hold the lock for reading.
#[derive(Default)]
pub(crate) struct PromotedKeys(RwLock<Vec<Arc<PromotedSince>>>);

impl PromotedSince {
    fn bit(hash: u64) -> (usize, u64) {
        ((hash >> 6) as usize % WORDS, 1 << (hash % 64))
    }

    /// Whether the key with this hash may have been promoted.
    pub fn may_contain(&self, hash: u64) -> bool {
        let (word, bit) = Self::bit(hash);
        self.words[word].load(Ordering::Relaxed) & bit != 0
    }
}

impl PromotedKeys {
    /// Begins to keep them, until `forget`; `None` if there are as many as there can be.
    pub fn keep(&self) -> Option<Arc<PromotedSince>> {
        let since = Arc::new(PromotedSince { words: (0..WORDS).map(|_| AtomicU64::new(0)).collect() });
        let mut all = self.0.write().expect(UNHARMED);
        if all.len() == MAX_SCANS {
            return None;
        }
        all.push(Arc::clone(&since));
        Some(since)
    }

    pub fn forget(&self, since: &Arc<PromotedSince>) {
        self.0.write().expect(UNHARMED).retain(|other| !Arc::ptr_eq(other, since));
    }

    /// To be held while a key is promoted. Relaxed bits: a thread that sees the item in memory sees all stores before
    /// it.
    pub fn record(&self, hash: u64) -> RwLockReadGuard<'_, Vec<Arc<PromotedSince>>> {
        let since = self.0.read().expect(UNHARMED);
        let (word, bit) = PromotedSince::bit(hash);
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
    fn keys_recorded_during_a_scan_are_known() {
        let promoted_keys = PromotedKeys::default();
        drop(promoted_keys.record(1));
        let first = promoted_keys.keep().unwrap();
        drop(promoted_keys.record(2 << 40 | 77));
        let second = promoted_keys.keep().unwrap();
        drop(promoted_keys.record(3));
        assert!(!first.may_contain(1) && first.may_contain(2 << 40 | 77) && first.may_contain(3));
        assert!(!second.may_contain(2 << 40 | 77) && second.may_contain(3));
        promoted_keys.forget(&first);
        drop(promoted_keys.record(4));
        assert!(!first.may_contain(4) && second.may_contain(4));
        let more: Vec<_> = (1..MAX_SCANS).map(|_| promoted_keys.keep().unwrap()).collect();
        assert!(promoted_keys.keep().is_none());
        promoted_keys.forget(&more[0]);
        assert!(promoted_keys.keep().is_some());
        assert_eq!(promoted_keys.memory_bytes(), (MAX_SCANS as u64) << 17);
    }

    #[test]
    fn a_scan_waits_for_a_running_promotion() {
        let (promoted_keys, is_over) = (PromotedKeys::default(), AtomicBool::new(false));
        let recording = promoted_keys.record(1);
        thread::scope(|scope| {
            let scan = scope.spawn(|| {
                let since = promoted_keys.keep().unwrap();
                assert!(
                    is_over.load(Ordering::Relaxed),
                    "memory was walked before the key was there, and its bit is not set"
                );
                since
            });
            thread::sleep(Duration::from_millis(20));
            is_over.store(true, Ordering::Relaxed);
            drop(recording);
            assert!(!scan.join().unwrap().may_contain(1));
        });
    }
}
