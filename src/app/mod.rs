//! Wiring and supervision: builds the parts, gives each its thread, waits for the first that ends.
//!
//! Four threads: the data thread (the loop), the admin thread (probes must answer when the loop is
//! stuck), the one that follows the dead-letter topic, and this one: the control runtime with the
//! connector, the slot watch and the signals.

mod polling;
pub mod startup;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Instant;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::admin::{self, Admin, Letters, View};
use crate::base::error::{Exit, Fault};
use crate::config::Config;
use crate::dead_letter::tail::{DeadLetterTail, TailConfig};
use crate::dead_letter::tail_event::{self, TailEvent};
use crate::dead_letter::writer::DeadLetterWriter;
use crate::delivery::settings::OnDeadLetter;
use crate::doctor::fingerprint::KnownPublication;
use crate::health::slot_watch::{self, Watch};
use crate::health::{self, Facts, Limits, Recorder};
use crate::metrics::Metrics;
use crate::relay::control::{self, StopFlags};
use crate::relay::{Parts, Relay, SlotFeed};
use crate::sink::{self, Wanted};

/// Relays until stopped.
pub fn run(config: &Config) -> Result<(), Fault> {
    crate::base::os_ffi::return_large_pieces();
    if config.sink.kind().shares_malloc_arena {
        crate::base::os_ffi::share_malloc_arena();
    }
    match &config.polling {
        Some(polling) => polling::run(config, polling),
        None => stream(config),
    }
}

fn stream(config: &Config) -> Result<(), Fault> {
    let Outside { origin, metrics, recorder, facts, flags, admin } = Outside::open(config)?;
    let (links, link_ends) = control::links();
    let known = Arc::<KnownPublication>::default();
    let (news, tail_events) = tail_event::channel();
    let reading = Reading::begin(config, news, &metrics, &facts)?;
    let (source, delivery) = (config.source.clone(), config.delivery.clone());
    let (stop_flags, feed_metrics) = (Arc::clone(&flags), Arc::clone(&metrics));
    let parts = parts(config, tail_events, &flags, &metrics, recorder, origin);
    let (data, ended) = start(move || {
        let feed = SlotFeed::new(source, &delivery, links, stop_flags, feed_metrics)?;
        Relay::new(parts, feed)?.run()
    })?;
    let watch = Watch {
        settings: config.source.clone(),
        metrics: Arc::clone(&metrics),
        facts,
        known: Arc::clone(&known),
        stopping: Box::new({
            let flags = Arc::clone(&flags);
            move || flags.source_stopping.store(true, Ordering::Relaxed)
        }),
    };
    let runtime = control_runtime()?;
    let sessions = control::serve(&config.source, &known, link_ends);
    let outcome = runtime.block_on(supervise(&flags, sessions, watch, ended));
    // Not dropped: a name that is being resolved would hold it up.
    runtime.shutdown_background();
    let joined = data.join();
    admin.stop();
    reading.end();
    joined.map_err(|_| panicked()).and(outcome)
}

/// What every mode shows to the outside, and hears from it.
struct Outside {
    origin: Instant,
    metrics: Arc<Metrics>,
    recorder: Recorder,
    facts: Arc<Facts>,
    flags: Arc<StopFlags>,
    admin: Admin,
}

impl Outside {
    fn open(config: &Config) -> Result<Outside, Fault> {
        let origin = Instant::now();
        let metrics = Arc::new(Metrics::new());
        let (recorder, facts) = health::facts(0);
        let view = View {
            metrics: Arc::clone(&metrics),
            facts: Arc::clone(&facts),
            limits: Limits::default(),
            clock: admin::clock_since(origin),
            slot: config.polling.is_none().then(|| config.source.slot.clone()),
        };
        let letters = Letters {
            broker: Arc::clone(&config.sink),
            address: config.dead_letter.address.clone(),
            token: config.admin.token.clone(),
        };
        let admin = Admin::start(config.admin.listen, view, letters)?;
        Ok(Outside { origin, metrics, recorder, facts, flags: Arc::default(), admin })
    }
}

fn panicked() -> Fault {
    Fault::new(
        Exit::Failed,
        "relay.panicked",
        "the data thread panicked; nothing that was not confirmed has been reported",
        "",
        "start it again, and report the message above",
    )
}

/// Who reads the dead-letter topic.
enum Reading {
    Followed(DeadLetterTail),
    /// Nothing is written to it. The line to the loop stays open, and is silent.
    Unread(TailConfig),
}

