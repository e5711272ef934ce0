//! Rings for threads that wait for their own reads.
//!
//! ```text
//! spare ring -> submit_local .. -> wait: one system call submits the rest and sleeps -> completions -> spare ring
//! ```
//! A read then wakes one thread, the one that waits for it; by way of the serving thread it wakes two. A thread has a
//! ring only from before its reads until they are over, so there are about as many rings as threads wait at a time.
//!
//! A thread that has a processor to itself polls for its reads before it sleeps (`busy_poll.rs`). If more threads of
//! the process wait than half of the processors, none polls: a polling thread would take the processor from another.
//!
//! The ring takes the reads that its thread submits until the first wait. Reads that completions submit go to the
//! queue: otherwise the reads of other threads could keep a thread waiting without end.

use super::disk::Disk;
use super::uring::{Finished, UringQueue};
use super::{Device, stopped, thread_ring};
use crate::busy_poll::{self, Contention, PollBackoff};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of reads in one ring; more go to the queue.
const MAX_READS_PER_WAIT: usize = 32;
/// Maximum number of rings of one device.
const MAX_RINGS: usize = 128;

/// The spare rings of a device.
pub(super) struct RingPool(Mutex<State>);

#[derive(Default)]
struct State {
    rings: Vec<UringQueue>,
    /// Number of rings that threads have.
    in_use: usize,
    /// The kernel does not support these rings: no more are created.
    is_unsupported: bool,
    /// Maximum number of waiting threads that may poll.
    max_polling_threads: usize,
    backoff: PollBackoff,
}

/// Number of threads of the process that have rings, of all devices.
static WAITING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static CONTENTION: RefCell<Contention> = RefCell::default();
}

impl RingPool {
    pub fn new(busy_poll: bool) -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let max_polling_threads = if busy_poll { processors / 2 } else { 0 };
        Self(Mutex::new(State { max_polling_threads, ..State::default() }))
    }

    /// Whether the calling thread, which has one of the rings, may poll before it sleeps.
    fn may_poll(&self, now: Instant) -> bool {
        CONTENTION.with_borrow_mut(|contention| {
            if contention.forbids(now, busy_poll::run_delay) {
                return false;
            }
            let mut state = self.0.lock().unwrap();
            let may_poll = WAITING.load(Relaxed) <= state.max_polling_threads && state.backoff.may_poll();
            if may_poll {
                contention.record_polling();
            }
            may_poll
        })
    }

    fn record_poll(&self, was_answered: bool) {
        self.0.lock().unwrap().backoff.record_poll(was_answered);
    }

    fn take(&self) -> Option<UringQueue> {
        let mut state = self.0.lock().unwrap();
        let ring = match state.rings.pop() {
            Some(ring) => ring,
            None if state.is_unsupported || state.in_use >= MAX_RINGS => return None,
            None => match UringQueue::blocking(MAX_READS_PER_WAIT) {
                Ok(ring) => ring,
                // Without descriptors or memory to spare, there may be some later.
                Err(error) => {
                    state.is_unsupported = error.kind() == ErrorKind::Unsupported;
                    return None;
                }
            },
        };
        state.in_use += 1;
        WAITING.fetch_add(1, Relaxed);
        Some(ring)
    }

    /// Takes a ring back; `None` for a lost one.
    fn give_back(&self, ring: Option<UringQueue>) {
        let mut state = self.0.lock().unwrap();
        state.in_use -= 1;
        WAITING.fetch_sub(1, Relaxed);
        state.rings.extend(ring);
    }
}

/// A ring for reads that a thread submits and then waits for. Dropping it completes pending reads; reads that take too
/// long fail.
pub struct BlockingRing {
    disk: Arc<Disk>,
    /// `None` while it takes reads: then the thread-local of `thread_ring` has it.
    ring: Option<UringQueue>,
    /// Finished transfers whose completions have not been called. They are kept here, so that a completion that panics
    /// loses no other.
    finished: VecDeque<Finished>,
    /// It stays on its thread.
    _thread: PhantomData<*const ()>,
}

impl BlockingRing {
    /// A ring for the calling thread. `None` if the thread has a ring or is ending, or if the system or the device has
    /// no more rings.
    pub(super) fn new(disk: Arc<Disk>) -> Option<Self> {
        if !thread_ring::is_free() {
            return None;
        }
        thread_ring::install(disk.ring_pool().take()?, Arc::clone(&disk));
        Some(Self { disk, ring: None, finished: VecDeque::new(), _thread: PhantomData })
    }

    /// Submits the reads that are not submitted yet; sleeps until one of them is complete, or for `max`; calls the
    /// completions of complete ones. False if none was.
    pub fn wait(&mut self, max: Duration) -> bool {
        let ring = self.ring.get_or_insert_with(thread_ring::uninstall);
        if !ring.is_empty() && !busy_poll(ring, &self.disk, max) {
            ring.enter_for(max);
        }
        ring.reap(self.disk.path_set(), &mut self.finished);
        let is_any = !self.finished.is_empty();
        self.run_completions();
        is_any
    }

