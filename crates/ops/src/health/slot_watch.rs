//! Watches the slot over a second connection, so that its metrics stay correct
//! when the stream is stuck; while it has no answer, they are unknown. Also detects what the stream does not show: a
//! Postgres that refuses new connections because it shuts down, a slot that
//! was lost, a publication that was changed so that events are missing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::Phase;
use super::facts::Facts;
use super::slot_pin::{PinWatch, SlotPin};
use crate::metrics::{Metrics, Point};
use walrelay_base::error::Fault;
use walrelay_base::lsn::Lsn;
use walrelay_base::random;
use walrelay_core::doctor::fingerprint::{
    Comparison, KnownPublication, PublicationFingerprint, PublicationLook,
};
use walrelay_postgres::connect::{ConnectCause, ConnectError, ConnectErrorKind};
use walrelay_postgres::faults::{TWO_SERVERS, slot_lost, two_servers};
use walrelay_postgres::oldest_transaction::oldest_transaction;
use walrelay_postgres::publication::published_unless_locked;
use walrelay_postgres::settings::SourceSettings;
use walrelay_postgres::sightings::Sightings;
use walrelay_postgres::slot_state::{RestartAge, SlotFacts, SlotQuery, SlotState};
use walrelay_postgres::smart_shutdown::{GO_ON_FOR, TRY_EVERY, wait_for_smart_shutdown};
use walrelay_postgres::sql::{self, Sql};

/// The publication is read less often than the slot.
const PUBLICATION_EVERY: Duration = Duration::from_secs(5);
/// So is the oldest open transaction.
const TRANSACTION_EVERY: Duration = Duration::from_secs(5);
/// How often the watch checks whether the first session is open.
const FIRST_SESSION_TICK: Duration = Duration::from_millis(20);
/// Limit for one query.
const QUERY_WITHIN: Duration = Duration::from_secs(10);
/// The time without an answer after which the last reading counts as unknown.
const KNOWN_FOR: Duration = Duration::from_secs(3);
const SERVER_SQL: &str = "SELECT pg_catalog.current_setting('server_version_num')::integer,
    (SELECT system_identifier::pg_catalog.text FROM pg_catalog.pg_control_system())";

pub struct SlotWatch {
    pub settings: SourceSettings,
    pub metrics: Arc<Metrics>,
    pub facts: Arc<Facts>,
    /// The origin of the facts' clock.
    pub origin: Instant,
    /// The publication as this process met it.
    pub known: Arc<KnownPublication>,
    pub sightings: Arc<Sightings>,
    /// Called when Postgres shuts down.
    pub stopping: Box<dyn Fn()>,
}

