//! Transfers with io_uring: a ring, the slots of its transfers, and the thread that serves a device with one.
//!
//! ```text
//! take all that waits -> a slot each -> an entry each in the submission queue
//!      ^                                          |
//!      +--- completions: the next piece, or over <+  enter: submit, sleep until something is completed
//! ```
//! Only one thread uses a ring at a time: the serving one, or, in [`super::thread_ring`] and [`super::blocking_ring`],
//! its owner. An offer reaches the sleeping ring of the serving thread through the queue's eventfd, which that ring
//! polls.
//!
//! The kernel reads and writes a buffer from the moment its entry is in the submission queue until its completion was
//! seen. Slots never move, no code accesses a transfer in its slot meanwhile, and a slot that is never completed is
//! never freed. A buffer that is read into is not shared; one that is written may be read by other threads.

#![allow(unsafe_code)]

use super::path::DevicePath;
use super::queue::RequestQueue;
use super::stripes::Stripes;
use super::transfer::Transfer;
use super::{Buffer, Direction};
use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::io::{self, ErrorKind};
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread;
use std::time::Duration;

/// Marks the completion of the poll.
const WAKE: u64 = u64::MAX;
/// Pause when the kernel cannot take entries for lack of memory.
const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// Checks whether a ring can serve. The system may refuse it to the process, or be too old.
pub(super) fn probe(depth: usize) -> io::Result<()> {
    let ring = make(depth)?;
    let mut known = Probe::new();
    ring.submitter().register_probe(&mut known)?;
    let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::PollAdd::CODE];
    if needed.iter().all(|&code| known.is_supported(code)) { Ok(()) } else { Err(ErrorKind::Unsupported.into()) }
}

fn make(depth: usize) -> io::Result<IoUring> {
    make_quiet(depth).or_else(|error| match error.kind() {
        // Kernels before 6.1 do not support these flags.
        ErrorKind::InvalidInput => IoUring::new(entries(depth)),
        _ => Err(error),
    })
}

/// A ring whose thread is never interrupted: completions wait until the thread enters the kernel.
fn make_quiet(depth: usize) -> io::Result<IoUring> {
    IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().build(entries(depth))
}

/// The poll has an entry, too. The completion queue has twice as many, so it never overflows.
fn entries(depth: usize) -> u32 {
    (depth as u32 + 1).next_power_of_two()
}

/// The files that transfers read and write.
#[derive(Clone, Copy)]
pub(super) struct PathSet<'a> {
    pub parts: &'a [DevicePath],
    pub stripes: &'a Stripes,
}

/// A ring, and the transfers in it.
pub(super) struct UringQueue {
    // Declared before the slots, so that it is dropped first.
    ring: IoUring,
    slots: Slots,
    free: Vec<usize>,
    completed: Vec<(u64, i32)>,
}

struct Slots(Box<[Option<Transfer>]>);

impl Drop for Slots {
    /// The kernel may still use the buffers.
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|slot| mem::forget(slot.take()));
    }
}

impl UringQueue {
    fn new(depth: usize, ring: IoUring) -> Self {
        let slots = Slots((0..depth).map(|_| None).collect());
        Self { ring, slots, free: (0..depth).collect(), completed: Vec::new() }
    }

    /// A ring that writes to an eventfd when it has work, and never interrupts its thread. An error if the kernel does
    /// not support this.
    pub fn with_event(depth: usize, event: BorrowedFd<'_>) -> io::Result<Self> {
        let ring = make_quiet(depth)?;
        ring.submitter().register_eventfd(event.as_raw_fd())?;
        Ok(Self::new(depth, ring))
    }

    /// A ring for waiting threads that use it in turn. An error if the kernel cannot wait for a limited time (before
    /// 5.11).
    pub fn blocking(depth: usize) -> io::Result<Self> {
        let entries = entries(depth);
        let ring = IoUring::builder().setup_coop_taskrun().build(entries).or_else(|error| match error.kind() {
            // Kernels before 5.19 do not support this flag.
            ErrorKind::InvalidInput => IoUring::new(entries),
            _ => Err(error),
        })?;
        let can_wait = ring.params().is_feature_ext_arg();
        if can_wait { Ok(Self::new(depth, ring)) } else { Err(ErrorKind::Unsupported.into()) }
    }

    /// Whether it has space for one more transfer.
    pub fn has_space(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether no transfer is pending.
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.slots.0.len()
    }

    /// Number of entries that are not submitted to the kernel yet.
    pub fn unsubmitted(&mut self) -> usize {
        self.ring.submission().len()
    }

    /// Whether an enter would have an effect. Only for a ring with an event.
    pub fn is_due(&mut self) -> bool {
        let submission = self.ring.submission();
        !submission.is_empty() || submission.taskrun()
    }

