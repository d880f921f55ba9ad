//! A dead-letter topic at the memory broker, and a clock that only goes on when it is looked at.

use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::archive::Archive;
use crate::letter::{Address, Cause, DeadLetterSettings, Mailbox};
use crate::lsn::Lsn;
use crate::message::{Outbound, Position};
use crate::sink::memory::{Arrived, MemoryBroker, MemorySettings};
use crate::sink::{Broker, Disposition, Failure, Sink};

pub(super) const SECOND: i64 = 1_000_000;
/// When the first letter was given up.
pub(super) const BEGAN: i64 = 1_000 * SECOND;

/// One letter to be written.
#[derive(Clone, Copy)]
pub(super) struct Spec<'a> {
    pub(super) id: &'a str,
    pub(super) key: Option<&'a str>,
    pub(super) topic: &'a str,
    pub(super) class: &'a str,
    pub(super) value: &'a str,
    pub(super) failed_unix_us: i64,
    pub(super) parks_key: bool,
    pub(super) incomplete: bool,
    pub(super) ordinal: u64,
}

impl Default for Spec<'_> {
    fn default() -> Self {
        Spec {
            id: "e",
            key: Some("k"),
            topic: "orders",
            class: "unroutable",
            value: "payload",
            failed_unix_us: BEGAN,
            parks_key: false,
            incomplete: false,
            ordinal: 0,
        }
    }
}

pub(super) struct Bed {
    pub(super) broker: MemoryBroker,
    settings: MemorySettings,
    address: Address,
    pub(super) stop: AtomicBool,
    now: Cell<i64>,
}

impl Bed {
    pub(super) fn new() -> Bed {
        let broker = MemoryBroker::default();
        Bed {
            settings: MemorySettings { broker: Some(broker.clone()) },
            broker,
            address: DeadLetterSettings::default().address,
            stop: AtomicBool::new(false),
            now: Cell::new(BEGAN),
        }
    }

    pub(super) fn archive(&self) -> Archive<'_> {
        Archive { broker: &self.settings, address: &self.address, stop: &self.stop }
    }

    /// Ten milliseconds later each time.
    pub(super) fn clock(&self) -> i64 {
        self.now.set(self.now.get() + 10_000);
        self.now.get()
    }

    /// A second later each time.
    pub(super) fn fast_clock(&self) -> i64 {
        self.now.set(self.now.get() + SECOND);
        self.now.get()
    }

    pub(super) fn elapsed_us(&self) -> i64 {
        self.now.get() - BEGAN
    }

    /// Writes a letter as the relay would.
    pub(super) fn write(&self, spec: Spec<'_>) {
        let settings = DeadLetterSettings { value_bytes_max: 16, ..DeadLetterSettings::default() };
        let mailbox = Mailbox { settings, relay: "relay".to_owned() };
        let cause = Cause {
            class: spec.class.to_owned(),
            reason: "nobody wants it".to_owned(),
            attempts: 5,
            first_failed_unix_us: spec.failed_unix_us,
            failed_unix_us: spec.failed_unix_us,
            position: Position { commit_lsn: Lsn::from_wire(1), ordinal: spec.ordinal },
            incomplete: spec.incomplete,
            parks_key: spec.parks_key,
        };
        let event = Outbound {
            exchange: "",
            topic: spec.topic,
            key: spec.key.map(str::as_bytes),
            value: Some(spec.value.as_bytes()),
            id: spec.id,
            event_type: None,
            content_type: None,
            headers: &[("id", spec.id.as_bytes())],
            commit_unix_us: 1,
            partition: None,
        };
        mailbox.letter(&event, &cause, |letter| self.publish(letter));
    }

    /// `count` letters `e0`, `e1`, ... of the keys 0 to 4, a second apart.
    pub(super) fn write_many(&self, count: i64) {
        for n in 0..count {
            let (id, key) = (format!("e{n}"), (n % 5).to_string());
            let failed_unix_us = BEGAN + n * SECOND;
            self.write(Spec { id: &id, key: Some(&key), failed_unix_us, ..Spec::default() });
        }
    }

    /// Writes anything.
    pub(super) fn publish(&self, record: &Outbound<'_>) {
        let mut sink: Box<dyn Sink> = self.settings.open(None).unwrap();
        sink.publish(0, record).unwrap();
        sink.poll(Duration::ZERO, &mut Vec::new());
    }

    /// Event ids that have arrived at a topic, in order.
    pub(super) fn ids(&self, topic: &str) -> Vec<String> {
        let arrived = self.broker.arrived().into_iter().filter(|event| event.topic == topic);
        arrived.map(|event| event.id).collect()
    }

    /// What has been written to the log behind the first `letters` records.
    pub(super) fn written_behind(&self, letters: usize) -> Vec<Arrived> {
        let arrived = self.broker.arrived().into_iter();
        arrived.filter(|event| event.topic == self.address.topic).skip(letters).collect()
    }

    /// Open letters.
    pub(super) fn open(&self) -> usize {
        let stop = AtomicBool::new(false);
        let archive = Archive { stop: &stop, ..self.archive() };
        archive.index(&super::filter::Filter::default()).unwrap().fold.open()
    }
}

pub(super) fn failure() -> Failure {
    Failure {
        disposition: Disposition::Transient,
        known: true,
        key: None,
        class: "rabbitmq.no-route".to_owned(),
        subject: "orders".to_owned(),
        reason: "no queue is bound".to_owned(),
        mend: "bind one".to_owned(),
    }
}

pub(super) fn header(event: &Arrived, name: &str) -> Option<String> {
    let found = event.headers.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
}
