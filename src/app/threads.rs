//! The threads that every relay has: the loop, the admin server, the reader of the dead-letter
//! topic; and the signals, most of which end them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::admin::{self, Admin, AdminView, DeadLetterAccess};
use crate::base::clock::{SystemClock, unix_now_us};
use crate::base::error::{Exit, Fault};
use crate::base::random::{self, Random};
use crate::base::service_manager::ServiceManager;
use crate::base::stop_requests::{StopRequest, StopRequests};
use crate::base::{host, log, os_ffi, runtime};
use crate::config::Config;
use crate::dead_letter::destinations::Destinations;
use crate::dead_letter::tail::{DeadLetterTail, TailConfig};
use crate::dead_letter::tail_event::{self, ReadRequests};
use crate::dead_letter::writer::{DeadLetterWriter, SystemId};
use crate::delivery::settings::OnDeadLetter;
use crate::find::EventFinder;
use crate::health::{Facts, StateWatch};
use crate::metrics::Metrics;
use crate::outbox::settings::Preset;
use crate::relay::control::StopFlags;
use crate::relay::ports::Meters;
use crate::relay::stops::{self, StandingStops, StopsConfig};
use crate::relay::{self, FactsRecorder, Parts, PassCounts};
use crate::sink::{self, Requirements};
use crate::trace::{SpanExporter, SpanSource};

/// The state that the threads of one `run` share, and the admin server, which starts before the loop.
pub(super) struct RunContext {
    pub(super) origin: Instant,
    pub(super) metrics: Arc<Metrics>,
    pub(super) facts: Arc<Facts>,
    pub(super) flags: Arc<StopFlags>,
    pub(super) stops: Arc<StandingStops>,
    pub(super) system: SystemId,
    pub(super) service_manager: Arc<ServiceManager>,
    _admin: Admin,
}

impl RunContext {
    pub(super) fn open(
        config: &Config,
        service_manager: &Arc<ServiceManager>,
    ) -> Result<RunContext, Fault> {
        let service_manager = Arc::clone(service_manager);
        let origin = Instant::now();
        let metrics = Arc::new(Metrics::new());
        let facts = Facts::new(0);
        let system = SystemId::default();
        let config_of_stops = StopsConfig { system: system.clone(), ..stops_config(config) };
        let stops = stops::open(config_of_stops)?;
        let states = StateWatch::new(Arc::clone(&metrics), unix_now_us());
        let view = AdminView {
            metrics: Arc::clone(&metrics),
            facts: Arc::clone(&facts),
            states: Arc::new(states),
            clock: admin::clock_since(origin),
            service_manager: Arc::clone(&service_manager),
            source_slot: config.source.slot.clone(),
            slot: config.polling.is_none().then(|| config.source.slot.clone()),
            sink: config.sink.kind().name,
        };
        let letters = DeadLetterAccess {
            broker: Arc::clone(&config.sink),
            address: config.dead_letter.address.clone(),
            destinations: replay_destinations(config),
            finder: Some(EventFinder::new(config)),
            stops: Some(Arc::clone(&stops)),
            token: config.admin.token.clone(),
        };
        let admin = Admin::start(config.admin.listen, &config.admin.hosts, view, letters)?;
        let flags = Arc::default();
        Ok(RunContext {
            origin,
            metrics,
            facts,
            flags,
            stops,
            system,
            service_manager,
            _admin: admin,
        })
    }

