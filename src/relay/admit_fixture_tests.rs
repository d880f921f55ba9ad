//! A core with its sink and its broker, driven by hand.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::super::*;
use crate::config;
use crate::dead_letter::tail_event::TailEvent;
use crate::dead_letter::writer;
use crate::pgoutput::encoder::Encoder;
use crate::sink::memory::{Arrived, MemoryBroker, MemorySettings};
use crate::sink::{Broker as _, Disposition, News};

/// A core, its sink and its broker, driven by hand.
pub(crate) struct World {
    pub(crate) core: Core,
    pub(crate) sink: Box<dyn Sink>,
    pub(crate) broker: MemoryBroker,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) now: Moment,
    /// Number of the next transaction.
    next: u64,
    pub(crate) crash_file: PathBuf,
}

impl Drop for World {
    fn drop(&mut self) {
        std::fs::remove_file(&self.crash_file).ok();
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

impl World {
    pub(crate) fn unread(settings: &[&str]) -> World {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("walrelay-core-{}-{serial}.crash", std::process::id());
        let crash_file = std::env::temp_dir().join(name);
        let fixed = [
            "source.url=postgres://u@db/app",
            "source.messages.prefix=outbox",
            "route.topic=${topic}",
            "sink.kind=memory",
            &format!("delivery.crash_file={}", crash_file.display()),
        ];
        let settings = fixed.iter().chain(settings).map(|&it| it.to_owned()).collect();
        let request = config::Request { settings, ..config::Request::default() };
        let config = config::load(&request).unwrap().config;
        let metrics = Arc::new(Metrics::new());
        let mailbox = DeadLetterWriter { settings: config.dead_letter, relay: "test".to_owned() };
        let mut core = Core::new(&config.source, &config.delivery, mailbox, &metrics).unwrap();
        core.crash.takes_over("1", 1, "walrelay");
        let broker = MemoryBroker::default();
        let sink = open(&broker);
        let now = Moment::now();
        World { core, sink, broker, metrics, now, next: 1, crash_file }
    }

    /// One that knows the dead-letter topic.
    pub(crate) fn new(settings: &[&str]) -> World {
        let mut world = World::unread(settings);
        world.hear(TailEvent::CaughtUp).unwrap();
        world
    }

    pub(crate) fn hear(&mut self, news: TailEvent) -> Result<(), Fault> {
        self.core.undertaker.hear(news, Some(&mut self.sink), self.now)
    }

    pub(crate) fn give(&mut self, bytes: &[u8]) -> Result<Taken, Fault> {
        let message = Message::parse(bytes).unwrap();
        self.core.progress.on_wal(Lsn::from_wire(u64::MAX));
        self.core.message(message, &mut *self.sink)
    }

    /// One transaction; what became of its last event.
    pub(crate) fn commit(&mut self, events: &[Event<'_>]) -> Result<Taken, Fault> {
        let number = self.next;
        let taken = self.receive(number, events)?;
        self.next += 1;
        Ok(taken)
    }

    /// A transaction that may have come before.
    pub(crate) fn receive(&mut self, number: u64, events: &[Event<'_>]) -> Result<Taken, Fault> {
        self.give(&Encoder::tag(b'B').u64(number * 100).u64(0).u32(1).0)?;
        let mut last = Taken::Yes;
        for event in events {
            let content = content(event);
            let head = Encoder::tag(b'M').u8(1).u64(0).cstr("outbox");
            last = self.give(&head.u32(content.len() as u32).bytes(&content).0)?;
            if last != Taken::Yes {
                self.core.interrupt();
                return Ok(last);
            }
        }
        let commit = Encoder::tag(b'C').u8(0).u64(number * 100).u64(number * 100 + 1).u64(0);
        self.give(&commit.0)?;
        Ok(last)
    }

    /// Takes in all that the sink has to tell, and what follows from it; the first fault.
    pub(crate) fn settle(&mut self) -> Result<Vec<Fate>, Fault> {
        let (mut outcome, mut news) = (Ok(Vec::new()), Vec::new());
        loop {
            self.sink.poll(Duration::ZERO, &mut news);
            if news.is_empty() {
                return outcome;
            }
            for item in news.drain(..) {
                let told = match item {
                    News::Confirmed(sequence) => {
                        self.core.confirmed(sequence, self.now.unix_us).map(|_| None)
                    }
                    News::Failed(sequence, failure) => {
                        let sink = &mut *self.sink;
                        self.core.failed(sequence, failure, sink, self.now).map(Some)
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
            let Some(sequence) = self.core.take_due(self.now.instant) else { return Ok(()) };
            self.sink.retry(sequence);
        }
    }

    /// The sink is built anew: the same is received again, from `first` on.
    pub(crate) fn rebuild(&mut self) {
        self.sink = open(&self.broker);
        self.core.interrupt();
        self.core.rewind();
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
        self.core.reportable().to_wire() / 100
    }
}

pub(crate) fn open(broker: &MemoryBroker) -> Box<dyn Sink> {
    MemorySettings { broker: Some(broker.clone()) }.open(None).unwrap()
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
