//! A relay that reads a slot, with its sink and its broker in the process, driven by hand.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::super::*;
use crate::base::runtime;
use crate::config;
use crate::dead_letter::tail_event;
use crate::dead_letter::tail_event::{ReadRequests, TailEvent};
use crate::dead_letter::writer;
use crate::dead_letter::writer::DeadLetterWriter;
use crate::health;
use crate::metrics::Metrics;
use crate::pgoutput::encoder::Encoder;
use crate::relay::control::Control;
use crate::relay::failure_policy::{FailureOutcome, Moment};
use crate::relay::feed::Feed as _;
use crate::relay::feed::slot::SlotFeed;
use crate::relay::read_back::ReadBack;
use crate::relay::state_file::StateFile;
use crate::relay::stops::Stops;
use crate::relay::{Parts, Relay};
use crate::sink::testing::{Arrived, MemoryBroker};
use crate::sink::{Broker as _, Disposition, Failure, Sink, SinkReport};
use crate::trace::EventSpans;

pub(crate) struct Fixture {
    pub(crate) relay: Relay<SlotFeed>,
    pub(crate) broker: MemoryBroker,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) now: Moment,
    /// Number of the next transaction.
    next: u64,
    pub(crate) state_file: PathBuf,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        std::fs::remove_file(&self.state_file).ok();
    }
}

/// An event as a logical message: id, topic, key.
pub(crate) type Event<'a> = (&'a str, &'a str, &'a str);

fn content((id, topic, key): &Event<'_>) -> Vec<u8> {
    let topic = if topic.is_empty() { "null".to_owned() } else { format!("{topic:?}") };
    format!(
        "{{\"id\": {id:?}, \"topic\": {topic}, \"aggregateid\": {key:?}, \"payload\": {{\"n\": 1}}}}"
    )
    .into_bytes()
}

