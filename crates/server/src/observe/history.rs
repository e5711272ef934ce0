//! The last fifteen minutes, a point a second.

use std::collections::VecDeque;

use serde::Serialize;

/// Points that are kept, a second apart.
const KEPT: usize = 15 * 60;

/// What happened in a second, and how things stood at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct HistoryPoint {
    pub time_unix_ms: u64,
    pub gets: u64,
    pub hits: u64,
    pub sets: u64,
    pub evictions: u64,
    pub expirations: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub items: u64,
    pub used_bytes: u64,
    pub connections: u64,
    pub get_p50_us: f64,
    pub get_p99_us: f64,
}

/// The points, oldest first.
#[derive(Debug, Default)]
pub struct History {
    points: VecDeque<HistoryPoint>,
}

impl History {
    pub fn push(&mut self, point: HistoryPoint) {
        if self.points.len() == KEPT {
            self.points.pop_front();
        }
        self.points.push_back(point);
    }

    pub fn points(&self) -> &VecDeque<HistoryPoint> {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_points_are_forgotten() {
        let mut history = History::default();
        for time_unix_ms in 0..1000 {
            history.push(HistoryPoint { time_unix_ms, ..HistoryPoint::default() });
        }
        assert_eq!(history.points().len(), KEPT);
        assert_eq!((history.points()[0].time_unix_ms, history.points()[KEPT - 1].time_unix_ms), (100, 999));
    }
}
