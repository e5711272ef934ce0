//! Rings for threads that wait on the spot for what they read.
//!
//! ```text
//! spare ring -> submit_here ... -> wait: one entry into the kernel begins what is left and sleeps -> completions -> spare ring
//! ```
//! A read then wakes one thread, the one that waits for it; by way of the serving thread it wakes two. A thread has a ring only
//! from before its reads until they are over, so there are about as many rings as threads wait at a time.
//!
//! A thread that has a processor to itself asks for its reads before it sleeps (`busy_poll.rs`). Where more threads wait than half of the processors, none does:
//! what one of them asks with is taken from another.
//!
//! The ring takes what its thread submits until the first wait. What completions submit goes the usual way: otherwise a thread
//! could be kept by the reads of others for as long as there are some.

use super::disk::Disk;
use super::ring::{Over, Ring};
use super::{Device, own, stopped};
use crate::busy_poll::{self, Contention, Rests};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Reads of one ring at a time; more go the usual way.
const READS: usize = 32;
/// Rings of one device at a time.
const RINGS_MOST: usize = 128;

/// The rings of a device that no thread has.
pub(super) struct Spares(Mutex<State>);

#[derive(Default)]
struct State {
    rings: Vec<Ring>,
    /// Those that threads have.
    lent: usize,
    /// The kernel has no such rings: it is not asked again.
    has_none: bool,
    /// As long as no more rings are lent, the threads that have them may ask.
    asking_most: usize,
    rests: Rests,
}

thread_local! {
    static CONTENTION: RefCell<Contention> = RefCell::default();
}

impl Spares {
    pub fn new(busy_poll: bool) -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let asking_most = if busy_poll { processors / 2 } else { 0 };
        Self(Mutex::new(State { asking_most, ..State::default() }))
    }

    /// Whether the calling thread, which has one of the rings, is to ask before it sleeps.
    fn asks(&self, now: Instant) -> bool {
        CONTENTION.with_borrow_mut(|contention| {
            if contention.forbids(now, busy_poll::run_delay) {
                return false;
            }
            let mut state = self.0.lock().unwrap();
            let asks = state.lent <= state.asking_most && state.rests.is_over();
            if asks {
                contention.asks();
            }
            asks
        })
    }

    fn asked(&self, came: bool) {
        self.0.lock().unwrap().rests.asked(came);
    }

    fn take(&self) -> Option<Ring> {
        let mut state = self.0.lock().unwrap();
        let ring = match state.rings.pop() {
            Some(ring) => ring,
            None if state.has_none || state.lent >= RINGS_MOST => return None,
            None => match Ring::for_waiting(READS) {
                Ok(ring) => ring,
                // Without descriptors or memory to spare, there may be some later.
                Err(error) => {
                    state.has_none = error.kind() == ErrorKind::Unsupported;
                    return None;
                }
            },
        };
        state.lent += 1;
        Some(ring)
    }

    /// None for one that is lost.
    fn give_back(&self, ring: Option<Ring>) {
        let mut state = self.0.lock().unwrap();
        state.lent -= 1;
        state.rings.extend(ring);
    }
}

/// What a thread has for reads that it begins at once and then waits for. Dropping it ends what is under way; what takes too long
/// fails.
pub struct WaitingRing {
    disk: Arc<Disk>,
    /// None as long as it takes reads: then the thread has it, see `own`.
    ring: Option<Ring>,
    /// What is over and was not told yet: here, so that a completion that panics loses no other.
    over: VecDeque<Over>,
    /// It stays on its thread.
    _thread: PhantomData<*const ()>,
}

impl WaitingRing {
    /// For the calling thread. None if it has a ring or ends, and where the system or the device has no more.
    pub(super) fn new(disk: Arc<Disk>) -> Option<Self> {
        if !own::is_free() {
            return None;
        }
        own::lend(disk.spares().take()?, Arc::clone(&disk));
        Some(Self { disk, ring: None, over: VecDeque::new(), _thread: PhantomData })
    }

    /// Begins what the thread has submitted since this was made, if that was not done; sleeps until one of the reads is over, or for so
    /// long; calls the completions of what is over. False if nothing was.
    pub fn wait(&mut self, most: Duration) -> bool {
        let ring = self.ring.get_or_insert_with(own::take_back);
        if !ring.is_empty() && !busy_poll(ring, &self.disk, most) {
            ring.enter_for(most);
        }
        ring.reap(self.disk.media(), &mut self.over);
        let is_any = !self.over.is_empty();
        self.tell();
        is_any
    }

    /// Whether nothing that it took is under way.
    pub fn is_empty(&self) -> bool {
        self.ring.as_ref().map_or_else(own::is_empty, Ring::is_empty)
    }

    fn tell(&mut self) {
        while let Some((transfer, result)) = self.over.pop_front() {
            self.disk.queue().finish(transfer, result);
        }
    }
}

