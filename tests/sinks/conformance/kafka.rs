//! A real Kafka with two listeners: one behind a proxy for the sink, one for the test's own eyes.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use walrelay::sink::Broker;
use walrelay_harness::proxy::Proxy;
use walrelay_harness::{Kafka, KafkaListener, KafkaOptions, consumer};

use super::fixture::{Arrived, SinkFixture};
use crate::sinks::section::Values;
use crate::sinks::test_relay::{Event, LIMIT};

/// Most bytes of a record here, so that one above them is refused by the broker and not before.
const RECORD_BYTES_MAX: usize = 2_000_000;

/// The suffix that makes the name of a missing topic of that of a place.
const LATER: &str = "-later";

pub(crate) struct KafkaFixture {
    kafka: Kafka,
    proxy: Proxy,
    /// Topics that were there, or came later.
    topics: Vec<String>,
}

impl KafkaFixture {
    pub(crate) fn start() -> KafkaFixture {
        let port = walrelay_harness::free_port().unwrap();
        let proxy = Proxy::start(port).unwrap();
        // A client is sent on to the address under which it came.
        let advertised_port = proxy.port;
        let listener =
            KafkaListener { name: "PROXIED", protocol: "PLAINTEXT", port, advertised_port };
        let options = KafkaOptions { listener: Some(listener), ..KafkaOptions::default() };
        let kafka = Kafka::start_with(&options).unwrap();
        KafkaFixture { kafka, proxy, topics: Vec::new() }
    }

    fn of(&self, place: &Event) -> Vec<String> {
        let both = [place.topic.clone(), format!("{}{LATER}", place.topic)];
        both.into_iter().filter(|topic| self.topics.contains(topic)).collect()
    }

    fn count_of(&self, topic: &str) -> usize {
        let ends = consumer::end_offsets(&self.kafka.bootstrap(), topic).unwrap();
        usize::try_from(ends.values().sum::<i64>()).unwrap()
    }

    fn take_from(&self, topic: &str) -> Vec<Arrived> {
        let (count, reader) = (self.count_of(topic), self.consumer());
        let mut assignment = TopicPartitionList::new();
        for partition in 0..4 {
            assignment.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
        }
        reader.assign(&assignment).unwrap();
        let mut taken = Vec::new();
        while taken.len() < count {
            let message = reader.poll(LIMIT).expect("a record in time").unwrap();
            taken.push(arrived(&message));
        }
        assert!(reader.poll(Duration::from_millis(50)).is_none(), "more than was counted");
        taken
    }

    fn consumer(&self) -> BaseConsumer {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.kafka.bootstrap()).set("group.id", "fixture");
        config.set("fetch.message.max.bytes", "8000000").set("fetch.wait.max.ms", "10");
        config.create().unwrap()
    }
}

impl SinkFixture for KafkaFixture {
    fn broker(&self) -> Arc<dyn Broker> {
        Values::default()
            .set("brokers", format!("127.0.0.1:{}", self.proxy.port))
            .set("properties.\"message.max.bytes\"", 8_000_000)
            .set("partitions", 4)
            .configure("kafka")
    }

    fn place(&mut self, name: &str) -> Event {
        let most = RECORD_BYTES_MAX.to_string();
        // The events are from long ago, and are to stay.
        let limit = [("max.message.bytes", most.as_str()), ("retention.ms", "-1")];
        consumer::create_topic(&self.kafka.bootstrap(), name, 4, &limit).unwrap();
        self.topics.push(name.to_owned());
        Event::new(name, "")
    }

    fn count(&mut self, place: &Event) -> usize {
        self.of(place).iter().map(|topic| self.count_of(topic)).sum()
    }

    /// Takes the records of a place; later ones stand behind earlier ones.
    fn take(&mut self, place: &Event) -> Vec<Arrived> {
        self.of(place).iter().flat_map(|topic| self.take_from(topic)).collect()
    }

    fn poison(&mut self, event: Event) -> Event {
        Event { value: Some(vec![b'x'; RECORD_BYTES_MAX + 1]), ..event }
    }

    fn refuse_for_now(&mut self, event: Event) -> Option<Event> {
        Some(Event { topic: format!("{}{LATER}", event.topic), ..event })
    }

    fn provide(&mut self, place: &Event) {
        self.place(&format!("{}{LATER}", place.topic));
    }

    fn lose_answers(&mut self) {
        self.proxy.lose_answers();
    }

    fn cut(&mut self) {
        self.proxy.cut();
    }

    fn stall(&mut self) {
        self.proxy.stall();
    }

    fn go_on(&mut self) {
        self.proxy.go_on();
    }

    fn kill(&mut self) {
        self.kafka.kill9().unwrap();
    }

    fn revive(&mut self) {
        self.kafka.start_again().unwrap();
    }

    fn connections(&self) -> usize {
        self.proxy.open()
    }
}

fn arrived(message: &BorrowedMessage<'_>) -> Arrived {
    let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
    let own = |header: rdkafka::message::Header<'_, &[u8]>| {
        (header.key.to_owned(), header.value.expect("a value").to_vec())
    };
    Arrived {
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers: headers.map(own).collect(),
    }
}