    /// Whether none of its reads is pending.
    pub fn is_empty(&self) -> bool {
        self.ring.as_ref().map_or_else(thread_ring::is_empty, UringQueue::is_empty)
    }

    fn run_completions(&mut self) {
        while let Some((transfer, result)) = self.finished.pop_front() {
            self.disk.queue().finish(transfer, result);
        }
    }
}

/// Submits the remaining reads and polls until one of them is complete, for at most `max`, if polling is worthwhile.
/// Returns whether one is.
fn busy_poll(ring: &mut UringQueue, disk: &Disk, max: Duration) -> bool {
    let started = Instant::now();
    if !disk.ring_pool().may_poll(started) {
        return false;
    }
    ring.enter(0);
    let (was_answered, asked) = loop {
        let (was_answered, asked) = (ring.has_completed(), started.elapsed());
        if was_answered || asked > busy_poll::MAX_READ_POLL.min(max) {
            break (was_answered, asked);
        }
        // A thread that waits for the processor has it at once; and the kernel hands completions over on the way back.
        thread::yield_now();
    };
    disk.ring_pool().record_poll(was_answered);
    disk.monitor().busy_polled(asked);
    was_answered
}

impl Drop for BlockingRing {
    fn drop(&mut self) {
        let mut ring = self.ring.take().unwrap_or_else(thread_ring::uninstall);
        let deadline = Instant::now() + thread_ring::MAX_END;
        while !ring.is_empty() && Instant::now() < deadline {
            ring.enter_for(thread_ring::MAX_END);
            ring.reap(self.disk.path_set(), &mut self.finished);
        }
        if ring.is_empty() {
            self.disk.ring_pool().give_back(Some(ring));
        } else {
            self.disk.ring_pool().give_back(None);
            self.finished.extend(ring.abandon().into_iter().map(|transfer| (transfer, Err(stopped()))));
        }
        let mut panic = thread_ring::DeferredPanic::default();
        while !panic.run(|| self.run_completions()) {}
        panic.resume();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        BLOCK, Buffer, Direction, DiskOptions, MIN_SINGLE_PATH_BYTES, TransferOutcome, TransferRequest,
    };
    use super::*;
    use crate::busy_poll::{MAX_READ_POLL, SAMPLE_INTERVAL};
    use ebbtide_testkit::repeat_after_stalls;
    use std::io::{PipeWriter, pipe};
    use std::mem;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::sync::mpsc::channel;
    use tempfile::TempDir;

    /// The calling thread knows that it is alone, until the next look.
    fn be_alone(now: Instant) {
        let started = now - SAMPLE_INTERVAL;
        CONTENTION.set(Contention::default());
        let forbids = CONTENTION
            .with_borrow_mut(|contention| [started, now].map(|now| contention.forbids(now, || Some(Duration::ZERO))));
        assert_eq!(forbids, [true, false]);
    }

    /// Other tests may wait for reads of theirs.
    const ALL: usize = 1000;

    fn ring_pool(max_polling_threads: usize) -> RingPool {
        RingPool(Mutex::new(State { max_polling_threads, ..State::default() }))
    }

    #[test]
    fn a_thread_alone_on_its_processor_polls() {
        let now = Instant::now();
        let ring_pool = ring_pool(ALL);
        assert!(!ring_pool.may_poll(now), "it does not know");
        be_alone(now);
        assert!(ring_pool.may_poll(now));
        ring_pool.record_poll(false);
        assert!(!ring_pool.may_poll(now), "it rests");
        assert!(ring_pool.may_poll(now));
    }

    #[test]
    fn polling_threads_are_limited_to_half_the_processors() {
        let now = Instant::now();
        be_alone(now);
        for busy_poll in [false, true] {
            let max_polling_threads = RingPool::new(busy_poll).0.into_inner().unwrap().max_polling_threads;
            let processors = thread::available_parallelism().unwrap().get();
            assert_eq!(max_polling_threads, if busy_poll { processors / 2 } else { 0 });
        }
        let one_waits = ring_pool(ALL);
        let Some(ring) = one_waits.take() else { return };
        assert!(!ring_pool(0).may_poll(now) && ring_pool(ALL).may_poll(now));
        one_waits.give_back(Some(ring));
    }

    fn open(folder: &TempDir) -> Arc<Disk> {
        let paths = [(folder.path().join("disk"), MIN_SINGLE_PATH_BYTES)];
        Arc::new(Disk::open(&paths, &DiskOptions::default()).unwrap().disk)
    }

