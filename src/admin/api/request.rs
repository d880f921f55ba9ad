//! Requests to `/api`, read from a query or a JSON body, with the names of the command line.
//!
//! Unknown names are refused: a request whose filter was ignored would act on too much. So is a name that is
//! given twice.

use std::fmt;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, Uri, header};
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::error::ApiError;
use crate::base::clock::unix_now_us;
use crate::base::encoding::percent_decode;
use crate::base::error::Fault;
use crate::base::stop::Stop;
use crate::base::text::escaped;
use crate::base::time::parse_rfc3339;
use crate::dead_letter::filter::{DeadLetterFilter, FilterText};
use crate::dead_letter::rate::Rate;
use crate::find::FindText;

const BODY_BYTES_MAX: usize = 64 << 10;
/// Dead letters of one answer.
const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 1000;
/// Longest reason; it is logged.
const REASON_CHARS_MAX: usize = 500;

const QUERY: &str = "the query";
const BODY: &str = "the body";

/// `POST /api/dlq/replay` and `/discard`.
pub(super) struct JobRequest {
    pub(super) filter: DeadLetterFilter,
    pub(super) rate: Option<Rate>,
    pub(super) expected: Option<usize>,
    pub(super) dry_run: bool,
    pub(super) any_destination: bool,
    pub(super) reason: String,
}

/// `POST /api/dlq/release`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ReleaseBody {
    pub(super) key: Option<String>,
    all: bool,
    pub(super) force: bool,
    pub(super) dry_run: bool,
    reason: Option<String>,
}

/// The options that the body of a job has beside a filter.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JobOptions {
    all: bool,
    rate: Option<String>,
    expected: Option<usize>,
    dry_run: bool,
    any_destination: bool,
    reason: Option<String>,
}

const JOB_OPTIONS: [&str; 6] = ["all", "rate", "expected", "dry_run", "any_destination", "reason"];

/// `GET /api/dlq`: a filter, and the limit.
pub(super) fn list(uri: &Uri) -> Result<(DeadLetterFilter, usize), ApiError> {
    let mut query = query(uri)?;
    let limit = match query.remove("limit") {
        None => LIMIT_DEFAULT,
        Some(limit) => {
            let limit = limit.as_str().and_then(|limit| limit.parse().ok());
            limit.filter(|limit| (1..=LIMIT_MAX).contains(limit)).ok_or_else(|| {
                ApiError::bad_request("limit is not a valid number", QUERY, "expected 1 to 1000")
            })?
        }
    };
    Ok((filter(query, QUERY, &["limit"])?, limit))
}

/// `GET /api/find`.
pub(super) fn find(uri: &Uri) -> Result<FindText, ApiError> {
    read(query(uri)?, QUERY, &[])
}

/// `GET /api/dlq/{id}`: is the payload requested, too?
pub(super) fn payload(uri: &Uri) -> Result<bool, ApiError> {
    let mut query = query(uri)?;
    let payload = query.remove("payload");
    let what = match payload.as_ref().map(Value::as_str) {
        _ if !query.is_empty() => "payload is the only name that is known here",
        None | Some(Some("false")) => return Ok(false),
        Some(Some("true")) => return Ok(true),
        Some(_) => "payload is neither true nor false",
    };
    Err(ApiError::bad_request(what, QUERY, "expected ?payload=true"))
}

pub(super) async fn job(request: Request) -> Result<JobRequest, ApiError> {
    let mut fields = body(request).await?;
    let options = JOB_OPTIONS.iter().filter_map(|name| fields.remove_entry(*name)).collect();
    let mut options: JobOptions = read(options, BODY, &[])?;
    let filter = filter(fields, BODY, &JOB_OPTIONS)?;
    let rate = options.rate.as_deref().map(str::parse).transpose();
    let rate =
        rate.map_err(|Fault { what, mend, .. }| ApiError::bad_request(what, "rate", mend))?;
    check_selection("filter", filter.narrows(), options.all)?;
    let reason = reason(options.reason.take())?;
    let JobOptions { expected, dry_run, any_destination, .. } = options;
    Ok(JobRequest { filter, rate, expected, dry_run, any_destination, reason })
}

pub(super) async fn release(request: Request) -> Result<(ReleaseBody, String), ApiError> {
    let mut body: ReleaseBody = read(body(request).await?, BODY, &[])?;
    check_selection("key", body.key.is_some(), body.all)?;
    let reason = reason(body.reason.take())?;
    Ok((body, reason))
}

/// `POST /api/resume`: why, and the stop that somebody was shown.
pub(super) async fn resume(request: Request) -> Result<(String, Option<Stop>), ApiError> {
    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct ResumeBody {
        reason: Option<String>,
        code: Option<String>,
        since: Option<String>,
    }
    let ResumeBody { reason: text, code, since } = read(body(request).await?, BODY, &[])?;
    let mend = "take code and since from stop in /status";
    let seen = match (code, since) {
        (None, None) => None,
        (Some(code), Some(since)) => {
            let no_time = || ApiError::bad_request(format!("{since} is no time"), BODY, mend);
            let since_unix_us = parse_rfc3339(&since).ok_or_else(no_time)?;
            Some(Stop { code, since_unix_us, ..Stop::default() })
        }
        _ => return Err(ApiError::bad_request("code and since belong together", BODY, mend)),
    };
    Ok((reason(text)?, seen))
}

