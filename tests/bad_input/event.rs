//! Rows that cannot be published, where that is to halt the relay: it says which and why.

use walrelay_harness::consumer::create_topic;

use crate::support::faults::{CliFixture, HALT, OUTBOX_SQL, brokers, keys, read};

/// Small, `bytes` large, small: in one transaction. The middle one's id.
fn insert_large(scene: &CliFixture<'_>, bytes: u32) -> String {
    let name = &scene.name;
    scene.sql(&format!(
        "BEGIN;
         INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('{name}', '1', 'T', '{{}}');
         INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
             VALUES ('{name}', '2', 'T', to_jsonb(repeat('x', {bytes})));
         INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('{name}', '3', 'T', '{{}}');
         COMMIT;"
    ));
    scene.sql("SELECT id FROM outbox WHERE aggregateid = '2'")
}

#[test]
fn an_event_that_the_client_may_not_send_halts_and_goes_when_it_may() {
    let mut scene = CliFixture::bare("event_client_limit");
    scene.extra = HALT.into();
    scene.sql(OUTBOX_SQL);
    scene.publish("TABLE public.outbox");
    scene.make_slot();
    create_topic(&brokers(), &scene.topic(), 1, &[("max.message.bytes", "4000000")]).unwrap();
    let before = scene.slot_state();
    let id = insert_large(&scene, 2_000_000);
    let ended = scene.walrelay(&["run"]);
    let topic = scene.topic();
    ended.assert_fault(
        6,
        "event.refused",
        &[
            &id,
            &topic,
            "kafka.message-size-too-large",
            "\"message.max.bytes\"",
            "this event is held",
        ],
    );
    assert!(!ended.all().contains("xxxx"), "the payload was printed");
    // THEN the earlier event of the transaction has arrived, and the slot has not moved over it;
    // whether the later one of another key had left already is a matter of time
    let arrived = read(&[&topic]);
    assert!(["1", "13"].contains(&keys(&arrived).concat().as_str()), "{:?}", keys(&arrived));
    scene.assert_slot_held(&before);
    // WHEN the limit is raised, as the hint says
    scene.sink.push_str("properties = { \"message.max.bytes\" = \"4000000\" }\n");
    let arrived = scene.carry(&[&topic]);
    // THEN it comes, and of the others what the topic does not hold yet
    let mut keys = keys(&arrived);
    keys.sort_unstable();
    assert_eq!(keys, ["1", "2", "3"]);
}

#[test]
fn an_event_that_the_topic_does_not_take_halts() {
    let mut scene = CliFixture::ready("event_topic_limit");
    scene.extra = HALT.into();
    scene.sink.push_str("properties = { \"message.max.bytes\" = \"4000000\" }\n");
    let before = scene.slot_state();
    let id = insert_large(&scene, 2_000_000);
    let ended = scene.walrelay(&["run"]);
    let topic = scene.topic();
    let hint =
        format!("--entity-type topics --entity-name {topic} --add-config max.message.bytes=");
    ended.assert_fault(6, "event.refused", &[&id, &topic, "kafka.message-size-too-large", &hint]);
    scene.assert_slot_held(&before);
    // THEN the earlier one has arrived; whether the later one had left already is a matter of time
    assert_eq!(keys(&read(&[&topic]))[0], "1");
}

#[test]
fn a_row_without_what_its_route_needs_halts() {
    let mut scene = CliFixture::bare("event_null");
    scene.extra = HALT.into();
    scene.sql("CREATE TABLE public.outbox (id text, aggregatetype text, aggregateid text, payload text, part int, headers json)");
    scene.prepare("TABLE public.outbox", &scene.topic());
    let route = "partition = \"part\"\nkey = \"x-${aggregateid}\"\n";
    scene.route = route.into();
    let name = scene.name.clone();
    let before = scene.slot_state();
    scene.sql(&format!("INSERT INTO outbox VALUES ('e1', '{name}', 'k', 'c4n4ry', 0, '[1]')"));
    let words = ["event e1: column headers is not a JSON object", "headers-not-object"];
    let ended = scene.assert_refused(6, "event.unpublishable", &words);
    ended.assert_says(&["log position", "correct [route]", "it is held"]);
    assert!(!ended.all().contains("c4n4ry"), "{ended}");
    scene.assert_slot_held(&before);
    // A new slot, as the way past a row that nothing can carry.
    scene.sql(&format!("SELECT pg_drop_replication_slot('{name}')"));
    scene.make_slot();
    // A partition that the topic does not have is refused by the broker's client.
    let before = scene.slot_state();
    scene.sql(&format!("INSERT INTO outbox VALUES ('e6', '{name}', 'k', 'p', 7, NULL)"));
    let ended = scene.walrelay(&["run"]);
    ended.assert_fault(6, "event.refused", &["event e6", "partition"]);
    scene.assert_unmoved(&before, &ended);
}
