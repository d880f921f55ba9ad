//! A destination that confirms nothing while others do.

use walrelay_harness::relay::RelayProcess;
use walrelay_harness::{Kafka, consumer};

use super::fixture::{DeadLetterFixture, held};
use crate::support::{LIMIT, metric, shared_postgres, status, until};

const WINDOW: u64 = 4_000;
/// More than the relay lets out before it has measured anything.
const SILENT: u64 = 1_000;
const GOOD: u64 = 3_000;

fn settled(relay: &RelayProcess, outcome: &str) -> Option<f64> {
    metric(relay, &format!("outbox_events_total{{outcome=\"{outcome}\"}}"))
}

#[test]
fn a_topic_without_enough_replicas_holds_back_its_own_events() {
    let window = format!("window_events_max = {WINDOW}\n");
    let kafka = Kafka::start().unwrap();
    let case = DeadLetterFixture::new(shared_postgres(), &kafka, "silent_kafka", &window, "");
    let (good, silent) = (case.site.name.clone(), format!("{}.silent", case.site.name));
    let brokers = kafka.bootstrap();
    // GIVEN a topic that must have two replicas and has lost one, and more events for it than are in
    // flight as a rule
    let second = kafka.start_second().unwrap();
    let both = [("min.insync.replicas", "2")];
    consumer::create_replicated_topic(&brokers, &silent, (1, 2), &both).unwrap();
    drop(second);
    until("the loss", LIMIT, || {
        (consumer::leaders(&brokers, &silent).unwrap()[0].1 == 1).then_some(())
    });
    let (reader, silent_reader) = (case.site.reader(), case.site.reader_of(&silent));
    let relay = &mut case.relay();
    case.insert(&silent, 0..50, 1, SILENT);
    // WHEN others come, and one that fails
    case.insert(&good, 100..150, 1, GOOD);
    let lost = case.insert_one(&case.lost(), "lost", 1);
    case.insert(&good, 100..150, GOOD + 1, GOOD);
    // THEN they are published, and the one is a dead letter
    until("the events of the other topic", LIMIT, || {
        assert!(relay.is_running(), "{}", relay.tail(20));
        let published = settled(relay, "published") >= Some((2 * GOOD) as f64);
        (published && settled(relay, "dead_lettered") == Some(1.0)).then_some(())
    });
    assert_eq!(case.open(), [lost]);
    // AND the topic is named
    let reason = until("the reason", LIMIT, || {
        let reason = status(relay)["reason"].clone();
        (reason["code"] == "destination_silent").then_some(reason)
    });
    let text = reason["text"].as_str().unwrap();
    assert!(text.contains(&format!("topic {silent} confirms nothing")), "{text}");
    // WHEN more of its events come than the window has room for
    case.insert(&silent, 0..50, SILENT + 1, WINDOW);
    until("a full window", LIMIT, || {
        let in_flight = metric(relay, "outbox_in_flight_events");
        assert!(in_flight <= Some(WINDOW as f64), "{in_flight:?}");
        (in_flight == Some(WINDOW as f64)).then_some(())
    });
    // AND it confirms again
    consumer::alter_topic(&brokers, &silent, "min.insync.replicas", "1").unwrap();
    // THEN everything is there once, in order
    case.site.wait_confirmed(relay, LIMIT);
    for (topic, reader) in [(&good, reader), (&silent, silent_reader)] {
        let verdict = case.judge(topic, &held(reader), &[]);
        println!("{topic}: {verdict}");
        verdict.assert_exact(0);
    }
    assert_ne!(status(relay)["reason"]["code"], "destination_silent");
}
