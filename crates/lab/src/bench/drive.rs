//! Runs the threads of one phase: starts them together, shows how far they are, stops them when the time is over.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ebbtide::message;
use indicatif::{ProgressBar, ProgressDrawTarget};

use super::interval::{Interval, IntervalBoard, Publisher};
use super::tally::LatencyTally;
use crate::Error;
use crate::format;
use crate::locale::takes_utf8;
use crate::progress::style;

/// How often the bar moves; the end of a phase is noticed within this time too.
const TICK: Duration = Duration::from_millis(20);
/// The length of an interval of the log and of the live line.
const SECOND: Duration = Duration::from_secs(1);
/// Intervals of one line where standard error is no terminal.
const SECONDS_OF_A_LINE: u64 = 10;

/// When a phase ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum RunEnd {
    After(Duration),
    /// When the threads have sent this number of requests.
    Requests(u64),
}

/// A thread's view of its phase.
pub(super) struct Meter<'a> {
    pub(super) stop: &'a AtomicBool,
    progress: &'a WorkerProgress,
    publisher: Publisher<'a>,
}

/// On a cache line of its own, so that threads do not slow each other by counting.
#[derive(Default)]
#[repr(align(128))]
struct WorkerProgress(AtomicU64);

impl Meter<'_> {
    /// Publishes the number of requests that the thread has sent.
    pub(super) fn set(&self, requests: u64) {
        self.progress.0.store(requests, Ordering::Relaxed);
    }

    /// Publishes the requests so far, and once a second the counts since the last call.
    pub(super) fn note(&self, tally: &LatencyTally) {
        self.set(tally.requests());
        self.publisher.publish_if_due(tally);
    }

    /// The thread is done: publishes the remaining counts.
    pub(super) fn finish(&self, tally: &LatencyTally) {
        self.set(tally.requests());
        self.publisher.publish(tally);
    }
}

/// Receives each interval of a phase: its start since the phase began, its length, and its counts.
pub(super) type IntervalSink<'a> = &'a mut dyn FnMut(Duration, Duration, &Interval) -> Result<(), Error>;

