//! The memory bound of an index. It can be changed while the index is in use.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Maximum bytes of an index; `usize::MAX` for no bound.
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

    /// Whether an index of `bytes` is full.
    pub fn is_reached(&self, bytes: usize) -> bool {
        bytes >= self.0.load(Relaxed)
    }

    /// Whether an index of `bytes` is so near its bound that objects must be evicted.
    pub fn is_near(&self, bytes: usize) -> bool {
        bytes >= self.0.load(Relaxed) / 16 * 15
    }

    /// By how many bytes the bound of an index of this size should grow: to what it uses plus a spare, once less than
    /// `reserve` or an eighth of the bound is left. 0 while more is left.
    pub fn wanted(&self, bytes: usize, reserve: usize) -> usize {
        let bound = self.0.load(Relaxed);
        match bytes.saturating_add(reserve.max(bound / 8)) >= bound {
            true => with_spare(bytes, reserve).saturating_sub(bound),
            false => 0,
        }
    }

    /// Lowers the bound of an index of this size to what it uses and a spare, if that releases more than `reserve` and
    /// an eighth of the index; returns the difference in bytes. The spare is more than [`MemoryBound::wanted`] asks
    /// for, so that the two do not alternate.
    pub fn release(&self, bytes: usize, reserve: usize) -> usize {
        let (bound, lower) = (self.0.load(Relaxed), with_spare(bytes, reserve));
        if bound == usize::MAX || bound <= lower.saturating_add(reserve.max(bytes / 8)) {
            return 0;
        }
        // One thread moves memory at a time; a bound that a start or a split sets meanwhile stays.
        self.0.compare_exchange(bound, lower, Relaxed, Relaxed).map_or(0, |bound| bound - lower)
    }

    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.0.load(Relaxed)
    }
}

/// The bytes of an index of this size with memory ahead of its use: two reserves, or a quarter of it if that is more.
fn with_spare(bytes: usize, reserve: usize) -> usize {
    bytes.saturating_add(reserve.saturating_mul(2).max(bytes / 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_bound_is_not_wanted_again() {
        for (bytes, reserve) in [(0, 1), (1000, 10), (1000, 400), (5, 5_000), (100_000, 10)] {
            let bound = MemoryBound::new(1 << 20);
            let released = bound.release(bytes, reserve);
            assert!(released > 0 && bound.bytes() + released == 1 << 20, "{bytes} {reserve}");
            assert_eq!((bound.wanted(bytes, reserve), bound.release(bytes, reserve)), (0, 0), "{bytes} {reserve}");
        }
    }

    #[test]
    fn an_index_near_its_bound_wants_a_spare() {
        for (bytes, reserve) in [(0, 1), (1000, 10), (1000, 400), (100_000, 10)] {
            let bound = MemoryBound::new(bytes + reserve);
            let wanted = bound.wanted(bytes, reserve);
            assert!(wanted >= reserve, "{wanted} for {bytes} {reserve}");
            bound.increase(wanted);
            assert_eq!((bound.wanted(bytes, reserve), bound.release(bytes, reserve)), (0, 0), "{bytes} {reserve}");
        }
    }

    #[test]
    fn an_index_at_its_bound_takes_no_more() {
        let bound = MemoryBound::new(1600);
        assert_eq!([1499, 1500, 1599, 1600].map(|bytes| bound.is_near(bytes)), [false, true, true, true]);
        assert_eq!([1499, 1500, 1599, 1600].map(|bytes| bound.is_reached(bytes)), [false, false, false, true]);
    }

    #[test]
    fn an_index_without_a_bound_releases_nothing() {
        let bound = MemoryBound::new(usize::MAX);
        assert_eq!((bound.release(1000, 10), bound.wanted(1000, 10)), (0, 0));
    }
}