    /// Milliseconds on the clock of the facts.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Starts the reader of the dead-letter topic, and the loop on the data thread.
    pub(super) fn start_threads(
        &self,
        config: &Config,
        run_loop: impl FnOnce(Parts) -> Result<(), Fault> + Send + 'static,
    ) -> Result<Running, Fault> {
        let (events, tail_events) = tail_event::channel();
        let requests = ReadRequests::default();
        let RunContext { origin, metrics, facts, flags, stops, system, .. } = self;
        let recorder = facts.recorder(self.now_ms());
        let tail = TailConfig {
            broker: Arc::clone(&config.sink),
            slot: config.source.slot.clone(),
            system: system.clone(),
            settings: config.dead_letter.clone(),
            events,
            metrics: Arc::clone(metrics),
            has_source: Box::new({
                let facts = Arc::clone(facts);
                move || facts.snapshot().pass.phase.has_source()
            }),
            requests: requests.clone(),
        };
        let tail = reads_dead_letters(config).then(|| DeadLetterTail::start(tail)).transpose()?;
        let source = SpanSource {
            service_name: config.tracing.service_name.clone(),
            instance: instance_name(config),
            system: config.sink.kind().name,
            names: config.sink.kind().messaging,
            has_commit_lsn: config.polling.is_none(),
        };
        let (exporter, spans) = SpanExporter::start(&config.tracing, source, metrics)?;
        let stop = Arc::clone(&flags.stop);
        let parts = Parts {
            source: config.source.clone(),
            delivery: config.delivery.clone(),
            read_back: relay::read_back(Arc::clone(&config.sink)),
            sink_factory: sink::factory(Arc::clone(&config.sink), sink_requirements(config), stop),
            dead_letter_writer: DeadLetterWriter {
                settings: config.dead_letter.clone(),
                relay: instance_name(config),
                system: system.clone(),
            },
            spans,
            tail_events: tail.is_some().then_some(tail_events),
            tail_requests: requests,
            stops: Arc::clone(stops),
            flags: Arc::clone(flags),
            state_file: relay::open_state_file(
                config.delivery.state_file.as_deref(),
                &config.source.slot,
            )?,
            meters: Arc::clone(metrics) as Arc<dyn Meters>,
            pass_meter: Box::new(PassCounts::new(metrics)),
            recorder: Box::new(FactsRecorder { recorder, origin: *origin }),
            clock: Arc::new(SystemClock),
            random: Random::new(random::seed()),
        };
        let (sender, ended) = oneshot::channel();
        let data = runtime::spawn("relay", move || {
            let _nobody_waits = sender.send(run_loop(parts)).is_err();
        })?;
        Ok(Running { tail, data, ended, exporter })
    }
}

/// The threads that [`RunContext::start_threads`] has started.
pub(super) struct Running {
    tail: Option<DeadLetterTail>,
    data: JoinHandle<()>,
    exporter: Option<SpanExporter>,
    /// How the loop has ended. Dropped unsent if it has panicked.
    pub(super) ended: oneshot::Receiver<Result<(), Fault>>,
}

impl Running {
    /// Waits for the other threads, after the loop has ended.
    pub(super) fn finish(self, runtime: Runtime, outcome: Result<(), Fault>) -> Result<(), Fault> {
        // Not dropped: that would wait for a name that is being resolved.
        runtime.shutdown_background();
        let joined = self.data.join();
        if let Some(exporter) = self.exporter {
            exporter.stop();
        }
        if let Some(tail) = self.tail {
            tail.stop();
        }
        outcome.and(joined.map_err(|_| panicked()))
    }
}

/// The outcome of a process: the fault that was `found` beside the loop is the reason for its end. What
/// the loop has met after that is logged.
pub(super) fn outcome_of(found: Option<Fault>, outcome: Result<(), Fault>) -> Result<(), Fault> {
    let Some(found) = found else { return outcome };
    if let Err(fault) = outcome {
        fault.log();
    }
    Err(found)
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

pub(super) struct ReceivedSignals<'a> {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    on_hangup: &'a dyn Fn(),
    service_manager: &'a ServiceManager,
    requests: StopRequests,
}

