//! What an index may have of the memory. It can be changed while the index is in use.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes of an index at most; `usize::MAX` for none.
pub(crate) struct MemoryBound(AtomicUsize);

impl MemoryBound {
    pub fn new(bytes: usize) -> Self {
        Self(AtomicUsize::new(bytes))
    }

    pub fn set(&self, bytes: usize) {
        self.0.store(bytes, Relaxed);
    }

    pub fn increase(&self, bytes: usize) {
        let extra = self.0.fetch_update(Relaxed, Relaxed, |bound| Some(bound.saturating_add(bytes)));
        extra.expect("there is always another bound");
    }

    /// Whether an index of so many bytes takes no more objects.
    pub fn is_reached(&self, bytes: usize) -> bool {
        bytes >= self.0.load(Relaxed)
    }

    /// Whether it comes so near to the bound that objects have to end.
    pub fn is_near(&self, bytes: usize) -> bool {
        bytes >= self.0.load(Relaxed) / 16 * 15
    }

    /// Whether it will soon come so near: while there is time to raise the bound.
    pub fn is_approaching(&self, bytes: usize) -> bool {
        bytes >= self.0.load(Relaxed) / 8 * 7
    }
}
