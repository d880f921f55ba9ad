//! The record itself, byte by byte.

use walrelay_harness::kit::now_us;

use crate::support::faults::{CliFixture, read};
use crate::support::{LIMIT, until};

/// Commit time of the newest row, as Postgres knows it.
fn commit_ms(scene: &CliFixture<'_>, id: &str) -> i64 {
    let sql = format!(
        "SELECT floor(extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000)::bigint
         FROM outbox WHERE id = '{id}'"
    );
    scene.sql(&sql).parse().unwrap()
}

#[test]
fn the_default_record_is_exact() {
    // GIVEN a row with everything
    let scene = CliFixture::ready("record_default");
    let id = scene.sql(
        r#"INSERT INTO outbox (aggregatetype, aggregateid, type, payload, headers, traceparent)
           VALUES ('record_default', 'order-1', 'OrderPlaced', '{"b": 1, "a": [1.50, "ü"]}',
                   '{"tenant": "blue", "n": 7}', '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01')
           RETURNING id"#,
    );
    // WHEN it is published some time later
    let committed_ms = commit_ms(&scene, &id);
    let began_ms = until("a later millisecond", LIMIT, || {
        Some(now_us() / 1_000).filter(|now_ms| *now_ms > committed_ms)
    });
    let records = scene.carry(&[&scene.topic()]);
    // THEN its record has the key, the payload as Postgres writes it, and the headers in their
    // order
    let [record] = &records[..] else { panic!("{records:?}") };
    assert_eq!(
        (record.key(), record.topic.as_str()),
        (Some("order-1"), "outbox.event.record_default")
    );
    assert_eq!(record.text(), r#"{"a": [1.50, "ü"], "b": 1}"#);
    assert_eq!(
        record.header_names(),
        ["id", "event_type", "traceparent", "commit_ts", "lsn", "n", "tenant"]
    );
    assert_eq!(record.header("id"), Some(id.as_str()));
    assert_eq!(record.header("event_type"), Some("OrderPlaced"));
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    assert_eq!(record.header("traceparent"), Some(traceparent));
    assert_eq!((record.header("tenant"), record.header("n")), (Some("blue"), Some("7")));
    // THEN its time is that of the publish, by which its topic keeps it, and commit_ts that of the
    // commit, to the microsecond
    assert!((began_ms..=now_us() / 1_000).contains(&record.timestamp_ms), "{record:?}");
    let stamp = record.header("commit_ts").unwrap();
    let same = format!(
        "SELECT pg_xact_commit_timestamp(xmin) = timestamptz '{stamp}' FROM outbox WHERE id = '{id}'"
    );
    assert_eq!(scene.sql(&same), "t", "{stamp}");
    // THEN the LSN is one of this WAL
    let lsn = record.header("lsn").unwrap();
    assert_eq!(scene.sql(&format!("SELECT pg_lsn '{lsn}' <= pg_current_wal_lsn()")), "t");
}

#[test]
fn the_debezium_record_has_the_id_alone() {
    let mut scene = CliFixture::ready("record_debezium");
    scene.route = "preset = \"debezium\"".into();
    let id = scene.sql(
        r#"INSERT INTO outbox (aggregatetype, aggregateid, type, payload, headers, traceparent)
           VALUES ('record_debezium', '7', 'T', '{"a": 1}', '{"x": "y"}', 'tp') RETURNING id"#,
    );
    let began_ms = now_us() / 1_000;
    let records = scene.carry(&[&scene.topic()]);
    let [record] = &records[..] else { panic!("{records:?}") };
    assert_eq!(record.headers, [("id".to_owned(), Some(id.clone().into_bytes()))]);
    assert_eq!((record.key(), record.text()), (Some("7"), r#"{"a": 1}"#));
    assert!((began_ms..=now_us() / 1_000).contains(&record.timestamp_ms), "{record:?}");
}

#[test]
fn one_key_goes_where_a_java_producer_sends_it() {
    // GIVEN keys whose partitions of 8 and of 7 were computed with Kafka's own client classes
    let long = "x".repeat(300);
    let known = [
        ("order-1", 6, 4),
        ("order-2", 3, 1),
        ("42", 4, 3),
        ("a", 4, 5),
        ("Zürich", 1, 2),
        ("客户-7", 7, 5),
        ("key with blank", 7, 5),
        ("00000000-0000-0000-0000-000000000001", 2, 1),
        (long.as_str(), 4, 0),
    ];
    let scene = CliFixture::ready("record_murmur");
    for (topic, partitions) in [("murmur.8", 8), ("murmur.7", 7)] {
        scene.make_topic(topic, partitions);
        for (key, _, _) in known {
            scene.sql(&format!(
                "INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES ('{topic}', '{key}', 'T')"
            ));
        }
    }
    let mut scene = scene;
    scene.route = "topic = \"${aggregatetype}\"".into();
    scene.carry(&[]);
    for (topic, of_8) in [("murmur.8", true), ("murmur.7", false)] {
        let records = read(&[topic]);
        assert_eq!(records.len(), known.len());
        for (key, eight, seven) in known {
            let record = records.iter().find(|record| record.key() == Some(key)).unwrap();
            assert_eq!(record.partition, if of_8 { eight } else { seven }, "{key} of {topic}");
        }
    }
}

#[test]
fn headers_of_the_relay_and_of_consumers_are_not_published() {
    // GIVEN a row whose headers are named as those by which replays and retries are known
    let scene = CliFixture::ready("record_reserved");
    scene.sql(
        r#"INSERT INTO outbox (aggregatetype, aggregateid, type, payload, headers)
           VALUES ('record_reserved', '1', 'T', '{}', '{"dlq-replay-for": "nobody", "tenant": "blue",
           "DLQ-Replay-Count": "7", "x-retry-copy": "9", "X-RETRY-due": "1", "dlq": "x", "xretry": "y"}')"#,
    );
    // WHEN it is published
    let mut relay = scene.spawn(&["run"]);
    scene.wait_streaming(&mut relay);
    scene.wait_confirmed(&mut relay);
    let ended = relay.stop();
    // THEN its record has all others, and the log says how many were left out and not what they say
    let records = read(&[&scene.topic()]);
    let [record] = &records[..] else { panic!("{records:?}") };
    assert_eq!(
        record.header_names(),
        ["id", "event_type", "commit_ts", "lsn", "dlq", "tenant", "xretry"]
    );
    ended.assert_says(&["event.header-dropped", "\"headers\":4"]);
    assert!(!ended.all().contains("nobody"), "{ended}");
}
