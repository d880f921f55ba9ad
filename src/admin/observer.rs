//! Looks at the relay once a second: for the log and metrics, for `/status` with rates, for `/history`, and
//! for the service manager.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use super::answer::{JSON, TEXT, answer};
use super::history::{Counters, Gauges, History, LOOKS_PER_SAMPLE};
use super::notices::Notices;
use super::status::{self, AdminView};
use crate::base::clock::unix_now_us;
use crate::base::lock::locked;
use crate::health::Health;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The state of the relay and its last hour, which the handlers show.
pub(super) struct Observer {
    pub(super) view: Arc<AdminView>,
    history: Mutex<History>,
    /// True where a token is configured, so that `/api` can be used.
    has_token: bool,
}

impl Observer {
    pub(super) fn new(view: AdminView, has_token: bool) -> Observer {
        Observer { view: Arc::new(view), history: Mutex::default(), has_token }
    }

    /// Looks at the relay once a second, until the server is stopped.
    pub(super) async fn run(&self, stopped: impl Future<Output = ()>) {
        let mut seconds = interval(LOOK_EVERY);
        seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let AdminView { facts, clock, service_manager, .. } = &*self.view;
        let mut notices = Notices::new(Arc::clone(service_manager));
        let looking = async {
            loop {
                seconds.tick().await;
                notices.look(&self.look(), &facts.note(), clock());
            }
        };
        tokio::select! {
            () = looking => {}
            () = stopped => {}
        }
        // The last state, with its line in the log.
        self.view.judge();
    }

    fn look(&self) -> Health {
        let AdminView { metrics, slot, clock, .. } = &*self.view;
        // The state is judged each time, so that metrics and log follow it without a probe.
        let (facts, health) = self.view.judge();
        let gauges = || Gauges {
            at: unix_now_us() / 1_000_000,
            state: health.state.text(),
            ..Gauges::read(metrics, &facts.pass, slot.is_some())
        };
        locked(&self.history).look(Counters::read(metrics, clock()), gauges);
        health
    }

    pub(super) fn status(&self) -> Value {
        let (rates, latency) = locked(&self.history).recent();
        let mut status = status::to_json(&self.view);
        status["rates"] = json!(rates);
        status["latency_ms"] = json!(latency);
        status["has_token"] = self.has_token.into();
        status
    }
}

pub(super) fn router(observer: &Arc<Observer>) -> Router {
    Router::new()
        .route("/status", get(show_status))
        .route("/history", get(show_history))
        .with_state(Arc::clone(observer))
}

async fn show_status(State(observer): State<Arc<Observer>>) -> Response {
    answer(StatusCode::OK, JSON, format!("{:#}\n", observer.status()))
}

/// Answers with the samples; with `?since=` with those alone that were taken after that Unix time.
async fn show_history(
    State(observer): State<Arc<Observer>>,
    RawQuery(query): RawQuery,
) -> Response {
    let since = match query.as_deref().unwrap_or_default() {
        "" => Some(i64::MIN),
        query => query.strip_prefix("since=").and_then(|seconds| seconds.parse().ok()),
    };
    let Some(since) = since else {
        let text = "not understood; try /history or /history?since=SECONDS, a Unix time\n";
        return answer(StatusCode::BAD_REQUEST, TEXT, text.to_owned());
    };
    let history = locked(&observer.history);
    let seconds = LOOK_EVERY.as_secs() * LOOKS_PER_SAMPLE as u64;
    let history = json!({ "interval_seconds": seconds, "samples": history.samples_since(since) });
    answer(StatusCode::OK, JSON, format!("{history}\n"))
}
