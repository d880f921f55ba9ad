//! RabbitMQ as it is set up: made by `init`, looked at by `check`, reached over TLS, by certificate
//! and through the second of two hosts.

use walrelay_harness::free_port;

use crate::support::faults::Scene;
use crate::support::rabbitmq::{shared, sink};

const ALL: [&str; 3] = [".*", ".*", ".*"];

fn waiting(name: &str, rights: [&str; 3]) -> Scene<'static> {
    let mut scene = Scene::waiting(name);
    shared().tenant(name, rights);
    scene.sink = shared().sink(name);
    scene
}

#[test]
fn init_makes_exchange_queues_and_bindings_and_says_so_once() {
    let mut scene = waiting("rabbit_init", ALL);
    let name = scene.name.clone();
    scene.sink.push_str(&shared().management());
    scene.sink.push_str("queues = { all = \"#\", \"plain one\" = \"outbox.event.rabbit_init\" }\n");
    let made = scene.walrelay(&["init"]);
    made.assert_done().assert_says(&[
        "+ make exchange outbox.events: topic, durable",
        "+ make queue all: quorum, durable",
        "+ make binding of queue all to exchange outbox.events by \"#\"",
        "+ make queue plain one: quorum, durable",
    ]);
    let again = scene.walrelay(&["init"]);
    again.assert_done();
    assert!(!again.out.contains("+ make"), "{again}");
    let check = scene.walrelay(&["check"]);
    check.assert_done().assert_says(&[
        "✓ rabbitmq answers at 127.0.0.1:",
        "✓ exchange outbox.events is there: topic, durable",
        "✓ queue plain one is there",
        "✓ 2 bindings to exchange outbox.events",
    ]);
    scene.carry(&[]);
    shared().assert_holds(&name, "all", 1);
    let listed = shared().ctl(&["-q", "list_queues", "-p", &name, "type", "durable"]);
    assert!(!listed.contains("classic") && !listed.contains("false"), "{listed}");
}

#[test]
fn a_queue_type_and_an_exchange_type_are_what_init_makes() {
    let mut scene = waiting("rabbit_types", ALL);
    let name = scene.name.clone();
    scene
        .sink
        .push_str("exchange = \"fan\"\nexchange_type = \"fanout\"\nqueue_type = \"classic\"\n");
    scene.sink.push_str("queues = { c = \"\" }\n");
    scene.walrelay(&["init"]).assert_done();
    let listed = shared().ctl(&["-q", "list_queues", "-p", &name, "name", "type"]);
    assert!(listed.contains("classic"), "{listed}");
    scene.carry(&[]);
    shared().assert_holds(&name, "c", 1);
    // The default exchange reaches queues by their names.
    scene.sink = shared().sink(&name) + "exchange = \"\"\nqueues = { direct = \"\" }\n";
    scene.route = "topic = \"direct\"".into();
    scene.walrelay(&["check"]).assert_says(&["✗ queue direct does not exist"]);
    scene.walrelay(&["init"]).assert_done();
    scene.insert("2", "{}");
    scene.carry(&[]);
    shared().assert_holds(&name, "direct", 1);
}

