//! Answers of the admin server, and their content types.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Content type of the Prometheus text format.
pub(super) const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
pub(super) const TEXT: &str = "text/plain; charset=utf-8";
pub(super) const JSON: &str = "application/json";

pub(super) fn answer(code: StatusCode, content_type: &'static str, body: String) -> Response {
    (code, [(header::CONTENT_TYPE, HeaderValue::from_static(content_type))], body).into_response()
}
