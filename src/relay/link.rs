//! Where sessions come from: the loop asks, the connector opens one and hands it over.
//!
//! Connecting needs name resolution, TLS, authentication and a look at the catalog, none of which
//! the data thread may wait for. It happens on the control runtime; what crosses over is one
//! request and one answer at a time.

use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::backoff::Backoff;
use crate::error::Fault;
use crate::lsn::Lsn;
use crate::source::connect::{self, ConnectError, Kind, Session, StartReplication};
use crate::source::settings::SourceSettings;
use crate::source::{preflight, sql, table, watch};

/// A process that has just started gives up on an unreachable database after this long, so that a
/// wrong address is told and not retried for ever. A relay that has streamed never gives up.
const STARTUP_GRACE: Duration = Duration::from_secs(10);
/// A session that lived this long was no flash in the pan: waits begin small again.
const STEADY_AFTER: Duration = Duration::from_secs(10);
/// From one session to the next, whatever the reason.
const LET_GO_GAP: Duration = Duration::from_millis(500);
/// Longest way to a session; starting to decode may take a while behind a long backlog.
const OPEN_WITHIN: Duration = Duration::from_secs(120);
/// How often a standby looks whether the slot is free.
const STANDBY_INTERVAL: Duration = Duration::from_millis(500);

/// The loop's end.
#[derive(Debug)]
pub struct Link {
    requests: mpsc::Sender<Request>,
    news: std_mpsc::Receiver<LinkNews>,
}

/// The connector's end.
#[derive(Debug)]
pub struct Connector {
    requests: mpsc::Receiver<Request>,
    news: std_mpsc::SyncSender<LinkNews>,
}

#[derive(Debug)]
struct Request {
    text_only: bool,
    at_once: bool,
}

/// What the connector has to tell.
#[derive(Debug)]
pub enum LinkNews {
    /// A session, streaming.
    Opened(Box<Opened>),
    /// Another process streams from the slot.
    Standby,
    /// There will be no session.
    Fatal(Fault),
}

/// A session and what was read about it once it held the slot.
#[derive(Debug)]
pub struct Opened {
    /// The connection, in copy mode.
    pub session: Session,
    /// Where the slot stood after the stream had started: nobody can move it any more.
    pub slot_confirmed: Lsn,
    /// How long the server waits for a sign of life.
    pub wal_sender_timeout: Option<Duration>,
    /// What the catalog says of tables.
    pub catalog: Catalog,
}

/// Tables that the stream may describe.
#[derive(Debug, Default)]
pub struct Catalog {
    /// Everything in the publication by schema and name, outbox or not.
    pub published: Vec<(String, String)>,
    /// Partitions of outboxes by schema and name, with the place of their root in the settings.
    pub partitions: Vec<(String, String, usize)>,
}

/// Two ends of a new link.
#[must_use]
pub fn pair() -> (Link, Connector) {
    let (request_sender, requests) = mpsc::channel(1);
    let (news_sender, news) = std_mpsc::sync_channel(4);
    (Link { requests: request_sender, news }, Connector { requests, news: news_sender })
}

impl Link {
    /// Asks for a session. One request at a time.
    ///
    /// `at_once` when the relay has ended the last one itself, with waits of its own between two.
    pub fn ask(&self, text_only: bool, at_once: bool) {
        // A full channel means that a request is waiting already, a closed one that all is over.
        let _already_asked = self.requests.try_send(Request { text_only, at_once }).is_err();
    }

    /// What has come, if anything.
    #[must_use]
    pub fn news(&self) -> Option<LinkNews> {
        self.news.try_recv().ok()
    }
}

enum Failed {
    Fault(Fault),
    Connect(ConnectError),
}

/// Opens sessions as long as somebody asks. Dropping the future between two requests loses nothing.
pub async fn serve(settings: &SourceSettings, mut connector: Connector) {
    let mut grace_until = Some(Instant::now() + STARTUP_GRACE);
    let mut backoff = Backoff::new(settings.reconnect_base, settings.reconnect_cap);
    let mut opened_at: Option<Instant> = None;
    while let Some(Request { text_only, at_once }) = connector.requests.recv().await {
        let lasted = opened_at.map(|at| at.elapsed());
        if let Some(pause) = pause(lasted, at_once, &mut backoff) {
            tokio::time::sleep(pause).await;
        }
        let news =
            open_patiently(settings, text_only, grace_until, &mut backoff, &connector.news).await;
        if matches!(news, LinkNews::Opened(_)) {
            grace_until = None;
            opened_at = Some(Instant::now());
        }
        if connector.news.send(news).is_err() {
            return;
        }
    }
}

