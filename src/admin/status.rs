//! `/status`: the state of the relay as JSON.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};

use crate::base::service_manager::ServiceManager;
use crate::base::time::rfc3339;
use crate::health::{Facts, Health, Snapshot, StateReason, StateWatch};
use crate::metrics::{IntakeHold, Metrics, Outcome, Point};

/// Milliseconds since the origin that [`Facts`] are written against.
pub(crate) type FactsClock = Arc<dyn Fn() -> u64 + Send + Sync>;

#[derive(Clone)]
pub(crate) struct AdminView {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) facts: Arc<Facts>,
    pub(crate) states: Arc<StateWatch>,
    pub(crate) clock: FactsClock,
    pub(crate) service_manager: Arc<ServiceManager>,
    /// `source.slot`, under which the relay keeps its dead letters and stops, also where it polls.
    pub(crate) source_slot: String,
    /// The slot that is read; none where a table is polled.
    pub(crate) slot: Option<String>,
    /// The kind of broker.
    pub(crate) sink: &'static str,
}

#[must_use]
pub(crate) fn clock_since(origin: Instant) -> FactsClock {
    Arc::new(move || u64::try_from(origin.elapsed().as_millis()).unwrap_or(u64::MAX))
}

impl AdminView {
    /// Judges the facts that the data thread knew at the end of its last pass.
    pub(super) fn judge(&self) -> (Snapshot, Health) {
        let facts = self.facts.snapshot();
        let health = self.states.judge(&facts, (self.clock)());
        (facts, health)
    }
}

pub(super) fn to_json(view: &AdminView) -> Value {
    let (Snapshot { pass, .. }, health) = view.judge();
    let metrics = &view.metrics;
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "mode": if view.slot.is_some() { "cdc" } else { "polling" },
        "source_slot": view.source_slot,
        "sink": view.sink,
        "state": health.state.text(),
        "since": rfc3339(view.states.unix_us(health.since_ms)),
        "since_seconds": since_seconds(view, &health),
        "reason": health.reason.map(reason),
        "ready": health.reasons.is_empty(),
        "live": health.stuck().is_none(),
        "reasons": reasons(&health.reasons),
        "note": view.facts.note(),
        // Why the relay waits to be resumed.
        "stop": view.facts.stop().map(|stop| stop.to_json()),
        "uptime_seconds": (view.clock)() / 1000,
        "lsn": {
            "received": pass.received_lsn.to_string(),
            "sent": pass.sent_lsn.to_string(),
            "confirmed": pass.confirmed_lsn.to_string(),
        },
        "in_flight": { "events": pass.in_flight_events, "bytes": pass.in_flight_bytes,
            "limit": pass.in_flight_limit },
        // Why no event is taken in; `null` while events are.
        "intake_held": pass.hold.map(IntakeHold::text),
        "events": {
            "published": metrics.events.at(Outcome::Published).get(),
            "dead_lettered": metrics.events.at(Outcome::DeadLettered).get(),
            "retries": metrics.retries.get(),
            "source_reconnects": metrics.source_reconnects.get(),
        },
        // `null` while the dead-letter topic is not read; an age of 0 where none is open.
        "dead_letters": {
            "open": count(metrics.dlq_depth.get()),
            "oldest_age_seconds": metrics.dlq_oldest_age_seconds.get(),
            "parked_keys": metrics.dlq_parked_keys.get(),
            "breaker_open": metrics.dlq_breaker_open.get() == 1,
            "publish_failed": metrics.dlq_publish_failed.get(),
        },
        "slot": view.slot.as_deref().map(|name| slot(view, name)),
        "polling": view.slot.is_none().then(|| json!({
            "backlog": count(metrics.backlog.get()),
            "backlog_age_seconds": metrics.backlog_age_seconds.get(),
            "expired_claims": metrics.expired_claims.get(),
            "cleaned_rows": metrics.cleaned_rows.get(),
        })),
    })
}

fn slot(view: &AdminView, name: &str) -> Value {
    let metrics = &*view.metrics;
    let pin = view.facts.pin();
    let lag_bytes = |point| count(metrics.slot_lag_bytes.at(point).get());
    let wal_status = wal_status(metrics);
    // `null` while the slot is not read.
    json!({
        "name": name,
        "active": wal_status.map(|_| metrics.slot_active.get() == 1),
        "wal_status": wal_status,
        "lag_bytes": {
            "received": lag_bytes(Point::Received),
            "sent": lag_bytes(Point::Sent),
            "confirmed": lag_bytes(Point::Confirmed),
        },
        "lag_seconds": metrics.slot_lag_seconds.get(),
        "retained_wal_bytes": count(metrics.slot_retained_wal_bytes.get()),
        "safe_wal_bytes": count(metrics.slot_safe_wal_bytes.get()),
        // What a time without a reader does to it; `null` where Postgres sets no limit.
        "idle_timeout": view.facts.idle_timeout((view.clock)()).map(|it| it.to_json(name)),
        "pinned_by": pin.map(|pin| pin.by.to_json(pin.age.as_secs(), &pin.text())),
    })
}

/// None while the slot is not read.
fn wal_status(metrics: &Metrics) -> Option<&'static str> {
    let current = metrics.slot_wal_status.iter().find(|(_, gauge)| gauge.get() == 1);
    current.map(|(status, _)| status.text())
}

/// The value of a gauge that counts; none where it is not known, or without limit.
pub(super) fn count(gauge: f64) -> Option<i64> {
    gauge.is_finite().then_some(gauge as i64)
}

/// For how long the relay has been in its state.
pub(super) fn since_seconds(view: &AdminView, health: &Health) -> u64 {
    (view.clock)().saturating_sub(health.since_ms) / 1000
}

pub(super) fn reason(reason: StateReason) -> Value {
    json!({ "code": reason.code(), "text": reason.to_string() })
}

pub(super) fn reasons(reasons: &[StateReason]) -> Value {
    reasons.iter().copied().map(reason).collect()
}
