//! A RabbitMQ that is not there, does not let us in, or lacks what the configuration names.

use walrelay_harness::free_port;

use super::canary::EVERYTHING;
use crate::support::faults::CliFixture;
use crate::support::rabbitmq::{ALL, shared, sink, waiting};

#[test]
fn who_may_not_log_in_is_told_and_the_password_is_not() {
    let mut scene = waiting("rabbit_login", ALL);
    let (name, port) = (scene.name.clone(), shared().node.port());
    scene.sink = sink(&format!("amqp://{name}:canary%2F1@127.0.0.1:{port}/{name}"));
    let mend = format!("rabbitmqctl change_password '{name}'");
    scene.env.push(("WALRELAY_LOG".into(), EVERYTHING.into()));
    let add = format!("rabbitmqctl add_user '{name}'");
    let rights = "'' '^(outbox\\.events|outbox\\.dlx)$' '^outbox\\.dlq$'";
    let words = ["ACCESS_REFUSED", &mend, &add, rights];
    let ended = scene.assert_refused(5, "sink.login", &words);
    assert!(!ended.all().contains("canary"), "{ended}");
    for words in [&["check"][..], &["init"], &["config", "show"]] {
        let ended = scene.walrelay(words);
        assert!(!ended.all().contains("canary"), "{ended}");
    }
    // A virtual host that does not exist, and one that is another's.
    scene.sink = sink(&format!("amqp://{name}:{name}@127.0.0.1:{port}/none%2Fsuch"));
    let words = ["none/such", "rabbitmqctl add_vhost 'none/such'"];
    scene.assert_refused(5, "sink.vhost", &words);
    scene.sink = sink(&format!("amqp://{name}:{name}@127.0.0.1:{port}"));
    scene.assert_refused(5, "sink.vhost", &["rabbitmqctl set_permissions -p '/'"]);
}

#[test]
fn a_broker_that_is_not_there_is_told_with_every_host_that_was_tried() {
    let mut scene = waiting("rabbit_unreachable", ALL);
    let (one, two) = (free_port().unwrap(), free_port().unwrap());
    scene.sink = sink(&format!("amqp://u:canary@127.0.0.1:{one},127.0.0.1:{two}/v"));
    let (one, two) = (format!("127.0.0.1:{one}: "), format!("127.0.0.1:{two}: "));
    let words = [&one, &two, "refused", "virtual host v", "start the broker"];
    let ended = scene.assert_refused(5, "sink.unreachable", &words);
    assert!(!ended.all().contains("canary"), "{ended}");
    scene.sink = sink("amqp://u:canary@nowhere.invalid/v");
    let check = scene.walrelay(&["check"]);
    check.assert_says(&["nowhere.invalid:5672", "[sink.unreachable]"]);
    // GIVEN one host of two that answers, and refuses: that is what is told
    let port = shared().node.port();
    scene.sink = sink(&format!("amqp://u:wrong@127.0.0.1:{port},nowhere.invalid/v"));
    scene.assert_refused(5, "sink.login", &["ACCESS_REFUSED", "nowhere.invalid"]);
}

