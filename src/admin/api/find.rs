//! `GET /api/find`: where an event is, as `walrelay find` says it.

use std::sync::atomic::AtomicBool;

use axum::http::Uri;
use serde_json::Value;

use super::error::ApiError;
use super::request;
use crate::base::clock::unix_now_us;
use crate::base::error::Fault;
use crate::base::text::escaped;
use crate::find::{EventFinder, FindRequest};

/// The admin server has few threads that may block, and whoever asks waits.
const WITHIN: &str = "20s";

/// Reads the request, and logs who has made it.
pub(super) fn requested(uri: &Uri, who: &str) -> Result<FindRequest, ApiError> {
    let request = FindRequest::parse(&request::find(uri)?, WITHIN, unix_now_us())?;
    let (by, wanted) = (request.wanted.name(), escaped(request.wanted.text()));
    tracing::info!(target: "audit", who, action = "find", by, wanted, "an event is looked for");
    Ok(request)
}

pub(super) fn answer(
    finder: &EventFinder,
    request: &FindRequest,
    stop: &AtomicBool,
) -> Result<Value, Fault> {
    Ok(finder.find(request, stop, &mut |_| {})?.to_json())
}
