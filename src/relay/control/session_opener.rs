//! One attempt at a session: connect, see who holds the slot, run the preflight checks, start to
//! stream.
//!
//! While another process holds the slot, or the server is in recovery, the attempt waits on one SQL
//! connection: a START_REPLICATION that fails would write a line to the server's log each time.

use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::slot_history::{Mover, PeerProgress, SlotHistory, SystemTimeline};
use crate::base::error::Fault;
use crate::base::finding::faults;
use crate::base::lsn::Lsn;
use crate::doctor::fingerprint::{KnownPublication, PublicationFingerprint};
use crate::doctor::server::WAL_SENDERS;
use crate::doctor::source::{self as source_doctor, SourceReport};
use crate::health::Phase;
use crate::source::catalog::{self, Catalog};
use crate::source::connect::{
    self, ConnectError, ConnectErrorKind, ReplicationClient, ReplicationSession, StartReplication,
};
use crate::source::settings::SourceSettings;
use crate::source::slot_state::{SlotHolder, SlotQuery, SlotState};
use crate::source::sql::{self, Sql};

/// Limit from a free slot to a session; decoding may start late behind a long backlog.
const OPEN_WITHIN: Duration = Duration::from_secs(120);
/// Limit for one query of the slot's state.
const LOOK_WITHIN: Duration = Duration::from_secs(10);
/// The interval between two of them grows from the first to the second; a takeover takes mostly this
/// long.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(10);
const LOOK_INTERVAL_MAX: Duration = Duration::from_millis(100);
/// Shortest time between two sessions.
pub(super) const LET_GO_GAP: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub enum SessionNews {
    Opened(Box<OpenedSession>),
    /// What the attempt waits for.
    Waiting(Phase),
    /// Another attempt would fail in the same way.
    Failed(Fault),
}

/// A session, and what was read once it held the slot.
#[derive(Debug)]
pub struct OpenedSession {
    pub session: ReplicationSession,
    /// Read after the stream had started, because nobody else can move the slot from then on.
    pub slot_confirmed: Lsn,
    /// What other relays confirmed since the last session.
    pub peers: Option<PeerProgress>,
    /// Who moved the slot beyond that, if it was moved.
    pub mover: Mover,
    pub wal_sender_timeout: Option<Duration>,
    pub catalog: Catalog,
}

/// A replication connection that was opened while it was not known yet whether the slot is free.
type Early = Result<ReplicationClient, ConnectError>;

/// Why there is no session.
pub(super) enum Failed {
    Fault(Fault),
    NotPrimary(Fault),
    Connect(ConnectError),
}

/// Makes attempts, and keeps what one learns for the next.
pub(super) struct SessionOpener<'a> {
    pub(super) settings: &'a SourceSettings,
    known: &'a KnownPublication,
    news: std_mpsc::SyncSender<SessionNews>,
    shown: Phase,
    text_only: bool,
    not_before: Instant,
    history: SlotHistory,
    /// Warnings of the last preflight, which are not logged again.
    warned: Vec<String>,
    /// Another process was seen to hold the slot, so the configuration was correct at that time.
    pub(super) has_stood_by: bool,
}

