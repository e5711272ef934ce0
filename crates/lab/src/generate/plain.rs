//! Textbook workloads: Zipf, uniform and scan, whose keys are replaced by new ones if there is churn.
//!
//! With a churn of c each of the n places of the popularity distribution gets a new key c times a day, each at its own
//! time of day, so the popularities stay and the keys pass. Without, nothing ever changes.

use super::extent::TraceExtent;
use crate::trace::{Op, Request};
use crate::workload::{Popularity, Random, Ranks, SizeDistribution, mix, unit};

const DAY: f64 = 86_400.0;

#[derive(Clone, Debug)]
pub(super) struct Plain {
    pub(super) popularity: Popularity,
    pub(super) exponent: f64,
    /// Keys at the head of Zipf's law that are about equally popular.
    pub(super) flat_head: u64,
    /// Variance of the requests of a second for each of their mean; `None` spaces them evenly.
    pub(super) dispersion: Option<f64>,
    pub(super) keys: u64,
    /// Share of the keys that new ones replace, per day.
    pub(super) churn: f64,
    pub(super) key_size: SizeDistribution,
    pub(super) value_size: SizeDistribution,
    pub(super) ttl_seconds: u32,
    pub(super) set_ratio: f64,
    pub(super) span_seconds: u64,
    pub(super) extent: TraceExtent,
}

impl Plain {
    pub(super) fn requests(&self) -> impl Iterator<Item = Request> + '_ {
        let TraceExtent { requests, seed, clock } = self.extent;
        let mut random = Random::new(seed, 0);
        let mut ranks = match self.popularity {
            Popularity::Zipf => Ranks::with_head(self.keys, self.exponent, self.flat_head),
            _ => Ranks::new(self.popularity, self.keys, self.exponent, 0),
        };
        let mut arrivals = ArrivalTimes::new(self.dispersion, self.span_seconds as f64 / requests as f64, seed);
        (0..requests).map(move |index| {
            let seconds = arrivals.next(index);
            let key = self.key_at(ranks.next(&mut random), seconds);
            let set = random.next_unit() < self.set_ratio;
            Request {
                time_seconds: clock.second(seconds),
                key,
                key_size: self.key_size.size_of(seed, key),
                value_size: self.value_size.size_of(mix(seed), key),
                op: if set { Op::Set } else { Op::Get },
                ttl_seconds: self.ttl_seconds,
            }
        })
    }

    /// The key that a place has at this time.
    fn key_at(&self, place: u64, seconds: f64) -> u64 {
        let phase = unit(mix(self.extent.seed ^ mix(place)));
        let generation = (seconds * self.churn / DAY + phase) as u64;
        place + generation * self.keys
    }
}

/// When requests arrive. Those of a burst arrive at one instant, bursts by chance. With sizes that are geometric, of
/// mean m, the requests of any interval have a variance of 2 m - 1 for each of their mean (a compound Poisson process).
struct ArrivalTimes {
    /// Mean seconds from one request to the next.
    step: f64,
    /// Probability that a request is the last of its burst; `None` spaces requests evenly.
    last: Option<f64>,
    seconds: f64,
    random: Random,
}

impl ArrivalTimes {
    fn new(dispersion: Option<f64>, step: f64, seed: u64) -> Self {
        let last = dispersion.map(|dispersion| 2.0 / (dispersion + 1.0));
        Self { step, last, seconds: 0.0, random: Random::new(seed, 1) }
    }

    /// Seconds from the start to the request of this number.
    fn next(&mut self, index: u64) -> f64 {
        let Some(last) = self.last else {
            return index as f64 * self.step;
        };
        let now = self.seconds;
        if self.random.next_unit() < last {
            self.seconds += self.random.next_exponential() * self.step / last;
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::generate::clock::DailyClock;

    fn plain(churn: f64, set_ratio: f64) -> Plain {
        Plain {
            popularity: Popularity::Uniform,
            exponent: 0.0,
            flat_head: 0,
            dispersion: None,
            keys: 1000,
            churn,
            key_size: SizeDistribution::Fixed(20),
            value_size: SizeDistribution::Range { low: 50, high: 150 },
            ttl_seconds: 60,
            set_ratio,
            span_seconds: 3 * 86_400,
            extent: TraceExtent { requests: 100_000, seed: 1, clock: DailyClock::Even },
        }
    }

    fn distinct(plain: &Plain) -> usize {
        plain.requests().map(|request| request.key).collect::<HashSet<u64>>().len()
    }

    #[test]
    fn churn_brings_new_keys() {
        assert_eq!(distinct(&plain(0.0, 0.0)), 1000);
        let found = distinct(&plain(0.5, 0.0));
        assert!((2450..2550).contains(&found), "{found}");
    }

    #[test]
    fn at_any_time_there_are_as_many_keys() {
        let churned = plain(2.0, 0.0);
        let hour: HashSet<u64> = (0..1000).map(|place| churned.key_at(place, 100_000.0)).collect();
        let next: HashSet<u64> = (0..1000).map(|place| churned.key_at(place, 103_600.0)).collect();
        assert_eq!((hour.len(), next.len()), (1000, 1000));
        let gone = hour.difference(&next).count();
        assert!((50..120).contains(&gone), "2 / 24 of the keys: {gone}");
    }

    #[test]
    fn bursts_have_the_dispersion_asked_for() {
        for dispersion in [1.0, 9.0] {
            let bursty = Plain { dispersion: Some(dispersion), span_seconds: 10_000, ..plain(0.0, 0.0) };
            let mut counts = vec![0.0; 11_000];
            bursty.requests().for_each(|request| counts[request.time_seconds as usize] += 1.0);
            let counts = &counts[..9_000];
            let mean = counts.iter().sum::<f64>() / counts.len() as f64;
            let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
            assert!((mean / 10.0 - 1.0).abs() < 0.05, "{mean}");
            assert!((variance / mean / dispersion - 1.0).abs() < 0.1, "{dispersion}: {}", variance / mean);
        }
    }

    #[test]
    fn requests_are_spread_over_the_span_and_mixed() {
        let requests: Vec<Request> = plain(0.0, 0.25).requests().collect();
        assert!(requests.is_sorted_by_key(|request| request.time_seconds));
        assert_eq!((requests[50_000].time_seconds, requests[99_999].time_seconds), (129_600, 259_197));
        let sets = requests.iter().filter(|request| request.op == Op::Set).count();
        assert!((24_400..25_600).contains(&sets), "{sets}");
        assert!(requests.iter().all(|r| (50..=150).contains(&r.value_size) && r.ttl_seconds == 60));
    }
}
