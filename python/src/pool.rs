//! The operations on keys, of a cache and of its pools alike.

use crate::arguments;
use crate::array::FixedArray;
use crate::compact::CompactPool;
use crate::error::of;
use crate::load::{self, CoroutineAnswer, LoadFuture, LoadTask, Loader};
use crate::negatives::NegativeCache;
use crate::state::State;
use crate::structured::{AppendBuffer, Map, RangeMap, Words};
use ebbtide::flash::{FlashStats, Health};
use ebbtide::{Error, InsertOptions, LoadError, Stats, Value};
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::sync::{Arc, Mutex};

/// A pool of a cache; see `Cache.pool`. A `Cache` has the same operations, on its pool `default`.
#[pyclass(frozen, subclass, module = "ebbtide")]
pub struct Pool {
    pool: ebbtide::Pool,
    /// Its writes answer `WouldWait`.
    without_waiting: ebbtide::Pool,
    state: Arc<State>,
    has_flash: bool,
}

impl Pool {
    pub fn new(pool: ebbtide::Pool, state: Arc<State>, has_flash: bool) -> Self {
        Self { without_waiting: pool.without_waiting(), pool, state, has_flash }
    }

    /// The native pool, of an open cache.
    pub fn open(&self) -> PyResult<&ebbtide::Pool> {
        self.state.check()?;
        Ok(&self.pool)
    }

    /// Whether the cache can be used.
    pub fn state(&self) -> &Arc<State> {
        &self.state
    }

    pub fn loader(&self, load: &Bound<'_, PyAny>) -> Loader {
        Loader::new(load, &self.state)
    }

    /// Runs a load that asks for the answer of a loader.
    pub fn run_load<T: Send>(
        &self,
        python: Python<'_>,
        loader: &Loader,
        load: impl Future<Output = Result<T, LoadError<PyErr>>> + Send,
    ) -> PyResult<T> {
        loader.run(python, self.has_flash, load)
    }

    /// A load that a coroutine drives.
    pub fn begin_load(&self, load: impl FnOnce(CoroutineAnswer) -> LoadFuture) -> LoadTask {
        LoadTask::new(Arc::clone(&self.state), self.has_flash, load)
    }

    /// Runs a read, without the interpreter lock if it may wait for flash.
    pub fn read<T: Send>(&self, python: Python<'_>, read: impl FnOnce(&ebbtide::Pool) -> T + Send) -> PyResult<T> {
        let pool = self.open()?;
        Ok(if self.has_flash { python.detach(|| read(pool)) } else { read(pool) })
    }

    /// Runs a write. A write that would wait for memory, or for flash, runs without the interpreter lock; others keep
    /// it, as a thread that gives it up may wait for milliseconds to get it back.
    pub fn write<T: Send>(
        &self,
        python: Python<'_>,
        mut write: impl FnMut(&ebbtide::Pool) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let pool = self.open()?;
        if !self.has_flash {
            match write(&self.without_waiting) {
                Err(Error::WouldWait { .. }) => {}
                written => return written.map_err(of),
            }
        }
        python.detach(|| write(pool)).map_err(of)
    }

    fn find<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let python = key.py();
        let key = arguments::key(key)?;
        if self.has_flash {
            let value = self.read(python, |pool| pool.get(&*key))?;
            return Ok(value.map(|value| PyBytes::new(python, &value)));
        }
        Ok(self.open()?.with(&*key, |value| PyBytes::new(python, value)))
    }

    fn iterate(&self, python: Python<'_>, part: Part) -> PyResult<Items> {
        let entries = self.read(python, ebbtide::Pool::iter)?.map_err(of)?;
        Ok(Items { entries: Mutex::new(entries), part, state: Arc::clone(&self.state) })
    }
}

/// Statistics as a dict.
pub fn statistics<'py>(python: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(python);
    for (name, value) in [
        ("hits", stats.hits),
        ("negative_hits", stats.negative_hits),
        ("misses", stats.misses),
        ("loads", stats.loads),
        ("failed_loads", stats.failed_loads),
        ("entries", stats.entries),
        ("memory_limit_bytes", stats.memory_limit_bytes),
        ("memory_used_bytes", stats.memory_used_bytes),
        ("inserts", stats.inserts),
        ("evictions", stats.evictions),
        ("demotions", stats.demotions),
        ("expirations", stats.expirations),
    ] {
        found.set_item(name, value)?;
    }
    found.set_item("hit_ratio", stats.hit_ratio())?;
    if let Some(flash) = &stats.flash {
        add_flash(&found, flash)?;
    }
    Ok(found)
}

