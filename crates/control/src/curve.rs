//! A miss-ratio curve: points, interpolation, and the sizes where memory pays.

/// Predicted misses of a cache of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub memory_bytes: u64,
    /// Misses for each get.
    pub miss_ratio: f64,
    /// Lower end of the 95 % interval of the miss ratio; the ratio itself where nothing was sampled.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Missed bytes for each requested byte.
    pub byte_miss_ratio: f64,
    /// Both ends of its 95 % interval.
    pub byte_low: f64,
    pub byte_high: f64,
}

impl Point {
    /// A point of all gets, not of a sample: its interval is the ratio itself.
    pub fn exact(memory_bytes: u64, miss_ratio: f64, byte_miss_ratio: f64) -> Self {
        Self {
            memory_bytes,
            miss_ratio,
            low: miss_ratio,
            high: miss_ratio,
            byte_miss_ratio,
            byte_low: byte_miss_ratio,
            byte_high: byte_miss_ratio,
        }
    }

    /// The beginning of every curve: without memory every get misses.
    pub fn without_memory() -> Self {
        Self::exact(0, 1.0, 1.0)
    }
}

/// Ascending memory sizes of a curve from one size to another, `points_per_octave` for each doubling; the last one is
/// the first that is not smaller than `to_bytes`.
pub fn memory_sizes(from_bytes: u64, to_bytes: u64, points_per_octave: usize) -> Vec<u64> {
    let octaves = (to_bytes.max(1) as f64 / from_bytes.max(1) as f64).log2().max(0.0);
    let count = (octaves * points_per_octave as f64).ceil() as usize + 1;
    let size = |at: usize| (from_bytes as f64 * (at as f64 / points_per_octave as f64).exp2()).round() as u64;
    let mut sizes: Vec<u64> = (0..count).map(size).collect();
    sizes.dedup();
    sizes
}

/// Points by ascending memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    points: Vec<Point>,
}

/// A stretch on which memory earns nothing until much more of it is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cliff {
    /// Memory at which the curve leaves its convex hull.
    pub from_bytes: u64,
    /// Memory at which it is back: less than this earns little of what this earns.
    pub to_bytes: u64,
    /// The furthest that the miss ratio lies above the hull.
    pub height: f64,
}

/// Curves this near to their hull have no cliff.
const CLIFF_HEIGHT: f64 = 0.02;

impl Curve {
    /// A curve of these points.
    ///
    /// # Panics
    /// If their memory does not ascend.
    pub fn new(points: Vec<Point>) -> Self {
        assert!(points.is_sorted_by(|one, next| one.memory_bytes < next.memory_bytes), "memory ascends");
        Self { points }
    }

    /// The points by ascending memory.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// The miss ratio at some memory, on the line between its two points; beyond the ends that of the end. `None`
    /// without points.
    pub fn miss_ratio_at(&self, memory_bytes: u64) -> Option<f64> {
        let after = self.points.partition_point(|point| point.memory_bytes < memory_bytes);
        let (Some(next), Some(before)) = (self.points.get(after), self.points.get(after.max(1) - 1)) else {
            return self.points.last().map(|point| point.miss_ratio);
        };
        if next.memory_bytes <= before.memory_bytes || memory_bytes <= before.memory_bytes {
            return Some(next.miss_ratio);
        }
        let part = (memory_bytes - before.memory_bytes) as f64 / (next.memory_bytes - before.memory_bytes) as f64;
        Some(before.miss_ratio + part * (next.miss_ratio - before.miss_ratio))
    }

    /// The least memory at which at most this part of the gets misses, between two points; `None` if none does.
    pub fn memory_for(&self, miss_ratio: f64) -> Option<u64> {
        let reached = self.points.iter().position(|point| point.miss_ratio <= miss_ratio)?;
        let next = self.points[reached];
        let Some(before) = reached.checked_sub(1).map(|index| self.points[index]) else {
            return Some(next.memory_bytes);
        };
        let part = (before.miss_ratio - miss_ratio) / (before.miss_ratio - next.miss_ratio);
        Some(before.memory_bytes + (part * (next.memory_bytes - before.memory_bytes) as f64).ceil() as u64)
    }

