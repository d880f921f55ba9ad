//! The relay as seen from outside: `/metrics`, `/livez`, `/readyz`, `/status`, a page, and dead
//! letters under `/api`.
//!
//! The server has a thread and a runtime of its own and shares nothing with the data thread but
//! atomics, so it answers truthfully while the data thread is stuck. What needs no token only reads
//! those. Clients cannot pile up, nor keep a probe waiting: one request per connection, a fixed
//! number of connections of which idle ones give way, a fixed time for each (see `bounded`); no body
//! is read before the token (see `api`).

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn, map_response};
use axum::response::Response;
use axum::routing::get;
use tokio::sync::watch;

use self::address::listen_fault;
use self::answer::{HTML, JSON, METRICS_TYPE, TEXT, answer};
use self::api::Api;
pub(crate) use self::api::DeadLetterAccess;
use self::bounded::{AdminClient, Bounded, Bounds};
pub(crate) use self::status::{AdminView, clock_since};
use crate::base::error::{Exit, Fault};
use crate::base::runtime;
use crate::health::Unready;

pub(crate) mod address;
mod answer;
mod api;
mod bounded;
mod page;
mod status;

/// How long a stop waits for requests under way.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// A running server; dropping it stops it.
pub(crate) struct Admin {
    addr: SocketAddr,
    api: Arc<Api>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Binds `listen` and serves from a new thread. The address is taken when this returns.
    pub(crate) fn start(
        listen: SocketAddr,
        view: AdminView,
        dead_letters: DeadLetterAccess,
    ) -> Result<Admin, Fault> {
        Admin::start_within(Bounds::default(), listen, router(view), dead_letters)
    }

    fn start_within(
        bounds: Bounds,
        listen: SocketAddr,
        router: Router,
        dead_letters: DeadLetterAccess,
    ) -> Result<Admin, Fault> {
        let (listener, addr) = bind(listen).map_err(|error| listen_fault(listen, &error))?;
        let runtime = runtime::current_thread().map_err(not_started)?;
        let (stop, stopped) = watch::channel(false);
        let api = Arc::new(Api::new(dead_letters));
        let router = router.merge(api::router(&api));
        let router = router.layer(map_response(harden)).layer(from_fn(under_way));
        let serving = move || {
            runtime.block_on(serve(listener, bounds, router, stopped));
            runtime.shutdown_background();
        };
        let thread = runtime::spawn("admin", serving).map_err(not_started)?;
        let admin = Admin { addr, api, stop, thread: Some(thread) };
        tracing::info!(addr = %admin.addr, "admin server listens");
        Ok(admin)
    }

    /// Where it listens; the port is a real one even when 0 was asked for.
    #[cfg(test)]
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Stops accepting, lets requests under way end (at most two seconds) and a job settle what it
    /// has in flight, and joins the thread.
    pub(crate) fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.send_replace(true);
        let Some(thread) = self.thread.take() else { return };
        self.api.end();
        if thread.join().is_err() {
            tracing::error!("admin server panicked");
        }
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.end();
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

async fn serve(
    listener: TcpListener,
    bounds: Bounds,
    router: Router,
    stopped: watch::Receiver<bool>,
) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => Bounded::new(listener, bounds),
        Err(error) => return tracing::error!(%error, "admin server cannot start"),
    };
    let (graceful, forced) = (stopped.clone(), stopped);
    let router = router.into_make_service_with_connect_info::<AdminClient>();
    let serving =
        axum::serve(listener, router).with_graceful_shutdown(until_stopped(graceful)).into_future();
    tokio::select! {
        result = serving => {
            if let Err(error) = result {
                tracing::error!(%error, "admin server ended");
            }
        }
        () = async {
            until_stopped(forced).await;
            tokio::time::sleep(STOP_GRACE).await;
        } => tracing::warn!("admin server left a request unanswered"),
    }
}

/// A sender that is gone means stop, too.
async fn until_stopped(mut stopped: watch::Receiver<bool>) {
    let _gone = stopped.wait_for(|stop| *stop).await.is_err();
}

fn router(view: AdminView) -> Router {
    Router::new()
        .route("/", get(show_page))
        .route("/metrics", get(metrics))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/status", get(show_status))
        .fallback(async || {
            let text = "not here; try /, /metrics, /livez, /readyz, /status, /api/dlq\n";
            answer(StatusCode::NOT_FOUND, TEXT, text.to_owned())
        })
        .with_state(Arc::new(view))
}

/// While a request is carried out, its connection is no idle one.
async fn under_way(
    ConnectInfo(client): ConnectInfo<AdminClient>,
    request: Request,
    next: Next,
) -> Response {
    let _under_way = client.asks();
    next.run(request).await
}

/// One request per connection: what a scrape saves by keeping it is less than what an idle
/// connection costs. The page may load nothing and run nothing.
async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let mut set = |name, value| headers.insert(name, HeaderValue::from_static(value));
    set(header::CONNECTION, "close");
    set(header::CACHE_CONTROL, "no-store");
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::X_FRAME_OPTIONS, "DENY");
    set(header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'");
    response
}

async fn metrics(State(view): State<Arc<AdminView>>) -> Response {
    match view.metrics.render() {
        Ok(text) => answer(StatusCode::OK, METRICS_TYPE, text),
        Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
    }
}

async fn livez(State(view): State<Arc<AdminView>>, headers: HeaderMap) -> Response {
    verdict(&headers, "live", view.health().stuck().as_slice())
}

async fn readyz(State(view): State<Arc<AdminView>>, headers: HeaderMap) -> Response {
    verdict(&headers, "ready", &view.health().reasons)
}

/// 200 and the word, or 503 and one line per reason; JSON for those who ask for it.
fn verdict(headers: &HeaderMap, word: &'static str, reasons: &[Unready]) -> Response {
    let code = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    if wants_json(headers) {
        let reasons = status::reasons(reasons);
        let body = serde_json::json!({ word: reasons.is_empty(), "reasons": reasons });
        return answer(code, JSON, format!("{body}\n"));
    }
    let lines: String = reasons.iter().map(|why| format!("{}: {why}\n", why.code())).collect();
    answer(code, TEXT, if lines.is_empty() { format!("{word}\n") } else { lines })
}

fn wants_json(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter();
    accepted.filter_map(|value| value.to_str().ok()).any(|value| value.contains(JSON))
}

async fn show_status(State(view): State<Arc<AdminView>>) -> Response {
    match serde_json::to_string_pretty(&status::Status::of(&view)) {
        Ok(text) => answer(StatusCode::OK, JSON, text + "\n"),
        Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
    }
}

async fn show_page(State(view): State<Arc<AdminView>>) -> Response {
    answer(StatusCode::OK, HTML, page::render(&status::Status::of(&view)))
}

#[cfg(test)]
mod tests;
