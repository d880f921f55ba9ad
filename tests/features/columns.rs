//! Which column plays which part.

use walrelay_harness::{Postgres, PostgresOptions};

use crate::support::faults::{CliFixture, POLLING_SQL, keys, read};

#[test]
fn columns_of_any_name_play_the_parts() {
    let mut scene = CliFixture::bare("columns_mapped");
    scene.sql(
        r#"CREATE SCHEMA app;
           CREATE TABLE app."Events" (seq bigserial PRIMARY KEY, "Event Id" uuid, event_key text,
               kind text, body text, trace text, extra json, region text);"#,
    );
    scene.prepare(r#"TABLE app."Events""#, "columns.mapped.eu");
    scene.source = r#"
        [[source.outbox]]
        table = "app.Events"
        columns = { id = "Event Id", key = "event_key", type = "kind", payload = "body", traceparent = "trace", headers = "extra" }
    "#
    .into();
    scene.route = "topic = \"columns.mapped.${region}\"\n\
                   headers = { origin = \"${region}/${kind}\", lsn = \"mine\", fixed = \"1\" }\n"
        .into();
    scene.sql(
        r#"INSERT INTO app."Events" ("Event Id", event_key, kind, body, trace, extra, region) VALUES
           ('11111111-2222-3333-4444-555555555555', 'k', 'Paid', 'plain', 'tp', '{"fixed": "row", "x": null}', 'eu')"#,
    );
    let records = scene.carry(&["columns.mapped.eu"]);
    let [record] = &records[..] else { panic!("{records:?}") };
    assert_eq!((record.key(), record.text()), (Some("k"), "plain"));
    assert_eq!(record.header("id"), Some("11111111-2222-3333-4444-555555555555"));
    assert_eq!(record.header("event_type"), Some("Paid"));
    assert_eq!(record.header("traceparent"), Some("tp"));
    assert_eq!(record.header("origin"), Some("eu/Paid"));
    // THEN one name comes once: the route's before the standard's, both before the row's
    assert_eq!((record.header("lsn"), record.header("fixed")), (Some("mine"), Some("1")));
    assert_eq!(record.header("x"), Some("null"));
    let mut names = record.header_names();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), record.headers.len());
}

#[test]
fn a_column_may_name_the_partition() {
    let mut scene = CliFixture::bare("columns_partition");
    scene.sql("CREATE TABLE public.outbox (id int, aggregateid text, payload text, part int)");
    scene.publish("TABLE public.outbox");
    scene.make_slot();
    scene.make_topic("columns.partition", 4);
    scene.route = "topic = \"columns.partition\"\npartition = \"part\"\n".into();
    // GIVEN one key in every partition, and one row that leaves it to the partitioner
    scene.sql(
        "INSERT INTO outbox SELECT i, 'order-1', 'x', i FROM generate_series(0, 3) i;
         INSERT INTO outbox VALUES (9, 'order-1', 'x', NULL)",
    );
    let records = scene.carry(&["columns.partition"]);
    let mut placed: Vec<(&str, i32)> =
        records.iter().map(|record| (record.header("id").unwrap(), record.partition)).collect();
    placed.sort_unstable();
    // murmur2 of order-1 is 6 in 8 partitions, so 2 in 4.
    assert_eq!(placed, [("0", 0), ("1", 1), ("2", 2), ("3", 3), ("9", 2)]);
}

