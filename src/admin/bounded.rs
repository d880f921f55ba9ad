//! Serves clients that can neither pile up nor stay.
//!
//! A connection needs one of a fixed number of permits. While all are taken, further clients wait in the
//! queue of the kernel, where they cost no descriptor. A connection ends by itself, however slowly its
//! client sends or reads: when no head of a request has come after `head_max`, and in any case after
//! `age_max`. So clients that hold all permits hold up the next ones no longer than that. A client that has
//! sent the token gets more time, because reading a long log takes a while.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

/// How long a stop waits for requests that are being handled.
pub(super) const STOP_GRACE: Duration = Duration::from_secs(2);
/// How much longer the connection of a client that has sent the token may last.
const AGE_MORE: Duration = Duration::from_secs(60);
/// The largest head of a request.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Pause after a failed accept (no file descriptors left), so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) connections_max: u32,
    /// Greatest age of a connection without the head of a request.
    pub(super) head_max: Duration,
    pub(super) age_max: Duration,
}

impl Default for Bounds {
    fn default() -> Bounds {
        // Ten seconds are the timeout of a scrape in Prometheus.
        let [head_max, age_max] = [2, 10].map(Duration::from_secs);
        Bounds { connections_max: 64, head_max, age_max }
    }
}

/// The client of a connection, as handlers see it.
#[derive(Clone, Debug)]
pub(super) struct AdminClient {
    pub(super) addr: SocketAddr,
    has_token: Arc<AtomicBool>,
}

impl AdminClient {
    /// Lets the connection last longer, because its client has sent the token.
    pub(super) fn let_in(&self) {
        self.has_token.store(true, Ordering::Relaxed);
    }
}

/// Serves until the server is stopped, and then waits for requests that are being handled.
pub(super) async fn serve(
    listener: std::net::TcpListener,
    bounds: Bounds,
    router: Router,
    stopped: watch::Receiver<bool>,
) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            return tracing::error!(code = "admin.not-started", %error, "admin server cannot start");
        }
    };
    let permits = Arc::new(Semaphore::new(bounds.connections_max as usize));
    let accept = async || {
        // The semaphore is never closed.
        let permit = Arc::clone(&permits).acquire_owned().await.ok();
        (permit, listener.accept().await)
    };
    loop {
        let (permit, accepted) = tokio::select! {
            accepted = accept() => accepted,
            () = until_stopped(stopped.clone()) => break,
        };
        match accepted {
            Ok((stream, addr)) => {
                let client = AdminClient { addr, has_token: Arc::default() };
                let (router, stopped) = (router.clone(), stopped.clone());
                tokio::spawn(async move {
                    serve_one(stream, client, bounds, router, stopped).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "admin server could not accept");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    if timeout(STOP_GRACE, permits.acquire_many(bounds.connections_max)).await.is_err() {
        tracing::warn!(code = "admin.unanswered", "admin server left a request unanswered");
    }
}

/// Waits until the server has to stop.
pub(super) async fn until_stopped(mut stopped: watch::Receiver<bool>) {
    // A sender that was dropped means stop, too.
    let _dropped = stopped.wait_for(|stop| *stop).await.is_err();
}

/// Serves one request.
async fn serve_one(
    stream: TcpStream,
    client: AdminClient,
    bounds: Bounds,
    router: Router,
    stopped: watch::Receiver<bool>,
) {
    let router = TowerToHyperService::new(router);
    let has_token = Arc::clone(&client.has_token);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(client.clone()));
        router.call(request)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(bounds.head_max).keep_alive(false);
    http.max_buf_size(HEAD_BYTES_MAX);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let mut grows_old = pin!(async {
        sleep(bounds.age_max).await;
        if has_token.load(Ordering::Relaxed) {
            sleep(AGE_MORE).await;
        }
    });
    // A client that went away, or took too long, is no fault of the relay.
    tokio::select! {
        _ended = connection.as_mut() => return,
        () = grows_old.as_mut() => return,
        () = until_stopped(stopped) => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ended = connection => {}
        () = grows_old => {}
    }
}
