//! Temporary.
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use std::time::{Duration, Instant};
use walrelay_harness::proc;

use super::case::on_kafka;
use crate::support::{LIMIT, metric, shared_kafka, until};

#[test]
fn measure_a_million() {
    let count: u64 = std::env::var("LETTERS").map_or(0, |text| text.parse().unwrap());
    if count == 0 {
        return;
    }
    let case = on_kafka("measure_kafka", "", "");
    let relay = case.relay();
    until("ready", LIMIT, || metric(&relay, "outbox_dlq_depth"));
    let before = proc::memory(relay.pid()).unwrap();
    println!("MEASURE before {before:?}");
    drop(relay);
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", shared_kafka().bootstrap())
        .set("linger.ms", "50")
        .set("batch.size", "1000000")
        .set("queue.buffering.max.messages", "200000")
        .set("compression.type", "lz4")
        .create()
        .unwrap();
    for n in 0..count {
        let (id, ordinal) = (format!("id-{n}"), n.to_string());
        let key = format!("k{}", n % 1000);
        let values: [(&str, &[u8]); 11] = [
            ("id", id.as_bytes()),
            ("dlq-event-id", id.as_bytes()),
            ("dlq-original-topic", b"orders"),
            ("dlq-error-class", b"kafka.unknown-topic"),
            ("dlq-error-msg", b"nothing there"),
            ("dlq-attempts", b"5"),
            ("dlq-failed-at", b"2026-11-01T00:00:00.000000Z"),
            ("dlq-first-failed-at", b"2026-11-01T00:00:00.000000Z"),
            ("dlq-lsn", b"0/1"),
            ("dlq-ordinal", ordinal.as_bytes()),
            ("dlq-relay", b"measure_kafka@host"),
        ];
        let mut headers = OwnedHeaders::new();
        for (name, value) in values {
            headers = headers.insert(Header { key: name, value: Some(value) });
        }
        loop {
            let record = BaseRecord::to("measure_kafka.dlq")
                .key(&key)
                .payload("{}")
                .headers(headers.clone());
            match producer.send(record) {
                Ok(()) => break,
                Err(_) => {
                    producer.poll(Duration::from_millis(10));
                }
            }
        }
        if n % 1000 == 0 {
            producer.poll(Duration::ZERO);
        }
    }
    producer.flush(LIMIT).unwrap();
    let began = Instant::now();
    let relay = case.relay();
    until("depth", LIMIT * 5, || {
        (metric(&relay, "outbox_dlq_depth") == Some(count as f64)).then_some(())
    });
    println!(
        "MEASURE after {count} letters, {:?}: {:?}",
        began.elapsed(),
        proc::memory(relay.pid()).unwrap()
    );
}
