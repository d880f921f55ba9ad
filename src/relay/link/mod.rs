//! Where sessions come from: the loop asks, the connector opens one and hands it over.
//!
//! Connecting needs name resolution, TLS, authentication and a look at the catalog, none of which
//! the data thread may wait for. It happens on the control runtime; what crosses over is one
//! request and one answer at a time.
//!
//! While another process holds the slot, nothing is tried: [`session_opener`] looks who holds it, over SQL,
//! and opens a session when it is free. So a standby is quiet, and knows what its peer confirmed.

mod history;
mod session_opener;

use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

pub use self::history::{Mover, PeerProgress};
use self::session_opener::{Failed, SessionOpener};
use crate::base::backoff::Backoff;
use crate::base::error::Fault;
use crate::base::lsn::Lsn;
use crate::health::Phase;
use crate::source::catalog::Catalog;
use crate::source::connect::{Kind, Session};
use crate::source::publication::KnownPublication;
use crate::source::settings::SourceSettings;

/// A process that has just started gives up on an unreachable database after this long, so that a
/// wrong address is told and not retried for ever. A relay that has streamed, or has stood by for
/// another one, never gives up.
const STARTUP_GRACE: Duration = Duration::from_secs(10);
/// A session that lived this long was no flash in the pan: waits begin small again.
const STEADY_AFTER: Duration = Duration::from_secs(10);
/// From one session to the next, whatever the reason.
const LET_GO_GAP: Duration = Duration::from_millis(500);
/// Longest wait before the next look for a primary: a promotion is over in a moment.
const PRIMARY_INTERVAL: Duration = Duration::from_secs(1);

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
    /// What the relay knows to be confirmed.
    confirmed: Lsn,
}

/// What the connector has to tell.
#[derive(Debug)]
pub enum LinkNews {
    /// A session, streaming.
    Opened(Box<Opened>),
    /// What the connector waits for.
    Phase(Phase),
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
    /// What peers confirmed since the last session.
    pub peers: Option<PeerProgress>,
    /// Who moved the slot beyond that, if anybody did.
    pub mover: Mover,
    /// How long the server waits for a sign of life.
    pub wal_sender_timeout: Option<Duration>,
    /// What the catalog says of tables.
    pub catalog: Catalog,
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
    /// Everything before `confirmed` is known to be confirmed.
    pub fn ask(&self, text_only: bool, at_once: bool, confirmed: Lsn) {
        let request = Request { text_only, at_once, confirmed };
        // A full channel means that a request is waiting already, a closed one that all is over.
        let _already_asked = self.requests.try_send(request).is_err();
    }

    /// No session is wanted any more: the connector gives up.
    pub fn hang_up(&mut self) {
        *self = pair().0;
    }

    /// What has come, if anything.
    #[must_use]
    pub fn news(&self) -> Option<LinkNews> {
        self.news.try_recv().ok()
    }
}

/// Opens sessions as long as somebody asks. Dropping the future between two requests loses nothing.
pub async fn serve(settings: &SourceSettings, known: &KnownPublication, mut connector: Connector) {
    let mut grace_until = Some(Instant::now() + STARTUP_GRACE);
    let mut backoff = Backoff::new(settings.reconnect_base, settings.reconnect_cap);
    let mut opened_at: Option<Instant> = None;
    let mut opening = SessionOpener::new(settings, known, connector.news.clone());
    while let Some(Request { text_only, at_once, confirmed }) = connector.requests.recv().await {
        let lasted = opened_at.map(|at| at.elapsed());
        let pause = pause(lasted, at_once, &mut backoff);
        opening.begins(text_only, confirmed, pause.unwrap_or_default());
        // There is one request at a time, so that what comes meanwhile is the loop's end.
        let news = tokio::select! {
            news = open_patiently(&mut opening, grace_until, &mut backoff) => news,
            _ = connector.requests.recv() => return,
        };
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
    opening: &mut SessionOpener<'_>,
    grace_until: Option<Instant>,
    backoff: &mut Backoff,
) -> LinkNews {
    loop {
        let began = Instant::now();
        let failed = match opening.attempt().await {
            Ok(opened) => return LinkNews::Opened(Box::new(opened)),
            Err(failed) => failed,
        };
        // A standby had a connection for so long.
        if began.elapsed() > STEADY_AFTER {
            backoff.succeeded();
        }
        let (phase, fault, why) = match failed {
            Failed::Fault(fault) => return LinkNews::Fatal(fault),
            Failed::NotPrimary(fault) => (Phase::AwaitingPrimary, fault.clone(), fault.what),
            Failed::Connect(error) => {
                let settings = opening.settings;
                let (slot, publication) = (&settings.slot, &settings.publication);
                let fault = error.fault(&settings.connection, slot, publication);
                match error.kind() {
                    Kind::Fatal => return LinkNews::Fatal(fault),
                    _ if error.is_unfit() => (Phase::AwaitingPrimary, fault, error.to_string()),
                    _ => (Phase::Connecting, fault, error.to_string()),
                }
            }
        };
        let grace_until = grace_until.filter(|_| !opening.has_stood_by);
        if grace_until.is_some_and(|until| Instant::now() > until) {
            return LinkNews::Fatal(fault);
        }
        let new = opening.show(phase);
        let delay = backoff.next_delay();
        let retry_in_ms = delay.as_millis() as u64;
        if phase == Phase::Connecting {
            tracing::warn!(error = why, retry_in_ms, "no connection to postgres");
            tokio::time::sleep(delay).await;
        } else {
            if new {
                tracing::warn!(error = why, "waiting for a primary");
            }
            tokio::time::sleep(delay.min(PRIMARY_INTERVAL)).await;
        }
    }
}

#[cfg(test)]
mod tests;
