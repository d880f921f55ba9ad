//! Faults of the file, the environment and the command line.

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
fn kafka_properties_that_the_client_refuses_are_told_without_their_values() {
    let mut scene = CliFixture::waiting("config_properties");
    let sink = scene.sink.clone();
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
