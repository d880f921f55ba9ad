//! Tests of the state of a row, and of the record that it makes.

use crate::support::faults::{CliFixture, HALT, POLLING_SQL, TopicRecord};

/// A database with the shipped table and a topic, polled.
pub(crate) fn shipped(name: &str) -> CliFixture<'static> {
    shipped_in(CliFixture::bare(name))
}

fn shipped_in(mut scene: CliFixture<'static>) -> CliFixture<'static> {
    scene.sql(POLLING_SQL);
    scene.make_topic(&scene.topic(), 1);
    scene.source = "mode = \"polling\"\n[source.polling]\ninterval = \"50ms\"\n\
                    [[source.outbox]]\ntable = \"public.outbox\"\n"
        .into();
    scene.route = format!("topic = \"{}\"\n", scene.topic());
    scene.extra = HALT.into();
    scene
}

/// Polls until this SQL says that it is so, and stops.
#[track_caller]
fn poll_until(scene: &CliFixture<'_>, asked: &str) {
    let mut relay = scene.spawn(&["run"]);
    relay.wait_until(asked, || scene.sql(asked) == "t");
    relay.stop();
}

/// Polls until nothing waits, and stops; the topic's records.
#[track_caller]
pub(crate) fn poll(scene: &CliFixture<'_>) -> Vec<TopicRecord> {
    let left = "SELECT count(*) = 0 FROM outbox WHERE status IN ('pending', 'in_progress')";
    poll_until(scene, left);
    scene.records()
}

#[test]
fn rows_are_published_in_order_and_marked() {
    let scene = shipped("polling_rows");
    scene.sql(
        "INSERT INTO outbox (event_key, payload, traceparent) SELECT 'k' || i % 3,
         jsonb_build_object('n', i), CASE WHEN i = 1 THEN 'tp' END FROM generate_series(1, 30) i",
    );
    let records = poll(&scene);
    let found: Vec<_> =
        records.iter().map(|record| (record.key().unwrap(), record.text())).collect();
    let keys: Vec<String> = (1..=30).map(|n| format!("k{}", n % 3)).collect();
    let texts: Vec<String> = (1..=30).map(|n| format!("{{\"n\": {n}}}")).collect();
    let wanted: Vec<_> = keys.iter().zip(&texts).map(|(k, t)| (k.as_str(), t.as_str())).collect();
    assert_eq!(found, wanted);
    // THEN the record has what the row has; a row has no place in the log
    assert_eq!(records[0].header_names(), ["id", "traceparent", "commit_ts"]);
    assert_eq!(
        (records[0].header("id"), records[0].header("traceparent")),
        (Some("1"), Some("tp"))
    );
    assert_eq!(records[1].header_names(), ["id", "commit_ts"]);
    let told = "SELECT DISTINCT status, retry_count, locked_at IS NULL, locked_by IS NULL, failure_reason FROM outbox";
    assert_eq!(scene.sql(told), "published|0|t|f|");
}

#[test]
fn bytes_that_are_no_utf8_arrive_from_a_table_without_an_encoding() {
    let scene = shipped_in(CliFixture::without_encoding("polling_ascii"));
    scene.sql(
        r"ALTER TABLE outbox ALTER payload TYPE text;
          INSERT INTO outbox (event_key, payload) VALUES
            (convert_from('\x6be9', 'SQL_ASCII'), convert_from('\x636166e9', 'SQL_ASCII')),
            ('k', convert_from('\x636166c3a9', 'SQL_ASCII'))",
    );
    let records = poll(&scene);
    let values: Vec<_> = records.iter().map(|record| record.value.as_deref()).collect();
    assert_eq!(values, [Some(&b"caf\xe9"[..]), Some("café".as_bytes())]);
    assert_eq!(records[0].key.as_deref(), Some(&b"k\xe9"[..]));
}

#[test]
fn a_row_whose_key_is_in_unreadable_json_becomes_a_dead_letter_and_others_go_on() {
    let mut scene = shipped("polling_unreadable");
    scene.sql("ALTER TABLE outbox ADD meta text");
    scene.route += "key = \"${meta.tenant}\"\n";
    scene.extra = "[delivery]\non_dead_letter = \"continue\"\n".into();
    scene.make_topic("polling_unreadable.dlq", 1);
    scene.extra += "[dead_letter]\ntopic = \"polling_unreadable.dlq\"\n";
    // GIVEN rows without JSON between rows that have it, and JSON that no jsonb can hold
    scene.sql(
        r#"INSERT INTO outbox (event_key, payload, meta) VALUES
           ('e', '1', '{"tenant": "a"}'), ('e', '2', 'no JSON'), ('e', '3', '{"tenant": "a", "nul": "\u0000"}'),
           ('e', '4', NULL), ('e', '5', ''), ('e', '6', '{"tenant": "\u0061"}'), ('e', '7', '{"tenant": "b"}')"#,
    );
    let records = poll(&scene);
    let found: Vec<_> = records.iter().map(|it| (it.key(), it.text())).collect();
    let (a, b) = (Some("a"), Some("b"));
    let of = |key| found.iter().filter(|(it, _)| *it == key).map(|(_, text)| *text).collect();
    let (of_a, of_b): (Vec<&str>, Vec<&str>) = (of(a), of(b));
    assert_eq!((of_a, of_b), (vec!["1", "3", "6"], vec!["7"]), "{found:?}");
    // THEN the others are dead letters with the reason, as they are when the slot is read
    let failed = scene.sql(
        "SELECT string_agg(payload::text, ',' ORDER BY id) FROM outbox WHERE status = 'failed'
         AND failure_reason LIKE '%is not JSON%'",
    );
    assert_eq!(failed, "2,5");
    let letters = scene.walrelay(&["dlq", "list", "--json"]);
    assert_eq!(letters.assert_done().out.matches("\"not-json\"").count(), 2, "{letters}");
    // THEN the commands can show them, and find a row of theirs
    scene.walrelay(&["outbox", "list"]).assert_done().assert_says(&["is not JSON"]);
    let failed = scene.walrelay(&["find", "--key", "b"]);
    failed.assert_done().assert_says(&["b"]);
}

#[test]
fn a_column_that_gets_another_type_is_not_read_as_its_old_one() {
    // GIVEN sessions that go on, and others that begin anew behind the change
    for (name, sessions_end) in [("polling_retyped", false), ("polling_retyped_anew", true)] {
        let mut scene = shipped(name);
        scene.source = scene.source.replace("interval", "lease = \"1s\"\ninterval");
        scene.sql("ALTER TABLE outbox ALTER payload TYPE text");
        scene.sql("INSERT INTO outbox (event_key, payload) VALUES ('k', 'one')");
        let mut relay = scene.spawn(&["run"]);
        relay.wait_until("the row to be settled", || {
            scene.sql("SELECT count(*) FROM outbox WHERE status = 'published'") == "1"
        });
        // WHEN the column gets another type while the relay runs
        scene.sql(&format!(
            r"BEGIN;
              ALTER TABLE outbox ALTER payload TYPE bytea USING convert_to(payload, 'UTF8');
              INSERT INTO outbox (event_key, payload) VALUES ('k', '\x74776f');
              SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE pid <> pg_backend_pid() AND datname = current_database() AND {sessions_end};
              COMMIT"
        ));
        // THEN it ends, and the next one publishes what the row has
        relay.wait().assert_fault(4, "polling.refused", &["start walrelay again"]);
        let texts: Vec<String> = poll(&scene).iter().map(|it| it.text().to_owned()).collect();
        assert_eq!(texts, ["one", "two"]);
    }
}

#[test]
fn what_a_row_does_not_have_holds_up_no_other_row_and_is_not_made_up() {
    // GIVEN a row without an id before one without a time, in claims of one row
    let mut scene = shipped("polling_lacking");
    let settings = "batch_max = 1\ncolumns.order = \"seq\"\ninterval";
    scene.source = scene.source.replace("interval", settings);
    scene.route += "headers = { shop = \"${shop}\" }\n";
    scene.sql(
        "ALTER TABLE outbox DROP CONSTRAINT outbox_pkey;
         ALTER TABLE outbox ALTER id DROP IDENTITY, ALTER id DROP NOT NULL, ALTER created_at DROP NOT NULL,
           ADD seq bigserial;
         CREATE TYPE shop AS (region text, name text);
         ALTER TABLE outbox ADD shop shop;
         INSERT INTO outbox (id, event_key, payload, shop, created_at)
           VALUES (NULL, 'k', '{}', NULL, now()), (2, 'k', '{}', ROW('eu', NULL), NULL)",
    );
    poll_until(&scene, "SELECT status = 'published' FROM outbox WHERE id = 2");
    // THEN the record has no time, and a value with a field that is NULL
    let records = scene.records();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].header_names(), ["id", "shop"]);
    assert_eq!(records[0].header("shop"), Some("(eu,)"));
}

