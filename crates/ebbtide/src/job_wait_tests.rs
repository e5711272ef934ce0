//! Writes beside threads that hold jobs and do not run, and beside a handle that holds much of the memory: each write
//! ends by waiting, within its bound, and none is refused before that. The same of threads and of tasks.

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
/// The time that a write waits for memory that handles hold.
const HELD_BOUND: Duration = Duration::from_millis(100);
/// The time between two looks at a write that waits. The looks are counted: a machine that stalls makes fewer in the
/// same time, so that their number is an upper bound under any load.
const LOOK: Duration = Duration::from_millis(50);
/// The looks of four times `BOUND`, and of ten times `HELD_BOUND`.
const MAX_LOOKS: u32 = 160;
const MAX_HELD_LOOKS: u32 = 20;
/// More threads than a cache of this size has jobs.
const MAX_HOLDERS: usize = 100;
/// The length of a value that takes half of the memory.
const HELD_BYTES: usize = 500_000;
/// Answers in a row that say that no memory comes back while the holders stop.
const ANSWERS: usize = 20;

/// A full cache, without a thread of its own.
struct Full {
    library: crate::Cache,
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
        let builder = crate::Cache::builder().memory(ByteSize::kib(512)).max_value(ByteSize::kib(4));
        let library = builder.clock(Clock::Manual).engine(|engine| engine.evict(evicts)).build().unwrap();
        let (cache, next, holders) = (library.memcached().clone(), AtomicU32::new(0), Arc::default());
        let mut full = Self { library, cache, evicts, count: 0, next, holders };
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

    /// The number of a new key, or of a present one of a cache that keeps all.
    fn next_number(&self) -> u32 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let present = || (0..).map(|more| (number + more).wrapping_mul(7919) % self.count).find(|key| key % 10 > 0);
        if self.evicts { self.count + number } else { present().unwrap() }
    }

    fn write(&self, cache: &Cache) -> Result<(), Error> {
        self.insert(self.next_number(), cache)
    }

    fn write_as(&self, writer: Writer) -> Result<(), Error> {
        match writer {
            Writer::Thread => self.write(&self.cache),
            Writer::Task => smol::block_on(self.library.insert_async(self.next_number().to_le_bytes(), [7; 900])),
        }
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

/// Runs a write.
#[derive(Clone, Copy)]
enum Writer {
    Thread,
    Task,
}

/// Runs a write that is refused: its error, and the looks and the time until then.
fn refused(write: impl FnOnce() -> Result<(), Error> + Send) -> (Error, u32, Duration) {
    thread::scope(|scope| {
        let (started, mut looks) = (Instant::now(), 0);
        let waiting = scope.spawn(move || (write().expect_err("there is no memory"), started.elapsed()));
        while !waiting.is_finished() {
            looks += 1;
            thread::sleep(LOOK);
        }
        let (error, waited) = waiting.join().unwrap();
        (error, looks, waited)
    })
}

struct Release<'h>(&'h StoppedThreads);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

fn wait_for_jobs(evicts: bool, writer: Writer) {
    let full = Full::new(evicts);
    thread::scope(|scope| {
        let mut waiting = None;
        full.while_jobs_stop(|handle| {
            let sleeper = scope.spawn(|| full.write_as(writer));
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
    repeat_after_stalls(MAX_ATTEMPT, || wait_for_jobs(true, Writer::Thread));
}

#[test]
fn writes_wait_for_stopped_compactions() {
    repeat_after_stalls(MAX_ATTEMPT, || wait_for_jobs(false, Writer::Thread));
}

#[test]
fn tasks_wait_for_stopped_jobs() {
    for evicts in [true, false] {
        repeat_after_stalls(MAX_ATTEMPT, || wait_for_jobs(evicts, Writer::Task));
    }
}

fn refuse_beside_stopped_jobs(writer: Writer) {
    let full = Full::new(true);
    full.while_jobs_stop(|_| {
        let (error, looks, waited) = refused(|| full.write_as(writer));
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error:?}");
        assert!(waited >= BOUND && looks <= MAX_LOOKS, "refused after {waited:?}, {looks} looks");
    });
    full.cache.verify();
}

#[test]
fn a_write_is_refused_after_its_bound() {
    refuse_beside_stopped_jobs(Writer::Thread);
}

#[test]
fn a_task_is_refused_after_its_bound() {
    refuse_beside_stopped_jobs(Writer::Task);
}

/// A handle holds half of the memory, and the write needs as much.
fn refuse_while_handles_hold(writer: Writer) {
    let builder = crate::Cache::builder().memory(ByteSize::mib(1)).max_value(ByteSize::kib(512)).clock(Clock::Manual);
    let cache = builder.engine(|engine| engine.segment_size(ByteSize::kib(16))).build().unwrap();
    let long = vec![7; HELD_BYTES];
    cache.insert("held", &long).unwrap();
    let held = cache.memcached().get(b"held").hit().unwrap().to_handle().unwrap();
    let handle = cache.memcached().without_waiting();
    let waits = handle.insert(b"new", &long).apply().map(drop);
    assert_eq!(waits, Err(Error::WouldWait { reason: WaitReason::Held }));
    let write = || match writer {
        Writer::Thread => cache.insert("new", &long),
        Writer::Task => smol::block_on(cache.insert_async("new", &long)),
    };
    let (error, looks, waited) = refused(write);
    assert_eq!(error, Error::OutOfMemory { reason: WaitReason::Held.explain() });
    assert!(waited >= HELD_BOUND && looks <= MAX_HELD_LOOKS, "refused after {waited:?}, {looks} looks");
    drop(held);
    write().expect("nothing is held");
    cache.memcached().verify();
}

/// A failure is repeated where the machine may have stopped the writer alone.
#[test]
fn writes_wait_for_held_memory_within_bounds() {
    repeat_after_stalls(MAX_ATTEMPT, || refuse_while_handles_hold(Writer::Thread));
    repeat_after_stalls(MAX_ATTEMPT, || refuse_while_handles_hold(Writer::Task));
}