/// Begins what is left and asks until one of the reads is over, for so long at most, if that is worth it. Whether one is.
fn busy_poll(ring: &mut Ring, disk: &Disk, most: Duration) -> bool {
    let begun = Instant::now();
    if !disk.spares().asks(begun) {
        return false;
    }
    ring.enter(0);
    let (came, asked) = loop {
        let (came, asked) = (ring.has_completed(), begun.elapsed());
        if came || asked > busy_poll::READ_MOST.min(most) {
            break (came, asked);
        }
        // Whoever waits for the processor has it at once; and the kernel hands completions over on the way back.
        thread::yield_now();
    };
    disk.spares().asked(came);
    disk.account().busy_polled(asked);
    came
}

impl Drop for WaitingRing {
    fn drop(&mut self) {
        let mut ring = self.ring.take().unwrap_or_else(own::take_back);
        let deadline = Instant::now() + own::END_MOST;
        while !ring.is_empty() && Instant::now() < deadline {
            ring.enter_for(own::END_MOST);
            ring.reap(self.disk.media(), &mut self.over);
        }
        if ring.is_empty() {
            self.disk.spares().give_back(Some(ring));
        } else {
            self.disk.spares().give_back(None);
            self.over.extend(ring.abandon().into_iter().map(|transfer| (transfer, Err(stopped()))));
        }
        let mut panics = own::Panics::default();
        while !panics.put_off(|| self.tell()) {}
        panics.go_on();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BLOCK, Buffer, Direction, DiskOptions, LEAST_ALONE, Outcome, Request, write};
    use super::*;
    use crate::busy_poll::LOOK;
    use std::sync::mpsc::channel;

    /// The calling thread knows that it is alone, until the next look.
    fn be_alone(now: Instant) {
        let begun = now - LOOK;
        CONTENTION.set(Contention::default());
        let forbids =
            CONTENTION.with_borrow_mut(|contention| [begun, now].map(|now| contention.forbids(now, || Duration::ZERO)));
        assert_eq!(forbids, [true, false]);
    }

    fn spares(asking_most: usize, lent: usize) -> Spares {
        Spares(Mutex::new(State { asking_most, lent, ..State::default() }))
    }

    #[test]
    fn a_thread_asks_that_is_alone_with_its_processor() {
        let now = Instant::now();
        let spares = spares(1, 1);
        assert!(!spares.asks(now), "it does not know");
        be_alone(now);
        assert!(spares.asks(now));
        spares.asked(false);
        assert!(!spares.asks(now), "it rests");
        assert!(spares.asks(now));
    }

    #[test]
    fn no_thread_asks_where_more_wait_than_processors_are_to_spare() {
        let now = Instant::now();
        be_alone(now);
        assert!(spares(2, 2).asks(now));
        assert!(!spares(2, 3).asks(now));
        for busy_poll in [false, true] {
            let spares = Spares::new(busy_poll);
            let processors = thread::available_parallelism().unwrap().get();
            assert_eq!(spares.0.lock().unwrap().asking_most, if busy_poll { processors / 2 } else { 0 });
        }
    }

    /// Reads what was written as the only thread that waits; the time that was asked until then. None where threads have no rings.
    fn read_alone(disk: &Arc<Disk>, asking_most: usize) -> Option<Duration> {
        disk.spares().0.lock().unwrap().asking_most = asking_most;
        be_alone(Instant::now());
        let mut ring = WaitingRing::new(Arc::clone(disk))?;
        let (sender, over) = channel();
        let done = Box::new(move |outcome: Outcome| sender.send(outcome).unwrap());
        let request = Request { direction: Direction::Read, offset: 0, buffer: Buffer::zeroed(BLOCK), done };
        assert!(disk.submit_here(request).is_ok());
        while !ring.wait(Duration::from_secs(1)) {}
        let outcome = over.recv().unwrap();
        outcome.result.unwrap();
        assert!(outcome.buffer.iter().all(|&byte| byte == 7));
        Some(disk.account().stats().busy_poll)
    }

    #[test]
    fn what_is_asked_for_is_found_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let disk = Arc::new(Disk::open(&[(path, LEAST_ALONE)], &DiskOptions::default()).unwrap().disk);
        let [sleeping, asking] = thread::scope(|scope| {
            (0..disk.threads()).for_each(|_| _ = scope.spawn(|| disk.serve()));
            let mut block = Buffer::zeroed(BLOCK);
            block.fill(7);
            write(&*disk, 0, block).unwrap();
            let read = scope.spawn(|| [0, 1].map(|asking_most| read_alone(&disk, asking_most))).join();
            disk.stop();
            read.unwrap()
        });
        if let (Some(sleeping), Some(asking)) = (sleeping, asking) {
            assert_eq!(sleeping, Duration::ZERO);
            assert!(asking > Duration::ZERO);
        }
    }
}
