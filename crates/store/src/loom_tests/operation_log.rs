//! The operations of the threads of a model on one key, and whether their answers can be explained.

use std::sync::{Arc, Mutex};

/// An operation on the key with its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Did {
    Set(u64),
    Get(Option<u64>),
    Delete(bool),
    /// Added to the number, modulo 2^64; the answer.
    Add(u64, Option<u64>),
    /// Stored unless present; whether it did.
    Insert(u64, bool),
    /// Everything stored before is absent.
    Flush,
    /// An eviction took the key.
    Evict,
}

/// The operations of every thread, in their order within it, outside of loom.
#[derive(Clone, Default)]
pub(crate) struct OperationLog(Arc<Mutex<Vec<Vec<Did>>>>);

impl OperationLog {
    /// Records an operation of thread `thread`.
    pub fn note(&self, thread: usize, did: Did) {
        let mut threads = self.0.lock().expect("no panic under this lock");
        if threads.len() <= thread {
            threads.resize(thread + 1, Vec::new());
        }
        threads[thread].push(did);
    }

    /// Asserts that some interleaving of the threads' operations, from the value `start` to the value `end`, gives
    /// every answer that was given.
    pub fn explain(&self, start: Option<u64>, end: Option<u64>) {
        let threads = self.0.lock().expect("no panic under this lock");
        let mut next = vec![0; threads.len()];
        assert!(explains(&threads, &mut next, start, end), "nothing explains {threads:?} from {start:?} to {end:?}");
    }
}

fn explains(threads: &[Vec<Did>], next: &mut [usize], value: Option<u64>, end: Option<u64>) -> bool {
    if threads.iter().zip(&*next).all(|(did, next)| *next == did.len()) {
        return value == end;
    }
    (0..threads.len()).any(|thread| {
        let Some(&did) = threads[thread].get(next[thread]) else { return false };
        let Some(after) = apply(did, value) else { return false };
        next[thread] += 1;
        let explained = explains(threads, next, after, end);
        next[thread] -= 1;
        explained
    })
}

/// The value after an operation; `None` if it cannot have given its answer.
fn apply(did: Did, value: Option<u64>) -> Option<Option<u64>> {
    match did {
        Did::Set(new) => Some(Some(new)),
        Did::Get(seen) => (seen == value).then_some(value),
        Did::Delete(was_there) => (was_there == value.is_some()).then_some(None),
        Did::Add(delta, answer) => {
            let new = value.map(|value| value.wrapping_add(delta));
            (answer == new).then_some(new)
        }
        Did::Insert(new, stored) => (stored == value.is_none()).then_some(if stored { Some(new) } else { value }),
        Did::Flush | Did::Evict => Some(None),
    }
}
