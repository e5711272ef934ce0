//! The tier under a store: it takes evicted items and holds copies of keys that the store does not have.
//!
//! ```text
//! evict      lock key   demote(item)        remove slot            unlock
//! change     lock key   remove(key)         change slot            unlock
//! promote    lock key   is_current(copy)?   slot of the copy       unlock
//! answer     lock key   is_current(copy)?   no slot                unlock
//! ```
//! Invariant: a copy is created, validated and invalidated under the lock of the key's buckets. So a copy is always the
//! value of its key: the store has no item of the key, or an unchanged one that was made from the copy. A caller that
//! finds nothing in the store may search the lower tier without a lock, and validates the result with
//! `Store::is_current_copy`. A promoted item is a plain item. A numeric item, which changes in place, has no copy;
//! an edit of a structured item in place removes the copy first.

use crate::lower_copy::LowerCopy;
use crate::ops::Item;

/// Methods other than `flush` and `settle` are called under the lock of the key's buckets: they must be quick, and must
/// not use the store.
pub trait LowerTier: Send + Sync {
    /// Copies an evicted item, or declines to. In both cases an older copy of the key is not found any more. True if
    /// the tier has a copy of the item now.
    fn demote(&self, item: &Item<'_>, now_ms: u64) -> bool;

    /// Called after demotions without the lock of a bucket: may wait for the device.
    fn settle(&self, now_ms: u64);

    /// Whether `copy` is the copy that a search for its key would find now, and no flush is in progress. The key of the
    /// lock is that of the copy.
    fn is_current(&self, copy: LowerCopy) -> bool;

    /// Invalidates the copy of the key. True if there may have been one.
    fn remove(&self, key: &[u8]) -> bool;

    /// Calls `advance` once, which invalidates everything stored before. From before that call no copy is current, and
    /// after this returns none of the old copies is found.
    fn flush(&self, advance: &mut dyn FnMut());
}
