//! Tables of outbox libraries: recognised, made ready and relayed as they are.

use std::collections::BTreeMap;

use crate::support::faults::{CliFixture, keys, read};

/// The golden files of libraries whose tables have names of their own.
const LIBRARIES: [&str; 6] =
    ["dafda", "emmett", "eventuate", "pgx-outbox", "tomorrow-one", "watermill"];

struct Golden {
    ddl: String,
    row: BTreeMap<String, String>,
    event: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
}

impl Golden {
    fn of(library: &str) -> Golden {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/libraries");
        let path = format!("{folder}/{library}.toml");
        let file: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
        let texts = |table: &toml::Value| {
            let entries = table.as_table().unwrap().iter();
            entries.filter_map(|(name, it)| Some((name.clone(), it.as_str()?.to_owned()))).collect()
        };
        Golden {
            ddl: file["ddl"].as_str().unwrap().to_owned(),
            row: texts(&file["row"]),
            event: texts(&file["event"]),
            headers: texts(&file["event"]["headers"]),
        }
    }

    fn table(&self) -> &str {
        self.ddl.split_once("CREATE TABLE ").unwrap().1.split_once(' ').unwrap().0
    }

    /// The golden row, with other values in some columns.
    fn insert(&self, others: &[(&str, &str)]) -> String {
        let mut row = self.row.clone();
        row.extend(others.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let names: Vec<String> = row.keys().map(|name| format!("\"{name}\"")).collect();
        let values: Vec<String> = row.values().map(|value| format!("'{value}'")).collect();
        let (names, values) = (names.join(", "), values.join(", "));
        format!("INSERT INTO {} ({names}) OVERRIDING SYSTEM VALUE VALUES ({values});", self.table())
    }
}

#[test]
fn tables_are_detected_and_relayed_as_their_libraries_write_them() {
    let mut scene = CliFixture::bare("libraries");
    let goldens: Vec<Golden> = LIBRARIES.into_iter().map(Golden::of).collect();
    for golden in &goldens {
        scene.sql(&golden.ddl);
        scene.make_topic(&golden.event["topic"], 1);
    }
    scene.sql(
        "CREATE TABLE wolverine_outgoing_envelopes (id uuid, owner_id int, destination text,
             deliver_by timestamptz, body bytea, attempts int, message_type text)",
    );
    // GIVEN what detect prints, appended to a configuration that has source.url and a sink
    let detected = scene.walrelay(&["config", "detect"]);
    detected.assert_done().assert_says(&[
        "# public.wolverine_outgoing_envelopes is a table of Wolverine and cannot be relayed",
        "library = \"tomorrow-one\" table = \"public.outbox_kafka\"",
    ]);
    scene.source = detected.out.clone();
    scene.walrelay(&["init"]).assert_done();
    scene
        .walrelay(&["check"])
        .assert_done()
        .assert_says(&["public.emt_messages where message_kind = 'E'"]);
    // WHEN the libraries write, and two of the rows are no events
    for golden in &goldens {
        scene.sql(&golden.insert(&[]));
    }
    scene.sql(&goldens[1].insert(&[("message_kind", "C"), ("message_id", "command")]));
    scene.sql(&goldens[3].insert(&[("broker", "sns"), ("id", "6")]));
    scene.carry(&[]);
    // THEN each event is where and as its library wants it
    for (library, golden) in LIBRARIES.into_iter().zip(&goldens) {
        let records = read(&[&golden.event["topic"]]);
        let [record] = &records[..] else { panic!("{library}: {records:?}") };
        assert_eq!(record.key(), golden.event.get("key").map(String::as_str), "{library}");
        match golden.event.get("value_hex") {
            Some(_) => assert_eq!(record.value.as_deref(), Some(&[0, 0xff][..]), "{library}"),
            None => assert_eq!(record.text(), golden.event["value"], "{library}"),
        }
        for (name, value) in &golden.headers {
            assert_eq!(record.header(name), Some(value.as_str()), "{library}: {name}");
        }
    }
}

/// The texts in the fences of docs/existing-outbox.md behind this mark, in order.
fn fences(mark: &str) -> Vec<String> {
    let page = include_str!("../../docs/existing-outbox.md");
    let mark = format!("<!-- example: {mark} -->");
    let parts = page.split(&mark).skip(1);
    let fence = |part: &str| {
        let (_, text) = part.split_once("```").unwrap().1.split_once('\n').unwrap();
        text.split_once("```").unwrap().0.to_owned()
    };
    parts.map(fence).collect()
}

/// The sections of the outbox in a whole configuration.
fn outbox_sections(config: &str) -> String {
    let from = config.find("[[source.outbox]]").unwrap();
    let to = config.find("[sink]").unwrap_or(config.len());
    config[from..to].to_owned()
}

