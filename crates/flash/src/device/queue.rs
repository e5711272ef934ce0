//! The bounded queue between submitting and serving threads.
//!
//! ```text
//! offer -> waiting -> take, take_all -> (pieces are moved) -> finish -> the completion
//! ```
//! A request is pending from `offer` to `finish`, and at most `depth` are. At most half of them are writes, so that
//! reads find space when the device is behind with its writes.
//!
//! One mutex guards the counts and the waiting requests. It is a leaf, and no completion runs under it. Threads wait in
//! three places:
//! - A thread of the pool waits for work on `work`; each offer wakes one.
//! - The ring's thread waits in the kernel. Before the wait it sets `is_asleep` and takes all offers, in one critical
//!   section. A later offer sees `is_asleep` and writes to the eventfd that the ring polls. So no request
//!   waits while the ring's thread sleeps.
//! - A thread that found the queue full waits on `space`; each finish wakes one.
//!
//! After `stop` an offer fails at once. Earlier requests are served: a serving thread returns when the queue has
//! stopped and nothing waits, and the ring's thread when it also has no pending request.

use super::stats::DeviceMonitor;
use super::transfer::Transfer;
use super::{Direction, TransferRequest, stopped};
use rustix::event::EventfdFlags;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Maximum wait for space: the waiting thread has other checks to do.
const MAX_SLOT_WAIT: Duration = Duration::from_millis(100);

pub(super) struct RequestQueue {
    depth: usize,
    write_depth: usize,
    state: Mutex<State>,
    work: Condvar,
    space: Condvar,
    wake: OwnedFd,
    account: DeviceMonitor,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Transfer>,
    reads: usize,
    writes: usize,
    /// Threads that wait on `work`. `blocked`: threads that wait on `space`. A notify without a waiter costs as much as
    /// one with.
    idle: usize,
    blocked: usize,
    is_asleep: bool,
    is_stopped: bool,
}

impl RequestQueue {
    /// A queue for `depth` transfers, at least two.
    pub fn new(depth: usize) -> io::Result<Self> {
        let state = State { waiting: VecDeque::with_capacity(depth), ..State::default() };
        Ok(Self {
            depth,
            write_depth: depth / 2,
            state: Mutex::new(state),
            work: Condvar::new(),
            space: Condvar::new(),
            wake: rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
            account: DeviceMonitor::new(),
        })
    }

    pub fn monitor(&self) -> &DeviceMonitor {
        &self.account
    }

    pub fn depth(&self) -> usize {
        self.depth
    }

    pub fn offer(&self, request: TransferRequest) -> Result<(), TransferRequest> {
        let Some((mut state, transfer)) = self.begin(request)? else { return Ok(()) };
        state.waiting.push_back(transfer);
        let is_asleep = std::mem::take(&mut state.is_asleep);
        let is_awaited = state.idle > 0;
        drop(state);
        if is_awaited {
            self.work.notify_one();
        }
        if is_asleep {
            self.wake_server();
        }
        Ok(())
    }

    /// As `offer`, for a thread that serves the request itself and then calls `finish`. `None` when the queue has
    /// stopped: the request has failed.
    pub fn admit(&self, request: TransferRequest) -> Result<Option<Transfer>, TransferRequest> {
        Ok(self.begin(request)?.map(|(_, transfer)| transfer))
    }

    fn begin(&self, request: TransferRequest) -> Result<Option<(MutexGuard<'_, State>, Transfer)>, TransferRequest> {
        let mut state = self.state();
        if state.is_stopped {
            drop(state);
            request.finish(Err(stopped()));
            return Ok(None);
        }
        if !self.has_space(&state, request.direction) {
            drop(state);
            self.account.refused();
            return Err(request);
        }
        let now = Instant::now();
        *state.count(request.direction) += 1;
        self.account.begin(now);
        Ok(Some((state, Transfer::new(request, now))))
    }

    pub fn wait_for_slot(&self) {
        let is_full = |state: &mut State| !state.is_stopped && !self.has_space(state, Direction::Write);
        let mut state = self.state();
        state.blocked += 1;
        let (mut state, _) = self.space.wait_timeout_while(state, MAX_SLOT_WAIT, is_full).unwrap();
        state.blocked -= 1;
    }

