//! `walrelay find`: where an event is, compared with what a consumer, the table and the dead-letter
//! topic say.

mod limits;

use serde_json::{Value, json};
use walrelay_harness::BrokerKind;
use walrelay_harness::relay::RelayConfig;

use crate::dead_letters::api;
use crate::dead_letters::fixture::DeadLetterFixture;
use crate::support::faults::{CliFixture, read};
use crate::support::{LIMIT, metric, on_both_brokers, until};

on_both_brokers!(a_published_event_is_found, rabbitmq in soak);
on_both_brokers!(a_dead_letter_is_found, rabbitmq in soak);
on_both_brokers!(an_event_that_waits_is_told_from_one_in_flight, rabbitmq in soak);
on_both_brokers!(an_event_is_found_over_http, rabbitmq in soak);

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const NOBODY: &str = "00000000-0000-4000-8000-000000000000";

/// Runs `find` with a configuration, as JSON; the exit code and the answer.
#[track_caller]
fn find_with(case: &DeadLetterFixture, config: &RelayConfig, words: &[&str]) -> (i32, Value) {
    let ended = case.site.command(config, &[&["find", "--json"], words].concat()).wait();
    (ended.code, ended.json())
}

/// The one event of an id.
#[track_caller]
fn find(case: &DeadLetterFixture, id: &str) -> (Value, Value) {
    let (code, answer) = find_with(case, &case.config, &[id]);
    let events = answer["events"].as_array().unwrap();
    assert_eq!((code, events.len()), (0, 1), "{answer}");
    (events[0].clone(), answer["not_searched"].clone())
}

/// The same configuration with a constant topic, which is known without a row.
fn constant(case: &DeadLetterFixture) -> RelayConfig {
    RelayConfig { topic: case.site.name.clone(), ..case.config.clone() }
}

fn says(sentences: &Value, words: &str) -> bool {
    sentences.as_array().unwrap().iter().any(|it| it.as_str().unwrap().contains(words))
}

/// Partition and offset of each record with the id, as a consumer sees them: no record was removed
/// from the topic, so an offset counts the records before it.
fn consumed(topic: &str, id: &str) -> Vec<(i64, i64)> {
    let records = read(&[topic]);
    let mut found = Vec::new();
    for partition in 0..4 {
        let of_partition = records.iter().filter(|record| record.partition == partition);
        let own = of_partition.enumerate().filter(|(_, record)| record.header("id") == Some(id));
        found.extend(own.map(|(offset, _)| (i64::from(partition), offset as i64)));
    }
    found
}

fn published(event: &Value) -> Vec<(i64, i64)> {
    let records = event["published"].as_array().unwrap().iter();
    records.map(|it| (it["partition"].as_i64().unwrap(), it["offset"].as_i64().unwrap())).collect()
}

fn a_published_event_is_found(kind: BrokerKind) {
    let case = DeadLetterFixture::on(kind, "find_published", "", "");
    let name = case.site.name.clone();
    case.site.execute("alter table outbox add column traceparent text");
    case.site.execute(&format!("alter table outbox alter traceparent set default '{TRACEPARENT}'"));
    let mut relay = case.relay();
    case.insert(&name, 0..5, 0, 20);
    let id = case.insert_one(&name, "k1", 20);
    case.site.wait_confirmed(&mut relay, LIMIT);
    // WHEN it is looked for THEN everything about it is right
    let (event, not_searched) = find(&case, &id);
    let row = |what: &str| case.site.value(&format!("select {what} from outbox where id = '{id}'"));
    assert_eq!([&event["id"], &event["key"], &event["state"]], [&id, "k1", "published"]);
    assert_eq!(event["row"]["table"], "public.outbox");
    let committed = event["row"]["committed_at"].as_str().unwrap();
    assert_eq!(row(&format!("pg_xact_commit_timestamp(xmin) = timestamptz '{committed}'")), "t");
    let created = event["row"]["created_at"].as_str().unwrap();
    assert_eq!(row(&format!("created_at = timestamptz '{created}'")), "t");
    assert_eq!((&event["slot_passed"], &event["trace_id"]), (&json!(true), &json!(TRACE_ID)));
    match kind {
        BrokerKind::Kafka => {
            assert_eq!(published(&event), consumed(&name, &id));
            assert_eq!(published(&event).len(), 1, "{event}");
            let record = read(&[&name]).into_iter().find(|it| it.header("id") == Some(&id));
            assert_eq!(event["lsn"].as_str(), record.unwrap().header("lsn"));
            assert_eq!(not_searched, json!([]));
        }
        BrokerKind::RabbitMq => {
            assert_eq!((&event["published"], &event["lsn"]), (&json!([]), &Value::Null));
            assert!(says(&not_searched, "RabbitMQ is not searched"), "{not_searched}");
            assert!(says(&event["text"], "the slot has passed it, as it does when"));
        }
    }
    of_a_key(&case, &id);
    without_row(&case, &id);
    nowhere(&case);
}

