//! The answer at `/` of a build without the feature `console`: it names the feature, and the paths that exist.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;

use super::answer::{TEXT, answer};

/// Content Security Policy: browsers load nothing.
pub(super) const POLICY: &str = "default-src 'none'; frame-ancestors 'none'";

const NOT_BUILT: &str = "there is no console: this binary was built without the feature console; \
    try /metrics, /livez, /readyz, /status, /history, /api/dlq, /api/find\n";

pub(super) fn router() -> Router {
    Router::new()
        .route("/", get(async || answer(StatusCode::NOT_FOUND, TEXT, NOT_BUILT.to_owned())))
}