    fn submit(disk: &Disk, done: impl FnOnce(TransferOutcome) + Send + 'static) {
        let (buffer, done) = (Buffer::zeroed(BLOCK), Box::new(done));
        assert!(disk.submit_local(TransferRequest { direction: Direction::Read, offset: 0, buffer, done }).is_ok());
    }

    /// Has the next wait of this thread ask, if it is not the rest of an earlier one.
    fn allow(disk: &Disk) {
        disk.ring_pool().0.lock().unwrap().max_polling_threads = ALL;
        be_alone(Instant::now());
    }

    #[test]
    fn polling_finds_completions_without_sleeping() {
        // A thread's measurement of its processor expires after `SAMPLE_INTERVAL`.
        repeat_after_stalls(SAMPLE_INTERVAL / 2, finds_what_comes_while_it_asks);
    }

    fn finds_what_comes_while_it_asks() {
        let folder = tempfile::tempdir().unwrap();
        let disk = open(&folder);
        let asked = || disk.monitor().stats().busy_poll;
        let (mut found, mut finished) = (0, 0);
        for _ in 0..200 {
            let Some(mut ring) = BlockingRing::new(Arc::clone(&disk)) else { return };
            allow(&disk);
            disk.ring_pool().0.lock().unwrap().backoff = PollBackoff::default();
            let (sender, told) = channel();
            submit(&disk, move |outcome| sender.send(outcome.result.is_ok()).unwrap());
            let before = asked();
            found += u32::from(busy_poll(
                ring.ring.get_or_insert_with(thread_ring::uninstall),
                &disk,
                Duration::from_secs(1),
            ));
            assert!(asked() > before);
            while !ring.is_empty() {
                finished += u32::from(ring.wait(Duration::from_secs(1)));
            }
            assert_eq!(told.try_recv(), Ok(true));
        }
        assert_eq!(finished, 200);
        // A slower disk is never done while a wait asks.
        let fastest = disk.monitor().stats().reads.latencies.percentile(1.0);
        let is_slow = fastest.is_none_or(|latency| latency > MAX_READ_POLL);
        assert!(found > 0 || is_slow, "nothing comes in time, or it is not seen");
    }

    #[test]
    fn a_wait_asks_only_where_it_may() {
        repeat_after_stalls(SAMPLE_INTERVAL / 2, asks_only_where_it_may);
    }

    fn asks_only_where_it_may() {
        let folder = tempfile::tempdir().unwrap();
        let disk = open(&folder);
        disk.ring_pool().0.lock().unwrap().max_polling_threads = 0;
        let wait = || {
            let mut ring = BlockingRing::new(Arc::clone(&disk))?;
            submit(&disk, |outcome| outcome.result.unwrap());
            be_alone(Instant::now());
            while !ring.is_empty() {
                ring.wait(Duration::from_secs(1));
            }
            Some(disk.monitor().stats().busy_poll)
        };
        let Some(sleeping) = wait() else { return };
        assert_eq!(sleeping, Duration::ZERO);
        allow(&disk);
        assert!(wait().unwrap() > Duration::ZERO);
    }

    /// Makes reads hang until the returned pipe is dropped.
    fn hang(disk: &Disk) -> PipeWriter {
        let (hung, never_written) = pipe().unwrap();
        // SAFETY: the disk keeps it open, and it is not closed here.
        #[allow(unsafe_code)]
        let mut file = unsafe { OwnedFd::from_raw_fd(disk.path_set().parts[0].file.as_raw_fd()) };
        rustix::io::dup2(&hung, &mut file).unwrap();
        mem::forget(file);
        never_written
    }

    #[test]
    fn a_hanging_read_is_polled_ever_more_rarely() {
        // Twenty waits of 20 ms each, none of which is late by much.
        repeat_after_stalls(Duration::from_millis(600), asks_shortly_for_a_read_that_hangs);
    }

    /// Time for which the calling thread has had a processor.
    fn thread_time() -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    fn asks_shortly_for_a_read_that_hangs() {
        let folder = tempfile::tempdir().unwrap();
        let disk = open(&folder);
        let Some(mut ring) = BlockingRing::new(Arc::clone(&disk)) else { return };
        let hung = hang(&disk);
        submit(&disk, |_| ());
        let may_poll = |_: &u32| {
            allow(&disk);
            let (started, before, max) = (Instant::now(), disk.monitor().stats().busy_poll, Duration::from_millis(20));
            let worked = thread_time();
            assert!(!ring.wait(max));
            assert!(started.elapsed() >= max, "it does not sleep");
            // Time of the processor: others may want it meanwhile, and the wait takes longer.
            let worked = thread_time() - worked;
            assert!(worked < Duration::from_millis(15), "{worked:?}");
            disk.monitor().stats().busy_poll > before
        };
        assert_eq!((0..20).filter(may_poll).collect::<Vec<_>>(), [0, 2, 7]);
        drop(hung);
    }
}