/// Statistics of flash, each with the prefix `flash_`. Those from `flash_entries` on are of all pools.
fn add_flash(found: &Bound<'_, PyDict>, flash: &FlashStats) -> PyResult<()> {
    let totals = &flash.totals;
    for (name, value) in [
        ("flash_hits", flash.hits),
        ("flash_used_bytes", flash.used_bytes),
        ("flash_share_bytes", flash.share_bytes),
        ("flash_inserted_bytes", flash.inserted_bytes),
        ("flash_refused_by_share", flash.refused_by_share),
        ("flash_entries", totals.entries),
        ("flash_capacity_bytes", totals.capacity_bytes),
        ("flash_inserts", totals.inserts),
        ("flash_written_bytes", totals.written_bytes),
        ("flash_drops", totals.drops),
        ("flash_evictions", totals.evictions),
        ("flash_expirations", totals.expirations),
        ("flash_read_errors", totals.read_errors),
        ("flash_write_errors", totals.write_errors),
        ("flash_has_failed", u64::from(totals.health == Health::Failed)),
    ] {
        found.set_item(name, value)?;
    }
    Ok(())
}

#[pymethods]
impl Pool {
    /// The value of a key as bytes, or `default` after a miss.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.find(key)?.map(Bound::into_any).or(default))
    }

    /// The hits of several keys, by key.
    fn get_many<'py>(&self, python: Python<'py>, keys: Vec<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyDict>> {
        let bytes = keys.iter().map(arguments::key).collect::<PyResult<Vec<_>>>()?;
        let values = self.read(python, |pool| pool.get_many(&bytes))?;
        let found = PyDict::new(python);
        for (key, value) in keys.iter().zip(values) {
            if let Some(value) = value {
                found.set_item(key, PyBytes::new(python, &value))?;
            }
        }
        Ok(found)
    }

    /// Inserts or overwrites; `ttl` in seconds, None for the default of the cache.
    #[pyo3(signature = (key, value, ttl=None))]
    fn set(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>, ttl: Option<f64>) -> PyResult<()> {
        let python = key.py();
        let (key, value) = (arguments::key(key)?, arguments::value(value)?);
        let options = options(ttl)?;
        self.write(python, |pool| pool.insert_with(&*key, &*value, options))
    }

    /// Up to `length` bytes of a value, from `offset` on; None after a miss. Of a long value only the parts that hold
    /// these bytes are read.
    fn get_range<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        offset: usize,
        length: usize,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let python = key.py();
        let key = arguments::key(key)?;
        let part = self.read(python, |pool| pool.get_range(&*key, offset, length))?;
        Ok(part.map(|part| PyBytes::new(python, &part)))
    }

    /// Inserts if the key is absent. False, with nothing changed, if it is present.
    #[pyo3(signature = (key, value, ttl=None))]
    fn add(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>, ttl: Option<f64>) -> PyResult<bool> {
        let python = key.py();
        let (key, value, options) = (arguments::key(key)?, arguments::value(value)?, options(ttl)?);
        self.write(python, |pool| pool.insert_if_absent(&*key, &*value, options))
    }

    /// Overwrites if the value is `expected` at that moment. False, with nothing changed, if it is another or absent.
    #[pyo3(signature = (key, expected, value, ttl=None))]
    fn compare_and_swap(
        &self,
        key: &Bound<'_, PyAny>,
        expected: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<f64>,
    ) -> PyResult<bool> {
        let python = key.py();
        let (key, options) = (arguments::key(key)?, options(ttl)?);
        let (expected, value) = (arguments::value(expected)?, arguments::value(value)?);
        self.write(python, |pool| pool.compare_and_swap(&*key, &*expected, &*value, options))
    }

    /// Inserts all entries of a dict.
    #[pyo3(signature = (entries, ttl=None))]
    fn set_many(&self, entries: &Bound<'_, PyDict>, ttl: Option<f64>) -> PyResult<()> {
        entries.iter().try_for_each(|(key, value)| self.set(&key, &value, ttl))
    }

    /// Removes a key. False if it was absent.
    fn delete(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let python = key.py();
        let key = arguments::key(key)?;
        self.read(python, |pool| pool.remove(&*key))
    }

    /// Gives an entry a new life of `ttl` seconds. False if it is absent.
    fn touch(&self, key: &Bound<'_, PyAny>, ttl: f64) -> PyResult<bool> {
        let python = key.py();
        let (key, ttl) = (arguments::key(key)?, arguments::ttl(ttl)?);
        self.write(python, |pool| pool.touch(&*key, ttl))
    }

    /// Adds to the decimal number that a value is, modulo 2**64. None if the key is absent.
    #[pyo3(signature = (key, delta=1))]
    fn increment(&self, key: &Bound<'_, PyAny>, delta: u64) -> PyResult<Option<u64>> {
        let python = key.py();
        let key = arguments::key(key)?;
        self.write(python, |pool| pool.increment(&*key, delta))
    }

    /// Subtracts, down to 0. None if the key is absent.
    #[pyo3(signature = (key, delta=1))]
    fn decrement(&self, key: &Bound<'_, PyAny>, delta: u64) -> PyResult<Option<u64>> {
        let python = key.py();
        let key = arguments::key(key)?;
        self.write(python, |pool| pool.decrement(&*key, delta))
    }

    /// Makes every entry absent.
    fn clear(&self, python: Python<'_>) -> PyResult<()> {
        let pool = self.open()?;
        python.detach(|| pool.invalidate_all());
        Ok(())
    }

    /// Iterates over (key, value) of all entries, in no order. An entry that exists during the whole iteration is met
    /// at least once; one that is written or removed meanwhile may be met or not.
    fn items(&self, python: Python<'_>) -> PyResult<Items> {
        self.iterate(python, Part::Items)
    }

    /// As `items`, with the keys only.
    fn keys(&self, python: Python<'_>) -> PyResult<Items> {
        self.iterate(python, Part::Keys)
    }

    /// As `items`, with the values only.
    fn values(&self, python: Python<'_>) -> PyResult<Items> {
        self.iterate(python, Part::Values)
    }

    /// Removes a key and returns its value: of several callers one gets it. `default`, or a KeyError without one, if
    /// the key is absent.
    #[pyo3(signature = (key, *default))]
    fn pop<'py>(&self, key: &Bound<'py, PyAny>, default: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let python = key.py();
        if default.len() > 1 {
            return Err(PyTypeError::new_err(format!("pop takes a key and a default, not {} defaults", default.len())));
        }
        let bytes = arguments::key(key)?;
        match self.write(python, |pool| pool.take(&*bytes))? {
            Some(value) => Ok(PyBytes::new(python, &value).into_any()),
            None => default.get_item(0).map_err(|_| PyKeyError::new_err(key.clone().unbind())),
        }
    }

    /// The value of a key; if it is absent, `default`, which is inserted.
    #[pyo3(signature = (key, default, ttl=None))]
    fn setdefault<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: &Bound<'py, PyAny>,
        ttl: Option<f64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (python, options) = (key.py(), options(ttl)?);
        let (key, value) = (arguments::key(key)?, arguments::value(default)?);
        // Ends: each round follows a change by another thread.
        let found = self.write(python, |pool| {
            loop {
                if let Some(found) = pool.get(&*key) {
                    return Ok(Some(found));
                }
                if pool.insert_if_absent(&*key, &*value, options)? {
                    return Ok(None);
                }
            }
        })?;
        Ok(PyBytes::new(python, found.as_deref().unwrap_or(&value)))
    }

    /// Inserts all entries of a mapping, or of pairs, one after the other.
    #[pyo3(signature = (entries, ttl=None))]
    fn update(&self, entries: &Bound<'_, PyAny>, ttl: Option<f64>) -> PyResult<()> {
        let all = PyDict::new(entries.py());
        all.call_method1("update", (entries,))?;
        self.set_many(&all, ttl)
    }

    /// The value of a key as bytes. If it is absent, `load()` is called for it: of several callers that miss a key at
    /// one time one calls its loader, and all return what that returns; if it fails, the next one calls its own. The
    /// value is inserted unless the key was written or removed meanwhile. None if the loader returns None.
    ///
    /// With `stale_while_revalidate` a value stays for these seconds after its TTL: one caller loads it anew, and the
    /// others get the older one. With `negative_ttl` it is remembered for these seconds that a loader returned None or
    /// failed: then calls return None, or fail with `KnownFailure`.
    #[pyo3(signature = (key, load, ttl=None, *, stale_while_revalidate=None, negative_ttl=None))]
    fn get_or_load<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        load: &Bound<'py, PyAny>,
        ttl: Option<f64>,
        stale_while_revalidate: Option<f64>,
        negative_ttl: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let (pool, python, loader) = (self.open()?, key.py(), self.loader(load));
        let (key, options) = (arguments::key(key)?, load::options(ttl, stale_while_revalidate, negative_ttl)?);
        let value = self.run_load(python, &loader, pool.get_or_load_async(&*key, options, loader.answer()))?;
        Ok(value.map(|value| PyBytes::new(python, &value)))
    }

    /// The native half of `get_or_load_async`.
    fn _begin_load(
        &self,
        key: &Bound<'_, PyAny>,
        ttl: Option<f64>,
        stale_while_revalidate: Option<f64>,
        negative_ttl: Option<f64>,
    ) -> PyResult<LoadTask> {
        let (pool, options) = (self.open()?.clone(), load::options(ttl, stale_while_revalidate, negative_ttl)?);
        let key = arguments::key(key)?.into_owned();
        Ok(self.begin_load(|answer| Box::pin(async move { pool.get_or_load_async(&key, options, answer).await })))
    }

    /// Counters since the start, and gauges, of this pool.
    fn stats<'py>(&self, python: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        statistics(python, &self.read(python, |pool| pool.stats())?)
    }

    /// The words of a key: 1 to 64 numbers of 64 bits that are read and changed together. Creates nothing.
    fn words(this: Py<Self>, key: &Bound<'_, PyAny>) -> PyResult<Words> {
        Ok(Words { pool: this, key: arguments::key(key)?.into_owned() })
    }

    /// The map of a key, whose entries are bytes that are read and changed one by one. Creates nothing.
    fn map(this: Py<Self>, key: &Bound<'_, PyAny>) -> PyResult<Map> {
        Ok(Map { pool: this, key: arguments::key(key)?.into_owned() })
    }

    /// The range map of a key: a map whose entries are ordered by their keys' bytes. Creates nothing.
    fn range_map(this: Py<Self>, key: &Bound<'_, PyAny>) -> PyResult<RangeMap> {
        Ok(RangeMap { pool: this, key: arguments::key(key)?.into_owned() })
    }

    /// The append buffer of a key: records of bytes in the order in which they were appended. Creates nothing.
    fn append_buffer(this: Py<Self>, key: &Bound<'_, PyAny>) -> PyResult<AppendBuffer> {
        Ok(AppendBuffer { pool: this, key: arguments::key(key)?.into_owned() })
    }

    /// The array of a key: as many numbers as it was created with, of the type that `typecode` names as in the module
    /// `array`. Creates nothing.
    #[pyo3(signature = (key, typecode="q"))]
    fn fixed_array(this: Py<Self>, key: &Bound<'_, PyAny>, typecode: &str) -> PyResult<FixedArray> {
        FixedArray::new(this, arguments::key(key)?.into_owned(), typecode)
    }

    /// This pool with the negative results of its keys in a compact pool, whose keys have one length.
    fn with_negatives(this: Py<Self>, negatives: Py<CompactPool>) -> NegativeCache {
        NegativeCache::new(this, negatives)
    }

    /// Changes the bounds of this pool's memory. All pools are divided anew.
    fn set_bounds(&self, min: &Bound<'_, PyAny>, max: &Bound<'_, PyAny>) -> PyResult<()> {
        let python = min.py();
        let (min, max) = (arguments::size(min, "min")?, arguments::size(max, "max")?);
        let pool = self.open()?;
        python.detach(|| pool.resize(min, max)).map_err(of)
    }

    /// The name of the pool.
    #[getter]
    fn name(&self) -> &str {
        self.pool.name()
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        self.find(key)?.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.set(key, value, None)
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.delete(key)? { Ok(()) } else { Err(PyKeyError::new_err(key.clone().unbind())) }
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let python = key.py();
        let key = arguments::key(key)?;
        self.read(python, |pool| pool.contains_key(&*key))
    }

    fn __len__(&self, python: Python<'_>) -> PyResult<usize> {
        self.read(python, |pool| pool.entry_count() as usize)
    }

    fn __iter__(&self, python: Python<'_>) -> PyResult<Items> {
        self.keys(python)
    }

    fn __repr__(&self) -> String {
        let state = if self.state.check().is_ok() { "open" } else { "closed" };
        format!("<ebbtide pool {:?}, {state}>", self.pool.name())
    }
}

