//! A relay that reads a slot, with its sink and its broker in the process, driven by hand.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use walrelay_core::base::clock::Moment;
use walrelay_core::base::random::Random;
use walrelay_core::pgoutput::message::Message;
use walrelay_core::relay::admit::Admission;
use walrelay_core::relay::failure_policy::FailureOutcome;
use walrelay_core::relay::feed::slot::replication::{IntakeStop, PacketOutcome, Replication};
use walrelay_core::relay::feed::{Downstream, Feed as _};
use walrelay_core::relay::ports::{Clock as _, Meters};
use walrelay_core::relay::state_file::StateFile;
use walrelay_core::relay::state_file::marks::SlotSession;
use walrelay_core::relay::testing::BROKER;
use walrelay_core::source::progress::Signature;
use walrelay_core::trace::event_spans::EventSpans;

use crate::base::clock::SystemClock;
use crate::base::error::Fault;
use crate::base::event::Sequence;
use crate::base::lsn::Lsn;
use crate::base::runtime;
use crate::config;
use crate::dead_letter::tail_event::{self, ReadRequests, TailEvent};
use crate::dead_letter::writer::{self, DeadLetterWriter};
use crate::health;
use crate::metrics::{IntakeHold, Metrics};
use crate::pgoutput::encoder::Encoder;
use crate::relay::control::{Control, StopFlags};
use crate::relay::stops;
use crate::relay::{FactsRecorder, Parts, PassCounts, ReadBack, Relay, SlotFeed, open_state_file};
use crate::sink::testing::{Arrived, MemoryBroker};
use crate::sink::{Broker as _, Disposition, Failure, Sink, SinkReport};
use crate::source::settings::SourceSettings;

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

/// The packet waits for this.
pub(crate) fn held(why: IntakeHold) -> PacketOutcome {
    PacketOutcome::Stopped(IntakeStop::Held(why))
}

/// An event as a logical message: id, topic, key.
pub(crate) type Event<'a> = (&'a str, &'a str, &'a str);

fn packet((id, topic, key): &Event<'_>) -> Vec<u8> {
    let topic = if topic.is_empty() { "null".to_owned() } else { format!("{topic:?}") };
    let content = format!(
        "{{\"id\": {id:?}, \"topic\": {topic}, \"aggregateid\": {key:?}, \"payload\": {{\"n\": 1}}}}"
    );
    let head = Encoder::tag(b'M').u8(1).u64(0).cstr("outbox");
    head.u32(content.len() as u32).bytes(content.as_bytes()).0
}

