//! What the data thread and the connection's thread hand to each other.
//!
//! Bounded by the relay's window: every event in here is one that is in flight.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::message::Message;
use crate::base::event::Sequence;
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};
use crate::sink::News;

/// What the data thread asks for.
#[derive(Debug)]
pub(super) enum Order {
    /// Publish an event.
    Publish(Sequence, Message),
    /// Publish a refused event again.
    Retry(Sequence),
    /// Publish its dead letter in its place.
    Bury(Sequence, Box<(DeadLetterWriter, DeadLetterCause)>),
}

/// Both directions.
#[derive(Debug, Default)]
pub(super) struct Shared {
    orders: Mutex<Vec<Order>>,
    /// Rings for orders, for completed publishes and for the end.
    pub(super) bell: Arc<Notify>,
    news: Mutex<Vec<News>>,
    posted: Condvar,
    stop: AtomicBool,
    /// The broker takes nothing for now.
    blocked: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Hands over what was gathered; `gathered` is empty then.
    pub(super) fn order(&self, gathered: &mut Vec<Order>) {
        lock(&self.orders).append(gathered);
        self.bell.notify_one();
    }

    pub(super) fn take_orders(&self) -> Vec<Order> {
        std::mem::take(&mut *lock(&self.orders))
    }

    pub(super) fn post(&self, told: impl IntoIterator<Item = News>) {
        lock(&self.news).extend(told);
        self.posted.notify_one();
    }

    /// Takes the news, waiting at most `patience` for the first.
    pub(super) fn take_news(&self, patience: Duration, into: &mut Vec<News>) {
        let mut news = lock(&self.news);
        if news.is_empty() && !patience.is_zero() {
            let waited = self.posted.wait_timeout_while(news, patience, |news| news.is_empty());
            news = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        into.append(&mut news);
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.bell.notify_one();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn set_blocked(&self, blocked: bool) {
        self.blocked.store(blocked, Ordering::Relaxed);
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }
}
