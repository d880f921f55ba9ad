//! Drives a sink as the relay does, and checks its reports: no event is reported twice, none that
//! was not published, and what a broken sink leaves open goes to the next one in order.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use walrelay::base::event::{Outbound, Position, Sequence};
use walrelay::base::lsn::Lsn;
use walrelay::dead_letter::writer::{
    DeadLetterAddress, DeadLetterCause, DeadLetterSettings, DeadLetterWriter,
};
use walrelay::sink::{
    Broker, Disposition, Failure, PublishError, Requirements, Sink, SinkReport, StartupCheck,
};

/// Longest wait for anything that should happen soon.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// As many events as the relay has in flight.
pub(crate) const WINDOW: usize = 16_384;
const PATIENCE: Duration = Duration::from_millis(20);

/// The seed of this run: `WALRELAY_SEED`, else drawn once.
pub(crate) fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| match std::env::var("WALRELAY_SEED") {
        Ok(text) => text.parse().expect("WALRELAY_SEED is a number"),
        Err(_) => u64::try_from(walrelay_harness::kit::now_us()).unwrap() % 1_000_000,
    })
}

/// A writer of dead letters to this destination, which need not exist.
pub(crate) fn dead_letter_writer(exchange: &str, topic: &str) -> DeadLetterWriter {
    let address = DeadLetterAddress { exchange: exchange.to_owned(), topic: topic.to_owned() };
    let settings = DeadLetterSettings { address, ..DeadLetterSettings::default() };
    DeadLetterWriter { settings, relay: "walrelay@test".to_owned(), system: Default::default() }
}

pub(crate) fn dead_letter_cause(class: &str) -> DeadLetterCause {
    DeadLetterCause {
        class: class.to_owned(),
        reason: "for a test".to_owned(),
        attempts: 5,
        first_failed_unix_us: 1_700_000_001_000_000,
        failed_unix_us: 1_700_000_002_500_000,
        position: Position { commit_lsn: Lsn::from_wire(0x16_B374_D848), ordinal: 0 },
        ..DeadLetterCause::default()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Event {
    pub(crate) exchange: String,
    pub(crate) topic: String,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) id: String,
    pub(crate) event_type: Option<String>,
    pub(crate) content_type: Option<String>,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) is_letter: bool,
}

impl Event {
    pub(crate) fn new(topic: &str, id: impl Into<String>) -> Event {
        let id = id.into();
        let value = Some(id.clone().into_bytes());
        Event { topic: topic.to_owned(), value, id, ..Event::default() }
    }

    pub(crate) fn keyed(self, key: impl AsRef<[u8]>) -> Event {
        Event { key: Some(key.as_ref().to_vec()), ..self }
    }

