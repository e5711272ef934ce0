//! Counts of the workers in each second, for the live line and for the log of latencies.
//!
//! ```text
//! watching thread   ask(second)                        take()
//! worker                         publish: its counts since the last time
//! ```
//! A worker compares a number once per chunk or round of answers. In a new second it copies its histograms, which takes
//! some 100 us. Counts of a worker that tells late belong to the next interval: none is lost, and none counts twice.

use std::cell::{Cell, RefCell};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;

use super::tally::{LatencyTally, empty_histogram};
use crate::format;

/// Counts of an interval, all workers together.
pub(super) struct Interval {
    pub(super) requests: u64,
    pub(super) gets: u64,
    pub(super) hits: u64,
    pub(super) errors: u64,
    /// In nanoseconds, as in the report.
    pub(super) get_latency: Histogram<u64>,
    pub(super) set_latency: Histogram<u64>,
    pub(super) delete_latency: Histogram<u64>,
}

impl Default for Interval {
    fn default() -> Self {
        let [get_latency, set_latency, delete_latency] = std::array::from_fn(|_| empty_histogram());
        Self { requests: 0, gets: 0, hits: 0, errors: 0, get_latency, set_latency, delete_latency }
    }
}

impl Interval {
    fn of(tally: &LatencyTally) -> Self {
        Self {
            requests: tally.requests(),
            gets: tally.gets,
            hits: tally.hits,
            errors: tally.errors,
            get_latency: tally.get_latency.clone(),
            set_latency: tally.set_latency.clone(),
            delete_latency: tally.delete_latency.clone(),
        }
    }

    pub(super) fn add(&mut self, other: &Interval) {
        self.requests += other.requests;
        self.gets += other.gets;
        self.hits += other.hits;
        self.errors += other.errors;
        self.get_latency += &other.get_latency;
        self.set_latency += &other.set_latency;
        self.delete_latency += &other.delete_latency;
    }

    /// The counts since `before`, an earlier state of the same worker.
    fn since(&self, before: &Interval) -> Self {
        let difference = |now: &Histogram<u64>, before: &Histogram<u64>| {
            let mut left = now.clone();
            left.subtract(before).expect("counts of a worker only grow");
            left
        };
        Self {
            requests: self.requests - before.requests,
            gets: self.gets - before.gets,
            hits: self.hits - before.hits,
            errors: self.errors - before.errors,
            get_latency: difference(&self.get_latency, &before.get_latency),
            set_latency: difference(&self.set_latency, &before.set_latency),
            delete_latency: difference(&self.delete_latency, &before.delete_latency),
        }
    }

    /// The line of an interval that ended at this second.
    pub(super) fn line(mut self, second: u64, seconds: u64) -> String {
        self.get_latency += &self.set_latency;
        self.get_latency += &self.delete_latency;
        let latency = |quantile| match self.get_latency.is_empty() {
            true => format::UNKNOWN.to_owned(),
            false => {
                let micros = self.get_latency.value_at_quantile(quantile) as f64 / 1000.0;
                format::scaled(micros, 1000.0, &[" us", " ms", " s"])
            }
        };
        let hits = (self.gets > 0).then(|| self.hits as f64 / self.gets as f64);
        let errors = match self.errors {
            0 => String::new(),
            errors => format!(" errors {}", format::count(Some(errors))),
        };
        format!(
            "{second:>4} s {:>8} hits {:>7} p50 {:>7} p99 {:>7} p99.9 {:>7}{errors}",
            format::rate(Some(self.requests as f64 / seconds as f64)),
            format::percent(hits),
            latency(0.5),
            latency(0.99),
            latency(0.999),
        )
    }
}

/// Counts published by the workers.
#[derive(Default)]
pub(super) struct IntervalBoard {
    /// The second whose counts the workers must publish.
    asked: AtomicU64,
    told: Mutex<Interval>,
}

impl IntervalBoard {
    /// Requests the counts of this second; false if they were requested before.
    pub(super) fn ask(&self, second: u64) -> bool {
        self.asked.swap(second, Ordering::Relaxed) != second
    }

    pub(super) fn take(&self) -> Interval {
        std::mem::take(&mut *self.told.lock().expect("no worker panics with the lock"))
    }
}

/// A worker's side.
pub(super) struct Publisher<'a> {
    board: &'a IntervalBoard,
    second: Cell<u64>,
    /// The counts that the worker has published.
    before: RefCell<Interval>,
}

impl<'a> Publisher<'a> {
    pub(super) fn new(board: &'a IntervalBoard) -> Self {
        Self { board, second: Cell::new(0), before: RefCell::default() }
    }

    /// Publishes if the counts of a new second were requested.
    pub(super) fn publish_if_due(&self, tally: &LatencyTally) {
        let asked = self.board.asked.load(Ordering::Relaxed);
        if self.second.replace(asked) != asked {
            self.publish(tally);
        }
    }

    pub(super) fn publish(&self, tally: &LatencyTally) {
        let now = Interval::of(tally);
        let counted = now.since(&self.before.borrow());
        self.board.told.lock().expect("no worker panics with the lock").add(&counted);
        self.before.replace(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_told_once_and_none_is_lost() {
        let board = IntervalBoard::default();
        let (publisher, mut tally) = (Publisher::new(&board), LatencyTally::default());
        let count = |requests: u64, tally: &mut LatencyTally| {
            tally.gets += requests;
            tally.hits += requests / 2;
            tally.get_latency.record_n(5_000, requests).unwrap();
        };
        count(10, &mut tally);
        publisher.publish_if_due(&tally);
        assert_eq!(board.take().requests, 0, "nobody has asked");
        assert!(board.ask(1) && !board.ask(1));
        publisher.publish_if_due(&tally);
        publisher.publish_if_due(&tally);
        count(6, &mut tally);
        publisher.publish(&tally);
        let told = board.take();
        assert_eq!((told.requests, told.hits, told.get_latency.len()), (16, 8, 16));
        assert_eq!(told.line(3, 1), "   3 s     16/s hits  50.0 % p50    5 us p99    5 us p99.9    5 us");
        assert_eq!(board.take().requests, 0);
    }

    #[test]
    fn a_line_fits_a_terminal_of_80_columns() {
        let mut interval =
            Interval { requests: 1_234_567, gets: 999, hits: 999, errors: 1_234_567, ..Default::default() };
        interval.get_latency.record_n(1_230_000, 999).unwrap();
        let line = interval.line(9999, 1);
        assert!(line.ends_with(" errors 1.23 M") && line.chars().count() <= 80, "{line}");
    }
}
