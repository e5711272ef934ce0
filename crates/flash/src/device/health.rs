//! The health of a device, judged by its completed transfers.
//!
//! ```text
//!            an error, or nothing done for 2 s           half of 16 or more transfers fail, or none done for 30 s
//! Healthy --------------------------------------> Degraded ---------------------------------------------------> Failed
//!         <--------------------------------------
//!                       60 s without
//! ```
//! Errors are counted over windows of 10 s. A failed device stays failed until it is opened again: an operator must
//! check it. Idle time counts only while the device is observed: a process that was stopped (`SIGSTOP`, a paused
//! container, a suspended machine) finds that nothing was finished meanwhile, and that says nothing about the device.
//!
//! `observe` has no inputs except its arguments and its own state: times are arguments.

use std::time::Duration;

/// A device that is busy answers within this; one that resets its link does not.
const STALL: Duration = Duration::from_secs(2);
/// The kernel's default timeout for a command: no later completion is expected.
const DEAD: Duration = Duration::from_secs(30);
const WINDOW: Duration = Duration::from_secs(10);
/// Minimum number of transfers in a window: errors of fewer may be of one bad location.
const ENOUGH: u64 = 16;
const QUIET: Duration = Duration::from_secs(60);
/// Limit of the idle time that counts between two observations, which are a second apart in a process that runs.
const MAX_GAP: Duration = Duration::from_secs(5);

/// From good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// Transfers complete.
    Healthy,
    /// Errors or a stall happened recently. The device is used.
    Degraded,
    /// Most transfers fail or none completes. The device is not used until it is opened again.
    Failed,
}

/// Totals of a device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HealthSample {
    /// Transfers that completed or failed.
    pub finished: u64,
    pub errors: u64,
    /// Time without a finished transfer while some were pending.
    pub idle: Duration,
}

pub(super) struct HealthJudge {
    health: Health,
    window_began: Duration,
    at_window: HealthSample,
    last_errors: u64,
    last_trouble: Duration,
    last_observed: Duration,
    /// Idle time that was observed.
    idle: Duration,
}

impl HealthJudge {
    pub fn new() -> Self {
        Self {
            health: Health::Healthy,
            window_began: Duration::ZERO,
            at_window: HealthSample::default(),
            last_errors: 0,
            last_trouble: Duration::ZERO,
            last_observed: Duration::ZERO,
            idle: Duration::ZERO,
        }
    }

    /// `now` is any monotonic time.
    pub fn observe(&mut self, sample: HealthSample, now: Duration) -> Health {
        let finished = sample.finished - self.at_window.finished;
        let errors = sample.errors - self.at_window.errors;
        let fails_often = finished >= ENOUGH && errors * 2 >= finished;
        let gap = now.saturating_sub(self.last_observed).min(MAX_GAP);
        self.last_observed = now;
        self.idle = (self.idle + gap).min(sample.idle);
        if sample.errors > self.last_errors || self.idle >= STALL {
            self.last_trouble = now;
            self.last_errors = sample.errors;
            self.health = self.health.max(Health::Degraded);
        } else if now.saturating_sub(self.last_trouble) >= QUIET && self.health == Health::Degraded {
            self.health = Health::Healthy;
        }
        if fails_often || self.idle >= DEAD {
            self.health = Health::Failed;
        }
        if now.saturating_sub(self.window_began) >= WINDOW {
            self.window_began = now;
            self.at_window = sample;
        }
        self.health
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn after(samples: &[(u32, u64, u64, u32)]) -> Vec<Health> {
        let mut judge = HealthJudge::new();
        let observe = |&(now, finished, errors, idle): &(u32, u64, u64, u32)| {
            judge.observe(HealthSample { finished, errors, idle: SECOND * idle }, SECOND * now)
        };
        samples.iter().map(observe).collect()
    }

    #[test]
    fn an_error_degrades_for_a_minute() {
        use Health::{Degraded, Healthy};
        let states = after(&[(1, 100, 0, 0), (2, 200, 1, 0), (61, 300, 1, 0), (62, 300, 1, 0), (63, 400, 2, 0)]);
        assert_eq!(states, [Healthy, Degraded, Degraded, Healthy, Degraded]);
    }

    #[test]
    fn a_stall_degrades_then_fails_for_good() {
        use Health::{Degraded, Failed, Healthy};
        let stalled: Vec<_> = (1..=30).map(|second| (second, 9, 0, second)).collect();
        let states = after(&[&stalled[..], &[(31, 99, 0, 0), (300, 999, 0, 0)]].concat());
        assert_eq!((states[0], &states[1..29]), (Healthy, &[Degraded; 28][..]));
        assert_eq!(states[29..], [Failed, Failed, Failed]);
    }

    #[test]
    fn time_of_a_stopped_process_is_ignored() {
        use Health::{Degraded, Healthy};
        let states = after(&[(1, 9, 0, 1), (601, 9, 0, 601), (602, 9, 0, 602), (603, 99, 0, 0), (663, 99, 0, 0)]);
        assert_eq!(states, [Healthy, Degraded, Degraded, Degraded, Healthy]);
    }

    #[test]
    fn half_of_many_transfers_failing_fails_the_device() {
        use Health::{Degraded, Failed};
        assert_eq!(after(&[(1, 16, 8, 0)]), [Failed]);
        assert_eq!(after(&[(1, 15, 15, 0)]), [Degraded]);
        assert_eq!(after(&[(1, 100, 49, 0), (2, 120, 59, 0)]), [Degraded, Degraded]);
        // A new window forgets earlier successes.
        assert_eq!(after(&[(11, 1000, 1, 0), (12, 1020, 12, 0)]), [Degraded, Failed]);
    }
}
