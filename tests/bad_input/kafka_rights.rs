//! A Kafka that does not let everybody do everything.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use walrelay::base::template::Template;
use walrelay::sink::search::{SearchLimits, SearchReport, SearchRoute, SearchScope};
use walrelay_harness::consumer::create_topic;
use walrelay_harness::kafka_acl::{self, Operation};

use super::canary::EVERYTHING;
use crate::sinks::section::Values;
use crate::support::LIMIT;
use crate::support::faults::CliFixture;

const SECRET: &str = "relay-secret-42";

#[test]
fn a_login_that_may_not_read_a_topic_is_told_which_right_it_lacks() {
    let (_kafka, port) = kafka_acl::start("relay", SECRET).unwrap();
    let broker = Values::default()
        .set("brokers", format!("127.0.0.1:{port}"))
        .set("properties.\"security.protocol\"", "SASL_PLAINTEXT")
        .set("properties.\"sasl.mechanism\"", "PLAIN")
        .set("properties.\"sasl.username\"", "relay")
        .set("properties.\"sasl.password\"", SECRET)
        .configure("kafka");
    let mut reader = broker.topic_reader().unwrap().unwrap();
    let refused = reader.read("outbox.dlq", 0, LIMIT, &mut |_| true).unwrap_err();
    assert!(refused.contains("--operation Read --topic outbox.dlq"), "{refused}");
    // AND so is who looks for an event in it
    let topic = Template::literal("outbox.dlq");
    let route = SearchRoute { topic, key: None, partition: Some(0) };
    let limits = SearchLimits { deadline: Instant::now() + LIMIT, stop: &AtomicBool::new(false) };
    let scope = SearchScope { routes: &[route], from_unix_us: 0, limits };
    let SearchReport { searched, not_searched, .. } = broker.search(&scope, &mut |_| {});
    assert!(
        not_searched[0].contains("topic outbox.dlq: this login has no right to"),
        "{not_searched:?}"
    );
    assert_eq!((searched.len(), not_searched.len()), (0, 1), "{searched:?} {not_searched:?}");
}

#[test]
fn who_may_not_write_dead_letters_to_kafka_is_told_before_anything_moves() {
    let (kafka, port) = kafka_acl::start("relay", SECRET).unwrap();
    let mut scene = CliFixture::waiting("kafka_dlq_rights");
    let login = |password: &str| {
        format!(
            "[sink.kafka]\nbrokers = \"127.0.0.1:{port}\"\n[sink.kafka.properties]\n\
             \"security.protocol\" = \"SASL_PLAINTEXT\"\n\"sasl.mechanism\" = \"PLAIN\"\n\
             \"sasl.username\" = \"relay\"\n\"debug\" = \"all\"\n\"sasl.password\" = {{ env = \"{password}\" }}\n"
        )
    };
    // Whatever is printed at the most talkative, no password is.
    scene.env.push(("WALRELAY_LOG".into(), EVERYTHING.into()));
    scene.env.push(("RELAY_PASSWORD".into(), SECRET.into()));
    scene.env.push(("WRONG_PASSWORD".into(), "wrong-secret-42".into()));
    // GIVEN a login that the broker does not know
    scene.sink = login("WRONG_PASSWORD");
    let words = ["correct sasl.mechanism, sasl.username and sasl.password"];
    let ended = scene.assert_refused(5, "sink.unreachable", &words);
    assert!(!ended.all().contains("secret-42"), "{ended}");
    // GIVEN one that may do nothing
    scene.sink = login("RELAY_PASSWORD");
    let words = [
        "this login may not use the dead-letter topic outbox.dlq",
        "--operation Write --operation Read --operation Describe --topic outbox.dlq",
    ];
    scene.assert_refused(5, "sink.dead-letter-forbidden", &words);
    let check = scene.walrelay(&["check"]);
    assert_eq!(check.code, 1, "{check}");
    check.assert_says(&["✗ this login may not use the dead-letter topic outbox.dlq"]);
    // AND the commands say the same, and show nothing of the password
    let find = scene.walrelay(&["find", "--key", "1", "--json"]);
    find.assert_done()
        .assert_says(&["dead letters: this login may not use", "\"state\":\"waiting\""]);
    assert!(!find.all().contains(SECRET), "{find}");
    let list = scene.walrelay(&["dlq", "list"]);
    list.assert_fault(5, "sink.dead-letter-forbidden", &["--topic outbox.dlq"]);
    assert!(!list.all().contains(SECRET) && !check.all().contains(SECRET), "{list}{check}");
    // GIVEN one that may read dead letters and not write them
    let reads = [Operation::Read, Operation::Describe];
    kafka_acl::allow(kafka.port(), "relay", "outbox.dlq", &reads).unwrap();
    scene.assert_refused(5, "sink.dead-letter-forbidden", &words);
    // AND that may not write a topic for events either THEN check names both
    create_topic(&kafka.bootstrap(), "orders", 1, &[]).unwrap();
    kafka_acl::allow(kafka.port(), "relay", "orders", &reads).unwrap();
    let without_topics = scene.sink.clone();
    scene.sink = without_topics.replace("[sink.kafka]\n", "[sink.kafka]\ntopics = [\"orders\"]\n");
    scene.walrelay(&["check"]).assert_says(&[
        "this login may not use the dead-letter topic outbox.dlq",
        "this login may not write topic orders",
    ]);
    scene.sink = without_topics;
    // GIVEN all rights that `run` must have THEN check says what it does not look at
    let rights = [Operation::Read, Operation::Write, Operation::Describe];
    kafka_acl::allow(kafka.port(), "relay", "outbox.dlq", &rights).unwrap();
    let check = scene.walrelay(&["check"]);
    check.assert_says(&["settings of topics are not checked", "(right DescribeConfigs)"]);
}
