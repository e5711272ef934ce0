//! Tasks that wait for a load: a future that ends with the load, or at a deadline.
//!
//! The library needs no runtime, so deadlines have a thread of their own, `ebbtide-loads`, which starts with the first
//! task that waits. A forked process has the statics of its parent without the thread, and may have them locked: the
//! deadlines of each process are its own.

use super::load_table::{Load, Outcome};
use ebbtide_store::Process;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::thread;
use std::time::Instant;

/// Ends with the outcome of a load; with `None` at the deadline.
pub(super) struct LoadWait {
    load: Arc<Load>,
    deadline: Instant,
    waiter: Option<u64>,
    /// Its entry among the deadlines.
    entry: Option<(Instant, u64)>,
}

/// The deadlines of all tasks that wait, soonest first.
#[derive(Default)]
struct Deadlines {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// The deadlines of a process, and those of the processes that were forked from it.
struct ProcessDeadlines {
    process: Process,
    deadlines: Deadlines,
    forked: OnceLock<Box<ProcessDeadlines>>,
}

static FIRST: OnceLock<Box<ProcessDeadlines>> = OnceLock::new();

#[derive(Default)]
struct Waiting {
    tasks: BTreeMap<(Instant, u64), (Arc<Load>, u64)>,
    next_number: u64,
}

impl LoadWait {
    pub fn new(load: Arc<Load>, deadline: Instant) -> Self {
        Self { load, deadline, waiter: None, entry: None }
    }
}

impl Future for LoadWait {
    type Output = Option<Outcome>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(outcome) = this.load.poll(&mut this.waiter, context.waker()) {
            return Poll::Ready(Some(outcome));
        }
        if this.deadline <= Instant::now() {
            return Poll::Ready(None);
        }
        if let (None, Some(waiter)) = (this.entry, this.waiter) {
            this.entry = Some(Deadlines::get().add(this.deadline, &this.load, waiter));
        }
        Poll::Pending
    }
}

impl Drop for LoadWait {
    fn drop(&mut self) {
        self.waiter.into_iter().for_each(|waiter| self.load.forget(waiter));
        self.entry.into_iter().for_each(|entry| Deadlines::get().remove(entry));
    }
}

impl Deadlines {
    /// The deadlines of this process: a forked child has its own.
    fn get() -> &'static Self {
        let (mut slot, process) = (&FIRST, Process::this());
        // Ends: each further slot is that of a descendant.
        loop {
            let found = match slot.get() {
                Some(found) => found,
                None => {
                    let new = ProcessDeadlines { process, deadlines: Self::default(), forked: OnceLock::new() };
                    if slot.set(Box::new(new)).is_ok() {
                        // Without the thread a deadline is seen when the task is polled for another reason.
                        let _ = thread::Builder::new().name("ebbtide-loads".into()).spawn(|| Self::get().run());
                    }
                    continue;
                }
            };
            if found.process == process {
                return &found.deadlines;
            }
            slot = &found.forked;
        }
    }

    fn add(&self, deadline: Instant, load: &Arc<Load>, waiter: u64) -> (Instant, u64) {
        let mut waiting = self.waiting.lock().expect("nothing panics under this lock");
        waiting.next_number += 1;
        let entry = (deadline, waiting.next_number);
        waiting.tasks.insert(entry, (Arc::clone(load), waiter));
        let is_first = waiting.tasks.first_key_value().is_some_and(|(first, _)| *first == entry);
        drop(waiting);
        if is_first {
            self.changed.notify_one();
        }
        entry
    }

    fn remove(&self, entry: (Instant, u64)) {
        let _task = self.waiting.lock().expect("nothing panics under this lock").tasks.remove(&entry);
    }

    fn run(&self) {
        let mut waiting = self.waiting.lock().expect("nothing panics under this lock");
        loop {
            let now = Instant::now();
            let first = waiting.tasks.first_key_value().map(|((deadline, _), _)| *deadline);
            waiting = match first {
                Some(deadline) if deadline <= now => {
                    let (_, (load, waiter)) = waiting.tasks.pop_first().expect("it was just seen");
                    drop(waiting);
                    load.wake(waiter);
                    self.waiting.lock().expect("nothing panics under this lock")
                }
                Some(deadline) => {
                    let waited = self.changed.wait_timeout(waiting, deadline - now);
                    waited.expect("nothing panics under this lock").0
                }
                None => self.changed.wait(waiting).expect("nothing panics under this lock"),
            };
        }
    }
}
