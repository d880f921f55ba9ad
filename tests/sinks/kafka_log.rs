//! The dead-letter topic on Kafka: read as a log, looked for, and made.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::admin::{
    AdminClient, AdminOptions, ConfigEntry, ConfigSource, NewPartitions, ResourceSpecifier,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::util::Timeout;
use walrelay::base::error::Fault;
use walrelay::base::finding::{faults, is_sound};
use walrelay::dead_letter::record::LogEntry;
use walrelay::dead_letter::writer::DeadLetterAddress;
use walrelay::sink::log::{DeadLetterLog, LogRead, ReadFrom};
use walrelay::sink::{Broker, Requirements};
use walrelay_harness::kit::volume;
use walrelay_harness::{consumer, free_port};

use crate::sinks::reading::{next, whole};
use crate::sinks::section::Values;
use crate::sinks::test_relay::LIMIT;
use crate::support::shared_kafka;

const PATIENCE: Duration = Duration::from_millis(20);
const PARTITIONS: i32 = 4;

fn broker_at(brokers: &str) -> Arc<dyn Broker> {
    Values::default()
        .set("brokers", brokers)
        // A property that only a producer understands.
        .set("properties.\"linger.ms\"", 1)
        .set("partitions", 3)
        .configure("kafka")
}

pub(crate) fn broker() -> Arc<dyn Broker> {
    broker_at(&shared_kafka().bootstrap())
}

fn address(topic: &str) -> DeadLetterAddress {
    DeadLetterAddress { exchange: String::new(), topic: topic.to_owned() }
}

pub(crate) fn open(topic: &str, from: ReadFrom) -> Box<dyn DeadLetterLog> {
    broker().log(&address(topic), from).unwrap_or_else(|fault| panic!("{fault}"))
}

fn topic(name: &str) {
    let config = [("retention.ms", "-1")];
    consumer::create_topic(&shared_kafka().bootstrap(), name, PARTITIONS, &config).unwrap();
}

pub(crate) fn producer(own: &[(&str, &str)]) -> BaseProducer {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", shared_kafka().bootstrap())
        .set("partitioner", "murmur2_random");
    config.set("linger.ms", "5").set("queue.buffering.max.messages", "200000");
    for (name, value) in own {
        config.set(*name, *value);
    }
    config.create().unwrap()
}

/// Writes records whose number is key, value and time in seconds.
pub(crate) fn write(producer: &BaseProducer, topic: &str, numbers: std::ops::Range<i64>) {
    for number in numbers {
        let text = number.to_string();
        let record = BaseRecord::to(topic).key(&text).payload(&text).timestamp(number * 1000);
        producer.send(record).unwrap();
    }
    producer.flush(Timeout::After(LIMIT)).unwrap();
}

fn number(entry: &LogEntry) -> i64 {
    String::from_utf8(entry.value.clone().unwrap()).unwrap().parse().unwrap()
}

/// The numbers up to the end, sorted.
fn numbers(topic: &str, from: ReadFrom) -> Vec<i64> {
    let mut found: Vec<i64> = whole(&mut *open(topic, from)).iter().map(number).collect();
    found.sort_unstable();
    found
}

#[test]
fn many_records_come_once_and_in_order_and_then_what_is_new() {
    // GIVEN a topic with many records
    const NAME: &str = "log-many";
    let count = volume(10_000, 100_000);
    topic(NAME);
    let producer = producer(&[]);
    write(&producer, NAME, 1..count + 1);
    // WHEN it is read THEN all come once, those of a partition in order
    let mut log = open(NAME, ReadFrom::Beginning);
    let read = whole(&mut *log);
    let mut offsets: BTreeMap<i32, i64> = BTreeMap::new();
    for entry in &read {
        let next = offsets.entry(entry.position.partition).or_default();
        assert_eq!(entry.position.offset, *next);
        *next += 1;
        assert_eq!(entry.key, entry.value);
        assert_eq!(entry.written_unix_us, number(entry) * 1_000_000);
    }
    assert_eq!(i64::try_from(read.len()), Ok(count));
    assert_eq!(offsets.len(), 4);
    // AND the end is told once, and what is written then comes, too
    assert_eq!(log.next(Duration::ZERO).unwrap(), LogRead::Nothing);
    write(&producer, NAME, count + 1..count + 2);
    assert_eq!(number(&next(&mut *log)), count + 1);
}

