//! Requests that are refused or have failed, as JSON: the same four fields as on the command line.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::admin::answer::{JSON, answer};
use crate::base::error::{Exit, Fault};
use crate::base::text::json_shown;

#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    /// The first one is the answer, the others stand beside it as `more`.
    faults: Vec<Fault>,
}

impl ApiError {
    pub(super) fn new(
        status: StatusCode,
        code: &'static str,
        what: impl Into<String>,
        place: &str,
        mend: impl Into<String>,
    ) -> ApiError {
        ApiError { status, faults: vec![Fault::new(Exit::Usage, code, what, place, mend)] }
    }

    pub(super) fn bad_request(
        what: impl Into<String>,
        place: &str,
        mend: impl Into<String>,
    ) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "api.bad-request", what, place, mend)
    }

    /// Something broke here.
    pub(super) fn internal(what: impl Into<String>) -> ApiError {
        let mend = "report what the relay has logged";
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "api.broken", what, "", mend)
    }
}

impl From<Fault> for ApiError {
    fn from(fault: Fault) -> ApiError {
        let status = match (fault.code, fault.exit) {
            ("dead-letter.unknown" | "dead-letter.not-parked", _) => StatusCode::NOT_FOUND,
            (_, Exit::Usage) => StatusCode::BAD_REQUEST,
            (_, Exit::Sink) => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::CONFLICT,
        };
        ApiError { status, faults: vec![fault] }
    }
}

/// Everything that is wrong with a request.
impl From<Vec<Fault>> for ApiError {
    fn from(faults: Vec<Fault>) -> ApiError {
        ApiError { status: StatusCode::BAD_REQUEST, faults }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut faults = self.faults.iter().map(fault_json);
        let mut body = faults.next().unwrap_or(Value::Null);
        let more: Vec<Value> = faults.collect();
        if !more.is_empty() {
            body["more"] = more.into();
        }
        let mut response = json_answer(self.status, &body);
        let extra = match self.status {
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

pub(super) fn fault_json(fault: &Fault) -> Value {
    json!({ "code": fault.code, "what": fault.what, "where": fault.place, "mend": fault.mend })
}
