//! Where things stand, gathered once for JSON and for the page.

use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use crate::health::{Facts, Health, HealthLimits, HealthState, Unready};
use crate::metrics::{LabelSet, Metrics, Outcome, Point, WalStatus};

/// Milliseconds since the origin that [`Facts`] are written against.
pub(crate) type FactsClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// What the server shows.
#[derive(Clone)]
pub(crate) struct AdminView {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) facts: Arc<Facts>,
    pub(crate) limits: HealthLimits,
    pub(crate) clock: FactsClock,
    /// Name of the replication slot; none where a table is polled.
    pub(crate) slot: Option<String>,
}

/// A clock that counts from `origin`.
#[must_use]
pub(crate) fn clock_since(origin: Instant) -> FactsClock {
    Arc::new(move || u64::try_from(origin.elapsed().as_millis()).unwrap_or(u64::MAX))
}

impl AdminView {
    pub(super) fn health(&self) -> Health {
        Health::judge(&self.facts.snapshot(), self.limits, (self.clock)())
    }
}

/// One reason against readiness.
#[derive(Debug, Serialize)]
pub(super) struct Why {
    pub(super) code: &'static str,
    pub(super) text: String,
}

/// Everything `/status` says. Field names are the contract.
#[derive(Debug, Serialize)]
pub(super) struct Status {
    pub(super) version: &'static str,
    #[serde(skip)]
    pub(super) health: HealthState,
    pub(super) state: &'static str,
    pub(super) ready: bool,
    pub(super) live: bool,
    pub(super) reasons: Vec<Why>,
    pub(super) note: String,
    pub(super) uptime_seconds: u64,
    pub(super) lsn: ByPoint<String>,
    pub(super) in_flight: InFlightStatus,
    pub(super) events: EventTotals,
    pub(super) dead_letters: DeadLetterStatus,
    /// `null` where a table is polled.
    pub(super) slot: Option<SlotStatus>,
    /// `null` where the slot is read.
    pub(super) polling: Option<PollingStatus>,
}

#[derive(Debug, Serialize)]
pub(super) struct ByPoint<T> {
    pub(super) received: T,
    pub(super) sent: T,
    pub(super) confirmed: T,
}

#[derive(Debug, Serialize)]
pub(super) struct InFlightStatus {
    pub(super) events: u64,
    pub(super) bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct EventTotals {
    pub(super) published: u64,
    pub(super) dead_lettered: u64,
    pub(super) retries: u64,
    pub(super) source_reconnects: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct DeadLetterStatus {
    /// `null` while the dead-letter topic is not read.
    pub(super) open: Option<u64>,
    /// 0 without one, `null` while the dead-letter topic is not read.
    pub(super) oldest_age_seconds: Option<f64>,
    pub(super) parked_keys: i64,
    pub(super) breaker_open: bool,
    pub(super) publish_failed: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct SlotStatus {
    pub(super) name: String,
    pub(super) active: bool,
    /// `null` before the first reading.
    pub(super) wal_status: Option<&'static str>,
    pub(super) lag_bytes: ByPoint<i64>,
    pub(super) lag_seconds: f64,
    pub(super) retained_wal_bytes: i64,
    /// `null` without a limit, and before the first reading.
    pub(super) safe_wal_bytes: Option<i64>,
}

#[derive(Debug, Serialize)]
pub(super) struct PollingStatus {
    /// Rows that are not published; `null` before the first look.
    pub(super) backlog: Option<u64>,
    /// Of the oldest; 0 without one.
    pub(super) backlog_age_seconds: Option<f64>,
    pub(super) expired_claims: u64,
    pub(super) cleaned_rows: u64,
}

impl Status {
    pub(super) fn of(view: &AdminView) -> Status {
        let now_ms = (view.clock)();
        let facts = view.facts.snapshot();
        let health = Health::judge(&facts, view.limits, now_ms);
        let (pass, metrics) = (facts.pass, &view.metrics);
        Status {
            version: env!("CARGO_PKG_VERSION"),
            health: health.state,
            state: health.state.text(),
            ready: health.reasons.is_empty(),
            live: health.stuck().is_none(),
            reasons: reasons(&health.reasons),
            note: view.facts.note(),
            uptime_seconds: now_ms / 1000,
            lsn: ByPoint {
                received: pass.received_lsn.to_string(),
                sent: pass.sent_lsn.to_string(),
                confirmed: pass.confirmed_lsn.to_string(),
            },
            in_flight: InFlightStatus {
                events: pass.in_flight_events,
                bytes: pass.in_flight_bytes,
            },
            events: EventTotals {
                published: metrics.events.at(Outcome::Published).get(),
                dead_lettered: metrics.events.at(Outcome::DeadLettered).get(),
                retries: metrics.retries.get(),
                source_reconnects: metrics.source_reconnects.get(),
            },
            dead_letters: DeadLetterStatus {
                open: known(metrics.dlq_depth.get()).map(|depth| depth as u64),
                oldest_age_seconds: known(metrics.dlq_oldest_age_seconds.get()),
                parked_keys: metrics.dlq_parked_keys.get(),
                breaker_open: metrics.dlq_breaker_open.get() == 1,
                publish_failed: metrics.dlq_publish_failed.get(),
            },
            slot: view.slot.as_deref().map(|name| slot(view, name)),
            polling: view.slot.is_none().then(|| PollingStatus {
                backlog: known(metrics.backlog.get()).map(|rows| rows as u64),
                backlog_age_seconds: known(metrics.backlog_age_seconds.get()),
                expired_claims: metrics.expired_claims.get(),
                cleaned_rows: metrics.cleaned_rows.get(),
            }),
        }
    }
}

fn known(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

fn slot(view: &AdminView, name: &str) -> SlotStatus {
    let metrics = &view.metrics;
    let lag = |point| metrics.slot_lag_bytes.at(point).get();
    let wal_status = metrics.slot_wal_status.iter().find(|(_, gauge)| gauge.get() == 1);
    SlotStatus {
        name: name.to_owned(),
        active: metrics.slot_active.get() == 1,
        wal_status: wal_status.map(|(status, _)| WalStatus::TEXTS[status.index()]),
        lag_bytes: ByPoint {
            received: lag(Point::Received),
            sent: lag(Point::Sent),
            confirmed: lag(Point::Confirmed),
        },
        lag_seconds: metrics.slot_lag_seconds.get(),
        retained_wal_bytes: metrics.slot_retained_wal_bytes.get(),
        safe_wal_bytes: known(metrics.slot_safe_wal_bytes.get()).map(|bytes| bytes as i64),
    }
}

pub(super) fn reasons(reasons: &[Unready]) -> Vec<Why> {
    reasons.iter().map(|why| Why { code: why.code(), text: why.to_string() }).collect()
}
