//! How far a long command is: on a terminal a line that is redrawn, else a line every ten seconds.

use std::cell::Cell;
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use ebbtide::message;
use indicatif::{ProgressBar, ProgressStyle};

use crate::format;
use crate::locale::takes_utf8;

/// Between two lines where standard error is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Progress of a count. Shown on standard error; finish it before something else is printed.
pub(crate) struct Progress {
    unit: &'static str,
    /// The time or the count at which the command ends; zero if it is not known.
    total: u64,
    bar: Option<ProgressBar>,
    started: Instant,
    next_line: Cell<Instant>,
}

impl Progress {
    /// `unit`: the unit of positions; `total`: the position at the end.
    pub(crate) fn new(unit: &'static str, total: u64) -> Self {
        let started = Instant::now();
        let bar = stderr().is_terminal().then(|| {
            let template = if total > 0 { "{bar:30} {msg}, {eta} left" } else { "{spinner} {msg}" };
            ProgressBar::new(total).with_style(style(template, takes_utf8()))
        });
        Self { unit, total, bar, started, next_line: Cell::new(started + LINE_INTERVAL) }
    }

    /// `count` of the unit are done, and the command is at `position` of the total.
    pub(crate) fn show(&self, count: u64, position: u64) {
        match &self.bar {
            Some(bar) => {
                bar.set_position(position.min(self.total));
                bar.set_message(self.words(count));
            }
            None if Instant::now() >= self.next_line.get() => {
                self.next_line.set(Instant::now() + LINE_INTERVAL);
                message!("{}{}", self.words(count), self.left(position));
            }
            None => {}
        }
    }

    fn words(&self, count: u64) -> String {
        let seconds = self.started.elapsed().as_secs_f64();
        let rate = format::rate(Some(count as f64 / seconds.max(1e-3)));
        format!("{} {}, {rate}", format::count(Some(count)), self.unit)
    }

    fn left(&self, position: u64) -> String {
        if position == 0 || self.total == 0 {
            return String::new();
        }
        let seconds = self.started.elapsed().as_secs_f64() * (self.total as f64 / position as f64 - 1.0);
        format!(", {:.0} % done, {seconds:.0} s left", position as f64 * 100.0 / self.total as f64)
    }

    /// Takes the line away.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The style of a bar, in ASCII where the terminal does not take UTF-8.
pub(crate) fn style(template: &str, is_utf8: bool) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).expect("a fixed template");
    if is_utf8 { style } else { style.progress_chars("#>.").tick_chars("|/-\\ ") }
}
