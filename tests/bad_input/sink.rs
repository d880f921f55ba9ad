//! A broker that is not there, or that lacks a topic.

use crate::support::faults::{CliFixture, HALT, brokers, read};

#[test]
fn an_unreachable_broker_ends_the_start() {
    let mut scene = CliFixture::waiting("sink_unreachable");
    scene.sink = "[sink.kafka]\nbrokers = \"127.0.0.1:1\"\n".into();
    scene.assert_refused(
        5,
        "sink.unreachable",
        &["no Kafka broker answered", "sink.kafka.brokers = \"127.0.0.1:1\"", "start the broker"],
    );
}

#[test]
fn a_topic_that_must_be_there_is_told_before_anything_moves() {
    let mut scene = CliFixture::waiting("sink_topic");
    // GIVEN a route to one topic
    scene.route = "topic = \"sink.never-made\"".into();
    let words = [
        "topic sink.never-made does not exist",
        "walrelay init, or: kafka-topics.sh --bootstrap-server",
        "--create --topic sink.never-made",
    ];
    scene.assert_refused(5, "sink.topic-missing", &words);
    // GIVEN topics that the file names; all of them are told
    scene.route = String::new();
    scene.sink.push_str("topics = [\"sink.never-a\", \"sink.never-b\"]\n");
    scene.assert_refused(5, "sink.topic-missing", &["sink.never-a", "sink.never-b"]);
    let check = scene.walrelay(&["check"]);
    assert_eq!(check.code, 1, "{check}");
    check.assert_says(&[
        "✗ topic sink.never-a does not exist",
        "✗ topic sink.never-b does not exist",
    ]);
    // WHEN the user follows the hint THEN the event that waited is relayed
    scene.walrelay(&["init"]).assert_done();
    assert_eq!(scene.carry(&[&scene.topic()]).len(), 1);
}

#[test]
fn a_topic_out_of_a_row_that_does_not_exist_halts_and_is_taken_up_again() {
    let mut scene = CliFixture::waiting("sink_dynamic");
    scene.extra = HALT.into();
    let held = scene.commit(
        "INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES ('sink_made_later', '2', 'T')",
    );
    let id = scene.sql("SELECT id FROM outbox WHERE aggregateid = '2'");
    scene.insert("3", "{}");
    let ended = scene.walrelay(&["run"]);
    let topic = "outbox.event.sink_made_later";
    let brokers = brokers();
    let create = format!("kafka-topics.sh --bootstrap-server {brokers} --create --topic {topic}");
    let words = [&id, topic, &create, "this event is held"];
    ended.assert_fault(6, "event.refused", &words);
    // THEN what was committed before it has arrived, and the slot has not moved over it
    assert_eq!(read(&[&scene.topic()])[0].key(), Some("1"));
    assert!(scene.held_before(&held), "{}", scene.slot_state());
    // WHEN the topic is made THEN a new start delivers all that was held
    scene.make_topic(topic, 1);
    scene.carry(&[]);
    let late = read(&[topic]);
    assert_eq!(late.iter().map(|r| r.header("id").unwrap()).collect::<Vec<_>>(), [id]);
    let others = read(&[&scene.topic()]);
    let keys: Vec<_> = others.iter().map(|r| r.key().unwrap()).collect();
    assert_eq!((keys.first(), keys.last()), (Some(&"1"), Some(&"3")), "{keys:?}");
}
