//! History of the counters: a point per second for fifteen minutes, and a point per minute for a week.

use std::collections::VecDeque;

use super::events::Event;
use super::history_file::HistoryFile;
use super::history_point::{HistoryPoint, MINUTE_MS, MINUTES};

/// Number of one-second points that are kept.
const SECONDS: usize = 15 * 60;
/// Maximum number of points in an answer; for a longer time a point covers several minutes.
const MAX_POINTS: u64 = 1000;

/// The points, oldest first.
#[derive(Debug, Default)]
pub struct History {
    seconds: VecDeque<HistoryPoint>,
    /// The last one is of the present minute.
    minutes: VecDeque<HistoryPoint>,
    file: Option<HistoryFile>,
}

impl History {
    /// Begins with the minutes of the file, and writes each further one there.
    pub fn with_file(file: Option<HistoryFile>, now_unix_ms: u64) -> Self {
        let minutes = file.as_ref().map_or_else(Vec::new, |file| file.read(now_unix_ms));
        Self { seconds: VecDeque::new(), minutes: minutes.into(), file }
    }

    pub fn push(&mut self, point: HistoryPoint) {
        self.forget_the_future(point.time_unix_ms);
        if self.seconds.len() == SECONDS {
            self.seconds.pop_front();
        }
        self.seconds.push_back(point);
        let minute = point.time_unix_ms / MINUTE_MS;
        match self.minutes.back_mut() {
            Some(last) if last.time_unix_ms / MINUTE_MS == minute => last.add(&point),
            _ => {
                if self.minutes.len() == MINUTES {
                    self.minutes.pop_front();
                }
                self.minutes.push_back(point);
            }
        }
        if let (Some(file), Some(last)) = (&self.file, self.minutes.back()) {
            file.write(last);
        }
    }

    /// After the clock was set back, points of later times would be neither in order nor true.
    fn forget_the_future(&mut self, now_unix_ms: u64) {
        // Ends: each round removes a point.
        while self.seconds.back().is_some_and(|point| point.time_unix_ms > now_unix_ms) {
            self.seconds.pop_back();
        }
        let minute = now_unix_ms / MINUTE_MS;
        while self.minutes.back().is_some_and(|point| point.time_unix_ms / MINUTE_MS > minute) {
            self.minutes.pop_back();
        }
    }

    /// Writes an event to the file, if there is one.
    pub fn write_event(&self, place: usize, event: &Event) {
        if let Some(file) = &self.file {
            file.write_event(place, event);
        }
    }

    pub fn seconds(&self) -> &VecDeque<HistoryPoint> {
        &self.seconds
    }

    /// The time of the oldest minute.
    pub fn first_unix_ms(&self) -> Option<u64> {
        self.minutes.front().map(|point| point.time_unix_ms)
    }

    /// Seconds of a point and the points of the last `range_seconds`, oldest first; with `ago_seconds`, of the same
    /// period that number of seconds earlier, in whole minutes. The points keep their times.
    pub fn range(&self, range_seconds: u64, ago_seconds: u64) -> (u64, Vec<HistoryPoint>) {
        let Some(now) = self.seconds.back().map(|point| point.time_unix_ms) else { return (1, Vec::new()) };
        let to = now.saturating_sub(ago_seconds.saturating_mul(1000));
        let from = to.saturating_sub(range_seconds.saturating_mul(1000));
        let is_inside = |point: &&HistoryPoint| point.time_unix_ms > from && point.time_unix_ms <= to;
        if ago_seconds == 0 && range_seconds <= SECONDS as u64 {
            return (1, self.seconds.iter().filter(is_inside).copied().collect());
        }
        let minutes = range_seconds.div_ceil(60).div_ceil(MAX_POINTS).max(1);
        let step_ms = minutes * MINUTE_MS;
        let mut points: Vec<HistoryPoint> = Vec::new();
        for point in self.minutes.iter().filter(is_inside) {
            match points.last_mut() {
                Some(last) if last.time_unix_ms / step_ms == point.time_unix_ms / step_ms => last.add(point),
                _ => points.push(*point),
            }
        }
        (minutes * 60, points)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> HistoryPoint {
        HistoryPoint { time_unix_ms: second * 1000, gets: 2, items: second, get_p99_us: 5.0, ..HistoryPoint::default() }
    }

    #[test]
    fn the_oldest_points_are_forgotten() {
        let mut history = History::default();
        for second in 0..1000 {
            history.push(at(second));
        }
        assert_eq!(history.seconds().len(), SECONDS);
        assert_eq!(
            (history.seconds()[0].time_unix_ms, history.seconds()[SECONDS - 1].time_unix_ms),
            (100_000, 999_000)
        );
        let (step, points) = history.range(300, 0);
        assert_eq!((step, points.len(), points[299].time_unix_ms), (1, 300, 999_000));
    }

    #[test]
    fn long_times_have_points_of_minutes() {
        let mut history = History::default();
        for second in 0..7200 {
            history.push(at(second));
        }
        let (step, points) = history.range(3600, 0);
        assert_eq!((step, points.len()), (60, 60));
        assert!(points.iter().all(|point| point.gets == 120 && point.get_p99_us == 5.0), "{points:?}");
        assert_eq!(points[59].items, 7199, "how things stood at its end");
        let (step, points) = history.range(7 * 86_400, 0);
        assert_eq!((step, points.len()), (660, 11));
        assert_eq!(points.iter().map(|point| point.gets).sum::<u64>(), 14_400);
    }

    #[test]
    fn an_earlier_time_has_the_points_of_then() {
        let mut history = History::default();
        for second in 0..7200 {
            history.push(at(second));
        }
        let (step, points) = history.range(600, 3600);
        let minutes: Vec<u64> = points.iter().map(|point| point.time_unix_ms / MINUTE_MS).collect();
        assert_eq!((step, minutes), (60, (50..=59).collect()));
        assert!(history.range(600, 86_400).1.is_empty());
    }

    #[test]
    fn setting_the_clock_back_keeps_points_in_order() {
        let mut history = History::default();
        for second in (5000..6000).chain(3000..5100) {
            history.push(at(second));
        }
        for (range, ago) in [(900, 0), (86_400, 0), (86_400, 60)] {
            let (_, points) = history.range(range, ago);
            assert!(points.is_sorted_by_key(|point| point.time_unix_ms), "{range}");
            assert!(points.iter().all(|point| point.time_unix_ms <= 5_099_000), "{range}");
        }
        assert_eq!(history.range(900, 0).1.len(), 900);
    }

    #[test]
    fn a_file_keeps_the_minutes_over_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let mut history = History::with_file(Some(HistoryFile::open(&path).unwrap()), 150_000);
        for second in 0..150 {
            history.push(at(second));
        }
        drop(history);
        let mut history = History::with_file(Some(HistoryFile::open(&path).unwrap()), 150_000);
        history.push(at(150));
        let (_, points) = history.range(3600, 0);
        let gets: Vec<u64> = points.iter().map(|point| point.gets).collect();
        assert_eq!(gets, [120, 120, 62]);
        drop(history);
        std::fs::write(&path, "precious").unwrap();
        assert!(HistoryFile::open(&path).unwrap_err().to_string().contains("not a history"));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }
}