/// No session ever opens.
fn no_database(source: &SourceSettings) -> Control {
    // Nothing drives this runtime.
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| runtime::current_thread().unwrap());
    Control {
        runtime: RUNTIME.handle().clone(),
        source: Arc::new(source.clone()),
        known: Arc::default(),
        sightings: Arc::default(),
    }
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
        let stops = stops::unkept(&config.source);
        let meters = Arc::clone(&metrics) as Arc<dyn Meters>;
        let flags = Arc::<StopFlags>::default();
        let database = Box::new(no_database(&config.source));
        let recorder = health::facts(0).0;
        let parts = Parts {
            source: config.source,
            delivery: config.delivery.clone(),
            read_back: ReadBack::default(),
            sink_factory: Box::new({
                let broker = broker.clone();
                move || Ok(open(&broker))
            }),
            dead_letter_writer,
            spans: EventSpans::default(),
            tail_events: Some(tail_event::channel().1),
            tail_requests: ReadRequests::default(),
            stops,
            flags,
            state_file: open_state_file(config.delivery.state_file.as_deref(), "walrelay").unwrap(),
            meters,
            pass_meter: Box::new(PassCounts::new(&metrics)),
            recorder: Box::new(FactsRecorder { recorder, origin: Instant::now() }),
            clock: Arc::new(SystemClock),
            random: Random::new(2),
        };
        let feed = SlotFeed::new(database, Arc::default(), Signature::default(), &parts).unwrap();
        let relay = Relay::new(parts, feed).unwrap();
        let now = SystemClock.now();
        let mut fixture = Fixture { relay, broker, metrics, now, next: 1, state_file };
        // This process takes the slot, and knows its broker.
        let (feed, Downstream { admitter, .. }) = fixture.relay.inside();
        admitter.state_file.marks.broker(BROKER);
        let claim = admitter.take_over(("1", 1), "walrelay", 0, SlotSession::default());
        claim.into_iter().for_each(|it| feed.replication().prefixes.claim(it));
        fixture
    }

    pub(crate) fn down(&mut self) -> &mut Downstream {
        self.relay.inside().1
    }

    pub(crate) fn replication(&mut self) -> &mut Replication {
        self.relay.inside().0.replication()
    }

    pub(crate) fn set_sink(&mut self, sink: Box<dyn Sink>) {
        self.down().driver.sink = Some(sink);
    }

    pub(crate) fn sink(&mut self) -> &mut dyn Sink {
        &mut **self.down().driver.sink.as_mut().unwrap()
    }

    /// Does the relay expect no further confirm?
    pub(crate) fn is_settled(&mut self) -> bool {
        self.replication().flights.events() <= self.down().policy.unpublishable
    }

    pub(crate) fn peers_confirmed(&mut self, floor: u64) {
        let (feed, down) = self.relay.inside();
        let floor = Lsn::from_wire(floor);
        feed.replication().taken_over(floor, &mut down.admitter, &mut down.policy);
    }

    /// A session begins, before which everything before `floor` was confirmed.
    pub(crate) fn begin_session(&mut self, floor: u64) {
        let (floor, replication) = (Lsn::from_wire(floor), self.replication());
        replication.start_at(floor, floor, 0, i64::MAX, replication.progress.seen());
        replication.transactions.begin_session(floor);
        replication.progress.on_connected(floor);
    }

    /// The broker has confirmed this event.
    pub(crate) fn confirmed(&mut self, sequence: Sequence) {
        self.relay.confirmed(sequence, self.now).unwrap();
    }

    pub(crate) fn take_due(&mut self) -> Option<Sequence> {
        let (feed, down) = self.relay.inside();
        let (next, has_room) = feed.next();
        down.policy.retries.take_due(self.now.instant, next, has_room)
    }

    /// The process is killed; the next one has its state file and its broker.
    pub(crate) fn successor(mut self) -> Fixture {
        self.down().admitter.state_file = StateFile::default();
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
        self.relay.on_tail_event(news, self.now)
    }

    pub(crate) fn give(&mut self, bytes: &[u8]) -> Result<PacketOutcome, Fault> {
        let message = Message::parse(bytes).unwrap();
        let (feed, down) = self.relay.inside();
        feed.replication().progress.on_wal(Lsn::from_wire(u64::MAX));
        let sink = &mut **down.driver.sink.as_mut().unwrap();
        let Downstream { admitter, policy, meter, clock, .. } = down;
        let (meter, clock) = (&mut **meter, &**clock);
        let admission = &mut Admission { admitter, policy, sink, meter, clock };
        feed.replication().message(message, admission)
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
        self.replication().transactions.begin_session(Lsn::from_wire(number * 100));
        self.give(&Encoder::tag(b'B').u64(number * 100).u64(0).u32(number as u32).0)?;
        let mut last = PacketOutcome::Done;
        for event in events {
            last = self.give(&packet(event))?;
            if last != PacketOutcome::Done {
                self.replication().transactions.interrupt();
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
            let packet = packet(event);
            let mut taken = self.give(&packet).unwrap();
            while matches!(taken, PacketOutcome::Stopped(IntakeStop::Held(_))) {
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
                let (feed, down) = self.relay.inside();
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
        let (feed, down) = self.relay.inside();
        feed.replication().transactions.interrupt();
        feed.replication().rewind(&mut down.policy);
    }

    pub(crate) fn letters(&self) -> Vec<Arrived> {
        self.broker.arrived().into_iter().filter(|event| event.topic == "outbox.dlq").collect()
    }

    /// A header of each letter.
    pub(crate) fn letter_headers(&self, name: &str) -> Vec<String> {
        self.letters().iter().map(|letter| header(letter, name)).collect()
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
        mend: "mend it".to_owned(),
    }
}

pub(crate) fn pairs<'a>(expected: &[(&'a str, &'a str)]) -> Vec<(String, String)> {
    expected.iter().map(|(id, class)| ((*id).to_owned(), (*class).to_owned())).collect()
}
