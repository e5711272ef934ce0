//! Hits.

use crate::error::Error;
use ebbtide_store::Store;
use std::sync::Arc;
use std::time::Duration;

/// The answer to a get.
pub enum Lookup<'a> {
    Hit(Item<'a>),
    Miss,
}

impl<'a> Lookup<'a> {
    /// The hit, if it is one.
    pub fn hit(self) -> Option<Item<'a>> {
        match self {
            Self::Hit(item) => Some(item),
            Self::Miss => None,
        }
    }

    /// The hit, borrowed.
    pub fn item(&self) -> Option<&Item<'a>> {
        match self {
            Self::Hit(item) => Some(item),
            Self::Miss => None,
        }
    }

    pub fn is_hit(&self) -> bool {
        matches!(self, Self::Hit(_))
    }
}

/// A borrowed hit. Holding it delays the reuse of evicted memory: keep it short, or make a [`Handle`].
pub struct Item<'a> {
    pub(crate) item: ebbtide_store::Item<'a>,
    pub(crate) store: &'a Arc<Store>,
}

impl Item<'_> {
    /// Bytes of the value.
    pub fn len(&self) -> usize {
        self.item.len()
    }

    pub fn is_empty(&self) -> bool {
        self.item.is_empty()
    }

    pub fn key(&self) -> &[u8] {
        self.item.key()
    }

    /// Client flags.
    pub fn flags(&self) -> u32 {
        self.item.flags()
    }

    /// The CAS token: changes with every change of the value, and sometimes without one.
    pub fn cas(&self) -> u64 {
        self.item.token()
    }

    /// Whether the value was marked as out of date and nobody has stored a new one since.
    pub fn is_stale(&self) -> bool {
        self.item.extension().stale
    }

    /// Whether somebody was told to store the value anew, and has not done so yet.
    pub fn is_won(&self) -> bool {
        self.item.extension().won
    }

    /// Whether a use of the key was counted before this one. Uses of the value before the present one count, too; an
    /// eviction that the entry survives may forget them.
    pub fn was_used(&self) -> bool {
        self.item.was_used()
    }

    /// About how long the entry had not been read before this look. Entries that share a bucket of the index share the time
    /// of their last read; one that was never read counts from the time at which its segment was opened.
    pub fn idle(&self) -> Duration {
        Duration::from_millis(self.item.idle_ms())
    }

    /// Bytes that the entry takes in the cache's segments.
    pub fn stored_bytes(&self) -> u64 {
        self.item.stored_bytes()
    }

    /// Remaining life; `None` if it never expires.
    pub fn ttl(&self) -> Option<Duration> {
        self.item.remaining_ms().map(Duration::from_millis)
    }

    /// The value in pieces: one for all but values longer than a segment.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.item.slices()
    }

    /// Appends the value to `out`.
    pub fn copy_to(&self, out: &mut Vec<u8>) {
        self.item.copy_to(out);
    }

    /// A copy of the value.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut copy = Vec::with_capacity(self.len());
        self.copy_to(&mut copy);
        copy
    }

    /// A handle that outlives the borrow. Values under 4 KiB are copied, others stay where they are until it is dropped.
    ///
    /// # Errors
    /// `PinnedLimit` if handles hold a quarter of the memory already, or as much as the largest value takes.
    pub fn to_handle(&self) -> Result<Handle, Error> {
        self.item.to_handle(self.store).map(|handle| Handle { handle }).map_err(Error::from_store)
    }
}

/// A hit that may be kept and sent to other threads.
pub struct Handle {
    handle: ebbtide_store::Handle,
}

impl Handle {
    /// Bytes of the value.
    pub fn len(&self) -> usize {
        self.handle.len()
    }

    pub fn is_empty(&self) -> bool {
        self.handle.is_empty()
    }

    /// Client flags.
    pub fn flags(&self) -> u32 {
        self.handle.flags()
    }

    /// The bytes from `offset` to the end of the piece that holds it; empty only at the end of the value.
    pub fn slice_at(&self, offset: usize) -> &[u8] {
        self.handle.slice_at(offset)
    }
}
