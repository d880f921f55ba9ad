//! The signals with which a command is asked to stop.

use tokio::signal::unix::{SignalKind, signal};

use crate::base::error::Fault;
use crate::base::runtime;

/// Returns a function that waits for the next SIGINT or SIGTERM from now on. A wait that is dropped
/// loses no signal. Must be called on a runtime.
pub(super) fn stop_signals() -> Result<impl AsyncFnMut(), Fault> {
    let refused = |error| runtime::refused("the signal handlers", &error);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(refused)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(refused)?;
    Ok(async move || {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
