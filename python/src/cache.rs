//! A cache: its options, its pools, its end.

use crate::arguments::{duration, size, ttl};
use crate::compact::CompactPool;
use crate::error::{of, value};
use crate::pool::{Pool, statistics};
use crate::state::State;
use ebbtide::{Policy, PoolOptions};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::Arc;

/// A cache in this process. Sizes are bytes, or text such as "64m"; times are seconds.
#[pyclass(frozen, extends = Pool, module = "ebbtide")]
pub struct Cache {
    cache: ebbtide::Cache,
    state: Arc<State>,
    has_flash: bool,
}

impl Cache {
    fn open(&self) -> PyResult<&ebbtide::Cache> {
        self.state.check()?;
        Ok(&self.cache)
    }
}

#[pymethods]
impl Cache {
    /// Opens a cache. With a memory file or flash it begins with what these hold.
    #[new]
    #[pyo3(signature = (
        memory=None, *, default_ttl=None, time_to_idle=None, load_timeout=None, max_value=None, policy=None,
        memory_file=None, flash=None, flash_size=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "the keyword arguments of the Python class")]
    fn new(
        python: Python<'_>,
        memory: Option<Bound<'_, PyAny>>,
        default_ttl: Option<f64>,
        time_to_idle: Option<f64>,
        load_timeout: Option<f64>,
        max_value: Option<Bound<'_, PyAny>>,
        policy: Option<&str>,
        memory_file: Option<PathBuf>,
        flash: Option<PathBuf>,
        flash_size: Option<Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let mut builder = ebbtide::Cache::builder();
        if let Some(memory) = memory {
            builder = builder.memory(size(&memory, "memory")?);
        }
        if let Some(seconds) = default_ttl {
            builder = builder.default_ttl(ttl(seconds)?);
        }
        if let Some(seconds) = time_to_idle {
            builder = builder.time_to_idle(duration(seconds, "time_to_idle")?);
        }
        if let Some(seconds) = load_timeout {
            builder = builder.load_timeout(duration(seconds, "load_timeout")?);
        }
        if let Some(max_value) = max_value {
            builder = builder.max_value(size(&max_value, "max_value")?);
        }
        if let Some(name) = policy {
            builder = builder.policy(name.parse::<Policy>().map_err(|unknown| value(unknown.to_string()))?);
        }
        if let Some(path) = memory_file {
            builder = builder.memory_file(path);
        }
        let has_flash = flash.is_some();
        builder = match (flash, flash_size) {
            (Some(path), Some(bytes)) => builder.flash(path, size(&bytes, "flash_size")?),
            (None, None) => builder,
            _ => return Err(value("flash and flash_size belong together: a path and a size")),
        };
        let cache = python.detach(|| builder.build()).map_err(of)?;
        let state = State::new();
        let pool = Pool::new(cache.pool("default").map_err(of)?, Arc::clone(&state), has_flash);
        Ok(PyClassInitializer::from(pool).add_subclass(Self { cache, state, has_flash }))
    }

    /// A pool by its name.
    fn pool(&self, name: &str) -> PyResult<Pool> {
        let pool = self.open()?.pool(name).map_err(of)?;
        Ok(Pool::new(pool, Arc::clone(&self.state), self.has_flash))
    }

    /// The names of all pools, `default` first.
    fn pools(&self) -> PyResult<Vec<String>> {
        Ok(self.open()?.pools())
    }

    /// Adds a pool. The others shrink for it in the background.
    #[pyo3(signature = (name, *, min=None, max=None, weight=1))]
    fn add_pool(
        &self,
        python: Python<'_>,
        name: &str,
        min: Option<Bound<'_, PyAny>>,
        max: Option<Bound<'_, PyAny>>,
        weight: u32,
    ) -> PyResult<Pool> {
        let (cache, options) = (self.open()?, pool_options(name, min, max, weight)?);
        python.detach(|| cache.add_pool(&options)).map_err(of)?;
        self.pool(name)
    }

    /// A compact pool by its name.
    fn compact_pool(&self, name: &str) -> PyResult<CompactPool> {
        let pool = self.open()?.compact_pool(name).map_err(of)?;
        Ok(CompactPool::new(pool, Arc::clone(&self.state)))
    }

    /// Adds a compact pool: all keys have `key` bytes and all values `value` bytes, 128 together at most. With `ttl`
    /// its entries may expire, at 4 more bytes each.
    #[pyo3(signature = (name, *, key, value=0, ttl=false, min=None, max=None, weight=1))]
    #[expect(clippy::too_many_arguments, reason = "the keyword arguments of the Python method")]
    fn add_compact_pool(
        &self,
        python: Python<'_>,
        name: &str,
        key: usize,
        value: usize,
        ttl: bool,
        min: Option<Bound<'_, PyAny>>,
        max: Option<Bound<'_, PyAny>>,
        weight: u32,
    ) -> PyResult<CompactPool> {
        let options = pool_options(name, min, max, weight)?;
        let options = if ttl { options.compact_with_ttl(key, value) } else { options.compact(key, value) };
        let cache = self.open()?;
        python.detach(|| cache.add_pool(&options)).map_err(of)?;
        self.compact_pool(name)
    }

    /// Removes a pool with all its entries; handles of it miss, and refuse writes.
    fn remove_pool(&self, python: Python<'_>, name: &str) -> PyResult<()> {
        let cache = self.open()?;
        python.detach(|| cache.remove_pool(name)).map_err(of)
    }

    /// Counters since the start, and gauges: the sums of all pools, compact ones included. `pool("default").stats()`
    /// has those of the pool that the cache's own operations are of.
    fn stats<'py>(&self, python: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        statistics(python, &self.open()?.stats())
    }

    /// Changes the memory of all pools together.
    fn resize(&self, python: Python<'_>, memory: &Bound<'_, PyAny>) -> PyResult<()> {
        let (cache, memory) = (self.open()?, size(memory, "memory")?);
        python.detach(|| cache.resize(memory)).map_err(of)
    }

    /// Ends the cache: saves it to its memory file, if it has one. Every later call fails with `Closed`. A second close
    /// does nothing, nor does one in a forked process.
    fn close(&self, python: Python<'_>) -> PyResult<()> {
        if self.state.close() { python.detach(|| self.cache.close()).map(drop).map_err(of) } else { Ok(()) }
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_arguments))]
    fn __exit__(&self, python: Python<'_>, _arguments: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(python)
    }
}

fn pool_options(
    name: &str,
    min: Option<Bound<'_, PyAny>>,
    max: Option<Bound<'_, PyAny>>,
    weight: u32,
) -> PyResult<PoolOptions> {
    let mut options = PoolOptions::named(name).weight(weight);
    if let Some(min) = min {
        options = options.min(size(&min, "min")?);
    }
    if let Some(max) = max {
        options = options.max(size(&max, "max")?);
    }
    Ok(options)
}
