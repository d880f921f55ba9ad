//! Runs a relay that reads a slot: sessions, the slot watch and SQL run on the control runtime.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::threads::{ReceivedSignals, RunContext, Running, outcome_of};
use crate::base::error::Fault;
use crate::base::random;
use crate::base::runtime;
use crate::config::Config;
use crate::health::slot_watch::{self, SlotWatch};
use crate::relay::control::{Control, StopFlags};
use crate::relay::stops::StandingStops;
use crate::relay::{Relay, SlotFeed};
use crate::source::progress::Signature;
use crate::source::sightings::Sightings;

pub(super) fn run(
    config: &Config,
    context: &RunContext,
    on_hangup: &dyn Fn(),
) -> Result<(), Fault> {
    let runtime = runtime::current_thread()?;
    let signals = runtime.block_on(async { ReceivedSignals::listen(context, on_hangup) })?;
    let RunContext { origin, metrics, facts, flags, stops, .. } = context;
    let known = Arc::new(stops.known_publication());
    let sightings = Arc::<Sightings>::default();
    let control = Control {
        runtime: runtime.handle().clone(),
        source: Arc::new(config.source.clone()),
        known: Arc::clone(&known),
        sightings: Arc::clone(&sightings),
    };
    let seen = Arc::clone(&sightings);
    let run_loop = move |parts| {
        let signature = Signature::drawn(random::seed());
        let feed = SlotFeed::new(Box::new(control), seen, signature, &parts)?;
        Relay::new(parts, feed)?.run()
    };
    let watch = SlotWatch {
        settings: config.source.clone(),
        metrics: Arc::clone(metrics),
        facts: Arc::clone(facts),
        origin: *origin,
        known,
        sightings,
        stopping: Box::new({
            let flags = Arc::clone(flags);
            move || flags.source_stopping.store(true, Ordering::Relaxed)
        }),
    };
    let flags = Arc::clone(flags);
    let mut running = context.start_threads(config, run_loop)?;
    let outcome = runtime.block_on(supervise(&flags, stops, signals, watch, &mut running));
    running.finish(runtime, outcome)
}

/// Waits until the loop ends. A signal, or a fault
/// that the slot watch finds, only requests its end.
async fn supervise(
    flags: &StopFlags,
    stops: &StandingStops,
    mut signals: ReceivedSignals<'_>,
    watch: SlotWatch,
    running: &mut Running,
) -> Result<(), Fault> {
    let watching = slot_watch::watch(watch);
    tokio::pin!(watching);
    let mut found = None;
    loop {
        tokio::select! {
            outcome = &mut running.ended => {
                // If the loop panicked, nothing was sent; joining the thread reports that.
                let outcome = outcome.unwrap_or(Ok(()));
                return outcome_of(found, outcome);
            }
            fault = &mut watching, if found.is_none() => {
                stops.keep_early(&fault);
                found = Some(fault);
                flags.stop.store(true, Ordering::Relaxed);
            }
            signal = signals.next_stop() => signals.stop(flags, signal),
        }
    }
}
