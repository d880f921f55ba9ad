//! Streaming: the loop reads a slot; sessions, the slot watch and SQL run on the control runtime.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;

use super::threads::{Observability, ShutdownSignals, stop};
use crate::base::error::Fault;
use crate::base::runtime;
use crate::config::Config;
use crate::doctor::fingerprint::KnownPublication;
use crate::health::slot_watch::{self, SlotWatch};
use crate::relay::control::{self, StopFlags};
use crate::relay::{Relay, SlotFeed};

/// Streams until stopped.
pub(super) fn run(config: &Config) -> Result<(), Fault> {
    let observability = Observability::open(config)?;
    let runtime = runtime::current_thread()?;
    let (links, link_ends) = control::links();
    let known = Arc::<KnownPublication>::default();
    let Observability { metrics, facts, flags, .. } = &observability;
    let (source, delivery) = (config.source.clone(), config.delivery.clone());
    let (feed_flags, feed_metrics) = (Arc::clone(flags), Arc::clone(metrics));
    let watch = SlotWatch {
        settings: config.source.clone(),
        metrics: Arc::clone(metrics),
        facts: Arc::clone(facts),
        known: Arc::clone(&known),
        stopping: Box::new({
            let flags = Arc::clone(flags);
            move || flags.source_stopping.store(true, Ordering::Relaxed)
        }),
    };
    let flags = Arc::clone(flags);
    let carry = move |parts| {
        let feed = SlotFeed::new(source, &delivery, links, feed_flags, feed_metrics)?;
        Relay::new(parts, feed)?.run()
    };
    let mut running = observability.start(config, carry)?;
    let sessions = control::serve(&config.source, &known, link_ends);
    let outcome = runtime.block_on(supervise(&flags, sessions, watch, &mut running.ended));
    running.finish(runtime, outcome)
}

/// Waits until the loop ends. Signals and a fatal finding of the watch only ask it to.
async fn supervise(
    flags: &StopFlags,
    connecting: impl Future<Output = ()>,
    watch: SlotWatch,
    ended: &mut oneshot::Receiver<Result<(), Fault>>,
) -> Result<(), Fault> {
    let mut signals = ShutdownSignals::listen()?;
    let watching = slot_watch::watch(watch);
    tokio::pin!(connecting, watching);
    let mut found = None;
    loop {
        tokio::select! {
            outcome = &mut *ended => {
                // A sender that is dropped unsent is a panic, which the join reports.
                let outcome = outcome.unwrap_or(Ok(()));
                return found.map_or(outcome, Err);
            }
            fault = &mut watching, if found.is_none() => {
                found = Some(fault);
                flags.stop.store(true, Ordering::Relaxed);
            }
            // It ends with the loop and may be noticed first: what the watch found still counts.
            () = &mut connecting => {
                let outcome = ended.await.unwrap_or(Ok(()));
                return found.map_or(outcome, Err);
            }
            signal = signals.next() => stop(flags, signal),
        }
    }
}
