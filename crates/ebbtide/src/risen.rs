//! What came from flash to memory since a scan began.
//!
//! A scan walks memory first. What flash had then and memory has by the time that flash is walked was not met in memory, and
//! must be met on flash; what was in memory all along must not be met again. So while a scan is under way promotions set a bit
//! by the key's hash. Two keys may share a bit: then one is met twice, and none is missed.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// 128 KiB for each scan: of a hundred thousand promotions one in eleven others shares a bit.
const WORDS: usize = 1 << 14;
/// So many scans can be under way.
pub(crate) const SCANS_MOST: usize = 8;

/// Keys that were promoted since a scan began, and some others.
pub(crate) struct RisenSince {
    words: Box<[AtomicU64]>,
}

/// All that are kept.
#[derive(Default)]
pub(crate) struct Risen {
    /// How many there are, to be looked at without the lock.
    count: AtomicUsize,
    since: Mutex<Vec<Arc<RisenSince>>>,
}

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
        let mut all = self.lock();
        if all.len() == SCANS_MOST {
            return None;
        }
        all.push(Arc::clone(&since));
        self.count.fetch_add(1, Ordering::SeqCst);
        Some(since)
    }

    pub fn forget(&self, since: &Arc<RisenSince>) {
        self.count.fetch_sub(1, Ordering::SeqCst);
        self.lock().retain(|other| !Arc::ptr_eq(other, since));
    }

    /// To be called before a key is promoted and afterwards: a scan that began in between has it, too. Relaxed bits: who sees the
    /// item in memory sees what was stored before it.
    pub fn note(&self, hash: u64) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let (word, bit) = RisenSince::bit(hash);
        self.lock().iter().for_each(|since| _ = since.words[word].fetch_or(bit, Ordering::Relaxed));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<RisenSince>>> {
        self.since.lock().expect("nothing panics under this lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_while_it_is_kept_is_known() {
        let risen = Risen::default();
        risen.note(1);
        let first = risen.keep().unwrap();
        risen.note(2 << 40 | 77);
        let second = risen.keep().unwrap();
        risen.note(3);
        assert!(!first.may_have(1) && first.may_have(2 << 40 | 77) && first.may_have(3));
        assert!(!second.may_have(2 << 40 | 77) && second.may_have(3));
        risen.forget(&first);
        risen.note(4);
        assert!(!first.may_have(4) && second.may_have(4));
        let more: Vec<_> = (1..SCANS_MOST).map(|_| risen.keep().unwrap()).collect();
        assert!(risen.keep().is_none());
        risen.forget(&more[0]);
        assert!(risen.keep().is_some());
    }
}
