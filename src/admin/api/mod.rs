//! `/api/dlq`: dead letters over HTTP, with the engine of `walrelay dlq`.
//!
//! * Nothing is answered without the token; cookies are ignored, and a request that changes something
//!   must be JSON, so that no other site can use a person's browser for it.
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
use serde_json::json;
use tokio::sync::Semaphore;

use self::error::{ApiError, json_answer};
pub(crate) use self::jobs::Letters;
use self::jobs::{JobOrder, ReplayJobs};
use self::token::TokenCheck;
use super::bounded::AdminClient;
use crate::base::clock::steady_clock;
use crate::base::error::Fault;
use crate::base::text::escaped;
use crate::dead_letter::filter::DeadLetterFilter;
use crate::dead_letter::reader::DeadLetterTopic;
use crate::dead_letter::release::{
    KeySelection, ReleaseRequest, ReleasedKeys, key_names, release, releases,
};
use crate::dead_letter::replay::ReplayAction;
use crate::dead_letter::view::{DeadLetterDetail, DeadLetterSummary, find};

mod error;
mod jobs;
mod request;
mod token;

/// Requests that read the topic at the same time.
const READERS_MAX: usize = 2;

type ApiResult = Result<Response, ApiError>;

/// What the handlers share.
pub(super) struct Api {
    letters: Letters,
    token: TokenCheck,
    jobs: ReplayJobs,
    readers: Arc<Semaphore>,
    /// The process ends: nobody waits for an answer any more.
    ends: AtomicBool,
}

impl Api {
    pub(super) fn new(letters: Letters) -> Api {
        let token = TokenCheck::new(letters.token.as_ref());
        let readers = Arc::new(Semaphore::new(READERS_MAX));
        let ends = AtomicBool::new(false);
        Api { letters, token, jobs: ReplayJobs::default(), readers, ends }
    }

    /// Ends what is under way.
    pub(super) fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
        self.jobs.end();
    }

    /// Works on the topic on a thread that may block.
    async fn on_topic<T: Send + 'static>(
        self: Arc<Api>,
        work: impl FnOnce(&DeadLetterTopic<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, ApiError> {
        let permit = Arc::clone(&self.readers).try_acquire_owned().map_err(|_| {
            let what = "the dead-letter topic is being read for others";
            let status = StatusCode::SERVICE_UNAVAILABLE;
            ApiError::new(status, "api.busy", what, "", "try again in a moment")
        })?;
        let worked = tokio::task::spawn_blocking(move || {
            let _until_done = permit;
            let Letters { broker, address, .. } = &self.letters;
            work(&DeadLetterTopic { broker: &**broker, address, stop: &self.ends })
        });
        let worked = worked.await.map_err(|_| ApiError::internal("the request panicked"))?;
        worked.map_err(ApiError::from)
    }
}

/// The routes, all of which need the token.
pub(super) fn router(api: &Arc<Api>) -> Router {
    Router::new()
        .route("/api/dlq", get(list))
        .route("/api/dlq/{id}", get(show))
        .route("/api/dlq/replay", post(replay))
        .route("/api/dlq/discard", post(discard))
        .route("/api/dlq/release", post(release_keys))
        .route("/api/dlq/job", get(job).delete(stop_job))
        .route("/api/{*rest}", any(async || not_here()))
        .route_layer(from_fn_with_state(Arc::clone(api), check_token))
        .with_state(Arc::clone(api))
}

