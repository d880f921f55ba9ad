//! A mutex whose value is used even after a thread panicked with it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The value of a mutex, which no panic leaves half changed.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