/// Calls `work` in a thread for each worker and waits for all. Returns the workers, and the time that they took. The
/// first error stops all threads.
pub(super) fn drive<W: Send>(
    title: &'static str,
    workers: Vec<W>,
    end: RunEnd,
    work: impl Fn(&mut W, &Meter<'_>) -> Result<(), Error> + Sync,
    sink: Option<IntervalSink<'_>>,
) -> Result<(Vec<W>, Duration), Error> {
    let board = IntervalBoard::default();
    let stop = AtomicBool::new(false);
    let running = AtomicUsize::new(workers.len());
    let progress: Vec<WorkerProgress> = workers.iter().map(|_| WorkerProgress::default()).collect();
    let start_line = Barrier::new(workers.len() + 1);
    let run = |mut worker: W, progress| {
        let _count = CountOnDrop(&running);
        start_line.wait();
        let started = Instant::now();
        let meter = Meter { stop: &stop, progress, publisher: Publisher::new(&board) };
        let outcome = work(&mut worker, &meter);
        if outcome.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        outcome.map(|()| (worker, started, Instant::now()))
    };
    let run = &run;
    thread::scope(|scope| {
        let threads: Vec<_> = workers
            .into_iter()
            .zip(&progress)
            .map(|(worker, progress)| scope.spawn(move || run(worker, progress)))
            .collect();
        start_line.wait();
        let start = Instant::now();
        let watched = watch(&Phase { title, end, start, stop: &stop, running: &running }, &progress, &board, sink);
        // This thread may pass the barrier late: the workers report their start times.
        let (mut done, mut first, mut last) = (Vec::new(), start, start);
        for thread in threads {
            match thread.join() {
                Ok(outcome) => {
                    let (worker, started, ended) = outcome?;
                    done.push(worker);
                    first = first.min(started);
                    last = last.max(ended);
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        watched.map(|()| (done, last.duration_since(first)))
    })
}

/// Counts a thread out however it ends.
struct CountOnDrop<'a>(&'a AtomicUsize);

impl Drop for CountOnDrop<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// State of the watching thread in a phase.
struct Phase<'a> {
    title: &'static str,
    end: RunEnd,
    start: Instant,
    stop: &'a AtomicBool,
    running: &'a AtomicUsize,
}

/// Waits for the workers. An error of the sink stops them.
fn watch(
    phase: &Phase<'_>,
    progress: &[WorkerProgress],
    board: &IntervalBoard,
    sink: Option<IntervalSink<'_>>,
) -> Result<(), Error> {
    let Phase { title, end, start, stop, running } = phase;
    let bar = bar(title, *end);
    let mut intervals =
        Intervals { bar: &bar, sink, board, taken: Duration::ZERO, shown: 0, unshown: Interval::default() };
    let mut outcome = Ok(());
    while running.load(Ordering::Relaxed) > 0 {
        let requests: u64 = progress.iter().map(|p| p.0.load(Ordering::Relaxed)).sum();
        let elapsed = start.elapsed();
        let rate = requests as f64 / elapsed.as_secs_f64().max(1e-9);
        bar.set_message(format!("{} requests, {}", format::count(Some(requests)), format::rate(Some(rate))));
        match end {
            RunEnd::Requests(_) => bar.set_position(requests),
            RunEnd::After(duration) => {
                bar.set_position(elapsed.min(*duration).as_millis() as u64);
                if elapsed >= *duration {
                    stop.store(true, Ordering::Relaxed);
                }
            }
        }
        if outcome.is_ok() {
            outcome = intervals.advance(elapsed);
            if outcome.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
        }
        let rest = match end {
            RunEnd::After(duration) => duration.saturating_sub(elapsed),
            RunEnd::Requests(_) => TICK,
        };
        thread::sleep(TICK.min(rest.max(Duration::from_millis(1))));
    }
    let outcome = outcome.and_then(|()| intervals.take(start.elapsed()));
    bar.finish_and_clear();
    outcome
}

/// The seconds of a phase as they pass.
struct Intervals<'a, 's> {
    bar: &'a ProgressBar,
    sink: Option<IntervalSink<'s>>,
    board: &'a IntervalBoard,
    /// Up to which time the intervals were taken.
    taken: Duration,
    /// The second of the last line where standard error is no terminal.
    shown: u64,
    /// Counts that no line has shown yet.
    unshown: Interval,
}

impl Intervals<'_, '_> {
    /// Requests the counts of the past second from the workers; the next call collects them.
    fn advance(&mut self, elapsed: Duration) -> Result<(), Error> {
        if self.sink.is_none() || elapsed < self.taken + SECOND {
            return Ok(());
        }
        // The workers publish when they see a new second, so the interval ends one tick later.
        if self.board.ask(elapsed.as_secs()) {
            return Ok(());
        }
        self.take(elapsed)?;
        let seconds = elapsed.as_secs();
        if !self.bar.is_hidden() {
            self.bar.println(std::mem::take(&mut self.unshown).line(seconds, 1));
        } else if seconds >= self.shown + SECONDS_OF_A_LINE {
            message!("{}", std::mem::take(&mut self.unshown).line(seconds, seconds - self.shown));
            self.shown = seconds;
        }
        Ok(())
    }

    fn take(&mut self, elapsed: Duration) -> Result<(), Error> {
        let interval = self.board.take();
        if let Some(sink) = &mut self.sink {
            sink(self.taken, elapsed.saturating_sub(self.taken), &interval)?;
        }
        self.taken = elapsed;
        self.unshown.add(&interval);
        Ok(())
    }
}

/// Shown on a terminal only.
fn bar(title: &'static str, end: RunEnd) -> ProgressBar {
    let length = match end {
        RunEnd::After(duration) => duration.as_millis() as u64,
        RunEnd::Requests(requests) => requests,
    };
    let style = style("{prefix} {wide_bar} {percent}% {msg}", takes_utf8());
    ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr()).with_style(style).with_prefix(title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_stops_all_workers() {
        let end = RunEnd::After(Duration::from_millis(5));
        let (workers, elapsed) = drive(
            "test",
            vec![0u64; 2],
            end,
            |worker, meter| {
                // A worker that is late finds that the time is over.
                loop {
                    *worker += 1;
                    meter.set(*worker);
                    if meter.stop.load(Ordering::Relaxed) {
                        break Ok(());
                    }
                }
            },
            None,
        )
        .unwrap();
        assert!(workers.iter().all(|&turns| turns > 0));
        assert!(elapsed >= end_of(end));
    }

    fn end_of(end: RunEnd) -> Duration {
        match end {
            RunEnd::After(duration) => duration,
            RunEnd::Requests(_) => unreachable!(),
        }
    }

    #[test]
    fn an_error_stops_the_others() {
        let outcome = drive(
            "test",
            vec![0, 1],
            RunEnd::Requests(1),
            |worker, meter| {
                if *worker == 0 {
                    return Err(Error::Protocol { target: "test".into(), reason: "broken".into() });
                }
                while !meter.stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                Ok(())
            },
            None,
        );
        assert!(matches!(outcome, Err(Error::Protocol { .. })));
    }
}
