//! Opens sessions when the loop asks for one, and waits patiently where waiting helps.

use std::time::{Duration, Instant};

use super::link::LinkEnd;
use super::session_opener::{Failed, LET_GO_GAP, SessionNews, SessionOpener};
use crate::base::backoff::Backoff;
use crate::base::lsn::Lsn;
use crate::doctor::fingerprint::KnownPublication;
use crate::health::Phase;
use crate::source::connect::ConnectErrorKind;
use crate::source::settings::SourceSettings;

/// A process that has just started gives up on an unreachable database after this long, so that a
/// wrong address is told and not retried for ever. A relay that has streamed, or has stood by for
/// another one, never gives up.
const STARTUP_GRACE: Duration = Duration::from_secs(10);
/// A session that lived this long was no flash in the pan: waits begin small again.
const STEADY_AFTER: Duration = Duration::from_secs(10);
/// Longest wait before the next look for a primary: a promotion is over in a moment.
const PRIMARY_INTERVAL: Duration = Duration::from_secs(1);

/// A session is wanted.
#[derive(Debug)]
pub struct SessionRequest {
    /// Columns are wanted in text form.
    pub text_only: bool,
    /// The relay has ended the last one itself, with waits of its own between two.
    pub at_once: bool,
    /// Everything before this position is known to be confirmed.
    pub confirmed: Lsn,
}

/// Opens sessions as long as somebody asks. Dropping the future between two requests loses nothing.
pub(super) async fn serve(
    settings: &SourceSettings,
    known: &KnownPublication,
    mut end: LinkEnd<SessionRequest, SessionNews>,
) {
    let mut grace_until = Some(Instant::now() + STARTUP_GRACE);
    let mut backoff = Backoff::new(settings.reconnect_base, settings.reconnect_cap);
    let mut opened_at: Option<Instant> = None;
    let mut opener = SessionOpener::new(settings, known, end.answers.clone());
    while let Some(SessionRequest { text_only, at_once, confirmed }) = end.requests.recv().await {
        let lasted = opened_at.map(|at| at.elapsed());
        let pause = pause(lasted, at_once, &mut backoff);
        opener.begins(text_only, confirmed, pause.unwrap_or_default());
        // There is one request at a time, so that what comes meanwhile is the loop's end.
        let news = tokio::select! {
            news = open_patiently(&mut opener, grace_until, &mut backoff) => news,
            _ = end.requests.recv() => return,
        };
        if matches!(news, SessionNews::Opened(_)) {
            grace_until = None;
            opened_at = Some(Instant::now());
        }
        if end.answers.send(news).is_err() {
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
    opener: &mut SessionOpener<'_>,
    grace_until: Option<Instant>,
    backoff: &mut Backoff,
) -> SessionNews {
    loop {
        let began = Instant::now();
        let failed = match opener.attempt().await {
            Ok(opened) => return SessionNews::Opened(Box::new(opened)),
            Err(failed) => failed,
        };
        // A standby had a connection for so long.
        if began.elapsed() > STEADY_AFTER {
            backoff.succeeded();
        }
        let (phase, fault, why) = match failed {
            Failed::Fault(fault) => return SessionNews::Failed(fault),
            Failed::NotPrimary(fault) => (Phase::AwaitingPrimary, fault.clone(), fault.what),
            Failed::Connect(error) => {
                let settings = opener.settings;
                let (slot, publication) = (&settings.slot, &settings.publication);
                let fault = error.fault(&settings.connection, slot, publication);
                match error.kind() {
                    ConnectErrorKind::Fatal => return SessionNews::Failed(fault),
                    _ if error.is_wrong_role() => {
                        (Phase::AwaitingPrimary, fault, error.to_string())
                    }
                    _ => (Phase::Connecting, fault, error.to_string()),
                }
            }
        };
        let grace_until = grace_until.filter(|_| !opener.has_stood_by);
        if grace_until.is_some_and(|until| Instant::now() > until) {
            return SessionNews::Failed(fault);
        }
        let new = opener.show(phase);
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
#[path = "sessions_tests.rs"]
mod tests;
