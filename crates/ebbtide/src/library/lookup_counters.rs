//! Hits and misses of a pool, striped over threads so that counting shares no cache line.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// More stripes than most programs have threads that read at the same time.
const STRIPES: usize = 16;

/// Two cache lines: the adjacent-line prefetcher fetches pairs.
#[derive(Default)]
#[repr(align(128))]
struct Stripe {
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Counters of lookups.
#[derive(Default)]
pub(crate) struct LookupCounters([Stripe; STRIPES]);

thread_local! {
    static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The stripe of the calling thread.
fn stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    STRIPE.with(|stripe| {
        if stripe.get() == usize::MAX {
            stripe.set(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
        }
        stripe.get()
    })
}

impl LookupCounters {
    #[inline]
    pub fn count(&self, is_hit: bool) {
        let stripe = &self.0[stripe()];
        let counter = if is_hit { &stripe.hits } else { &stripe.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Hits and misses of all threads.
    pub fn sums(&self) -> (u64, u64) {
        let sum = |count: fn(&Stripe) -> &AtomicU64| {
            self.0.iter().map(|stripe| count(stripe).load(Ordering::Relaxed)).sum::<u64>()
        };
        (sum(|stripe| &stripe.hits), sum(|stripe| &stripe.misses))
    }
}
