//! Keeps what is written to flash at a rate, by the share of the offered bytes that is admitted.
//!
//! ```text
//! every 10 s:   wanted = rate + what was saved or overdrawn, spread over 10 min      share *= wanted / written
//! ```
//! All bytes written to the device count, whatever the cause: rewrites of pages and regions take part of the budget.

/// Shorter ones would follow the bursts of regions that are sealed.
const INTERVAL: u32 = 10;
/// Over how many seconds a balance is brought to zero, and of how many seconds at the rate it is at most.
const BALANCE: f64 = 600.0;
const MIN_SHARE: f64 = 1e-4;
/// Maximum factor by which the share changes at once: writes follow an admission after a delay.
const STEP: f64 = 2.0;

/// A limit of the bytes that may be written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WriteBudget {
    BytesPerSecond(u64),
    /// Writes of the whole device per day. Drives are rated for a number like 1 or 3 over five years.
    DriveWritesPerDay(f64),
}

impl WriteBudget {
    /// The budget of a device of `capacity` bytes.
    pub fn bytes_per_second(self, capacity: u64) -> f64 {
        match self {
            Self::BytesPerSecond(bytes) => bytes as f64,
            Self::DriveWritesPerDay(writes) => writes * capacity as f64 / 86_400.0,
        }
    }
}

pub(super) struct RateController {
    rate: f64,
    share: f64,
    /// Bytes that were not written, or more than that.
    saved: f64,
    /// Bytes written for each byte admitted, 1 at least.
    cost: f64,
    last: Option<Observation>,
}

/// The state at the beginning of an interval: its second, and bytes since the start.
#[derive(Clone, Copy)]
struct Observation {
    second: u32,
    written: u64,
    admitted: u64,
}

impl RateController {
    pub fn new(rate: f64) -> Self {
        Self { rate, share: 1.0, saved: 0.0, cost: 1.0, last: None }
    }

    pub fn bytes_per_second(&self) -> f64 {
        self.rate
    }

    /// The share of offered bytes to admit, from 0.0001 to 1.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// Whether budget is left for a write that nothing requires. `admitted` counts bytes since the start: they are
    /// written later, at the cost that writes have had so far.
    pub fn has_left(&self, now: u32, admitted: u64) -> bool {
        self.last.is_some_and(|last| {
            let earned = self.rate * f64::from(now.saturating_sub(last.second));
            self.saved + earned > admitted.saturating_sub(last.admitted) as f64 * self.cost
        })
    }

    /// Takes the bytes that were written and admitted since the start. True when an interval is over.
    pub fn observe(&mut self, now: u32, written_total: u64, admitted_total: u64) -> bool {
        let present = Observation { second: now, written: written_total, admitted: admitted_total };
        let Some(last) = self.last else {
            self.last = Some(present);
            return false;
        };
        let seconds = now.saturating_sub(last.second);
        if seconds < INTERVAL {
            return false;
        }
        self.last = Some(present);
        self.cost = (written_total as f64 / admitted_total.max(1) as f64).max(1.0);
        let (seconds, written) = (f64::from(seconds), written_total.saturating_sub(last.written) as f64);
        let max = self.rate * BALANCE;
        self.saved = (self.saved + self.rate * seconds - written).clamp(-max, max);
        let wanted = (self.rate + self.saved / BALANCE) * seconds;
        let factor = if written > 0.0 { wanted / written } else { STEP };
        self.share = (self.share * factor.clamp(1.0 / STEP, STEP)).clamp(MIN_SHARE, 1.0);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes written in a number of seconds, for an offered rate and a cost per byte.
    fn written(
        rate_controller: &mut RateController,
        seconds: std::ops::Range<u32>,
        offered: f64,
        cost: f64,
        total: &mut f64,
    ) -> f64 {
        let before = *total;
        for now in seconds {
            *total += offered * rate_controller.share() * cost;
            rate_controller.observe(now + 1, *total as u64, (*total / cost) as u64);
        }
        *total - before
    }

    #[test]
    fn the_rate_holds_at_any_load_and_cost() {
        let (mut rate_controller, mut total) = (RateController::new(1000.0), 0.0);
        for (i, (offered, cost)) in
            [(10_000.0, 1.0), (100_000.0, 1.0), (10_000.0, 5.0), (3_000.0, 1.2)].into_iter().enumerate()
        {
            let begin = i as u32 * 20_000;
            written(&mut rate_controller, begin..begin + 10_000, offered, cost, &mut total);
            let rate =
                written(&mut rate_controller, begin + 10_000..begin + 20_000, offered, cost, &mut total) / 10_000.0;
            assert!((950.0..1050.0).contains(&rate), "{rate} bytes per second");
        }
        assert!((total / 80_000.0 - 1000.0).abs() < 20.0, "over all: {}", total / 80_000.0);
    }

    #[test]
    fn everything_is_admitted_where_there_is_little() {
        let (mut rate_controller, mut total) = (RateController::new(1000.0), 0.0);
        written(&mut rate_controller, 0..1000, 900.0, 1.0, &mut total);
        assert_eq!(rate_controller.share(), 1.0);
    }

    #[test]
    fn a_lull_is_made_good_within_minutes() {
        let (mut rate_controller, mut total) = (RateController::new(1000.0), 0.0);
        for begin in (0..40_000).step_by(400) {
            written(&mut rate_controller, begin..begin + 200, 0.0, 1.0, &mut total);
            written(&mut rate_controller, begin + 200..begin + 400, 10_000.0, 1.0, &mut total);
        }
        assert!((900.0..1100.0).contains(&(total / 40_000.0)), "{} bytes per second", total / 40_000.0);
    }

    #[test]
    fn what_was_saved_is_bounded() {
        let (mut rate_controller, mut total) = (RateController::new(1000.0), 0.0);
        written(&mut rate_controller, 0..100_000, 0.0, 1.0, &mut total);
        let burst = written(&mut rate_controller, 100_000..103_600, 10_000.0, 1.0, &mut total);
        assert!(burst < 3600.0 * 1000.0 + 2.0 * 600.0 * 1000.0, "{burst}");
    }

    #[test]
    fn optional_writes_use_only_the_remaining_budget() {
        let mut rate_controller = RateController::new(1000.0);
        assert!(!rate_controller.has_left(0, 0), "before the first look");
        rate_controller.observe(0, 0, 0);
        assert!(rate_controller.has_left(9, 8_999) && !rate_controller.has_left(9, 9_000));
        // Each byte that was admitted has cost two.
        rate_controller.observe(10, 4_000, 2_000);
        assert!(rate_controller.has_left(10, 4_999) && !rate_controller.has_left(10, 5_000), "6000 are left");
        rate_controller.observe(20, 30_000, 15_000);
        assert!(!rate_controller.has_left(29, 15_000) && rate_controller.has_left(31, 15_000), "10000 too many");
    }

    #[test]
    fn drive_writes_per_day_are_of_the_capacity() {
        assert_eq!(WriteBudget::DriveWritesPerDay(2.0).bytes_per_second(86_400 * 1000), 2000.0);
        assert_eq!(WriteBudget::BytesPerSecond(5).bytes_per_second(1), 5.0);
    }
}
