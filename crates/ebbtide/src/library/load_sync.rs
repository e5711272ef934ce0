//! What the table of loads takes from the standard library: a loom model of the store's tests has loom's in its place.

pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
pub(super) use std::thread::{self, ThreadId};
