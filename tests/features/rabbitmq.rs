//! The same events as AMQP messages: where they go, and all that comes with them.

use walrelay_harness::rabbit::{Delivery, Properties, Queue, Rabbit, Value};

use crate::support::faults::CliFixture;
use crate::support::shared_rabbitmq;

/// A scene whose events go to an exchange of its name,
/// and everything of it into a queue of its name.
fn scene(name: &str) -> CliFixture<'static> {
    let mut scene = CliFixture::ready(name);
    let url = shared_rabbitmq().amqp_url();
    scene.sink = format!(
        "[sink]\nkind = \"rabbitmq\"\n[sink.rabbitmq]\nurl = {url:?}\nexchange = {name:?}\n"
    );
    bound(name, name);
    scene
}

/// An exchange with a queue that gets everything of it.
fn bound(exchange: &str, queue: &str) {
    let mut rabbit = Rabbit::open(&shared_rabbitmq().amqp_url()).unwrap();
    rabbit.declare_exchange(exchange, "topic").unwrap();
    rabbit.declare_queue(queue, Queue::Classic).unwrap();
    rabbit.bind(queue, exchange, "#").unwrap();
}

/// Relays all there is; what the queue got.
fn carry(scene: &CliFixture<'_>, queue: &str) -> Vec<Delivery> {
    scene.carry(&[]);
    Rabbit::open(&shared_rabbitmq().amqp_url()).unwrap().take(queue).unwrap()
}

fn names(properties: &Properties) -> Vec<&str> {
    properties.headers.iter().map(|(name, _)| name.as_str()).collect()
}

fn header<'a>(properties: &'a Properties, name: &str) -> Option<&'a str> {
    properties.header(name).map(|value| std::str::from_utf8(value).unwrap())
}

#[test]
fn the_default_message_is_exact() {
    // GIVEN a row with everything
    let scene = scene("rabbit_default");
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let id = scene.sql(&format!(
        r#"INSERT INTO outbox (aggregatetype, aggregateid, type, payload, headers, traceparent)
           VALUES ('order', 'order-1', 'OrderPlaced', '{{"b": 1, "a": [1.50, "ü"]}}',
                   '{{"tenant": "blue", "n": 7}}', '{traceparent}') RETURNING id"#
    ));
    let messages = carry(&scene, "rabbit_default");
    // THEN its message has the payload as Postgres writes it, and goes where the route says
    let [message] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!(
        (message.exchange.as_str(), message.routing_key.as_str()),
        ("rabbit_default", "outbox.event.order")
    );
    assert_eq!(message.body, r#"{"a": [1.50, "ü"], "b": 1}"#.as_bytes());
    // THEN it is durable and says what it is
    let properties = &message.properties;
    assert_eq!(properties.delivery_mode, Some(2));
    assert_eq!(properties.message_id.as_deref(), Some(id.as_str()));
    assert_eq!(properties.kind.as_deref(), Some("OrderPlaced"));
    assert_eq!(properties.content_type.as_deref(), Some("application/json"));
    assert_eq!(properties.app_id.as_deref(), Some("walrelay"));
    // Its time is that of the publish.
    let commit =
        "SELECT floor(extract(epoch FROM pg_xact_commit_timestamp(xmin)))::bigint FROM outbox";
    let now = "SELECT floor(extract(epoch FROM clock_timestamp()))::bigint";
    let [commit_s, now_s] = [commit, now].map(|sql| scene.sql(sql).parse::<u64>().unwrap());
    assert!((commit_s..=now_s).contains(&properties.timestamp_s.unwrap()), "{properties:?}");
    // THEN the headers are Kafka's, and the key, which AMQP has no other place for
    let mut known = names(properties);
    known.sort_unstable();
    assert_eq!(
        known,
        ["commit_ts", "event_type", "id", "key", "lsn", "n", "tenant", "traceparent"]
    );
    let told = ["id", "key", "event_type", "traceparent", "tenant", "n"];
    let told = told.map(|name| header(properties, name).unwrap());
    assert_eq!(told, [&id, "order-1", "OrderPlaced", traceparent, "blue", "7"]);
    let lsn = header(properties, "lsn").unwrap();
    assert_eq!(scene.sql(&format!("SELECT pg_lsn '{lsn}' <= pg_current_wal_lsn()")), "t");
    let same = format!(
        "SELECT pg_xact_commit_timestamp(xmin) = timestamptz '{}' FROM outbox",
        header(properties, "commit_ts").unwrap()
    );
    assert_eq!(scene.sql(&same), "t");
}

#[test]
fn exchange_and_routing_key_come_from_the_row_where_they_are_told_to() {
    let mut scene = scene("rabbit_routed");
    bound("rabbit_routed.eu", "rabbit_routed.eu");
    scene.sink = scene.sink.replace("\"rabbit_routed\"", "\"${aggregatetype}\"");
    scene.route = "topic = \"orders.${type}\"".into();
    for (exchange, kind) in [("rabbit_routed", "placed"), ("rabbit_routed.eu", "paid")] {
        scene.sql(&format!(
            "INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES ('{exchange}', '1', '{kind}')"
        ));
    }
    for (queue, key) in [("rabbit_routed", "orders.placed"), ("rabbit_routed.eu", "orders.paid")] {
        let messages = carry(&scene, queue);
        let [message] = &messages[..] else { panic!("{messages:?}") };
        assert_eq!((message.exchange.as_str(), message.routing_key.as_str()), (queue, key));
        // AMQP has no null: a row without a payload is an empty body.
        assert!(message.body.is_empty());
    }
}

#[test]
fn the_debezium_preset_adds_the_key_alone() {
    let mut scene = scene("rabbit_debezium");
    scene.route = "preset = \"debezium\"".into();
    let id = scene.insert("7", r#"{"a": 1}"#);
    let messages = carry(&scene, "rabbit_debezium");
    let [message] = &messages[..] else { panic!("{messages:?}") };
    let mut headers = message.properties.headers.clone();
    headers.sort_by(|a, b| a.0.cmp(&b.0));
    let text = |text: &str| Value::from(text);
    assert_eq!(headers, [("id".to_owned(), text(&id)), ("key".to_owned(), text("7"))]);
    assert_eq!(message.properties.message_id.as_deref(), Some(id.as_str()));
}