/// The options of a write with a TTL in seconds.
pub fn options(ttl: Option<f64>) -> PyResult<InsertOptions> {
    Ok(match ttl {
        Some(seconds) => InsertOptions::new().ttl(arguments::ttl(seconds)?),
        None => InsertOptions::new(),
    })
}

/// Parts of an entry that an iteration yields.
enum Part {
    Keys,
    Values,
    Items,
}

/// The iterator of `items()`, `keys()` and `values()`.
#[pyclass(frozen, module = "ebbtide")]
pub struct Items {
    entries: Mutex<ebbtide::Iter>,
    part: Part,
    state: Arc<State>,
}

#[pymethods]
impl Items {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, python: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.state.check_process()?;
        // The lock is taken without the interpreter lock, so that two threads cannot wait for each other's.
        let next: Option<(Box<[u8]>, Value)> = python.detach(|| self.entries.lock().expect("no step panics").next());
        let Some((key, value)) = next else { return Ok(None) };
        Ok(Some(match self.part {
            Part::Keys => PyBytes::new(python, &key).into_any(),
            Part::Values => PyBytes::new(python, &value).into_any(),
            Part::Items => (PyBytes::new(python, &key), PyBytes::new(python, &value)).into_pyobject(python)?.into_any(),
        }))
    }
}
