//! `/api/dlq`: dead letters over HTTP, with the engine of `walrelay dlq`.
//!
//! * Nobody is let in without the token; no cookie is looked at, and what changes something must be
//!   JSON, so that no other site can use a person's browser for it.
//! * The topic is read on blocking threads, few at a time, and acted on by one job at a time: probes
//!   and metrics answer meanwhile.
//! * Who did what, why, and to how many goes to the log under the target `audit`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::{ConnectInfo, Path, Request, State};
use axum::http::{StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use self::gate::Gate;
use self::jobs::{Jobs, Order};
use self::refusal::Refusal;
use super::bounded::Client;
use super::{JSON, Letters, answer};
use crate::base::error::Fault;
use crate::base::text::{escaped, json_shown};
use crate::dead_letter::clock;
use crate::dead_letter::filter::{DeadLetterFilter, is_key};
use crate::dead_letter::fold::Parked;
use crate::dead_letter::reader::DeadLetterTopic;
use crate::dead_letter::release::{Keys, Release, Released, release};
use crate::dead_letter::replay::Action;
use crate::dead_letter::view::{Detail, View};

mod ask;
mod gate;
mod jobs;
mod refusal;

/// Requests that read the topic at the same time.
const READERS_MAX: usize = 2;

type Answered = Result<Response, Refusal>;

/// What the handlers share.
pub(super) struct Api {
    letters: Letters,
    gate: Gate,
    jobs: Jobs,
    readers: Arc<Semaphore>,
    /// The process ends: nobody waits for an answer any more.
    ends: AtomicBool,
}

impl Api {
    pub(super) fn new(letters: Letters) -> Api {
        let gate = Gate::new(letters.token.as_ref());
        let readers = Arc::new(Semaphore::new(READERS_MAX));
        Api { letters, gate, jobs: Jobs::default(), readers, ends: AtomicBool::new(false) }
    }

    /// Ends what is under way.
    pub(super) fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
        self.jobs.end();
    }

    /// Works on the topic where waiting holds up nobody.
    async fn on_topic<T: Send + 'static>(
        self: Arc<Api>,
        work: impl FnOnce(&DeadLetterTopic<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Refusal> {
        let permit = Arc::clone(&self.readers).try_acquire_owned().map_err(|_| Refusal::busy())?;
        let worked = tokio::task::spawn_blocking(move || {
            let _until_done = permit;
            let Letters { broker, address, .. } = &self.letters;
            work(&DeadLetterTopic { broker: &**broker, address, stop: &self.ends })
        });
        let worked = worked.await.map_err(|_| Refusal::broken("the request panicked"))?;
        worked.map_err(Refusal::from)
    }
}

/// The routes, all behind the gate.
pub(super) fn router(api: &Arc<Api>) -> Router {
    Router::new()
        .route("/api/dlq", get(list))
        .route("/api/dlq/{id}", get(show))
        .route("/api/dlq/replay", post(replay))
        .route("/api/dlq/discard", post(discard))
        .route("/api/dlq/release", post(let_go))
        .route("/api/dlq/job", get(job).delete(stop_job))
        .route("/api/{*rest}", any(async || not_here()))
        .route_layer(from_fn_with_state(Arc::clone(api), guard))
        .with_state(Arc::clone(api))
}

async fn guard(
    State(api): State<Arc<Api>>,
    ConnectInfo(client): ConnectInfo<Client>,
    request: Request,
    next: Next,
) -> Response {
    match api.gate.admit(request.headers(), client.addr) {
        Ok(()) => {
            client.let_in();
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    }
}

fn not_here() -> Refusal {
    let mend =
        "GET /api/dlq, /api/dlq/ID or /api/dlq/job; POST /api/dlq/replay, /discard or /release";
    Refusal::new(StatusCode::NOT_FOUND, "api.not-here", "there is nothing here", "", mend)
}

fn told(code: StatusCode, body: &Value) -> Response {
    answer(code, JSON, json_shown(&body.to_string()) + "\n")
}

async fn list(State(api): State<Arc<Api>>, uri: Uri) -> Answered {
    let ask::List { filter, limit } = ask::list(&uri)?;
    let body = api.on_topic(move |archive| {
        let index = archive.index(&filter)?;
        let mut letters = Vec::new();
        archive.letters(&filter, &index, |letter, known| {
            if letters.len() < limit {
                letters.push(json!(View::new(letter, known)));
            }
            Ok(letters.len() < limit)
        })?;
        Ok(json!({
            "letters": letters,
            "meant": index.fold.marked(filter.states()),
            "read": { "records": index.records, "foreign": index.foreign },
        }))
    });
    Ok(told(StatusCode::OK, &body.await?))
}

async fn show(
    State(api): State<Arc<Api>>,
    ConnectInfo(client): ConnectInfo<Client>,
    Path(id): Path<String>,
    uri: Uri,
) -> Answered {
    let payload = ask::payload(&uri)?;
    if payload {
        let (who, id) = (who(&client), escaped(&id));
        tracing::info!(target: "audit", who, action = "show", id, "dead letters: payload shown");
    }
    let body = api.on_topic(move |archive| {
        let found = archive.find(&id)?;
        let letters = found.iter().map(|found| json!(Detail::new(found, payload)));
        Ok(json!({ "letters": letters.collect::<Vec<_>>() }))
    });
    Ok(told(StatusCode::OK, &body.await?))
}

async fn replay(state: State<Arc<Api>>, client: ConnectInfo<Client>, request: Request) -> Answered {
    work(state, client, request, Action::Replay).await
}

async fn discard(
    state: State<Arc<Api>>,
    client: ConnectInfo<Client>,
    request: Request,
) -> Answered {
    work(state, client, request, Action::Discard).await
}

async fn work(
    State(api): State<Arc<Api>>,
    ConnectInfo(client): ConnectInfo<Client>,
    request: Request,
    action: Action,
) -> Answered {
    let ask::Work { filter, rate, dry_run, reason } = ask::work(request).await?;
    let by = who(&client);
    let (asked, name) = (filter.to_string(), action.name());
    if dry_run {
        let body = api.on_topic(move |archive| {
            let index = archive.index(&filter)?;
            let meant = index.fold.marked(filter.states());
            Ok(json!({ "dry_run": true, "meant": meant, "records": index.records }))
        });
        return Ok(told(StatusCode::OK, &body.await?));
    }
    let order = Order { action, filter, rate, by: by.clone(), reason: reason.clone() };
    let job = api.jobs.begin(api.letters.clone(), order)?;
    // How many they are is told by the job, when it has counted and when it ends.
    tracing::info!(
        target: "audit", who = by, action = name, filter = asked, reason,
        "dead letters: {name} asked for over HTTP"
    );
    Ok(told(StatusCode::ACCEPTED, &job.json()))
}

async fn job(State(api): State<Arc<Api>>) -> Answered {
    Ok(told(StatusCode::OK, &api.jobs.last()?.json()))
}

async fn stop_job(
    State(api): State<Arc<Api>>,
    ConnectInfo(client): ConnectInfo<Client>,
) -> Answered {
    let job = api.jobs.last()?;
    job.stop();
    let who = who(&client);
    tracing::info!(target: "audit", who, action = "stop", "dead letters: the job is to stop");
    Ok(told(StatusCode::ACCEPTED, &job.json()))
}

async fn let_go(
    State(api): State<Arc<Api>>,
    ConnectInfo(client): ConnectInfo<Client>,
    request: Request,
) -> Answered {
    let (ask::LetGo { key, anyway, dry_run, .. }, reason) = ask::let_go(request).await?;
    let by = who(&client);
    let keys = key.map_or(Keys::All, Keys::One);
    if !dry_run {
        tracing::info!(
            target: "audit", who = by, action = "release", ?keys, reason,
            "dead letters: release asked for over HTTP"
        );
    }
    let body = api.on_topic(move |archive| {
        let Released { keys, meanwhile } = if dry_run {
            Released { keys: parked(archive, &keys)?, meanwhile: 0 }
        } else {
            release(archive, &Release { keys: &keys, anyway, by: &by }, &clock::even())?
        };
        Ok(json!({ "dry_run": dry_run, "keys": keys, "letters_meanwhile": meanwhile }))
    });
    Ok(told(StatusCode::OK, &body.await?))
}

/// The keys that a release would be about.
fn parked(archive: &DeadLetterTopic<'_>, keys: &Keys) -> Result<Vec<String>, Fault> {
    let index = archive.index(&DeadLetterFilter::default())?;
    let meant = |parked: &&Parked| match keys {
        Keys::One(wanted) => is_key(wanted, &parked.key, parked.key_cut.as_ref()),
        Keys::All => true,
    };
    let mut parked: Vec<_> = index.fold.parked().filter(meant).map(Parked::name).collect();
    parked.sort();
    Ok(parked)
}

/// As resolutions and the log name whoever showed the token.
fn who(client: &Client) -> String {
    format!("token@{}", client.addr)
}

#[cfg(test)]
mod tests;
