//! Loads: a missed key gets its value from a function or a coroutine of Python, once for all callers.
//!
//! ```text
//! get_or_load        poll, with the interpreter lock ---ready---> answer
//!                      | another caller loads, or no memory is free
//!                      +---> without the lock: park, poll, park, ... ---ready---> answer
//! get_or_load_async  loading.py: LoadTask.poll ---"wait"---> the loop goes on until the wake
//!                                              ---"load"---> await the coroutine, LoadTask.answer
//! ```
//! Both drive the future of the library, so that threads and tasks wait for each other's loads of a key, and no value
//! is written that is older than a write or a removal of its key.
//!
//! An interrupt from the keyboard, an exit or a cancellation is no failure of a loader: the load ends without an
//! answer, as the future is dropped.

use crate::arguments;
use crate::error::of;
use crate::state::State;
use ebbtide::{LoadError, LoadOptions, Value};
use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::future::{Future, pending};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

/// How long a thread that waits leaves signals, such as an interrupt from the keyboard, unseen.
const SIGNALS_AFTER: Duration = Duration::from_millis(100);

/// The options of a load; times in seconds.
pub fn options(ttl: Option<f64>, stale: Option<f64>, negative_ttl: Option<f64>) -> PyResult<LoadOptions> {
    let mut options = LoadOptions::new();
    if let Some(seconds) = ttl {
        options = options.ttl(arguments::ttl(seconds)?);
    }
    if let Some(seconds) = stale {
        options = options.stale_while_revalidate(arguments::duration(seconds, "stale_while_revalidate")?);
    }
    if let Some(seconds) = negative_ttl {
        options = options.negative_ttl(arguments::duration(seconds, "negative_ttl")?);
    }
    Ok(options)
}

/// The value that a loader has returned; `None` where there is none.
fn loaded(answer: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
    if answer.is_none() { Ok(None) } else { Ok(Some(arguments::value(answer)?.into_owned())) }
}

/// Wakes the thread that waits for a load.
struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A function of Python that loads a value.
pub struct Loader {
    load: Py<PyAny>,
    state: Arc<State>,
    /// Its exception that is no failure: the load is abandoned.
    interrupt: Mutex<Option<PyErr>>,
}

impl Loader {
    /// For a cache with this state.
    pub fn new(load: &Bound<'_, PyAny>, state: &Arc<State>) -> Self {
        Self { load: load.clone().unbind(), state: Arc::clone(state), interrupt: Mutex::default() }
    }

    /// Result of the function. Never completes after an interrupt.
    pub async fn answer(&self) -> PyResult<Option<Vec<u8>>> {
        let called = Python::attach(|python| {
            let called = self.load.bind(python).call0().and_then(|answer| loaded(&answer));
            called.map_err(|error| (error.is_instance_of::<PyException>(python), error))
        });
        // The function may have forked: the cache is that of the parent, which gets its own answer.
        let called = self.state.check_process().map_err(|inherited| (false, inherited)).and(called);
        match called {
            Ok(answer) => Ok(answer),
            Err((true, failure)) => Err(failure),
            Err((false, interrupt)) => {
                *self.interrupt() = Some(interrupt);
                pending().await
            }
        }
    }

    fn interrupt(&self) -> MutexGuard<'_, Option<PyErr>> {
        self.interrupt.lock().expect("nothing panics under this lock")
    }

    /// Runs a load that asks for this answer. The interpreter lock is released where the load waits, and where flash
    /// may be read.
    pub fn run<T: Send>(
        &self,
        python: Python<'_>,
        has_flash: bool,
        load: impl Future<Output = Result<T, LoadError<PyErr>>> + Send,
    ) -> PyResult<T> {
        let mut load = pin!(load);
        let waker = Waker::from(Arc::new(Parked(thread::current())));
        let mut step = move || match load.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(found) => Some(found.map_err(refused)),
            Poll::Pending => self.interrupt().take().map(Err),
        };
        if !has_flash && let Some(found) = step() {
            return found;
        }
        python.detach(|| {
            // Ends with the load, or after the cache's `load_timeout`.
            loop {
                if let Some(found) = step() {
                    return found;
                }
                thread::park_timeout(SIGNALS_AFTER);
                Python::attach(|python| python.check_signals())?;
            }
        })
    }
}

fn refused(error: LoadError<PyErr>) -> PyErr {
    match error {
        LoadError::Loader(error) => error,
        LoadError::Cache(error) => of(error),
    }
}

/// A load whose loader is a coroutine.
pub type LoadFuture = Pin<Box<dyn Future<Output = Result<Option<Value>, LoadError<()>>> + Send>>;

