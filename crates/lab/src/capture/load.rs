//! The load of the server during a capture, by its own counters.
//!
//! A sample of few keys says little of the load where few keys have most of it, and a server that no longer answers
//! looks like one without clients. So a second connection asks for `stats` every second, and each answer has a time
//! limit.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::Error;
use crate::top::{RequestCounts, StatsSource};

/// Time between two questions.
const PERIOD: Duration = Duration::from_secs(1);

/// Requests that a server has counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CountedLoad {
    requests: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
    time: Duration,
}

impl CountedLoad {
    /// Requests per second; `None` without a time between two answers.
    pub(super) fn per_second(&self) -> Option<f64> {
        (!self.time.is_zero()).then(|| self.requests as f64 / self.time.as_secs_f64())
    }

    /// Counts from one answer to the next. Nothing if the counters were reset between them.
    fn add(&mut self, before: &RequestCounts, after: &RequestCounts) {
        let more = |count: fn(&RequestCounts) -> u64| count(after).checked_sub(count(before));
        let all = (more(|counts| counts.requests), more(|counts| counts.hits), more(|counts| counts.misses));
        if let (Some(requests), Some(hits), Some(misses)) = all {
            self.requests += requests;
            self.hits += hits;
            self.misses += misses;
            self.time += after.taken - before.taken;
        }
    }
}

/// The thread that asks the server.
pub(super) struct LoadMeter {
    failure: Arc<OnceLock<String>>,
    end: Sender<()>,
    thread: JoinHandle<CountedLoad>,
}

impl LoadMeter {
    /// Asks for the first time.
    pub(super) fn start(mut source: StatsSource) -> Result<Self, Error> {
        let first = source.requests()?;
        let failure = Arc::new(OnceLock::new());
        let (end, ended) = mpsc::channel::<()>();
        let failed = Arc::clone(&failure);
        let thread = thread::spawn(move || {
            let (mut load, mut before) = (CountedLoad::default(), first);
            loop {
                let is_last = ended.recv_timeout(PERIOD) != Err(RecvTimeoutError::Timeout);
                match source.requests() {
                    Ok(after) => {
                        load.add(&before, &after);
                        before = after;
                    }
                    Err(error) => {
                        let _ = failed.set(reason(error));
                        return load;
                    }
                }
                if is_last {
                    return load;
                }
            }
        });
        Ok(Self { failure, end, thread })
    }

    /// Whether the server no longer answers.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    /// Asks for the last time. The load until the last answer, and why there was no later one, if so.
    pub(super) fn finish(self) -> (CountedLoad, Option<String>) {
        drop(self.end);
        let load = self.thread.join().expect("it does not panic");
        (load, self.failure.get().cloned())
    }
}

/// The report names the server.
fn reason(error: Error) -> String {
    match error {
        Error::Connection { source, .. } => format!("{source} to stats"),
        Error::Protocol { reason, .. } => reason,
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_reset_of_the_counters_is_left_out() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut load = CountedLoad::default();
        assert_eq!(load.per_second(), None);
        let counts = |seconds, requests| RequestCounts {
            taken: at(seconds),
            requests,
            hits: requests / 2,
            misses: requests / 10,
        };
        load.add(&counts(0, 1000), &counts(1, 3000));
        load.add(&counts(1, 3000), &counts(2, 10));
        load.add(&counts(2, 10), &counts(4, 4010));
        assert_eq!((load.per_second(), load.hits, load.misses), (Some(2000.0), 3000, 600));
    }
}
