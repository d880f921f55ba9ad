//! The threads of a relay, whatever feeds it: the loop, the admin server, the reader of the
//! dead-letter topic; and the signals that end them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::admin::{self, Admin, AdminView, DeadLetterAccess};
use crate::base::error::{Exit, Fault};
use crate::base::runtime;
use crate::config::Config;
use crate::dead_letter::tail::{DeadLetterTail, TailConfig};
use crate::dead_letter::tail_event::{self, TailEvent};
use crate::dead_letter::writer::DeadLetterWriter;
use crate::delivery::settings::OnDeadLetter;
use crate::health::{self, Facts, HealthLimits, Recorder};
use crate::metrics::Metrics;
use crate::relay::Parts;
use crate::relay::control::StopFlags;
use crate::sink::{self, Requirements};

/// What every mode shows to other threads and takes from them, before there is a loop.
pub(super) struct Observability {
    pub(super) origin: Instant,
    pub(super) metrics: Arc<Metrics>,
    pub(super) recorder: Recorder,
    pub(super) facts: Arc<Facts>,
    pub(super) flags: Arc<StopFlags>,
    pub(super) admin: Admin,
}

impl Observability {
    pub(super) fn open(config: &Config) -> Result<Observability, Fault> {
        let origin = Instant::now();
        let metrics = Arc::new(Metrics::new());
        let (recorder, facts) = health::facts(0);
        let view = AdminView {
            metrics: Arc::clone(&metrics),
            facts: Arc::clone(&facts),
            limits: HealthLimits::default(),
            clock: admin::clock_since(origin),
            slot: config.polling.is_none().then(|| config.source.slot.clone()),
        };
        let letters = DeadLetterAccess {
            broker: Arc::clone(&config.sink),
            address: config.dead_letter.address.clone(),
            token: config.admin.token.clone(),
        };
        let admin = Admin::start(config.admin.listen, view, letters)?;
        Ok(Observability { origin, metrics, recorder, facts, flags: Arc::default(), admin })
    }

    /// Starts the reader of the dead-letter topic, and the loop on the data thread.
    pub(super) fn start(
        self,
        config: &Config,
        carry: impl FnOnce(Parts) -> Result<(), Fault> + Send + 'static,
    ) -> Result<Running, Fault> {
        let (events, tail_events) = tail_event::channel();
        let letters = LetterReader::start(config, events, &self)?;
        let Observability { origin, metrics, recorder, flags, admin, .. } = self;
        let stop = Arc::clone(&flags.stop);
        let parts = Parts {
            source: config.source.clone(),
            delivery: config.delivery.clone(),
            sink_factory: sink::factory(Arc::clone(&config.sink), sink_requirements(config), stop),
            dead_letter_writer: DeadLetterWriter {
                settings: config.dead_letter.clone(),
                relay: format!("{}@{}", config.source.slot, host_name()),
            },
            tail_events,
            flags,
            metrics,
            recorder,
            origin,
        };
        let (sender, ended) = oneshot::channel();
        let data = runtime::spawn("relay", move || {
            let _nobody_waits = sender.send(carry(parts)).is_err();
        })?;
        Ok(Running { admin, letters, data, ended })
    }
}

/// The threads beside this one.
pub(super) struct Running {
    pub(super) admin: Admin,
    pub(super) letters: LetterReader,
    pub(super) data: JoinHandle<()>,
    /// How the loop ends; dropped unsent where it panics.
    pub(super) ended: oneshot::Receiver<Result<(), Fault>>,
}

impl Running {
    /// Waits for the threads to end, after the loop has.
    pub(super) fn finish(self, runtime: Runtime, outcome: Result<(), Fault>) -> Result<(), Fault> {
        // Not dropped: a name that is being resolved would hold it up.
        runtime.shutdown_background();
        let joined = self.data.join();
        self.admin.stop();
        self.letters.stop();
        joined.map_err(|_| panicked()).and(outcome)
    }
}

pub(super) fn panicked() -> Fault {
    Fault::new(
        Exit::Failed,
        "relay.panicked",
        "the data thread panicked; nothing that was not confirmed has been reported",
        "",
        "start it again, and report the message above",
    )
}

/// The reader of the dead-letter topic.
pub(super) enum LetterReader {
    Reads(DeadLetterTail),
    /// No letter is ever written. The channel to the loop stays open, and is silent.
    Silent(TailConfig),
}

impl LetterReader {
    pub(super) fn start(
        config: &Config,
        events: SyncSender<TailEvent>,
        observability: &Observability,
    ) -> Result<LetterReader, Fault> {
        let tail = TailConfig {
            broker: Arc::clone(&config.sink),
            slot: config.source.slot.clone(),
            parks_keys: config.delivery.on_dead_letter == OnDeadLetter::ParkKey,
            settings: config.dead_letter.clone(),
            events,
            metrics: Arc::clone(&observability.metrics),
            facts: Arc::clone(&observability.facts),
        };
        match config.delivery.on_dead_letter {
            OnDeadLetter::Halt => Ok(LetterReader::Silent(tail)),
            OnDeadLetter::Continue | OnDeadLetter::ParkKey => {
                DeadLetterTail::start(tail).map(LetterReader::Reads)
            }
        }
    }

    pub(super) fn stop(self) {
        match self {
            LetterReader::Reads(tail) => tail.stop(),
            LetterReader::Silent(tail) => drop(tail),
        }
    }
}

/// What asks a relay to end.
pub(super) struct ShutdownSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl ShutdownSignals {
    pub(super) fn listen() -> Result<ShutdownSignals, Fault> {
        let listen = |kind, name| signal(kind).map_err(|error| runtime::refused(name, &error));
        Ok(ShutdownSignals {
            terminate: listen(SignalKind::terminate(), "SIGTERM")?,
            interrupt: listen(SignalKind::interrupt(), "SIGINT")?,
        })
    }

    /// The next one's name. Cancelling it loses none.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

pub(super) fn stop(flags: &StopFlags, signal: &str) {
    if flags.stop.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            signal,
            "second signal: stopping at once, unconfirmed events will be published again"
        );
        std::process::exit(Exit::Failed as i32);
    }
    tracing::info!(signal, "stopping: settling what is in flight");
}

#[must_use]
pub fn sink_requirements(config: &Config) -> Requirements {
    let routes = config.source.outboxes.iter().map(|outbox| &outbox.route);
    let routes = routes.chain(config.source.messages.iter().map(|messages| &messages.route));
    let mut topics: Vec<String> =
        routes.filter_map(|route| route.topic.constant().map(str::to_owned)).collect();
    topics.sort();
    topics.dedup();
    let writes = config.delivery.on_dead_letter != OnDeadLetter::Halt;
    let dead_letters = writes.then(|| config.dead_letter.address.clone());
    Requirements { topics, dead_letters, ..Requirements::default() }
}

/// The name of this machine, for the letters it writes.
pub(super) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}
