//! Opens a session whenever the loop requests one: connects, sees who holds the slot, runs the
//! preflight checks, starts to stream; and retries as long as a retry can help.
//!
//! While another process holds the slot, or the server is in recovery, an attempt waits on one SQL
//! connection: a START_REPLICATION that fails would write a line to the server's log each time.

use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::link::LinkEnd;
use walrelay_core::relay::control::{
    OpenedSession, SessionNews, SessionRequest, SystemTimeline, Walsender,
};
use walrelay_core::relay::session_findings::SessionFindings;

use crate::base::backoff::Backoff;
use crate::base::error::{Exit, Fault};
use crate::base::finding::{Finding, faults};
use crate::base::log::FINDINGS;
use crate::base::lsn::Lsn;
use crate::base::random;
use crate::doctor::fingerprint::{KnownPublication, PublicationLook};
use crate::doctor::publication_age;
use crate::doctor::server::WAL_SENDERS;
use crate::doctor::source::{self as source_doctor, SourceReport, fingerprint};
use crate::doctor::tables;
use crate::health::Phase;
use crate::source::catalog;
use crate::source::connect::{
    self, ConnectCause, ConnectError, ConnectErrorKind, ReplicationClient, StartReplication,
};
use crate::source::faults::{TWO_SERVERS, two_servers};
use crate::source::settings::{ConnInfo, SourceSettings};
use crate::source::sightings::Sightings;
use crate::source::slot_state::{SlotHolder, SlotQuery, SlotState};
use crate::source::sql::{self, Sql};
use crate::source::wire;

/// A process that has just started gives up on an unreachable database after this long, so that a
/// wrong address is reported and not retried for ever. A relay that has streamed, or has stood by
/// for another one, never gives up.
const STARTUP_GRACE: Duration = Duration::from_secs(10);
/// After a session of this length, or longer, the next waits begin short again.
const STEADY_AFTER: Duration = Duration::from_secs(10);
/// Longest wait before servers are asked again whether they are a primary: a promotion is quick.
const PRIMARY_INTERVAL: Duration = Duration::from_secs(1);
/// Limit from a free slot to a session; decoding may start late behind a long backlog.
const OPEN_WITHIN: Duration = Duration::from_secs(120);
/// Limit for one query of the slot's state.
const LOOK_WITHIN: Duration = Duration::from_secs(10);
/// The interval between two of them grows from the first
/// to the second; a takeover takes mostly this long.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(10);
const LOOK_INTERVAL_MAX: Duration = Duration::from_millis(100);
/// Shortest time between two sessions.
const LET_GO_GAP: Duration = Duration::from_millis(500);

/// A replication connection that was opened while it was not known yet whether the slot is free.
type Early = Result<ReplicationClient, ConnectError>;

/// Why there is no session.
enum Failed {
    Fault(Fault),
    NotPrimary(Fault),
    /// The SQL connection and the stream are not of one server.
    TwoServers(Fault),
    Connect(ConnectError),
}

/// Opens one session for each request.
pub(super) async fn serve(
    settings: Arc<SourceSettings>,
    known: Arc<KnownPublication>,
    sightings: Arc<Sightings>,
    mut end: LinkEnd<SessionRequest, SessionNews>,
) {
    let mut opener = SessionOpener {
        settings: &settings,
        findings: SessionFindings::new(Arc::clone(&settings), known, sightings),
        news: end.answers.clone(),
        backoff: random::backoff(settings.reconnect_base, settings.reconnect_cap),
        grace_until: Some(Instant::now() + STARTUP_GRACE),
        shown: Phase::Connecting,
        text_only: false,
        not_before: Instant::now(),
        warned: Vec::new(),
        is_foreign_holder: false,
    };
    let mut opened_at: Option<Instant> = None;
    while let Some(SessionRequest { text_only, at_once, confirmed }) = end.requests.recv().await {
        let lasted = opened_at.map(|at| at.elapsed());
        let pause = pause(lasted, at_once, &mut opener.backoff).unwrap_or_default();
        (opener.shown, opener.text_only) = (Phase::Connecting, text_only);
        opener.not_before = Instant::now() + pause;
        opener.findings.requested(confirmed);
        let news = opener.open_patiently().await;
        if matches!(news, SessionNews::Opened(_)) {
            opener.grace_until = None;
            opened_at = Some(Instant::now());
        }
        if end.answers.send(news).is_err() {
            return;
        }
    }
}

/// How long to wait before the next session after one that `lasted` so long: sessions that break as
/// soon as they are open must not be opened in a tight loop.
fn pause(lasted: Option<Duration>, at_once: bool, backoff: &mut Backoff) -> Option<Duration> {
    if lasted? > STEADY_AFTER {
        backoff.succeeded();
        return None;
    }
    Some(if at_once { LET_GO_GAP.saturating_sub(lasted?) } else { backoff.next_delay() })
}

