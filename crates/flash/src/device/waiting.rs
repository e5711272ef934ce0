//! Rings for threads that wait on the spot for what they read.
//!
//! ```text
//! spare ring -> submit_here ... -> wait: one entry into the kernel begins what is left and sleeps -> completions -> spare ring
//! ```
//! A read then wakes one thread, the one that waits for it; by way of the serving thread it wakes two. A thread has a ring only
//! from before its reads until they are over, so there are about as many rings as threads wait at a time.
//!
//! The ring takes what its thread submits until the first wait. What completions submit goes the usual way: otherwise a thread
//! could be kept by the reads of others for as long as there are some.

use super::disk::Disk;
use super::ring::{Over, Ring};
use super::{own, stopped};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Reads of one ring at a time; more go the usual way.
const READS: usize = 32;
/// Rings of one device at a time.
const RINGS_MOST: usize = 128;

/// The rings of a device that no thread has.
#[derive(Default)]
pub(super) struct Spares(Mutex<State>);

#[derive(Default)]
struct State {
    rings: Vec<Ring>,
    /// Those that threads have.
    lent: usize,
    /// The kernel has no such rings: it is not asked again.
    has_none: bool,
}

impl Spares {
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
        if !ring.is_empty() {
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