#[test]
fn check_tells_what_is_bound_when_it_may_ask() {
    let mut scene = waiting("rabbit_bound", ALL);
    let (name, broker) = (scene.name.clone(), shared());
    broker.exchange(&name, "outbox.events", r#"{"type": "topic", "durable": true}"#);
    // Without the management API that cannot be known.
    let blind = scene.walrelay(&["check"]);
    blind.assert_done().assert_says(&["cannot be seen over AMQP", "sink.rabbitmq.management_url"]);
    scene.sink.push_str(&broker.management());
    scene.walrelay(&["check"]).assert_says(&["✗ nothing is bound to exchange outbox.events"]);
    // GIVEN a constant routing key and a binding that misses it
    scene.route = "topic = \"order.created.eu\"".into();
    let body = r#"{"durable": true, "arguments": {"x-max-length": 5}}"#;
    broker.queue(&name, "bounded", body, ("outbox.events", "order.*"));
    let check = scene.walrelay(&["check"]);
    assert_eq!(check.code, 1, "{check}");
    check.assert_says(&[
        "✗ nothing is bound to exchange outbox.events for routing key order.created.eu",
        "[sink.unroutable]",
        "! queue bounded drops its oldest events when it is full",
    ]);
    broker.queue(&name, "brief", r#"{"durable": false}"#, ("outbox.events", "order.#"));
    let check = scene.walrelay(&["check"]);
    check
        .assert_done()
        .assert_says(&["✓ routing key order.created.eu is bound", "! queue brief is not durable"]);
    // A queue that is there, and bound by another key than the configuration says.
    scene.sink.push_str("queues = { brief = \"order.created.*\" }\n");
    scene.walrelay(&["check"]).assert_says(&[
        "✗ queue brief is not bound to exchange outbox.events by \"order.created.*\"",
        "[sink.binding-missing]",
    ]);
    scene.walrelay(&["init"]).assert_done();
    scene.walrelay(&["check"]).assert_done();
}

#[test]
fn an_alternate_exchange_is_pointed_out_wherever_it_comes_from() {
    let mut scene = waiting("rabbit_alternate", ALL);
    let (name, broker) = (scene.name.clone(), shared());
    let body =
        r#"{"type": "topic", "durable": true, "arguments": {"alternate-exchange": "spill"}}"#;
    broker.exchange(&name, "outbox.events", body);
    let words = ["! exchange outbox.events has the alternate exchange spill", "count as delivered"];
    scene.walrelay(&["check"]).assert_done().assert_says(&words);
    broker.exchange(&name, "by.policy", r#"{"type": "topic", "durable": true}"#);
    let policy = r#"{"alternate-exchange": "spill"}"#;
    broker.ctl(&["set_policy", "-p", &name, "--apply-to", "exchanges", "ae", "^by", policy]);
    scene.sink.push_str("exchange = \"by.policy\"\n");
    scene.sink.push_str(&broker.management());
    let words = ["! exchange by.policy has the alternate exchange spill"];
    scene.walrelay(&["check"]).assert_done().assert_says(&words);
    // A management API that does not let us in is no reason to refuse.
    scene.sink = scene.sink.replace("http://", "http://nobody:canary@");
    let check = scene.walrelay(&["check"]);
    check.assert_done().assert_says(&["it answered 401"]);
    assert!(!check.all().contains("canary"), "{check}");
}

#[test]
fn a_login_needs_write_and_nothing_else() {
    let scene = waiting("rabbit_rights", ["", "^outbox\\.events$", ""]);
    let (name, broker) = (scene.name.clone(), shared());
    broker.exchange(&name, "outbox.events", r#"{"type": "topic", "durable": true}"#);
    broker.queue(&name, "kept", r#"{"durable": true}"#, ("outbox.events", "#"));
    let check = scene.walrelay(&["check"]);
    check.assert_done().assert_says(&["cannot be known: this login may not declare it"]);
    scene.carry(&[]);
    broker.assert_holds(&name, "kept", 1);
}

#[test]
fn events_go_over_tls_by_password_and_by_certificate() {
    let mut scene = waiting("rabbit_tls", ALL);
    let (name, broker) = (scene.name.clone(), shared());
    scene.sink = broker.tls_sink(&name) + "queues = { kept = \"#\" }\n";
    scene.walrelay(&["init"]).assert_done();
    scene.carry(&[]);
    broker.assert_holds(&name, "kept", 1);
    // The address is in the certificate, too; and a name can be given for one that is not.
    let good = scene.sink.clone();
    scene.sink = good.replace("@localhost:", "@127.0.0.1:");
    scene.walrelay(&["check"]).assert_done();
    scene.sink = good.replace("@localhost:", "@127.0.0.1:") + "server_name = \"localhost\"\n";
    scene.walrelay(&["check"]).assert_done();
    // GIVEN a user of the certificate's name, without a password
    broker.ctl(&["add_user", "client", "unused"]);
    broker.ctl(&["clear_password", "client"]);
    broker.ctl(&["set_permissions", "-p", &name, "client", "", ".*", ""]);
    let (cert, key) = (broker.file("client.crt"), broker.file("client.key"));
    let identity = format!("auth = \"external\"\ncert_file = {cert:?}\nkey_file = {key:?}\n");
    scene.sink = good.replace(&format!("{name}:{name}@"), "") + &identity;
    scene.sql(
        "INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
         SELECT 'rabbit_tls', n, 'T', '{}' FROM generate_series(2, 200) n",
    );
    scene.carry(&[]);
    broker.assert_holds(&name, "kept", 200);
}

#[test]
fn the_second_host_is_taken_when_the_first_is_away() {
    let mut scene = waiting("rabbit_hosts", ALL);
    let (name, broker) = (scene.name.clone(), shared());
    let (away, port) = (free_port().unwrap(), broker.node.port());
    broker.ctl(&["add_user", "o/d d@", "p:w/%"]);
    broker.ctl(&["set_permissions", "-p", &name, "o/d d@", ".*", ".*", ".*"]);
    let login = "o%2Fd%20d%40:p%3Aw%2F%25";
    scene.sink = sink(&format!("amqp://{login}@127.0.0.1:{away},127.0.0.1:{port}/{name}"));
    scene.sink.push_str("queues = { kept = \"#\" }\n");
    scene.walrelay(&["init"]).assert_done();
    scene.carry(&[]);
    broker.assert_holds(&name, "kept", 1);
}