#[test]
fn a_key_in_a_column_that_sql_cannot_read_as_json_is_refused() {
    let mut scene = shipped("polling_unread_key");
    scene.sql("ALTER TABLE outbox ADD meta bytea");
    scene.route += "key = \"${meta.tenant}\"\n";
    let check = scene.walrelay(&["check"]);
    assert_eq!(check.code, 1, "{check}");
    check.assert_says(&["table.column-type", "meta is of type bytea", "column of its own"]);
}

#[test]
fn a_table_of_other_names_and_words_is_polled_as_it_is() {
    let mut scene = CliFixture::bare("polling_mapped");
    scene.make_topic(&scene.topic(), 1);
    // GIVEN a table of another product: an enum, domains, a random id, times without a zone, names of
    // its own
    scene.sql(
        r#"CREATE TYPE state AS ENUM ('NEW', 'CLAIMED', 'PROCESSED', 'FAILED');
           CREATE DOMAIN raw AS bytea;
           CREATE DOMAIN body AS raw;
           CREATE DOMAIN claimant AS varchar(200);
           CREATE TABLE "Messages" ("messageId" uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate text, body body,
             state state NOT NULL DEFAULT 'NEW', tries smallint NOT NULL DEFAULT 0, "notBefore" timestamp(3),
             "lockedAt" timestamp, "lockedBy" claimant, error varchar(80), "failedAt" timestamptz,
             "createdAt" timestamp NOT NULL DEFAULT now(), seq bigserial);
           ALTER DATABASE polling_mapped SET TimeZone = 'Asia/Tokyo'"#,
    );
    scene.source = r#"mode = "polling"
        [source.polling]
        interval = "50ms"
        [source.polling.columns]
        order = "seq"
        status = "state"
        retry_count = "tries"
        next_retry_at = "notBefore"
        locked_at = "lockedAt"
        locked_by = "lockedBy"
        failure_reason = "error"
        failed_at = "failedAt"
        created_at = "createdAt"
        [source.polling.status_values]
        pending = "NEW"
        in_progress = "CLAIMED"
        published = "PROCESSED"
        failed = "FAILED"
        [[source.outbox]]
        table = "public.Messages"
        columns = { id = "messageId", key = "aggregate", payload = "body" }
        "#
    .into();
    scene.route = format!("topic = \"{}\"\n", scene.topic());
    scene.extra = HALT.into();
    scene.sql(r#"INSERT INTO "Messages" (aggregate, body) SELECT 'a', convert_to(n::text, 'UTF8') FROM generate_series(1, 20) n"#);
    poll_until(&scene, r#"SELECT count(*) = 0 FROM "Messages" WHERE state <> 'PROCESSED'"#);
    let records = scene.records();
    let texts: Vec<&str> = records.iter().map(|record| record.text()).collect();
    let wanted: Vec<String> = (1..=20).map(|n| n.to_string()).collect();
    assert_eq!(texts, wanted);
    // THEN they were written when they were, wherever that was
    let stamp = records[0].header("commit_ts").unwrap();
    let late = format!(
        r#"SELECT "createdAt"::timestamptz = timestamptz '{stamp}' FROM "Messages" WHERE seq = 1"#
    );
    assert_eq!(scene.sql(&late), "t");
    assert_eq!(
        Some(scene.sql(r#"SELECT "messageId" FROM "Messages" WHERE seq = 1"#).as_str()),
        records[0].header("id")
    );
}

#[test]
fn a_table_with_rows_that_nobody_would_publish_is_not_handed_over() {
    let scene = shipped("polling_drafts");
    let refused = |code: &str, words: &[&str]| {
        for arguments in [&["outbox", "handover", "--dry-run"][..], &["outbox", "handover"]] {
            scene.walrelay(arguments).assert_fault(4, code, words);
        }
        assert_eq!(scene.slot_state(), "");
    };
    // GIVEN a row whose status polling does not know
    scene.sql("ALTER TABLE outbox DROP CONSTRAINT outbox_status_check");
    scene.sql("INSERT INTO outbox (event_key, payload, status) VALUES ('k', '{}', 'draft')");
    let what =
        "status of 1 row in public.outbox is no value that polling knows, for example 'draft'";
    refused("outbox.other-status", &[what, "an UPDATE is none", "set status of such a row"]);
    scene.sql("UPDATE outbox SET status = 'published'");
    // GIVEN new rows that have it
    scene.sql("ALTER TABLE outbox ALTER status SET DEFAULT 'draft'");
    refused("table.status-default", &["an UPDATE is none", "SET DEFAULT 'pending';"]);
    // WHEN both are mended THEN it can be handed over
    scene.sql("ALTER TABLE outbox ALTER status SET DEFAULT 'pending'");
    scene.walrelay(&["slot", "show"]).assert_fault(3, "slot.missing", &["outbox handover"]);
    scene.walrelay(&["outbox", "handover"]).assert_done().assert_says(&["+ created slot"]);
    scene.walrelay(&["slot", "show"]).assert_done();
}

#[test]
fn a_published_row_may_be_deleted_instead() {
    let mut scene = shipped("polling_delete");
    scene.source = scene.source.replace("interval", "on_published = \"delete\"\ninterval");
    scene.sql(
        "INSERT INTO outbox (event_key, payload) SELECT 'k', '{}' FROM generate_series(1, 1500)",
    );
    assert_eq!(poll(&scene).len(), 1500);
    assert_eq!(scene.sql("SELECT count(*) FROM outbox"), "0");
}

#[test]
fn the_clean_up_takes_old_published_rows_and_no_other() {
    let mut scene = shipped("polling_clean");
    scene.source +=
        "[source.polling.cleanup]\nolder_than = \"1h\"\nbatch_max = 10\ninterval = \"100ms\"\n";
    // GIVEN old and young rows of every status; of those that wait, one that may not be claimed yet
    scene.sql(
        "INSERT INTO outbox (event_key, status, created_at, next_retry_at, locked_at, locked_by)
         SELECT 'k' || n, s, now() - age, CASE s WHEN 'pending' THEN now() + interval '1 hour' END,
                CASE s WHEN 'in_progress' THEN now() END, 'another'
         FROM unnest(ARRAY['pending', 'in_progress', 'published', 'failed']) s,
              unnest(ARRAY[interval '2 hours', interval '1 minute']) age, generate_series(1, 25) n",
    );
    let left = "SELECT string_agg(status || ' ' || n, ', ' ORDER BY status)
                FROM (SELECT status, count(*) n FROM outbox GROUP BY 1) s";
    poll_until(&scene, "SELECT count(*) = 25 FROM outbox WHERE status = 'published'");
    assert_eq!(scene.sql(left), "failed 50, in_progress 50, pending 50, published 25");
    assert_eq!(scene.sql("SELECT count(*) FROM outbox WHERE status = 'published' AND created_at < now() - interval '1 hour'"), "0");
    // WHEN it is off THEN nothing goes
    scene.sql("UPDATE outbox SET created_at = now() - interval '1 day'");
    scene.source = scene.source.replace("older_than", "enabled = false\nolder_than");
    scene.sql("INSERT INTO outbox (event_key, payload) VALUES ('fresh', '{}')");
    poll_until(&scene, "SELECT status = 'published' FROM outbox WHERE event_key = 'fresh'");
    assert_eq!(scene.sql("SELECT count(*) FROM outbox WHERE status = 'published'"), "26");
}

#[test]
fn a_claim_that_nobody_renews_is_void_and_its_rows_are_published() {
    let mut scene = shipped("polling_lease");
    scene.source = scene.source.replace("interval", "lease = \"1s\"\ninterval");
    // GIVEN rows of a process that is gone, and of one that has just claimed
    scene.sql(
        "INSERT INTO outbox (event_key, payload, status, locked_at, locked_by) VALUES
         ('gone', '{}', 'in_progress', now() - interval '1 minute', 'a'),
         ('here', '{}', 'in_progress', now() + interval '1 hour', 'b');
         INSERT INTO outbox (event_key, payload) VALUES ('here', '{}'), ('free', '{}')",
    );
    poll_until(&scene, "SELECT count(*) = 2 FROM outbox WHERE status = 'published'");
    let left = "SELECT string_agg(event_key || ' ' || status, ', ' ORDER BY id) FROM outbox";
    // THEN what is behind a row in somebody's hands waits
    assert_eq!(scene.sql(left), "gone published, here in_progress, here pending, free published");
}

#[test]
fn the_status_of_a_row_says_where_its_event_is() {
    let scene = shipped("polling_find");
    let id = scene.sql("INSERT INTO outbox (event_key, payload) VALUES ('k', '{}') RETURNING id");
    let find = || scene.walrelay(&["find", &id, "--json"]).assert_done().json()["events"][0].take();
    let event = find();
    assert_eq!(
        [&event["state"], &event["row"]["status"], &event["key"]],
        ["waiting", "pending", "k"]
    );
    assert_eq!(
        (&event["slot_passed"], &event["lsn"]),
        (&serde_json::Value::Null, &serde_json::Value::Null)
    );
    poll(&scene);
    let event = find();
    assert_eq!([&event["state"], &event["row"]["status"]], ["published", "published"]);
    assert_eq!(
        (&event["published"][0]["partition"], &event["published"][0]["offset"]),
        (&0.into(), &0.into())
    );
}