/// State that the future of a load shares with the coroutine that drives it.
#[derive(Default)]
struct Exchange {
    /// The future asks for a run of the loader.
    is_wanted: AtomicBool,
    /// The loader's answer; an error stays with the coroutine.
    answer: Mutex<Option<Result<Option<Vec<u8>>, ()>>>,
}

/// The answer that the coroutine gives.
pub struct CoroutineAnswer(Arc<Exchange>);

impl Future for CoroutineAnswer {
    type Output = Result<Option<Vec<u8>>, ()>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        match self.0.answer.lock().expect("nothing panics under this lock").take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                self.0.is_wanted.store(true, Ordering::Relaxed);
                Poll::Pending
            }
        }
    }
}

/// A load that a coroutine drives: see `ebbtide/loading.py`.
#[pyclass(frozen, module = "ebbtide")]
pub struct LoadTask {
    future: Mutex<Option<LoadFuture>>,
    exchange: Arc<Exchange>,
    state: Arc<State>,
    has_flash: bool,
}

impl LoadTask {
    /// `load` makes the future of a load that asks for this answer.
    pub fn new(state: Arc<State>, has_flash: bool, load: impl FnOnce(CoroutineAnswer) -> LoadFuture) -> Self {
        let exchange = Arc::<Exchange>::default();
        let future = load(CoroutineAnswer(Arc::clone(&exchange)));
        Self { future: Mutex::new(Some(future)), exchange, state, has_flash }
    }
}

#[pymethods]
impl LoadTask {
    /// A step: `"load"` asks for the loader's answer, `"wait"` for the next poll after a wake, `"found"` has the value,
    /// and `"failed"` ends the load after the loader's error. `wake` is called, on a thread of its own, when the load
    /// is to be polled again. Only a load that is under way holds it: a task is held by what it waits for.
    fn poll<'py>(&self, python: Python<'py>, wake: Py<PyAny>) -> PyResult<(&'static str, Option<Bound<'py, PyBytes>>)> {
        let ended = || PyRuntimeError::new_err("the load has ended, or another thread polls it");
        self.state.check_process()?;
        let mut slot = self.future.try_lock().map_err(|_| ended())?;
        let future = slot.as_mut().ok_or_else(ended)?;
        let waker = Waker::from(Arc::new(CoroutineWake { wake, state: Arc::clone(&self.state) }));
        let mut poll = || future.as_mut().poll(&mut Context::from_waker(&waker));
        match if self.has_flash { python.detach(poll) } else { poll() } {
            Poll::Pending if self.exchange.is_wanted.swap(false, Ordering::Relaxed) => Ok(("load", None)),
            Poll::Pending => Ok(("wait", None)),
            Poll::Ready(Ok(value)) => Ok(("found", value.map(|value| PyBytes::new(python, &value)))),
            Poll::Ready(Err(LoadError::Loader(()))) => Ok(("failed", None)),
            Poll::Ready(Err(LoadError::Cache(error))) => Err(of(error)),
        }
    }

    /// The loader's answer: bytes, or None where there is no value.
    fn answer(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let answer = loaded(value)?;
        *self.exchange.answer.lock().expect("nothing panics under this lock") = Some(Ok(answer));
        Ok(())
    }

    /// The loader has failed.
    fn fail(&self) {
        *self.exchange.answer.lock().expect("nothing panics under this lock") = Some(Err(()));
    }

    /// Ends the load. If its loader has not answered, one of the other callers runs its own. A forked process leaves
    /// the load to its parent.
    fn cancel(&self) {
        if self.state.check_process().is_ok()
            && let Ok(mut future) = self.future.try_lock()
        {
            *future = None;
        }
    }
}

impl Drop for LoadTask {
    fn drop(&mut self) {
        if self.state.check_process().is_err() {
            // Its end would take locks that a thread of the parent may have had at the fork.
            let future = self.future.get_mut().map_or_else(|poisoned| poisoned.into_inner().take(), Option::take);
            mem::forget(future);
        }
    }
}

/// Wakes the loop of a coroutine.
pub struct CoroutineWake {
    wake: Py<PyAny>,
    state: Arc<State>,
}

impl CoroutineWake {
    pub fn call(self: Arc<Self>) {
        Python::try_attach(|python| {
            // An error is that of a loop that was closed: nobody waits any more.
            let _ = self.wake.call0(python);
            // With the interpreter lock: without it the object would stay until another call of the package.
            drop(self);
        });
    }
}

impl Wake for CoroutineWake {
    fn wake(self: Arc<Self>) {
        Arc::clone(&self.state).wake(self);
    }
}
