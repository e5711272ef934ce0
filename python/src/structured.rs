//! Structured values: words, maps and range maps of bytes to bytes, append buffers.

use crate::arguments;
use crate::error::of;
use crate::pool::{Pool, options};
use ebbtide::structured::{InKeyOrder, WithoutOrder};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::ops;

/// The largest number of words of a value.
const WORDS_MAX: usize = 64;

/// The words of a key: see `Pool.words`.
#[pyclass(frozen, module = "ebbtide")]
pub struct Words {
    pub pool: Py<Pool>,
    pub key: Vec<u8>,
}

#[pymethods]
impl Words {
    /// Stores words if the key is absent. False, with nothing changed, if it is present.
    #[pyo3(signature = (words, ttl=None))]
    fn create(&self, python: Python<'_>, words: Vec<u64>, ttl: Option<f64>) -> PyResult<bool> {
        let options = options(ttl)?;
        check_count(words.len())?;
        self.pool.get().write(python, |pool| pool.words(&self.key).create(&words, options))
    }

    /// The words, all from one moment; None if the key is absent.
    fn get(&self, python: Python<'_>) -> PyResult<Option<Vec<u64>>> {
        self.pool.get().read(python, |pool| pool.words(&self.key).get())?.map_err(of)
    }

    /// Adds to each word, modulo 2**64, as one operation, and answers the sums. Absent words are created as zeros, with
    /// this TTL.
    #[pyo3(signature = (deltas, ttl=None))]
    fn add(&self, python: Python<'_>, deltas: Vec<u64>, ttl: Option<f64>) -> PyResult<Vec<u64>> {
        let options = options(ttl)?;
        check_count(deltas.len())?;
        let zeros = vec![0; deltas.len()];
        let added = self.pool.get().write(python, |pool| {
            pool.words(&self.key).edit_or_create(&zeros, options, |words| {
                if words.len() != deltas.len() {
                    return Err(words.len());
                }
                words.iter_mut().zip(&deltas).for_each(|(word, delta)| *word = word.wrapping_add(*delta));
                Ok(words.to_vec())
            })
        })?;
        let wrong = |length| crate::error::value(format!("{} deltas: the value has {length} words", deltas.len()));
        added.map_err(wrong)
    }

    /// Replaces the words by the result of `function` on their list, as one operation, and returns them; None if the
    /// key is absent. `function` is called again if another edit comes first. The list keeps its length.
    fn edit(&self, python: Python<'_>, function: Py<PyAny>) -> PyResult<Option<Vec<u64>>> {
        let call = |words: &mut [u64]| -> PyResult<Vec<u64>> {
            let new: Vec<u64> = Python::attach(|python| function.call1(python, (words.to_vec(),))?.extract(python))?;
            if new.len() != words.len() {
                return Err(crate::error::value(format!("{} words for {}", new.len(), words.len())));
            }
            words.copy_from_slice(&new);
            Ok(new)
        };
        self.pool.get().write(python, |pool| pool.words(&self.key).edit(&call))?.transpose()
    }
}

/// Refuses counts that words cannot have.
fn check_count(count: usize) -> PyResult<()> {
    match count {
        1..=WORDS_MAX => Ok(()),
        _ => Err(crate::error::value(format!("{count} words: a value has 1 to {WORDS_MAX}"))),
    }
}

type Opened<Order> = ebbtide::structured::Map<Vec<u8>, Vec<u8>, Order>;

/// A key and its value.
fn entry_of<'py>(python: Python<'py>, (key, value): &(Vec<u8>, Vec<u8>)) -> (Bound<'py, PyBytes>, Bound<'py, PyBytes>) {
    (PyBytes::new(python, key), PyBytes::new(python, value))
}