/// The phase in which a relay waits after an error that would end a start; none if the error ends it, too.
/// A login or a certificate that was accepted before is being replaced, and its file may not have the new
/// one yet: all files are read again for each connection.
fn awaited_phase(error: &ConnectError, was_accepted: bool, info: &ConnInfo) -> Option<Phase> {
    let phase = if error.is_refused_login() && info.login_files.are_used() {
        Phase::LoginRefused
    } else if error.is_of_tls() {
        Phase::Connecting
    } else {
        return None;
    };
    was_accepted.then_some(phase)
}

/// Makes attempts, and keeps what one learns for the next.
struct SessionOpener<'a> {
    settings: &'a SourceSettings,
    findings: SessionFindings,
    news: std_mpsc::SyncSender<SessionNews>,
    backoff: Backoff,
    /// Until then an unreachable database is a fault.
    grace_until: Option<Instant>,
    shown: Phase,
    text_only: bool,
    not_before: Instant,
    /// Warnings of the last preflight, which are not logged again.
    warned: Vec<String>,
    /// The last holder of the slot that this relay stood by for was no relay of the slot.
    is_foreign_holder: bool,
}

impl SessionOpener<'_> {
    async fn open_patiently(&mut self) -> SessionNews {
        loop {
            let began = Instant::now();
            let failed = match self.attempt().await {
                Ok(opened) => return SessionNews::Opened(Box::new(opened)),
                Err(failed) => failed,
            };
            // The attempt had a connection for that long, and stood by on it.
            if began.elapsed() > STEADY_AFTER {
                self.backoff.succeeded();
            }
            let (phase, fault) = match failed {
                Failed::Fault(fault) => return SessionNews::Failed(fault),
                Failed::NotPrimary(fault) => (Phase::AwaitingPrimary, fault),
                Failed::TwoServers(fault) => (Phase::Connecting, fault),
                Failed::Connect(error) => {
                    let SourceSettings { connection, slot, publication, .. } = self.settings;
                    let fault = error.fault(connection, slot, publication);
                    let was_accepted = self.grace_until.is_none();
                    match error.kind() {
                        ConnectErrorKind::Fatal => {
                            let awaited = awaited_phase(&error, was_accepted, connection);
                            let Some(phase) = awaited else { return SessionNews::Failed(fault) };
                            (phase, fault)
                        }
                        _ if error.is_wrong_role() => (Phase::AwaitingPrimary, fault),
                        _ => (Phase::Connecting, fault),
                    }
                }
            };
            if self.grace_until.is_some_and(|until| Instant::now() > until) {
                return SessionNews::Failed(fault);
            }
            let new = self.show(phase);
            let delay = self.backoff.next_delay();
            let (why, retry_in_ms) = (fault.what, delay.as_millis() as u64);
            if fault.code == TWO_SERVERS {
                tracing::warn!(code = TWO_SERVERS, retry_in_ms, "{why}");
                tokio::time::sleep(delay).await;
            } else if phase != Phase::AwaitingPrimary {
                tracing::warn!(code = "source.no-connection", error = %why, retry_in_ms, "no connection to postgres");
                tokio::time::sleep(delay).await;
            } else {
                if new {
                    tracing::warn!(code = "source.no-primary", error = %why, "waiting for a primary");
                }
                tokio::time::sleep(delay.min(PRIMARY_INTERVAL)).await;
            }
        }
    }

    /// Reports to the loop what the attempt waits for; true when that has changed.
    fn show(&mut self, phase: Phase) -> bool {
        let new = self.shown != phase;
        if new {
            self.shown = phase;
            let _reported = self.news.try_send(SessionNews::Waiting(phase)).is_ok();
        }
        new
    }

    async fn attempt(&mut self) -> Result<OpenedSession, Failed> {
        let info = &self.settings.connection;
        let at_once = self.not_before <= Instant::now();
        // Both connections are opened at the same time: that makes a takeover faster.
        let early = async { if at_once { Some(connect::open(info).await) } else { None } };
        let (sql, mut early) = tokio::join!(sql::connect(info), early);
        let server = Server::new(sql.map_err(Failed::Connect)?, &self.settings.slot).await?;
        self.findings.reconnected();
        loop {
            early = self.wait_until_free(&server, early).await?;
            let opening = timeout(OPEN_WITHIN, self.open(&server, early.take())).await;
            match opening.unwrap_or_else(|_| Err(Failed::Connect(server.sql.late(OPEN_WITHIN)))) {
                // Another process was faster.
                Err(Failed::Connect(error)) if error.kind() == ConnectErrorKind::Busy => {
                    self.not_before = Instant::now() + LOOK_INTERVAL_MAX;
                }
                outcome => return outcome,
            }
        }
    }

    /// Waits until nobody holds the slot. Returns `early` if that was so from the start.
    async fn wait_until_free(
        &mut self,
        server: &Server,
        early: Option<Early>,
    ) -> Result<Option<Early>, Failed> {
        let mut early = early;
        let mut interval = LOOK_INTERVAL_MIN;
        loop {
            let look = server.look().await?;
            let now = Instant::now();
            let slot = look.held(&server.sql.started);
            slot.iter().for_each(|slot| self.findings.look(slot, now));
            let free = look.holder.is_none() && !look.in_recovery && self.not_before <= now;
            if free && !self.findings.is_checked() {
                return Ok(early);
            }
            // An idle replication connection occupies one of max_wal_senders.
            early = None;
            if !self.findings.is_checked() {
                let mut report = server.inspect(self.settings).await?;
                self.check(&mut report)?;
            }
            if free {
                return Ok(None);
            }
            if let Some(holder) = slot.as_ref().and_then(|slot| self.findings.other_holder(slot)) {
                // Once another process has had the slot, this relay's last session is no longer a
                // reason to wait.
                self.not_before = self.not_before.min(Instant::now() + LET_GO_GAP);
                self.stand_by(holder);
            }
            tokio::time::sleep(interval).await;
            interval = (interval * 2).min(LOOK_INTERVAL_MAX);
        }
    }

    fn stand_by(&mut self, holder: &SlotHolder) {
        // What this process waits for was in order when the other was seen to hold the slot.
        self.grace_until = None;
        // Without a name it may be a walsender that begins or ends.
        let is_foreign = !holder.peer && !holder.application.is_empty();
        let was_foreign = std::mem::replace(&mut self.is_foreign_holder, is_foreign);
        if !self.show(Phase::Standby) && is_foreign == was_foreign {
            return;
        }
        let (slot, SlotHolder { pid, application, .. }) = (&self.settings.slot, holder);
        if is_foreign {
            tracing::warn!(
                code = "slot.foreign-holder",
                slot,
                pid,
                application,
                "a session with another role or application_name has the slot: standing by"
            );
        } else {
            tracing::info!(slot, pid, "the slot is in use: standing by");
        }
    }

    async fn open(
        &mut self,
        server: &Server,
        early: Option<Early>,
    ) -> Result<OpenedSession, Failed> {
        let settings = self.settings;
        let start = StartReplication::of(settings, !self.text_only);
        // Both run at the same time. A stream that is dropped unread has confirmed nothing.
        let sql_started = server.sql.started.clone();
        let streaming = async {
            let control = match early {
                Some(control) => control,
                None => connect::open(&settings.connection).await,
            };
            let control = control.map_err(Failed::Connect)?;
            if *control.started() != sql_started {
                let (sql, stream) = (&server.sql.server, Some(control.host()));
                return Err(Failed::TwoServers(two_servers(settings, sql, stream)));
            }
            let heard_at = Instant::now();
            let session = control.start(&start).await.map_err(Failed::Connect)?;
            Ok((session, heard_at))
        };
        let (report, session) = tokio::join!(server.inspect(settings), streaming);
        let mut report = report?;
        // The preflight explains a problem better than the error that START_REPLICATION met.
        self.check(&mut report)?;
        let server_facts = &report.facts.server;
        let (session, heard_at) = session?;
        // Read only now: before the stream held the slot, somebody could still have moved it.
        let opened_at = Instant::now();
        let look = server.look().await?;
        let (slot, pid) = (look.held(&server.sql.started).unwrap_or_default(), session.backend_pid);
        let holds = slot.holder.as_ref().is_some_and(|it| it.pid == pid);
        // The walsender may have ended at once, for a reason that the stream has yet to say.
        let has_ended = slot.holder.is_none();
        let (system_id, timeline) = (session.system_id.clone(), session.timeline);
        if !(holds || has_ended)
            || (&system_id, timeline) != (&server_facts.system_id, server_facts.timeline)
        {
            let (sql, stream) = (&server.sql.server, Some(&session.host));
            return Err(Failed::TwoServers(two_servers(settings, sql, stream)));
        }
        let walsender = Walsender { host: session.host, server: session.started, pid };
        self.findings.opened(walsender.clone(), &slot, Instant::now());
        let place = SystemTimeline { system_id, timeline };
        let catalog = catalog::read(&server.sql.client, settings).await;
        let catalog = catalog.map_err(|error| Failed::Connect(server.sql.error(&error)))?;
        let lost = |error: std::io::Error| {
            Failed::Connect(ConnectError::new(&walsender.host, ConnectCause::Io(error.to_string())))
        };
        let wire = wire::of(session.transport).map_err(lost)?;
        // From here on nothing fails: what was seen of the slot and of the publication goes with the session.
        let (seen, in_doubt) = self.findings.take(&place);
        Ok(OpenedSession {
            wire,
            walsender,
            place,
            slot_confirmed: slot.confirmed_flush,
            looked_unix_us: slot.at_unix_us,
            wal_end: look.current_lsn,
            seen,
            in_doubt,
            wal_sender_timeout: session.wal_sender_timeout,
            catalog,
            heard_at,
            opened_at,
        })
    }

    /// A table may lose a column that events can do without while a relay runs: only a start refuses that,
    /// and a running relay warns of it.
    fn pass_over_optional_columns(&self, report: &mut SourceReport) {
        if self.grace_until.is_some() {
            return;
        }
        let tables = report.facts.published.tables.iter().zip(&self.settings.outboxes);
        let absent: Vec<Fault> =
            tables.flat_map(|(table, outbox)| tables::absent_named(table, outbox)).collect();
        pass_over(&mut report.findings, &absent);
    }

    /// Logs the warnings of a preflight that are new, and returns its first fault.
    fn check(&mut self, report: &mut SourceReport) -> Result<(), Failed> {
        self.pass_over_optional_columns(report);
        let warnings = report.findings.iter().filter(|finding| finding.is_warning());
        for finding in warnings.clone().filter(|finding| !self.warned.contains(&finding.text)) {
            tracing::warn!(target: FINDINGS, code = finding.topic, "{}", finding.text);
        }
        self.warned = warnings.map(|finding| finding.text.clone()).collect();
        // Whatever else is wrong on a standby may be right on the primary.
        if let Some(fault) = faults(&report.findings).find(|fault| fault.code == "source.standby") {
            return Err(Failed::NotPrimary(fault.clone()));
        }
        let fault = report.first_fault();
        // What is wrong with server or slot comes first; the publication may also have held back rows.
        if fault.is_none_or(|fault| fault.exit == Exit::Source) {
            self.compare(report, fault.is_none()).map_err(Failed::Fault)?;
        }
        if let Some(fault) = fault {
            return Err(Failed::Fault(fault.clone()));
        }
        let facts = &report.facts.server;
        let (system_id, timeline) = (facts.system_id.clone(), facts.timeline);
        self.findings.checked(SystemTimeline { system_id, timeline });
        Ok(())
    }

    fn compare(&mut self, report: &SourceReport, is_sound: bool) -> Result<(), Fault> {
        let (facts, settings) = (&report.facts, self.settings);
        let (system_id, wal_end) = (facts.server.system_id.clone(), facts.server.current_lsn);
        let look = PublicationLook { system_id, wal_end, found: fingerprint(facts) };
        let confirmed = facts.slot.as_ref().map_or(Lsn::ZERO, |slot| slot.confirmed_flush);
        let doubt = |decoded| publication_age::in_doubt(settings, facts, decoded);
        self.findings.compare(look, is_sound, confirmed, doubt)
    }
}