#[test]
fn a_column_that_comes_while_streaming_disturbs_nothing() {
    let scene = CliFixture::ready("columns_added");
    let mut relay = scene.spawn(&["run"]);
    scene.wait_streaming(&mut relay);
    scene.insert("1", "{\"n\": 1}");
    scene.wait_confirmed(&mut relay);
    scene.sql("ALTER TABLE outbox ADD COLUMN tenant text DEFAULT 'x'");
    scene.insert("2", "{\"n\": 2}");
    // In front of the payload, as Postgres counts columns after a drop.
    scene.sql("ALTER TABLE outbox DROP COLUMN created_at; ALTER TABLE outbox ADD COLUMN more int");
    scene.insert("3", "{\"n\": 3}");
    scene.wait_confirmed(&mut relay);
    relay.stop();
    let records = scene.records();
    let found: Vec<_> =
        records.iter().map(|record| (record.key().unwrap(), record.text())).collect();
    assert_eq!(found, [("1", "{\"n\": 1}"), ("2", "{\"n\": 2}"), ("3", "{\"n\": 3}")]);
}

#[test]
fn a_generated_column_plays_a_part_where_the_publication_sends_it() {
    let options = PostgresOptions { version: Some(18), ..Default::default() };
    let postgres = Postgres::start(options).unwrap();
    let scene = CliFixture::on(&postgres, "columns_generated");
    scene.sql(
        "CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, type text,
             payload jsonb, number int, aggregateid text GENERATED ALWAYS AS ('n' || number) STORED)",
    );
    scene.publish("TABLE public.outbox");
    scene.make_topic(&scene.topic(), 1);
    // GIVEN a key that is computed, and not sent
    let words = ["aggregateid is generated and is not sent"];
    scene.walrelay(&["run"]).assert_fault(4, "publication.generated-column", &words);
    // AND a type that is computed, which an event can do without
    scene.sql("ALTER TABLE outbox DROP COLUMN type; ALTER TABLE outbox ADD COLUMN type text GENERATED ALWAYS AS ('t' || number) STORED");
    let told = scene.walrelay(&["check"]);
    told.assert_says(&["does not send type of public.outbox"]);
    scene.sql("ALTER TABLE outbox DROP COLUMN type; ALTER TABLE outbox ADD COLUMN type text");
    // WHEN the publication sends what is stored
    scene.sql("ALTER PUBLICATION walrelay SET (publish_generated_columns = stored)");
    scene.make_slot();
    scene.walrelay(&["check"]).assert_done();
    let name = &scene.name;
    scene.sql(&format!("INSERT INTO outbox (aggregatetype, type, payload, number) VALUES ('{name}', 'T', '{{}}', 7)"));
    assert_eq!(keys(&scene.carry(&[&scene.topic()])), ["n7"]);
}

#[test]
fn a_polled_row_is_keyed_and_shaped_by_members_of_its_json() {
    let mut scene = CliFixture::bare("columns_polled_member");
    scene.sql(POLLING_SQL);
    scene.sql("ALTER TABLE public.outbox ADD COLUMN headers jsonb");
    scene.make_topic("columns.polled.member", 1);
    scene.source = r#"
        mode = "polling"
        [[source.outbox]]
        table = "public.outbox"
        [source.outbox.route]
        topic = "columns.polled.${headers.to}"
        key = "${headers.tenant.id}"
        envelope = { n = "${id}", tenant = "${headers.tenant.id}" }
    "#
    .into();
    scene.sql(
        r#"INSERT INTO outbox (event_key, payload, headers) VALUES
           ('x', '{"a": 1}', '{"to": "member", "tenant": {"id": "acme"}}'),
           ('y', '{"a": 2}', '{"to": "member"}')"#,
    );
    let mut relay = scene.spawn(&["run"]);
    let published = "SELECT count(*) FROM outbox WHERE status = 'published'";
    relay.wait_until("both rows", || scene.sql(published) == "2");
    relay.stop();
    let mut records = read(&["columns.polled.member"]);
    // Rows of different keys have no order.
    records.sort_by_key(|record| record.text().to_owned());
    let found: Vec<_> = records.iter().map(|record| (record.key(), record.text())).collect();
    assert_eq!(
        found,
        [
            (Some("acme"), r#"{"payload":{"a": 1},"n":1,"tenant":"acme"}"#),
            (None, r#"{"payload":{"a": 2},"n":2,"tenant":null}"#),
        ]
    );
}
