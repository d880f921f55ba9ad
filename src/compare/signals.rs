//! Signals: the first ends the measuring, a second one the removal, too.

use std::future::poll_fn;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::base::error::{Exit, Fault};
use crate::base::runtime;

const HANGUP: &str = "SIGHUP";

/// Listens as soon as it is made; a signal that comes while nobody waits is kept.
pub(super) struct StopSignals {
    streams: Vec<(&'static str, Signal)>,
    any_came: bool,
}

impl StopSignals {
    pub(super) fn listen() -> Result<StopSignals, Fault> {
        let kinds = [
            ("SIGINT", SignalKind::interrupt()),
            ("SIGTERM", SignalKind::terminate()),
            (HANGUP, SignalKind::hangup()),
            ("SIGQUIT", SignalKind::quit()),
        ];
        let listen = |(name, kind)| {
            let stream = signal(kind).map_err(|error| runtime::refused(name, &error));
            stream.map(|stream| (name, stream))
        };
        let streams = kinds.into_iter().map(listen).collect::<Result<_, Fault>>()?;
        Ok(StopSignals { streams, any_came: false })
    }

    /// The next one.
    pub(super) async fn next(&mut self) -> &'static str {
        let name = poll_fn(|context| {
            let came = self
                .streams
                .iter_mut()
                .find_map(|(name, stream)| stream.poll_recv(context).is_ready().then_some(*name));
            came.map_or(Poll::Pending, Poll::Ready)
        });
        let name = name.await;
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

/// The fault to which the first signal leads.
pub(super) fn interrupted(signal: &str) -> Fault {
    let what = format!("stopped by {signal} before all of it was measured");
    Fault::new(Exit::Failed, "compare.interrupted", what, "", "")
}