    pub(crate) fn with_outbound<T>(&self, give: impl FnOnce(&Outbound<'_>) -> T) -> T {
        let headers: Vec<(&str, &[u8])> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        give(&Outbound {
            exchange: &self.exchange,
            topic: &self.topic,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            id: &self.id,
            event_type: self.event_type.as_deref(),
            content_type: self.content_type.as_deref(),
            headers: &headers,
            commit_unix_us: 1_700_000_000_000_000,
            partition: None,
        })
    }
}

/// The part of the relay that drives a sink, with checks on what the sink reports.
pub(crate) struct TestRelay {
    broker: Arc<dyn Broker>,
    sink: Option<Box<dyn Sink>>,
    next: Sequence,
    events: BTreeMap<Sequence, Event>,
    /// The events that were not yet given to the sink that is in use.
    backlog: BTreeSet<Sequence>,
    /// The events that are to be published alone.
    suspects: BTreeSet<Sequence>,
    pub(crate) refused: BTreeMap<Sequence, Failure>,
    /// The events that the sink did not even take.
    untaken: BTreeSet<Sequence>,
    /// Every failure that was told, in order.
    pub(crate) failures: Vec<(Sequence, Failure)>,
    /// In the order in which they were told.
    pub(crate) confirmed: Vec<Sequence>,
    settled: HashMap<Sequence, &'static str>,
    /// Reachable and unreachable, in the order in which they were told.
    pub(crate) reachability: Vec<bool>,
    /// Why no event will ever pass.
    pub(crate) unable: Option<Failure>,
    /// How often a sink has lost track.
    pub(crate) sinks_lost: usize,
    /// After a failure nothing more is handed over, and no other sink is opened: as the relay does
    /// that stops.
    pub(crate) halts: bool,
}

impl TestRelay {
    pub(crate) fn open(broker: Arc<dyn Broker>) -> TestRelay {
        let (required, stop) = (Requirements::default(), AtomicBool::new(false));
        let first = StartupCheck { required: &required, stop: &stop };
        let sink = broker.open(Some(&first)).unwrap_or_else(|faults| panic!("{faults:?}"));
        TestRelay {
            broker,
            sink: Some(sink),
            next: 0,
            events: BTreeMap::new(),
            backlog: BTreeSet::new(),
            suspects: BTreeSet::new(),
            refused: BTreeMap::new(),
            untaken: BTreeSet::new(),
            failures: Vec::new(),
            confirmed: Vec::new(),
            settled: HashMap::new(),
            reachability: Vec::new(),
            unable: None,
            sinks_lost: 0,
            halts: false,
        }
    }

    /// Hands an event over, or says why not.
    pub(crate) fn offer(&mut self, event: &Event) -> Result<Sequence, PublishError> {
        let sequence = self.next;
        let sink = self.sink.as_mut().expect("a sink");
        event.with_outbound(|outbound| sink.publish(sequence, outbound))?;
        self.next += 1;
        self.events.insert(sequence, event.clone());
        Ok(sequence)
    }

    /// Hands an event over, waiting for room. A refusal counts as told.
    pub(crate) fn publish(&mut self, event: &Event) -> Sequence {
        let sequence = self.next;
        self.next += 1;
        self.events.insert(sequence, event.clone());
        self.backlog.insert(sequence);
        self.hand_over();
        let began = Instant::now();
        while !self.has_halted() && (self.in_flight() >= WINDOW || self.backlog.contains(&sequence))
        {
            assert!(began.elapsed() < LIMIT, "no room for event {sequence} within {LIMIT:?}");
            self.poll(PATIENCE);
        }
        sequence
    }

    /// Events that were handed over and may still be confirmed.
    pub(crate) fn in_flight(&self) -> usize {
        self.events.len() - self.refused.len()
    }

    /// Gives the sink what it has not got, in order.
    fn hand_over(&mut self) {
        while let Some(&sequence) = self.backlog.first() {
            if self.has_halted() {
                return;
            }
            let sink = self.sink.as_mut().expect("a sink");
            let event = &self.events[&sequence];
            let alone = self.suspects.contains(&sequence);
            let outcome = event.with_outbound(|outbound| match alone {
                _ if event.is_letter => sink.publish_dead_letter(sequence, outbound),
                true => sink.publish_alone(sequence, outbound),
                false => sink.publish(sequence, outbound),
            });
            match outcome {
                Ok(()) => {}
                Err(PublishError::QueueFull) => return,
                Err(PublishError::Failed(failure))
                    if failure.disposition == Disposition::Outage =>
                {
                    return self.reopen();
                }
                Err(PublishError::Failed(failure)) => {
                    self.untaken.insert(sequence);
                    self.failed(sequence, failure);
                }
            }
            self.backlog.remove(&sequence);
        }
    }

    fn has_halted(&self) -> bool {
        self.halts && !self.failures.is_empty()
    }

    /// The sink has lost track: the next one gets what is open.
    pub(crate) fn reopen(&mut self) {
        self.sink = None;
        self.sinks_lost += 1;
        self.refused.clear();
        self.untaken.clear();
        self.backlog = self.events.keys().copied().collect();
        self.sink = Some(self.broker.open(None).unwrap_or_else(|faults| panic!("{faults:?}")));
    }

