//! Serving with io_uring: one thread moves all transfers.
//!
//! ```text
//! take all that waits -> a slot each -> an entry each in the submission queue
//!      ^                                          |
//!      +--- completions: the next piece, or over <+  enter: submit, sleep until something is completed
//! ```
//! Only the serving thread touches the ring. Workers that submitted by themselves would be interrupted by the kernel for each
//! completion, and their requests would end with them. An offer reaches a sleeping ring through the queue's eventfd, which
//! the ring polls.
//!
//! The kernel reads and writes a buffer from the moment its entry is in the submission queue until its completion was seen.
//! Slots never move, nobody touches a transfer in its slot meanwhile, and a slot that is never completed is never freed. A
//! buffer that is read into is shared with nobody; one that is written may be read by others.

#![allow(unsafe_code)]

use super::Direction;
use super::part::Part;
use super::queue::Queue;
use super::stripes::Stripes;
use super::transfer::Transfer;
use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::event::PollFlags;
use std::io::{self, ErrorKind};
use std::mem;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

/// Marks the completion of the poll.
const WAKE: u64 = u64::MAX;
/// When the kernel cannot take entries for want of memory.
const BREATH: Duration = Duration::from_millis(1);

/// Whether a ring can serve here. It may be refused to the process, or be too old.
pub(super) fn probe(depth: usize) -> io::Result<()> {
    let ring = make(depth)?;
    let mut known = Probe::new();
    ring.submitter().register_probe(&mut known)?;
    let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::PollAdd::CODE];
    if needed.iter().all(|&code| known.is_supported(code)) { Ok(()) } else { Err(ErrorKind::Unsupported.into()) }
}

fn make(depth: usize) -> io::Result<IoUring> {
    // The poll has an entry, too. The completion queue has twice as many, so it never overflows.
    let entries = (depth as u32 + 1).next_power_of_two();
    IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries).or_else(|error| match error.kind() {
        // Kernels before 6.1 do not know these.
        ErrorKind::InvalidInput => IoUring::new(entries),
        _ => Err(error),
    })
}

/// Returns when the queue has stopped and nothing is under way. An error when there is no ring: nothing was done then.
pub(super) fn serve(queue: &Queue, parts: &[Part], stripes: &Stripes) -> io::Result<()> {
    let ring = make(queue.depth())?;
    let slots = Slots((0..queue.depth()).map(|_| None).collect());
    let free = (0..queue.depth()).collect();
    Server { ring, slots, free, queue, parts, stripes, completed: Vec::new(), is_polling: false }.serve();
    Ok(())
}

struct Server<'a> {
    // Before the slots: dropped first.
    ring: IoUring,
    slots: Slots,
    free: Vec<usize>,
    queue: &'a Queue,
    parts: &'a [Part],
    stripes: &'a Stripes,
    completed: Vec<(u64, i32)>,
    is_polling: bool,
}

struct Slots(Box<[Option<Transfer>]>);

impl Drop for Slots {
    /// After a panic the kernel may still use the buffers.
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|slot| mem::forget(slot.take()));
    }
}

impl Server<'_> {
    fn serve(&mut self) {
        let mut taken = Vec::new();
        loop {
            let has_stopped = self.queue.take_all(&mut taken);
            for transfer in taken.drain(..) {
                let slot = self.free.pop().expect("the queue lets no more pass than there are slots");
                self.slots.0[slot] = Some(transfer);
                self.push(slot);
            }
            if has_stopped && self.free.len() == self.slots.0.len() {
                return;
            }
            self.poll();
            self.enter();
            self.reap();
        }
    }

    /// Puts the next piece of a transfer into the submission queue.
    fn push(&mut self, slot: usize) {
        let transfer = self.slots.0[slot].as_mut().expect("the slot is taken");
        let piece = transfer.piece(self.stripes);
        let file = types::Fd(self.parts[piece.part].file.as_raw_fd());
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

    /// Has an offer complete something.
    fn poll(&mut self) {
        if !self.is_polling {
            let events = u32::from(PollFlags::IN.bits());
            let entry = opcode::PollAdd::new(types::Fd(self.queue.wake().as_raw_fd()), events).build();
            self.push_entry(&entry.user_data(WAKE));
            self.is_polling = true;
        }
    }

    fn push_entry(&mut self, entry: &squeue::Entry) {
        // SAFETY: A poll has no buffer. That of a transfer lies in a slot that stays as it is, and keeps its memory, until
        // `reap` has seen the completion, or for ever; the files are open for as long as the device that serves.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.expect("there is an entry for each slot and for the poll");
    }

    /// Submits, and sleeps until something is completed.
    fn enter(&mut self) {
        match self.ring.submit_and_wait(1) {
            Ok(_) => {}
            // Entries that were not taken are submitted the next time.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => thread::sleep(BREATH),
        }
    }

    fn reap(&mut self) {
        let mut completed = mem::take(&mut self.completed);
        completed.extend(self.ring.completion().map(|entry| (entry.user_data(), entry.result())));
        for (mark, result) in completed.drain(..) {
            if mark == WAKE {
                self.queue.awake();
                self.is_polling = false;
            } else {
                self.complete(mark as usize, result);
            }
        }
        self.completed = completed;
    }

    fn complete(&mut self, slot: usize, result: i32) {
        let moved = if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result as usize) };
        let transfer = self.slots.0[slot].as_mut().expect("only taken slots have entries");
        match transfer.advance(moved) {
            None => self.push(slot),
            Some(result) => {
                let transfer = self.slots.0[slot].take().expect("it was there");
                self.free.push(slot);
                self.queue.finish(transfer, result);
            }
        }
    }
}
