//! The console: a page for people at `/`, and the files that it loads.
//!
//! The page is always the same file; its scripts fill it from `/status`, draw the history and act on dead
//! letters with the token that a person enters. Page, style and scripts are files of this folder and of
//! `walrelay_base::web`, held in the binary. Nothing else is loaded, nothing inline is run, and the browser is told so (see [`POLICY`]).

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;

use super::answer::{TEXT, answer};

/// Content Security Policy. With `require-trusted-types-for` and no policy the browser refuses to make HTML
/// of text, so that what rows and brokers say can only be shown as text.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

const PAGE: &str = include_str!("page.html");

/// Files below `/console/`: name, content type, text.
const FILES: &[(&str, &str, &str)] = &[
    ("page.css", STYLE, walrelay_base::web::PAGE_CSS),
    ("console.css", STYLE, include_str!("console.css")),
    ("icon.svg", "image/svg+xml", include_str!("icon.svg")),
    ("api.js", SCRIPT, include_str!("api.js")),
    ("app.js", SCRIPT, include_str!("app.js")),
    ("dead_letters.js", SCRIPT, include_str!("dead_letters.js")),
    ("dialogs.js", SCRIPT, include_str!("dialogs.js")),
    ("find.js", SCRIPT, include_str!("find.js")),
    ("format.js", SCRIPT, walrelay_base::web::FORMAT_JS),
    ("history.js", SCRIPT, include_str!("history.js")),
    ("live.js", SCRIPT, include_str!("live.js")),
    ("plot.js", SCRIPT, walrelay_base::web::PLOT_JS),
];

pub(super) fn router() -> Router {
    Router::new()
        .route("/", get(async || answer(StatusCode::OK, HTML, PAGE.to_owned())))
        .route("/console/{file}", get(show_file))
}

async fn show_file(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(file, ..)| *file == name) {
        Some((_, content_type, text)) => answer(StatusCode::OK, content_type, (*text).to_owned()),
        None => answer(StatusCode::NOT_FOUND, TEXT, "not found; try /\n".to_owned()),
    }
}

#[cfg(test)]
#[path = "console_tests.rs"]
mod tests;
