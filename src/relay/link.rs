//! Where sessions come from: the loop asks, the connector opens one and hands it over.
//!
//! Connecting needs name resolution, TLS, authentication and a look at the catalog, none of which
//! the data thread may wait for. It happens on the control runtime; what crosses over is one
//! request and one answer at a time.

use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::delivery::backoff::Backoff;
use crate::error::Fault;
use crate::lsn::Lsn;
use crate::source::connect::{self, ConnectError, Kind, Session, StartReplication};
use crate::source::settings::SourceSettings;
use crate::source::{facts, preflight, sql};

/// A process that has just started gives up on an unreachable database after this long, so that a
/// wrong address is told and not retried for ever. A relay that has streamed never gives up.
const STARTUP_GRACE: Duration = Duration::from_secs(10);
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
    /// Everything in the publication, outbox or not.
    pub tables_published: Vec<(String, String)>,
}

/// Two ends of a new link.
#[must_use]
pub fn pair() -> (Link, Connector) {
    let (request_sender, requests) = mpsc::channel(1);
    let (news_sender, news) = std_mpsc::sync_channel(4);
    (
        Link { requests: request_sender, news },
        Connector { requests, news: news_sender },
    )
}

impl Link {
    /// Asks for a session. One request at a time.
    pub fn ask(&self, text_only: bool) {
        // A full channel means that a request is waiting already, a closed one that all is over.
        let _already_asked = self.requests.try_send(Request { text_only }).is_err();
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
    while let Some(Request { text_only }) = connector.requests.recv().await {
        let news = open_patiently(settings, text_only, grace_until, &connector.news).await;
        if matches!(news, LinkNews::Opened(_)) {
            grace_until = None;
        }
        if connector.news.send(news).is_err() {
            return;
        }
    }
}

async fn open_patiently(
    settings: &SourceSettings,
    text_only: bool,
    grace_until: Option<Instant>,
    news: &std_mpsc::SyncSender<LinkNews>,
) -> LinkNews {
    let mut backoff = Backoff::new(settings.reconnect_base, settings.reconnect_cap);
    let mut standby = false;
    loop {
        let error = match open(settings, text_only).await {
            Ok(opened) => return LinkNews::Opened(Box::new(opened)),
            Err(Failed::Fault(fault)) => return LinkNews::Fatal(fault),
            Err(Failed::Connect(error)) => error,
        };
        match error.kind() {
            Kind::Fatal => return LinkNews::Fatal(error.fault(&settings.connection, &settings.slot, &settings.publication)),
            Kind::Busy => {
                if !std::mem::replace(&mut standby, true) {
                    tracing::info!(slot = settings.slot, error = %error, "the slot is in use: standing by");
                    let _told = news.try_send(LinkNews::Standby).is_ok();
                }
                tokio::time::sleep(backoff.next_delay().min(STANDBY_INTERVAL)).await;
            }
            Kind::Retry | Kind::Stopping => {
                if grace_until.is_some_and(|until| Instant::now() > until) {
                    return LinkNews::Fatal(error.fault(&settings.connection, &settings.slot, &settings.publication));
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
    let report = preflight::inspect(&sql.client, settings)
        .await
        .map_err(|error| Failed::Connect(ConnectError::of_query(&sql.server, &error)))?;
    for finding in report.findings.iter().filter(|finding| finding.level == preflight::Level::Warn) {
        tracing::warn!(check = finding.topic, "{}", finding.text);
    }
    if let Some(fault) = report.first_fault() {
        return Err(Failed::Fault(fault.clone()));
    }
    let start = StartReplication {
        slot: settings.slot.clone(),
        publication: settings.publication.clone(),
        messages: settings.messages.is_some(),
        binary: !text_only,
    };
    let session = control.map_err(Failed::Connect)?.start(&start).await.map_err(Failed::Connect)?;
    // Asked only now that the stream holds the slot: before, somebody could still have moved it.
    // A connection that breaks here is one more to retry, like any before it.
    let slot_confirmed = facts::slot(&sql.client, &settings.slot)
        .await
        .map_err(|error| Failed::Connect(ConnectError::of_query(&sql.server, &error)))?
        .map_or(Lsn::ZERO, |slot| slot.confirmed_flush);
    Ok(Opened {
        session,
        slot_confirmed,
        wal_sender_timeout: report.facts.wal_sender_timeout,
        tables_published: report.facts.tables_published,
    })
}