impl Fixture {
    pub(crate) fn unread(settings: &[&str]) -> Fixture {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("walrelay-core-{}-{serial}.state", std::process::id());
        let state_file = std::env::temp_dir().join(name);
        let fixed = [
            "source.url=postgres://u@db/app",
            "source.messages.prefix=outbox",
            "route.topic=${topic}",
            "sink.kind=memory",
            &format!("delivery.state_file={}", state_file.display()),
        ];
        let settings = fixed.iter().chain(settings).map(|&it| it.to_owned()).collect();
        let request = config::Request { settings, ..config::Request::default() };
        let config = config::load(&request).unwrap().config;
        let metrics = Arc::new(Metrics::new());
        let dead_letter_writer = DeadLetterWriter {
            settings: config.dead_letter,
            relay: "test".to_owned(),
            system: Default::default(),
        };
        let broker = MemoryBroker::default();
        // Nothing drives this runtime, so no session ever opens.
        static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| runtime::current_thread().unwrap());
        let stops = Stops::unkept(&config.source);
        let control = Control {
            runtime: RUNTIME.handle().clone(),
            source: Arc::new(config.source.clone()),
            known: Arc::default(),
            sightings: Arc::default(),
            stops: Arc::clone(&stops),
        };
        let counted = Arc::clone(&metrics);
        let feed = SlotFeed::new(control, &config.delivery, Arc::default(), counted).unwrap();
        let (_, tail_events) = tail_event::channel();
        let parts = Parts {
            source: config.source,
            delivery: config.delivery,
            read_back: ReadBack::default(),
            sink_factory: Box::new({
                let broker = broker.clone();
                move || Ok(open(&broker))
            }),
            dead_letter_writer,
            spans: EventSpans::default(),
            tail_events: Some(tail_events),
            tail_requests: ReadRequests::default(),
            stops,
            flags: Arc::default(),
            metrics: Arc::clone(&metrics),
            recorder: health::facts(0).0,
            origin: Instant::now(),
        };
        let mut relay = Relay::new(parts, feed).unwrap();
        let claim = relay.down.admitter.takes_over("1", 1, "walrelay", Lsn::ZERO);
        claim.into_iter().for_each(|it| relay.feed.replication.transaction.claim(it));
        Fixture { relay, broker, metrics, now: Moment::now(), next: 1, state_file }
    }

    pub(crate) fn replication(&mut self) -> &mut Replication {
        &mut self.relay.feed.replication
    }

    pub(crate) fn set_sink(&mut self, sink: Box<dyn Sink>) {
        self.relay.down.driver.sink = Some(sink);
    }

    pub(crate) fn sink(&mut self) -> &mut dyn Sink {
        &mut **self.relay.down.driver.sink.as_mut().unwrap()
    }

    /// Does the relay expect no further confirm?
    pub(crate) fn is_settled(&mut self) -> bool {
        self.replication().window.events() <= self.relay.down.policy.unpublishable
    }

    pub(crate) fn peers_confirmed(&mut self, floor: u64) {
        let Relay { feed, down, .. } = &mut self.relay;
        let floor = Lsn::from_wire(floor);
        feed.replication.taken_over(floor, &mut down.admitter, &mut down.policy);
    }

    /// A session begins, before which everything before `floor` was confirmed.
    pub(crate) fn begins_at(&mut self, floor: u64) {
        let (floor, replication) = (Lsn::from_wire(floor), self.replication());
        replication.starts_at(floor, 0, replication.progress.seen());
        replication.admitted.begins_at(floor);
        replication.progress.on_connected(floor);
    }

    /// Another timeline.
    pub(crate) fn forget(&mut self) {
        let Relay { feed, down, .. } = &mut self.relay;
        feed.replication.forget(&mut down.admitter, &mut down.policy);
    }

    /// The broker has confirmed this event.
    pub(crate) fn confirmed(&mut self, sequence: Sequence) {
        self.relay.confirmed(sequence, self.now).unwrap();
    }

    pub(crate) fn take_due(&mut self) -> Option<Sequence> {
        let (next, has_room) = self.relay.feed.next();
        self.relay.down.policy.retries.take_due(self.now.instant, next, has_room)
    }

    /// As if the process were another one.
    pub(crate) fn restart_state_file(&mut self) {
        let admitter = &mut self.relay.down.admitter;
        admitter.state_file = StateFile::default();
        admitter.state_file = StateFile::open(Some(&self.state_file), "walrelay").unwrap();
        admitter.takes_over("1", 1, "walrelay", Lsn::ZERO);
    }

    /// The process is killed; the next one has its state file and its broker.
    pub(crate) fn successor(mut self) -> Fixture {
        self.relay.down.admitter.state_file = StateFile::default();
        let state_file = std::mem::take(&mut self.state_file);
        let mut next = Fixture::new(&[&format!("delivery.state_file={}", state_file.display())]);
        next.state_file = state_file;
        next.broker = self.broker.clone();
        next.set_sink(open(&next.broker));
        next
    }

    /// One that knows the dead-letter topic.
    pub(crate) fn new(settings: &[&str]) -> Fixture {
        let mut world = Fixture::unread(settings);
        world.hear(TailEvent::CaughtUp).unwrap();
        world
    }

    pub(crate) fn hear(&mut self, news: TailEvent) -> Result<(), Fault> {
        let sink = self.relay.down.driver.sink.as_mut();
        self.relay.down.policy.on_tail_event(news, sink, self.now)
    }

    pub(crate) fn give(&mut self, bytes: &[u8]) -> Result<PacketOutcome, Fault> {
        let message = Message::parse(bytes).unwrap();
        let Relay { feed, down, .. } = &mut self.relay;
        feed.replication.progress.on_wal(Lsn::from_wire(u64::MAX));
        let sink = &mut **down.driver.sink.as_mut().unwrap();
        let (admitter, policy, meter) = (&mut down.admitter, &mut down.policy, &mut down.meter);
        feed.replication.message(message, &mut Admission { admitter, policy, sink, meter })
    }

    /// One transaction; what became of its last event.
    pub(crate) fn commit(&mut self, events: &[Event<'_>]) -> Result<PacketOutcome, Fault> {
        let number = self.next;
        let taken = self.receive(number, events)?;
        self.next += 1;
        Ok(taken)
    }

    /// A transaction that may have come before. The server sends nothing before it that came before.
    pub(crate) fn receive(
        &mut self,
        number: u64,
        events: &[Event<'_>],
    ) -> Result<PacketOutcome, Fault> {
        self.replication().admitted.begins_at(Lsn::from_wire(number * 100));
        self.give(&Encoder::tag(b'B').u64(number * 100).u64(0).u32(number as u32).0)?;
        let mut last = PacketOutcome::Done;
        for event in events {
            let content = content(event);
            let head = Encoder::tag(b'M').u8(1).u64(0).cstr("outbox");
            last = self.give(&head.u32(content.len() as u32).bytes(&content).0)?;
            if last != PacketOutcome::Done {
                self.replication().admitted.interrupt();
                return Ok(last);
            }
        }
        self.receive_commit(number);
        Ok(last)
    }

    /// The begin of a large transaction, as far as it is taken in without its commit.
    pub(crate) fn receive_part(&mut self, number: u64, events: &[Event<'_>]) -> PacketOutcome {
        self.give(&Encoder::tag(b'B').u64(number * 100).u64(0).u32(number as u32).0).unwrap();
        for event in events {
            let content = content(event);
            let head = Encoder::tag(b'M').u8(1).u64(0).cstr("outbox");
            let packet = head.u32(content.len() as u32).bytes(&content).0;
            let mut taken = self.give(&packet).unwrap();
            while taken == PacketOutcome::Stopped(IntakeStop::Full) {
                self.settle().unwrap();
                taken = self.give(&packet).unwrap();
            }
            if taken != PacketOutcome::Done {
                return taken;
            }
        }
        self.settle().unwrap();
        PacketOutcome::Done
    }

    /// Its commit.
    pub(crate) fn receive_commit(&mut self, number: u64) -> PacketOutcome {
        let commit = Encoder::tag(b'C').u8(0).u64(number * 100).u64(number * 100 + 1).u64(0);
        self.give(&commit.0).unwrap()
    }

    /// Takes in all that the sink has to tell, and what follows from it; the first fault.
    pub(crate) fn settle(&mut self) -> Result<Vec<FailureOutcome>, Fault> {
        let (mut outcome, mut reports) = (Ok(Vec::new()), Vec::new());
        loop {
            self.sink().poll(Instant::now(), Duration::ZERO, &mut reports);
            if reports.is_empty() {
                let Relay { feed, down, .. } = &mut self.relay;
                down.admitter.state_file.marks.write();
                let prefix = feed.confirmed_prefix();
                prefix.into_iter().for_each(|it| down.admitter.state_file.marks.prefix(it));
                return outcome;
            }
            for item in reports.drain(..) {
                let told = match item {
                    SinkReport::Confirmed(sequence) => {
                        self.relay.confirmed(sequence, self.now).map(|()| None)
                    }
                    SinkReport::Failed(sequence, failure) => {
                        self.relay.failed(sequence, failure, self.now).map(Some)
                    }
                    other => panic!("{other:?}"),
                };
                match (told, &mut outcome) {
                    (Ok(fate), Ok(fates)) => fates.extend(fate),
                    (Err(fault), Ok(_)) => outcome = Err(fault),
                    (_, Err(_)) => {}
                }
            }
        }
    }

    /// Lets every wait end, until nothing waits any more.
    pub(crate) fn wait_out(&mut self) -> Result<(), Fault> {
        loop {
            self.settle()?;
            self.now.instant += Duration::from_secs(60);
            self.now.unix_us += 1;
            let Some(sequence) = self.take_due() else { return Ok(()) };
            self.sink().retry(sequence);
        }
    }

    /// The sink is built anew: the same is received again, from `first` on.
    pub(crate) fn rebuild(&mut self) {
        self.set_sink(open(&self.broker));
        let Relay { feed, down, .. } = &mut self.relay;
        feed.replication.admitted.interrupt();
        feed.replication.rewind(&mut down.policy);
    }

    pub(crate) fn letters(&self) -> Vec<Arrived> {
        self.broker.arrived().into_iter().filter(|event| event.topic == "outbox.dlq").collect()
    }

    /// Ids and classes of the letters.
    pub(crate) fn fates(&self) -> Vec<(String, String)> {
        let fate = |letter: &Arrived| (letter.id.clone(), header(letter, writer::ERROR_CLASS));
        self.letters().iter().map(fate).collect()
    }

    /// Ids of what arrived where it should.
    pub(crate) fn published(&self) -> Vec<String> {
        let arrived = self.broker.arrived().into_iter();
        arrived.filter(|event| event.topic != "outbox.dlq").map(|event| event.id).collect()
    }

    /// How many transactions Postgres may forget.
    pub(crate) fn forgotten(&mut self) -> u64 {
        self.replication().reportable().to_wire() / 100
    }
}

pub(crate) fn open(broker: &MemoryBroker) -> Box<dyn Sink> {
    broker.clone().open(None).unwrap()
}

pub(crate) fn header(event: &Arrived, name: &str) -> String {
    let found = event.headers.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
}

pub(crate) fn failure(disposition: Disposition, class: &str) -> Failure {
    Failure {
        disposition,
        known: true,
        key: None,
        class: class.to_owned(),
        subject: "event".to_owned(),
        reason: "no".to_owned(),
        mend: String::new(),
    }
}

pub(crate) fn pairs<'a>(expected: &[(&'a str, &'a str)]) -> Vec<(String, String)> {
    expected.iter().map(|(id, class)| ((*id).to_owned(), (*class).to_owned())).collect()
}
