//! The native half of the Python package `ebbtide`: a cache, its pools, errors. `ebbtide/__init__.py` is the rest.
//!
//! Keys are `str` or `bytes`, values any bytes-like object. Operations that memory serves hold the interpreter lock.
//! Operations that wait release it: opening, closing, changes of pools, writes that wait for memory, and every
//! operation of a cache that has flash.
#![forbid(unsafe_code)]

mod arguments;
mod array;
mod cache;
mod compact;
mod error;
mod load;
mod negatives;
mod pool;
mod profile;
mod state;
mod structured;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
fn _ebbtide(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<cache::Cache>()?;
    module.add_class::<pool::Pool>()?;
    module.add_class::<pool::Items>()?;
    module.add_class::<load::LoadTask>()?;
    module.add_class::<structured::Words>()?;
    module.add_class::<structured::Map>()?;
    module.add_class::<structured::RangeMap>()?;
    module.add_class::<structured::AppendBuffer>()?;
    module.add_class::<array::FixedArray>()?;
    module.add_class::<compact::CompactPool>()?;
    module.add_class::<compact::Negative>()?;
    module.add_class::<compact::Ticket>()?;
    module.add_class::<negatives::NegativeCache>()?;
    module.add_class::<profile::PoolProfile>()?;
    module.add_function(wrap_pyfunction!(state::_forked, module)?)?;
    module.add_function(wrap_pyfunction!(state::_ending, module)?)?;
    module.add("NEGATIVE", compact::negative(module.py())?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    error::add(module)
}
