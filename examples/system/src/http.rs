//! The HTTP side of a service: its routes, `/healthz` and `/metrics`, until it is told to stop.

use std::net::SocketAddr;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use prometheus::{Registry, TextEncoder};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::Failed;

/// Serves `routes` with `/healthz` and `/metrics` beside them. Returns after [`shutdown`], when all
/// requests have their answer.
pub async fn serve(listen: SocketAddr, routes: Router, registry: Registry) -> Result<(), Failed> {
    let metrics = move || {
        let text = TextEncoder::new().encode_to_string(&registry.gather());
        std::future::ready(text.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR))
    };
    let routes = routes.route("/healthz", get(|| async { "ok\n" })).route("/metrics", get(metrics));
    let listener = TcpListener::bind(listen).await?;
    tracing::info!(address = %listener.local_addr()?, "listening");
    axum::serve(listener, routes).with_graceful_shutdown(shutdown()).await?;
    Ok(())
}

/// Completes when the process is told to end.
pub async fn shutdown() {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        // Without handlers the signals end the process by themselves.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
