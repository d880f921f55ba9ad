//! The table of all metrics.
//!
//! An entry makes the typed handle, the registration, the row of `docs/metrics.md` and the check
//! that nothing else in `src/` names a metric. Handles are plain atomics, so counting costs one
//! addition and no look-up. Label values are enums: no label takes a value from a row, and the
//! number of series is fixed when the process starts.
//!
//! The data thread confirms up to 250,000 events a second. What it would count once per event it
//! counts in a [`PassCounts`](crate::adapters::PassCounts), which adds to the shared handles once per pass of the loop.

use std::sync::Mutex;

use prometheus::{Counter, Gauge, Histogram, IntCounter, IntGauge, Registry, TextEncoder};
use walrelay_base::lock::locked;
use walrelay_measure::process;

pub mod instrument;
mod quantile;

pub use walrelay_core::metrics::{
    HealthState, Ignored, IntakeHold, KnownFrom, LabelSet, Outcome, Point, Stage, Version,
    WalStatus, labels,
};

pub use self::instrument::{Family, Instrument, MetricKind, MetricSpec};
pub use self::quantile::BucketCounts;

/// Commit to confirm: from half a millisecond to a minute.
const LATENCY_SECONDS: &[f64] = &[
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0, 30.0, 60.0,
];
/// One stage of one pass: from ten microseconds; a pass of ten seconds is a stuck loop.
const STAGE_SECONDS: &[f64] = &[0.000_01, 0.000_1, 0.001, 0.01, 0.1, 1.0, 10.0];
/// For what is not a histogram.
const NONE: &[f64] = &[];

