//! Faults of the file, the environment and the command line.

use std::net::TcpListener;

use crate::support::faults::CliFixture;

#[test]
fn an_unknown_key_is_told_with_its_line_and_the_key_that_was_meant() {
    let mut scene = CliFixture::waiting("config_unknown");
    scene.source = "watch_intervall = \"1s\"".into();
    scene.extra = "[delivery]\natempts_max = 3\nwindow_events_max = 0\n".into();
    // THEN all problems are told at once, each with its place
    let ended = scene.assert_refused(
        2,
        "config.unknown-key",
        &["watch_intervall", "watch_interval", "atempts_max", "attempts_max", "window_events_max"],
    );
    let file = scene.write_config();
    let text = std::fs::read_to_string(&file).unwrap();
    for key in ["watch_intervall", "atempts_max", "window_events_max"] {
        let line = 1 + text.lines().position(|line| line.starts_with(key)).unwrap();
        let place = format!("{}:{line}:1", file.display());
        assert!(ended.err.contains(&place), "{place}\n{ended}");
    }
    // THEN check, init and slot say the same
    for words in [&["check"][..], &["init"], &["slot", "show"], &["config", "show"]] {
        scene.walrelay(words).assert_fault(2, "config.unknown-key", &["watch_intervall"]);
    }
}

#[test]
fn what_is_no_toml_and_what_is_no_file_is_told() {
    let mut scene = CliFixture::waiting("config_syntax");
    scene.source = "watch_interval = ".into();
    scene.assert_refused(2, "config.syntax", &["walrelay.toml:"]);
    let ended = scene.walrelay(&["run", "--set", "source.slott=x"]);
    ended.assert_fault(2, "config.syntax", &["walrelay.toml:"]);
    scene.source = String::new();
    scene.walrelay(&["run", "--set", "source.slott=x"]).assert_fault(
        2,
        "config.unknown-key",
        &["source.slot"],
    );
}

#[test]
fn kafka_properties_that_break_a_promise_are_refused_with_the_promise() {
    let mut scene = CliFixture::waiting("config_properties");
    let sink = scene.sink.clone();
    for (name, value, why) in [
        ("acks", "0", "be lost with the leader"),
        ("acks", "1", "be lost with the leader"),
        ("enable.idempotence", "false", "duplicate or reorder events"),
        ("max.in.flight", "100", "cannot keep the order per key"),
        ("message.timeout.ms", "1000", "give up events during an outage"),
        ("retries", "3", "give up events during an outage"),
        ("partitioner", "random", "lose their order"),
        ("transactional.id", "x", "opens no Kafka transactions"),
        ("bootstrap.servers", "other:9092", "a key of their own"),
    ] {
        scene.sink = format!("{sink}properties = {{ {name:?} = {value:?} }}\n");
        let place = format!("sink.kafka.properties.\"{name}\"");
        let ended = scene.walrelay(&["run"]);
        ended.assert_fault(2, "config.unsafe-property", &[why, "help:"]);
        let named = ended.err.contains(&place) || ended.err.contains(name);
        assert!(named, "{ended}");
    }
    // A property that librdkafka itself does not know is refused by it, and told as one.
    scene.sink = format!("{sink}properties = {{ \"no.such.property\" = \"1\" }}\n");
    scene.assert_refused(2, "sink.refused-property", &["no.such.property", "CONFIGURATION.md"]);
    scene.walrelay(&["check"]).assert_says(&["no.such.property", "[sink.refused-property]"]);
    // Its text quotes the value, which may be a secret.
    let secret = "\"sasl.oauthbearer.method\" = \"c4n4ry-of-a-secret\"";
    scene.sink = format!("{sink}properties = {{ {secret} }}\n");
    for words in [&["run"][..], &["check"], &["init"], &["dlq", "list"]] {
        let ended = scene.walrelay(words);
        assert!(ended.code != 0 && !ended.all().contains("c4n4ry"), "{words:?}: {ended}");
    }
}

#[test]
fn a_bad_variable_is_told_by_its_name() {
    let mut scene = CliFixture::waiting("config_variable");
    scene.env = vec![("WALRELAY_DELIVERY__DRAIN_TIMEOUT".into(), "soon".into())];
    scene.assert_refused(
        2,
        "config.bad-value",
        &[
            "environment variable WALRELAY_DELIVERY__DRAIN_TIMEOUT",
            "delivery.drain_timeout",
            "soon",
        ],
    );
    scene.env = vec![("WALRELAY_SINK__KAFKA__BROKER".into(), "x:1".into())];
    scene.assert_refused(
        2,
        "config.unknown-key",
        &[
            "unknown variable WALRELAY_SINK__KAFKA__BROKER",
            "did you mean WALRELAY_SINK__KAFKA__BROKERS?",
        ],
    );
}

#[test]
fn a_secret_that_is_not_there_is_told_by_its_place() {
    let mut scene = CliFixture::waiting("config_secret");
    let sink = scene.sink.clone();
    scene.sink =
        format!("{sink}properties = {{ \"sasl.password\" = {{ file = \"/nonexistent/pw\" }} }}\n");
    // A start may find it later.
    scene.assert_refused(
        1,
        "config.missing-secret",
        &["/nonexistent/pw", "sasl.password", "walrelay.toml:"],
    );
    scene.sink =
        format!("{sink}properties = {{ \"sasl.password\" = {{ env = \"NOT_SET_ANYWHERE\" }} }}\n");
    scene.assert_refused(2, "config.missing-secret", &["NOT_SET_ANYWHERE", "sasl.password"]);
}

#[test]
fn an_admin_port_that_is_taken_is_told_before_anything_moves() {
    let mut scene = CliFixture::waiting("config_port");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    scene.listen = taken.local_addr().unwrap().to_string();
    scene.assert_refused(1, "admin.listen", &[&scene.listen, "[admin] listen", "in use"]);
    scene.listen = "9464".into();
    scene.assert_refused(2, "config.bad-value", &["admin.listen", "127.0.0.1:9464"]);
}
