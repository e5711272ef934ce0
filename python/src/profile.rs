//! The curve of a pool: `ebbtide/curves.py` makes arrays of its points.

use crate::pool::Pool;
use crate::state::State;
use ebbtide::memcached::CacheProfile;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex};

/// Samples the accesses of a pool while it lives; see `ebbtide.Profile`.
#[pyclass(frozen, module = "ebbtide._ebbtide")]
pub struct PoolProfile {
    profile: Mutex<CacheProfile>,
    state: Arc<State>,
}

/// Memory in bytes, the miss ratio there, and the bounds of its 95 % interval.
type Point = (u64, f64, f64, f64);

impl PoolProfile {
    /// Uses the profile without the interpreter lock, in the process that made it.
    fn with<T: Send>(&self, python: Python<'_>, with: impl FnOnce(&mut CacheProfile) -> T + Send) -> PyResult<T> {
        self.state.check_process()?;
        Ok(python.detach(|| with(&mut self.profile.lock().expect("no call panics under this lock"))))
    }
}

#[pymethods]
impl PoolProfile {
    #[new]
    fn new(python: Python<'_>, pool: &Bound<'_, Pool>) -> PyResult<Self> {
        let profile = pool.get().read(python, |pool| CacheProfile::of_pool(pool.memcached()))?;
        Ok(Self { profile: Mutex::new(profile), state: Arc::clone(pool.get().state()) })
    }

    fn update(&self, python: Python<'_>) -> PyResult<()> {
        self.with(python, CacheProfile::update)
    }

    /// Points, whether the pool is full, the seconds until an eviction, sampled keys, and their share of all.
    #[expect(clippy::type_complexity, reason = "the fields of the Python class")]
    fn curve(
        &self,
        python: Python<'_>,
        miss_ratio: Option<f64>,
    ) -> PyResult<Option<(Vec<Point>, bool, Option<f64>, usize, f64)>> {
        let Some(curve) = self.with(python, |profile| profile.curve(miss_ratio))? else { return Ok(None) };
        let points = curve.points.iter().map(|point| (point.memory_bytes, point.miss_ratio, point.low, point.high));
        let evicted_after = curve.evicted_after.map(|time| time.as_secs_f64());
        Ok(Some((points.collect(), curve.is_full, evicted_after, curve.sampled_keys, curve.sample_rate)))
    }

    fn verdict(&self, python: Python<'_>, miss_ratio: Option<f64>) -> PyResult<Option<String>> {
        let verdict = self.with(python, |profile| profile.verdict(miss_ratio))?;
        Ok(verdict.map(|verdict| verdict.to_string()))
    }
}