/// Makes warnings of those findings that are these faults.
fn pass_over(findings: &mut [Finding], faults: &[Fault]) {
    for finding in findings {
        if let Some(fault) = finding.fault.take_if(|fault| faults.contains(fault)) {
            let text = format!(
                "events are published without a column that is configured: {} (docs/postgres.md, \"Renaming a column\")",
                fault.what
            );
            *finding = Finding::warn("outbox.column-gone", text);
        }
    }
}

/// The SQL connection of one attempt.
struct Server {
    sql: Sql,
    query: SlotQuery,
}

impl Server {
    async fn new(sql: Sql, slot: &str) -> Result<Server, Failed> {
        let prepared = sql.within(LOOK_WITHIN, SlotQuery::prepare(&sql.client, slot)).await;
        let query = prepared.map_err(Failed::Connect)?;
        Ok(Server { sql, query })
    }

    async fn look(&self) -> Result<SlotState, Failed> {
        let look = self.sql.within(LOOK_WITHIN, self.query.run(&self.sql.client)).await;
        look.map_err(Failed::Connect)
    }

    async fn inspect(&self, settings: &SourceSettings) -> Result<SourceReport, Failed> {
        let look = source_doctor::inspect(&self.sql.client, settings);
        let mut report = self.sql.within(OPEN_WITHIN, look).await.map_err(Failed::Connect)?;
        // The replication login shows whether a WAL sender is free. The count may include this
        // attempt's own connection, or that of the last session, which is about to end.
        report.findings.retain(|finding| finding.topic != WAL_SENDERS);
        Ok(report)
    }
}

#[cfg(test)]
#[path = "sessions_tests.rs"]
mod tests;