/// All events of a key, and only those.
fn of_a_key(case: &DeadLetterFixture, id: &str) {
    let (code, answer) = find_with(case, &constant(case), &["--key", "k1"]);
    let events = answer["events"].as_array().unwrap();
    assert_eq!((code, events.len()), (0, 5), "{answer}");
    let is_published = |event: &Value| event["key"] == "k1" && event["state"] == "published";
    assert!(events.iter().all(is_published), "{answer}");
    assert_eq!(events[4]["id"], id, "the newest is the last: {answer}");
    if case.site.kind() == BrokerKind::Kafka {
        // THEN one partition was read, and no other
        let of_topic = |it: &&Value| it.as_str().unwrap().contains(" of topic ");
        let searched = answer["searched"].as_array().unwrap().iter().filter(of_topic);
        let partition = consumed(&case.site.name, id)[0].0;
        let wanted = format!("partition {partition} of topic {}: ", case.site.name);
        assert!(searched.clone().all(|it| it.as_str().unwrap().starts_with(&wanted)), "{answer}");
        assert_eq!(searched.count(), 1, "{answer}");
    }
    let since =
        case.site.value("select to_char(now() + interval '1 hour', 'YYYY-MM-DD\"T\"HH24:MI:SSOF')");
    let (code, answer) =
        find_with(case, &constant(case), &["--key", "k1", "--since", &format!("{since}:00")]);
    assert_eq!((code, &answer["events"]), (1, &json!([])), "{answer}");
}

#[test]
fn a_key_of_bytes_or_a_boolean_is_searched_in_its_partition() {
    for (name, kind, typed, key) in
        [("find_bytes", "bytea", "\\x6b", "k"), ("find_flag", "boolean", "t", "true")]
    {
        let mut scene = CliFixture::bare(name);
        // The topic is known without a row.
        scene.route = format!("topic = \"{}\"\n", scene.topic());
        scene.sql(&format!(
            "CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text,
             aggregateid {kind}, type text, payload text)"
        ));
        scene.make_topic(&scene.topic(), 5);
        scene.walrelay(&["init"]).assert_done();
        scene.sql(&format!(
            "INSERT INTO outbox (aggregatetype, aggregateid, payload) VALUES ('{name}', '{typed}', 'x')"
        ));
        let records = scene.carry(&[&scene.topic()]);
        assert_eq!(records[0].key(), Some(key));
        // THEN one partition is searched, while the row is there and when it is gone
        for sql in ["SELECT", "DELETE FROM outbox"] {
            scene.sql(sql);
            let found = scene.walrelay(&["find", "--key", typed, "--json"]);
            let answer = found.assert_done().json();
            assert_eq!(answer["events"][0]["key"], key, "{answer}");
            let searched = answer["searched"].as_array().unwrap().iter();
            let of_topic = searched.filter(|it| it.as_str().unwrap().contains(" of topic "));
            assert_eq!(of_topic.count(), 1, "{answer}");
        }
    }
}

