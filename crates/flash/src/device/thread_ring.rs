//! A ring of a thread's own, for a thread that reads a lot and never waits for a device.
//!
//! ```text
//! submit_here -> the thread's ring -> kernel, at each third read; the rest in `turn`       the thread does other work
//!                                        |
//!            completion <- turn <- the eventfd is readable
//! ```
//! A read then wakes one thread, once; by way of the serving thread it wakes two, that one twice. The reads count in
//! the device's queue like all others, so the same bound holds for all together.
//!
//! The ring belongs to its thread as a thread-local, so that reads find it wherever they are submitted. Completions run
//! in `turn` with the ring free to take more.

use super::disk::Disk;
use super::stopped;
use super::transfer::Transfer;
use super::uring::{Finished, UringQueue};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How long the end of a ring waits for what is under way, and how often it looks.
pub(super) const MAX_END: Duration = Duration::from_secs(1);
const END_STEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// So many reads that the kernel does not know yet are submitted: the device begins with them while the thread goes on.
/// From three on the kernel gathers them and rings at the device once, in place of each time: on a virtual machine that
/// is dear.
const SUBMITTED_AT: usize = 3;
/// So many the kernel hands over at once at most.
const HANDED_OVER: usize = 20;

thread_local! {
    static LOCAL_RING: RefCell<Option<LocalRing>> = const { RefCell::new(None) };
}

struct LocalRing {
    // Before the disk, whose files it uses.
    ring: UringQueue,
    disk: Arc<Disk>,
    /// What is over and was not told yet: here, so that a completion that panics loses no other.
    finished: VecDeque<Finished>,
}

/// What a thread has for reads of a device that it moves itself. Dropping it ends what is under way; what takes too
/// long fails.
pub struct ThreadRing {
    event: OwnedFd,
    /// It stays on its thread.
    _thread: PhantomData<*const ()>,
}

impl ThreadRing {
    /// For the calling thread. None if it has one, or the kernel has none that leaves its thread alone (before 6.1).
    pub(super) fn new(disk: Arc<Disk>) -> Option<Self> {
        if !is_free() {
            return None;
        }
        let event = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).ok()?;
        install(UringQueue::with_event(disk.queue().depth(), event.as_fd()).ok()?, disk);
        Some(Self { event, _thread: PhantomData })
    }

    /// Whether the thread has submitted something that the kernel does not know yet.
    pub fn has_completions(&self) -> bool {
        LOCAL_RING.with_borrow_mut(|local| local.as_mut().is_some_and(|local| local.ring.unsubmitted() > 0))
    }

    /// Whether a read is under way.
    pub fn is_reading(&self) -> bool {
        !is_empty()
    }

    /// Whether [`ThreadRing::turn`] has something to do. Does not enter the kernel.
    pub fn is_due(&self) -> bool {
        LOCAL_RING.with_borrow_mut(|local| {
            local.as_mut().is_some_and(|local| local.ring.is_due() || local.ring.has_completed())
        })
    }

    /// Submits what is new, and calls the completions of what is over. Whether anything was. Does not wait. To be
    /// called when [`ThreadRing::has_completions`] before the thread sleeps, and after its file descriptor was written
    /// to.
    pub fn turn(&self) -> bool {
        let mut was_over = false;
        let depth =
            LOCAL_RING.with_borrow(|local| local.as_ref().expect("it lasts as long as this").disk.queue().depth());
        while_due(depth / HANDED_OVER + 1, || {
            let (disk, is_vain) = LOCAL_RING.with_borrow_mut(|local| {
                let LocalRing { ring, disk, finished } = local.as_mut().expect("it lasts as long as this");
                if ring.is_due() {
                    ring.enter(0);
                }
                // What it could not submit is tried again.
                let is_vain = !ring.has_completed() && ring.unsubmitted() == 0;
                ring.reap(disk.path_set(), finished);
                (Arc::clone(disk), is_vain)
            });
            let next = || LOCAL_RING.with_borrow_mut(|local| local.as_mut()?.finished.pop_front());
            while let Some((transfer, result)) = next() {
                was_over = true;
                disk.queue().finish(transfer, result);
            }
            Entry { is_vain, is_due: self.is_due() }
        });
        was_over
    }
}

/// What came of an entry into the kernel.
struct Entry {
    /// It completed nothing, though it could.
    is_vain: bool,
    /// Whether the kernel says that there is more.
    is_due: bool,
}

/// Enters until nothing is due: the kernel does not tell again of what it has not handed over. Or until so many entries
/// in a row have completed nothing: it also says that something is due when nothing is. Another processor puts work
/// where the thread takes it, and marks the ring afterwards; a mark that comes after the work was done stays until
/// there is some again.
fn while_due(max_vain: usize, mut enter: impl FnMut() -> Entry) {
    let mut vain = 0;
    loop {
        let Entry { is_vain, is_due } = enter();
        vain = if is_vain { vain + 1 } else { 0 };
        if !is_due || vain > max_vain {
            return;
        }
    }
}

