use std::io::ErrorKind;
use std::net::TcpListener;

use super::*;
use crate::scan::TopicScan;
use walrelay_base::error::Exit;
use walrelay_base::secret::Secret;

/// Far more than the second after which librdkafka looks for a broker.
const LIMIT: Duration = Duration::from_secs(30);

fn settings(brokers: String, properties: &[(&str, &str)]) -> KafkaSettings {
    let properties = properties.iter().map(|(name, it)| ((*name).to_owned(), Secret::new(*it)));
    KafkaSettings { brokers, properties: properties.collect(), ..KafkaSettings::default() }
}

#[test]
fn a_client_that_is_not_made_may_be_made_later_unless_a_property_is_refused() {
    let faults = |property| {
        let properties = [("security.protocol", "ssl"), property];
        let settings = settings("127.0.0.1:1".to_owned(), &properties);
        let producer = KafkaProducer::open(&settings, &[], 1_000_000).err().unwrap();
        [producer, TopicScan::new(&settings, "group", &[]).err().unwrap()]
    };
    for fault in faults(("ssl.key.location", "/nowhere/key.pem")) {
        assert_eq!((fault.may_pass, fault.exit), (true, Exit::Sink), "{fault}");
        assert!(fault.what.contains("ssl.key.location"), "{fault}");
    }
    for fault in faults(("ssl.no.such.property", "hidden")) {
        assert_eq!((fault.may_pass, fault.exit), (false, Exit::Usage), "{fault}");
        assert!(fault.what.contains("ssl.no.such.property"), "{fault}");
        assert!(!fault.what.contains("hidden"), "{fault}");
    }
}

#[test]
fn a_client_that_knows_no_broker_connects_to_those_that_are_named_to_it() {
    // GIVEN a client that knows one broker, which refuses it, and does not try again by itself
    let refusing = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let settings = settings(listener.local_addr().unwrap().to_string(), &[]);
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

#[test]
fn the_topic_of_the_first_event_is_asked_for_nine_times_at_most() {
    let began = Instant::now();
    let mut hurry = Hurry::new("topic", began);
    let is_due = |ms: &u64| hurry.is_due(began + Duration::from_millis(*ms));
    let due: Vec<u64> = (0..2000).filter(is_due).collect();
    assert_eq!(due, [0, 1, 3, 7, 15, 31, 63, 127, 255]);
}
