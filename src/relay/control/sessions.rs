//! Opens a session whenever the loop requests one, and retries as long as a retry can help.

use std::sync::Arc;
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
/// wrong address is reported and not retried for ever. A relay that has streamed, or has stood by for
/// another one, never gives up.
const STARTUP_GRACE: Duration = Duration::from_secs(10);
/// After a session of this length, or longer, the next waits begin short again.
const STEADY_AFTER: Duration = Duration::from_secs(10);
/// Longest wait before servers are asked again whether they are a primary: a promotion is quick.
const PRIMARY_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct SessionRequest {
    /// Columns are wanted in text form, not binary.
    pub text_only: bool,
    /// The relay closed the last session itself, and has waited between the two already.
    pub at_once: bool,
    /// Everything before this position is known to be confirmed.
    pub confirmed: Lsn,
}

pub(super) async fn serve(
    settings: Arc<SourceSettings>,
    known: Arc<KnownPublication>,
    mut end: LinkEnd<SessionRequest, SessionNews>,
) {
    let mut grace_until = Some(Instant::now() + STARTUP_GRACE);
    let mut backoff = Backoff::new(settings.reconnect_base, settings.reconnect_cap);
    let mut opened_at: Option<Instant> = None;
    let mut opener = SessionOpener::new(&settings, &known, end.answers.clone());
    while let Some(SessionRequest { text_only, at_once, confirmed }) = end.requests.recv().await {
        let lasted = opened_at.map(|at| at.elapsed());
        let pause = pause(lasted, at_once, &mut backoff);
        opener.begins(text_only, confirmed, pause.unwrap_or_default());
        let news = open_patiently(&mut opener, grace_until, &mut backoff).await;
        if matches!(news, SessionNews::Opened(_)) {
            grace_until = None;
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
        // The attempt had a connection for that long, and stood by on it.
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
