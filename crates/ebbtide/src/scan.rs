//! Walking through all entries of a cache.

use crate::cache::{Cache, Shared};
use crate::error::Error;
use crate::item::Item;
use std::sync::Arc;
use std::time::Duration;

/// A walk through all entries, which goes on whenever [`Scan::advance`] is called: at any pace, from any thread, beside
/// everything else. In between it holds no entry and no memory of the cache.
///
/// An entry that is there from the scan's beginning to its end is met at least once. It is met exactly once unless it was
/// moved in the index meanwhile, which happens while the number of entries grows. An entry that is written, removed or
/// evicted during the scan may be met or not.
///
/// ```
/// # let cache = ebbtide::Cache::builder().memory(ebbtide::ByteSize::mib(64)).build()?;
/// cache.insert(b"a", b"1").apply()?;
/// let mut keys = Vec::new();
/// let mut scan = cache.scan()?;
/// while scan.advance(|entry| keys.push(entry.item().key().to_vec())) {}
/// assert_eq!(keys, [b"a"]);
/// # Ok::<(), ebbtide::Error>(())
/// ```
pub struct Scan {
    shared: Arc<Shared>,
    scan: ebbtide_store::Scan<Arc<ebbtide_store::Store>>,
}

/// An entry that a [`Scan`] meets.
pub struct Entry<'a> {
    item: Item<'a>,
    frequency: u8,
    idle: Duration,
    memory_bytes: u64,
}

impl Cache {
    /// Begins a scan of all entries.
    ///
    /// # Errors
    /// `ScanLimit`: eight scans of a cache can be under way at a time.
    pub fn scan(&self) -> Result<Scan, Error> {
        let scan = self.shared.store.scan().map_err(Error::from_store)?;
        Ok(Scan { shared: Arc::clone(&self.shared), scan })
    }
}

impl Scan {
    /// Calls `visit` with the next few entries, at most 112 and sometimes none. False at the end of the scan. `visit` borrows
    /// what it is given and so should be brief; it cannot write to the same cache if that needs memory.
    pub fn advance(&mut self, mut visit: impl FnMut(Entry<'_>)) -> bool {
        let Self { shared, scan } = self;
        let now_ms = shared.time.now_ms();
        let store = &shared.store;
        scan.advance(&shared.participant(), now_ms, |scanned| {
            let idle = Duration::from_millis(now_ms.saturating_sub(scanned.active_ms));
            let item = Item::in_memory(scanned.item, store);
            visit(Entry { item, frequency: scanned.frequency, idle, memory_bytes: scanned.memory_bytes });
        })
    }

    /// How far the scan has come, from 0 to 1. It may go back a little when the cache grows.
    pub fn progress(&self) -> f64 {
        self.scan.progress()
    }
}

impl<'a> Entry<'a> {
    /// Its key, value and life.
    pub fn item(&self) -> &Item<'a> {
        &self.item
    }

    /// How often it was read lately: at most one count per second, exact below 16, halved when an eviction keeps it.
    pub fn frequency(&self) -> u8 {
        self.frequency
    }

    /// The memory that it takes: metadata, key, value and, for a value longer than a segment, its whole segments.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// How long ago it was last read or written, about: neighbours in the index and in memory share the notes from which
    /// this is told, and compaction keeps the age of the oldest.
    pub fn idle(&self) -> Duration {
        self.idle
    }
}