/// A mistake must not act on everything. `noun` is what narrows the request.
fn check_selection(noun: &str, narrows: bool, all: bool) -> Result<(), ApiError> {
    let (what, mend) = match (narrows, all) {
        (true, false) | (false, true) => return Ok(()),
        (false, false) => {
            (format!("neither a {noun} nor \"all\": true was given"), "give one of them")
        }
        (true, true) => {
            (format!("\"all\": true and a {noun} contradict each other"), "leave one of them out")
        }
    };
    Err(ApiError::bad_request(what, BODY, mend))
}

fn reason(reason: Option<String>) -> Result<String, ApiError> {
    let reason = reason.unwrap_or_default();
    if reason.chars().count() > REASON_CHARS_MAX {
        let mend = format!("expected at most {REASON_CHARS_MAX} characters");
        return Err(ApiError::bad_request("the reason is too long", "reason", mend));
    }
    Ok(escaped(&reason))
}

fn filter(
    fields: Map<String, Value>,
    place: &str,
    others: &[&str],
) -> Result<DeadLetterFilter, ApiError> {
    let text: FilterText = read(fields, place, others)?;
    Ok(DeadLetterFilter::parse(&text, unix_now_us())?)
}

/// `others` are known names that were taken out of the fields before.
fn read<T: DeserializeOwned>(
    fields: Map<String, Value>,
    place: &str,
    others: &[&str],
) -> Result<T, ApiError> {
    serde_json::from_value(Value::Object(fields)).map_err(|error| {
        let number = "expected a whole number from 0 on";
        let mut what = error.to_string().replace("expected usize", number);
        // The error lists the other names that are known here.
        if what.starts_with("unknown field ") {
            others.iter().for_each(|name| what += &format!(", `{name}`"));
        }
        let mend = "see docs/dead-letters.md, \"The same over HTTP\", and docs/operations.md, \"Where is my event?\"";
        ApiError::bad_request(what, place, mend)
    })
}

fn query(uri: &Uri) -> Result<Map<String, Value>, ApiError> {
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let decoded = pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let text = |text: &str| percent_decode(&text.replace('+', " "));
        let (Ok(name), Ok(value)) = (text(name), text(value)) else {
            let what = "the query is not percent-encoded text";
            return Err(ApiError::bad_request(what, QUERY, "encode it as UTF-8"));
        };
        Ok((name, Value::String(value)))
    });
    unique_fields(decoded.collect::<Result<_, _>>()?, QUERY)
}

/// The fields, if no name is given twice: which of the values is meant is not known.
fn unique_fields(pairs: Vec<(String, Value)>, place: &str) -> Result<Map<String, Value>, ApiError> {
    let mut fields = Map::new();
    for (name, value) in pairs {
        let what = format!("{name:?} is given twice");
        if fields.insert(name, value).is_some() {
            return Err(ApiError::bad_request(what, place, "leave one of them out"));
        }
    }
    Ok(fields)
}

/// The fields of a JSON object, with names that are given twice: a [`Map`] would keep the last value alone.
struct ObjectFields(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for ObjectFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ObjectFields, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = ObjectFields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ObjectFields, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(ObjectFields(pairs))
            }
        }

        deserializer.deserialize_map(FieldsVisitor)
    }
}

/// Only JSON is accepted: a form on another site cannot make a browser send it.
async fn body(request: Request<Body>) -> Result<Map<String, Value>, ApiError> {
    let (head, body) = request.into_parts();
    if !is_json(&head.headers) {
        return Err(ApiError::new(
            "api.not-json",
            "the body is not declared as JSON",
            "Content-Type",
            "send the header: Content-Type: application/json",
        ));
    }
    let too_large = || {
        let what = format!("the body is longer than {BODY_BYTES_MAX} bytes, or was not sent whole");
        ApiError::new("api.body-too-large", what, BODY, "send less")
    };
    let length = head.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if length.and_then(|text| text.parse().ok()).is_some_and(|bytes: usize| bytes > BODY_BYTES_MAX)
    {
        return Err(too_large());
    }
    let bytes = to_bytes(body, BODY_BYTES_MAX).await.map_err(|_| too_large())?;
    let ObjectFields(pairs) = serde_json::from_slice(&bytes).map_err(|error| {
        ApiError::bad_request(error.to_string(), BODY, "expected a JSON object")
    })?;
    unique_fields(pairs, BODY)
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
    kind.trim().eq_ignore_ascii_case(crate::admin::answer::JSON)
}
