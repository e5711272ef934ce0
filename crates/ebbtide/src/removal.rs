//! Removal listeners, called for entries that a cache evicts, expires or flushes.

use crate::access::Access;
use crate::error::Error;
pub use ebbtide_store::Cause;
use ebbtide_store::Removed;
use std::time::Duration;

/// Listeners of a pool.
const MAX_LISTENERS: usize = 4;

/// An entry that was just removed, readable while the listener runs.
pub struct Removal<'a> {
    removed: &'a Removed<'a>,
}

impl Access {
    pub fn on_removal(&self, listener: impl Fn(Removal<'_>) + Send + Sync + 'static) -> Result<(), Error> {
        let accepted = self.pool.store.on_removal(move |removed| listener(Removal { removed }));
        accepted.then_some(()).ok_or(Error::ListenerLimit { limit: MAX_LISTENERS })
    }
}

impl Removal<'_> {
    pub fn cause(&self) -> Cause {
        self.removed.cause
    }

    pub fn key(&self) -> &[u8] {
        self.removed.item.key()
    }

    /// Whether flash has an evicted entry now, so that the cache has not lost it. False without flash.
    pub fn is_demoted(&self) -> bool {
        self.removed.is_demoted
    }

    /// Bytes of the value.
    pub fn len(&self) -> usize {
        self.removed.item.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that the entry took, with its metadata.
    pub fn stored_bytes(&self) -> u64 {
        self.removed.item.stored_bytes()
    }

    /// Client flags; 0 of an entry that the library has annotated.
    pub fn flags(&self) -> u32 {
        self.removed.item.flags().of_client()
    }

    /// The value in pieces: one for all but values longer than a segment.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.removed.item.slices()
    }

    /// The life that it had left, zero if it was over; `None` if it would never have expired.
    pub fn ttl(&self) -> Option<Duration> {
        let expiry_seconds = self.removed.item.expiry_seconds()?;
        Some(Duration::from_millis((expiry_seconds * 1000).saturating_sub(self.removed.now_ms)))
    }

    /// Whether it was read, as far as the cache remembers that.
    pub fn was_used(&self) -> bool {
        self.removed.item.was_used()
    }

    /// Whether no read since its write was counted. False for an entry that has survived an eviction: the cache forgets
    /// the reads before it.
    pub fn is_unread(&self) -> bool {
        !self.removed.item.was_used() && !self.removed.item.has_survived()
    }

    /// About how long ago it was written, at most by the time that its segment took to fill too long; `None` for an
    /// entry that has survived an eviction.
    pub fn age(&self) -> Option<Duration> {
        let written_ms = self.removed.item.written_ms()?;
        Some(Duration::from_millis(self.removed.now_ms.saturating_sub(written_ms)))
    }

    /// The range of TTLs in seconds that shared its segment; `None` if its segment does not expire.
    pub fn ttl_range_seconds(&self) -> Option<(u32, u32)> {
        self.removed.item.ttl_range_seconds()
    }

    /// About how long ago it was last read, or written, or has survived an eviction.
    pub fn idle(&self) -> Duration {
        Duration::from_millis(self.removed.item.idle_ms())
    }
}
