//! Topics that this login may not write, and topics that refuse the time of records.
//!
//! After such a refusal librdkafka gives a producer up, because nothing may overtake what was refused.
//! So events for these topics go through the isolated producer, where a refusal concerns one event,
//! until one of them is confirmed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::base::lock::locked;

/// Names that are remembered: a template may lead to any number of topics.
const REMEMBERED_MAX: usize = 1024;
/// After a refused time others of the topic may be taken: some records are a little older than others.
const TIME_HOLDS_FOR: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct ForbiddenTopics {
    is_any: AtomicBool,
    /// A confirm before that time says nothing of the next record.
    names: Mutex<BTreeMap<String, Option<Instant>>>,
}

impl ForbiddenTopics {
    fn names(&self) -> MutexGuard<'_, BTreeMap<String, Option<Instant>>> {
        locked(&self.names)
    }

    #[inline]
    pub(super) fn contains(&self, topic: &str) -> bool {
        self.is_any.load(Relaxed) && self.names().contains_key(topic)
    }

    pub(super) fn refused(&self, topic: &str) {
        self.add(topic, None);
    }

    /// It has refused the time of a record.
    pub(super) fn time_refused(&self, topic: &str, now: Instant) {
        self.add(topic, Some(now + TIME_HOLDS_FOR));
    }

    fn add(&self, topic: &str, until: Option<Instant>) {
        let mut names = self.names();
        if names.len() >= REMEMBERED_MAX {
            names.clear();
        }
        names.insert(topic.to_owned(), until);
        self.is_any.store(true, Relaxed);
    }

    pub(super) fn confirmed(&self, topic: &str, now: Instant) {
        if self.is_any.load(Relaxed) {
            let mut names = self.names();
            names.retain(|name, until| name != topic || until.is_some_and(|until| now < until));
            self.is_any.store(!names.is_empty(), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confirm_soon_after_a_refused_time_says_nothing_of_the_next_record() {
        let (topics, now) = (ForbiddenTopics::default(), Instant::now());
        topics.refused("right");
        topics.time_refused("time", now);
        assert!(topics.contains("right") && topics.contains("time"));
        topics.confirmed("right", now);
        topics.confirmed("time", now);
        assert_eq!((topics.contains("right"), topics.contains("time")), (false, true));
        topics.confirmed("time", now + TIME_HOLDS_FOR);
        assert!(!topics.contains("time"));
    }
}
