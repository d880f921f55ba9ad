//! Reading back what a topic holds.

use std::time::Duration;

use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer as _};
use rdkafka::util::Timeout;
use walrelay::sink::topic_reader::TopicReader;
use walrelay_harness::consumer;
use walrelay_harness::kit::volume;

use crate::sinks::kafka_log::{broker, producer, write};
use crate::sinks::test_relay::LIMIT;
use crate::support::shared_kafka;

/// Partition, key, value, headers, time in seconds.
type Read = (i32, Option<Vec<u8>>, Option<Vec<u8>>, Vec<(String, Vec<u8>)>, i64);

fn reader() -> Box<dyn TopicReader> {
    broker().topic_reader().unwrap().unwrap()
}

fn topic(name: &str, partitions: i32) {
    consumer::create_topic(&shared_kafka().bootstrap(), name, partitions, &[]).unwrap();
}

fn read(reader: &mut dyn TopicReader, topic: &str, from_s: i64) -> Vec<Read> {
    let (found, is_whole) = read_some(reader, topic, from_s);
    assert!(is_whole);
    found
}

/// The records, and whether all partitions were read.
fn read_some(reader: &mut dyn TopicReader, topic: &str, from_s: i64) -> (Vec<Read>, bool) {
    let mut found = Vec::new();
    let read = reader.read(topic, from_s * 1_000_000, LIMIT, &mut |record| {
        assert_eq!(record.topic, topic);
        let own = |(name, value): &(&str, &[u8])| ((*name).to_owned(), value.to_vec());
        let (key, value) = (record.key.map(<[u8]>::to_vec), record.value.map(<[u8]>::to_vec));
        let headers = record.headers.iter().map(own).collect();
        let time_s = record.commit_unix_us / 1_000_000;
        found.push((record.partition.unwrap(), key, value, headers, time_s));
        true
    });
    (found, read.unwrap())
}

#[test]
fn what_was_written_since_a_time_is_read_from_all_partitions_in_order() {
    const NAME: &str = "reading-times";
    let count = volume(5_000, 100_000);
    topic(NAME, 4);
    let (producer, mut reader) = (producer(&[]), reader());
    assert!(read(&mut *reader, NAME, 0).is_empty());
    write(&producer, NAME, 1..count + 1);
    for from in [0, 1, count / 2, count] {
        let found = read(&mut *reader, NAME, from);
        let mut times: Vec<i64> = found.iter().map(|it| it.4).collect();
        times.sort_unstable();
        assert_eq!(times, (from.max(1)..=count).collect::<Vec<_>>());
        for partition in 0..4 {
            assert!(found.iter().filter(|it| it.0 == partition).is_sorted_by_key(|it| it.4));
        }
    }
    // WHEN nothing is as young THEN nothing is read
    assert!(read(&mut *reader, NAME, count + 1).is_empty());
    // WHEN there are more than are wanted, or less time than it takes THEN that is told
    let mut taken = 0;
    let read = reader.read(NAME, 0, LIMIT, &mut |_| {
        taken += 1;
        taken < 3
    });
    assert!(read.unwrap_err().contains("too many") && taken == 3);
    assert!(reader.read(NAME, 0, Duration::ZERO, &mut |_| true).is_err());
    // AND the next is not disturbed
    assert_eq!(self::read(&mut *reader, NAME, count).len(), 1);
}

#[test]
fn a_record_is_read_as_it_was_written() {
    const NAME: &str = "reading-bytes";
    topic(NAME, 1);
    let producer = producer(&[]);
    let kinds: [Option<&[u8]>; 3] = [None, Some(b""), Some(b"x\0y")];
    let mut written: Vec<Read> = Vec::new();
    for key in kinds {
        for value in kinds {
            let header = |key, value| Header { key, value: Some(value) };
            let headers = OwnedHeaders::new().insert(header("id", "1")).insert(header("id", ""));
            let mut record = BaseRecord::to(NAME).timestamp(7000).headers(headers);
            (record.key, record.payload) = (key, value);
            producer.send(record).unwrap();
            let headers = vec![("id".to_owned(), b"1".to_vec()), ("id".to_owned(), Vec::new())];
            written.push((0, key.map(<[u8]>::to_vec), value.map(<[u8]>::to_vec), headers, 7));
        }
    }
    producer.flush(Timeout::After(LIMIT)).unwrap();
    assert_eq!(read(&mut *reader(), NAME, 0), written);
}

#[test]
fn what_a_transaction_has_taken_back_is_not_there() {
    const NAME: &str = "reading-transactions";
    topic(NAME, 1);
    let producer = producer(&[("transactional.id", NAME)]);
    producer.init_transactions(Timeout::After(LIMIT)).unwrap();
    for (numbers, commits) in [(1..4, true), (4..7, false)] {
        producer.begin_transaction().unwrap();
        write(&producer, NAME, numbers);
        match commits {
            true => producer.commit_transaction(Timeout::After(LIMIT)).unwrap(),
            false => producer.abort_transaction(Timeout::After(LIMIT)).unwrap(),
        }
    }
    consumer::wait_end_offsets(&shared_kafka().bootstrap(), NAME, 8, LIMIT).unwrap();
    let mut reader = reader();
    let times = |found: Vec<Read>| found.iter().map(|it| it.4).collect::<Vec<_>>();
    assert_eq!(times(read(&mut *reader, NAME, 0)), [1, 2, 3]);
    // GIVEN one that is not decided, and records of others behind it, which are not shown
    producer.begin_transaction().unwrap();
    write(&producer, NAME, 7..8);
    write(&self::producer(&[]), NAME, 8..10);
    // THEN it is not waited for without end, and the partition counts as not read
    for from_s in [0, 9] {
        let (found, is_whole) = read_some(&mut *reader, NAME, from_s);
        assert!(!is_whole && found.is_empty(), "{found:?}");
    }
    // WHEN nothing is as young as what is looked for THEN that is not known either
    assert!(!read_some(&mut *reader, NAME, 10).1);
    // WHEN it has ended THEN all is read
    producer.abort_transaction(Timeout::After(LIMIT)).unwrap();
    consumer::wait_end_offsets(&shared_kafka().bootstrap(), NAME, 12, LIMIT).unwrap();
    assert_eq!(times(read(&mut *reader, NAME, 0)), [1, 2, 3, 8, 9]);
}

#[test]
fn a_topic_that_is_not_there_holds_nothing() {
    assert!(read(&mut *reader(), "reading-none", 0).is_empty());
}
