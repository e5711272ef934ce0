//! Locks without poison.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks. A panic of another thread stops the server; the counts and lists behind these locks are whole at any time.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
