//! A destination that the login may not write: its events fail one by one, and no other waits.

use walrelay_harness::BrokerKind;
use walrelay_harness::kafka_acl::{self, Operation};

use super::fixture::{DeadLetterFixture, held};
use super::refused::sinks_lost;
use crate::support::{LIMIT, shared_postgres, shared_rabbitmq};

const USER: &str = "relay";
const SECRET: &str = "relay-secret-42";
/// Events of the destination that may be written, before and after those that may not.
const GOOD: u64 = 2_000;
const KEYS: u64 = 50;

/// Relays good events around one for each of these destinations. All good ones arrive in
/// order, and each of the others is a dead letter.
fn only_its_own_events_fail(
    case: &DeadLetterFixture,
    forbidden: &[String],
    class: &str,
    duplicates_max: u64,
) {
    let (good, reader) = (case.site.name.clone(), case.site.reader());
    let mut relay = case.relay();
    case.insert(&good, 0..KEYS, 1, GOOD);
    let mut refused: Vec<String> =
        forbidden.iter().map(|topic| case.insert_one(topic, "other", 1)).collect();
    case.insert(&good, 0..KEYS, GOOD + 1, GOOD);
    case.site.wait_confirmed(&mut relay, LIMIT);
    let verdict = case.judge(&good, &held(reader), &refused);
    println!("{verdict}; {} sinks lost", sinks_lost(&relay));
    verdict.assert_exact(duplicates_max);
    assert_eq!(verdict.distinct, 2 * GOOD);
    // THEN each had all its attempts
    let mut letters = case.list(&[]);
    letters.sort_by_key(|letter| letter["event_id"].as_str().map(str::to_owned));
    refused.sort();
    let ids: Vec<&str> = letters.iter().filter_map(|it| it["event_id"].as_str()).collect();
    assert_eq!(ids, refused);
    for letter in &letters {
        assert_eq!((&letter["error_class"], &letter["attempts"]), (&class.into(), &5.into()));
    }
    // AND no more than the first refusal that cannot be foreseen costs the sink
    assert!(sinks_lost(&relay) <= 1, "{}", relay.tail(40));
}

#[test]
fn a_topic_that_the_login_may_not_write_is_the_failure_of_its_events() {
    // GIVEN a login that may write one topic, read another, and nothing with a third
    let (kafka, port) = kafka_acl::start(USER, SECRET).unwrap();
    let name = "forbidden_kafka";
    let mut case = DeadLetterFixture::new(shared_postgres(), &kafka, name, "", "");
    let [read_only, hidden] = ["read", "hidden"].map(|it| format!("{name}.{it}"));
    for topic in [&read_only, &hidden] {
        case.site.open_route(topic);
    }
    use Operation::{Describe, Read, Write};
    for (topic, operations) in [
        (name, &[Write, Describe, Read][..]),
        (&format!("{name}.dlq"), &[Write, Describe, Read]),
        (&read_only, &[Describe, Read]),
    ] {
        kafka_acl::allow(kafka.port(), USER, topic, operations).unwrap();
    }
    case.config.brokers = format!("127.0.0.1:{port}");
    for (property, value) in [
        ("security.protocol", "SASL_PLAINTEXT"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", USER),
        ("sasl.password", SECRET),
    ] {
        case.config.properties.push((property.into(), value.into()));
    }
    let class = "kafka.topic-authorization-failed";
    only_its_own_events_fail(&case, &[read_only, hidden], class, 0);
    // AND WHEN a topic is to be created THEN the missing right is named
    case.config.kafka_extra = format!("topics = [\"{name}.new\"]\n");
    let refused = case.walrelay(&["init"]);
    refused.assert_fault(5, "sink.topic-not-made", &["--operation Create"]);
}

#[test]
fn a_routing_key_that_the_login_may_not_write_is_the_failure_of_its_events() {
    // GIVEN a login that may write one routing key of the exchange
    let mut case = DeadLetterFixture::on(BrokerKind::RabbitMq, "forbidden", "", "");
    let (broker, name) = (shared_rabbitmq(), case.site.name.clone());
    broker.add_user(USER, SECRET).unwrap();
    let narrow = format!(
        "ok = rabbit_auth_backend_internal:set_topic_permissions(<<\"{USER}\">>, <<\"/\">>, \
         <<\"{name}\">>, <<\"^{name}$\">>, <<\".*\">>, <<\"test\">>)"
    );
    broker.eval(&narrow).unwrap();
    let target = case.config.rabbitmq.as_mut().unwrap();
    target.url = target.url.replace("guest:guest", &format!("{USER}:{SECRET}"));
    // The first refusal closes the channel, with one event of each key in flight.
    let forbidden = [format!("{name}.forbidden")];
    only_its_own_events_fail(&case, &forbidden, "rabbitmq.access-refused", KEYS);
}
