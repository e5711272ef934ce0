//! The curve of a pool: `ebbtide/curves.py` makes arrays of its points.

use crate::pool::Pool;
use ebbtide::memcached::CacheProfile;
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard};

/// Samples the accesses of a pool while it lives; see `ebbtide.Profile`.
#[pyclass(frozen, module = "ebbtide._ebbtide")]
pub struct PoolProfile {
    profile: Mutex<CacheProfile>,
}

/// Memory in bytes, the miss ratio there, and the bounds of its 95 % interval.
type Point = (u64, f64, f64, f64);

impl PoolProfile {
    fn locked(&self) -> MutexGuard<'_, CacheProfile> {
        self.profile.lock().expect("no call panics under this lock")
    }
}

#[pymethods]
impl PoolProfile {
    #[new]
    fn new(python: Python<'_>, pool: &Bound<'_, Pool>) -> PyResult<Self> {
        let profile = pool.get().read(python, |pool| CacheProfile::of_pool(pool.memcached()))?;
        Ok(Self { profile: Mutex::new(profile) })
    }

    fn update(&self, python: Python<'_>) {
        python.detach(|| self.locked().update());
    }

    /// Points, whether the pool is full, the seconds until an eviction, sampled keys, and their share of all.
    #[expect(clippy::type_complexity, reason = "the fields of the Python class")]
    fn curve(
        &self,
        python: Python<'_>,
        miss_ratio: Option<f64>,
    ) -> Option<(Vec<Point>, bool, Option<f64>, usize, f64)> {
        let curve = python.detach(|| self.locked().curve(miss_ratio))?;
        let points = curve.points.iter().map(|point| (point.memory_bytes, point.miss_ratio, point.low, point.high));
        let evicted_after = curve.evicted_after.map(|time| time.as_secs_f64());
        Some((points.collect(), curve.is_full, evicted_after, curve.sampled_keys, curve.sample_rate))
    }

    fn verdict(&self, python: Python<'_>, miss_ratio: Option<f64>) -> Option<String> {
        python.detach(|| self.locked().verdict(miss_ratio)).map(|verdict| verdict.to_string())
    }
}
