//! The slot seen from a second connection: its metrics stay true when the stream is stuck.
//!
//! It also notices what the stream cannot say: a Postgres that refuses newcomers because it shuts
//! down, a slot that was lost, a publication that was changed so that events would be held back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::base::backoff::Backoff;
use crate::base::error::Fault;
use crate::base::lsn::Lsn;
use crate::doctor::source::slot::lost_slot;
use crate::health::{Facts, Phase};
use crate::metrics::{Metrics, Point};
use crate::source::connect::{ConnectError, Kind};
use crate::source::publication::{KnownPublication, PublicationFingerprint};
use crate::source::settings::SourceSettings;
use crate::source::sql::{self, Sql};
use crate::source::watch::{RestartAge, SlotSample, Watcher};

/// The publication is looked at less often than the slot.
const PUBLICATION_EVERY: Duration = Duration::from_secs(5);
/// How often the watch asks whether the first session has come.
const FIRST_SESSION_TICK: Duration = Duration::from_millis(20);
/// Longest answer to one look.
const PATIENCE: Duration = Duration::from_secs(10);
const SERVER_SQL: &str = "SELECT pg_catalog.current_setting('server_version_num')::integer,
    (SELECT system_identifier::pg_catalog.text FROM pg_catalog.pg_control_system())";

/// What the watch is made of.
pub struct Watch {
    /// `[source]`.
    pub settings: SourceSettings,
    /// Where the slot is shown.
    pub metrics: Arc<Metrics>,
    /// Where the loop stands.
    pub facts: Arc<Facts>,
    /// The publication as this process met it.
    pub known: Arc<KnownPublication>,
    /// Called when Postgres shuts down.
    pub stopping: Box<dyn Fn()>,
}

/// Watches until something is found that must stop the relay. Cancelling it loses nothing.
pub async fn watch(mut watch: Watch) -> Fault {
    // Until then the preflight is the one to say what is wrong.
    let begins = [Phase::Starting, Phase::Connecting, Phase::AwaitingPrimary];
    while begins.contains(&watch.facts.snapshot().phase) {
        tokio::time::sleep(FIRST_SESSION_TICK).await;
    }
    let mut backoff = Backoff::new(watch.settings.reconnect_base, watch.settings.reconnect_cap);
    let mut ages = Ages::default();
    loop {
        match sql::connect(&watch.settings.connection).await {
            Ok(sql) => {
                backoff.succeeded();
                match observe(&mut watch, &sql, &mut ages).await {
                    Ok(fault) => return fault,
                    Err(error) => tracing::debug!(error = %error, "the watch lost its connection"),
                }
            }
            Err(error) if error.kind() == Kind::Stopping => (watch.stopping)(),
            Err(error) => tracing::debug!(error = %error, "the watch has no connection"),
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

#[derive(Default)]
struct Ages {
    restart: RestartAge,
    lag: LagClock,
}

async fn observe(watch: &mut Watch, sql: &Sql, ages: &mut Ages) -> Result<Fault, ConnectError> {
    let told = |error| ConnectError::of_query(&sql.server, &error);
    let settings = &watch.settings;
    let late = || ConnectError::late(&sql.server, PATIENCE);
    let prepare = async {
        let server = sql.client.query_one(SERVER_SQL, &[]).await.map_err(told)?;
        let watcher = Watcher::prepare(&sql.client, &settings.slot).await.map_err(told)?;
        let version = u32::try_from(server.get::<_, i32>(0)).unwrap_or(0);
        Ok::<_, ConnectError>((version, server.get::<_, String>(1), watcher))
    };
    let (version, system_id, watcher) = timeout(PATIENCE, prepare).await.map_err(|_| late())??;
    let mut publication_due = Instant::now();
    loop {
        let look = timeout(PATIENCE, watcher.sample(&sql.client)).await;
        let sample = look.map_err(|_| late())?.map_err(told)?;
        // A slot that is gone is told by the next session's preflight, with what to do about it.
        if let Some(sample) = sample {
            show(watch, &sample, ages);
            if sample.is_lost() {
                return Ok(lost(settings, &sample));
            }
        }
        if Instant::now() >= publication_due {
            publication_due = Instant::now() + PUBLICATION_EVERY;
            let look = PublicationFingerprint::take(&sql.client, settings, version);
            let now = timeout(PATIENCE, look).await.map_err(|_| late())?.map_err(told)?;
            if let Some(fault) = watch.known.compare(&system_id, now, settings) {
                return Ok(fault);
            }
        }
        tokio::time::sleep(settings.watch_interval).await;
    }
}

fn show(watch: &Watch, sample: &SlotSample, ages: &mut Ages) {
    watch.facts.server_at(sample.current_lsn);
    let (metrics, facts) = (&watch.metrics, watch.facts.snapshot());
    let now = Instant::now();
    let gauge = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let behind = |lsn: Lsn| gauge(sample.current_lsn.bytes_since(lsn));
    metrics.slot_lag_bytes.at(Point::Received).set(behind(facts.received_lsn));
    metrics.slot_lag_bytes.at(Point::Sent).set(behind(facts.sent_lsn));
    metrics.slot_lag_bytes.at(Point::Confirmed).set(behind(sample.confirmed_flush));
    metrics.slot_retained_wal_bytes.set(gauge(sample.retained_bytes));
    metrics.set_safe_wal(sample.safe_wal_size);
    metrics.set_wal_status(&sample.wal_status);
    metrics.slot_active.set(i64::from(sample.active));
    let restart_age = ages.restart.observe(sample.restart_lsn, now);
    metrics.slot_restart_lsn_age_seconds.set(restart_age.as_secs_f64());
    let lag = ages.lag.observe(sample.current_lsn, sample.confirmed_flush, now);
    metrics.slot_lag_seconds.set(lag.as_secs_f64());
}

fn lost(settings: &SourceSettings, sample: &SlotSample) -> Fault {
    let reason = sample.invalidation_reason.as_deref().unwrap_or("wal_removed");
    lost_slot(&settings.slot, reason, &sample.confirmed_flush)
}

/// How old the oldest WAL is that the slot has not confirmed: remembers when the server stood where.
#[derive(Debug, Default)]
struct LagClock {
    stood: VecDeque<(Lsn, Instant)>,
}

/// Looks remembered; beyond that every second one is dropped, so that any age still has a witness.
const LOOKS_MAX: usize = 2048;

impl LagClock {
    fn observe(&mut self, current: Lsn, confirmed: Lsn, now: Instant) -> Duration {
        if self.stood.back().is_none_or(|(last, _)| *last < current) {
            self.stood.push_back((current, now));
        }
        while self.stood.front().is_some_and(|(lsn, _)| *lsn <= confirmed) {
            self.stood.pop_front();
        }
        if self.stood.len() > LOOKS_MAX {
            let mut keep = false;
            self.stood.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.stood
            .front()
            .map_or(Duration::ZERO, |(_, since)| now.saturating_duration_since(*since))
    }
}

#[cfg(test)]
#[path = "slot_watch_tests.rs"]
mod tests;
