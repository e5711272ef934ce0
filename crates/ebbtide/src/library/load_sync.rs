//! Threads and locks of the table of loads: the standard library's here, loom's in the model of the store's tests.

pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
pub(super) use std::thread::{self, ThreadId};
