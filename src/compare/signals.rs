//! Signals: the first ends the measuring, a second one the tidying up, too.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::broken;
use crate::base::error::{Exit, Fault};

const HANGUP: &str = "SIGHUP";

/// Listens from when it is made; what comes while nobody waits is kept.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    quit: Signal,
    any_came: bool,
}

impl Signals {
    pub(super) fn listen() -> Result<Signals, Fault> {
        let listen = |kind| signal(kind).map_err(|error| broken(&error.to_string()));
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
            quit: listen(SignalKind::quit())?,
            any_came: false,
        })
    }

    /// The next one.
    pub(super) async fn next(&mut self) -> &'static str {
        let name = tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.hangup.recv() => HANGUP,
            _ = self.quit.recv() => "SIGQUIT",
        };
        self.any_came = true;
        name
    }

    /// One that came after another. A terminal that closes may hang up twice, and nobody would be
    /// there to read what is left.
    pub(super) async fn second(&mut self) -> &'static str {
        loop {
            let is_second = self.any_came;
            let name = self.next().await;
            if is_second && name != HANGUP {
                return name;
            }
        }
    }
}

/// What the first one leads to.
pub(super) fn interrupted(signal: &str) -> Fault {
    let what = format!("stopped by {signal} before all of it was measured");
    Fault::new(Exit::Failed, "compare.interrupted", what, "", "")
}
