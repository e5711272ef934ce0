//! Compact pools: keys of one length, values of one length, and negative results.

use crate::arguments::{self, size};
use crate::error::of;
use crate::pool::options;
use crate::state::State;
use ebbtide::{Lookup, MissTicket};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict};
use std::sync::Arc;

/// The knowledge that the backend has nothing for a key. It is false, and there is one: `NEGATIVE`.
#[pyclass(frozen, module = "ebbtide")]
pub struct Negative;

static NEGATIVE: PyOnceLock<Py<Negative>> = PyOnceLock::new();

/// The one object.
pub fn negative(python: Python<'_>) -> PyResult<&Py<Negative>> {
    NEGATIVE.get_or_try_init(python, || Py::new(python, Negative))
}

#[pymethods]
impl Negative {
    fn __bool__(&self) -> bool {
        false
    }

    fn __repr__(&self) -> &'static str {
        "ebbtide.NEGATIVE"
    }
}

/// The state of a key before the backend is asked: see `CompactPool.ticket`.
#[pyclass(frozen, module = "ebbtide")]
pub struct Ticket(MissTicket);

/// A compact pool; see `Cache.compact_pool`.
#[pyclass(frozen, module = "ebbtide")]
pub struct CompactPool {
    pool: ebbtide::CompactPool,
    state: Arc<State>,
}

impl CompactPool {
    pub fn new(pool: ebbtide::CompactPool, state: Arc<State>) -> Self {
        Self { pool, state }
    }

    /// The native pool, of an open cache.
    pub fn open(&self) -> PyResult<&ebbtide::CompactPool> {
        self.state.check()?;
        Ok(&self.pool)
    }
}

#[pymethods]
impl CompactPool {
    /// The value of a key as bytes, `NEGATIVE` for a negative result, or `default` after a miss.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let python = key.py();
        Ok(match self.open()?.with(&*arguments::key(key)?, |value| PyBytes::new(python, value)) {
            Lookup::Hit(value) => Some(value.into_any()),
            Lookup::Negative => Some(negative(python)?.bind(python).clone().into_any()),
            Lookup::Miss => default,
        })
    }

    /// The hits of several keys, by key; a negative result is `NEGATIVE`.
    fn get_many<'py>(&self, python: Python<'py>, keys: Vec<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyDict>> {
        let bytes = keys.iter().map(arguments::key).collect::<PyResult<Vec<_>>>()?;
        let found = PyDict::new(python);
        for (key, lookup) in keys.iter().zip(self.open()?.get_many(&bytes)) {
            match lookup {
                Lookup::Hit(value) => found.set_item(key, PyBytes::new(python, &value))?,
                Lookup::Negative => found.set_item(key, negative(python)?)?,
                Lookup::Miss => {}
            }
        }
        Ok(found)
    }

    /// Writes a value, in place of a negative result; `ttl` in seconds, for pools that were added with `ttl=True`.
    #[pyo3(signature = (key, value, ttl=None))]
    fn set(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>, ttl: Option<f64>) -> PyResult<()> {
        let (key, value) = (arguments::key(key)?, arguments::value(value)?);
        self.open()?.insert_with(&*key, &*value, options(ttl)?).map_err(of)
    }

    /// Writes that the backend has nothing for a key, in place of a value. With `since`, a ticket that was taken before
    /// the backend was asked, unless the key was written or removed since then: then False.
    #[pyo3(signature = (key, ttl=None, *, since=None))]
    fn set_negative(&self, key: &Bound<'_, PyAny>, ttl: Option<f64>, since: Option<&Ticket>) -> PyResult<bool> {
        let (key, options) = (arguments::key(key)?, options(ttl)?);
        match since {
            Some(ticket) => self.open()?.insert_negative_since(&*key, ticket.0, options).map_err(of),
            None => self.open()?.insert_negative_with(&*key, options).map(|()| true).map_err(of),
        }
    }

    /// A ticket for `set_negative(since=)`, to be taken before the backend is asked.
    fn ticket(&self, key: &Bound<'_, PyAny>) -> PyResult<Ticket> {
        self.open()?.ticket(&*arguments::key(key)?).map(Ticket).map_err(of)
    }

    /// Removes a key, negative or not. False if it was absent.
    fn delete(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.open()?.remove(&*arguments::key(key)?).map_err(of)
    }

    /// Removes the negative result of a key. False if it has none; a value stays.
    fn delete_negative(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.open()?.remove_negative(&*arguments::key(key)?).map_err(of)
    }

    /// Makes every entry absent.
    fn clear(&self, python: Python<'_>) -> PyResult<()> {
        let pool = self.open()?;
        python.detach(|| pool.invalidate_all());
        Ok(())
    }

    /// Counters since the start, and gauges.
    fn stats<'py>(&self, python: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.open()?.stats();
        let found = PyDict::new(python);
        for (name, value) in [
            ("hits", stats.hits),
            ("negative_hits", stats.negative_hits),
            ("misses", stats.misses),
            ("entries", stats.entries),
            ("negatives", stats.negatives),
            ("capacity", stats.capacity),
            ("memory_limit_bytes", stats.memory_limit_bytes),
            ("memory_used_bytes", stats.memory_used_bytes),
            ("inserts", stats.inserts),
            ("negative_inserts", stats.negative_inserts),
            ("evictions", stats.evictions),
            ("expirations", stats.expirations),
        ] {
            found.set_item(name, value)?;
        }
        Ok(found)
    }

    /// Changes the bounds of the pool's memory. All pools are divided anew.
    fn set_bounds(&self, min: &Bound<'_, PyAny>, max: &Bound<'_, PyAny>) -> PyResult<()> {
        let (pool, python) = (self.open()?, min.py());
        let (min, max) = (size(min, "min")?, size(max, "max")?);
        python.detach(|| pool.resize(min, max)).map_err(of)
    }

    /// The name of the pool.
    #[getter]
    fn name(&self) -> &str {
        self.pool.name()
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.open()?.contains_key(&*arguments::key(key)?))
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.open()?.stats().entries as usize)
    }
}