impl Reading {
    fn begin(
        config: &Config,
        news: SyncSender<TailEvent>,
        metrics: &Arc<Metrics>,
        facts: &Arc<Facts>,
    ) -> Result<Reading, Fault> {
        let follow = TailConfig {
            broker: Arc::clone(&config.sink),
            slot: config.source.slot.clone(),
            parks_keys: config.delivery.on_dead_letter == OnDeadLetter::ParkKey,
            settings: config.dead_letter.clone(),
            events: news,
            metrics: Arc::clone(metrics),
            facts: Arc::clone(facts),
        };
        match config.delivery.on_dead_letter {
            OnDeadLetter::Halt => Ok(Reading::Unread(follow)),
            OnDeadLetter::Continue | OnDeadLetter::ParkKey => {
                DeadLetterTail::start(follow).map(Reading::Followed)
            }
        }
    }

    fn end(self) {
        match self {
            Reading::Followed(following) => following.stop(),
            Reading::Unread(follow) => drop(follow),
        }
    }
}

/// Until the loop ends. Signals and a fatal finding of the watch only ask it to.
async fn supervise(
    flags: &StopFlags,
    connecting: impl Future<Output = ()>,
    watch: Watch,
    mut ended: oneshot::Receiver<Result<(), Fault>>,
) -> Result<(), Fault> {
    let mut signals = Signals::listen()?;
    let watching = slot_watch::watch(watch);
    tokio::pin!(connecting, watching);
    let mut found = None;
    loop {
        tokio::select! {
            outcome = &mut ended => {
                // A sender that is dropped unsent is a panic, told by the join.
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

/// What asks a relay to end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> Result<Signals, Fault> {
        let listen = |kind, name| signal(kind).map_err(|error| system_fault(&error, name));
        Ok(Signals {
            terminate: listen(SignalKind::terminate(), "SIGTERM")?,
            interrupt: listen(SignalKind::interrupt(), "SIGINT")?,
        })
    }

    /// The next one's name. Cancelling it loses none.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

fn stop(flags: &StopFlags, signal: &str) {
    if flags.stop.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            signal,
            "second signal: stopping at once, unconfirmed events will be published again"
        );
        std::process::exit(Exit::Failed as i32);
    }
    tracing::info!(signal, "stopping: settling what is in flight");
}

type Started = (std::thread::JoinHandle<()>, oneshot::Receiver<Result<(), Fault>>);

/// What the loop is made of in every mode.
fn parts(
    config: &Config,
    tail_events: Receiver<TailEvent>,
    flags: &Arc<StopFlags>,
    metrics: &Arc<Metrics>,
    recorder: Recorder,
    origin: Instant,
) -> Parts {
    let stop = Arc::clone(&flags.stop);
    Parts {
        source: config.source.clone(),
        delivery: config.delivery.clone(),
        sink_factory: sink::factory(Arc::clone(&config.sink), wanted(config), stop),
        dead_letter_writer: dead_letter_writer(config),
        tail_events,
        flags: Arc::clone(flags),
        metrics: Arc::clone(metrics),
        recorder,
        origin,
    }
}

/// A loop on the data thread, and how it ends.
fn start(carry: impl FnOnce() -> Result<(), Fault> + Send + 'static) -> Result<Started, Fault> {
    let (sender, ended) = oneshot::channel();
    let thread = std::thread::Builder::new()
        .name("relay".to_owned())
        .spawn(move || {
            let _nobody_waits = sender.send(carry()).is_err();
        })
        .map_err(|error| system_fault(&error, "the data thread"))?;
    Ok((thread, ended))
}

/// For everything that waits for sockets, timers and signals.
fn control_runtime() -> Result<tokio::runtime::Runtime, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| system_fault(&error, "the control runtime"))
}

/// What is known before the first row to be needed at the broker.
#[must_use]
pub fn wanted(config: &Config) -> Wanted {
    let routes = config.source.outboxes.iter().map(|outbox| &outbox.route);
    let routes = routes.chain(config.source.messages.iter().map(|messages| &messages.route));
    let mut topics: Vec<String> =
        routes.filter_map(|route| route.topic.constant().map(str::to_owned)).collect();
    topics.sort();
    topics.dedup();
    let writes = config.delivery.on_dead_letter != OnDeadLetter::Halt;
    let dead_letters = writes.then(|| config.dead_letter.address.clone());
    Wanted { topics, dead_letters, ..Wanted::default() }
}

fn dead_letter_writer(config: &Config) -> DeadLetterWriter {
    DeadLetterWriter {
        settings: config.dead_letter.clone(),
        relay: format!("{}@{}", config.source.slot, host_name()),
    }
}

/// The name of this machine, for the letters it writes.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

fn system_fault(error: &std::io::Error, what: &str) -> Fault {
    Fault::new(
        Exit::Failed,
        "system.refused",
        format!("the system refused {what}: {error}"),
        "",
        "look at the limits of the process (ulimit -a, container limits)",
    )
}