#[test]
fn a_time_is_sought_and_what_is_before_it_is_not_read() {
    // GIVEN records of one second each
    const NAME: &str = "log-times";
    topic(NAME);
    let producer = producer(&[]);
    write(&producer, NAME, 1..101);
    let from = |seconds: i64| ReadFrom::Time(seconds * 1_000_000);
    assert_eq!(numbers(NAME, from(0)), (1..=100).collect::<Vec<_>>());
    assert_eq!(numbers(NAME, from(61)), (61..=100).collect::<Vec<_>>());
    assert_eq!(numbers(NAME, from(100)), [100]);
    assert!(numbers(NAME, from(5000)).is_empty());
    assert_eq!(numbers(NAME, ReadFrom::Time(i64::MIN)).len(), 100);
    // WHEN it is read from its end THEN only what is new comes
    let mut log = open(NAME, ReadFrom::End);
    assert!(whole(&mut *log).is_empty());
    write(&producer, NAME, 101..102);
    assert_eq!(number(&next(&mut *log)), 101);
}

#[test]
fn what_is_in_partitions_that_came_later_is_read_too() {
    // GIVEN a log that was read to its end
    const NAME: &str = "log-grows";
    topic(NAME);
    let producer = producer(&[("topic.metadata.refresh.interval.ms", "500")]);
    write(&producer, NAME, 1..9);
    let mut log = open(NAME, ReadFrom::Beginning);
    assert_eq!(whole(&mut *log).len(), 8);
    // WHEN the topic grows, and something is written to what is new
    let admin = admin();
    let more = [NewPartitions::new(NAME, PARTITIONS as usize + 2)];
    block_on(admin.create_partitions(&more, &AdminOptions::new())).unwrap().remove(0).unwrap();
    for partition in [PARTITIONS, PARTITIONS + 1] {
        let text = partition.to_string();
        let record = || BaseRecord::to(NAME).key(&text).payload(&text).partition(partition);
        let began = Instant::now();
        // The producer must have heard of it.
        while producer.send(record()).is_err() {
            producer.poll(PATIENCE);
            assert!(began.elapsed() < LIMIT, "no partition {partition} within {LIMIT:?}");
        }
    }
    producer.flush(Timeout::After(LIMIT)).unwrap();
    // THEN it comes
    let mut read = [number(&next(&mut *log)), number(&next(&mut *log))];
    read.sort_unstable();
    assert_eq!(read, [4, 5]);
}

#[test]
fn the_end_is_known_where_no_record_stands_at_it() {
    // GIVEN an empty topic THEN its end is where it begins
    const NAME: &str = "log-ends";
    consumer::create_topic(&shared_kafka().bootstrap(), NAME, 1, &[("retention.ms", "-1")])
        .unwrap();
    assert!(numbers(NAME, ReadFrom::Beginning).is_empty());
    // GIVEN a marker of a transaction behind the last record THEN the end is behind the record
    let producer = producer(&[("transactional.id", "log-ends")]);
    producer.init_transactions(Timeout::After(LIMIT)).unwrap();
    producer.begin_transaction().unwrap();
    write(&producer, NAME, 1..11);
    producer.commit_transaction(Timeout::After(LIMIT)).unwrap();
    consumer::wait_end_offsets(&shared_kafka().bootstrap(), NAME, 11, LIMIT).unwrap();
    assert_eq!(numbers(NAME, ReadFrom::Beginning), (1..11).collect::<Vec<_>>());
}