    /// Waits for a transfer. None when the queue has stopped and nothing waits.
    pub fn take(&self) -> Option<Transfer> {
        let is_idle = |state: &mut State| state.waiting.is_empty() && !state.is_stopped;
        let mut state = self.state();
        state.idle += 1;
        let mut state = self.work.wait_while(state, is_idle).unwrap();
        state.idle -= 1;
        state.waiting.pop_front()
    }

    /// Takes all that waits, and announces sleep. True when the queue has stopped.
    pub fn take_all(&self, into: &mut Vec<Transfer>) -> bool {
        let mut state = self.state();
        into.extend(state.waiting.drain(..));
        state.is_asleep = true;
        state.is_stopped
    }

    /// Readable after an offer or a stop.
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Makes `wake` unreadable.
    pub fn clear_wake(&self) {
        // It fails if another thread has cleared it already.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }

    pub fn finish(&self, transfer: Transfer, result: io::Result<()>) {
        let direction = transfer.request.direction;
        self.account.end(direction, transfer.request.buffer.len(), &result, transfer.began, Instant::now());
        let mut state = self.state();
        *state.count(direction) -= 1;
        let is_awaited = state.blocked > 0;
        drop(state);
        if is_awaited {
            self.space.notify_one();
        }
        transfer.request.finish(result);
    }

    pub fn stop(&self) {
        self.state().is_stopped = true;
        self.work.notify_all();
        self.space.notify_all();
        self.wake_server();
    }

    pub fn is_stopped(&self) -> bool {
        self.state().is_stopped
    }

    /// Whether it has stopped and no request is pending.
    pub fn is_over(&self) -> bool {
        let state = self.state();
        state.is_stopped && state.reads + state.writes == 0
    }

    fn wake_server(&self) {
        // It fails when the count is at its end: then it is readable.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn has_space(&self, state: &State, direction: Direction) -> bool {
        let has_lane = direction == Direction::Read || state.writes < self.write_depth;
        has_lane && state.reads + state.writes < self.depth
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    fn count(&mut self, direction: Direction) -> &mut usize {
        match direction {
            Direction::Read => &mut self.reads,
            Direction::Write => &mut self.writes,
        }
    }
}

impl Drop for RequestQueue {
    /// Fails the requests that were not served.
    fn drop(&mut self) {
        self.stop();
        while let Some(transfer) = self.take() {
            self.finish(transfer, Err(stopped()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BLOCK, Buffer, TransferOutcome};
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    fn offer(queue: &RequestQueue, direction: Direction) -> Result<Receiver<bool>, TransferRequest> {
        let (sender, receiver) = channel();
        // No thread may wait for it.
        let done = Box::new(move |outcome: TransferOutcome| _ = sender.send(outcome.result.is_ok()));
        queue.offer(TransferRequest { direction, offset: 0, buffer: Buffer::zeroed(BLOCK), done })?;
        Ok(receiver)
    }

    #[test]
    fn writes_leave_half_of_the_queue_to_reads() {
        let queue = RequestQueue::new(4).unwrap();
        let taken = |direction| (0..9).map(|_| offer(&queue, direction)).filter(Result::is_ok).count();
        assert_eq!(taken(Direction::Write), 2);
        assert_eq!(taken(Direction::Read), 2);
        let queue = RequestQueue::new(4).unwrap();
        let taken = |direction| (0..9).map(|_| offer(&queue, direction)).filter(Result::is_ok).count();
        assert_eq!(taken(Direction::Read), 4);
        assert_eq!(taken(Direction::Write), 0);
        assert_eq!(queue.monitor().stats().refusals, 5 + 9);
    }

    #[test]
    fn a_finish_makes_space() {
        let queue = RequestQueue::new(2).unwrap();
        let first = offer(&queue, Direction::Write).ok().unwrap();
        assert!(offer(&queue, Direction::Write).is_err());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let transfer = queue.take().unwrap();
                queue.finish(transfer, Ok(()));
            });
            while offer(&queue, Direction::Write).is_err() {
                queue.wait_for_slot();
            }
        });
        assert!(first.recv().unwrap());
    }

    #[test]
    fn what_nobody_served_ends_with_the_queue() {
        let queue = RequestQueue::new(4).unwrap();
        let taken = offer(&queue, Direction::Read).ok().unwrap();
        queue.stop();
        let late = offer(&queue, Direction::Read).ok().unwrap();
        assert!(!late.recv().unwrap());
        drop(queue);
        assert!(!taken.recv().unwrap());
    }
}
