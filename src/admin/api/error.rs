//! Refused and failed requests as JSON, with the same four fields as on the command line.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use crate::admin::answer::{JSON, answer};
use crate::base::error::{Exit, Fault};
use crate::base::text::json_shown;

/// Everything that is wrong with a request. The first fault is the answer; the others are listed in
/// it as `more`.
#[derive(Debug)]
pub(super) struct ApiError(Vec<Fault>);

impl ApiError {
    pub(super) fn new(
        code: &'static str,
        what: impl Into<String>,
        place: &str,
        mend: impl Into<String>,
    ) -> ApiError {
        Fault::new(Exit::Usage, code, what, place, mend).into()
    }

    pub(super) fn bad_request(
        what: impl Into<String>,
        place: &str,
        mend: impl Into<String>,
    ) -> ApiError {
        ApiError::new("api.bad-request", what, place, mend)
    }

    pub(super) fn internal(what: impl Into<String>) -> ApiError {
        ApiError::new("api.broken", what, "", "report what the relay has logged")
    }

    pub(super) fn stopping() -> ApiError {
        ApiError::new("api.stopping", "the relay is stopping", "", "ask again when it runs")
    }

    fn status(&self) -> StatusCode {
        let Some(fault) = self.0.first() else { return StatusCode::INTERNAL_SERVER_ERROR };
        match (fault.code, fault.exit) {
            ("api.token-missing" | "api.token-wrong", _) => StatusCode::UNAUTHORIZED,
            ("api.closed" | "api.token-unread", _) => StatusCode::FORBIDDEN,
            ("api.not-here" | "api.no-job", _) => StatusCode::NOT_FOUND,
            ("dead-letter.unknown" | "dead-letter.not-parked" | "resume.nothing", _) => {
                StatusCode::NOT_FOUND
            }
            ("api.job-under-way", _) => StatusCode::CONFLICT,
            ("api.body-too-large", _) => StatusCode::PAYLOAD_TOO_LARGE,
            ("api.not-json", _) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ("api.broken", _) => StatusCode::INTERNAL_SERVER_ERROR,
            ("api.busy" | "api.stopping", _) | (_, Exit::Sink) => StatusCode::SERVICE_UNAVAILABLE,
            ("source.unreachable", _) => StatusCode::SERVICE_UNAVAILABLE,
            _ if fault.may_pass => StatusCode::SERVICE_UNAVAILABLE,
            (_, Exit::Usage) => StatusCode::BAD_REQUEST,
            _ => StatusCode::CONFLICT,
        }
    }
}

impl From<Fault> for ApiError {
    fn from(fault: Fault) -> ApiError {
        ApiError(vec![fault])
    }
}

impl From<Vec<Fault>> for ApiError {
    fn from(faults: Vec<Fault>) -> ApiError {
        ApiError(faults)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut faults = self.0.iter().map(Fault::to_json);
        let mut body = faults.next().unwrap_or(Value::Null);
        let more: Vec<Value> = faults.collect();
        if !more.is_empty() {
            body["more"] = more.into();
        }
        let mut response = json_answer(self.status(), &body);
        let extra = match self.status() {
            StatusCode::UNAUTHORIZED => Some((header::WWW_AUTHENTICATE, "Bearer")),
            StatusCode::SERVICE_UNAVAILABLE => Some((header::RETRY_AFTER, "5")),
            _ => None,
        };
        let extra = extra.map(|(name, value)| (name, HeaderValue::from_static(value)));
        response.headers_mut().extend(extra);
        response
    }
}

pub(super) fn json_answer(code: StatusCode, body: &Value) -> Response {
    answer(code, JSON, json_shown(&body.to_string()) + "\n")
}
