//! `/api/dlq`, `/api/find` and `/api/resume`: dead letters, events and stops over HTTP, with the same
//! functions as `walrelay dlq`, `find` and `resume`.
//!
//! * Every request needs the token. Cookies are ignored, and a request that changes something must be
//!   JSON, so that no other site can use a person's browser for it.
//! * The topic is read for one request at a time, on a blocking thread, and acted on by one job at a
//!   time, so probes and metrics answer meanwhile. A reading ends when its client has left, and holds
//!   so many dead letters at most, because the memory is the relay's.
//! * Who did what, why, and to how many is logged under the target `audit`, before it is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, Path, Request, State};
use axum::http::{StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, get, post};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use self::error::{ApiError, json_answer};
pub(crate) use self::jobs::DeadLetterAccess;
use self::jobs::ReplayJobs;
use self::token::TokenCheck;
use super::bounded::AdminClient;
use crate::base::clock::{steady_clock, unix_now_us};
use crate::base::error::Fault;
use crate::base::text::escaped;
use crate::base::time::rfc3339;
use crate::dead_letter::reader::DeadLetterTopic;
use crate::dead_letter::release::{ReleaseRequest, ReleasedKeys, releasable_keys, release};
use crate::dead_letter::replay::{ReplayAction, ReplayJob};
use crate::dead_letter::replay_check::{UNFIT, check_replayable};
use crate::dead_letter::view;
use crate::find::FindRequest;

mod error;
mod jobs;
mod request;
mod token;

/// How long the end of the process waits for a request, which says what it has done.
const ENDS_WITHIN: Duration = Duration::from_secs(1);
/// How long a request waits for the one before it.
const TURN_WITHIN: Duration = Duration::from_secs(3);

/// How long an event is looked for: the admin server has few threads that may block, and whoever asks waits.
const FIND_WITHIN: &str = "20s";

/// A list ends, whatever its limit, once it has so many bytes: their texts are of any length.
const LIST_BYTES_MAX: usize = 4 << 20;

type ApiResult = Result<Response, ApiError>;

/// The state that the handlers share.
pub(super) struct Api {
    access: DeadLetterAccess,
    token: TokenCheck,
    jobs: ReplayJobs,
    /// Whose turn it is to read the dead-letter topic, and to look for an event: one request each.
    topic_turn: Arc<Semaphore>,
    search_turn: Arc<Semaphore>,
    /// True when the process ends; then nobody waits for an answer.
    ends: watch::Sender<bool>,
}

