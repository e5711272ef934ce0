use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::load::Load;
use super::load_kind::LoadKind;
use super::schedule::Schedule;

/// Source of the next request for a thread's connections.
pub(super) struct Feed {
    pub(super) load: Load,
    /// Keys that were missed and are to be set next.
    pub(super) fills: VecDeque<u64>,
    schedule: Option<Schedule>,
    started: Instant,
    over: bool,
    unsent: u64,
}

/// A request to send.
pub(super) enum Task {
    /// Of the key with this number.
    Fill(u64),
    /// The load chooses the key.
    Write(LoadKind),
    /// A get of this number of keys, which the load chooses.
    Get(u16),
}

impl Feed {
    /// Without a schedule, there is always a next request.
    pub(super) fn new(load: Load, schedule: Option<Schedule>) -> Self {
        Self { load, fills: VecDeque::new(), schedule, started: Instant::now(), over: false, unsent: 0 }
    }

    /// Continues the load in a new phase with another schedule.
    pub(super) fn restart(&mut self, schedule: Option<Schedule>) {
        (self.schedule, self.over, self.unsent) = (schedule, false, 0);
    }

    /// Due times count from now on.
    pub(super) fn start(&mut self, now: Instant) {
        self.started = now;
    }

    /// The next request that is due, and since when. Fills go first and are due at once.
    pub(super) fn next(&mut self, now: Instant, stop: &AtomicBool) -> Option<(Task, Instant)> {
        if let Some(number) = self.fills.pop_front() {
            return Some((Task::Fill(number), now));
        }
        if self.over {
            return None;
        }
        if stop.load(Ordering::Relaxed) {
            self.over = true;
            let elapsed = now.duration_since(self.started);
            self.unsent = self.schedule.as_mut().map_or(0, |schedule| schedule.pass_over(elapsed));
            return None;
        }
        let since = match &self.schedule {
            None => now,
            Some(schedule) => Some(self.started + schedule.next_due()).filter(|&due| due <= now)?,
        };
        let Some((kind, keys)) = self.load.next(stop) else {
            self.over = true;
            return None;
        };
        if let Some(schedule) = &mut self.schedule {
            schedule.advance();
        }
        let task = match kind {
            LoadKind::Get => Task::Get(keys),
            write => Task::Write(write),
        };
        Some((task, since))
    }

    /// Whether requests are due by the clock.
    pub(super) fn is_paced(&self) -> bool {
        self.schedule.is_some()
    }

    /// True if only fills remain.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// How long until the next request is due by the clock.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let schedule = self.schedule.as_ref().filter(|_| !self.over)?;
        Some((self.started + schedule.next_due()).saturating_duration_since(now))
    }

    /// Requests that were due when the load was stopped, and had not been taken.
    pub(super) fn unsent(&self) -> u64 {
        self.unsent
    }
}
