use super::*;
use crate::testing::cluster_with;
use walrelay_base::finding::Level;

const DEFAULTS: TopicSettings<'static> = TopicSettings {
    brokers: "kafka:9092",
    by_append_time: false,
    before_max_ms: Some(i64::MAX),
    after_max_ms: Some(3_600_000),
    retention_ms: Some(604_800_000),
    retention_bytes: Some(-1),
    cleanup_policy: Some("delete"),
    bytes_max: Some(1_048_588),
    replicas: Some(3),
    in_sync_min: Some(2),
};

#[track_caller]
fn assert_findings(settings: TopicSettings<'_>, is_of_dead_letters: bool, words: &[&str]) {
    let found = judge("t", settings, is_of_dead_letters);
    assert_eq!(found.len(), words.len(), "{found:?}");
    for (finding, word) in found.iter().zip(words) {
        assert!(finding.text.contains(word), "{word:?} is not in {:?}", finding.text);
    }
}

#[test]
fn what_can_hurt_is_named() {
    assert_findings(DEFAULTS, false, &[]);
    assert_findings(TopicSettings::default(), false, &[]);
    assert_findings(
        TopicSettings { after_max_ms: Some(5_000), ..DEFAULTS },
        false,
        &["5000 ms ahead"],
    );
    assert_findings(
        TopicSettings { before_max_ms: Some(60_000), ..DEFAULTS },
        false,
        &["older than 60000 ms"],
    );
    assert_findings(
        TopicSettings { retention_ms: Some(30_000), ..DEFAULTS },
        false,
        &["for 30 s after"],
    );
    let confirmed = |replicas, min| TopicSettings {
        replicas: Some(replicas),
        in_sync_min: Some(min),
        ..DEFAULTS
    };
    assert_findings(confirmed(1, 1), false, &[]);
    assert_findings(confirmed(3, 1), false, &["that only the leader has"]);
    assert_findings(
        confirmed(1, 2),
        false,
        &[
            "t has 1 replica, and min.insync.replicas is 2: Kafka before 3.7 confirms no record there; kafka-configs.sh --bootstrap-server kafka:9092 --alter",
        ],
    );
    assert_findings(confirmed(2, 3), false, &["has 2 replicas, and"]);
    // With the broker's time nothing is refused.
    let broker = TopicSettings { by_append_time: true, ..DEFAULTS };
    assert_findings(
        TopicSettings { after_max_ms: Some(0), before_max_ms: Some(0), ..broker },
        false,
        &[],
    );
}

#[test]
fn dead_letters_must_be_kept() {
    let kept = TopicSettings { retention_ms: Some(-1), ..DEFAULTS };
    assert_findings(kept, true, &[]);
    assert_findings(DEFAULTS, true, &["retention.ms = 604800000 deletes"]);
    assert_findings(
        TopicSettings { retention_bytes: Some(1 << 30), ..kept },
        true,
        &["retention.bytes"],
    );
    assert_findings(
        TopicSettings { cleanup_policy: Some("compact,delete"), ..kept },
        true,
        &["compact"],
    );
}

#[test]
fn a_dead_letter_topic_takes_the_smallest_form_of_every_dead_letter() {
    let kept = TopicSettings { retention_ms: Some(-1), ..DEFAULTS };
    let limited = |bytes| TopicSettings { bytes_max: Some(bytes), ..kept };
    assert_findings(limited(4_300), true, &[]);
    assert_findings(limited(4_299), true, &["of 4299 bytes at most"]);
    let command = "kafka-configs.sh --bootstrap-server kafka:9092 --alter --entity-type topics --entity-name t --add-config max.message.bytes=1048588";
    assert_findings(limited(400), true, &[command]);
    // Other topics may refuse what they like: that is a dead letter.
    assert_findings(limited(400), false, &[]);
}

#[test]
fn settings_that_cannot_be_read_are_told() {
    // GIVEN a cluster that does not know the request
    let (_cluster, settings) = cluster_with("topic");
    let found = findings(&settings, &["topic"], None);
    let [found] = &found[..] else { panic!("{found:?}") };
    assert_eq!(found.level, Level::Warn);
    assert!(found.text.starts_with("the settings of topics could not be read: "), "{found:?}");
}