/// The class of a kind of map, with methods of its own.
macro_rules! map_class {
    ($(#[$doc:meta])* $class:ident, $kind:ty, $open:ident, { $($more:tt)* }) => {
        $(#[$doc])*
        #[pyclass(frozen, module = "ebbtide")]
        pub struct $class {
            pub pool: Py<Pool>,
            pub key: Vec<u8>,
        }

        impl $class {
            fn read<T: Send>(
                &self,
                python: Python<'_>,
                read: impl FnOnce(Opened<$kind>) -> Result<T, ebbtide::Error> + Send,
            ) -> PyResult<T> {
                self.pool.get().read(python, |pool| read(pool.$open(&self.key)))?.map_err(of)
            }

            fn write<T: Send>(
                &self,
                python: Python<'_>,
                write: impl Fn(Opened<$kind>) -> Result<T, ebbtide::Error> + Sync,
            ) -> PyResult<T> {
                self.pool.get().write(python, |pool| write(pool.$open(&self.key)))
            }

            fn find<'py>(&self, entry: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
                let python = entry.py();
                let entry = arguments::key(entry)?.into_owned();
                let value = self.read(python, |map| map.get(&entry))?;
                Ok(value.map(|value| PyBytes::new(python, &value)))
            }
        }

        #[pymethods]
        impl $class {
            /// The value of an entry as bytes, or `default`.
            #[pyo3(signature = (key, default=None))]
            fn get<'py>(
                &self,
                key: &Bound<'py, PyAny>,
                default: Option<Bound<'py, PyAny>>,
            ) -> PyResult<Option<Bound<'py, PyAny>>> {
                Ok(self.find(key)?.map(Bound::into_any).or(default))
            }

            /// Writes all entries of a dict as one operation. An absent map is created, with this TTL.
            #[pyo3(signature = (entries, ttl=None))]
            fn update(&self, entries: &Bound<'_, PyDict>, ttl: Option<f64>) -> PyResult<()> {
                let options = options(ttl)?;
                let pair = |(key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
                    Ok((arguments::key(&key)?.into_owned(), arguments::value(&value)?.into_owned()))
                };
                let pairs = entries.iter().map(pair).collect::<PyResult<Vec<(Vec<u8>, Vec<u8>)>>>()?;
                self.write(entries.py(), |map| map.insert_many(pairs.iter().map(|(key, value)| (key, value)), options))
            }

            /// Removes an entry. False if it was absent.
            fn delete(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
                let entry = arguments::key(key)?.into_owned();
                self.write(key.py(), |map| map.remove(&entry))
            }

            /// All entries, from one moment; empty if the map is absent.
            fn items<'py>(&self, python: Python<'py>) -> PyResult<Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
                let entries = self.read(python, |map| map.snapshot()?.map(|map| map.entries()).transpose())?;
                Ok(entries.unwrap_or_default().into_iter().map(|entry| entry_of(python, &entry)).collect())
            }

            fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
                self.find(key)?.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
            }

            fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
                let entry: Vec<u8> = arguments::key(key)?.into_owned();
                let value: Vec<u8> = arguments::value(value)?.into_owned();
                self.write(key.py(), |map| map.insert(&entry, &value))
            }

            fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
                if self.delete(key)? { Ok(()) } else { Err(PyKeyError::new_err(key.clone().unbind())) }
            }

            fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
                Ok(self.find(key)?.is_some())
            }

            fn __len__(&self, python: Python<'_>) -> PyResult<usize> {
                self.read(python, |map| Ok(map.snapshot()?.map(|map| map.len()).transpose()?.unwrap_or(0)))
            }

            $($more)*
        }
    };
}

map_class!(
    /// The map of a key: see `Pool.map`.
    Map,
    WithoutOrder,
    map,
    {}
);

map_class!(
    /// The range map of a key: see `Pool.range_map`.
    RangeMap,
    InKeyOrder,
    range_map,
    {
        /// The entries with keys from `start` to before `stop`, in the order of their bytes, from one moment; None is
        /// no bound.
        #[pyo3(signature = (start=None, stop=None))]
        fn range<'py>(
            &self,
            python: Python<'py>,
            start: Option<Bound<'py, PyAny>>,
            stop: Option<Bound<'py, PyAny>>,
        ) -> PyResult<Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
            let key = |bound: Option<Bound<'py, PyAny>>| -> PyResult<Option<Vec<u8>>> {
                bound.map(|bound| Ok(arguments::key(&bound)?.into_owned())).transpose()
            };
            let start = key(start)?.map_or(ops::Bound::Unbounded, ops::Bound::Included);
            let stop = key(stop)?.map_or(ops::Bound::Unbounded, ops::Bound::Excluded);
            let entries = self.read(python, |map| map.range((start, stop)))?;
            Ok(entries.into_iter().map(|entry| entry_of(python, &entry)).collect())
        }
    }
);

/// The append buffer of a key: see `Pool.append_buffer`.
#[pyclass(frozen, module = "ebbtide")]
pub struct AppendBuffer {
    pub pool: Py<Pool>,
    pub key: Vec<u8>,
}

#[pymethods]
impl AppendBuffer {
    /// Appends a record. An absent buffer is created, with this TTL.
    #[pyo3(signature = (record, ttl=None))]
    fn append(&self, record: &Bound<'_, PyAny>, ttl: Option<f64>) -> PyResult<()> {
        let (record_bytes, options) = (arguments::value(record)?, options(ttl)?);
        let append = |pool: &ebbtide::Pool| pool.append_buffer(&self.key).append_with(&*record_bytes, options);
        self.pool.get().write(record.py(), append)
    }

    /// All records, the oldest first, from one moment; empty if the buffer is absent.
    fn records<'py>(&self, python: Python<'py>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let records = self.pool.get().read(python, |pool| pool.append_buffer(&self.key).records())?.map_err(of)?;
        let bytes = records.iter().flat_map(|records| records.iter().map(|record| PyBytes::new(python, record)));
        Ok(bytes.collect())
    }

    /// Removes all records but the last `count`. Returns how many were removed.
    fn retain_last(&self, python: Python<'_>, count: usize) -> PyResult<usize> {
        self.pool.get().write(python, |pool| pool.append_buffer(&self.key).retain_last(count))
    }
}
