//! Code of the user must not end the inbox: the same message would end it again at each start. What a panic
//! leaves locked is used on.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;

/// The output of a future, or what it panicked with.
pub(crate) async fn caught<F: Future>(future: F) -> Result<F::Output, String> {
    AssertUnwindSafe(future).catch_unwind().await.map_err(|panic| text_of(&*panic))
}

/// Locks what several threads share. A panic of one does not lock the others out: nothing that is done under
/// these locks leaves a change half made.
pub(crate) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "no text".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_caught_with_its_text() {
        assert_eq!(caught(async { 7 }).await, Ok(7));
        assert_eq!(caught(async { panic!("no {}", 1) }).await, Err::<(), _>("no 1".to_owned()));
        let later = async {
            tokio::task::yield_now().await;
            panic!("later")
        };
        assert_eq!(caught(later).await, Err::<(), _>("later".to_owned()));
    }
}
