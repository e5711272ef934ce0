//! A ring of a thread's own, for a thread that reads a lot and never waits for a device.
//!
//! ```text
//! submit_local -> thread's ring -> kernel, at each third read; the rest in `turn`       the thread does other work
//!                                        |
//!            completion <- turn <- the eventfd is readable
//! ```
//! A read then wakes one thread, once; by way of the serving thread it wakes two, that one twice. The reads count in
//! the device's queue like all others, so the same bound holds for all together.
//!
//! The ring is a thread-local of its thread, so reads find it wherever they are submitted. Completions run in `turn`,
//! while the ring can take more reads.

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

/// Maximum wait at the end of a ring for its pending reads. `END_STEP`: the time between two checks.
pub(super) const MAX_END: Duration = Duration::from_secs(1);
const END_STEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// Number of unsubmitted reads at which they are submitted: the device starts them while the thread continues. From
/// three on the kernel notifies the device once for all of them instead of once for each, and a notification is
/// expensive on a virtual machine.
const SUBMITTED_AT: usize = 3;
/// Maximum number of completions that the kernel hands over at once.
const HANDED_OVER: usize = 20;

thread_local! {
    static LOCAL_RING: RefCell<Option<LocalRing>> = const { RefCell::new(None) };
}

struct LocalRing {
    // Before the disk, whose files it uses.
    ring: UringQueue,
    disk: Arc<Disk>,
    /// Finished transfers whose completions have not been called. They are kept here, so that a completion that panics
    /// loses no other.
    finished: VecDeque<Finished>,
}

/// A ring for the reads of one thread. Dropping it completes pending reads; reads that take too long fail.
pub struct ThreadRing {
    event: OwnedFd,
    /// It stays on its thread.
    _thread: PhantomData<*const ()>,
}

impl ThreadRing {
    /// A ring for the calling thread. `None` if the thread has one, or the kernel (before 6.1) has no ring that does
    /// not interrupt its thread.
    pub(super) fn new(disk: Arc<Disk>) -> Option<Self> {
        if !is_free() {
            return None;
        }
        let event = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).ok()?;
        install(UringQueue::with_event(disk.queue().depth(), event.as_fd()).ok()?, disk);
        Some(Self { event, _thread: PhantomData })
    }

    /// Whether the thread has reads that are not submitted to the kernel yet.
    pub fn has_completions(&self) -> bool {
        LOCAL_RING.with_borrow_mut(|local| local.as_mut().is_some_and(|local| local.ring.unsubmitted() > 0))
    }

    /// Whether a read is pending.
    pub fn is_reading(&self) -> bool {
        !is_empty()
    }

    /// Whether [`ThreadRing::turn`] has something to do. Does not enter the kernel.
    pub fn is_due(&self) -> bool {
        LOCAL_RING.with_borrow_mut(|local| {
            local.as_mut().is_some_and(|local| local.ring.is_due() || local.ring.has_completed())
        })
    }

    /// Submits new reads, and calls the completions of finished ones. Returns whether there were any. Does not wait.
    /// Call it before the thread sleeps if [`ThreadRing::has_completions`], and after its file descriptor became
    /// readable.
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
                // Reads that could not be submitted are tried again.
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

/// The result of an entry into the kernel.
struct Entry {
    /// It completed nothing, though it could.
    is_vain: bool,
    /// Whether the kernel says that there is more.
    is_due: bool,
}

/// Enters the kernel until nothing is due: it does not notify again of completions that it has not handed over. Stops
/// after `max_vain` entries in a row without a completion, since the kernel may also report work when there is none:
/// another processor queues work and marks the ring afterwards, and a mark that arrives after the work was done stays
/// until there is new work.
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
    /// An eventfd that is written to when [`ThreadRing::turn`] has something to do. A caller with edge-triggered
    /// notification need not read it.
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
            // A failed wait counts as a short one.
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

/// Panics of completions that are called at the end of a ring. A panic at once would lose the other completions, and
/// abort the process if the thread is already panicking.
#[derive(Default)]
pub(super) struct DeferredPanic(Option<Box<dyn Any + Send>>);

impl DeferredPanic {
    /// Whether nothing panicked.
    pub fn run<T>(&mut self, work: impl FnOnce() -> T) -> bool {
        // A completion that panics is responsible for its own state.
        let panic = catch_unwind(AssertUnwindSafe(work)).err();
        let is_well = panic.is_none();
        self.0 = self.0.take().or(panic);
        is_well
    }

    /// Resumes the first panic, unless the thread is already panicking.
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

/// Whether the calling thread has a ring for this disk, with space for one more transfer.
pub(super) fn takes(disk: &Disk) -> bool {
    has(|local| std::ptr::eq(&*local.disk, disk) && local.ring.has_space())
}

fn has(what: impl FnOnce(&LocalRing) -> bool) -> bool {
    LOCAL_RING.try_with(|local| local.borrow().as_ref().is_some_and(what)).unwrap_or(false)
}

/// Whether the calling thread's ring has no pending transfer.
pub(super) fn is_empty() -> bool {
    LOCAL_RING.with_borrow(|local| local.as_ref().is_none_or(|local| local.ring.is_empty()))
}

/// Gives a ring to the calling thread, which must have none.
pub(super) fn install(ring: UringQueue, disk: Arc<Disk>) {
    LOCAL_RING.set(Some(LocalRing { ring, disk, finished: VecDeque::new() }));
}

/// Takes the ring of the calling thread, which must have one.
pub(super) fn uninstall() -> UringQueue {
    LOCAL_RING.take().expect("it was lent one").ring
}

/// Adds a transfer to the calling thread's ring, which must exist.
pub(super) fn add(transfer: Transfer) {
    LOCAL_RING.with_borrow_mut(|local| {
        let local = local.as_mut().expect("there is one");
        local.ring.add(transfer, local.disk.path_set());
        // If there are more, the kernel had no memory for them, and a turn submits them.
        if local.ring.unsubmitted() == SUBMITTED_AT {
            local.ring.enter(0);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vain_entries_are_bounded_and_useful_ones_not() {
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