/// Ends the work for a request when it is dropped: answered, given up, or without a client.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Api {
    pub(super) fn new(access: DeadLetterAccess) -> Api {
        let token = TokenCheck::new(access.token.as_ref());
        let one = || Arc::new(Semaphore::new(1));
        let (topic_turn, search_turn) = (one(), one());
        let ends = watch::Sender::new(false);
        Api { access, token, jobs: ReplayJobs::default(), topic_turn, search_turn, ends }
    }

    /// Ends readings and the job.
    pub(super) fn end(&self) {
        self.ends.send_replace(true);
        self.jobs.end();
    }

    /// Answers with what `work` returns, which runs on a thread that may block.
    async fn on_topic(
        self: Arc<Api>,
        work: impl FnOnce(&DeadLetterTopic<'_>) -> Result<Value, Fault> + Send + 'static,
    ) -> ApiResult {
        let (api, busy) = (Arc::clone(&self), "the dead-letter topic is read for another request");
        self.in_turn(&self.topic_turn, busy, move |stop| work(&api.access.topic(stop))).await
    }

    /// The same for other work, of which one is done at a time: it takes `turn`, and ends when its
    /// flag is set.
    async fn in_turn(
        &self,
        turn: &Arc<Semaphore>,
        busy: &str,
        work: impl FnOnce(&AtomicBool) -> Result<Value, Fault> + Send + 'static,
    ) -> ApiResult {
        // A person's own requests, as those of a console, follow each other.
        let taken = timeout(TURN_WITHIN, Arc::clone(turn).acquire_owned()).await;
        let permit = taken.ok().and_then(Result::ok);
        let permit =
            permit.ok_or_else(|| ApiError::new("api.busy", busy, "", "try again in a moment"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let while_asked = StopOnDrop(Arc::clone(&stop));
        let mut worked = tokio::task::spawn_blocking(move || {
            let _until_done = permit;
            work(&stop)
        });
        let mut ends = self.ends.subscribe();
        let ended = async { ends.wait_for(|ends| *ends).await.is_err() };
        let worked = tokio::select! {
            worked = &mut worked => worked,
            _ = ended => {
                while_asked.0.store(true, Ordering::Relaxed);
                timeout(ENDS_WITHIN, worked).await.map_err(|_| ApiError::stopping())?
            }
        };
        let body = worked.map_err(|_| ApiError::internal("the request panicked"))??;
        Ok(json_answer(StatusCode::OK, &body))
    }
}

/// The routes, all of which need the token.
pub(super) fn router(api: &Arc<Api>) -> Router {
    Router::new()
        .route("/api/dlq", get(list))
        .route("/api/dlq/{id}", get(show))
        .route("/api/dlq/replay", job(ReplayAction::Replay))
        .route("/api/dlq/discard", job(ReplayAction::Discard))
        .route("/api/dlq/release", post(release_keys))
        .route("/api/dlq/job", get(show_job).delete(stop_job))
        .route("/api/find", get(find_event))
        .route("/api/resume", post(resume))
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
    let mend = "GET /api/dlq, /api/dlq/ID, /api/dlq/job or /api/find; POST /api/dlq/replay, /discard or /release, or /api/resume";
    ApiError::new("api.not-here", "there is nothing here", "", mend)
}

async fn list(State(api): State<Arc<Api>>, uri: Uri) -> ApiResult {
    let (filter, limit) = request::list(&uri)?;
    let job = api.jobs.last().ok().map(|job| job.json());
    api.on_topic(move |topic| {
        let index = topic.index(&filter)?;
        let mut letters = Vec::new();
        let mut bytes = 0;
        topic.letters(&filter, &index, |letter, known| {
            if letters.len() < limit && bytes < LIST_BYTES_MAX {
                let summary = view::summary(letter, known);
                bytes += summary.to_string().len();
                letters.push(summary);
            }
            Ok(letters.len() < limit && bytes < LIST_BYTES_MAX)
        })?;
        Ok(json!({
            "dead_letters": letters,
            "matched": index.count_selected(filter.states()),
            "read": { "records": index.records, "foreign": index.foreign },
            "job": job,
        }))
    })
    .await
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
    api.on_topic(move |topic| {
        let ids = [id];
        let found = view::find(topic, &ids)?;
        found.missing(&ids).map_or(Ok(()), Err)?;
        let letters: Vec<Value> = found.letters.iter().map(|found| found.detail(payload)).collect();
        Ok(json!({ "dead_letters": letters }))
    })
    .await
}

/// Says where an event is, as `walrelay find` does.
async fn find_event(
    State(api): State<Arc<Api>>,
    ConnectInfo(client): ConnectInfo<AdminClient>,
    uri: Uri,
) -> ApiResult {
    let finder = api.access.finder.clone().ok_or_else(not_here)?;
    let request = FindRequest::parse(&request::find(&uri)?, FIND_WITHIN, unix_now_us())?;
    let (who, wanted) = (who(&client), &request.wanted);
    let (by, wanted) = (wanted.name(), escaped(wanted.text()));
    tracing::info!(target: "audit", who, action = "find", by, wanted, "an event is looked for");
    let work = move |stop: &AtomicBool| Ok(finder.find(&request, stop, &mut |_| {})?.to_json());
    api.in_turn(&api.search_turn, "an event is looked for by another request", work).await
}

/// The route that begins a job.
fn job(action: ReplayAction) -> MethodRouter<Arc<Api>> {
    post(move |api, client, request| begin_job(api, client, request, action))
}

async fn begin_job(
    State(api): State<Arc<Api>>,
    ConnectInfo(client): ConnectInfo<AdminClient>,
    request: Request,
    action: ReplayAction,
) -> ApiResult {
    let request::JobRequest { filter, rate, expected, dry_run, any_destination, reason } =
        request::job(request).await?;
    let destinations = (!any_destination).then(|| api.access.destinations.clone());
    if dry_run {
        // What comes after this answer was not seen by whoever asked.
        let (filter, until_unix_us) = filter.until_at_most(unix_now_us());
        let until = rfc3339(until_unix_us);
        let count = api.on_topic(move |topic| {
            let index = topic.index(&filter)?;
            let matched = index.count_selected(filter.states());
            let mut counted = json!({ "dry_run": true, "matched": matched, "until": until, "records": index.records });
            // An age would begin later in the request that acts on what was counted.
            if let Some(since_unix_us) = filter.since_unix_us() {
                counted["since"] = rfc3339(since_unix_us).into();
            }
            if action == ReplayAction::Replay {
                match check_replayable(topic, &filter, &index, destinations.as_ref()) {
                    Err(fault) if fault.code == UNFIT => counted["unfit"] = fault.what.into(),
                    checked => checked?,
                }
            }
            Ok(counted)
        });
        return count.await;
    }
    let (by, name, text) = (who(&client), action.name(), filter.to_string());
    let who = by.as_str();
    // The job itself logs how many dead letters it has found, and how many it has resolved.
    let write_audit_line = || {
        tracing::info!(
            target: "audit", who, action = name, filter = text, any_destination, reason,
            "dead letters: {name} requested over HTTP"
        );
    };
    let job = ReplayJob { action, filter, rate, expected, destinations, by: by.clone() };
    let job = api.jobs.begin(api.access.clone(), job, reason.clone(), write_audit_line)?;
    Ok(json_answer(StatusCode::ACCEPTED, &job.json()))
}

async fn show_job(State(api): State<Arc<Api>>) -> ApiResult {
    Ok(json_answer(StatusCode::OK, &api.jobs.last()?.json()))
}

async fn stop_job(
    State(api): State<Arc<Api>>,
    ConnectInfo(client): ConnectInfo<AdminClient>,
) -> ApiResult {
    let job = api.jobs.last()?;
    job.stop();
    let who = who(&client);
    tracing::info!(target: "audit", who, action = "stop", "dead letters: stop of the job requested");
    Ok(json_answer(StatusCode::ACCEPTED, &job.json()))
}

async fn release_keys(
    State(api): State<Arc<Api>>,
    ConnectInfo(client): ConnectInfo<AdminClient>,
    request: Request,
) -> ApiResult {
    let (request::ReleaseBody { key, force, dry_run, .. }, reason) =
        request::release(request).await?;
    let request = ReleaseRequest { key, force, by: who(&client) };
    let answer = move |ReleasedKeys { keys, meanwhile }| json!({ "dry_run": dry_run, "keys": keys, "dead_letters_meanwhile": meanwhile });
    if dry_run {
        let would = move |topic: &DeadLetterTopic<'_>| {
            let keys = releasable_keys(topic, &request)?;
            Ok(answer(ReleasedKeys { keys, meanwhile: 0 }))
        };
        return api.on_topic(would).await;
    }
    tracing::info!(
        target: "audit", who = request.by, action = "release", keys = request.keys(), reason,
        "dead letters: release requested over HTTP"
    );
    finish(api.on_topic(move |topic| Ok(answer(release(topic, &request, &steady_clock())?)))).await
}

/// Acknowledges the stop because of which the relay waits.
async fn resume(
    State(api): State<Arc<Api>>,
    ConnectInfo(client): ConnectInfo<AdminClient>,
    request: Request,
) -> ApiResult {
    let (reason, seen) = request::resume(request).await?;
    let stops = api.access.stops.clone().ok_or_else(not_here)?;
    let who = who(&client);
    tracing::info!(target: "audit", who, action = "resume", reason, "resume requested over HTTP");
    let resumed = async move {
        let work = move |_: &AtomicBool| {
            let resumed = stops.resume(&who, &reason, seen.as_ref()).map_err(of_running_relay)?;
            Ok(json!({ "resumed": resumed.to_json() }))
        };
        api.in_turn(&api.topic_turn, "another request is under way", work).await
    };
    finish(resumed).await
}

/// Does the work in a task of its own, which goes on to the end when the client leaves.
async fn finish(work: impl Future<Output = ApiResult> + Send + 'static) -> ApiResult {
    tokio::spawn(work).await.map_err(|_| ApiError::internal("the request panicked"))?
}

/// The help of the command is for a relay that has ended.
fn of_running_relay(fault: Fault) -> Fault {
    match fault.code {
        "resume.nothing" => {
            let mend = "there is nothing to do: the relay runs, and GET /status shows its state";
            Fault { mend: mend.to_owned(), ..fault }
        }
        _ => fault,
    }
}

/// The name of a client in resolutions and in the log.
fn who(client: &AdminClient) -> String {
    format!("token@{}", client.addr)
}

#[cfg(test)]
mod reading_tests;
#[cfg(test)]
mod tests;
