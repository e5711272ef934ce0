//! Samples of accesses, from which miss-ratio curves are made.
//!
//! A key is sampled always or never: if its hash is not above a threshold. So an access that is not sampled costs a
//! load of a word that rarely changes and one comparison. Sampled accesses go to the buffer of the thread's stripe,
//! until the caller takes them. A thread never waits here: a sample is dropped, and counted, where the buffer is full
//! or another thread is at it.

use crate::sync::{AtomicU64, Mutex, Ordering, Padded, lock, try_lock};

/// Samples that a stripe holds until they are taken: a tenth of a second of 40,000 sampled accesses.
const STRIPE_SAMPLES: usize = 4096;

/// Access to a sampled key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampledAccess {
    /// A lookup found an item of this many bytes of memory, with this expiry in seconds of the store's time.
    Hit { bytes: u64, expiry_seconds: Option<u64> },
    /// A lookup found nothing in memory.
    Miss,
    /// An item was published.
    Write { bytes: u64, expiry_seconds: Option<u64> },
    /// A delete or an overwrite with a life that is over already.
    Removal,
}

/// An access to a sampled key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessSample {
    /// The store's hash of the key.
    pub hash: u64,
    pub access: SampledAccess,
}

/// The buffers.
pub(crate) struct AccessSamples {
    /// Hashes up to this one are sampled.
    threshold: AtomicU64,
    stripes: Box<[Padded<Mutex<Vec<AccessSample>>>]>,
    dropped: AtomicU64,
}

impl AccessSamples {
    /// Samples no key until a threshold is set.
    pub(crate) fn new(threads: usize) -> Self {
        let stripes = (0..threads.next_power_of_two()).map(|_| Padded(Mutex::new(Vec::new()))).collect();
        Self { threshold: AtomicU64::new(0), stripes, dropped: AtomicU64::new(0) }
    }

    /// Bytes of the stripes, without samples.
    pub(crate) fn bytes(threads: usize) -> u64 {
        (threads.next_power_of_two() * size_of::<Padded<Mutex<Vec<AccessSample>>>>()) as u64
    }

    /// Whether the key of this hash is sampled.
    #[inline(always)]
    pub(crate) fn takes(&self, hash: u64) -> bool {
        // Loom would count the load among those that it reorders.
        !cfg!(loom) && hash < self.threshold.load(Ordering::Relaxed)
    }

    /// Notes an access to a sampled key.
    #[cold]
    pub(crate) fn note(&self, thread: usize, hash: u64, access: SampledAccess) {
        let stripe = &self.stripes[thread & (self.stripes.len() - 1)];
        match try_lock(stripe) {
            Some(mut samples) if samples.len() < STRIPE_SAMPLES => samples.push(AccessSample { hash, access }),
            _ => _ = self.dropped.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Samples the share `share` of all keys from now on.
    pub(crate) fn set_share(&self, share: f64) {
        // 2^64 as a float; the conversion saturates.
        let threshold = (share.clamp(0.0, 1.0) * 18_446_744_073_709_551_616.0) as u64;
        self.threshold.store(threshold, Ordering::Relaxed);
    }

    /// Takes the samples since the last call, those of a thread in their order. Returns the number of dropped ones.
    pub(crate) fn take(&self, mut each: impl FnMut(AccessSample)) -> u64 {
        for stripe in &self.stripes {
            let mut taken = Vec::new();
            {
                let mut samples = lock(stripe);
                if !samples.is_empty() {
                    // Space for twice as many samples: few of hundreds of pools are busy.
                    taken.reserve_exact((2 * samples.len()).min(STRIPE_SAMPLES));
                    std::mem::swap(&mut *samples, &mut taken);
                }
            }
            taken.into_iter().for_each(&mut each);
        }
        self.dropped.swap(0, Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_keys_is_sampled() {
        let samples = AccessSamples::new(3);
        assert!(!samples.takes(0) && !samples.takes(1));
        samples.set_share(0.25);
        assert!(samples.takes(0) && samples.takes((1 << 62) - 1) && !samples.takes(1 << 62));
        samples.set_share(1.0);
        assert!(samples.takes(u64::MAX - 1));
    }

    #[test]
    fn samples_are_taken_once_and_dropped_when_full() {
        let samples = AccessSamples::new(3);
        for thread in 0..8 {
            samples.note(thread, thread as u64, SampledAccess::Miss);
        }
        let mut seen = Vec::new();
        assert_eq!(samples.take(|sample| seen.push(sample.hash)), 0);
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6, 7]);
        for hash in 0..STRIPE_SAMPLES as u64 + 5 {
            samples.note(0, hash, SampledAccess::Removal);
        }
        let mut count = 0;
        assert_eq!(samples.take(|_| count += 1), 5);
        assert_eq!((count, samples.take(|_| count += 1)), (STRIPE_SAMPLES, 0));
        assert_eq!(count, STRIPE_SAMPLES);
    }
}
