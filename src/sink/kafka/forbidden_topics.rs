//! Topics that this login may not write, and topics that refuse the time of records.
//!
//! After such a refusal librdkafka gives a producer up, because nothing may overtake what was refused.
//! So events for these topics go through the isolated producer, where a refusal concerns one event,
//! until one of them is confirmed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Names that are remembered: a template may lead to any number of topics.
const REMEMBERED_MAX: usize = 1024;

/// Clones share them, so that a rebuilt sink knows what the one before it has learned.
#[derive(Clone, Debug, Default)]
pub(super) struct ForbiddenTopics(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_any: AtomicBool,
    names: Mutex<BTreeSet<String>>,
}

impl ForbiddenTopics {
    fn names(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(super) fn contains(&self, topic: &str) -> bool {
        self.0.is_any.load(Relaxed) && self.names().contains(topic)
    }

    pub(super) fn refused(&self, topic: &str) {
        let mut names = self.names();
        if names.len() >= REMEMBERED_MAX {
            names.clear();
        }
        names.insert(topic.to_owned());
        self.0.is_any.store(true, Relaxed);
    }

    pub(super) fn confirmed(&self, topic: &str) {
        if self.0.is_any.load(Relaxed) {
            let mut names = self.names();
            names.remove(topic);
            self.0.is_any.store(!names.is_empty(), Relaxed);
        }
    }
}
