//! The admin server: `/metrics`, `/livez`, `/readyz`, `/status`, `/history`, the console, and dead letters
//! under `/api`.
//!
//! It has a thread and a runtime of its own and shares nothing with the data thread but atomics, so it
//! answers while the data thread is stuck. Clients cannot pile up: there is one request per connection, and
//! number and age of connections are limited (see `bounded`); no body is read before the token was checked (see `api`). Other sites are kept out (see `hosts`).

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::Response;
use axum::routing::get;
use serde_json::json;
use tokio::sync::watch;

use self::address::listen_fault;
use self::answer::{JSON, METRICS_TYPE, TEXT, answer};
use self::api::Api;
pub(crate) use self::api::DeadLetterAccess;
use self::bounded::{Bounds, until_stopped};
use self::hosts::AllowedHosts;
use self::observer::Observer;
pub(crate) use self::status::{AdminView, clock_since};
use crate::base::error::{Exit, Fault};
use crate::base::runtime;
use crate::health::{HealthState, StateReason};

pub(crate) mod address;
mod answer;
mod api;
mod bounded;
#[cfg_attr(not(feature = "console"), path = "no_console.rs")]
mod console;
mod history;
mod hosts;
mod notices;
mod observer;
mod status;

/// A running server; dropping it stops it.
pub(crate) struct Admin {
    #[cfg(test)]
    pub(crate) addr: SocketAddr,
    api: Arc<Api>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Binds `listen` and serves from a new thread, under `hosts` beside its addresses.
    pub(crate) fn start(
        listen: SocketAddr,
        hosts: &[String],
        view: AdminView,
        dead_letters: DeadLetterAccess,
    ) -> Result<Admin, Fault> {
        let observer = Arc::new(Observer::new(view, dead_letters.has_token()));
        let router = router(&observer).merge(console::router());
        Admin::start_within(Bounds::default(), listen, hosts, router, observer, dead_letters)
    }

    fn start_within(
        bounds: Bounds,
        listen: SocketAddr,
        hosts: &[String],
        router: Router,
        observer: Arc<Observer>,
        dead_letters: DeadLetterAccess,
    ) -> Result<Admin, Fault> {
        let (listener, addr) = bind(listen).map_err(|error| listen_fault(listen, &error))?;
        let runtime = runtime::current_thread().map_err(not_started)?;
        let (stop, stopped) = watch::channel(false);
        let api = Arc::new(Api::new(dead_letters));
        let hosts = Arc::new(AllowedHosts(hosts.to_vec()));
        let router = router.merge(api::router(&api)).layer(from_fn_with_state(hosts, hosts::check));
        let router = router.layer(map_response(harden));
        let serving = move || {
            let observing = observer.run(until_stopped(stopped.clone()));
            runtime.block_on(async {
                tokio::join!(bounded::serve(listener, bounds, router, stopped), observing)
            });
            runtime.shutdown_background();
        };
        let thread = Some(runtime::spawn("admin", serving).map_err(not_started)?);
        tracing::info!(%addr, "admin server listens");
        Ok(Admin {
            #[cfg(test)]
            addr,
            api,
            stop,
            thread,
        })
    }
}

impl Drop for Admin {
    /// Stops accepting, waits for requests that are being handled and for a job to settle what it
    /// has in flight, and joins the thread.
    fn drop(&mut self) {
        self.stop.send_replace(true);
        let Some(thread) = self.thread.take() else { return };
        self.api.end();
        if thread.join().is_err() {
            tracing::error!(code = "admin.panicked", "admin server panicked");
        }
    }
}

fn bind(listen: SocketAddr) -> std::io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(listen)?;
    listener.set_nonblocking(true)?;
    let addr = listener.local_addr()?;
    Ok((listener, addr))
}

fn not_started(refused: Fault) -> Fault {
    let what = format!("the admin server cannot start: {}", refused.what);
    let mend = "raise the limits on threads and open files: ulimit -u; ulimit -n";
    Fault::new(Exit::Failed, "admin.start", what, "", mend)
}

fn router(observer: &Arc<Observer>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .fallback(async || {
            let text = "not found; try /, /metrics, /livez, /readyz, /status, /history, /api/dlq, /api/find\n";
            answer(StatusCode::NOT_FOUND, TEXT, text.to_owned())
        })
        .with_state(Arc::clone(&observer.view))
        .merge(observer::router(observer))
}

/// Closes the connection after each request, because keeping one open costs more than it saves a
/// scrape; and keeps the console from loading or running anything but its own files.
async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let mut set = |name, value| headers.insert(name, HeaderValue::from_static(value));
    set(header::CONNECTION, "close");
    set(header::CACHE_CONTROL, "no-store");
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::X_FRAME_OPTIONS, "DENY");
    set(header::REFERRER_POLICY, "no-referrer");
    set(header::CONTENT_SECURITY_POLICY, console::POLICY);
    response
}

async fn metrics(State(view): State<Arc<AdminView>>) -> Response {
    view.judge();
    match view.metrics.render() {
        Ok(text) => answer(StatusCode::OK, METRICS_TYPE, text),
        Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
    }
}

async fn livez(State(view): State<Arc<AdminView>>, headers: HeaderMap) -> Response {
    verdict(&headers, "live", view.judge().1.stuck().as_slice(), json!({}))
}

/// With `?standby=ok` a relay that waits behind its peer is well: rollouts wait for readiness.
async fn readyz(
    State(view): State<Arc<AdminView>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let (_, health) = view.judge();
    let mut state = json!({ "state": health.state.text(), "reason": health.reason.map(status::reason),
        "since_seconds": status::since_seconds(&view, &health) });
    let standby_is_ok = query.is_some_and(|query| query.split('&').any(|it| it == "standby=ok"));
    if standby_is_ok && health.state == HealthState::Standby {
        state["ready"] = false.into();
        return verdict(&headers, "standby", &health.reasons_but_standby(), state);
    }
    verdict(&headers, "ready", &health.reasons, state)
}

/// 200 and the word, or 503 and one line per reason; JSON, with `more`, where the request accepts it.
fn verdict(
    headers: &HeaderMap,
    word: &'static str,
    reasons: &[StateReason],
    more: serde_json::Value,
) -> Response {
    let code = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    if wants_json(headers) {
        let mut body = more;
        body[word] = reasons.is_empty().into();
        body["reasons"] = status::reasons(reasons);
        return answer(code, JSON, format!("{body}\n"));
    }
    let lines: String = reasons.iter().map(|it| format!("{}: {it}\n", it.code())).collect();
    answer(code, TEXT, if lines.is_empty() { format!("{word}\n") } else { lines })
}

fn wants_json(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter();
    accepted.filter_map(|value| value.to_str().ok()).any(|value| value.contains(JSON))
}

#[cfg(test)]
mod tests;