#[test]
fn the_tables_of_the_page_about_existing_tables_are_relayed() {
    let mut scene = CliFixture::bare("existing");
    for mark in ["spring", "django", "ef"] {
        let [ddl, config] = &fences(mark)[..] else { panic!("{mark}") };
        scene.sql(ddl);
        scene.source += &outbox_sections(config);
    }
    for topic in ["orders.Existing", "existing.django", "orders.messages"] {
        scene.make_topic(topic, 1);
    }
    scene.sql(
        "INSERT INTO outbox_event VALUES (gen_random_uuid(), 'Existing', 'before', 'T', '{}')",
    );
    scene.walrelay(&["init"]).assert_done();
    scene.walrelay(&["check"]).assert_done();
    scene.sql(
        r#"INSERT INTO outbox_event VALUES (gen_random_uuid(), 'Existing', 'o-1', 'Placed', '{"n": 1}');
           UPDATE outbox_event SET status = 'SENT';
           INSERT INTO shop_outboxevent (topic, partition_key, body) VALUES ('existing.django', 'p-1', '{"n": 2}');
           INSERT INTO "OutboxMessages" ("Id", "Type", "Content")
               VALUES ('6f1d9a52-3c0e-4c57-9d0b-2a6f0c9b7e11', 'Placed', '{"n": 3}');"#,
    );
    scene.carry(&[]);
    for (topic, key, value) in [
        ("orders.Existing", "o-1", r#"{"n": 1}"#),
        ("existing.django", "p-1", r#"{"n": 2}"#),
        ("orders.messages", "6f1d9a52-3c0e-4c57-9d0b-2a6f0c9b7e11", r#"{"n": 3}"#),
    ] {
        let records = read(&[topic]);
        let [record] = &records[..] else { panic!("{topic}: {records:?}") };
        assert_eq!((record.key(), record.text()), (Some(key), value));
    }
}

#[test]
fn the_table_of_a_poller_moves_to_the_slot_as_the_page_says() {
    let mut scene = CliFixture::bare("existing_poller");
    let [ddl, config] = &fences("spring")[..] else { panic!() };
    let [polling, alter] = &fences("poller")[..] else { panic!() };
    scene.sql(ddl);
    let write = |scene: &CliFixture<'_>, key: &str, status: &str| {
        scene.sql(&format!(
            "INSERT INTO outbox_event (id, aggregate_type, aggregate_id, event_type, payload, status)
             VALUES (gen_random_uuid(), 'Poller', '{key}', 'T', '{{}}', '{status}')"
        ));
    };
    let [renumber] = &fences("renumber")[..] else { panic!() };
    // GIVEN rows that the poller has published, and rows that it has left, in another order on disk
    // than that of their times
    write(&scene, "sent", "SENT");
    write(&scene, "left", "NEW");
    write(&scene, "left-before", "NEW");
    scene.sql(
        "UPDATE outbox_event SET created_at = created_at - interval '1 hour'
         WHERE aggregate_id = 'left-before'",
    );
    scene.make_topic("orders.Poller", 1);
    scene.sql(alter);
    let last = scene.sql("SELECT max(seq) FROM outbox_event");
    // Rows that are written while the poller still runs have their right place.
    write(&scene, "new", "NEW");
    write(&scene, "newer", "NEW");
    scene.sql(
        "UPDATE outbox_event SET created_at = created_at - interval '2 hours'
         WHERE aggregate_id = 'newer'",
    );
    scene.sql(&renumber.replace("LAST", &last));
    let outbox = outbox_sections(config);
    scene.source = format!("mode = \"polling\"\n{polling}{outbox}");
    let mut relay = scene.spawn(&["run"]);
    let count = |status: &str| {
        scene.sql(&format!("SELECT count(*) FROM outbox_event WHERE status = '{status}'"))
    };
    relay.wait_until("the rows that were left", || count("SENT") == "5");
    // WHEN the table is handed over
    scene
        .walrelay(&["outbox", "handover"])
        .assert_done()
        .assert_says(&["created slot existing_poller"]);
    write(&scene, "later", "NEW");
    relay.wait().assert_done();
    scene.source = outbox;
    scene.carry(&[]);
    // THEN every row that the poller has left is published once, by polling or by the slot
    let records = read(&["orders.Poller"]);
    assert_eq!(keys(&records), ["left-before", "left", "new", "newer", "later"]);
}

#[test]
fn a_table_without_a_status_moves_to_polling_as_the_page_says() {
    let mut scene = CliFixture::bare("existing_without_status");
    let [ddl, config] = &fences("django")[..] else { panic!() };
    let [polling, set_status] = &fences("no-status")[..] else { panic!() };
    scene.source = format!("mode = \"polling\"\n{polling}{}", outbox_sections(config));
    scene.sql(ddl);
    scene.make_topic("without.status", 1);
    let write = |key: &str| {
        scene.sql(&format!(
            "INSERT INTO shop_outboxevent (topic, partition_key, body)
             VALUES ('without.status', '{key}', '{{}}')"
        ))
    };
    let sent_by_the_poller = |key: &str| {
        let set = "UPDATE shop_outboxevent SET sent_at = now() WHERE partition_key =";
        scene.sql(&format!("{set} '{key}'"))
    };
    for key in ["sent-before", "left-before"] {
        write(key);
    }
    sent_by_the_poller("sent-before");
    // GIVEN the columns that check prints, and a poller that continues meanwhile
    let check = scene.walrelay(&["check"]);
    check.assert_says(&["table.column-missing"]);
    let all = check.all();
    let (_, alter) = all.split_once("ALTER TABLE").expect("the statement that adds the columns");
    let (alter, _) = alter.split_once(';').unwrap();
    scene.sql(&format!("ALTER TABLE{alter}"));
    for key in ["sent-meanwhile", "left-meanwhile"] {
        write(key);
    }
    sent_by_the_poller("sent-meanwhile");
    // WHEN the poller has stopped and the status is set
    scene.sql(set_status);
    let mut relay = scene.spawn(&["run"]);
    let pending = "SELECT count(*) FROM shop_outboxevent WHERE status <> 'published'";
    relay.wait_until("the rows that were left", || scene.sql(pending) == "0");
    relay.stop().assert_done();
    // THEN the rows that the poller has left are published, and no others
    let records = read(&["without.status"]);
    assert_eq!(keys(&records), ["left-before", "left-meanwhile"]);
}
