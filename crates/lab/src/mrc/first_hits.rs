//! First gets in the capture of a server that was warm.
//!
//! ```text
//! hit ratio   x--------- engine + first hits
//!             |
//!         ----' engine: each first get misses
//!             ^ memory that the server holds
//! ```
//! A get that is the first of its key in the window, and hit at the server, has a reuse distance that the window does
//! not show. It is at most the memory that the server holds. So it hits with that memory and more; with less nobody
//! knows, and the curve has the miss, a lower bound of its hits. A first get that missed at a server that has evicted
//! objects may hit with more memory than the server's.

use ebbtide::memcached::MEMORY_BYTES_MIN;
use ebbtide_control::{Curve, Point};

use crate::trace::CapturedServer;
use crate::trace::loaded::LoadedTrace;

/// First gets of a captured load, as shares of the gets that count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FirstHits {
    /// Keys that the server had at their first get.
    pub(crate) keys: u64,
    pub(crate) hit_share: f64,
    /// First gets that missed, at a server that may have had their objects before.
    pub(crate) unknown_share: f64,
    /// Memory in which an engine holds what the server holds.
    pub(crate) held_bytes: Option<u64>,
    pub(crate) server: Option<CapturedServer>,
}

impl FirstHits {
    pub(super) fn of(workload: &LoadedTrace) -> Self {
        let (first, gets) = (workload.first_gets(), workload.gets().max(1) as f64);
        let forgot = workload.server.is_some_and(|server| !server.has_forgotten_nothing());
        Self {
            keys: first.hits * u64::from(workload.sample),
            hit_share: first.hits as f64 / gets,
            unknown_share: if forgot { first.misses as f64 / gets } else { 0.0 },
            held_bytes: workload.server.and_then(|server| server.held_bytes()).map(|held| held.max(MEMORY_BYTES_MIN)),
            server: workload.server,
        }
    }

    /// Hits that a cache of this memory may have beyond those of its curve, as a share of the gets.
    pub(crate) fn more_hits(&self, memory_bytes: f64) -> f64 {
        if self.holds_all(memory_bytes) { self.unknown_share } else { self.hit_share }
    }

    /// Whether the memory holds all that the server holds.
    pub(crate) fn holds_all(&self, memory_bytes: f64) -> bool {
        self.held_bytes.is_some_and(|held| memory_bytes >= held as f64)
    }

    /// The curve with these hits from the memory on that the server holds.
    pub(super) fn added_to(&self, curve: &Curve) -> Curve {
        let Some(held) = self.held_bytes.filter(|_| self.hit_share > 0.0 && !curve.points().is_empty()) else {
            return curve.clone();
        };
        let added = |point: &Point| Point {
            miss_ratio: (point.miss_ratio - self.hit_share).max(0.0),
            low: (point.low - self.hit_share).max(0.0),
            high: (point.high - self.hit_share).max(0.0),
            ..*point
        };
        let (below, above): (Vec<Point>, Vec<Point>) =
            curve.points().iter().partition(|point| point.memory_bytes < held);
        let mut points = below;
        let at = |memory_bytes: u64| {
            let miss_ratio = curve.miss_ratio_at(memory_bytes).expect("a curve with a point");
            Point::exact(memory_bytes, miss_ratio, miss_ratio)
        };
        if points.last().is_some_and(|last| last.memory_bytes < held - 1) {
            points.push(at(held - 1));
        }
        if above.first().is_none_or(|first| first.memory_bytes > held) {
            points.push(added(&at(held)));
        }
        points.extend(above.iter().map(added));
        Curve::new(points)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_hits_count_from_the_held_memory() {
        let curve = Curve::new(
            [(10, 0.8), (20, 0.6), (40, 0.4)].map(|(bytes, misses)| Point::exact(bytes, misses, misses)).to_vec(),
        );
        for held in [5, 10, 15, 20, 40, 100] {
            let first = FirstHits { hit_share: 0.3, held_bytes: Some(held), ..FirstHits::default() };
            let added = first.added_to(&curve);
            for bytes in [10, 11, 14, 15, 16, 20, 30, 39, 40, 100] {
                let share = if bytes >= held { 0.3 } else { 0.0 };
                let expected = curve.miss_ratio_at(bytes).unwrap() - share;
                let found = added.miss_ratio_at(bytes).unwrap();
                assert!((found - expected).abs() < 0.02, "{held} {bytes} {found} {expected}");
            }
        }
    }
}
