//! Points at which a thread holds something that other threads wait for. Tests make threads stop there, as if they were
//! preempted. Only tests of this crate, and the feature `pause-points`, which tests of this workspace set, make a point
//! more than nothing.

/// Resource that the thread holds at the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PausePoint {
    /// A job with its draining segments.
    Job,
    /// The planner lock.
    Claim,
    /// The lock of a bucket to split.
    Split,
    /// A stripe with a reservation.
    Stripe,
    /// A pin.
    Pin,
    /// Nothing: the thread waits for a turn at splitting.
    SplitWait,
}

#[cfg(any(not(any(test, feature = "pause-points")), loom))]
#[inline(always)]
pub const fn pause_point(_: PausePoint) {}

#[cfg(all(any(test, feature = "pause-points"), not(loom)))]
pub use with_pauses::{pause_point, set_pauses};

#[cfg(all(any(test, feature = "pause-points"), not(loom)))]
mod with_pauses {
    use super::PausePoint;
    use std::cell::RefCell;
    use std::sync::atomic::{AtomicBool, Ordering};

    type Pause = Box<dyn FnMut(PausePoint)>;

    /// Whether a thread has a pause: until then a point costs one look.
    static ARE_SET: AtomicBool = AtomicBool::new(false);

    thread_local! {
        static PAUSE: RefCell<Option<Pause>> = const { RefCell::new(None) };
    }

    /// From now on the calling thread calls `pause` at each point, which may sleep or wait, and must not use the store.
    pub fn set_pauses(pause: impl FnMut(PausePoint) + 'static) {
        PAUSE.set(Some(Box::new(pause)));
        ARE_SET.store(true, Ordering::Relaxed);
    }

    pub fn pause_point(place: PausePoint) {
        if ARE_SET.load(Ordering::Relaxed) {
            PAUSE.with_borrow_mut(|pause| pause.iter_mut().for_each(|pause| pause(place)));
        }
    }
}
