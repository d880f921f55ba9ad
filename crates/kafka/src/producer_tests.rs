use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::TcpListener;

use super::*;

/// Far more than the second after which librdkafka looks for a broker.
const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn a_client_that_knows_no_broker_connects_to_those_that_are_named_to_it() {
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
    let began = Instant::now();
    let all_down = |(code, _): &(Code, String)| *code == Code::AllBrokersDown;
    while !client.poll(Duration::from_millis(50)).errors.iter().any(all_down) {
        assert!(began.elapsed() < LIMIT);
    }
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    // WHEN the configured broker is named to it THEN it connects to that
    client.name_brokers();
    while let Err(error) = listener.accept() {
        assert!(error.kind() == ErrorKind::WouldBlock && began.elapsed() < LIMIT, "{error}");
        client.poll(Duration::from_millis(50));
    }
}
