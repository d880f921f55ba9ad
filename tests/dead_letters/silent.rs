//! A destination that confirms nothing while others do.

use walrelay_harness::relay::RelayProcess;
use walrelay_harness::{BrokerKind, Kafka, consumer};

use super::fixture::{DeadLetterFixture, held};
use crate::support::broker::Destination;
use crate::support::{LIMIT, metric, shared_postgres, shared_rabbitmq, status, until, wait_until};

const WINDOW: u64 = 4_000;
/// More than the relay lets out before it has measured anything.
const SILENT: u64 = 1_000;
const GOOD: u64 = 3_000;

fn settled(relay: &RelayProcess, outcome: &str) -> Option<f64> {
    metric(relay, &format!("outbox_events_total{{outcome=\"{outcome}\"}}"))
}

fn on(destination: impl Into<Destination>, name: &str) -> DeadLetterFixture {
    let window = format!("window_events_max = {WINDOW}\n");
    DeadLetterFixture::new(shared_postgres(), destination, name, &window, "")
}

/// Inserts events for `silent`, which answers nothing until `answer_again`, and for the fixture's
/// own destination; `named` is what the relay calls the silent one.
fn others_go_on(
    case: &DeadLetterFixture,
    relay: &mut RelayProcess,
    (silent, named): (&str, &str),
    answer_again: impl FnOnce(),
) {
    let good = &case.site.name;
    let before = settled(relay, "published").unwrap_or_default();
    let (reader, silent_reader) = (case.site.reader(), case.site.reader_of(silent));
    // GIVEN more events for the silent destination than are in flight as a rule
    let (_, held_at) = case.insert_before(silent, "k0", 1);
    case.insert(silent, 0..50, 2, SILENT);
    // WHEN others come, and one that fails
    case.insert(good, 100..150, 1, GOOD);
    let lost = case.insert_one(&case.lost(), "lost", 1);
    case.insert(good, 100..150, GOOD + 1, GOOD);
    // THEN they are published, and the one is a dead letter
    wait_until("the events of the other destination", || {
        assert!(relay.is_running(), "{}", relay.tail(20));
        let published = settled(relay, "published") >= Some(before + (2 * GOOD) as f64);
        published && settled(relay, "dead_lettered") == Some(1.0)
    });
    assert_eq!(case.open(), [lost]);
    // AND the silent one is named
    let reason = until("the reason", LIMIT, || {
        let reason = status(relay)["reason"].clone();
        (reason["code"] == "destination_silent").then_some(reason)
    });
    let text = reason["text"].as_str().unwrap();
    assert!(text.contains(&format!("{named} confirms nothing")), "{text}");
    // WHEN more of its events come than the window has room for
    case.insert(silent, 0..50, SILENT + 2, WINDOW);
    wait_until("a full window", || {
        let in_flight = metric(relay, "outbox_in_flight_events");
        assert!(in_flight <= Some(WINDOW as f64), "{in_flight:?}");
        in_flight == Some(WINDOW as f64)
    });
    // THEN the slot stands before its first event
    let confirmed = case.site.confirmed().unwrap();
    assert!(confirmed <= held_at, "{confirmed} {held_at}");
    // WHEN it answers again
    answer_again();
    // THEN everything is there once, in order
    case.site.wait_confirmed(relay, LIMIT);
    for (destination, reader) in [(good.as_str(), reader), (silent, silent_reader)] {
        let verdict = case.judge(destination, &held(reader), &[]);
        println!("{destination}: {verdict}");
        verdict.assert_exact(0);
    }
    assert_ne!(status(relay)["reason"]["code"], "destination_silent");
}

#[test]
fn a_topic_without_enough_replicas_holds_back_its_own_events() {
    let kafka = Kafka::start().unwrap();
    let case = on(&kafka, "silent_kafka");
    let silent = format!("{}.silent", case.site.name);
    let brokers = kafka.bootstrap();
    // GIVEN a topic that must have two replicas and has lost one
    let second = kafka.start_second().unwrap();
    let both = [("min.insync.replicas", "2")];
    consumer::create_replicated_topic(&brokers, &silent, (1, 2), &both).unwrap();
    drop(second);
    wait_until("the loss", || consumer::leaders(&brokers, &silent).unwrap()[0].1 == 1);
    let named = format!("topic {silent}");
    others_go_on(&case, &mut case.relay(), (&silent, &named), || {
        consumer::alter_topic(&brokers, &silent, "min.insync.replicas", "1").unwrap();
    });
}

/// A fixture with a second queue, and the names of that queue for the broker and for the relay.
fn with_second_queue(name: &str) -> (DeadLetterFixture, String, String) {
    let case = on(BrokerKind::RabbitMq, name);
    let silent = format!("{name}.silent");
    case.site.open_route(&silent);
    let named = format!("routing key {silent} of exchange {name}");
    (case, silent, named)
}

#[test]
#[ignore = "soak"]
fn a_queue_that_stops_confirming_holds_back_its_own_events() {
    let (case, silent, named) = with_second_queue("silent_rabbitmq");
    // GIVEN a relay that has published to both queues
    let mut relay = case.relay();
    for destination in [&case.site.name, &silent] {
        case.insert(destination, 200..250, 1, 100);
    }
    case.site.wait_confirmed(&mut relay, LIMIT);
    let suspended = shared_rabbitmq().suspend_queue(&silent).unwrap();
    others_go_on(&case, &mut relay, (&silent, &named), || drop(suspended));
}

#[test]
#[ignore = "soak"]
fn a_relay_that_starts_beside_a_silent_queue_publishes_to_others() {
    let (case, silent, named) = with_second_queue("silent_start");
    let suspended = shared_rabbitmq().suspend_queue(&silent).unwrap();
    others_go_on(&case, &mut case.relay(), (&silent, &named), || drop(suspended));
}
