//! Looks at the relay once a second, for `/status` with rates, `/history`, `/events`, which
//! sends both while they happen, and the service manager.
//!
//! Few clients follow events at a time, each for a minute, so that they leave room for others;
//! a browser's `EventSource` connects again by itself. All of them are sent the same texts, which are
//! made once a second and only where somebody follows. Whoever comes is sent the last sample at once, so
//! that none is missing after a connection was lost for a moment. Streams end when their sender is
//! dropped, which is when the server stops.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use futures_util::stream::unfold;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use super::answer::{JSON, TEXT, answer};
use super::bounded::AdminClient;
use super::history::{Counters, Gauges, History, LOOKS_PER_SAMPLE};
use super::notices::Notices;
use super::status::{self, AdminView};
use crate::base::clock::unix_now_us;
use crate::base::log;
use crate::health::Health;

const LOOK_EVERY: Duration = Duration::from_secs(1);
pub(super) const FOLLOWERS_MAX: usize = 8;
/// How long one client may follow.
const FOLLOWED_FOR_MAX: Duration = Duration::from_secs(60);
/// When a client that was disconnected comes again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What handlers share with [`Observing`].
pub(super) struct Observer {
    pub(super) view: Arc<AdminView>,
    history: Mutex<History>,
    followers: Arc<Semaphore>,
    last_look: watch::Receiver<Look>,
}

/// What was seen last, as it is sent.
#[derive(Clone, Default)]
struct Look {
    status: Arc<str>,
    /// The last sample and its number.
    sample: Option<(u64, Arc<str>)>,
}

impl Look {
    /// The last sample stays, for a client that has missed its look, or comes after it. Returns
    /// whether there is something to send now.
    fn renew(&mut self, status: Option<Arc<str>>, sample: Option<(u64, Arc<str>)>) -> bool {
        self.sample = sample.or(self.sample.take());
        status.map(|status| self.status = status).is_some()
    }
}

/// Looks once a second, until it is stopped.
pub(super) struct Observing {
    observer: Arc<Observer>,
    looks: watch::Sender<Look>,
}

pub(super) fn observer(view: AdminView) -> (Arc<Observer>, Observing) {
    let (looks, last_look) = watch::channel(Look::default());
    let observer = Arc::new(Observer {
        view: Arc::new(view),
        history: Mutex::default(),
        followers: Arc::new(Semaphore::new(FOLLOWERS_MAX)),
        last_look,
    });
    (Arc::clone(&observer), Observing { observer, looks })
}

impl Observing {
    pub(super) async fn run(self, stopped: impl Future<Output = ()>) {
        let mut seconds = interval(LOOK_EVERY);
        seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let AdminView { facts, clock, service_manager, .. } = &*self.observer.view;
        let mut notices = Notices::new(Arc::clone(service_manager));
        let mut samples = 0;
        let looking = async {
            loop {
                seconds.tick().await;
                log::write_due_counts();
                let (health, sample) = self.observer.look();
                notices.look(&health, &facts.note(), clock());
                samples += u64::from(sample.is_some());
                let sample = sample.map(|sample| (samples, sample.into()));
                // The observer has one receiver itself.
                let is_followed = self.looks.receiver_count() > 1;
                let status = is_followed.then(|| self.observer.status().to_string().into());
                self.looks.send_if_modified(|look| look.renew(status, sample));
            }
        };
        tokio::select! {
            () = looking => {}
            () = stopped => {}
        }
        // The last state, with its line in the log.
        self.observer.view.judge();
    }
}

impl Observer {
    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state, and the sample, where one is due, as JSON.
    fn look(&self) -> (Health, Option<String>) {
        let AdminView { metrics, slot, clock, .. } = &*self.view;
        // Each time, so that metrics and log tell of a change of state without a probe.
        let (facts, health) = self.view.judge();
        let gauges = || Gauges {
            at: unix_now_us() / 1_000_000,
            state: health.state.text(),
            ..Gauges::read(metrics, &facts.pass, slot.is_some())
        };
        let mut history = self.history();
        let sample = history.look(Counters::read(metrics, clock()), gauges);
        // Numbers and names can always be serialized.
        let sample = sample.map(|sample| serde_json::to_string(sample).unwrap_or_default());
        (health, sample)
    }

    pub(super) fn status(&self) -> Value {
        let (rates, latency) = self.history().recent();
        let mut status = status::to_json(&self.view);
        status["rates"] = json!(rates);
        status["latency_ms"] = json!(latency);
        status
    }
}

pub(super) fn router(observer: &Arc<Observer>) -> Router {
    Router::new()
        .route("/status", get(show_status))
        .route("/history", get(show_history))
        .route("/events", get(follow))
        .with_state(Arc::clone(observer))
}

async fn show_status(State(observer): State<Arc<Observer>>) -> Response {
    answer(StatusCode::OK, JSON, format!("{:#}\n", observer.status()))
}

async fn show_history(State(observer): State<Arc<Observer>>) -> Response {
    let seconds = LOOK_EVERY.as_secs() * LOOKS_PER_SAMPLE as u64;
    let history = json!({ "interval_seconds": seconds, "samples": observer.history().samples() });
    answer(StatusCode::OK, JSON, format!("{history}\n"))
}

async fn follow(
    ConnectInfo(client): ConnectInfo<AdminClient>,
    State(observer): State<Arc<Observer>>,
) -> Response {
    let Ok(permit) = Arc::clone(&observer.followers).try_acquire_owned() else {
        let text = format!(
            "{FOLLOWERS_MAX} clients follow /events already, as many as may; try again in a minute, or ask for /status\n"
        );
        return answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, text);
    };
    client.follows();
    let first = event("status", &observer.status().to_string()).retry(RETRY_AFTER);
    let mut looks = observer.last_look.clone();
    let sample = looks.borrow_and_update().sample.clone();
    let sample_seen = sample.as_ref().map(|(number, _)| *number);
    let ends_at = Instant::now() + FOLLOWED_FOR_MAX;
    // The last sample may have been taken while this client was connecting again.
    let last_sample = sample.map(|(_, sample)| event("sample", &sample));
    let due = [first].into_iter().chain(last_sample).collect();
    let follower = Follower { looks, sample_seen, due, ends_at, _permit: permit };
    Sse::new(unfold(follower, Follower::next)).into_response()
}

struct Follower {
    looks: watch::Receiver<Look>,
    /// The number of the last sample that was there before, or was sent.
    sample_seen: Option<u64>,
    due: VecDeque<Event>,
    ends_at: Instant,
    _permit: OwnedSemaphorePermit,
}

impl Follower {
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Follower)> {
        if self.due.is_empty() {
            timeout_at(self.ends_at, self.looks.changed()).await.ok()?.ok()?;
            let Look { status, sample } = self.looks.borrow_and_update().clone();
            self.due.push_back(event("status", &status));
            if let Some((number, sample)) = sample
                && self.sample_seen.replace(number) != Some(number)
            {
                self.due.push_back(event("sample", &sample));
            }
        }
        Some((Ok(self.due.pop_front()?), self))
    }
}

fn event(name: &str, json: &str) -> Event {
    Event::default().event(name).data(json)
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
