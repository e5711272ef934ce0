//! Points at which a thread holds something that other threads wait for. Tests make threads sleep there, as if they
//! were preempted; in other builds a point compiles to nothing.

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
}

#[cfg(any(not(test), loom))]
#[inline(always)]
pub const fn pause_point(_: PausePoint) {}

#[cfg(all(test, not(loom)))]
pub use with_pauses::pause_point;

#[cfg(all(test, not(loom)))]
pub mod with_pauses {
    use super::PausePoint;
    use ebbtide_testkit::Random;
    use std::cell::{Cell, RefCell};
    use std::time::Duration;

    thread_local! {
        static PAUSES: RefCell<Option<Random>> = const { RefCell::new(None) };
        static SPLITS: Cell<u64> = const { Cell::new(0) };
    }

    /// How many buckets the calling thread has locked to split them.
    pub fn splits() -> u64 {
        SPLITS.get()
    }

    /// From now on the calling thread sleeps at some of the points.
    pub fn begin(seed: u64) {
        PAUSES.with(|pauses| *pauses.borrow_mut() = Some(Random::new(seed)));
    }

    /// Sometimes sleeps for up to three milliseconds, more rarely at frequent points.
    pub fn pause_point(place: PausePoint) {
        SPLITS.set(SPLITS.get() + u64::from(place == PausePoint::Split));
        let one_in = match place {
            PausePoint::Job | PausePoint::Claim | PausePoint::Split => 8,
            PausePoint::Stripe | PausePoint::Pin => 300,
        };
        let pause = PAUSES.with(|pauses| {
            let random = &mut *pauses.borrow_mut();
            random.as_mut().and_then(|random| (random.uniform(one_in) == 0).then(|| random.uniform(3000)))
        });
        if let Some(us) = pause {
            std::thread::sleep(Duration::from_micros(us));
        }
    }
}