/// The row is gone, and only the key says where the record is.
fn without_row(case: &DeadLetterFixture, id: &str) {
    case.site.execute(&format!("delete from outbox where id = '{id}'"));
    let (code, answer) = find_with(case, &constant(case), &[id]);
    assert_eq!((code, &answer["events"]), (1, &json!([])), "{answer}");
    if case.site.kind() == BrokerKind::Kafka {
        assert!(says(&answer["not_searched"], "walrelay find --key KEY"), "{answer}");
        let (_, answer) = find_with(case, &constant(case), &["--key", "k1"]);
        let event = &answer["events"][4];
        assert_eq!((&event["id"], &event["row"]), (&json!(id), &Value::Null), "{answer}");
        assert_eq!(published(event), consumed(&case.site.name, id));
        assert_eq!([&event["state"], &event["trace_id"]], ["published", TRACE_ID]);
        assert_eq!(event["slot_passed"], true);
    }
}

fn nowhere(case: &DeadLetterFixture) {
    // GIVEN an event that was rolled back
    case.site.execute(&format!(
        "begin; insert into outbox values ('{NOBODY}', '{}', 'k1', 'created', '{{}}'); rollback",
        case.site.name
    ));
    let ended = case.site.command(&constant(case), &["find", NOBODY]).wait();
    assert_eq!(ended.code, 1, "{ended}");
    let words =
        ["no event with id 00000000", "rolled back", "public.outbox: 0 rows", "dead letters in"];
    ended.assert_says(&words);
    // WHEN the id cannot be one THEN that is said, and nothing is searched
    let ended = case.walrelay(&["find", "order-1"]);
    ended.assert_fault(2, "find.no-value", &["\"order-1\" is not a value of column id", "uuid"]);
    case.walrelay(&["find"]).assert_fault(2, "find.bad-request", &["walrelay find ID, or --key"]);
    case.walrelay(&["find", NOBODY, "--since", "soon"]).assert_fault(
        2,
        "find.bad-request",
        &["\"soon\"", "where: --since"],
    );
}

fn a_dead_letter_is_found(kind: BrokerKind) {
    let case = DeadLetterFixture::on(kind, "find_letter", "attempts_max = 3\n", "");
    let mut relay = case.relay();
    let id = case.insert_one(&case.lost(), "k1", 0);
    case.site.wait_confirmed(&mut relay, LIMIT);
    let letter = case.list(&[&id]).swap_remove(0);
    let (event, _) = find(&case, &id);
    let found = &event["dead_letters"][0];
    let names =
        ["partition", "offset", "attempts", "error_class", "error_msg", "state", "failed_at"];
    for name in names {
        assert_eq!(found[name], letter[name], "{name}");
    }
    assert_eq!([&found["state"], &event["state"]], ["open", "dead_lettered"]);
    assert!(event["text"].to_string().contains(&format!("walrelay dlq replay '{id}'")), "{event}");
    assert_eq!((&event["lsn"], &event["slot_passed"]), (&letter["lsn"], &json!(true)));
    // WHEN the id is typed in another way than Postgres prints it, or letters are written no more THEN it is
    // found all the same
    let (event, _) = find(&case, &id.to_uppercase());
    assert_eq!([&event["id"], &event["state"]], [&*id, "dead_lettered"]);
    let mut halting = case.config.clone();
    halting.extra = halting.extra.replace("attempts_max = 3\n", "on_dead_letter = \"halt\"\n");
    let (_, answer) = find_with(&case, &halting, &[&id]);
    assert_eq!(answer["events"][0]["state"], "dead_lettered", "{answer}");
    // WHEN only what comes later is looked for THEN its row still leads to its dead letter
    let (code, answer) = find_with(&case, &case.config, &[&id, "--since", "2100-01-01"]);
    assert_eq!((code, &answer["events"][0]["state"]), (0, &json!("dead_lettered")), "{answer}");
    // WHEN it is discarded, and its row is deleted THEN it is found all the same
    case.must(&["dlq", "discard", &id, "--yes"]);
    case.site.execute("delete from outbox");
    let (code, answer) = find_with(&case, &constant(&case), &["--key", "k1"]);
    let event = &answer["events"][0];
    assert_eq!((code, &event["id"], &event["key"]), (0, &json!(id), &json!("k1")), "{answer}");
    assert_eq!(
        [&event["dead_letters"][0]["state"], &event["state"]],
        ["discarded", "dead_lettered"]
    );
    let id = id.to_uppercase();
    let shown = case.site.command(&constant(&case), &["find", &id]).wait();
    shown.assert_done().assert_says(&["dead letter: discarded; at ", "attempts 3, "]);
}

