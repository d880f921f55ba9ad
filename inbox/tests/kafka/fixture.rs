//! A topic, a database, and the consumer between them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Header, Headers as _, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::{Offset, TopicPartitionList};
use walrelay_harness::consumer::{create_topic, end_offsets};
use walrelay_harness::{Kafka, KafkaOptions, Postgres};
use walrelay_inbox::{Inbox, Settings};

use crate::support::{
    Calls, Database, LEVELS, LIMIT, Running, log, runtime, shared_postgres, until,
};

pub(super) const PARTITIONS: i32 = 3;

pub(super) fn shared_kafka() -> &'static Kafka {
    static KAFKA: OnceLock<Kafka> = OnceLock::new();
    KAFKA.get_or_init(|| start_kafka())
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

pub(super) fn settings(service: &str, url: &str) -> Settings {
    Settings::new(service, url).lanes(3).levels(LEVELS).stop_within(Duration::from_secs(5))
}

/// A consumer named as its topic and its database.
pub(super) struct Fixture {
    pub(super) name: String,
    pub(super) brokers: String,
    pub(super) database: Database,
    producer: BaseProducer,
}

/// A record as it was read back.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) key: Option<String>,
    pub(super) value: Option<String>,
    headers: Vec<(String, String)>,
}

impl Stored {
    pub(super) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }
}

impl Fixture {
    /// On the shared services, with all that `init` makes.
    pub(super) fn new(name: &str) -> Fixture {
        let fixture = Fixture::bare(name, shared_postgres(), &shared_kafka().bootstrap());
        fixture.init();
        fixture
    }

    /// With topic and database only.
    pub(super) fn bare(name: &str, postgres: &Postgres, brokers: &str) -> Fixture {
        log();
        create_topic(brokers, name, PARTITIONS, &[]).unwrap();
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", brokers).set("partitioner", "murmur2_random");
        config.set("linger.ms", "0").set("enable.idempotence", "true");
        Fixture {
            name: name.to_owned(),
            brokers: brokers.to_owned(),
            database: Database::new(postgres, name),
            producer: config.create().unwrap(),
        }
    }

    pub(super) fn settings(&self) -> Settings {
        settings(&self.name, &self.database.url)
    }

    pub(super) fn init(&self) {
        let inbox = Inbox::new(self.settings(), source(&self.brokers, &self.name));
        runtime(1).block_on(inbox.init()).unwrap();
    }

    pub(super) fn start(&self) -> Running {
        self.start_with(self.settings(), &Calls::new())
    }

    pub(super) fn start_with(&self, settings: Settings, calls: &Arc<Calls>) -> Running {
        Running::start(settings, source(&self.brokers, &self.name), calls)
    }

    /// A record of the consumer's topic, its id as header.
    pub(super) fn send(&self, key: &str, id: &str, value: &str) {
        self.send_to(&self.name, Some(key), value, &[("id", id)]);
    }

    pub(super) fn send_to(
        &self,
        topic: &str,
        key: Option<&str>,
        value: &str,
        headers: &[(&str, &str)],
    ) {
        let start = OwnedHeaders::new();
        let headers = headers
            .iter()
            .fold(start, |all, (key, value)| all.insert(Header { key, value: Some(*value) }));
        let mut record: BaseRecord<'_, str, str> =
            BaseRecord::to(topic).payload(value).headers(headers);
        record.key = key;
        self.producer.send(record).map_err(|(error, _)| error).unwrap();
    }

    pub(super) fn flush(&self) {
        self.producer.flush(LIMIT).unwrap();
    }

    /// All records of a topic.
    pub(super) fn records(&self, topic: &str) -> Vec<Stored> {
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
                let headers = record.headers().into_iter().flat_map(|headers| headers.iter());
                records.push(Stored {
                    key: record.key().map(text),
                    value: record.payload().map(text),
                    headers: headers
                        .map(|it| (it.key.to_owned(), text(it.value.unwrap_or_default())))
                        .collect(),
                });
            }
            (records.len() as i64 >= count).then_some(())
        });
        records
    }

    pub(super) fn dead_letters(&self) -> Vec<Stored> {
        self.records(&format!("{}.dlq", self.name))
    }

    pub(super) fn wait_dead_letters(&self, count: usize) -> Vec<Stored> {
        until("there are dead letters", || {
            let letters = self.dead_letters();
            (letters.len() >= count).then_some(letters)
        })
    }

    /// How many records of its topic the group has committed.
    pub(super) fn committed(&self) -> i64 {
        let mut list = TopicPartitionList::new();
        (0..PARTITIONS).for_each(|partition| drop(list.add_partition(&self.name, partition)));
        let committed = self.consumer(&self.name).committed_offsets(list, LIMIT).unwrap();
        let offset = |offset| if let Offset::Offset(offset) = offset { offset } else { 0 };
        committed.elements().iter().map(|found| offset(found.offset())).sum()
    }

    pub(super) fn wait_committed(&self, count: i64) {
        until(&format!("{count} offsets are committed"), || {
            (self.committed() >= count).then_some(())
        });
        assert_eq!(self.committed(), count);
    }

    fn consumer(&self, group: &str) -> BaseConsumer {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers).set("group.id", group);
        config.set("enable.auto.commit", "false").create().unwrap()
    }
}
