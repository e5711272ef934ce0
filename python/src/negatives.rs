//! Objects with the negative results of their keys in a compact pool.

use crate::arguments;
use crate::compact::{CompactPool, negative};
use crate::error::of;
use crate::load::LoadTask;
use crate::pool::Pool;
use ebbtide::{Loaded, Lookup, Ttl, Value};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A pool of objects with the negative results of its keys: see `Pool.with_negatives`. A key that was inserted is never
/// `NEGATIVE` afterwards, until it is removed from the backend and loaded again.
#[pyclass(frozen, module = "ebbtide")]
pub struct NegativeCache {
    objects: Py<Pool>,
    negatives: Py<CompactPool>,
}

impl NegativeCache {
    pub fn new(objects: Py<Pool>, negatives: Py<CompactPool>) -> Self {
        Self { objects, negatives }
    }

    /// The native cache, while it is open.
    fn open(&self) -> PyResult<ebbtide::NegativeCache> {
        Ok(self.objects.get().open()?.with_negatives(self.negatives.get().open()?.clone()))
    }
}

/// A loaded object, with its TTL.
fn object(value: Vec<u8>, ttl: Option<Ttl>) -> Loaded {
    let loaded = Loaded::new(value);
    match ttl {
        Some(ttl) => loaded.ttl(ttl),
        None => loaded,
    }
}

fn answer<'py>(
    python: Python<'py>,
    found: Lookup<Value>,
    default: Option<Bound<'py, PyAny>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    Ok(match found {
        Lookup::Hit(value) => Some(PyBytes::new(python, &value).into_any()),
        Lookup::Negative => Some(negative(python)?.bind(python).clone().into_any()),
        Lookup::Miss => default,
    })
}

#[pymethods]
impl NegativeCache {
    /// The object of a key as bytes, `NEGATIVE` if it is known that there is none, or `default` if neither is known.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (python, objects) = (key.py(), self.objects.get());
        let (cache, key) = (self.open()?, arguments::key(key)?);
        answer(python, objects.read(python, |_| cache.get(&*key))?, default)
    }

    /// As `get`; a key of which nothing is known is loaded by `load()`, once for all callers. None from the loader is
    /// kept as a negative result, unless the object was inserted meanwhile.
    #[pyo3(signature = (key, load, ttl=None))]
    fn get_or_load<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        load: &Bound<'py, PyAny>,
        ttl: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (python, objects, loader) = (key.py(), self.objects.get(), self.objects.get().loader(load));
        let (cache, key, ttl) = (self.open()?, arguments::key(key)?, ttl.map(arguments::ttl).transpose()?);
        let loaded = async { loader.answer().await.map(|value| value.map(|value| object(value, ttl))) };
        let found = objects.run_load(python, &loader, cache.get_or_load_async(&*key, loaded))?;
        answer(python, found, None)
    }

    /// The native half of `get_or_load_async`.
    fn _begin_load(&self, key: &Bound<'_, PyAny>, ttl: Option<f64>) -> PyResult<LoadTask> {
        let objects = self.objects.get();
        let (cache, ttl) = (self.open()?, ttl.map(arguments::ttl).transpose()?);
        let key = arguments::key(key)?.into_owned();
        Ok(objects.begin_load(|answer| {
            Box::pin(async move {
                let loaded = async { answer.await.map(|value| value.map(|value| object(value, ttl))) };
                cache.get_or_load_async(&key, loaded).await.map(Lookup::hit)
            })
        }))
    }

    /// Writes an object and removes its negative result.
    fn set(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (python, negatives) = (key.py(), self.negatives.get().open()?);
        let (key, value) = (arguments::key(key)?, arguments::value(value)?);
        let write = |objects: &ebbtide::Pool| objects.with_negatives(negatives.clone()).insert(&*key, &*value);
        self.objects.get().write(python, write)
    }

    /// Removes what is known of a key: its object, or that there is none. False if nothing was.
    fn delete(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (python, objects) = (key.py(), self.objects.get());
        let (cache, key) = (self.open()?, arguments::key(key)?);
        objects.read(python, |_| cache.remove(&*key))?.map_err(of)
    }

    /// The pool of the objects.
    #[getter]
    fn objects(&self, python: Python<'_>) -> Py<Pool> {
        self.objects.clone_ref(python)
    }

    /// The pool of the negative results.
    #[getter]
    fn negatives(&self, python: Python<'_>) -> Py<CompactPool> {
        self.negatives.clone_ref(python)
    }
}