    /// Hits for each get that one more MiB earns at this memory, by the slope of the hull there.
    pub fn marginal_hits_per_mib(&self, memory_bytes: u64) -> f64 {
        let hull = self.hull();
        let side = hull.windows(2).find(|side| memory_bytes < side[1].memory_bytes);
        side.map_or(0.0, |side| -slope(&side[0], &side[1]) * (1 << 20) as f64)
    }

    /// The points of the lower convex hull: what a division of memory may count on where it can mix two sizes (the hit
    /// ratio is concave there; Talus, HPCA'15).
    pub fn hull(&self) -> Vec<Point> {
        let mut hull: Vec<Point> = Vec::new();
        for &point in &self.points {
            while let [.., before, last] = hull.as_slice()
                && slope(before, last) >= slope(last, &point)
            {
                hull.pop();
            }
            hull.push(point);
        }
        hull
    }

    /// Stretches that lie above the hull by more than 0.02, the lowest memory first.
    pub fn cliffs(&self) -> Vec<Cliff> {
        let hull = self.hull();
        let cliff = |side: &[Point]| {
            let (from_bytes, to_bytes) = (side[0].memory_bytes, side[1].memory_bytes);
            let inside = self.points.iter().filter(|point| (from_bytes..to_bytes).contains(&point.memory_bytes));
            let above = inside.map(|point| {
                let on_hull = side[0].miss_ratio + slope(&side[0], &side[1]) * (point.memory_bytes - from_bytes) as f64;
                point.miss_ratio - on_hull
            });
            let height = above.fold(0.0, f64::max);
            (height > CLIFF_HEIGHT).then_some(Cliff { from_bytes, to_bytes, height })
        };
        hull.windows(2).filter_map(cliff).collect()
    }
}

/// Change of the miss ratio for each byte.
fn slope(from: &Point, to: &Point) -> f64 {
    (to.miss_ratio - from.miss_ratio) / (to.memory_bytes - from.memory_bytes) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(u64, f64)]) -> Curve {
        Curve::new(points.iter().map(|&(mib, misses)| Point::exact(mib << 20, misses, misses)).collect())
    }

    #[test]
    fn sizes_reach_the_largest_memory() {
        assert_eq!(memory_sizes(100, 400, 1), [100, 200, 400]);
        assert_eq!(memory_sizes(100, 150, 1), [100, 200]);
        assert_eq!(memory_sizes(400, 100, 8), [400]);
        assert_eq!(memory_sizes(1, 3, 4), [1, 2, 3], "equal sizes stand once");
    }

    #[test]
    fn between_two_points_lies_a_line() {
        let curve = curve(&[(10, 0.8), (20, 0.4), (40, 0.2)]);
        let at = |mib: u64| curve.miss_ratio_at(mib << 20).unwrap();
        assert_eq!([at(1), at(10), at(40), at(99)], [0.8, 0.8, 0.2, 0.2]);
        assert!((at(15) - 0.6).abs() < 1e-9 && (at(30) - 0.3).abs() < 1e-9);
        assert!(curve.memory_for(0.6).unwrap().abs_diff(15 << 20) <= 1);
        assert_eq!((curve.memory_for(0.9), curve.memory_for(0.1)), (Some(10 << 20), None));
        assert!((curve.marginal_hits_per_mib(12 << 20) - 0.04).abs() < 1e-9);
        assert_eq!(curve.marginal_hits_per_mib(40 << 20), 0.0);
        assert_eq!(Curve::default().miss_ratio_at(1), None);
    }

    #[test]
    fn a_loop_is_a_cliff() {
        let curve = curve(&[(1, 1.0), (2, 1.0), (3, 0.99), (4, 0.1), (5, 0.05), (6, 0.04)]);
        let hull: Vec<_> = curve.hull().iter().map(|point| point.memory_bytes >> 20).collect();
        assert_eq!(hull, [1, 4, 5, 6]);
        let cliffs = curve.cliffs();
        assert_eq!(cliffs.len(), 1);
        assert_eq!((cliffs[0].from_bytes >> 20, cliffs[0].to_bytes >> 20), (1, 4));
        assert!((cliffs[0].height - 0.59).abs() < 0.001, "{cliffs:?}");
    }
}
