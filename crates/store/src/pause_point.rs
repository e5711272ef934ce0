//! Places at which a thread holds what others wait for, and may be off its processor. Tests have threads sleep there; elsewhere
//! a place is nothing.

/// What the thread holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PausePoint {
    /// A job, with its draining sources.
    Job,
    /// The lock of choices.
    Claim,
    /// The right to split a bucket.
    Split,
    /// A stripe with a reservation.
    Stripe,
    /// An epoch.
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
    use std::cell::RefCell;
    use std::time::Duration;

    thread_local! {
        static PAUSES: RefCell<Option<Random>> = const { RefCell::new(None) };
    }

    /// From now on the calling thread sleeps at some of the places that it comes to.
    pub fn begin(seed: u64) {
        PAUSES.with(|pauses| *pauses.borrow_mut() = Some(Random::new(seed)));
    }

    /// Sleeps for up to three milliseconds, now and then: at a place that is come to often more rarely.
    pub fn pause_point(place: PausePoint) {
        let one_in = match place {
            PausePoint::Job | PausePoint::Claim | PausePoint::Split => 8,
            PausePoint::Stripe | PausePoint::Pin => 300,
        };
        let pause = PAUSES.with(|pauses| {
            let random = &mut *pauses.borrow_mut();
            random.as_mut().and_then(|random| (random.below(one_in) == 0).then(|| random.below(3000)))
        });
        if let Some(us) = pause {
            std::thread::sleep(Duration::from_micros(us));
        }
    }
}
