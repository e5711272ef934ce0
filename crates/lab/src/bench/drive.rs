//! Runs the threads of one phase: starts them together, shows how far they are, stops them when the time is over.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::Error;

/// How often the bar moves; the end of a phase is noticed within this time too.
const TICK: Duration = Duration::from_millis(20);

/// When a phase ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum RunEnd {
    After(Duration),
    /// When the threads have sent so many requests.
    Requests(u64),
}

/// What a thread sees of its phase.
pub(super) struct Meter<'a> {
    pub(super) stop: &'a AtomicBool,
    progress: &'a WorkerProgress,
}

/// On a cache line of its own, so that threads do not slow each other by counting.
#[derive(Default)]
#[repr(align(128))]
struct WorkerProgress(AtomicU64);

impl Meter<'_> {
    /// Tells how many requests the thread has sent so far.
    pub(super) fn set(&self, requests: u64) {
        self.progress.0.store(requests, Ordering::Relaxed);
    }
}

/// Calls `work` in a thread for each worker and waits for all. Returns the workers, and the time that they took. The
/// first error stops all threads.
pub(super) fn drive<W: Send>(
    title: &'static str,
    workers: Vec<W>,
    end: RunEnd,
    work: impl Fn(&mut W, &Meter<'_>) -> Result<(), Error> + Sync,
) -> Result<(Vec<W>, Duration), Error> {
    let stop = AtomicBool::new(false);
    let running = AtomicUsize::new(workers.len());
    let progress: Vec<WorkerProgress> = workers.iter().map(|_| WorkerProgress::default()).collect();
    let start_line = Barrier::new(workers.len() + 1);
    let run = |mut worker: W, progress| {
        let _count = CountOnDrop(&running);
        start_line.wait();
        let started = Instant::now();
        let meter = Meter { stop: &stop, progress };
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
        watch(title, end, start, &stop, &running, &progress);
        // This thread may be late at the line: the workers say when they began.
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
        Ok((done, last.duration_since(first)))
    })
}

/// Counts a thread out however it ends.
struct CountOnDrop<'a>(&'a AtomicUsize);

impl Drop for CountOnDrop<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn watch(
    title: &'static str,
    end: RunEnd,
    start: Instant,
    stop: &AtomicBool,
    running: &AtomicUsize,
    progress: &[WorkerProgress],
) {
    let bar = bar(title, end);
    while running.load(Ordering::Relaxed) > 0 {
        let requests: u64 = progress.iter().map(|p| p.0.load(Ordering::Relaxed)).sum();
        let elapsed = start.elapsed();
        let rate = requests as f64 / elapsed.as_secs_f64().max(1e-9);
        bar.set_message(format!("{rate:.0} requests/s"));
        match end {
            RunEnd::Requests(_) => bar.set_position(requests),
            RunEnd::After(duration) => {
                bar.set_position(elapsed.min(duration).as_millis() as u64);
                if elapsed >= duration {
                    stop.store(true, Ordering::Relaxed);
                }
            }
        }
        let rest = match end {
            RunEnd::After(duration) => duration.saturating_sub(elapsed),
            RunEnd::Requests(_) => TICK,
        };
        thread::sleep(TICK.min(rest.max(Duration::from_millis(1))));
    }
    bar.finish_and_clear();
}

/// Shown on a terminal only.
fn bar(title: &'static str, end: RunEnd) -> ProgressBar {
    let length = match end {
        RunEnd::After(duration) => duration.as_millis() as u64,
        RunEnd::Requests(requests) => requests,
    };
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {percent}% {msg}").expect("the template is valid");
    ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr()).with_style(style).with_prefix(title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_stops_all_workers() {
        let end = RunEnd::After(Duration::from_millis(5));
        let (workers, elapsed) = drive("test", vec![0u64; 2], end, |worker, meter| {
            // A worker that is late finds that the time is over.
            loop {
                *worker += 1;
                meter.set(*worker);
                if meter.stop.load(Ordering::Relaxed) {
                    break Ok(());
                }
            }
        })
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
        let outcome = drive("test", vec![0, 1], RunEnd::Requests(1), |worker, meter| {
            if *worker == 0 {
                return Err(Error::Protocol { target: "test".into(), reason: "broken".into() });
            }
            while !meter.stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            Ok(())
        });
        assert!(matches!(outcome, Err(Error::Protocol { .. })));
    }
}
