//! The topics of a consumer.

use std::sync::OnceLock;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Header, Headers as _, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::{Offset, TopicPartitionList};
use walrelay_harness::consumer::{create_topic, end_offsets};
use walrelay_harness::{Kafka, KafkaOptions};
use walrelay_inbox::Source;

use crate::support::{LIMIT, Letter, TestBroker, until};

pub(super) const PARTITIONS: i32 = 3;

/// A consumer named as its topic and its database.
pub(super) type Fixture = crate::support::Fixture<KafkaBroker>;

pub(super) fn shared_kafka() -> &'static Kafka {
    static KAFKA: OnceLock<Kafka> = OnceLock::new();
    KAFKA.get_or_init(start_kafka)
}

/// Group members that were killed are noticed soon.
pub(super) fn start_kafka() -> Kafka {
    let extra = "group.min.session.timeout.ms=1000".to_owned();
    Kafka::start_with(&KafkaOptions { extra, ..KafkaOptions::default() }).unwrap()
}

/// A source of the inbox with short timeouts.
pub(super) fn source(brokers: &str, topic: &str) -> walrelay_inbox::Kafka {
    walrelay_inbox::Kafka::new(brokers, [topic])
        .property("session.timeout.ms", "2000")
        .property("heartbeat.interval.ms", "300")
        .property("topic.metadata.refresh.interval.ms", "1000")
}

pub(crate) struct KafkaBroker {
    brokers: String,
    producer: BaseProducer,
}

impl TestBroker for KafkaBroker {
    const LETTER: &str = "k";
    // The due time has whole milliseconds.
    const DUE_EARLIER_MAX: Duration = Duration::from_millis(2);
    const BROKER_HEADERS: &[(&str, &str)] = &[];
    const FORGED_REPLAY: &[(&str, &str)] = &[];

    fn shared_url() -> String {
        shared_kafka().bootstrap()
    }

    fn source(brokers: &str, name: &str) -> impl Into<Source> {
        source(brokers, name)
    }

    fn open(brokers: &str, name: &str) -> KafkaBroker {
        create_topic(brokers, name, PARTITIONS, &[]).unwrap();
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", brokers).set("partitioner", "murmur2_random");
        config.set("linger.ms", "0").set("enable.idempotence", "true");
        KafkaBroker { brokers: brokers.to_owned(), producer: config.create().unwrap() }
    }

    /// To a topic, which may be one of a retry level.
    fn send(&self, topic: &str, headers: &[(&str, &str)], value: &str) {
        let mut record: BaseRecord<'_, str, str> = BaseRecord::to(topic).payload(value);
        let mut all = OwnedHeaders::new();
        for (name, value) in headers {
            match *name {
                "key" => record.key = Some(value),
                key => all = all.insert(Header { key, value: Some(*value) }),
            }
        }
        self.producer.send(record.headers(all)).map_err(|(error, _)| error).unwrap();
    }

    fn replay(&self, name: &str, id: &str, value: &str) {
        let own = [("dlq-replay-count", "1"), ("dlq-replay-for", name)];
        self.send(name, &[[("key", "a"), ("id", id)], own].concat(), value);
    }

    fn origin(name: &str) -> (&str, &str) {
        (name, "")
    }

    fn wait_dead_letters(&self, name: &str, count: usize) -> Vec<Letter> {
        until("there are dead letters", || {
            Some(self.records(&format!("{name}.dlq"))).filter(|letters| letters.len() >= count)
        })
    }

    fn assert_acknowledged(&self, name: &str, messages: usize) {
        assert_eq!(self.committed(name), messages as i64);
    }
}

impl KafkaBroker {
    pub(super) fn flush(&self) {
        self.producer.flush(LIMIT).unwrap();
    }

    /// All records of a topic.
    fn records(&self, topic: &str) -> Vec<Letter> {
        let ends = end_offsets(&self.brokers, topic).unwrap();
        let consumer = self.consumer("reader");
        let mut list = TopicPartitionList::new();
        for partition in ends.keys() {
            list.add_partition_offset(topic, *partition, Offset::Beginning).unwrap();
        }
        consumer.assign(&list).unwrap();
        let count = ends.values().sum::<i64>();
        let mut records = Vec::new();
        until("all records are read", || {
            if let Some(Ok(record)) = consumer.poll(Duration::from_millis(100)) {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let key = record.key().map(|key| ("key".to_owned(), text(key)));
                let headers = record.headers().into_iter().flat_map(|headers| headers.iter());
                let headers =
                    headers.map(|it| (it.key.to_owned(), text(it.value.unwrap_or_default())));
                let value = text(record.payload().unwrap_or_default());
                records.push(Letter { value, headers: key.into_iter().chain(headers).collect() });
            }
            (records.len() as i64 >= count).then_some(())
        });
        records
    }

    /// How many records of its topic the group has committed.
    fn committed(&self, name: &str) -> i64 {
        let mut list = TopicPartitionList::new();
        for partition in 0..PARTITIONS {
            list.add_partition(name, partition);
        }
        let committed = self.consumer(name).committed_offsets(list, LIMIT).unwrap();
        let offset = |offset| if let Offset::Offset(offset) = offset { offset } else { 0 };
        committed.elements().iter().map(|found| offset(found.offset())).sum()
    }

    fn consumer(&self, group: &str) -> BaseConsumer {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers).set("group.id", group);
        config.set("enable.auto.commit", "false").create().unwrap()
    }
}

impl Fixture {
    pub(super) fn dead_letters(&self) -> Vec<Letter> {
        self.wait_dead_letters(0)
    }

    pub(super) fn committed(&self) -> i64 {
        self.broker.committed(&self.name)
    }

    pub(super) fn wait_committed(&self, count: i64) {
        until(&format!("{count} offsets are committed"), || {
            (self.committed() >= count).then_some(())
        });
        assert_eq!(self.committed(), count);
    }
}