#[test]
fn an_exchange_or_queue_that_is_missing_is_told_before_anything_moves() {
    let mut scene = waiting("rabbit_missing", ALL);
    let name = scene.name.clone();
    let words = [
        "exchange outbox.events does not exist",
        "walrelay init",
        "rabbitmqadmin --vhost 'rabbit_missing' declare exchange --name 'outbox.events' --type 'topic' --durable true",
    ];
    scene.assert_refused(5, "sink.exchange-missing", &words);
    shared().exchange(&name, "outbox.events", r#"{"type": "topic", "durable": true}"#);
    scene.sink.push_str("queues = { never = \"#\" }\n");
    scene.assert_refused(5, "sink.queue-missing", &["queue never does not exist", "walrelay init"]);
    let check = scene.walrelay(&["check"]);
    assert_eq!(check.code, 1, "{check}");
    check.assert_says(&["✓ exchange outbox.events is there: topic, durable", "✗ queue never"]);
    // WHEN the user follows the hint THEN the event that waited is relayed
    scene.walrelay(&["init"]).assert_done();
    scene.carry(&[]);
    shared().assert_holds(&name, "never", 1);
}

#[test]
fn an_exchange_of_another_shape_is_told_with_the_shape_it_has() {
    let mut scene = waiting("rabbit_shape", ALL);
    let name = scene.name.clone();
    let exchange = |body: &str| {
        shared().api("DELETE", &format!("exchanges/{name}/shaped"), "");
        shared().exchange(&name, "shaped", body);
    };
    scene.sink.push_str("exchange = \"shaped\"\n");
    shared().exchange(&name, "shaped", r#"{"type": "fanout", "durable": true}"#);
    let words = ["is of type fanout", "says topic", "exchange_type = \"fanout\""];
    scene.assert_refused(5, "sink.exchange-type", &words);
    scene.walrelay(&["init"]).assert_says(&["is of type fanout"]);
    exchange(r#"{"type": "topic", "durable": false}"#);
    scene.assert_refused(5, "sink.exchange-not-durable", &["is not durable", "walrelay init"]);
    exchange(r#"{"type": "topic", "durable": true, "internal": true}"#);
    scene.assert_refused(5, "sink.exchange-internal", &["nobody can publish to it"]);
    // Two differences of which the first can be lived with.
    exchange(r#"{"type": "topic", "durable": true, "auto_delete": true, "internal": true}"#);
    scene.assert_refused(5, "sink.exchange-internal", &["nobody can publish to it"]);
    let unknown = scene.sink.clone() + "exchange_type = \"x-no-such\"\n";
    scene.sink = unknown;
    scene.assert_refused(5, "sink.exchange-type", &["knows no exchange type x-no-such"]);
}

#[test]
fn a_login_that_may_not_publish_is_told_before_anything_moves() {
    let mut scene = waiting("rabbit_forbidden", ["", "^other", ""]);
    let name = scene.name.clone();
    shared().exchange(&name, "outbox.events", r#"{"type": "topic", "durable": true}"#);
    let words = [
        "rabbit_forbidden may not publish to exchange outbox.events",
        "rabbitmqctl set_permissions -p 'rabbit_forbidden' 'rabbit_forbidden' '' '^(outbox\\.events|outbox\\.dlx)$' '^outbox\\.dlq$'",
    ];
    scene.assert_refused(5, "sink.exchange-forbidden", &words);
    // The default exchange has another name in permissions.
    let sink = scene.sink.clone();
    scene.sink.push_str("exchange = \"\"\n");
    let words = [
        "rabbit_forbidden may not publish to exchange amq.default",
        "'' '^(amq\\.default|outbox\\.dlx)$' '^outbox\\.dlq$'",
    ];
    scene.assert_refused(5, "sink.exchange-forbidden", &words);
    scene.sink = sink;
    // WHEN the user follows the hint THEN the event that waited is relayed
    shared().allow(&name, ["", "^(outbox\\.events|outbox\\.dlx)$", "^outbox\\.dlq$"]);
    shared().queue(&name, "kept", r#"{"durable": true}"#, ("outbox.events", "#"));
    scene.carry(&[]);
    shared().assert_holds(&name, "kept", 1);
    // What run does not need, init does.
    scene.sink.push_str("queues = { fresh = \"#\" }\n");
    let words = ["cannot make queue fresh", "WALRELAY_SINK__RABBITMQ__URL="];
    let init = scene.walrelay(&["init"]);
    init.assert_fault(5, "sink.not-permitted", &words);
    assert_eq!(init.out, "not ready: 1 problem (✗)\n");
}

#[test]
fn a_route_that_amqp_cannot_carry_is_told_with_its_key() {
    let mut scene = CliFixture::waiting("rabbit_route");
    scene.sink = sink("amqp://mq/v");
    scene.route = "partition = \"p\"".into();
    let words = ["route.partition: RabbitMQ has no partitions", "remove it"];
    scene.assert_refused(2, "config.conflict", &words);
    scene.route = format!("topic = {:?}", "k".repeat(256));
    scene.assert_refused(2, "config.bad-value", &["route.topic: the routing key has 256 bytes"]);
    // What Kafka would not take as a topic is a good routing key.
    scene.route = "topic = \"a key/with: anything\"".into();
    scene.walrelay(&["config", "show"]).assert_done();
}
