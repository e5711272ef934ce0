//! Cuts a trace into batches of requests that happen at one instant of the replay.
//!
//! Traces have whole seconds. A batch ends where the second ends, or after [`BATCH`] requests. How many requests a
//! second has is not known before it is over, so batches within one are placed as if it had as many as the second
//! before: the batch that begins with request k of the second is at k / rate, and never past the last millisecond.
//! Time never goes back: a request with an earlier time happens now, and is counted.

use std::time::Duration;

use ebbtide::message;

use crate::Error;
use crate::trace::Request;

/// Requests between two steps of time, at most: so few that even in a small cache maintenance comes often enough.
pub(super) const BATCH: usize = 1024;

/// The last instant of a second that batches are placed at.
const LAST_MILLISECOND: u64 = 999;

/// Malformed lines that are reported one by one; the rest is only counted.
const REPORTED_LINES: u64 = 10;

/// A request, and the number of the pool to which it belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routed {
    pub(crate) request: Request,
    pub(crate) pool: usize,
}

/// The requests of a trace, batch by batch; `source` gives the next one, `None` at the end.
pub(crate) struct Batches<S> {
    source: S,
    strict: bool,
    next: Option<Routed>,
    origin: u64,
    second: u64,
    /// Requests already handed out of the current second.
    handed_out: u64,
    /// Requests of the second before it; 0 if there is none.
    rate: u64,
    pub(super) malformed: u64,
    pub(super) time_steps_back: u64,
}

impl<S: FnMut() -> Result<Option<Routed>, Error>> Batches<S> {
    /// Reads the first request.
    pub(crate) fn new(source: S, strict: bool) -> Result<Self, Error> {
        let mut batches = Self {
            source,
            strict,
            next: None,
            origin: 0,
            second: 0,
            handed_out: 0,
            rate: 0,
            malformed: 0,
            time_steps_back: 0,
        };
        batches.next = batches.read()?;
        batches.origin = batches.next.map_or(0, |routed| routed.request.time_seconds);
        batches.second = batches.origin;
        Ok(batches)
    }

    /// Whether there is not one request.
    pub(super) fn is_empty(&self) -> bool {
        self.next.is_none()
    }

    /// Hands each request of the next batch to `take`. Returns the time of the batch since the first request, or
    /// `None` at the end of the trace.
    pub(crate) fn next_batch(&mut self, mut take: impl FnMut(Routed)) -> Result<Option<Duration>, Error> {
        let Some(first) = self.next else {
            return Ok(None);
        };
        if first.request.time_seconds > self.second {
            self.second = first.request.time_seconds;
            self.rate = self.handed_out;
            self.handed_out = 0;
        }
        let now = self.instant();
        for _ in 0..BATCH {
            let Some(routed) = self.next.filter(|next| next.request.time_seconds <= self.second) else {
                break;
            };
            self.time_steps_back += u64::from(routed.request.time_seconds < self.second);
            self.handed_out += 1;
            take(routed);
            self.next = self.read()?;
        }
        Ok(Some(now))
    }

    fn instant(&self) -> Duration {
        let milliseconds = match self.rate {
            0 => 0,
            rate => (self.handed_out * 1000 / rate).min(LAST_MILLISECOND),
        };
        Duration::from_secs(self.second - self.origin) + Duration::from_millis(milliseconds)
    }

    /// The next request; malformed lines are passed over, or end the replay, as `strict` says.
    fn read(&mut self) -> Result<Option<Routed>, Error> {
        loop {
            match (self.source)() {
                Err(error @ Error::Malformed { .. }) if !self.strict => {
                    self.malformed += 1;
                    if self.malformed <= REPORTED_LINES {
                        message!("{error}; skipped");
                    }
                }
                result => return result,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Op;

    /// (milliseconds, requests) of each batch of a trace with requests at these seconds, and the steps back of its
    /// time.
    fn batches_of(seconds: impl IntoIterator<Item = u64>) -> (Vec<(u128, usize)>, u64) {
        let request =
            |time_seconds| Request { time_seconds, key: 1, key_size: 8, value_size: 8, op: Op::Get, ttl_seconds: 0 };
        let mut requests = seconds.into_iter().map(request).map(|request| Routed { request, pool: 0 });
        let mut batches = Batches::new(|| Ok(requests.next()), true).unwrap();
        let mut found = Vec::new();
        loop {
            let mut requests = 0;
            match batches.next_batch(|_| requests += 1).unwrap() {
                Some(now) => found.push((now.as_millis(), requests)),
                None => return (found, batches.time_steps_back),
            }
        }
    }

    #[test]
    fn time_starts_at_the_first_request() {
        let (found, _) = batches_of([100, 100, 101, 105]);
        assert_eq!(found, [(0, 2), (1000, 1), (5000, 1)]);
    }

    #[test]
    fn a_busy_second_spreads_like_its_predecessor() {
        let busy = |second| std::iter::repeat_n(second, 4 * BATCH);
        let (found, _) = batches_of(busy(7).chain(busy(8)).chain(busy(9)).chain(busy(9)));
        let instants: Vec<u128> = found.iter().map(|batch| batch.0).collect();
        assert!(found.iter().all(|batch| batch.1 == BATCH));
        assert_eq!(instants[..4], [0; 4]);
        assert_eq!(instants[4..8], [1000, 1250, 1500, 1750]);
        assert_eq!(instants[8..12], [2000, 2250, 2500, 2750]);
        assert_eq!(instants[12..], [2999; 4]);
    }

    #[test]
    fn time_does_not_go_back() {
        let (found, steps_back) = batches_of([10, 20, 15, 20, 21]);
        assert_eq!(found, [(0, 1), (10_000, 3), (11_000, 1)]);
        assert_eq!(steps_back, 1);
        let first_of_a_batch = std::iter::repeat_n(20, BATCH).chain([15]);
        let (found, steps_back) = batches_of(first_of_a_batch);
        assert_eq!(found, [(0, BATCH), (0, 1)]);
        assert_eq!(steps_back, 1);
    }
}
