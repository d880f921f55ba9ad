//! What is not done, told as JSON: the same four fields as on the command line.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::super::{JSON, answer};
use crate::base::error::{Exit, Fault};
use crate::base::text::json_shown;

/// A request that is refused, or has failed.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    /// The first one counts.
    faults: Vec<Fault>,
}

impl Refusal {
    pub(super) fn new(
        status: StatusCode,
        code: &'static str,
        what: impl Into<String>,
        place: &str,
        mend: impl Into<String>,
    ) -> Refusal {
        Refusal { status, faults: vec![Fault::new(Exit::Usage, code, what, place, mend)] }
    }

    /// The request makes no sense.
    pub(super) fn bad(what: impl Into<String>, place: &str, mend: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, "api.bad-request", what, place, mend)
    }

    /// As much is under way as may be.
    pub(super) fn busy() -> Refusal {
        Refusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "api.busy",
            "the dead-letter topic is being read for others",
            "",
            "try again in a moment",
        )
    }

    /// Something broke here.
    pub(super) fn broken(what: impl Into<String>) -> Refusal {
        let mend = "report what the relay has logged";
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "api.broken", what, "", mend)
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Refusal {
        let status = match (fault.code, fault.exit) {
            ("dead-letter.unknown" | "dead-letter.not-parked", _) => StatusCode::NOT_FOUND,
            (_, Exit::Usage) => StatusCode::BAD_REQUEST,
            (_, Exit::Sink) => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::CONFLICT,
        };
        Refusal { status, faults: vec![fault] }
    }
}

/// Everything that is wrong with what was asked.
impl From<Vec<Fault>> for Refusal {
    fn from(faults: Vec<Fault>) -> Refusal {
        Refusal { status: StatusCode::BAD_REQUEST, faults }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (first, more) = match self.faults.split_first() {
            Some((first, more)) => (fault_json(first), more),
            None => (Value::Null, &[][..]),
        };
        let mut body = first;
        if !more.is_empty() {
            body["more"] = more.iter().map(fault_json).collect();
        }
        let mut response = answer(self.status, JSON, json_shown(&body.to_string()) + "\n");
        let mut set = |name, value| response.headers_mut().insert(name, value);
        match self.status {
            StatusCode::UNAUTHORIZED => {
                set(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                set(header::RETRY_AFTER, HeaderValue::from_static("5"));
            }
            _ => {}
        }
        response
    }
}

/// A fault for machines.
pub(super) fn fault_json(fault: &Fault) -> Value {
    json!({ "code": fault.code, "what": fault.what, "where": fault.place, "mend": fault.mend })
}
