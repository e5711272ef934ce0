//! Listening to what a cache removes on its own.

use crate::cache::Cache;
use crate::error::Error;
pub use ebbtide_store::Cause;
use ebbtide_store::Removed;
use std::time::Duration;

/// Listeners that a cache can have.
const LISTENERS: usize = 4;

/// An entry that the cache has just removed, readable while its listener runs.
pub struct Removal<'a> {
    removed: &'a Removed<'a>,
}

impl Cache {
    /// Has `listener` told of every entry that the cache removes on its own: what it evicts, what has expired, what was
    /// flushed. Not of what is deleted or overwritten, as whoever does that knows.
    ///
    /// It is called by the thread that removes the entry, a writing one or the background thread, in the midst of its work: it
    /// must be quick, and must not use the cache. An expired or flushed entry is told of when its memory is taken back, which
    /// may be long after it was last served; if it is overwritten before, it is not told of. A panic ends the call of the
    /// listener and nothing else.
    ///
    /// ```
    /// # use ebbtide::{Cache, Cause, ByteSize};
    /// # use std::sync::atomic::{AtomicU64, Ordering};
    /// # static EVICTED: AtomicU64 = AtomicU64::new(0);
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.on_removal(|removal| {
    ///     if removal.cause() == Cause::Memory {
    ///         EVICTED.fetch_add(1, Ordering::Relaxed);
    ///     }
    /// })?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `ListenerLimit`: a cache can have four listeners. They stay as long as it does.
    pub fn on_removal(&self, listener: impl Fn(Removal<'_>) + Send + Sync + 'static) -> Result<(), Error> {
        let accepted = self.shared.store.on_removal(move |removed| listener(Removal { removed }));
        accepted.then_some(()).ok_or(Error::ListenerLimit { limit: LISTENERS })
    }
}

impl Removal<'_> {
    pub fn cause(&self) -> Cause {
        self.removed.cause
    }

    pub fn key(&self) -> &[u8] {
        self.removed.item.key()
    }

    /// Bytes of the value.
    pub fn len(&self) -> usize {
        self.removed.item.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Client flags.
    pub fn flags(&self) -> u32 {
        self.removed.item.flags()
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

    /// About how long ago it was last read or written.
    pub fn idle(&self) -> Duration {
        Duration::from_millis(self.removed.item.idle_ms())
    }
}