impl<'a> SessionOpener<'a> {
    pub(super) fn new(
        settings: &'a SourceSettings,
        known: &'a KnownPublication,
        news: std_mpsc::SyncSender<SessionNews>,
    ) -> SessionOpener<'a> {
        SessionOpener {
            settings,
            known,
            news,
            shown: Phase::Connecting,
            text_only: false,
            not_before: Instant::now(),
            history: SlotHistory::default(),
            warned: Vec::new(),
            has_stood_by: false,
        }
    }

    /// A session is requested; it may open once `pause` has passed.
    pub(super) fn begins(&mut self, text_only: bool, confirmed: Lsn, pause: Duration) {
        self.shown = Phase::Connecting;
        self.text_only = text_only;
        self.not_before = Instant::now() + pause;
        self.history.begins(confirmed);
    }

    /// Reports to the loop what the attempt waits for; true when that has changed.
    pub(super) fn show(&mut self, phase: Phase) -> bool {
        let new = self.shown != phase;
        if new {
            self.shown = phase;
            let _reported = self.news.try_send(SessionNews::Waiting(phase)).is_ok();
        }
        new
    }

    pub(super) async fn attempt(&mut self) -> Result<OpenedSession, Failed> {
        let info = &self.settings.connection;
        let at_once = self.not_before <= Instant::now();
        // Both connections are opened at the same time: that makes a takeover faster.
        let early = async { if at_once { Some(connect::open(info).await) } else { None } };
        let (sql, mut early) = tokio::join!(sql::connect(info), early);
        let mut server = Server::new(sql.map_err(Failed::Connect)?, &self.settings.slot).await?;
        loop {
            early = self.wait_until_free(&mut server, early).await?;
            let opening = timeout(OPEN_WITHIN, self.open(&mut server, early.take())).await;
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
        server: &mut Server,
        early: Option<Early>,
    ) -> Result<Option<Early>, Failed> {
        let mut early = early;
        let mut interval = LOOK_INTERVAL_MIN;
        loop {
            let look = server.look().await?;
            let holder = look.holder.as_ref();
            let free = holder.is_none() && !look.in_recovery && self.not_before <= Instant::now();
            if free && !server.checked {
                return Ok(early);
            }
            // An idle replication connection occupies one of max_wal_senders.
            early = None;
            if !server.checked {
                let report = server.inspect(self.settings).await?;
                self.check(server, &report)?;
            }
            if let Some(slot) = look.held() {
                self.history.look(&slot, Instant::now());
            }
            if free {
                return Ok(None);
            }
            if let Some(holder) = holder.filter(|holder| !self.history.is_own(holder.pid)) {
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
        self.has_stood_by = true;
        if self.show(Phase::Standby) {
            let (slot, SlotHolder { pid, application, .. }) = (&self.settings.slot, holder);
            tracing::info!(slot, pid, application, "the slot is in use: standing by");
        }
    }

    async fn open(
        &mut self,
        server: &mut Server,
        early: Option<Early>,
    ) -> Result<OpenedSession, Failed> {
        let settings = self.settings;
        let start = StartReplication {
            slot: settings.slot.clone(),
            publication: settings.publication.clone(),
            messages: settings.messages.is_some(),
            binary: !self.text_only,
        };
        // Both run at the same time. A stream that is dropped unread has confirmed nothing.
        let streaming = async {
            let control = match early {
                Some(control) => control,
                None => connect::open(&settings.connection).await,
            };
            control?.start(&start).await
        };
        let (report, session) = tokio::join!(server.inspect(settings), streaming);
        let report = report?;
        // The preflight explains a problem better than the error that START_REPLICATION met.
        self.check(server, &report)?;
        let publication = PublicationFingerprint::of(&report.facts);
        let server_facts = &report.facts.server;
        if let Some(fault) = self.known.compare(&server_facts.system_id, publication, settings) {
            return Err(Failed::Fault(fault));
        }
        let session = session.map_err(Failed::Connect)?;
        // Read only now: before the stream held the slot, somebody could still have moved it.
        let slot = server.look().await?.held().unwrap_or_default();
        self.history.opened(session.backend_pid);
        self.history.look(&slot, Instant::now());
        let place =
            SystemTimeline { system_id: session.system_id.clone(), timeline: session.timeline };
        let (peers, mover) = self.history.ends(&place);
        let catalog = catalog::read(&server.sql.client, settings).await;
        Ok(OpenedSession {
            session,
            slot_confirmed: slot.confirmed_flush,
            peers,
            mover,
            wal_sender_timeout: server_facts.wal_sender_timeout(),
            catalog: catalog.map_err(|error| Failed::Connect(server.sql.error(&error)))?,
        })
    }

    /// Logs the warnings of a preflight that are new, and returns its first fault.
    fn check(&mut self, server: &mut Server, report: &SourceReport) -> Result<(), Failed> {
        let warnings = report.findings.iter().filter(|finding| finding.is_warning());
        for finding in warnings.clone().filter(|finding| !self.warned.contains(&finding.text)) {
            tracing::warn!(check = finding.topic, "{}", finding.text);
        }
        self.warned = warnings.map(|finding| finding.text.clone()).collect();
        // Whatever else is wrong on a standby may be right on the primary.
        if let Some(fault) = faults(&report.findings).find(|fault| fault.code == "source.standby") {
            return Err(Failed::NotPrimary(fault.clone()));
        }
        if let Some(fault) = report.first_fault() {
            return Err(Failed::Fault(fault.clone()));
        }
        if !std::mem::replace(&mut server.checked, true) {
            let facts = &report.facts.server;
            let (system_id, timeline) = (facts.system_id.clone(), facts.timeline);
            self.history.connected(SystemTimeline { system_id, timeline });
        }
        Ok(())
    }
}

/// The SQL connection of one attempt.
struct Server {
    sql: Sql,
    query: SlotQuery,
    /// Its preflight found no fault.
    checked: bool,
}

impl Server {
    async fn new(sql: Sql, slot: &str) -> Result<Server, Failed> {
        let prepared = sql.within(LOOK_WITHIN, SlotQuery::prepare(&sql.client, slot)).await;
        let query = prepared.map_err(Failed::Connect)?;
        Ok(Server { sql, query, checked: false })
    }

    async fn look(&self) -> Result<SlotState, Failed> {
        let look = self.sql.within(LOOK_WITHIN, self.query.look(&self.sql.client)).await;
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
