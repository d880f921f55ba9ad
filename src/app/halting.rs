//! End of a relay with a fault: the stop is kept where it protects data, and the process ends, or
//! waits until somebody resumes it (`delivery.when_halted`).
//!
//! While it waits, it has no session, no sink and no thread but that of the admin server.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Runtime;

use super::threads::{ReceivedSignals, RunContext};
use crate::base::error::{Exit, Fault};
use crate::base::runtime;
use crate::config::Config;
use crate::delivery::settings::WhenHalted;
use crate::health::Phase;

/// How often a process that waits looks whether it was resumed.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Runs the relay; again when it was halted and is resumed.
pub(super) fn run_until_done(
    config: &Config,
    context: &RunContext,
    on_hangup: &dyn Fn(),
    mut run: impl FnMut() -> Result<(), Fault>,
) -> Result<(), Fault> {
    let stops = &context.stops;
    // Listens from the start, so that no signal is lost between the end of the loop and the wait.
    let mut idle = match config.delivery.when_halted {
        WhenHalted::Wait => Some(Idle::new(context, on_hangup)?),
        WhenHalted::Exit => None,
    };
    loop {
        let outcome = stops.fault().map_or_else(&mut run, Err);
        let Err(fault) = outcome else { return Ok(()) };
        stops.keep(&fault);
        let waits = fault.doubt.is_some() || matches!(fault.exit, Exit::Slot | Exit::Halted);
        let Some(idle) = idle.as_mut().filter(|_| waits) else { return Err(fault) };
        fault.log();
        if !idle.wait(context, &fault) {
            return Err(fault);
        }
        tracing::info!("resumed: going on");
        context.flags.stop.store(false, Ordering::Relaxed);
        context.flags.source_stopping.store(false, Ordering::Relaxed);
    }
}

/// The runtime of a process that waits.
struct Idle<'a> {
    runtime: Runtime,
    signals: ReceivedSignals<'a>,
}

impl<'a> Idle<'a> {
    fn new(context: &'a RunContext, on_hangup: &'a dyn Fn()) -> Result<Idle<'a>, Fault> {
        let runtime = runtime::current_thread()?;
        let signals = runtime.block_on(async { ReceivedSignals::listen(context, on_hangup) })?;
        Ok(Idle { runtime, signals })
    }

    /// Waits until the relay is resumed; false when the process must end.
    fn wait(&mut self, context: &RunContext, fault: &Fault) -> bool {
        let RunContext { stops, facts, .. } = context;
        let stop = stops.note_halt(fault);
        let mut recorder = facts.recorder(context.now_ms());
        recorder.note(&stop.what);
        facts.set_stop(Some(stop));
        context.metrics.set_halted();
        // The preflight has found it, and the watch may not have seen it.
        if fault.code == "slot.lost" {
            context.metrics.set_wal("lost", None);
        }
        let signals = &mut self.signals;
        let goes_on = self.runtime.block_on(async {
            loop {
                recorder.phase(Phase::Halted(fault.code), context.now_ms());
                tokio::select! {
                    signal = signals.next_stop() => {
                        tracing::info!(signal, "stopping");
                        return false;
                    }
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
                if stops.may_go_on() {
                    return true;
                }
            }
        });
        recorder.note("");
        facts.set_stop(None);
        goes_on
    }
}
