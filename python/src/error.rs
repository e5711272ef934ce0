//! The exceptions, and which error is which.

use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;

pyo3::create_exception!(ebbtide, Error, PyException, "The cache refused an operation.");
pyo3::create_exception!(ebbtide, TooLarge, Error, "A key or a value is longer than the cache takes.");
pyo3::create_exception!(ebbtide, LoadTimeout, Error, "The loader of another caller has not ended in time.");
pyo3::create_exception!(ebbtide, RecursiveLoad, Error, "The loader of a key loads the same key.");
pyo3::create_exception!(ebbtide, KnownFailure, Error, "It is remembered that a loader of the key has failed.");
pyo3::create_exception!(ebbtide, OutOfMemory, Error, "No memory is free, and nothing can be evicted now.");
pyo3::create_exception!(ebbtide, NotNumeric, Error, "The value is not a decimal number.");
pyo3::create_exception!(ebbtide, WrongStructure, Error, "The value is another structure, or none.");
pyo3::create_exception!(ebbtide, UnknownPool, Error, "No pool has this name, or it was removed.");
pyo3::create_exception!(ebbtide, Closed, Error, "The cache was closed, or opened before a fork.");
pyo3::create_exception!(ebbtide, ConfigurationError, Error, "The options contradict each other or the machine.");

pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let python = module.py();
    module.add("Error", python.get_type::<Error>())?;
    module.add("TooLarge", python.get_type::<TooLarge>())?;
    module.add("OutOfMemory", python.get_type::<OutOfMemory>())?;
    module.add("NotNumeric", python.get_type::<NotNumeric>())?;
    module.add("WrongStructure", python.get_type::<WrongStructure>())?;
    module.add("UnknownPool", python.get_type::<UnknownPool>())?;
    module.add("LoadTimeout", python.get_type::<LoadTimeout>())?;
    module.add("RecursiveLoad", python.get_type::<RecursiveLoad>())?;
    module.add("KnownFailure", python.get_type::<KnownFailure>())?;
    module.add("Closed", python.get_type::<Closed>())?;
    module.add("ConfigurationError", python.get_type::<ConfigurationError>())
}

pub fn of(error: ebbtide::Error) -> PyErr {
    use ebbtide::Error as E;
    let text = error.to_string();
    match error {
        E::KeyLength { length: 0, .. } => PyValueError::new_err(text),
        E::KeyLength { .. } | E::ValueTooLarge { .. } | E::StructureTooLarge { .. } => TooLarge::new_err(text),
        E::OutOfMemory { .. } | E::PinnedLimit { .. } => OutOfMemory::new_err(text),
        E::LoadTimeout { .. } => LoadTimeout::new_err(text),
        E::RecursiveLoad { .. } => RecursiveLoad::new_err(text),
        E::KnownAbsent { .. } | E::KnownFailure { .. } => KnownFailure::new_err(text),
        E::NotNumeric => NotNumeric::new_err(text),
        // Another thread closed the cache during the call.
        E::Closed => Closed::new_err(text),
        E::WrongStructure { .. } => WrongStructure::new_err(text),
        E::UnknownPool { .. } | E::PoolRemoved { .. } => UnknownPool::new_err(text),
        E::PoolExists { .. } | E::Configuration { .. } => ConfigurationError::new_err(text),
        _ => Error::new_err(text),
    }
}

pub fn closed() -> PyErr {
    Closed::new_err("the cache was closed")
}

pub fn inherited() -> PyErr {
    Closed::new_err("the cache was opened before the process was forked: open one in this process")
}

pub fn value(text: impl Into<String>) -> PyErr {
    PyValueError::new_err(text.into())
}
