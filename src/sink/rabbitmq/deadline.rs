//! Until when the threads of the sink may publish. They look before each write, so that a process that
//! was frozen sends nothing when it runs again and another relay may have taken over.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Clones share it. Without a deadline publishing has no end.
#[derive(Clone, Debug, Default)]
pub(super) struct PublishDeadline(Arc<Mutex<Option<Instant>>>);

impl PublishDeadline {
    pub(super) fn set(&self, deadline: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(deadline);
    }

    pub(super) fn get(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_over(&self) -> bool {
        self.get().is_some_and(|deadline| Instant::now() >= deadline)
    }
}