fn an_event_that_waits_is_told_from_one_in_flight(kind: BrokerKind) {
    // A refused event waits long for its next attempt.
    let delivery = "attempts_max = 1000\nbackoff_cap = \"10m\"\n";
    let mut case = DeadLetterFixture::on(kind, "find_waiting", delivery, "");
    case.reconfigure("backoff_base = \"20ms\"", "backoff_base = \"10m\"");
    // GIVEN no relay
    let id = case.insert_one(&case.lost(), "k1", 0);
    let (event, _) = find(&case, &id);
    assert_eq!((&event["state"], &event["published"]), (&json!("waiting"), &json!([])), "{event}");
    assert!(says(&event["text"], "no relay has received it"), "{event}");
    // GIVEN no broker THEN that is said, and the same of the event
    let port = walrelay_harness::free_port().unwrap();
    let mut config = case.config.clone();
    match &mut config.rabbitmq {
        Some(rabbitmq) => rabbitmq.url = format!("amqp://guest:guest@127.0.0.1:{port}"),
        None => config.brokers = format!("127.0.0.1:{port}"),
    }
    let (code, answer) = find_with(&case, &config, &[&id, "--within", "15s"]);
    assert_eq!((code, &answer["events"][0]["state"]), (0, &json!("waiting")), "{answer}");
    assert!(says(&answer["not_searched"], "dead letters and destinations: "), "{answer}");
    assert!(says(&answer["events"][0]["text"], "probably not published"), "{answer}");
    // GIVEN a relay that has it, and a broker that has not confirmed it
    let relay = case.relay();
    until("the event to be in flight", LIMIT, || {
        (metric(&relay, "outbox_retries_total")? + metric(&relay, "outbox_in_flight_events")? > 0.0)
            .then_some(())
    });
    // Other tests write WAL in the meantime, which Postgres has to send first.
    let event = until("it to be in flight", LIMIT, || {
        let (event, _) = find(&case, &id);
        (event["state"] == "in_flight").then_some(event)
    });
    assert_eq!(event["slot_passed"], Value::Null);
    assert!(says(&event["text"], "a relay has received it"), "{event}");
}

fn an_event_is_found_over_http(kind: BrokerKind) {
    let mut case = DeadLetterFixture::on(kind, "find_http", "", "").with_token(api::TOKEN);
    case.config = constant(&case);
    let mut relay = case.relay();
    let id = case.insert_one(&case.site.name, "k1", 0);
    case.site.wait_confirmed(&mut relay, LIMIT);
    let told = api::get(&relay, &format!("/api/find?id={id}"));
    let (event, _) = find(&case, &id);
    assert_eq!(told["events"], json!([event]));
    let told = api::get(&relay, "/api/find?key=k1&since=1h");
    assert_eq!(told["events"][0]["id"], id);
    for (query, code) in
        [("id=order-1", "find.no-value"), ("", "find.bad-request"), ("x=1", "api.bad-request")]
    {
        let first = format!("GET /api/find?{query}");
        let (status, body) = api::request(relay.admin(), &first, Some(api::TOKEN), "");
        assert_eq!((status, body["code"].as_str()), (400, Some(code)), "{query}: {body}");
    }
    let (status, _) = api::request(relay.admin(), &format!("GET /api/find?id={id}"), None, "");
    assert_eq!(status, 401);
    let lines = api::audit(&relay);
    let of: Vec<&Value> = lines.iter().filter(|line| line["action"] == "find").collect();
    assert_eq!((&of[0]["wanted"], &of[1]["by"]), (&json!(id), &json!("key")), "{of:?}");
    assert!(of[0]["who"].as_str().unwrap().starts_with("token@127.0.0.1:"), "{of:?}");
}
