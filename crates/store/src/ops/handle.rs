//! Handles: hits that outlive the pin, without a copy if they are large.
//!
//! A handle counts in the header of its segment, and of the first body if the value is chained. Retired segments are
//! not freed while the count is not zero. The count is incremented under the epoch pin of the hit and read after the
//! grace period, so every handle is seen.

use super::read::Item;
use crate::error::Error;
use crate::flags::Flags;
use crate::item::{Chained, ItemAt, Kind};
use crate::segment::Location;
use crate::store::Store;
use std::sync::Arc;

/// Values shorter than this are copied into their handles: that is cheaper than holding a segment.
const COPY_BYTES_MAX: usize = 4096;

/// A hit that may be kept, and sent to other threads.
pub struct Handle {
    flags: Flags,
    value: HandleValue,
}

enum HandleValue {
    Copy(Box<[u8]>),
    Pinned(Pinned),
}

/// An item held in place until this is dropped.
struct Pinned {
    store: Arc<Store>,
    item: ItemAt,
    /// Bytes of a value that is not chained, and where they begin.
    content: (Location, u32),
    chained: Option<Chained>,
}

impl Item<'_> {
    /// A handle on this hit.
    ///
    /// # Errors
    /// `PinnedLimit` if handles hold a quarter of the memory already, or as much as the largest value takes.
    pub fn to_handle(&self, store: &Arc<Store>) -> Result<Handle, Error> {
        assert!(std::ptr::eq(self.store(), &**store), "the item is one of this store");
        let flags = self.flags();
        let item = self.item_at();
        // A chained value is read through its chain.
        let chained = (item.header.kind() == Kind::Chained).then(|| (item.value_at(), 0));
        let Some(content) = self.content().or(chained).filter(|_| self.len() >= COPY_BYTES_MAX) else {
            let mut copy = Vec::with_capacity(self.len());
            self.copy_to(&mut copy);
            return Ok(Handle { flags, value: HandleValue::Copy(copy.into()) });
        };
        let segment_bytes = u64::from(store.segments.segment_bytes());
        let limit = store.pinned_limit();
        store.segments.pin(item.at.segment(), segment_bytes, limit)?;
        let mut pinned = Pinned { store: Arc::clone(store), item, content, chained: None };
        if item.header.kind() == Kind::Chained {
            // SAFETY: the pin of this hit protects the item.
            let chained = unsafe { item.chained(&store.segments.arena) };
            store.segments.pin(chained.first_body, pinned.body_bytes(&chained), limit)?;
            pinned.chained = Some(chained);
        }
        Ok(Handle { flags, value: HandleValue::Pinned(pinned) })
    }
}

impl Pinned {
    fn body_bytes(&self, chained: &Chained) -> u64 {
        self.store.body_bytes(chained.total - self.item.tail().1)
    }

    fn slice_at(&self, offset: usize) -> &[u8] {
        let arena = &self.store.segments.arena;
        let Some(chained) = &self.chained else {
            // SAFETY: the counts in the headers keep the segments in place as long as self.
            let value = unsafe { arena.slice(self.content.0, self.content.1 as usize) };
            return &value[offset..];
        };
        let (tail_at, tail) = self.item.tail();
        let in_bodies = (chained.total - tail) as usize;
        if offset >= in_bodies {
            // SAFETY: as above.
            let tail = unsafe { arena.slice(tail_at, tail as usize) };
            return &tail[offset - in_bodies..];
        }
        let segment_bytes = self.store.segments.segment_bytes() as usize;
        let mut body = chained.first_body;
        for _ in 0..offset / segment_bytes {
            body = self.store.segments.next_body(body).expect("the bodies of a value hold its bytes");
        }
        let start = offset / segment_bytes * segment_bytes;
        let length = (in_bodies - start).min(segment_bytes);
        // SAFETY: as above; the count of the first body holds all of them.
        let body = unsafe { arena.slice(Location::new(body, 0), length) };
        &body[offset - start..]
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let segments = &self.store.segments;
        segments.unpin(self.item.at.segment(), segments.segment_bytes().into());
        if let Some(chained) = self.chained {
            segments.unpin(chained.first_body, self.body_bytes(&chained));
        }
    }
}

impl Handle {
    /// Bytes of the value.
    pub fn len(&self) -> usize {
        match &self.value {
            HandleValue::Copy(copy) => copy.len(),
            HandleValue::Pinned(pinned) => match &pinned.chained {
                Some(chained) => chained.total as usize,
                None => pinned.content.1 as usize,
            },
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Flags of a client, or an annotation.
    pub fn flags(&self) -> Flags {
        self.flags
    }

    /// The bytes from `offset` to the end of the contiguous piece; empty only at the end of the value.
    pub fn slice_at(&self, offset: usize) -> &[u8] {
        match &self.value {
            HandleValue::Copy(copy) => &copy[offset..],
            HandleValue::Pinned(pinned) => pinned.slice_at(offset),
        }
    }
}