    /// Collects what the sink has to tell.
    pub(crate) fn poll(&mut self, patience: Duration) {
        let mut reports = Vec::new();
        self.sink.as_mut().expect("a sink").poll(Instant::now(), patience, &mut reports);
        let mut lost_track = false;
        for item in reports {
            match item {
                SinkReport::Confirmed(sequence) => self.settle_one(sequence),
                SinkReport::Failed(_, failure) if failure.disposition == Disposition::Outage => {
                    lost_track = true;
                }
                SinkReport::Failed(sequence, failure) => self.failed(sequence, failure),
                SinkReport::Reachable => self.reachability.push(true),
                SinkReport::Unreachable(_) | SinkReport::LoginRefused(_) => {
                    self.reachability.push(false);
                }
                SinkReport::Suspect(sequence) => {
                    assert!(self.events.contains_key(&sequence), "{sequence} is not in flight");
                    self.suspects.insert(sequence);
                }
                SinkReport::Broken(_) => lost_track = true,
                SinkReport::Unable(failure) => self.unable = Some(failure),
            }
        }
        if lost_track && !self.has_halted() {
            self.reopen();
        }
        self.hand_over();
    }

    fn settle_one(&mut self, sequence: Sequence) {
        let before = self.settled.insert(sequence, "confirmed");
        assert_eq!(before, None, "event {sequence} was confirmed, and settled before");
        let known = self.events.remove(&sequence);
        assert!(known.is_some(), "event {sequence} was confirmed and is not in flight");
        assert!(!self.backlog.contains(&sequence), "event {sequence} was not even handed over");
        self.confirmed.push(sequence);
    }

    fn failed(&mut self, sequence: Sequence, failure: Failure) {
        assert!(self.events.contains_key(&sequence), "event {sequence} failed: not in flight");
        self.failures.push((sequence, failure.clone()));
        let before = self.refused.insert(sequence, failure);
        assert_eq!(before, None, "event {sequence} failed twice");
    }

    /// Asks for a refused event to be published again.
    pub(crate) fn retry(&mut self, sequence: Sequence) {
        let failed = self.refused.remove(&sequence);
        assert!(failed.is_some(), "event {sequence} has not failed");
        self.sink.as_mut().expect("a sink").retry(sequence);
    }

    /// Asks for the dead letter of a refused event.
    pub(crate) fn replace_with_dead_letter(
        &mut self,
        sequence: Sequence,
        writer: &DeadLetterWriter,
        cause: &DeadLetterCause,
    ) {
        let failed = self.refused.remove(&sequence);
        assert!(failed.is_some(), "event {sequence} has not failed");
        let sink = self.sink.as_mut().expect("a sink");
        if !self.untaken.remove(&sequence) {
            return sink.replace_with_dead_letter(sequence, writer, cause);
        }
        let published = self.events[&sequence].with_outbound(|event| {
            writer.compose(event, cause, |letter| sink.publish_dead_letter(sequence, letter))
        });
        published.expect("room for a dead letter");
    }

    pub(crate) fn forget_refused(&mut self) {
        for sequence in std::mem::take(&mut self.refused).into_keys() {
            self.events.remove(&sequence);
            self.settled.insert(sequence, "given up");
        }
    }

    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, done: impl Fn(&TestRelay) -> bool) {
        let began = Instant::now();
        while !done(self) {
            self.poll(PATIENCE);
            assert!(
                began.elapsed() < LIMIT || done(self),
                "not within {LIMIT:?}: {what}; in flight {:?}…, refused {:?}",
                self.events.keys().take(5).collect::<Vec<_>>(),
                self.refused
            );
        }
    }

    #[track_caller]
    pub(crate) fn settle(&mut self) {
        self.until("everything is settled", |relay| relay.in_flight() == 0);
    }

    /// Ends the sink; says how long that took.
    pub(crate) fn end(&mut self) -> Duration {
        let began = Instant::now();
        self.sink = None;
        began.elapsed()
    }
}
