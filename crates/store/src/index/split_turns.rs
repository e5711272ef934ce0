//! Turns at splitting: one thread at a time makes the index grow, and the others wait for the end of its turn, once.
//!
//! ```text
//! tickets     turns that were taken            a turn is over, and the next one may begin, when
//! ended       turns that are over              `ended` has reached its ticket
//! ```
//! A thread that finds a turn taken does not take the next one: it waits until the turns that it sees are over, and
//! goes on. Only a key without a slot queues (`take`), and then it holds its turn until it has one. A turn ends when
//! the split word has advanced, before slots are moved, so that a thread that is preempted while it moves them delays
//! only threads that need one of the two buckets.
//!
//! The keys that were added to a crowded index are counted, those of waiting threads included, and each split of a turn
//! takes a few off that count (see `growth.rs`).

use crate::pause_point::{PausePoint, pause_point};
use crate::sync::{AtomicU32, AtomicU64, Backoff, Ordering};

/// The order of the threads that split.
#[derive(Default)]
pub struct SplitTurns {
    tickets: AtomicU32,
    ended: AtomicU32,
    /// Keys added to a crowded index for which no bucket was split yet.
    crowding_keys: AtomicU64,
    /// Waits for the end of a turn.
    waits: AtomicU64,
}

/// The right to split; the turn ends when it is dropped.
#[must_use = "the turn ends when it is dropped"]
pub struct SplitTurn<'t>(&'t SplitTurns);

impl SplitTurns {
    /// Whether a thread has a turn, or waits for one. A hint.
    #[inline(always)]
    pub fn are_taken(&self) -> bool {
        self.tickets.load(Ordering::Relaxed) != self.ended.load(Ordering::Relaxed)
    }

    /// Takes a turn if no thread has one.
    pub fn try_take(&self) -> Option<SplitTurn<'_>> {
        // Acquire pairs with the Release at the end of a turn: its steps of the split word. No ticket is ahead of this
        // one if as many turns are over as were taken.
        let ended = self.ended.load(Ordering::Acquire);
        if self.tickets.load(Ordering::Relaxed) != ended {
            return None;
        }
        let next = ended.wrapping_add(1);
        let is_taken = self.tickets.compare_exchange(ended, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        is_taken.then(|| SplitTurn(self))
    }

    /// Takes the next turn, and waits for those before it. True if it had to wait.
    pub fn take(&self) -> (SplitTurn<'_>, bool) {
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let has_waited = self.wait_for(ticket);
        (SplitTurn(self), has_waited)
    }

    /// Waits until the turns that were taken before this call are over.
    pub fn wait_for_taken(&self) {
        self.wait_for(self.tickets.load(Ordering::Relaxed));
    }

    /// Waits until this number of turns is over. False if it is already.
    fn wait_for(&self, turns: u32) -> bool {
        // Acquire pairs with the Release at the end of a turn.
        let are_over = || self.ended.load(Ordering::Acquire).wrapping_sub(turns).cast_signed() >= 0;
        if are_over() {
            return false;
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        pause_point(PausePoint::SplitWait);
        let mut backoff = Backoff::new();
        while !are_over() {
            backoff.wait();
        }
        true
    }

    /// Counts a key that was added to a crowded index, before its thread takes a turn or waits for one.
    pub fn count_key(&self) {
        self.crowding_keys.fetch_add(1, Ordering::Relaxed);
    }

    /// How often a thread has waited for the end of a turn.
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }
}

impl SplitTurn<'_> {
    /// Whether keys are counted for which no bucket was split yet.
    pub fn has_keys(&self) -> bool {
        self.0.crowding_keys.load(Ordering::Relaxed) > 0
    }

    /// Takes keys for which a bucket was split off the count.
    pub fn discount(&self, keys: u64) {
        // Only the thread that has the turn takes keys off.
        let counted = self.0.crowding_keys.load(Ordering::Relaxed);
        if counted > 0 {
            self.0.crowding_keys.fetch_sub(keys.min(counted), Ordering::Relaxed);
        }
    }
}

impl Drop for SplitTurn<'_> {
    fn drop(&mut self) {
        // Pairs with the Acquire in `try_take` and `wait_for`.
        self.0.ended.fetch_add(1, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn turns_are_taken_in_order() {
        // From the end of the numbers: tickets wrap.
        let last = || AtomicU32::new(u32::MAX);
        let turns = SplitTurns { tickets: last(), ended: last(), ..SplitTurns::default() };
        let first = turns.try_take().expect("no thread has a turn");
        assert!(turns.are_taken() && turns.try_take().is_none());
        std::thread::scope(|scope| {
            let next = scope.spawn(|| {
                let (_turn, has_waited) = turns.take();
                has_waited
            });
            while turns.waits() < 1 {
                std::thread::yield_now();
            }
            let bystander = scope.spawn(|| turns.wait_for_taken());
            while turns.waits() < 2 {
                std::thread::yield_now();
            }
            assert!(!next.is_finished() && !bystander.is_finished());
            drop(first);
            assert!(next.join().unwrap());
            bystander.join().unwrap();
        });
        assert!(!turns.are_taken());
        let (turn, has_waited) = turns.take();
        assert!(!has_waited);
        turn.0.count_key();
        turn.discount(4);
        assert!(!turn.has_keys());
    }
}