macro_rules! table {
    ($($field:ident: $kind:ty = $name:literal, $unit:literal, $buckets:expr, $help:literal;)*) => {
        /// The table, in the order of the documentation.
        pub const TABLE: &[MetricSpec] = &[$(MetricSpec {
            name: $name,
            kind: <$kind as Instrument>::KIND,
            unit: $unit,
            help: $help,
            label: <$kind as Instrument>::LABEL,
            buckets: $buckets,
        }),*];

        /// Every handle, registered in a registry of its own.
        #[derive(Debug)]
        pub struct Metrics {
            registry: Registry,
            process_read: Mutex<()>,
            $(#[doc = $help] pub $field: $kind,)*
        }

        impl Metrics {
            fn registered() -> prometheus::Result<Metrics> {
                let registry = Registry::new();
                let mut specs = TABLE.iter();
                let mut next = || specs.next().ok_or(prometheus::Error::AlreadyReg);
                // Fields are evaluated in the order written, which is the order of the table.
                $(let $field = <$kind as Instrument>::register(&registry, next()?)?;)*
                Ok(Metrics { registry, process_read: Mutex::new(()), $($field),* })
            }
        }
    };
}

table! {
    events: Family<IntCounter, Outcome> = "outbox_events_total", "events", NONE,
        "Events that are settled: published, or written as dead letters.";
    known_events: Family<IntCounter, KnownFrom> = "outbox_events_known_total", "events", NONE,
        "Events that were received again and not published again, because an earlier process has published them; the label says where that is known from.";
    retries: IntCounter = "outbox_retries_total", "attempts", NONE,
        "Attempts to publish after the first.";
    retry_exhaustions: IntCounter = "outbox_retry_exhaustions_total", "events", NONE,
        "Events that failed in all their attempts.";
    unknown_errors: IntCounter = "outbox_unknown_errors_total", "answers", NONE,
        "Answers of the broker that this release does not know; each is logged.";
    dlq_published: IntCounter = "outbox_dlq_published_total", "events", NONE,
        "Dead letters confirmed in the dead-letter topic.";
    dlq_publish_failed: IntCounter = "outbox_dlq_publish_failed_total", "attempts", NONE,
        "Attempts to write a dead letter that failed; the slot is held until one succeeds.";
    dlq_breaker_open: IntGauge = "outbox_dlq_breaker_open", "0 or 1", NONE,
        "1 while dead_letter.burst_max dead letters were written within dead_letter.burst_window; one more stops the relay. It stays 1 after such a stop.";
    dlq_parked_keys: IntGauge = "outbox_dlq_parked_keys", "keys", NONE,
        "Keys whose events go to the dead-letter topic until they are released.";
    dlq_depth: Gauge = "outbox_dlq_depth", "events", NONE,
        "Dead letters that are open; NaN while the dead-letter topic is not read.";
    dlq_oldest_age_seconds: Gauge = "outbox_dlq_oldest_age_seconds", "seconds", NONE,
        "Age of the oldest open dead letter; 0 without one, NaN while the dead-letter topic is not read.";
    publish_latency_seconds: Histogram = "outbox_publish_latency_seconds", "seconds", LATENCY_SECONDS,
        "Time from the commit in Postgres (of a polled row: from its created_at) to the confirm by the broker.";
    stage_seconds: Family<Histogram, Stage> = "outbox_stage_seconds", "seconds", STAGE_SECONDS,
        "Time that one pass of the data loop spends in each stage. Passes that skip a stage and the time between passes are not counted. Only with a slot.";
    in_flight_events: IntGauge = "outbox_in_flight_events", "events", NONE,
        "Events admitted and not yet settled.";
    in_flight_bytes: IntGauge = "outbox_in_flight_bytes", "bytes", NONE,
        "Bytes of the events admitted and not yet settled.";
    in_flight_limit: IntGauge = "outbox_in_flight_limit", "events", NONE,
        "Events that may be in flight now. The relay measures how many keep the broker busy; the maximum is delivery.window_events_max.";
    ignored_rows: Family<IntCounter, Ignored> = "outbox_ignored_rows_total", "rows", NONE,
        "Changes that were received and are not events: operations other than INSERT, and tables and message prefixes that are not configured.";
    headers_dropped: IntCounter = "outbox_headers_dropped_total", "headers", NONE,
        "Headers in rows that were left out of the record, because their names begin with dlq- or x-retry-.";
    source_reconnects: IntCounter = "outbox_source_reconnects_total", "connections", NONE,
        "Replication streams that broke, or that the relay gave up. Only with a slot.";
    connected: IntGauge = "outbox_connected", "0 or 1", NONE,
        "1 while the replication stream is open, or while rows are polled.";
    state: Family<IntGauge, HealthState> = "outbox_state", "0 or 1", NONE,
        "1 for the state of the relay, 0 for the others.";
    intake_held: Family<IntGauge, IntakeHold> = "outbox_intake_held", "0 or 1", NONE,
        "1 for the reason why no event is taken in, 0 for the others; all 0 while events are taken in.";
    state_since_timestamp_seconds: Gauge = "outbox_state_since_timestamp_seconds", "seconds", NONE,
        "Time at which the present state of the relay began, in seconds since the Unix epoch.";
    backlog: Gauge = "outbox_backlog", "rows", NONE,
        "Polling: rows that are not published, waiting or claimed, up to 100,000; NaN where the slot is read, and while the table cannot be read.";
    backlog_age_seconds: Gauge = "outbox_backlog_age_seconds", "seconds", NONE,
        "Polling: age of the oldest row that waits or is claimed; 0 without one, NaN where the slot is read or none has a time, and while the table cannot be read.";
    expired_claims: IntCounter = "outbox_expired_claims_total", "rows", NONE,
        "Polling: claimed rows that were given back because their process did not renew the claim.";
    cleaned_rows: IntCounter = "outbox_cleaned_rows_total", "rows", NONE,
        "Polling: published rows that the clean-up has deleted.";
    slot_lag_bytes: Family<Gauge, Point> = "outbox_slot_lag_bytes", "bytes", NONE,
        "WAL between the server's write position and what was received, sent to the broker, or confirmed; NaN while the slot is not read, received and sent also while another relay reads it.";
    slot_lag_seconds: Gauge = "outbox_slot_lag_seconds", "seconds", NONE,
        "Age of the oldest commit that is not settled, at most the time since this process first looked at the slot; 0 when all is settled, NaN while the slot is not read.";
    slot_retained_wal_bytes: Gauge = "outbox_slot_retained_wal_bytes", "bytes", NONE,
        "WAL that Postgres keeps because of the slot; NaN while the slot is not read.";
    slot_safe_wal_bytes: Gauge = "outbox_slot_safe_wal_bytes", "bytes", NONE,
        "WAL that may still be written before the slot is in danger; +Inf without a limit, NaN when it is lost, and while the slot is not read.";
    slot_wal_status: Family<IntGauge, WalStatus> = "outbox_slot_wal_status", "0 or 1", NONE,
        "1 for the slot's wal_status, 0 for the others; all 0 while the slot is not read.";
    slot_active: IntGauge = "outbox_slot_active", "0 or 1", NONE,
        "1 while some process streams from the slot; 0 also while the slot is not read.";
    slot_restart_lsn_age_seconds: Gauge = "outbox_slot_restart_lsn_age_seconds", "seconds", NONE,
        "How long the slot's restart_lsn has not moved, as seen by this process; NaN while the slot is not read.";
    slot_pinned_seconds: Gauge = "outbox_slot_pinned_seconds", "seconds", NONE,
        "Age of the transaction that keeps the slot's restart_lsn, and with it WAL, from moving; 0 without one, NaN while the slot is not read.";
    spans_exported: IntCounter = "outbox_spans_exported_total", "spans", NONE,
        "Spans that the collector has accepted.";
    spans_dropped: IntCounter = "outbox_spans_dropped_total", "spans", NONE,
        "Spans that the collector refused, that were dropped because the queue was full, or that it had not accepted when the process ended.";
    info: Family<IntGauge, Version> = "outbox_info", "1", NONE,
        "Always 1; the version is in the label.";
    process_resident_memory_bytes: Gauge = "process_resident_memory_bytes", "bytes", NONE,
        "Resident memory of the process.";
    process_cpu_seconds: Counter = "process_cpu_seconds_total", "seconds", NONE,
        "User and system CPU time of the process.";
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    /// # Panics
    /// If the table has a duplicate or malformed name, which the tests of this module exclude.
    pub fn new() -> Metrics {
        let metrics = Metrics::registered().expect("the metric table is well formed");
        metrics.info.at(Version::This).set(1);
        // Before the first measurement, 0 would mean that no room is left or that nothing waits.
        metrics.set_rows_and_letters_unknown();
        metrics.set_slot_unknown();
        metrics
    }

    /// The slot is not read: what was last read of it may no longer be true.
    pub fn set_slot_unknown(&self) {
        let lag_bytes = self.slot_lag_bytes.iter().map(|(_, gauge)| gauge);
        for unknown in lag_bytes.chain([
            &self.slot_lag_seconds,
            &self.slot_retained_wal_bytes,
            &self.slot_safe_wal_bytes,
            &self.slot_restart_lsn_age_seconds,
            &self.slot_pinned_seconds,
        ]) {
            unknown.set(f64::NAN);
        }
        let wal_status = self.slot_wal_status.iter().map(|(_, gauge)| gauge);
        for flag in wal_status.chain([&self.slot_active]) {
            flag.set(0);
        }
    }

    /// The relay is halted: nothing is read, and nothing is in flight. A slot that is lost stays so.
    pub fn set_halted(&self) {
        let is_lost = self.slot_wal_status.at(WalStatus::Lost).get();
        self.set_slot_unknown();
        self.slot_wal_status.at(WalStatus::Lost).set(is_lost);
        for idle in [&self.connected, &self.in_flight_events, &self.in_flight_bytes] {
            idle.set(0);
        }
        self.set_rows_and_letters_unknown();
    }

    /// Neither the polled table nor the dead-letter topic is read: nobody knows what waits there.
    fn set_rows_and_letters_unknown(&self) {
        for unknown in [
            &self.backlog,
            &self.backlog_age_seconds,
            &self.dlq_depth,
            &self.dlq_oldest_age_seconds,
        ] {
            unknown.set(f64::NAN);
        }
    }

    /// Shows `wal_status` and `safe_wal_size` of `pg_replication_slots`, where `None` is SQL NULL: of a slot
    /// without a limit, or of a lost one, to which no limit applies any more.
    pub fn set_wal(&self, status: &str, safe_bytes: Option<i64>) {
        let status = WalStatus::from_postgres(status);
        let without = if status == WalStatus::Lost { f64::NAN } else { f64::INFINITY };
        self.slot_safe_wal_bytes.set(safe_bytes.map_or(without, |bytes| bytes as f64));
        for (value, gauge) in self.slot_wal_status.iter() {
            gauge.set(i64::from(value == status));
        }
    }

    /// Everything in Prometheus' text format, process figures read now.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        self.read_process();
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }

    /// The lock keeps two readers from adding the same difference to the counter of CPU time.
    fn read_process(&self) {
        let _one_reader = locked(&self.process_read);
        let Some((resident_bytes, cpu_seconds)) = process::own_usage() else { return };
        self.process_resident_memory_bytes.set(resident_bytes as f64);
        let more = cpu_seconds - self.process_cpu_seconds.get();
        if more > 0.0 {
            self.process_cpu_seconds.inc_by(more);
        }
    }
}

/// The table as Markdown, for `docs/metrics.md`.
pub fn markdown_table() -> String {
    let mut text =
        String::from("| Name | Type | Unit | Labels | Meaning |\n|---|---|---|---|---|\n");
    for spec in TABLE {
        let (name, kind, unit, help) = (spec.name, spec.kind.text(), spec.unit, spec.help);
        let label = spec.label_text();
        text.push_str(&format!("| `{name}` | {kind} | {unit} | {label} | {help} |\n"));
    }
    text
}

#[cfg(test)]
mod tests;