async fn check_token(
    State(api): State<Arc<Api>>,
    ConnectInfo(client): ConnectInfo<AdminClient>,
    request: Request,
    next: Next,
) -> Response {
    match api.token.check(request.headers(), client.addr) {
        Ok(()) => {
            client.let_in();
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}

fn not_here() -> ApiError {
    let mend =
        "GET /api/dlq, /api/dlq/ID or /api/dlq/job; POST /api/dlq/replay, /discard or /release";
    ApiError::new(StatusCode::NOT_FOUND, "api.not-here", "there is nothing here", "", mend)
}

async fn list(State(api): State<Arc<Api>>, uri: Uri) -> ApiResult {
    let (filter, limit) = request::list(&uri)?;
    let body = api.on_topic(move |topic| {
        let index = topic.index(&filter)?;
        let mut letters = Vec::new();
        topic.letters(&filter, &index, |letter, known| {
            if letters.len() < limit {
                letters.push(json!(DeadLetterSummary::new(letter, known)));
            }
            Ok(letters.len() < limit)
        })?;
        Ok(json!({
            "letters": letters,
            "meant": index.count_selected(filter.states()),
            "read": { "records": index.records, "foreign": index.foreign },
        }))
    });
    Ok(json_answer(StatusCode::OK, &body.await?))
}

async fn show(
    State(api): State<Arc<Api>>,
    ConnectInfo(client): ConnectInfo<AdminClient>,
    Path(id): Path<String>,
    uri: Uri,
) -> ApiResult {
    let payload = request::payload(&uri)?;
    if payload {
        let (who, id) = (who(&client), escaped(&id));
        tracing::info!(target: "audit", who, action = "show", id, "dead letters: payload shown");
    }
    let body = api.on_topic(move |topic| {
        let found = find(topic, &id)?;
        let letters = found.iter().map(|found| json!(DeadLetterDetail::new(found, payload)));
        Ok(json!({ "letters": letters.collect::<Vec<_>>() }))
    });
    Ok(json_answer(StatusCode::OK, &body.await?))
}

async fn replay(
    state: State<Arc<Api>>,
    client: ConnectInfo<AdminClient>,
    request: Request,
) -> ApiResult {
    begin_job(state, client, request, ReplayAction::Replay).await
}

async fn discard(
    state: State<Arc<Api>>,
    client: ConnectInfo<AdminClient>,
    request: Request,
) -> ApiResult {
    begin_job(state, client, request, ReplayAction::Discard).await
}

async fn begin_job(
    State(api): State<Arc<Api>>,
    ConnectInfo(client): ConnectInfo<AdminClient>,
    request: Request,
    action: ReplayAction,
) -> ApiResult {
    let request::JobRequest { filter, rate, dry_run, reason } = request::job(request).await?;
    if dry_run {
        let body = api.on_topic(move |topic| {
            let index = topic.index(&filter)?;
            let meant = index.count_selected(filter.states());
            Ok(json!({ "dry_run": true, "meant": meant, "records": index.records }))
        });
        return Ok(json_answer(StatusCode::OK, &body.await?));
    }
    let (by, name, text) = (who(&client), action.name(), filter.to_string());
    let order = JobOrder { action, filter, rate, by: by.clone(), reason: reason.clone() };
    let job = api.jobs.begin(api.letters.clone(), order)?;
    // How many letters they are is logged by the job, when it has counted and when it ends.
    tracing::info!(
        target: "audit", who = by, action = name, filter = text, reason,
        "dead letters: {name} asked for over HTTP"
    );
    Ok(json_answer(StatusCode::ACCEPTED, &job.json()))
}

async fn job(State(api): State<Arc<Api>>) -> ApiResult {
    Ok(json_answer(StatusCode::OK, &api.jobs.last()?.json()))
}

async fn stop_job(
    State(api): State<Arc<Api>>,
    ConnectInfo(client): ConnectInfo<AdminClient>,
) -> ApiResult {
    let job = api.jobs.last()?;
    job.stop();
    let who = who(&client);
    tracing::info!(target: "audit", who, action = "stop", "dead letters: the job is to stop");
    Ok(json_answer(StatusCode::ACCEPTED, &job.json()))
}

async fn release_keys(
    State(api): State<Arc<Api>>,
    ConnectInfo(client): ConnectInfo<AdminClient>,
    request: Request,
) -> ApiResult {
    let (request::ReleaseBody { key, anyway, dry_run, .. }, reason) =
        request::release(request).await?;
    let by = who(&client);
    let keys = key.map_or(KeySelection::All, KeySelection::One);
    if !dry_run {
        tracing::info!(
            target: "audit", who = by, action = "release", ?keys, reason,
            "dead letters: release asked for over HTTP"
        );
    }
    let body = api.on_topic(move |topic| {
        let ReleasedKeys { keys, meanwhile } = if dry_run {
            let index = topic.index(&DeadLetterFilter::default())?;
            ReleasedKeys { keys: key_names(&releases(&index, &keys)), meanwhile: 0 }
        } else {
            release(topic, &ReleaseRequest { keys: &keys, anyway, by: &by }, &steady_clock())?
        };
        Ok(json!({ "dry_run": dry_run, "keys": keys, "letters_meanwhile": meanwhile }))
    });
    Ok(json_answer(StatusCode::OK, &body.await?))
}

/// As resolutions and the log name whoever sent the token.
fn who(client: &AdminClient) -> String {
    format!("token@{}", client.addr)
}

#[cfg(test)]
mod tests;