    /// Whether the kernel has completed something that was not reaped.
    pub fn has_completed(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// Adds a transfer, which is submitted when the ring is entered. A slot is free while fewer transfers are pending
    /// than the depth of the ring.
    pub fn add(&mut self, transfer: Transfer, path_set: PathSet<'_>) {
        let slot = self.free.pop().expect("the queue lets no more pass than there are slots");
        self.slots.0[slot] = Some(transfer);
        self.push(slot, path_set);
    }

    /// Puts the next piece of a transfer into the submission queue.
    fn push(&mut self, slot: usize, path_set: PathSet<'_>) {
        let transfer = self.slots.0[slot].as_mut().expect("the slot is taken");
        let piece = transfer.piece(path_set.stripes);
        let file = types::Fd(path_set.parts[piece.part].file.as_raw_fd());
        let length = piece.range.len() as u32;
        let buffer = &mut transfer.request.buffer;
        let entry = match transfer.request.direction {
            Direction::Read => {
                opcode::Read::new(file, buffer[piece.range].as_mut_ptr(), length).offset(piece.offset).build()
            }
            Direction::Write => {
                opcode::Write::new(file, buffer[piece.range].as_ptr(), length).offset(piece.offset).build()
            }
        };
        self.push_entry(&entry.user_data(slot as u64));
    }

    fn push_entry(&mut self, entry: &squeue::Entry) {
        // SAFETY: A poll has no buffer. The buffer of a transfer is in a slot that keeps its memory until `reap` has
        // seen the completion, or for good. The files are open as long as the ring's device.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.expect("there is an entry for each slot and for the poll");
    }

    /// Submits, and sleeps until this number of transfers is completed; with 0 it does not sleep.
    pub fn enter(&mut self, completed: usize) {
        after(self.ring.submit_and_wait(completed));
    }

    /// Submits, and sleeps until one transfer is completed, or for `max`. Only for a blocking ring.
    pub fn enter_for(&mut self, max: Duration) {
        let max = types::Timespec::from(max);
        after(self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&max)));
    }

    /// Processes the kernel's completions: continues unfinished transfers and hands over finished ones. Returns whether
    /// the poll was completed.
    pub fn reap(&mut self, path_set: PathSet<'_>, finished: &mut impl Extend<Finished>) -> bool {
        let mut was_woken = false;
        let mut completed = mem::take(&mut self.completed);
        completed.extend(self.ring.completion().map(|entry| (entry.user_data(), entry.result())));
        for (mark, result) in completed.drain(..) {
            match mark {
                WAKE => was_woken = true,
                slot => finished.extend(self.complete(slot as usize, result, path_set)),
            }
        }
        self.completed = completed;
        was_woken
    }

    fn complete(&mut self, slot: usize, result: i32, path_set: PathSet<'_>) -> Option<Finished> {
        let moved = if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result as usize) };
        let transfer = self.slots.0[slot].as_mut().expect("only taken slots have entries");
        match transfer.advance(moved) {
            None => {
                self.push(slot, path_set);
                None
            }
            Some(result) => {
                let transfer = self.slots.0[slot].take().expect("it was there");
                self.free.push(slot);
                Some((transfer, result))
            }
        }
    }

    /// Abandons pending transfers. Their buffers are leaked, since the kernel may still use them; the transfers are
    /// returned without buffers.
    pub fn abandon(&mut self) -> Vec<Transfer> {
        let taken = self.slots.0.iter_mut().filter_map(Option::take);
        let without = |mut transfer: Transfer| {
            mem::forget(mem::replace(&mut transfer.request.buffer, Buffer::zeroed(0)));
            transfer
        };
        taken.map(without).collect()
    }
}

/// Checks an enter. Entries that the kernel did not take are submitted the next time.
fn after(entered: io::Result<usize>) {
    match entered {
        Ok(_) => {}
        Err(error)
            if error.kind() == ErrorKind::Interrupted || error.raw_os_error() == Some(Errno::TIME.raw_os_error()) => {}
        Err(_) => thread::sleep(RETRY_PAUSE),
    }
}

/// A finished transfer, and its result.
pub(super) type Finished = (Transfer, io::Result<()>);

/// Serves requests until the queue has stopped and none is pending. An error if no ring can be created: then nothing
/// was served.
pub(super) fn serve(queue: &RequestQueue, path_set: PathSet<'_>) -> io::Result<()> {
    let mut ring = UringQueue::new(queue.depth(), make(queue.depth())?);
    let (mut taken, mut finished) = (Vec::new(), Vec::new());
    let mut is_polling = false;
    loop {
        let has_stopped = queue.take_all(&mut taken);
        taken.drain(..).for_each(|transfer| ring.add(transfer, path_set));
        if has_stopped && ring.is_empty() {
            return Ok(());
        }
        if !is_polling {
            // Polls the eventfd, so that an offer wakes the ring.
            let events = u32::from(PollFlags::IN.bits());
            let entry = opcode::PollAdd::new(types::Fd(queue.wake().as_raw_fd()), events).build();
            ring.push_entry(&entry.user_data(WAKE));
            is_polling = true;
        }
        ring.enter(1);
        if ring.reap(path_set, &mut finished) {
            queue.clear_wake();
            is_polling = false;
        }
        finished.drain(..).for_each(|(transfer, result)| queue.finish(transfer, result));
    }
}
