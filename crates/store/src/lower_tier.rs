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
//! `Store::is_current_copy`. A promoted item is a plain item. A numeric item, which changes in place, has no copy.

use crate::ops::Item;

/// All but `flush` are called with the lock of a key's buckets held: they must be quick, and must not use the store.
pub trait LowerTier: Send + Sync {
    /// Copies an item that is evicted, or not. An older copy of the key is found no more in any case.
    fn demote(&self, item: &Item<'_>, now_ms: u64);

    /// Whether no flush was under way at the time of the call, and afterwards the copy of the key that `copy` names was what would
    /// be found.
    fn is_current(&self, key: &[u8], copy: u64) -> bool;

    /// From now on no copy of the key is found. True if there may have been one.
    fn remove(&self, key: &[u8]) -> bool;

    /// Calls `advance` once: everything stored before is worthless then. Afterwards no copy that was there is found. From
    /// before the call of `advance` until then no copy is current.
    fn flush(&self, advance: &mut dyn FnMut());
}