impl AsFd for ThreadRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl AsRawFd for ThreadRing {
    /// An eventfd that is written to when [`ThreadRing::turn`] has something to do. It need not be read by who is told
    /// of each write.
    fn as_raw_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}

impl Drop for ThreadRing {
    fn drop(&mut self) {
        let deadline = Instant::now() + MAX_END;
        let mut panic = DeferredPanic::default();
        let turn = |panic: &mut DeferredPanic| while !panic.run(|| self.turn()) {};
        turn(&mut panic);
        while !is_empty() && Instant::now() < deadline {
            // A wait that fails is a short one.
            let _ = rustix::event::poll(&mut [PollFd::new(&self.event, PollFlags::IN)], Some(&END_STEP));
            turn(&mut panic);
        }
        let Some(mut local) = LOCAL_RING.with_borrow_mut(Option::take) else { return };
        for transfer in local.ring.abandon() {
            panic.run(|| local.disk.queue().finish(transfer, Err(stopped())));
        }
        panic.resume();
    }
}

/// Panics of completions that are called when a ring ends: each would lose the others, and the process if the thread
/// panics already.
#[derive(Default)]
pub(super) struct DeferredPanic(Option<Box<dyn Any + Send>>);

impl DeferredPanic {
    /// Whether nothing panicked.
    pub fn run<T>(&mut self, work: impl FnOnce() -> T) -> bool {
        // What a completion leaves behind when it panics is its own affair.
        let panic = catch_unwind(AssertUnwindSafe(work)).err();
        let is_well = panic.is_none();
        self.0 = self.0.take().or(panic);
        is_well
    }

    /// Goes on with the first one, unless the thread has another.
    pub fn resume(self) {
        if let Some(panic) = self.0.filter(|_| !thread::panicking()) {
            resume_unwind(panic);
        }
    }
}

/// Whether the calling thread can take a ring: it has none, and does not end, as in the destructor of another
/// thread-local.
pub(super) fn is_free() -> bool {
    LOCAL_RING.try_with(|local| local.borrow().is_none()).unwrap_or(false)
}

/// Whether the calling thread has a ring for this disk.
pub(super) fn is_of(disk: &Disk) -> bool {
    has(|local| std::ptr::eq(&*local.disk, disk))
}

/// The same, with room for one more.
pub(super) fn takes(disk: &Disk) -> bool {
    has(|local| std::ptr::eq(&*local.disk, disk) && local.ring.has_space())
}

fn has(what: impl FnOnce(&LocalRing) -> bool) -> bool {
    LOCAL_RING.try_with(|local| local.borrow().as_ref().is_some_and(what)).unwrap_or(false)
}

/// Whether nothing is under way in the calling thread's ring.
pub(super) fn is_empty() -> bool {
    LOCAL_RING.with_borrow(|local| local.as_ref().is_none_or(|local| local.ring.is_empty()))
}

/// Gives the calling thread, which is free, a ring.
pub(super) fn install(ring: UringQueue, disk: Arc<Disk>) {
    LOCAL_RING.set(Some(LocalRing { ring, disk, finished: VecDeque::new() }));
}

/// Takes the ring of the calling thread, which has one that was lent.
pub(super) fn uninstall() -> UringQueue {
    LOCAL_RING.take().expect("it was lent one").ring
}

/// Has the calling thread's ring, which there is, take a transfer.
pub(super) fn add(transfer: Transfer) {
    LOCAL_RING.with_borrow_mut(|local| {
        let local = local.as_mut().expect("there is one");
        local.ring.add(transfer, local.disk.path_set());
        // More of them are left to a turn: the kernel had no memory for them.
        if local.ring.unsubmitted() == SUBMITTED_AT {
            local.ring.enter(0);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_enters_while_something_comes_of_it_and_not_for_ever_when_nothing_does() {
        let entries = |max_vain, is_vain: &dyn Fn(usize) -> bool, due: usize| {
            let mut count = 0;
            while_due(max_vain, || {
                count += 1;
                assert!(count < 1000, "it goes on for ever");
                Entry { is_vain: is_vain(count), is_due: count < due }
            });
            count
        };
        assert_eq!(entries(13, &|_| false, 100), 100, "until nothing is due");
        assert_eq!(entries(13, &|count| count % 13 != 0, 100), 100);
        assert_eq!(entries(13, &|_| true, usize::MAX), 14, "the mark stays though nothing is due");
        assert_eq!(entries(13, &|count| count > 50, usize::MAX), 50 + 14);
        assert_eq!(entries(0, &|_| true, 1), 1);
    }
}