#[test]
fn a_topic_that_is_not_there_and_a_broker_that_is_not_there_are_told() {
    let Err(fault) = broker().log(&address("log-none"), ReadFrom::Beginning) else {
        panic!("read")
    };
    assert_eq!(fault.code, "sink.dead-letter-missing", "{fault}");
    assert!(fault.to_string().contains("log-none"), "{fault}");
    let nowhere = broker_at(&format!("127.0.0.1:{}", free_port().unwrap()));
    let Err(fault) = nowhere.log(&address("log-none"), ReadFrom::End) else { panic!("read") };
    assert_eq!(fault.code, "sink.unreachable", "{fault}");
}

#[test]
fn the_dead_letter_topic_is_insisted_on_and_made_to_last() {
    // GIVEN a broker without the topic WHEN it is looked at THEN that is told
    const NAME: &str = "log-made";
    let wanted = Requirements { dead_letters: Some(address(NAME)), ..Requirements::default() };
    let found = broker().inspect(&wanted);
    let faults: Vec<&Fault> = faults(&found).collect();
    let names: Vec<&str> = faults.iter().map(|fault| fault.code).collect();
    assert_eq!(names, ["sink.dead-letter-missing"]);
    assert!(faults[0].mend.contains("walrelay init"), "{}", faults[0]);
    // WHEN it is made THEN it is there, and nothing in it grows too old or too much
    let topic = [format!("topic {NAME}")];
    assert_eq!(broker().prepare(&wanted, true).unwrap(), topic);
    assert_eq!(broker().prepare(&wanted, false).unwrap(), topic);
    assert!(broker().prepare(&wanted, false).unwrap().is_empty());
    assert!(broker().prepare(&wanted, true).unwrap().is_empty());
    let found = broker().inspect(&wanted);
    assert!(is_sound(&found), "{found:?}");
    assert!(found.iter().any(|finding| finding.text.contains(NAME)), "{found:?}");
    let kept = [("retention.ms", "-1"), ("retention.bytes", "-1"), ("cleanup.policy", "delete")];
    for (key, value) in kept {
        assert_eq!(config_of(NAME, key).as_deref(), Some(value), "{key}");
        assert!(faults[0].mend.contains(&format!("--config {key}={value}")), "{}", faults[0]);
    }
    // WHEN nothing is ever written to it THEN it is not missed
    let halts = Requirements::default();
    assert!(is_sound(&broker().inspect(&halts)));
}

#[test]
fn what_was_made_can_be_used_at_once() {
    // GIVEN topics that take the cluster a while
    let names = ["log-at-once-1", "log-at-once-2", "log-at-once-3"].map(str::to_owned);
    let broker = Values::default()
        .set("brokers", shared_kafka().bootstrap())
        .set("partitions", 64)
        .configure("kafka");
    let wanted = Requirements { topics: names.into(), ..Requirements::default() };
    // WHEN they are made THEN nobody misses them, however soon they are looked at
    assert_eq!(broker.prepare(&wanted, false).unwrap().len(), 3);
    let found = broker.inspect(&wanted);
    assert!(is_sound(&found), "{found:?}");
}

fn admin() -> AdminClient<DefaultClientContext> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", shared_kafka().bootstrap()).create().unwrap()
}

fn block_on<T>(answer: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(answer)
}

/// The setting of the topic itself, whatever the broker's defaults are.
fn config_of(topic: &str, name: &str) -> Option<String> {
    let (admin, resources) = (admin(), [ResourceSpecifier::Topic(topic)]);
    let found = block_on(admin.describe_configs(&resources, &AdminOptions::new()));
    let found = found.unwrap().remove(0).unwrap();
    let own = |entry: &ConfigEntry| entry.source == ConfigSource::DynamicTopic;
    let found = found.entries.into_iter().filter(own).find(|entry| entry.name == name);
    found.and_then(|entry| entry.value)
}
