use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::TcpListener;

use walrelay_core::sink::kafka::port::ProducerPort as _;

use super::super::producer::KafkaProducer;
use super::*;

/// Far more than the silence and the second after which librdkafka looks for a broker.
const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn a_client_that_has_lost_all_brokers_is_told_the_configured_ones() {
    // GIVEN a client that knows one broker, which refuses it, and does not try again by itself
    let refusing = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let settings = KafkaSettings {
        brokers: listener.local_addr().unwrap().to_string(),
        properties: BTreeMap::new(),
        topics: Vec::new(),
        partitions: 1,
        replication: 1,
    };
    let own = [
        ("bootstrap.servers", refusing.as_str()),
        ("metadata.recovery.strategy", "none"),
        ("reconnect.backoff.ms", "600000"),
        ("reconnect.backoff.max.ms", "600000"),
    ];
    let mut client = KafkaProducer::open(&settings, &own, 1_000_000).unwrap();
    // WHEN it is polled for a while
    let began = Instant::now();
    let connected = loop {
        client.poll(Duration::from_millis(50));
        match listener.accept() {
            Err(error) if error.kind() == ErrorKind::WouldBlock && began.elapsed() < LIMIT => {}
            outcome => break outcome,
        }
    };
    // THEN it connects to the configured broker
    assert!(connected.is_ok(), "{connected:?}");
    assert!(began.elapsed() > SILENCE);
}
