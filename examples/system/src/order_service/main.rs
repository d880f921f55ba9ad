//! The order service: HTTP in front, one Postgres transaction for an order and its event behind.
//!
//! ```text
//! POST /orders              {"order_id": "o-1", "customer": "ada", "amount_cents": 4200, "payment": "card"}
//! POST /orders/o-1/pay
//! POST /orders/o-1/ship
//! ```
//!
//! A client that got no answer, or 503, repeats its request: nothing is done twice. After 400 it has to change
//! the request, and 500 is a defect on this side.

mod orders;
mod pool;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use clap::Parser;
use opentelemetry::trace::{FutureExt as _, SpanKind, Status, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, KeyValue, global};
use prometheus::{IntCounterVec, Opts, Registry};
use walrelay_example_system::{Failed, Shutdown, Telemetry, http_parent, serve, traceparent};

use self::orders::{NewOrder, Outcome, Step};
use self::pool::{Pool, PoolError};

/// Takes orders over HTTP and writes their events into the outbox.
#[derive(Parser)]
struct Options {
    /// The service's own database, with the outbox table in it.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    database_url: String,
    #[arg(long, env = "LISTEN", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Connections to Postgres, at most.
    #[arg(long, default_value_t = 8)]
    connections: usize,
}

struct OrderService {
    pool: Pool,
    requests: IntCounterVec,
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let options = Options::parse();
    let shutdown = Shutdown::listen()?;
    let _telemetry = Telemetry::start("order-service")?;
    let registry = Registry::new();
    let help =
        Opts::new("order_requests_total", "Requests that change an order, by their outcome.");
    let requests = IntCounterVec::new(help, &["outcome"])?;
    registry.register(Box::new(requests.clone()))?;
    let pool = Pool::new(&options.database_url, options.connections)?;
    let service = Arc::new(OrderService { pool, requests });
    let routes = Router::new()
        .route("/orders", post(place))
        .route("/orders/{order_id}/pay", post(pay))
        .route("/orders/{order_id}/ship", post(ship))
        .with_state(service);
    serve(options.listen, routes, registry, shutdown).await
}

async fn place(
    State(service): State<Arc<OrderService>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let order = match NewOrder::read(&body) {
        Ok(order) => order,
        Err(why) => return (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
    };
    service
        .traced("POST /orders", &headers, async |trace| {
            service.pool.with(async |client| orders::place(client, &order, trace).await).await
        })
        .await
}

async fn pay(
    State(service): State<Arc<OrderService>>,
    Path(order_id): Path<String>,
    headers: HeaderMap,
) -> Response {
    service.advance("POST /orders/{order_id}/pay", &order_id, &headers, Step::Pay).await
}

async fn ship(
    State(service): State<Arc<OrderService>>,
    Path(order_id): Path<String>,
    headers: HeaderMap,
) -> Response {
    service.advance("POST /orders/{order_id}/ship", &order_id, &headers, Step::Ship).await
}

impl OrderService {
    async fn advance(
        &self,
        route: &'static str,
        order_id: &str,
        headers: &HeaderMap,
        step: Step,
    ) -> Response {
        self.traced(route, headers, async |trace| {
            let work = async |client: &mut _| orders::advance(client, order_id, step, trace).await;
            self.pool.with(work).await
        })
        .await
    }

    /// Runs `work` in the span of a request. The outbox row gets this span as its `traceparent`, so that
    /// what comes of it, in whichever service, belongs to the same trace.
    async fn traced(
        &self,
        route: &'static str,
        headers: &HeaderMap,
        work: impl AsyncFnOnce(Option<String>) -> Result<Outcome, PoolError>,
    ) -> Response {
        let tracer = global::tracer("order-service");
        let span = tracer
            .span_builder(route)
            .with_kind(SpanKind::Server)
            .with_attributes([KeyValue::new("http.route", route)])
            .start_with_context(&tracer, &http_parent(headers));
        let context = Context::current_with_span(span);
        let outcome = work(traceparent(&context)).with_context(context.clone()).await;
        let (status, name) = match &outcome {
            Ok(Outcome::Done) => (StatusCode::CREATED, "done"),
            Ok(Outcome::DoneBefore) => (StatusCode::OK, "done_before"),
            Ok(Outcome::TooEarly) => (StatusCode::CONFLICT, "too_early"),
            Ok(Outcome::NoSuchOrder) => (StatusCode::NOT_FOUND, "no_such_order"),
            // It may have been committed all the same: the client repeats it.
            Err(error) if error.may_pass() => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            Err(error) if error.is_of_values() => (StatusCode::BAD_REQUEST, "refused"),
            Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "failed"),
        };
        if let Err(error) = &outcome {
            context.span().set_status(Status::error(error.to_string()));
            tracing::warn!(%error, route, "not done");
        }
        let code = KeyValue::new("http.response.status_code", i64::from(status.as_u16()));
        context.span().set_attribute(code);
        context.span().end();
        self.requests.with_label_values(&[name]).inc();
        (status, format!("{name}\n")).into_response()
    }
}
