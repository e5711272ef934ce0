//! Rings for threads that wait on the spot for what they read.
//!
//! ```text
//! spare ring -> submit_here ... -> wait: one entry into the kernel begins what is left and sleeps -> completions -> spare ring
//! ```
//! A read then wakes one thread, the one that waits for it; by way of the serving thread it wakes two. A thread has a ring only
//! from before its reads until they are over, so there are about as many rings as threads wait at a time.
//!
//! A thread that has a processor to itself asks for its reads before it sleeps (`busy_poll.rs`). Where more threads of the process wait than half of the
//! processors, none does: what one of them asks with is taken from another.
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
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
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
    /// As long as no more threads wait, they may ask.
    asking_most: usize,
    rests: Rests,
}

/// Threads of the process that have rings, of all devices.
static WAITING: AtomicUsize = AtomicUsize::new(0);

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
            let asks = WAITING.load(Relaxed) <= state.asking_most && state.rests.let_ask();
            if asks {
                contention.note_asking();
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
        WAITING.fetch_add(1, Relaxed);
        Some(ring)
    }

    /// None for one that is lost.
    fn give_back(&self, ring: Option<Ring>) {
        let mut state = self.0.lock().unwrap();
        state.lent -= 1;
        WAITING.fetch_sub(1, Relaxed);
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
    use super::super::{BLOCK, Buffer, Direction, DiskOptions, LEAST_ALONE, Outcome, Request};
    use super::*;
    use crate::busy_poll::LOOK;
    use std::io::{PipeWriter, pipe};
    use std::mem;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::sync::mpsc::channel;
    use tempfile::TempDir;

    /// The calling thread knows that it is alone, until the next look.
    fn be_alone(now: Instant) {
        let begun = now - LOOK;
        CONTENTION.set(Contention::default());
        let forbids = CONTENTION
            .with_borrow_mut(|contention| [begun, now].map(|now| contention.forbids(now, || Some(Duration::ZERO))));
        assert_eq!(forbids, [true, false]);
    }

    /// Other tests may wait for reads of theirs.
    const ALL: usize = 1000;

    fn spares(asking_most: usize) -> Spares {
        Spares(Mutex::new(State { asking_most, ..State::default() }))
    }

    #[test]
    fn a_thread_asks_that_is_alone_with_its_processor() {
        let now = Instant::now();
        let spares = spares(ALL);
        assert!(!spares.asks(now), "it does not know");
        be_alone(now);
        assert!(spares.asks(now));
        spares.asked(false);
        assert!(!spares.asks(now), "it rests");
        assert!(spares.asks(now));
    }

    #[test]
    fn no_thread_asks_where_more_wait_than_half_of_the_processors_for_whatever_device() {
        let now = Instant::now();
        be_alone(now);
        for busy_poll in [false, true] {
            let asking_most = Spares::new(busy_poll).0.into_inner().unwrap().asking_most;
            let processors = thread::available_parallelism().unwrap().get();
            assert_eq!(asking_most, if busy_poll { processors / 2 } else { 0 });
        }
        let one_waits = spares(ALL);
        let Some(ring) = one_waits.take() else { return };
        assert!(!spares(0).asks(now) && spares(ALL).asks(now));
        one_waits.give_back(Some(ring));
    }

    fn open(folder: &TempDir) -> Arc<Disk> {
        let paths = [(folder.path().join("disk"), LEAST_ALONE)];
        Arc::new(Disk::open(&paths, &DiskOptions::default()).unwrap().disk)
    }

    fn submit(disk: &Disk, done: impl FnOnce(Outcome) + Send + 'static) {
        let (buffer, done) = (Buffer::zeroed(BLOCK), Box::new(done));
        assert!(disk.submit_here(Request { direction: Direction::Read, offset: 0, buffer, done }).is_ok());
    }

    /// Has the next wait of this thread ask, if it is not the rest of an earlier one.
    fn allow(disk: &Disk) {
        disk.spares().0.lock().unwrap().asking_most = ALL;
        be_alone(Instant::now());
    }

    #[test]
    fn what_comes_while_it_asks_is_found_without_sleeping_and_its_time_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let disk = open(&folder);
        let asked = || disk.account().stats().busy_poll;
        let (mut found, mut over) = (0, 0);
        for _ in 0..200 {
            let Some(mut ring) = WaitingRing::new(Arc::clone(&disk)) else { return };
            allow(&disk);
            disk.spares().0.lock().unwrap().rests = Rests::default();
            let (sender, told) = channel();
            submit(&disk, move |outcome| sender.send(outcome.result.is_ok()).unwrap());
            let before = asked();
            found += u32::from(busy_poll(ring.ring.get_or_insert_with(own::take_back), &disk, Duration::from_secs(1)));
            assert!(asked() > before);
            while !ring.is_empty() {
                over += u32::from(ring.wait(Duration::from_secs(1)));
            }
            assert_eq!(told.try_recv(), Ok(true));
        }
        assert_eq!(over, 200);
        assert!(found > 0, "nothing comes in time, or it is not seen");
    }

    #[test]
    fn a_wait_asks_only_where_it_may() {
        let folder = tempfile::tempdir().unwrap();
        let disk = open(&folder);
        disk.spares().0.lock().unwrap().asking_most = 0;
        let wait = || {
            let mut ring = WaitingRing::new(Arc::clone(&disk))?;
            submit(&disk, |outcome| outcome.result.unwrap());
            be_alone(Instant::now());
            while !ring.is_empty() {
                ring.wait(Duration::from_secs(1));
            }
            Some(disk.account().stats().busy_poll)
        };
        let Some(sleeping) = wait() else { return };
        assert_eq!(sleeping, Duration::ZERO);
        allow(&disk);
        assert!(wait().unwrap() > Duration::ZERO);
    }

    /// Has reads hang for as long as what is returned lives.
    fn hang(disk: &Disk) -> PipeWriter {
        let (hung, never_written) = pipe().unwrap();
        // SAFETY: the disk keeps it open, and it is not closed here.
        #[allow(unsafe_code)]
        let mut file = unsafe { OwnedFd::from_raw_fd(disk.media().parts[0].file.as_raw_fd()) };
        rustix::io::dup2(&hung, &mut file).unwrap();
        mem::forget(file);
        never_written
    }

    #[test]
    fn a_read_that_hangs_is_asked_for_shortly_and_more_and_more_rarely() {
        let folder = tempfile::tempdir().unwrap();
        let disk = open(&folder);
        let Some(mut ring) = WaitingRing::new(Arc::clone(&disk)) else { return };
        let hung = hang(&disk);
        submit(&disk, |_| ());
        let asks = |_: &u32| {
            allow(&disk);
            let (begun, before, most) = (Instant::now(), disk.account().stats().busy_poll, Duration::from_millis(20));
            assert!(!ring.wait(most));
            assert!(begun.elapsed() >= most, "it does not sleep");
            let asked = disk.account().stats().busy_poll - before;
            // Much more than 200 us, as others may want the processor.
            assert!(asked < Duration::from_millis(15), "{asked:?}");
            asked > Duration::ZERO
        };
        assert_eq!((0..20).filter(asks).collect::<Vec<_>>(), [0, 2, 7]);
        drop(hung);
    }
}
