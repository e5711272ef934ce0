//! Fixed arrays: as many numbers as they were created with, of one type.

use crate::error::{of, value};
use crate::pool::{Pool, options};
use ebbtide::Error;
use pyo3::exceptions::{PyIndexError, PyKeyError};
use pyo3::prelude::*;
use pyo3::types::PyList;

/// The types of elements, named as in the module `array`.
const TYPES: &str = "b B h H i I q Q f d";

/// The array of a key: see `Pool.fixed_array`.
#[pyclass(frozen, module = "ebbtide")]
pub struct FixedArray {
    pool: Py<Pool>,
    key: Vec<u8>,
    typecode: char,
}

/// Runs a block with the type of elements that a typecode names.
macro_rules! with_elements {
    ($typecode:expr, $element:ident => $body:expr) => {
        match $typecode {
            'b' => with_elements!(@ i8, $element, $body),
            'B' => with_elements!(@ u8, $element, $body),
            'h' => with_elements!(@ i16, $element, $body),
            'H' => with_elements!(@ u16, $element, $body),
            'i' => with_elements!(@ i32, $element, $body),
            'I' => with_elements!(@ u32, $element, $body),
            'q' => with_elements!(@ i64, $element, $body),
            'Q' => with_elements!(@ u64, $element, $body),
            'f' => with_elements!(@ f32, $element, $body),
            _ => with_elements!(@ f64, $element, $body),
        }
    };
    (@ $type:ty, $element:ident, $body:expr) => {{
        type $element = $type;
        $body
    }};
}

impl FixedArray {
    pub fn new(pool: Py<Pool>, key: Vec<u8>, typecode: &str) -> PyResult<Self> {
        let mut letters = typecode.chars();
        match (letters.next().filter(|letter| *letter != ' ' && TYPES.contains(*letter)), letters.next()) {
            (Some(typecode), None) => Ok(Self { pool, key, typecode }),
            _ => Err(value(format!("typecode = {typecode:?}: one of {TYPES}"))),
        }
    }

    /// The result of an access by index.
    fn element<T>(&self, found: Result<Option<T>, Error>) -> PyResult<T> {
        match found {
            Ok(Some(element)) => Ok(element),
            Ok(None) => Err(self.absent()),
            // It ends iterations.
            Err(error @ Error::OutOfBounds { .. }) => Err(PyIndexError::new_err(error.to_string())),
            Err(error) => Err(of(error)),
        }
    }

    /// Elements have numbers from 0 on.
    fn position(index: isize) -> PyResult<usize> {
        let wrong = |_| PyIndexError::new_err(format!("index {index}: elements are counted from 0, not from the end"));
        usize::try_from(index).map_err(wrong)
    }

    fn absent(&self) -> PyErr {
        PyKeyError::new_err(String::from_utf8_lossy(&self.key).into_owned())
    }
}

/// Tells an index beyond the array from other errors, which end a write.
fn in_bounds<T>(result: Result<T, Error>) -> Result<Result<T, Error>, Error> {
    match result {
        Err(error) if !matches!(error, Error::OutOfBounds { .. }) => Err(error),
        result => Ok(result),
    }
}

#[pymethods]
impl FixedArray {
    /// Stores an array if the key is absent. False, with nothing changed, if it is present.
    #[pyo3(signature = (elements, ttl=None))]
    fn create(&self, elements: &Bound<'_, PyAny>, ttl: Option<f64>) -> PyResult<bool> {
        let (python, options) = (elements.py(), options(ttl)?);
        with_elements!(self.typecode, Element => {
            let elements = elements.try_iter()?.map(|element| element?.extract()).collect::<PyResult<Vec<Element>>>()?;
            self.pool.get().write(python, |pool| pool.fixed_array::<Element>(&self.key).create(&elements, options))
        })
    }

    /// All elements, from one moment; None if the array is absent.
    fn get<'py>(&self, python: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        with_elements!(self.typecode, Element => {
            let read = self.pool.get().read(python, |pool| pool.fixed_array::<Element>(&self.key).elements())?;
            read.map_err(of)?.map(|elements| PyList::new(python, elements)).transpose()
        })
    }

    /// Replaces an element by the result of `function` on it, as one operation, and returns it. `function` is called
    /// again if another edit comes first.
    fn update<'py>(&self, index: isize, function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (python, function, index) = (function.py(), function.clone().unbind(), Self::position(index)?);
        with_elements!(self.typecode, Element => {
            let mut refused = None;
            let edited = self.pool.get().write(python, |pool| {
                refused = None;
                let call = |old| Python::attach(|python| function.call1(python, (old,))?.extract(python));
                let update = |old: Element| call(old).unwrap_or_else(|error: PyErr| {
                    refused = Some(error);
                    old
                });
                in_bounds(pool.fixed_array::<Element>(&self.key).update(index, update))
            })?;
            match refused {
                Some(error) => Err(error),
                None => Ok(self.element(edited)?.into_pyobject(python)?.into_any()),
            }
        })
    }

    fn __getitem__<'py>(&self, python: Python<'py>, index: isize) -> PyResult<Bound<'py, PyAny>> {
        let index = Self::position(index)?;
        with_elements!(self.typecode, Element => {
            let read = self.pool.get().read(python, |pool| pool.fixed_array::<Element>(&self.key).get(index))?;
            Ok(self.element(read)?.into_pyobject(python)?.into_any())
        })
    }

    fn __setitem__(&self, index: isize, element: &Bound<'_, PyAny>) -> PyResult<()> {
        let index = Self::position(index)?;
        with_elements!(self.typecode, Element => {
            let new: Element = element.extract()?;
            let set = |pool: &ebbtide::Pool| in_bounds(pool.fixed_array::<Element>(&self.key).set(index, &new));
            self.element(self.pool.get().write(element.py(), set)?.map(|is_set| is_set.then_some(())))
        })
    }

    fn __len__(&self, python: Python<'_>) -> PyResult<usize> {
        with_elements!(self.typecode, Element => {
            let read = self.pool.get().read(python, |pool| pool.fixed_array::<Element>(&self.key).len())?;
            Ok(read.map_err(of)?.unwrap_or(0))
        })
    }
}