impl SlotWatch {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Watches until it finds a fault that must stop the relay. It may be cancelled at any time.
pub async fn watch(watch: SlotWatch) -> Fault {
    // Until the first session the preflight reports what is wrong.
    let begins = [Phase::Starting, Phase::Connecting, Phase::LoginRefused, Phase::AwaitingPrimary];
    // One that ends at once may be over before its phase is seen.
    while begins.contains(&watch.facts.snapshot().pass.phase) && watch.sightings.server().is_none()
    {
        tokio::time::sleep(FIRST_SESSION_TICK).await;
    }
    let mut backoff = random::backoff(watch.settings.reconnect_base, watch.settings.reconnect_cap);
    let mut ages = Ages::default();
    let mut is_logged = false;
    loop {
        // Why the slot is not read, and whether a login was refused.
        let failed = match answer(&watch, sql::connect(&watch.settings.connection)).await {
            Ok(sql) if is_elsewhere(&watch, &sql) => {
                show_unknown(&watch);
                if !std::mem::replace(&mut is_logged, true) {
                    let fault = two_servers(&watch.settings, &sql.server, None);
                    tracing::warn!(code = TWO_SERVERS, "{}", fault.what);
                }
                None
            }
            Ok(sql) => {
                is_logged = false;
                let began = Instant::now();
                let shutdown =
                    wait_for_smart_shutdown(&watch.settings.connection, &sql, TRY_EVERY, GO_ON_FOR);
                // Somebody may end this session with the same error as a server that stops.
                let (observed, is_refused) = tokio::select! {
                    observed = observe(&watch, &sql, &mut ages) => (observed, false),
                    // The session ends, and the next attempt meets the same.
                    refused = shutdown => (Err(refused), true),
                };
                // A login may succeed where each question is refused.
                if began.elapsed() > watch.settings.reconnect_cap {
                    backoff.succeeded();
                }
                let failed = match observed {
                    Ok(Some(fault)) => return fault,
                    Ok(None) => None,
                    Err(error) => Some((error, is_refused)),
                };
                show_unknown(&watch);
                failed
            }
            Err(error) => Some((error, true)),
        };
        let delay = backoff.next_delay();
        match failed {
            Some((error, true)) if is_stop_of_stream(&watch.sightings, &error) => {
                (watch.stopping)();
            }
            Some((error, _)) => log_unread(&watch, &error, delay),
            None => {}
        }
        tokio::time::sleep(delay).await;
    }
}

/// Logs why the slot is not read. Only while the relay streams this is a warning: whatever keeps the watch from
/// Postgres then, a relay without a stream meets and reports itself.
fn log_unread(watch: &SlotWatch, error: &ConnectError, delay: Duration) {
    if watch.facts.snapshot().pass.phase == Phase::Streaming {
        let retry_in_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(
            code = "slot.unread", error = %error, retry_in_ms,
            "the slot cannot be read over SQL: while the stream goes on, its metrics are unknown"
        );
    } else {
        tracing::debug!(error = %error, "the watch has no connection");
    }
}

/// Whether the server that the stream comes from stops. Another one of the list that starts up refuses connections in
/// the same way.
fn is_stop_of_stream(sightings: &Sightings, error: &ConnectError) -> bool {
    let Some(host) = sightings.walsender().map(|walsender| walsender.host.to_string()) else {
        return false;
    };
    let is_stop = |it: &ConnectError| it.at == host && it.kind() == ConnectErrorKind::Stopping;
    match &error.cause {
        ConnectCause::All(each) => each.iter().any(is_stop),
        _ => is_stop(error),
    }
}

/// Whether the stream comes from another server: what this one says is not true of it. Without a
/// stream any server will do, so that the WAL that the slot retains stays visible.
fn is_elsewhere(watch: &SlotWatch, sql: &Sql) -> bool {
    let is_streaming = watch.facts.snapshot().pass.phase == Phase::Streaming;
    is_streaming && watch.sightings.server().is_some_and(|server| server != sql.started)
}

#[derive(Default)]
struct Ages {
    restart: RestartAge,
    lag: LagAge,
}

/// Returns without a fault when the stream comes from another server.
async fn observe(
    watch: &SlotWatch,
    sql: &Sql,
    ages: &mut Ages,
) -> Result<Option<Fault>, ConnectError> {
    let settings = &watch.settings;
    let prepare = async {
        // In a database of many tables the planner overestimates the cost of what is asked here, and compiling
        // it takes longer than running it.
        sql.client.batch_execute("SET jit = off").await?;
        let server = sql.client.query_one(SERVER_SQL, &[]).await?;
        let version = u32::try_from(server.get::<_, i32>(0)).unwrap_or(0);
        let query = SlotQuery::prepare(&sql.client, &settings.slot).await?;
        Ok((version, server.get::<_, String>(1), query))
    };
    let (version, system_id, query) = answer(watch, sql.within(QUERY_WITHIN, prepare)).await?;
    let (mut pins, mut logged) = (PinWatch::new(settings.pinned_after), None);
    let transaction_every = TRANSACTION_EVERY.min(settings.pinned_after);
    let mut publication_due = Instant::now();
    let mut transaction_due = publication_due;
    loop {
        let state = answer(watch, sql.within(QUERY_WITHIN, query.run(&sql.client))).await?;
        if is_elsewhere(watch, sql) {
            return Ok(None);
        }
        // Whatever is wrong on a standby may be right on the primary, which the relay looks for.
        if state.in_recovery {
            show_unknown(watch);
            tokio::time::sleep(settings.watch_interval).await;
            continue;
        }
        if let Some(held) = state.held(&sql.started) {
            watch.sightings.look(&held, Instant::now());
        }
        if let Some(slot) = state.own_slot() {
            show(watch, &state, slot, ages);
            if slot.is_lost() || slot.wal_status.is_none() {
                let confirmed = &slot.confirmed_flush;
                return Ok(Some(slot_lost(&settings.slot, slot.loss_reason(), confirmed)));
            }
            if Instant::now() >= transaction_due {
                transaction_due = Instant::now() + transaction_every;
                let look = oldest_transaction(&sql.client);
                let oldest = answer(watch, sql.within(QUERY_WITHIN, look)).await?;
                show_pin(watch, pins.observe(slot, oldest, Instant::now()), &mut logged);
            }
        } else {
            // That it no longer exists is reported by
            // the next session's preflight, which says more.
            show_unknown(watch);
        }
        if Instant::now() >= publication_due {
            publication_due = Instant::now() + PUBLICATION_EVERY;
            let look = published_unless_locked(&sql.client, settings);
            match answer(watch, sql.within(QUERY_WITHIN, look)).await? {
                Some(published) => {
                    let found = PublicationFingerprint::new(published, version);
                    let (system_id, wal_end) = (system_id.clone(), state.current_lsn);
                    let look = PublicationLook { system_id, wal_end, found };
                    if let Comparison::Fault(fault) = watch.known.compare(look, settings, false) {
                        return Ok(Some(fault));
                    }
                }
                None => tracing::debug!("an outbox is locked: the publication is read later"),
            }
        }
        tokio::time::sleep(settings.watch_interval).await;
    }
}

/// Waits for an answer of Postgres; when it is late, what was read before is unknown.
async fn answer<T>(
    watch: &SlotWatch,
    answer: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    watch.facts.postgres_asked(watch.now_ms());
    tokio::pin!(answer);
    let answer = match timeout(KNOWN_FOR, &mut answer).await {
        Ok(answer) => answer,
        Err(_) => {
            show_unknown(watch);
            answer.await
        }
    };
    if answer.as_ref().map_or_else(is_from_postgres, |_| true) {
        watch.facts.postgres_answered();
    }
    answer
}

/// A refusal shows that Postgres works. A timeout or a broken connection does not, nor does a standby
/// in the list of servers: the stream comes from the primary.
fn is_from_postgres(error: &ConnectError) -> bool {
    match &error.cause {
        ConnectCause::Server(_)
        | ConnectCause::NoTls
        | ConnectCause::NoPassword
        | ConnectCause::Refused(_)
        | ConnectCause::Login(_) => true,
        ConnectCause::All(each) => each.iter().any(is_from_postgres),
        _ => false,
    }
}

/// A transaction that is no longer seen may still hold `restart_lsn`: nothing is logged.
fn show_unknown(watch: &SlotWatch) {
    watch.metrics.set_slot_unknown();
    watch.facts.set_pin(None);
}

fn show(watch: &SlotWatch, state: &SlotState, slot: &SlotFacts, ages: &mut Ages) {
    watch.facts.server_at(state.current_lsn, slot.confirmed_flush);
    watch.facts.set_idle_timeout(slot.idle_timeout(), watch.now_ms());
    let (metrics, facts) = (&watch.metrics, watch.facts.snapshot().pass);
    let now = Instant::now();
    // A relay that has read nothing yet is not behind the slot. One that stands by reads nothing: the other
    // relay knows where events wait.
    let behind = |lsn: Lsn| state.current_lsn.bytes_since(lsn.max(slot.confirmed_flush)) as f64;
    let is_reader = facts.phase != Phase::Standby;
    let read = |lsn| if is_reader { behind(lsn) } else { f64::NAN };
    metrics.slot_lag_bytes.at(Point::Received).set(read(facts.received_lsn));
    metrics.slot_lag_bytes.at(Point::Sent).set(read(facts.sent_lsn));
    metrics.slot_lag_bytes.at(Point::Confirmed).set(behind(slot.confirmed_flush));
    metrics.slot_retained_wal_bytes.set(state.retained_bytes(slot).unwrap_or(0) as f64);
    metrics.set_wal(slot.wal_status.as_deref().unwrap_or("lost"), slot.safe_wal_size);
    metrics.slot_active.set(i64::from(slot.active));
    let restart_age = ages.restart.observe(slot.restart_lsn, now);
    metrics.slot_restart_lsn_age_seconds.set(restart_age.as_secs_f64());
    let lag = ages.lag.observe(state.current_lsn, slot.confirmed_flush, now);
    metrics.slot_lag_seconds.set(lag.as_secs_f64());
}

/// Shows what pins `restart_lsn`, and logs when that begins and ends. `logged` is the pin that the log named last.
fn show_pin(watch: &SlotWatch, pin: Option<SlotPin>, logged: &mut Option<SlotPin>) {
    watch.metrics.slot_pinned_seconds.set(pin.as_ref().map_or(0.0, |pin| pin.age.as_secs_f64()));
    let slot = &watch.settings.slot;
    let by = |pin: &Option<SlotPin>| pin.as_ref().map(|pin| (pin.by.xid, pin.by.pid));
    if by(logged) != by(&pin) {
        if let Some(SlotPin { by, .. }) = logged {
            let transaction = by.title();
            tracing::info!(slot, transaction, "the transaction no longer holds restart_lsn");
        }
        if let Some(SlotPin { by, age, restart_lsn, .. }) = &pin {
            let (transaction, age_s, mend) = (by.title(), age.as_secs(), by.mend());
            tracing::warn!(
                code = "slot.pinned", slot, transaction, age_s, %restart_lsn, help = mend,
                "a transaction holds restart_lsn: Postgres keeps all WAL from there on"
            );
        }
        logged.clone_from(&pin);
    }
    watch.facts.set_pin(pin);
}

/// The age of the oldest WAL that the slot has not confirmed.
#[derive(Debug, Default)]
struct LagAge {
    /// When the server's WAL ended where.
    stood: VecDeque<(Lsn, Instant)>,
}

/// Entries of [`LagAge`]. Beyond that every second one is dropped, so that ages become less exact
/// and not unknown.
const LOOKS_MAX: usize = 2048;

impl LagAge {
    fn observe(&mut self, current: Lsn, confirmed: Lsn, now: Instant) -> Duration {
        let mut since = now;
        // After a failover the WAL ends earlier: it ended there at the latest when it ended further on.
        while let Some((_, at)) = self.stood.back().filter(|(last, _)| *last > current) {
            since = *at;
            self.stood.pop_back();
        }
        if self.stood.back().is_none_or(|(last, _)| *last < current) {
            self.stood.push_back((current, since));
        }
        while self.stood.front().is_some_and(|(lsn, _)| *lsn <= confirmed) {
            self.stood.pop_front();
        }
        if self.stood.len() > LOOKS_MAX {
            let mut nth = 0;
            self.stood.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
        }
        let oldest = self.stood.front();
        oldest.map_or(Duration::ZERO, |(_, since)| now.saturating_duration_since(*since))
    }
}

#[cfg(test)]
#[path = "slot_watch_tests.rs"]
mod tests;
