//! When the requests of an open loop are due: by the clock alone, however slow the server answers.
//!
//! ```text
//! constant   |  |  |  |  |  |  |  |      a request every 1/rate
//! poisson    | ||   |    |  | |    |     gaps drawn from the exponential distribution of that mean
//! bursty     |||       |||  |||          --burst at a time; the bursts come as a Poisson process
//! ```
//! A latency counts from the time at which a request was due. If the server, or this client, falls behind, the
//! latencies of waiting requests include the wait: no request is left out because it could not be sent in time.

use std::time::Duration;

use super::args::{Arrivals, BenchArgs};
use super::share::share;
use crate::generate::Pace;
use crate::workload::Random;

/// Stream of the arrivals; the keys of the same thread use another stream.
const STREAM: u64 = 1 << 32;

/// The due times of one thread's requests, from the start of the measurement.
pub(super) struct Schedule {
    arrivals: Arrivals,
    /// Mean seconds between two arrivals: of a request, or of a burst.
    gap_seconds: f64,
    /// The share of a gap by which this thread is behind the first one.
    phase: f64,
    random: Random,
    /// Requests that are due at the start, beside the others.
    at_once: u64,
    burst: u32,
    left_in_burst: u32,
    /// Arrivals so far, for constant distances that do not add up rounding errors.
    arrived: u64,
    next_seconds: f64,
}

impl Schedule {
    /// The thread's share of the requests.
    pub(super) fn new(args: &BenchArgs, Pace { rate, at_once }: Pace, thread: u16) -> Self {
        let burst = match args.arrivals {
            Arrivals::Bursty => args.burst,
            _ => 1,
        };
        let threads = f64::from(args.threads);
        let mut schedule = Self {
            arrivals: args.arrivals,
            gap_seconds: threads * f64::from(burst) / rate,
            phase: f64::from(thread) / threads,
            at_once: share(at_once, thread, args.threads),
            random: Random::new(args.seed, STREAM | u64::from(thread)),
            burst,
            left_in_burst: burst,
            arrived: 0,
            next_seconds: 0.0,
        };
        schedule.next_seconds = schedule.arrival();
        schedule
    }

    /// When the next request is due.
    pub(super) fn next_due(&self) -> Duration {
        if self.at_once > 0 { Duration::ZERO } else { Duration::from_secs_f64(self.next_seconds) }
    }

    /// The request that is due next has been taken up.
    pub(super) fn advance(&mut self) {
        if self.at_once > 0 {
            self.at_once -= 1;
            return;
        }
        self.left_in_burst -= 1;
        if self.left_in_burst == 0 {
            self.left_in_burst = self.burst;
            self.next_seconds = self.arrival();
        }
    }

    /// Passes over all requests that are due by `elapsed`, and counts them.
    pub(super) fn pass_over(&mut self, elapsed: Duration) -> u64 {
        let mut passed = 0;
        while self.next_due() <= elapsed {
            self.advance();
            passed += 1;
        }
        passed
    }

    fn arrival(&mut self) -> f64 {
        match self.arrivals {
            Arrivals::Constant => {
                let at = (self.arrived as f64 + self.phase) * self.gap_seconds;
                self.arrived += 1;
                at
            }
            Arrivals::Poisson | Arrivals::Bursty => {
                self.next_seconds - (1.0 - self.random.next_unit()).ln() * self.gap_seconds
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct TestArgs {
        #[command(flatten)]
        args: BenchArgs,
    }

    fn schedule(flags: &str, thread: u16) -> Schedule {
        let line = TestArgs::parse_from(std::iter::once("bench").chain(flags.split_whitespace()));
        Schedule::new(&line.args, Pace { rate: line.args.rate.unwrap(), at_once: 0 }, thread)
    }

    fn first(mut schedule: Schedule, count: usize) -> Vec<f64> {
        let due = std::iter::repeat_with(|| {
            let due = schedule.next_due().as_secs_f64();
            schedule.advance();
            due
        });
        due.take(count).collect()
    }

    #[test]
    fn constant_arrivals_of_all_threads_are_evenly_spaced() {
        let mut due: Vec<f64> =
            (0..4).flat_map(|thread| first(schedule("--rate 1000 --threads 4", thread), 25)).collect();
        due.sort_by(f64::total_cmp);
        for (number, due) in due.into_iter().enumerate() {
            assert!((due - number as f64 * 0.001).abs() < 1e-8, "{number}: {due}");
        }
        let far = first(schedule("--rate 3", 0), 3_000_001);
        assert!((far[3_000_000] - 1e6).abs() < 1e-8);
    }

    #[test]
    fn poisson_gaps_have_their_mean_and_their_spread() {
        let due = first(schedule("--rate 2000 --threads 2 --arrivals poisson", 1), 100_001);
        let gaps: Vec<f64> = due.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        assert!((mean - 0.001).abs() < 2e-5, "{mean}");
        // As of every exponential distribution, the share above the mean is 1/e.
        let long = gaps.iter().filter(|&&gap| gap > 0.001).count() as f64 / gaps.len() as f64;
        assert!((long - (-1.0f64).exp()).abs() < 0.01, "{long}");
    }

    #[test]
    fn bursts_come_together_and_keep_the_rate() {
        let due = first(schedule("--rate 1000 --arrivals bursty --burst 8", 0), 80_000);
        for burst in due.chunks(8) {
            assert!(burst.iter().all(|at| *at == burst[0]), "{burst:?}");
        }
        let rate = due.len() as f64 / due[due.len() - 1];
        assert!((970.0..1030.0).contains(&rate), "{rate}");
    }

    #[test]
    fn the_first_burst_is_due_at_once() {
        let args = TestArgs::parse_from(["bench", "--threads", "3"]).args;
        for thread in 0..3 {
            let due = first(Schedule::new(&args, Pace { rate: 30.0, at_once: 10 }, thread), 6);
            let shares = [3, 3, 4];
            let at_once = due.iter().filter(|at| **at == 0.0).count();
            assert_eq!(at_once, shares[usize::from(thread)] + usize::from(thread == 0), "{due:?}");
            assert!((due[5] - due[4] - 0.1).abs() < 1e-9, "{due:?}");
        }
    }

    #[test]
    fn what_was_due_and_not_sent_is_counted() {
        let mut schedule = schedule("--rate 1000", 0);
        schedule.advance();
        assert_eq!(schedule.pass_over(Duration::from_micros(4500)), 4);
        assert_eq!(schedule.next_due(), Duration::from_millis(5));
    }
}
