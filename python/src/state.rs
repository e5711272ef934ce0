//! Whether a cache can be used, and the thread that wakes its tasks: all handles of a cache share this.
//!
//! The threads of a cache stay in the process that opened it. A forked process gets an error from a cache that it has
//! inherited, and can open its own.

use crate::error::{closed, inherited};
use crate::load::CoroutineWake;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// Between two looks for threads that wake coroutines, at the end of the interpreter.
const WAKES_CHECK: Duration = Duration::from_millis(1);

/// Number of forks between the first process and this one. Relaxed: it changes while a process has one thread.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Number of threads `ebbtide-wakes` that may have the interpreter lock, or wait for it. SeqCst, with `IS_ENDING`: of a
/// thread that counts itself and `_ending` at least one sees the other.
static WAKING: AtomicUsize = AtomicUsize::new(0);
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Called in a forked process, before it continues.
#[pyfunction]
pub fn _forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    WAKING.store(0, Ordering::SeqCst);
}

/// Called before the interpreter ends: from here on no coroutine is woken. A thread that waited for the lock of an
/// interpreter which has ended would be ended by it, and the process aborted.
#[pyfunction]
pub fn _ending(python: Python<'_>) {
    IS_ENDING.store(true, Ordering::SeqCst);
    python.detach(|| {
        while WAKING.load(Ordering::SeqCst) > 0 {
            thread::sleep(WAKES_CHECK);
        }
    });
}

fn wake_all(wakes: Receiver<Arc<CoroutineWake>>) {
    for wake in wakes {
        WAKING.fetch_add(1, Ordering::SeqCst);
        if !IS_ENDING.load(Ordering::SeqCst) {
            wake.call();
        }
        WAKING.fetch_sub(1, Ordering::SeqCst);
    }
}

pub struct State {
    is_closed: AtomicBool,
    /// Of the process that opened the cache.
    forks: u64,
    wakes: OnceLock<Sender<Arc<CoroutineWake>>>,
}

impl State {
    pub fn new() -> Arc<Self> {
        let (is_closed, wakes) = (AtomicBool::new(false), OnceLock::new());
        Arc::new(Self { is_closed, forks: FORKS.load(Ordering::Relaxed), wakes })
    }

    fn is_inherited(&self) -> bool {
        self.forks != FORKS.load(Ordering::Relaxed)
    }

    /// An error in a process that has inherited the cache.
    pub fn check_process(&self) -> PyResult<()> {
        if self.is_inherited() { Err(inherited()) } else { Ok(()) }
    }

    /// An error unless the cache is open, in this process.
    pub fn check(&self) -> PyResult<()> {
        self.check_process()?;
        // Pairs with the store of `close`.
        if self.is_closed.load(Ordering::Acquire) { Err(closed()) } else { Ok(()) }
    }

    /// False if there is nothing to close.
    pub fn close(&self) -> bool {
        // Pairs with the load of `check`.
        !self.is_inherited() && !self.is_closed.swap(true, Ordering::AcqRel)
    }

    /// Has the thread `ebbtide-wakes` wake the loop of a coroutine. Only that thread takes the interpreter lock: the
    /// threads of the cache, which call wakers, never wait for it. It ends with the last handle of the cache.
    pub fn wake(&self, wake: Arc<CoroutineWake>) {
        let wakes = self.wakes.get_or_init(|| {
            let (sender, wakes) = channel::<Arc<CoroutineWake>>();
            let run = || wake_all(wakes);
            thread::Builder::new().name("ebbtide-wakes".into()).spawn(run).expect("a thread can be started");
            sender
        });
        wakes.send(wake).expect("the thread of wakes lives as long as its sender");
    }
}
