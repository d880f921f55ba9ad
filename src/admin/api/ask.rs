//! What is asked of `/api`, read from a query or a JSON body: the words of the command line.
//!
//! Whatever is not understood is refused: a filter that was passed over would act on too much.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::refusal::Refusal;
use crate::base::clock::unix_now_us;
use crate::base::encoding::percent_decode;
use crate::base::text::escaped;
use crate::dead_letter::filter::{DeadLetterFilter, FilterText};
use crate::dead_letter::rate::{BadRate, Rate};

/// Largest body: some filters and a reason.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Letters of one answer.
const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 1000;
/// Longest reason; it goes into the log.
const REASON_CHARS_MAX: usize = 500;

const QUERY: &str = "the query";
const BODY: &str = "the body";

/// `GET /api/dlq`.
pub(super) struct List {
    pub(super) filter: DeadLetterFilter,
    pub(super) limit: usize,
}

/// `POST /api/dlq/replay` and `/discard`.
pub(super) struct Work {
    pub(super) filter: DeadLetterFilter,
    pub(super) rate: Option<Rate>,
    pub(super) dry_run: bool,
    pub(super) reason: String,
}

/// `POST /api/dlq/release`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LetGo {
    pub(super) key: Option<String>,
    pub(super) all: bool,
    pub(super) anyway: bool,
    pub(super) dry_run: bool,
    reason: Option<String>,
}

/// What a body says beside filters.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Manner {
    all: bool,
    rate: Option<String>,
    dry_run: bool,
    reason: Option<String>,
}

const MANNER: [&str; 4] = ["all", "rate", "dry_run", "reason"];

pub(super) fn list(uri: &Uri) -> Result<List, Refusal> {
    let mut query = query(uri)?;
    let limit = match query.remove("limit") {
        None => LIMIT_DEFAULT,
        Some(limit) => {
            let limit = limit.as_str().and_then(|limit| limit.parse().ok());
            limit.filter(|limit| (1..=LIMIT_MAX).contains(limit)).ok_or_else(|| {
                Refusal::bad("limit is no number that will do", QUERY, "expected 1 to 1000")
            })?
        }
    };
    Ok(List { filter: filter(query, QUERY)?, limit })
}

/// Is the payload wanted, too?
pub(super) fn payload(uri: &Uri) -> Result<bool, Refusal> {
    let mut query = query(uri)?;
    let payload = query.remove("payload");
    match (payload.as_ref().and_then(Value::as_str), query.is_empty()) {
        (None, true) if payload.is_none() => Ok(false),
        (Some("false"), true) => Ok(false),
        (Some("true"), true) => Ok(true),
        _ => Err(Refusal::bad("only payload can be asked for", QUERY, "expected ?payload=true")),
    }
}

pub(super) async fn work(request: Request) -> Result<Work, Refusal> {
    let mut words = body(request).await?;
    let manner = MANNER.iter().filter_map(|name| words.remove_entry(*name)).collect();
    let manner: Manner = read(Value::Object(manner), BODY)?;
    let filter = filter(words, BODY)?;
    let rate = manner.rate.as_deref().map(str::parse).transpose().map_err(|error: BadRate| {
        Refusal::bad(error.to_string(), "rate", format!("expected {}", BadRate::EXPECTED))
    })?;
    select(filter.narrows(), manner.all)?;
    Ok(Work { filter, rate, dry_run: manner.dry_run, reason: reason(manner.reason)? })
}

pub(super) async fn let_go(request: Request) -> Result<(LetGo, String), Refusal> {
    let mut asked: LetGo = read(Value::Object(body(request).await?), BODY)?;
    select(asked.key.is_some(), asked.all)?;
    let reason = reason(asked.reason.take())?;
    Ok((asked, reason))
}

/// A slip of the hand must not act on everything.
fn select(narrows: bool, all: bool) -> Result<(), Refusal> {
    match (narrows, all) {
        (true, false) | (false, true) => Ok(()),
        (false, false) => {
            let what = "on what? neither a filter nor \"all\": true was given";
            Err(Refusal::bad(what, BODY, "give one of them"))
        }
        (true, true) => {
            let what = "\"all\": true and a filter contradict each other";
            Err(Refusal::bad(what, BODY, "leave one of them out"))
        }
    }
}

fn reason(reason: Option<String>) -> Result<String, Refusal> {
    let reason = reason.unwrap_or_default();
    if reason.chars().count() > REASON_CHARS_MAX {
        let mend = format!("expected at most {REASON_CHARS_MAX} characters");
        return Err(Refusal::bad("the reason is too long", "reason", mend));
    }
    Ok(escaped(&reason))
}

fn filter(words: Map<String, Value>, place: &str) -> Result<DeadLetterFilter, Refusal> {
    let words: FilterText = read(Value::Object(words), place)?;
    Ok(DeadLetterFilter::read(&words, unix_now_us())?)
}

fn read<T: DeserializeOwned>(value: Value, place: &str) -> Result<T, Refusal> {
    serde_json::from_value(value).map_err(|error| {
        Refusal::bad(error.to_string(), place, "see docs/dead-letters.md, \"The same over HTTP\"")
    })
}

fn query(uri: &Uri) -> Result<Map<String, Value>, Refusal> {
    let mut words = Map::new();
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    for pair in pairs {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let text = |text: &str| percent_decode(&text.replace('+', " "));
        let (Ok(name), Ok(value)) = (text(name), text(value)) else {
            return Err(Refusal::bad(
                "it is not percent-encoded text",
                QUERY,
                "encode it as UTF-8",
            ));
        };
        let what = format!("{name:?} is there twice");
        if words.insert(name, Value::String(value)).is_some() {
            return Err(Refusal::bad(what, QUERY, "leave one of them out"));
        }
    }
    Ok(words)
}

/// Only JSON: what a form on another site can make a browser send is something else.
async fn body(request: Request<Body>) -> Result<Map<String, Value>, Refusal> {
    let (head, body) = request.into_parts();
    if !is_json(&head.headers) {
        return Err(Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "api.not-json",
            "the body is not said to be JSON",
            "Content-Type",
            "send the header: Content-Type: application/json",
        ));
    }
    let too_large = || {
        Refusal::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "api.body-too-large",
            format!("the body is longer than {BODY_BYTES_MAX} bytes, or was not sent whole"),
            BODY,
            "send less",
        )
    };
    let length = head.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if length.and_then(|text| text.parse().ok()).is_some_and(|bytes: usize| bytes > BODY_BYTES_MAX)
    {
        return Err(too_large());
    }
    let bytes = to_bytes(body, BODY_BYTES_MAX).await.map_err(|_| too_large())?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Refusal::bad(error.to_string(), BODY, "expected a JSON object"))
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
    kind.trim().eq_ignore_ascii_case(super::super::JSON)
}
