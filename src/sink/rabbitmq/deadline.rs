//! Until when the threads of the sink may publish. They look before each write, so that a process that
//! was frozen sends nothing when it runs again and another relay may have taken over.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::sink::PublishLimits;

/// Clones share it. Without limits publishing has no end.
#[derive(Clone, Debug, Default)]
pub(super) struct PublishDeadline(Arc<Mutex<Option<PublishLimits>>>);

impl PublishDeadline {
    pub(super) fn set(&self, limits: PublishLimits) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(limits);
    }

    pub(super) fn get(&self) -> Option<PublishLimits> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No further publish may be begun.
    pub(super) fn is_over(&self) -> bool {
        self.get().is_some_and(|limits| Instant::now() >= limits.begin_until)
    }

    /// Nor may one that was begun be finished.
    pub(super) fn is_final(&self) -> bool {
        self.get().is_some_and(|limits| Instant::now() >= limits.finish_until)
    }
}