impl<'a> ReceivedSignals<'a> {
    pub(super) fn listen(
        context: &'a RunContext,
        on_hangup: &'a dyn Fn(),
    ) -> Result<ReceivedSignals<'a>, Fault> {
        let listen = |kind, name| signal(kind).map_err(|error| runtime::refused(name, &error));
        Ok(ReceivedSignals {
            terminate: listen(SignalKind::terminate(), "SIGTERM")?,
            interrupt: listen(SignalKind::interrupt(), "SIGINT")?,
            hangup: listen(SignalKind::hangup(), "SIGHUP")?,
            on_hangup,
            service_manager: &context.service_manager,
            requests: StopRequests::default(),
        })
    }

    /// The name of the next signal that asks to stop. The future may be dropped without losing one.
    pub(super) async fn next_stop(&mut self) -> &'static str {
        let signal = loop {
            tokio::select! {
                _ = self.terminate.recv() => break "SIGTERM",
                _ = self.interrupt.recv() => break "SIGINT",
                _ = self.hangup.recv() => (self.on_hangup)(),
            }
        };
        self.service_manager.stopping();
        signal
    }

    /// Lets the loop end for this signal; the second one ends the process at once. The loop may be ending
    /// already, because of a fault.
    pub(super) fn stop(&mut self, flags: &StopFlags, signal: &str) {
        match self.requests.receive(Instant::now()) {
            StopRequest::First => {
                flags.stop.store(true, Ordering::Relaxed);
                tracing::info!(signal, "stopping: settling what is in flight");
            }
            StopRequest::Repeated => {}
            StopRequest::Second => {
                tracing::warn!(
                    code = "run.stopped-at-once",
                    signal,
                    "second signal: stopping at once, unconfirmed events will be published again"
                );
                log::write_last_counts();
                log::flush();
                os_ffi::exit(Exit::Failed as u8);
            }
        }
    }
}

/// The requirements to the broker, as far as the configuration names them.
pub fn sink_requirements(config: &Config) -> Requirements {
    let routes = config.source.outboxes.iter().map(|outbox| &outbox.route);
    let routes = routes.chain(config.source.messages.iter().map(|messages| &messages.route));
    // Only an event with a position is recognised, and gets a trace context.
    let has_position = routes.clone().any(|route| route.preset == Preset::Walrelay);
    let mut topics: Vec<String> =
        routes.filter_map(|route| route.topic.constant().map(str::to_owned)).collect();
    topics.sort();
    topics.dedup();
    let dead_letters = writes_dead_letters(config).then(|| config.dead_letter.address.clone());
    let read_back = config.polling.is_none() && has_position;
    let adds_context = has_position && config.tracing.endpoint.is_some();
    Requirements { topics, dead_letters, read_back, adds_context, ..Requirements::default() }
}

/// Where a replay may go: wherever a route could lead.
pub(crate) fn replay_destinations(config: &Config) -> Destinations {
    let tables = config.source.outboxes.iter().map(|outbox| &outbox.route);
    let routes = tables.chain(config.source.messages.iter().map(|messages| &messages.route));
    Destinations::of(routes.map(|route| (route.exchange.clone(), route.topic.clone())))
}

/// The part of the configuration that [`StandingStops`] needs.
pub(crate) fn stops_config(config: &Config) -> StopsConfig<'_> {
    let dead_letters = (Arc::clone(&config.sink), config.dead_letter.address.clone());
    StopsConfig {
        source: &config.source,
        delivery: &config.delivery,
        is_polling: config.polling.is_some(),
        dead_letters: reads_dead_letters(config).then_some(dead_letters),
        system: SystemId::default(),
        relay: instance_name(config),
    }
}

fn writes_dead_letters(config: &Config) -> bool {
    config.delivery.on_dead_letter != OnDeadLetter::Halt
}

/// Whether the dead letters that are written can be read back.
pub(crate) fn reads_dead_letters(config: &Config) -> bool {
    writes_dead_letters(config) && config.sink.kind().reads_dead_letters
}

/// The relay and its machine, for dead letters and spans.
fn instance_name(config: &Config) -> String {
    format!("{}@{}", config.source.slot, host::name())
}
