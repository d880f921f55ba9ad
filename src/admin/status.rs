//! Where things stand, gathered once for JSON and for the page.

use serde::Serialize;

use super::View;
use crate::health::{Health, Reason, State};
use crate::metrics::{LabelSet, Outcome, Point, WalStatus};

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
    #[serde(serialize_with = "state_text")]
    pub(super) state: State,
    pub(super) ready: bool,
    pub(super) live: bool,
    pub(super) reasons: Vec<Why>,
    pub(super) note: String,
    pub(super) uptime_seconds: u64,
    pub(super) lsn: Positions,
    pub(super) in_flight: InFlight,
    pub(super) events: Events,
    pub(super) dead_letters: DeadLetters,
    /// `null` where a table is polled.
    pub(super) slot: Option<Slot>,
    /// `null` where the slot is read.
    pub(super) polling: Option<Polling>,
}

#[derive(Debug, Serialize)]
pub(super) struct Polling {
    /// Rows that are not published; `null` before the first look.
    pub(super) backlog: Option<u64>,
    /// Of the oldest; 0 without one.
    pub(super) backlog_age_seconds: Option<f64>,
    pub(super) expired_claims: u64,
    pub(super) cleaned_rows: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Positions {
    pub(super) received: String,
    pub(super) sent: String,
    pub(super) confirmed: String,
}

#[derive(Debug, Serialize)]
pub(super) struct InFlight {
    pub(super) events: u64,
    pub(super) bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Events {
    pub(super) published: u64,
    pub(super) dead_lettered: u64,
    pub(super) retries: u64,
    pub(super) source_reconnects: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct DeadLetters {
    /// `null` while the dead-letter topic is not read.
    pub(super) open: Option<u64>,
    /// 0 without one, `null` while the dead-letter topic is not read.
    pub(super) oldest_age_seconds: Option<f64>,
    pub(super) parked_keys: i64,
    pub(super) breaker_open: bool,
    pub(super) publish_failed: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Slot {
    pub(super) name: String,
    pub(super) active: bool,
    /// `null` before the first reading.
    pub(super) wal_status: Option<&'static str>,
    pub(super) lag_bytes: LagBytes,
    pub(super) lag_seconds: f64,
    pub(super) retained_wal_bytes: i64,
    /// `null` without a limit, and before the first reading.
    pub(super) safe_wal_bytes: Option<i64>,
}

#[derive(Debug, Serialize)]
pub(super) struct LagBytes {
    pub(super) received: i64,
    pub(super) sent: i64,
    pub(super) confirmed: i64,
}

impl Status {
    pub(super) fn of(view: &View) -> Status {
        let now_ms = (view.clock)();
        let facts = view.facts.snapshot();
        let health = Health::judge(&facts, view.limits, now_ms);
        let metrics = &view.metrics;
        Status {
            version: env!("CARGO_PKG_VERSION"),
            state: health.state,
            ready: health.ready().is_ok(),
            live: health.live().is_ok(),
            reasons: reasons(health.reasons()),
            note: view.facts.note(),
            uptime_seconds: now_ms / 1000,
            lsn: Positions {
                received: facts.received_lsn.to_string(),
                sent: facts.sent_lsn.to_string(),
                confirmed: facts.confirmed_lsn.to_string(),
            },
            in_flight: InFlight { events: facts.in_flight_events, bytes: facts.in_flight_bytes },
            events: Events {
                published: metrics.events.at(Outcome::Published).get(),
                dead_lettered: metrics.events.at(Outcome::DeadLettered).get(),
                retries: metrics.retries.get(),
                source_reconnects: metrics.source_reconnects.get(),
            },
            dead_letters: dead_letters(view),
            slot: view.slot.as_deref().map(|name| slot(view, name)),
            polling: view.slot.is_none().then(|| polling(view)),
        }
    }
}

fn dead_letters(view: &View) -> DeadLetters {
    let metrics = &view.metrics;
    let known = |value: f64| value.is_finite().then_some(value);
    DeadLetters {
        open: known(metrics.dlq_depth.get()).map(|depth| depth as u64),
        oldest_age_seconds: known(metrics.dlq_oldest_age_seconds.get()),
        parked_keys: metrics.dlq_parked_keys.get(),
        breaker_open: metrics.dlq_breaker_open.get() == 1,
        publish_failed: metrics.dlq_publish_failed.get(),
    }
}

fn polling(view: &View) -> Polling {
    let metrics = &view.metrics;
    let known = |value: f64| value.is_finite().then_some(value);
    Polling {
        backlog: known(metrics.backlog.get()).map(|rows| rows as u64),
        backlog_age_seconds: known(metrics.backlog_age_seconds.get()),
        expired_claims: metrics.expired_claims.get(),
        cleaned_rows: metrics.cleaned_rows.get(),
    }
}

fn slot(view: &View, name: &str) -> Slot {
    let metrics = &view.metrics;
    let safe = metrics.slot_safe_wal_bytes.get();
    let lag = |point| metrics.slot_lag_bytes.at(point).get();
    let wal_status = metrics.slot_wal_status.iter().find(|(_, gauge)| gauge.get() == 1);
    Slot {
        name: name.to_owned(),
        active: metrics.slot_active.get() == 1,
        wal_status: wal_status.map(|(status, _)| WalStatus::TEXTS[status.index()]),
        lag_bytes: LagBytes {
            received: lag(Point::Received),
            sent: lag(Point::Sent),
            confirmed: lag(Point::Confirmed),
        },
        lag_seconds: metrics.slot_lag_seconds.get(),
        retained_wal_bytes: metrics.slot_retained_wal_bytes.get(),
        safe_wal_bytes: safe.is_finite().then_some(safe as i64),
    }
}

pub(super) fn reasons(reasons: &[Reason]) -> Vec<Why> {
    reasons.iter().map(|why| Why { code: why.code(), text: why.to_string() }).collect()
}

fn state_text<S: serde::Serializer>(state: &State, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(state.text())
}