/// How long to wait before the next session when the last one has lasted for so long. One that
/// breaks as soon as it is open must not be asked for in circles.
fn pause(lasted: Option<Duration>, at_once: bool, backoff: &mut Backoff) -> Option<Duration> {
    if lasted? > STEADY_AFTER {
        backoff.succeeded();
        return None;
    }
    Some(if at_once { LET_GO_GAP.saturating_sub(lasted?) } else { backoff.next_delay() })
}

async fn open_patiently(
    settings: &SourceSettings,
    text_only: bool,
    grace_until: Option<Instant>,
    backoff: &mut Backoff,
    news: &std_mpsc::SyncSender<LinkNews>,
) -> LinkNews {
    let mut standby = false;
    loop {
        let opening = tokio::time::timeout(OPEN_WITHIN, open(settings, text_only)).await;
        let late = || {
            let at = settings.connection.hosts.first().map_or("", |host| host.name.as_str());
            Err(Failed::Connect(ConnectError::Timeout { at: at.to_owned(), after: OPEN_WITHIN }))
        };
        let error = match opening.unwrap_or_else(|_| late()) {
            Ok(opened) => return LinkNews::Opened(Box::new(opened)),
            Err(Failed::Fault(fault)) => return LinkNews::Fatal(fault),
            Err(Failed::Connect(error)) => error,
        };
        match error.kind() {
            Kind::Fatal => {
                return LinkNews::Fatal(error.fault(
                    &settings.connection,
                    &settings.slot,
                    &settings.publication,
                ));
            }
            Kind::Busy => {
                if !std::mem::replace(&mut standby, true) {
                    tracing::info!(slot = settings.slot, error = %error, "the slot is in use: standing by");
                    let _told = news.try_send(LinkNews::Standby).is_ok();
                }
                tokio::time::sleep(backoff.next_delay().min(STANDBY_INTERVAL)).await;
            }
            Kind::Retry | Kind::Stopping => {
                if grace_until.is_some_and(|until| Instant::now() > until) {
                    return LinkNews::Fatal(error.fault(
                        &settings.connection,
                        &settings.slot,
                        &settings.publication,
                    ));
                }
                let delay = backoff.next_delay();
                tracing::warn!(error = %error, retry_in_ms = delay.as_millis() as u64, "no connection to postgres");
                tokio::time::sleep(delay).await;
            }
        }
    }
}

async fn open(settings: &SourceSettings, text_only: bool) -> Result<Opened, Failed> {
    let info = &settings.connection;
    let (sql, control) = tokio::join!(sql::connect(info), connect::open(info));
    let sql = sql.map_err(Failed::Connect)?;
    let told = |error| Failed::Connect(ConnectError::of_query(&sql.server, &error));
    let start = StartReplication {
        slot: settings.slot.clone(),
        publication: settings.publication.clone(),
        messages: settings.messages.is_some(),
        binary: !text_only,
    };
    // At once, because each takes its time. A stream that is dropped unread has moved nothing.
    let streaming = async { control?.start(&start).await };
    let (report, session) = tokio::join!(preflight::inspect(&sql.client, settings), streaming);
    let mut report = report.map_err(told)?;
    // Whether a WAL sender is free, the login has shown. The count may hold ours, which has none of
    // the slot yet, or the one of our last session, which is about to end.
    report.findings.retain(|finding| finding.topic != preflight::WAL_SENDERS);
    for finding in report.findings.iter().filter(|finding| finding.level == preflight::Level::Warn)
    {
        tracing::warn!(check = finding.topic, "{}", finding.text);
    }
    // What the preflight says is told better than what the stream failed with because of it.
    if let Some(fault) = report.first_fault() {
        return Err(Failed::Fault(fault.clone()));
    }
    let session = session.map_err(Failed::Connect)?;
    // Asked only now that the stream holds the slot: before, somebody could still have moved it.
    let slot = watch::sample(&sql.client, &settings.slot).await.map_err(told)?;
    let partitions = table::partitions(&sql.client, settings).await.map_err(told)?;
    Ok(Opened {
        session,
        slot_confirmed: slot.map_or(Lsn::ZERO, |slot| slot.confirmed_flush),
        wal_sender_timeout: report.facts.wal_sender_timeout,
        catalog: Catalog { published: report.facts.tables_published, partitions },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_session_that_broke_soon_and_by_itself_is_waited_for() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        let soon = Some(Duration::from_secs(1));
        assert_eq!(pause(None, false, &mut backoff), None);
        assert!(pause(soon, false, &mut backoff).is_some());
        // WHEN the relay ends one after the other itself THEN that is no reason to wait
        for _ in 0..10 {
            assert_eq!(pause(soon, true, &mut backoff), Some(Duration::ZERO));
        }
        let waits = pause(Some(LET_GO_GAP / 5), true, &mut backoff);
        assert_eq!(waits, Some(LET_GO_GAP * 4 / 5), "in circles all the same");
        assert_eq!(pause(Some(STEADY_AFTER * 2), false, &mut backoff), None);
    }
}
