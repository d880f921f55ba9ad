//! The HTTP side of a service: its routes, `/healthz` and `/metrics`, until it is told to stop.

use std::net::SocketAddr;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use prometheus::{Registry, TextEncoder};
use tokio::net::TcpListener;

use crate::{Failed, Shutdown};

/// Serves `routes` with `/healthz` and `/metrics` beside them. Returns after the shutdown, when all
/// requests have their answer.
pub async fn serve(
    listen: SocketAddr,
    routes: Router,
    registry: Registry,
    shutdown: Shutdown,
) -> Result<(), Failed> {
    let metrics = move || {
        let text = TextEncoder::new().encode_to_string(&registry.gather());
        std::future::ready(text.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR))
    };
    let routes = routes.route("/healthz", get(|| async { "ok\n" })).route("/metrics", get(metrics));
    let listener = TcpListener::bind(listen).await?;
    tracing::info!(address = %listener.local_addr()?, "listening");
    axum::serve(listener, routes).with_graceful_shutdown(shutdown.wait()).await?;
    Ok(())
}
