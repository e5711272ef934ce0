//! Time in the store: milliseconds since an origin that the caller chooses, passed to every operation.
//!
//! The time of the store never decreases: an operation with an older time happens at the newest time seen. Frequencies
//! are counted in quanta of min(1 s, eviction age / 16), so that a cache that turns over within seconds still learns
//! which objects are used.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The longest quantum of the frequency counters.
pub const QUANTUM_MS: u32 = 1000;

/// The time of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub ms: u64,
    pub quantum: u16,
}

impl Moment {
    pub fn seconds(self) -> u64 {
        self.ms / 1000
    }
}

/// The high-water mark of time, with the values that every reader derives from it.
pub struct Clock {
    now_ms: AtomicU64,
    quantum: AtomicU32,
    quantum_ms: AtomicU32,
    flush_at_ms: AtomicU64,
}

impl Clock {
    pub fn new() -> Self {
        Self {
            now_ms: AtomicU64::new(0),
            quantum: AtomicU32::new(0),
            quantum_ms: AtomicU32::new(QUANTUM_MS),
            flush_at_ms: AtomicU64::new(u64::MAX),
        }
    }

    /// The moment of an operation at `now_ms`.
    #[inline(always)]
    pub fn observe(&self, now_ms: u64) -> Moment {
        let high = self.now_ms.load(Ordering::Relaxed);
        if now_ms > high {
            self.advance(now_ms);
        }
        Moment { ms: high.max(now_ms), quantum: self.quantum.load(Ordering::Relaxed) as u16 }
    }

    #[cold]
    fn advance(&self, now_ms: u64) {
        let previous = self.now_ms.fetch_max(now_ms, Ordering::Relaxed);
        let length = u64::from(self.quantum_ms.load(Ordering::Relaxed));
        let steps = now_ms / length != previous / length;
        if now_ms > previous && steps {
            self.quantum.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The approximate start of a quantum in milliseconds, computed from the present length of a quantum.
    pub fn quantum_began_ms(&self, quantum: u16, moment: Moment) -> u64 {
        let quanta_ago = u64::from(moment.quantum.wrapping_sub(quantum));
        moment.ms.saturating_sub(quanta_ago * u64::from(self.quantum_ms.load(Ordering::Relaxed)))
    }

    /// Sets the quantum from the age at which items are evicted.
    pub fn set_eviction_age(&self, age_ms: u64) {
        let length = u32::try_from(age_ms / 16).map_or(QUANTUM_MS, |ms| ms.clamp(1, QUANTUM_MS));
        self.quantum_ms.store(length, Ordering::Relaxed);
    }

    /// The number of the quantum, and its length in milliseconds.
    pub fn quantum(&self) -> (u32, u32) {
        (self.quantum.load(Ordering::Relaxed), self.quantum_ms.load(Ordering::Relaxed))
    }

    /// Continues from where another clock stopped.
    pub fn restore(&self, now_ms: u64, (quantum, quantum_ms): (u32, u32), flush_at_ms: u64) {
        self.now_ms.store(now_ms, Ordering::Relaxed);
        self.quantum.store(quantum, Ordering::Relaxed);
        self.quantum_ms.store(quantum_ms.clamp(1, QUANTUM_MS), Ordering::Relaxed);
        self.flush_at_ms.store(flush_at_ms, Ordering::Relaxed);
    }

    /// When a delayed flush takes effect; `u64::MAX` if none waits.
    #[inline(always)]
    pub fn flush_at_ms(&self) -> &AtomicU64 {
        &self.flush_at_ms
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn time_never_decreases() {
        let clock = Clock::new();
        assert_eq!(clock.observe(5000).ms, 5000);
        assert_eq!(clock.observe(1000).ms, 5000);
        assert_eq!(clock.observe(5001).ms, 5001);
    }

    #[test]
    fn a_quantum_follows_the_eviction_age() {
        let clock = Clock::new();
        let first = clock.observe(10).quantum;
        assert_eq!(clock.observe(999).quantum, first);
        clock.observe(1001);
        assert_eq!(clock.observe(1001).quantum, first + 1);
        clock.set_eviction_age(1600);
        clock.observe(1101);
        assert_eq!(clock.observe(1101).quantum, first + 2);
        clock.set_eviction_age(1);
        clock.observe(1102);
        assert_eq!(clock.observe(1102).quantum, first + 3);
    }
}
