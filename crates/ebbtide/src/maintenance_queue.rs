//! The queue of pools that ask for maintenance.
//!
//! ```text
//! writer, flush, resize ---push---> queue ---one slice each in turn---> maintenance thread
//! ```
//! A pool is in the queue once, however many threads push it. The thread takes all pools of the queue over before it
//! works, and clears a pool's mark before its slice: a push during the slice queues the pool again. Pools that are not
//! pushed have a slice every [`SWEEP`].

use crate::wakeup::Waker;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// How often a pool that is not in the queue has a slice.
pub(crate) const SWEEP: Duration = Duration::from_millis(100);

/// Whether a pool is in the queue. Relaxed: a stale value costs or saves one slice.
#[derive(Default)]
pub(crate) struct QueueMark(AtomicBool);

impl QueueMark {
    #[inline(always)]
    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// True if it was not set.
    fn set(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }

    fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The pools that ask for maintenance, and the thread that does it.
pub(crate) struct MaintenanceQueue<P> {
    pub waker: Waker,
    pushed: Mutex<Vec<Weak<P>>>,
}

impl<P> Default for MaintenanceQueue<P> {
    fn default() -> Self {
        Self { waker: Waker::default(), pushed: Mutex::default() }
    }
}

impl<P: AsRef<QueueMark>> MaintenanceQueue<P> {
    /// Queues a pool, and wakes the thread. Without a thread it does nothing.
    #[inline]
    pub fn push(&self, pool: &P, weak: impl FnOnce() -> Weak<P>) {
        if !self.waker.has_thread() || pool.as_ref().is_set() {
            return;
        }
        if pool.as_ref().set() {
            self.pushed.lock().expect("nothing panics under this lock").push(weak());
        }
        self.waker.wake();
    }

    /// Moves the pushed pools to the end of the thread's list.
    fn take_over(&self, pools: &mut VecDeque<Weak<P>>) {
        pools.extend(self.pushed.lock().expect("nothing panics under this lock").drain(..));
    }
}

/// The maintenance thread's list of pools.
pub(crate) struct Turns<P> {
    ready: VecDeque<Weak<P>>,
    /// Pools that wait for another thread or for flash: they are ready at the next wake-up.
    waiting: Vec<Weak<P>>,
    sweep: Sweep,
}

impl<P> Default for Turns<P> {
    fn default() -> Self {
        Self { ready: VecDeque::new(), waiting: Vec::new(), sweep: Sweep::default() }
    }
}

impl<P: AsRef<QueueMark>> Turns<P> {
    /// Begins a wake-up: waiting pools are ready again.
    pub fn resume_waiting(&mut self) {
        self.ready.extend(self.waiting.drain(..));
    }

    /// Adds a pool that has not pushed itself.
    pub fn add(&mut self, pool: &Arc<P>) {
        if (**pool).as_ref().set() {
            self.ready.push_back(Arc::downgrade(pool));
        }
    }

    /// Number of pools, of `count` in a rotation, that have their turn now.
    pub fn due_in_sweep(&mut self, elapsed: Duration, count: usize) -> usize {
        self.sweep.due(elapsed, count)
    }

    /// The next pool, whose mark is cleared.
    pub fn next(&mut self, queue: &MaintenanceQueue<P>) -> Option<Arc<P>> {
        queue.take_over(&mut self.ready);
        // Ends: each pass drops a pool that is gone.
        loop {
            if let Some(pool) = self.ready.pop_front()?.upgrade() {
                (*pool).as_ref().clear();
                return Some(pool);
            }
        }
    }

    /// The pool has more to do at once, or when another thread has done its part.
    pub fn put_back(&mut self, pool: &Arc<P>, waits: bool) {
        if (**pool).as_ref().set() {
            let weak = Arc::downgrade(pool);
            if waits { self.waiting.push(weak) } else { self.ready.push_back(weak) }
        }
    }
}

/// Spreads the turns of pools over the interval of a sweep.
#[derive(Default)]
struct Sweep {
    /// Nanoseconds since the last turn, times the number of pools.
    credit: u128,
}

impl Sweep {
    fn due(&mut self, elapsed: Duration, count: usize) -> usize {
        self.credit += elapsed.as_nanos() * count as u128;
        let due = self.credit / SWEEP.as_nanos();
        self.credit %= SWEEP.as_nanos();
        usize::try_from(due).unwrap_or(count).min(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Item(u32, QueueMark);

    impl AsRef<QueueMark> for Item {
        fn as_ref(&self) -> &QueueMark {
            &self.1
        }
    }

    #[test]
    fn a_pool_is_in_the_queue_once() {
        let (queue, mut turns) = (MaintenanceQueue::default(), Turns::default());
        let items: Vec<_> = (0..3).map(|number| Arc::new(Item(number, QueueMark::default()))).collect();
        let push = |number: usize| queue.push(&*items[number], || Arc::downgrade(&items[number]));
        push(0);
        assert!(turns.next(&queue).is_none(), "nobody works");
        queue.waker.register_current_thread();
        [0, 1, 0, 2, 1].into_iter().for_each(push);
        turns.add(&items[2]);
        let next = |turns: &mut Turns<Item>| turns.next(&queue).map(|item| item.0);
        assert_eq!(next(&mut turns), Some(0));
        turns.put_back(&items[0], false);
        push(0);
        assert_eq!([next(&mut turns), next(&mut turns), next(&mut turns)], [Some(1), Some(2), Some(0)]);
        turns.put_back(&items[1], true);
        assert_eq!(next(&mut turns), None, "it waits");
        turns.resume_waiting();
        push(1);
        assert_eq!([next(&mut turns), next(&mut turns)], [Some(1), None]);
    }

    #[test]
    fn a_sweep_serves_pools_once_per_interval() {
        for count in [0, 1, 7, 512] {
            let mut sweep = Sweep::default();
            let steps: Vec<_> = (0..200).map(|_| sweep.due(Duration::from_millis(5), count)).collect();
            assert_eq!(steps.iter().sum::<usize>(), 10 * count, "of {count} pools in ten intervals");
            let bound = count.div_ceil(20);
            assert!(steps.iter().all(|due| *due <= bound), "at most {bound} at a time: {steps:?}");
            assert!(sweep.due(Duration::from_secs(3600), count) == count, "no more than all");
        }
    }
}
