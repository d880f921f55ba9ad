//! RabbitMQ as it is set up: made by `init`, looked at by `check`, reached over TLS, by certificate
//! and through the second of two hosts.

use walrelay_harness::free_port;

use crate::support::rabbitmq::{ALL, shared, sink, waiting};

#[test]
fn init_makes_exchange_queues_and_bindings_and_says_so_once() {
    let mut scene = waiting("rabbit_init", ALL);
    let name = scene.name.clone();
    scene.sink.push_str("queues = { all = \"#\", \"plain one\" = \"outbox.event.rabbit_init\" }\n");
    let would = scene.walrelay(&["init", "--dry-run"]);
    assert!(scene.walrelay(&["check"]).out.contains("queue all does not exist"));
    let made = scene.walrelay(&["init"]);
    for ended in [&would, &made] {
        ended.assert_done().assert_says(&[
            "+ make exchange outbox.events: topic, durable",
            "+ make queue all: quorum, durable",
            "+ make binding of queue all to exchange outbox.events by \"#\"",
            "+ make queue plain one: quorum, durable",
        ]);
    }
    let again = scene.walrelay(&["init"]);
    again.assert_done();
    assert_eq!(again.out, "nothing is missing\n", "{again}");
    let check = scene.walrelay(&["check"]);
    check.assert_done().assert_says(&[
        "✓ rabbitmq answers at 127.0.0.1:",
        "✓ exchange outbox.events is there: topic, durable",
        "✓ queue plain one is there",
    ]);
    scene.carry(&[]);
    shared().assert_holds(&name, "all", 1);
    let listed = shared().queues(&name, "type,durable");
    assert!(!listed.contains("classic") && !listed.contains("\"durable\":false"), "{listed}");
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
    let listed = shared().queues(&name, "type");
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

/// WHEN no queue is bound THEN `check` says when that is seen, and the first publish says it
#[test]
fn an_event_that_no_queue_is_bound_for_is_returned_at_its_first_publish() {
    let mut scene = waiting("rabbit_bound", ALL);
    let (name, broker) = (scene.name.clone(), shared());
    broker.exchange(&name, "outbox.events", r#"{"type": "topic", "durable": true}"#);
    scene.walrelay(&["check"]).assert_done().assert_says(&[
        "✓ exchange outbox.events is there: topic, durable; whether a routing key is bound is seen at its first publish",
    ]);
    scene.extra = "[delivery]\nattempts_max = 1\n".to_owned();
    scene.carry(&[]);
    let listed = scene.walrelay(&["dlq", "list", "--json"]);
    listed.assert_done().assert_says(&[
        "rabbitmq.no-route",
        "no queue is bound to exchange \\\"outbox.events\\\" for routing key \\\"outbox.event.rabbit_bound\\\"",
    ]);
    // WHEN the queue is made as the message says THEN a replay delivers the event
    scene.sink.push_str("queues = { all = \"#\" }\n");
    scene.walrelay(&["init"]).assert_done();
    scene.walrelay(&["dlq", "replay", "--all"]).assert_done();
    broker.assert_holds(&name, "all", 1);
}

#[test]
fn an_alternate_exchange_is_pointed_out() {
    let scene = waiting("rabbit_alternate", ALL);
    let (name, broker) = (scene.name.clone(), shared());
    let body =
        r#"{"type": "topic", "durable": true, "arguments": {"alternate-exchange": "spill"}}"#;
    broker.exchange(&name, "outbox.events", body);
    let words = ["! exchange outbox.events has the alternate exchange spill", "count as delivered"];
    scene.walrelay(&["check"]).assert_done().assert_says(&words);
}

#[test]
fn a_login_writes_to_two_exchanges_and_reads_dead_letters() {
    let rights = ["", "^outbox\\.(events|dlx)$", "^outbox\\.dlq$"];
    let scene = waiting("rabbit_rights", rights);
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
    broker.api("PUT", "users/client", r#"{"password_hash": "", "tags": ""}"#);
    broker.allow_user(&name, "client", ["", ".*", ""]);
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
    broker.api("PUT", "users/o%2Fd%20d%40", r#"{"password": "p:w/%", "tags": ""}"#);
    broker.allow_user(&name, "o%2Fd%20d%40", ALL);
    let login = "o%2Fd%20d%40:p%3Aw%2F%25";
    scene.sink = sink(&format!("amqp://{login}@127.0.0.1:{away},127.0.0.1:{port}/{name}"));
    scene.sink.push_str("queues = { kept = \"#\" }\n");
    scene.walrelay(&["init"]).assert_done();
    scene.carry(&[]);
    broker.assert_holds(&name, "kept", 1);
}

/// Exchange and queue of the scene's dead letters are gone.
fn without_dead_letters(name: &str) {
    shared().api("DELETE", &format!("exchanges/{name}/outbox.dlx"), "");
    shared().api("DELETE", &format!("queues/{name}/outbox.dlq"), "");
}

/// Everything is there for events; they go to queue `kept`.
pub(super) fn set_up(name: &str) {
    shared().exchange(name, "outbox.events", r#"{"type": "topic", "durable": true}"#);
    shared().queue(name, "kept", r#"{"durable": true}"#, ("outbox.events", "#"));
}

#[test]
fn what_dead_letters_need_is_insisted_on_and_made_by_init() {
    let mut scene = waiting("rabbit_dlq", ALL);
    let name = scene.name.clone();
    set_up(&name);
    without_dead_letters(&name);
    // GIVEN neither exchange nor queue THEN nothing moves
    let words = ["exchange outbox.dlx, for dead letters, does not exist", "walrelay init"];
    scene.assert_refused(5, "sink.dead-letter-missing", &words);
    scene.walrelay(&["check"]).assert_says(&[
        "✗ exchange outbox.dlx, for dead letters, does not exist",
        "✗ queue outbox.dlq, for dead letters, does not exist",
    ]);
    // WHEN nothing is ever written to them THEN they are not asked for
    scene.extra = "[delivery]\non_dead_letter = \"halt\"\n".to_owned();
    let check = scene.walrelay(&["check"]);
    check.assert_done();
    assert!(!check.out.contains("for dead letters"), "{check}");
    scene.extra.clear();
    // WHEN init makes them THEN it says so once, and all is well
    scene.walrelay(&["init"]).assert_done().assert_says(&[
        "+ make exchange outbox.dlx, for dead letters: direct, durable",
        "+ make queue outbox.dlq, for dead letters: stream, keeps everything",
        "+ make binding of queue outbox.dlq to exchange outbox.dlx by \"outbox.dlq\"",
    ]);
    let again = scene.walrelay(&["init"]);
    again.assert_done();
    assert!(!again.out.contains("+ make"), "{again}");
    scene.walrelay(&["check"]).assert_done().assert_says(&[
        "✓ exchange outbox.dlx, for dead letters, is there",
        "✓ queue outbox.dlq, for dead letters, is there: a stream",
    ]);
    let declared = shared().api("GET", &format!("queues/{name}/outbox.dlq?columns=type"), "");
    assert!(declared.contains("stream"), "{declared}");
    scene.carry(&[]);
    shared().assert_holds(&name, "kept", 1);
}

#[test]
fn a_dead_letter_queue_that_is_no_stream_is_refused_whatever_may_be_asked() {
    let scene = waiting("rabbit_no_stream", ALL);
    let name = scene.name.clone();
    set_up(&name);
    shared().api("DELETE", &format!("queues/{name}/outbox.dlq"), "");
    let classic = r#"{"durable": true, "arguments": {"x-max-length-bytes": 1000}}"#;
    shared().queue(&name, "outbox.dlq", classic, ("outbox.dlx", "outbox.dlq"));
    let words = ["queue outbox.dlq, for dead letters, is not a stream", "dead_letter.topic"];
    scene.assert_refused(5, "sink.dead-letter-not-a-stream", &words);
    scene.walrelay(&["init"]).assert_fault(5, "sink.dead-letter-not-a-stream", &words);
    // A login that may read knows it, and one that may declare; else it is said that nobody knows.
    let write = "^outbox\\.(events|dlx)$";
    shared().allow(&name, ["", write, "^outbox\\.dlq$"]);
    scene.assert_refused(5, "sink.dead-letter-not-a-stream", &words);
    shared().allow(&name, ["", write, ""]);
    let words = ["! whether queue outbox.dlq is a stream cannot be known"];
    scene.walrelay(&["check"]).assert_done().assert_says(&words);
}

#[test]
fn a_stream_that_forgets_is_pointed_out() {
    let scene = waiting("rabbit_forgets", ALL);
    let name = scene.name.clone();
    set_up(&name);
    shared().api("DELETE", &format!("queues/{name}/outbox.dlq"), "");
    let arguments = r#"{"x-queue-type": "stream", "x-max-age": "1h"}"#;
    let body = format!(r#"{{"durable": true, "arguments": {arguments}}}"#);
    shared().queue(&name, "outbox.dlq", &body, ("outbox.dlx", "outbox.dlq"));
    let words = ["! queue outbox.dlq is a stream that forgets dead letters", "x-max-age"];
    scene.walrelay(&["check"]).assert_done().assert_says(&words);
}

#[test]
fn who_may_not_write_or_read_dead_letters_is_told_with_the_command() {
    let scene = waiting("rabbit_dlq_rights", ["", "^outbox\\.events$", ""]);
    let name = scene.name.clone();
    set_up(&name);
    let command = format!(
        "rabbitmqctl set_permissions -p '{name}' '{name}' '' '^(outbox\\.events|outbox\\.dlx)$' '^outbox\\.dlq$'"
    );
    let words = ["may not publish dead letters to exchange outbox.dlx", &command];
    scene.assert_refused(5, "sink.dead-letter-forbidden", &words);
    // WHEN it may write, and not read THEN that is no fault, and told to who asks
    shared().allow(&name, ["", "^outbox\\.(events|dlx)$", ""]);
    let words = ["may not read dead letters from queue outbox.dlq", &command];
    scene.walrelay(&["check"]).assert_done().assert_says(&words);
    shared().allow(&name, ["", "^outbox\\.(events|dlx)$", "^outbox\\.dlq$"]);
    let check = scene.walrelay(&["check"]);
    check.assert_done().assert_says(&["✓ queue outbox.dlq, for dead letters, is there: a stream"]);
    assert!(!check.out.contains("may not read"), "{check}");
    scene.carry(&[]);
    shared().assert_holds(&name, "kept", 1);
}
