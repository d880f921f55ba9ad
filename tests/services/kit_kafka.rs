//! The kit's Kafka side against a real broker: everything is read once, through a restart too.

use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use walrelay_harness::consumer::{
    Consumer, DrainWatch, Mode, create_topic, delete_topic, end_offsets, wait_end_offsets,
};
use walrelay_harness::kit::{now_us, payload_hash};
use walrelay_harness::load::{Backlog, ChaosWriters, create_outbox};
use walrelay_harness::oracle::{check, read_content_truth, read_truth};
use walrelay_harness::{Kafka, Postgres, PostgresOptions};

use super::LIMIT;
use crate::support::shared_kafka;

fn publish(brokers: &str, topic: &str, numbers: std::ops::Range<u64>) {
    let producer: BaseProducer =
        ClientConfig::new().set("bootstrap.servers", brokers).set("acks", "all").create().unwrap();
    for number in numbers {
        let (key, id) = (format!("key-{}", number % 7), format!("id-{number}"));
        let lsn = format!("1/{number:X}");
        let payload = format!("{{\"t\": {}, \"seq\": {number}}}", now_us());
        let headers = OwnedHeaders::new()
            .insert(Header { key: "id", value: Some(&id) })
            .insert(Header { key: "lsn", value: Some(&lsn) });
        let record = BaseRecord::to(topic).key(&key).payload(&payload).headers(headers);
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(LIMIT).unwrap();
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn records_are_read_with_all_that_the_oracle_needs() {
    let brokers = shared_kafka().bootstrap();
    let stamped = [("message.timestamp.type", "LogAppendTime")];
    create_topic(&brokers, "events", 4, &stamped).unwrap();
    assert!(create_topic(&brokers, "events", 4, &[]).is_err());
    let before_ms = now_us() / 1_000;
    // GIVEN 100 records before the consumer and 100 after its start
    publish(&brokers, "events", 0..100);
    let consumer = Consumer::start(&brokers, &["events"], Mode::Records).unwrap();
    publish(&brokers, "events", 100..200);
    consumer.wait_until(200, LIMIT).unwrap();
    consumer.wait_quiet(Duration::from_millis(100), LIMIT).unwrap();
    assert!(consumer.wait_until(201, Duration::from_millis(20)).is_err());
    // THEN all have come once, with key, headers, broker time and arrival
    let seen = consumer.stop();
    let mut ids: Vec<&str> = seen.records.iter().map(|record| record.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), seen.count), (200, 200));
    for record in &seen.records {
        let number: u64 = record.id.strip_prefix("id-").unwrap().parse().unwrap();
        assert_eq!(record.key, format!("key-{}", number % 7));
        assert_eq!(record.lsn, Some((1 << 32) + number));
        assert!(record.timestamp_ms >= before_ms && record.arrived_us / 1_000 >= before_ms);
        assert_ne!(record.hash, payload_hash(b""));
    }
    let ends = end_offsets(&brokers, "events").unwrap();
    assert_eq!((ends.len(), ends.values().sum::<i64>()), (4, 200));
    delete_topic(&brokers, "events").unwrap();
    delete_topic(&brokers, "never-was").unwrap();
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn the_cheap_mode_measures_and_a_killed_broker_is_waited_out() {
    let mut kafka = Kafka::start().unwrap();
    let brokers = kafka.bootstrap();
    create_topic(&brokers, "events", 2, &[]).unwrap();
    let consumer = Consumer::start(&brokers, &["events"], Mode::Latency).unwrap();
    let watch = DrainWatch::new(&brokers, "events").unwrap();
    let began = Instant::now();
    publish(&brokers, "events", 0..1_000);
    let (first, all) = watch.wait(1_000, LIMIT).unwrap();
    assert!(began <= first && first <= all);
    consumer.wait_until(1_000, LIMIT).unwrap();
    // WHEN the warm-up is discarded and the broker dies and comes back
    let warm_up = consumer.reset();
    assert_eq!((warm_up.latencies.count(), warm_up.count), (1_000, 1_000));
    println!("{:?} {:.0}/s", warm_up.latencies.percentiles(), warm_up.rate_per_second());
    kafka.kill9().unwrap();
    kafka.start_again().unwrap();
    publish(&brokers, "events", 1_000..1_500);
    // THEN the rest comes too, once
    consumer.wait_until(1_500, LIMIT).unwrap();
    wait_end_offsets(&brokers, "events", 1_500, LIMIT).unwrap();
    let seen = consumer.stop();
    assert_eq!((seen.count, seen.latencies.count()), (500, 500));
    assert!(seen.records.is_empty());
}

/// Publishes the outbox as a relay would, with an order and faults of the test's making.
fn publish_rows(brokers: &str, topic: &str, rows: &[&str]) {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("enable.idempotence", "true");
    let producer: BaseProducer = config.create().unwrap();
    for row in rows {
        let mut parts = row.splitn(3, ' ');
        let mut next = || parts.next().unwrap();
        let (id, key, payload) = (next(), next(), next());
        let headers = OwnedHeaders::new().insert(Header { key: "id", value: Some(id) });
        let record = BaseRecord::to(topic).key(key).payload(payload).headers(headers);
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(LIMIT).unwrap();
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn the_oracle_acquits_an_exact_delivery_and_convicts_a_careless_one() {
    // GIVEN a chaos run with all its nasty payloads
    let postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let url = postgres.url("postgres");
    create_outbox(&url, "public.outbox").unwrap();
    ChaosWriters { rows_max: 200, ..ChaosWriters::new(&url, 2_000, 5) }.run().unwrap();
    let truth = read_truth(&url, "public.outbox").unwrap();
    let sql = "select id || ' ' || aggregateid || ' ' || payload::text from outbox
               order by (payload->>'seq')::bigint";
    let text = postgres.sql("postgres", sql).unwrap();
    let rows: Vec<&str> = text.split('\n').filter(|line| !line.is_empty()).collect();
    let brokers = shared_kafka().bootstrap();
    let judge = |topic: &str, rows: &[&str]| {
        create_topic(&brokers, topic, 4, &[]).unwrap();
        publish_rows(&brokers, topic, rows);
        let consumer = Consumer::start(&brokers, &[topic], Mode::Records).unwrap();
        consumer.wait_until(rows.len() as u64, LIMIT).unwrap();
        check(&truth, &consumer.stop().records, &Default::default())
    };
    // WHEN it is delivered exactly, THEN it is acquitted
    judge("exact", &rows).assert_exact(0);
    // WHEN one is dropped, one repeated and all come backwards, THEN each is told
    let mut careless = rows.clone();
    careless.remove(1_000);
    careless.push(rows[0]);
    careless.reverse();
    let verdict = judge("careless", &careless);
    println!("{verdict}");
    assert_eq!((verdict.missing.count, verdict.duplicates), (1, 1));
    assert!(verdict.out_of_order.count > 1_000 && verdict.altered.count == 0);
}

/// Reads `key`, `seq` and `pad`, wherever they stand.
fn read_backlog(key: &str, value: &[u8]) -> (String, u128) {
    let text = std::str::from_utf8(value).unwrap();
    let after = |name: &str| text.split_once(name).unwrap().1;
    let seq = after("\"seq\":").split([',', '}']).next().unwrap();
    let pad = after("\"pad\":\"").split('"').next().unwrap();
    (format!("{key}/{seq}"), payload_hash(pad.as_bytes()))
}

#[test]
#[ignore = "scripts/test, when it has changed"]
fn an_event_written_in_another_way_is_known_by_its_content() {
    // GIVEN a backlog, delivered without ids and without the blanks that jsonb has
    let postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let url = postgres.url("postgres");
    create_outbox(&url, "public.outbox").unwrap();
    Backlog { keys: 20, ..Backlog::new(&url, 500) }.fill().unwrap();
    let truth = read_content_truth(&url, "public.outbox").unwrap();
    let sql = "select '- ' || aggregateid || ' ' || replace(payload::text, ' ', '') from outbox
               order by (payload->>'seq')::bigint";
    let text = postgres.sql("postgres", sql).unwrap();
    let brokers = shared_kafka().bootstrap();
    let judge = |topic: &str, rows: &[&str]| {
        create_topic(&brokers, topic, 4, &[]).unwrap();
        publish_rows(&brokers, topic, rows);
        let consumer = Consumer::start(&brokers, &[topic], Mode::Content(read_backlog)).unwrap();
        consumer.wait_until(rows.len() as u64, LIMIT).unwrap();
        check(&truth, &consumer.stop().records, &Default::default())
    };
    // THEN it is exact
    let rows: Vec<&str> = text.lines().collect();
    judge("rewritten", &rows).assert_exact(0);
    // WHEN one has another text and one another key, THEN each is told
    let mut careless = rows.clone();
    let (pad, key) =
        (rows[3].replace("\"pad\":\"", "\"pad\":\"x"), rows[7].replace("key-7", "key-8"));
    (careless[3], careless[7]) = (&pad, &key);
    let verdict = judge("rewritten-careless", &careless);
    let told = (verdict.altered.count, verdict.missing.count, verdict.invented.count);
    assert_eq!(told, (1, 1, 1), "{verdict}");
}
