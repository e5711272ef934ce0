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

use crate::arguments;
use crate::error::of;
use ebbtide::{LoadError, LoadOptions, Pool, Value};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
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

/// The value of a key, or what `load` returns. The interpreter lock is released where the load waits, and where flash
/// may be read.
pub fn get_or_load(
    pool: &Pool,
    key: &Bound<'_, PyAny>,
    load: &Bound<'_, PyAny>,
    options: LoadOptions,
    has_flash: bool,
) -> PyResult<Option<Value>> {
    let (python, key, load) = (key.py(), arguments::key(key)?, load.clone().unbind());
    let loader = async { Python::attach(|python| loaded(load.bind(python).call0()?.as_any())) };
    let mut future = pin!(pool.get_or_load_async(&*key, options, loader));
    let waker = Waker::from(Arc::new(Parked(thread::current())));
    if !has_flash && let Poll::Ready(found) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
        return found.map_err(refused);
    }
    python.detach(|| {
        // Ends with the load, or after the cache's `load_timeout`.
        loop {
            if let Poll::Ready(found) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return found.map_err(refused);
            }
            thread::park_timeout(SIGNALS_AFTER);
            Python::attach(|python| python.check_signals())?;
        }
    })
}

fn refused(error: LoadError<PyErr>) -> PyErr {
    match error {
        LoadError::Loader(error) => error,
        LoadError::Cache(error) => of(error),
    }
}

type LoadFuture = Pin<Box<dyn Future<Output = Result<Option<Value>, LoadError<()>>> + Send>>;

/// What the future of a load and the coroutine that drives it tell each other.
#[derive(Default)]
struct Exchange {
    /// The future asks for a run of the loader.
    is_wanted: AtomicBool,
    /// The loader's answer; an error stays with the coroutine.
    answer: Mutex<Option<Result<Option<Vec<u8>>, ()>>>,
}

/// A load that a coroutine drives: see `ebbtide/loading.py`.
#[pyclass(frozen, module = "ebbtide")]
pub struct LoadTask {
    future: Mutex<Option<LoadFuture>>,
    exchange: Arc<Exchange>,
    waker: Waker,
    has_flash: bool,
}

impl LoadTask {
    /// `wake` is called, on a thread of its own, when the load is to be polled again.
    pub fn new(pool: Pool, key: Vec<u8>, wake: Py<PyAny>, options: LoadOptions, has_flash: bool) -> Self {
        let exchange = Arc::<Exchange>::default();
        let ours = Arc::clone(&exchange);
        let loader = poll_fn(move |_| match ours.answer.lock().expect("nothing panics under this lock").take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                ours.is_wanted.store(true, Ordering::Relaxed);
                Poll::Pending
            }
        });
        let future: LoadFuture = Box::pin(async move { pool.get_or_load_async(&key, options, loader).await });
        let waker = Waker::from(Arc::new(CoroutineWake(wake)));
        Self { future: Mutex::new(Some(future)), exchange, waker, has_flash }
    }
}

#[pymethods]
impl LoadTask {
    /// A step: `"load"` asks for the loader's answer, `"wait"` for the next poll after a wake, `"found"` has the value,
    /// and `"failed"` ends the load after the loader's error.
    fn poll<'py>(&self, python: Python<'py>) -> PyResult<(&'static str, Option<Bound<'py, PyBytes>>)> {
        let ended = || PyRuntimeError::new_err("the load has ended, or another thread polls it");
        let mut slot = self.future.try_lock().map_err(|_| ended())?;
        let future = slot.as_mut().ok_or_else(ended)?;
        let mut poll = || future.as_mut().poll(&mut Context::from_waker(&self.waker));
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

    /// Ends the load. If its loader has not answered, one of the other callers runs its own.
    fn cancel(&self) {
        if let Ok(mut future) = self.future.try_lock() {
            *future = None;
        }
    }
}

/// Wakes the loop of a coroutine. A thread of its own takes the interpreter lock for this: the threads of the cache,
/// which call wakers, never wait for it.
struct CoroutineWake(Py<PyAny>);

impl Wake for CoroutineWake {
    fn wake(self: Arc<Self>) {
        static WAKES: OnceLock<Sender<Arc<CoroutineWake>>> = OnceLock::new();
        let wakes = WAKES.get_or_init(|| {
            let (sender, wakes) = channel::<Arc<Self>>();
            let wake_all = move || {
                for wake in wakes {
                    // An error is that of a loop that was closed: nobody waits any more.
                    Python::try_attach(|python| wake.0.call0(python).is_ok());
                }
            };
            thread::Builder::new().name("ebbtide-wakes".into()).spawn(wake_all).expect("a thread can be started");
            sender
        });
        wakes.send(self).expect("the thread of wakes does not end");
    }
}
