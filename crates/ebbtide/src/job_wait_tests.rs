//! Writes beside threads that hold jobs and do not run: each write ends by waiting, within its bound, and none is
//! refused before that.

use crate::byte_size::ByteSize;
use crate::cache::Cache;
use crate::clock::Clock;
use crate::error::{Error, WaitReason};
use ebbtide_store::{PausePoint, set_pauses};
use ebbtide_testkit::{StoppedThreads, repeat_after_stalls};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Half of the time that a write waits for a job.
const MAX_ATTEMPT: Duration = Duration::from_secs(1);
/// The time that a write waits for a job.
const BOUND: Duration = Duration::from_secs(2);
/// More threads than a cache of this size has jobs.
const MAX_HOLDERS: usize = 100;
/// Answers in a row that say that no memory comes back while the holders stop.
const ANSWERS: usize = 20;

/// A full cache, without a thread of its own.
struct Full {
    cache: Cache,
    evicts: bool,
    /// The number of keys that fit.
    count: u32,
    next: AtomicU32,
    /// Threads that hold a job.
    holders: Arc<StoppedThreads>,
}

impl Full {
    /// One that evicts, or one in which a tenth of the keys is deleted.
    fn new(evicts: bool) -> Self {
        let builder = Cache::builder().memory(ByteSize::kib(512)).max_value(ByteSize::kib(4)).clock(Clock::Manual);
        let cache = builder.evict(evicts).build().unwrap();
        let (next, holders) = (AtomicU32::new(0), Arc::default());
        let mut full = Self { cache, evicts, count: 0, next, holders };
        while full.cache.stats().evictions == 0 && full.insert(full.count, &full.cache).is_ok() {
            full.count += 1;
        }
        if !evicts {
            let deleted = (0..full.count).filter(|number| number % 10 == 0);
            deleted.for_each(|number| assert!(full.cache.delete(&number.to_le_bytes())));
        }
        full
    }

    fn insert(&self, number: u32, cache: &Cache) -> Result<(), Error> {
        cache.insert(&number.to_le_bytes(), &[7; 900]).apply().map(drop)
    }

    /// Writes a new key, or a present one of a cache that keeps all.
    fn write(&self, cache: &Cache) -> Result<(), Error> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let present = || (0..).map(|more| (number + more).wrapping_mul(7919) % self.count).find(|key| key % 10 > 0);
        self.insert(if self.evicts { self.count + number } else { present().unwrap() }, cache)
    }

    /// Whether a handle that does not wait finds no memory, because of jobs.
    fn must_wait(&self, handle: &Cache) -> bool {
        (0..ANSWERS).all(|_| match self.write(handle) {
            Ok(()) => false,
            Err(error) => {
                assert_eq!(error, Error::WouldWait { reason: WaitReason::Eviction });
                true
            }
        })
    }

    /// Writes until the thread has stopped in a job, or others have.
    fn hold_a_job(&self) {
        let (holders, mut has_stopped) = (Arc::clone(&self.holders), false);
        set_pauses(move |point| {
            if point == PausePoint::Job && !std::mem::replace(&mut has_stopped, true) {
                holders.stop();
            }
        });
        while !self.holders.are_released() {
            let started = Instant::now();
            if let Err(error) = self.write(&self.cache) {
                assert!(started.elapsed() >= BOUND, "{error} after {:?}", started.elapsed());
            }
        }
    }

    /// Runs `then` while threads hold all jobs that there are.
    fn while_jobs_stop(&self, then: impl FnOnce(&Cache)) {
        let handle = self.cache.without_waiting();
        thread::scope(|scope| {
            // Also when an assertion fails: the scope waits for the threads.
            let _release = Release(&self.holders);
            for started in 0..MAX_HOLDERS {
                scope.spawn(|| self.hold_a_job());
                while self.holders.count() <= started {
                    if self.must_wait(&handle) {
                        return then(&handle);
                    }
                }
            }
            panic!("there are more jobs than {MAX_HOLDERS}");
        });
    }
}

struct Release<'h>(&'h StoppedThreads);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

fn wait_for_jobs(evicts: bool) {
    let full = Full::new(evicts);
    thread::scope(|scope| {
        let mut waiting = None;
        full.while_jobs_stop(|handle| {
            let sleeper = scope.spawn(|| full.write(&full.cache));
            let since = Instant::now();
            while since.elapsed() < Duration::from_millis(50) {
                assert!(full.must_wait(handle), "nothing is free while the holders stop");
            }
            assert!(!sleeper.is_finished(), "it waits");
            waiting = Some(sleeper);
        });
        let written = waiting.expect("it was started").join().unwrap();
        written.expect("the jobs have freed memory");
    });
    full.write(&full.cache).unwrap();
    full.cache.verify();
}

#[test]
fn writes_wait_for_stopped_evictions() {
    repeat_after_stalls(MAX_ATTEMPT, || wait_for_jobs(true));
}

#[test]
fn writes_wait_for_stopped_compactions() {
    repeat_after_stalls(MAX_ATTEMPT, || wait_for_jobs(false));
}

#[test]
fn a_write_is_refused_after_its_bound() {
    let full = Full::new(true);
    full.while_jobs_stop(|_| {
        let started = Instant::now();
        let refused = full.write(&full.cache);
        assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{refused:?}");
        assert!(started.elapsed() >= BOUND, "refused after {:?}", started.elapsed());
    });
    full.cache.verify();
}
