//! Tests with faults of a polled table, each of which is reported before a row moves.

use std::time::Duration;

use serde_json::Value;
use walrelay_harness::relay::get;

use crate::support::faults::{CliFixture, HALT, POLLING_SQL};
use crate::support::session::Session;

fn polled(name: &str) -> CliFixture<'static> {
    polled_in(CliFixture::bare(name))
}

fn polled_in(mut scene: CliFixture<'static>) -> CliFixture<'static> {
    scene.source = "mode = \"polling\"\n[[source.outbox]]\ntable = \"public.outbox\"\n".into();
    scene.extra = HALT.into();
    scene
}

#[test]
fn init_makes_the_table_and_check_agrees() {
    let mut scene = polled("polling_init");
    let told = scene.walrelay(&["check"]);
    assert_eq!(told.code, 1, "{told}");
    told.assert_says(&["✗ outbox table public.outbox does not exist", "sql/polling.sql"]);
    let granting = scene.walrelay(&["init", "--role", "walrelay"]);
    granting.assert_fault(2, "init.role-unfit", &["walrelay check"]);
    let without_slot = scene.walrelay(&["init", "--no-slot"]);
    without_slot.assert_fault(2, "init.no-slot-unfit", &["leave --no-slot out"]);
    let made = scene.walrelay(&["init"]);
    made.assert_done()
        .assert_says(&["+ make outbox table public.outbox", "now nothing is missing"]);
    scene.walrelay(&["init"]).assert_done().assert_says(&["nothing is missing"]);
    scene.walrelay(&["check"]).assert_done().assert_says(&["✓ table public.outbox can be polled"]);
    // THEN a handover takes the order that polling has, and asks for no column for it
    let would = scene.walrelay(&["outbox", "handover", "--dry-run"]);
    would.assert_done().assert_says(&["+ make publication", "+ make slot"]);
    assert!(!would.all().contains("number the rows"), "{would}");
    // WHEN only a topic is missing THEN nothing else is said before it is made
    scene.sink.push_str("topics = [\"polling.init\"]\n");
    let made = scene.walrelay(&["init"]).assert_done().out.clone();
    assert_eq!(made, "+ make topic polling.init\n1 thing was made; now nothing is missing\n");
}

#[test]
fn init_makes_no_table_that_it_may_not_make_or_that_does_not_fit() {
    let mut scene = polled("polling_init_unfit");
    // GIVEN a role that may not create tables
    scene.sql("CREATE ROLE polling_init_guest LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    let url = scene.url.clone();
    scene.url = url.replace("//postgres@", "//polling_init_guest@");
    let words = [
        "may not make outbox table public.outbox",
        "may CREATE in schema public",
        "psql -f sql/polling.sql",
    ];
    scene.walrelay(&["init"]).assert_fault(4, "init.permission", &words);
    scene.url = url;
    // GIVEN columns, or values, of another table
    let shipped = scene.source.clone();
    for (of_another, words) in [
        (
            "columns = { id = \"message_id\" }\n[source.polling.columns]\norder = \"no\"\n",
            "columns that the shipped table has not: message_id, no",
        ),
        (
            "[source.polling.status_values]\npublished = \"sent\"\n",
            "status values that the shipped table does not take",
        ),
    ] {
        scene.source = format!("{shipped}{of_another}");
        for arguments in [&["init"][..], &["init", "--dry-run"], &["init", "--sql"]] {
            let words = [words, "leave out the keys"];
            scene.walrelay(arguments).assert_fault(4, "table.missing", &words);
        }
    }
    assert_eq!(scene.sql("SELECT to_regclass('public.outbox') IS NULL"), "t");
    scene.source = shipped;
    scene.walrelay(&["init"]).assert_done();
}

#[test]
fn rows_that_were_not_sent_are_not_lost_by_the_sql_of_check() {
    let mut scene = polled("polling_unsent");
    scene.source += "[source.polling.columns]\norder = \"seq\"\n";
    // GIVEN the table of a poller of one's own, which has sent one row of three
    scene.sql(
        "CREATE TABLE outbox (id uuid PRIMARY KEY, event_key text, payload jsonb, sent_at timestamptz);
         INSERT INTO outbox SELECT gen_random_uuid(), 'k', '{}', CASE WHEN n = 1 THEN now() END
         FROM generate_series(1, 3) n",
    );
    // WHEN check prints the SQL THEN it says first what that does to existing rows
    let told = scene.walrelay(&["check"]);
    told.assert_says(&[
        "help: existing rows count as published ('published') after this SQL, also those that were not sent",
        "UPDATE \"public\".\"outbox\" SET \"status\" = 'pending' WHERE <not sent>;",
    ]);
    let begin = told.out.find("BEGIN; ALTER").unwrap();
    let end = begin + told.out[begin..].find("COMMIT;").unwrap();
    scene.sql(&told.out[begin..end + "COMMIT;".len()]);
    // THEN it counts the rows that would be published, and those that would not
    let counted = |words: &str| {
        scene.walrelay(&["check"]).assert_done().assert_says(&[words]);
    };
    counted("can be polled; rows: 0 with the status 'pending', 3 with another one");
    scene.sql("UPDATE outbox SET status = 'pending', seq = seq + 10 WHERE sent_at IS NULL");
    counted("can be polled; rows: 2 with the status 'pending', 1 with another one");
    scene.sql(
        "INSERT INTO outbox (id, event_key, payload)
         SELECT gen_random_uuid(), 'k', '{}' FROM generate_series(1, 2000)",
    );
    counted("rows: more than 1000 with the status 'pending', 1 with another one");
}

#[test]
fn a_role_that_may_not_use_the_schema_is_told_so() {
    let scene = polled("polling_bad_schema");
    scene.sql(POLLING_SQL);
    scene.sql("CREATE ROLE polling_guest LOGIN; GRANT SELECT ON outbox TO polling_guest");
    scene.sql("REVOKE USAGE ON SCHEMA public FROM PUBLIC");
    let url = scene.url.clone();
    let mut guest = polled("polling_bad_schema_guest");
    guest.url = url.replace("//postgres@", "//polling_guest@");
    let words =
        ["may not use schema public, nor UPDATE, DELETE", "GRANT USAGE ON SCHEMA \"public\""];
    guest.assert_refused(4, "table.rights", &words);
}

#[test]
fn what_polling_cannot_do_with_a_table_is_told_with_what_mends_it() {
    let scene = polled("polling_bad_table");
    let refused = |exit, code: &str, words: &[&str]| {
        scene.assert_refused(exit, code, words);
    };
    refused(4, "table.missing", &["outbox table public.outbox does not exist", "sql/polling.sql"]);
    // GIVEN the table of CDC
    scene.sql("CREATE TABLE outbox (id uuid PRIMARY KEY, event_key text, payload jsonb)");
    refused(
        4,
        "table.column-missing",
        &[
            "lacks columns that polling writes: status, retry_count",
            "ALTER TABLE \"public\".\"outbox\" ADD COLUMN \"status\" text",
        ],
    );
    scene.sql("DROP TABLE outbox; CREATE VIEW outbox AS SELECT 1 AS id");
    refused(4, "table.kind", &["public.outbox is a view: its rows cannot be claimed"]);
    scene.sql("DROP VIEW outbox");
    scene.sql(POLLING_SQL);
    // GIVEN a mark that every new row has: after a handover polling would take the slot's rows, too
    scene.sql("ALTER TABLE outbox ALTER locked_by SET DEFAULT ''");
    refused(4, "table.column-default", &["locked_by must be NULL", "DROP DEFAULT"]);
    scene.sql("ALTER TABLE outbox ALTER locked_by DROP DEFAULT");
    // GIVEN a slot alone: it would leave the rows that wait to nobody
    scene.walrelay(&["slot", "create"]).assert_fault(
        2,
        "config.conflict",
        &["walrelay outbox handover"],
    );
    // GIVEN a role that may only read
    scene.sql("CREATE ROLE polling_reader LOGIN; GRANT SELECT ON outbox TO polling_reader");
    let url = scene.url.clone();
    let mut reader = polled("polling_bad_table_reader");
    reader.url = url.replace("//postgres@", "//polling_reader@");
    reader.assert_refused(
        4,
        "table.rights",
        &["may not UPDATE, DELETE", "GRANT UPDATE, DELETE ON"],
    );
    // GIVEN row-level security that shows the role no row, or some
    scene.sql(
        "GRANT UPDATE, DELETE ON outbox TO polling_reader; ALTER TABLE outbox ENABLE ROW LEVEL SECURITY",
    );
    let hidden = ["hides all rows of public.outbox", "ALTER ROLE \"polling_reader\" BYPASSRLS;"];
    reader.assert_refused(4, "table.rights", &hidden);
    scene.sql("CREATE POLICY shown ON outbox USING (true)");
    reader.walrelay(&["check"]).assert_says(&["! row-level security of public.outbox"]);
    scene.sql(
        "ALTER TABLE outbox DISABLE ROW LEVEL SECURITY; REVOKE UPDATE, DELETE ON outbox FROM polling_reader",
    );
    // WHEN init only looks THEN it shows what the broker lacks as well
    reader.sink.push_str("topics = [\"polling.reader\"]\n");
    let looked = reader.walrelay(&["init", "--dry-run"]);
    looked.assert_fault(4, "table.rights", &["GRANT UPDATE, DELETE ON"]);
    looked.assert_says(&["+ make topic polling.reader"]);
    // GIVEN a slot: its relay would publish the same rows
    let name = &scene.name;
    scene.sql(&format!("SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')"));
    refused(3, "slot.foreign", &[&format!("slot {name} exists"), "does not carry this table"]);
    scene.walrelay(&["outbox", "handover"]).assert_fault(3, "slot.foreign", &["source.slot"]);
    scene.publish("TABLE public.outbox");
    refused(3, "slot.exists", &[&format!("slot {name} exists"), "source.mode = \"cdc\""]);
    assert_eq!(scene.walrelay(&["check"]).code, 1);
    scene.sql(&format!("SELECT pg_drop_replication_slot('{name}')"));
    scene.walrelay(&["check"]).assert_done();
}

#[test]
fn a_table_without_its_indexes_or_with_rows_that_have_no_id_is_polled_and_told() {
    let scene = polled("polling_bad_indexes");
    scene.sql(POLLING_SQL);
    // GIVEN the shipped table THEN it has its indexes, but only for the order that they have
    let told = scene.walrelay(&["check"]);
    assert!(!told.assert_done().all().contains("! no "), "{told}");
    scene
        .walrelay(&["check", "--set", "source.polling.columns.order=created_at"])
        .assert_done()
        .assert_says(&["! no partial index on \"created_at\" for \"status\" = 'pending'"]);
    // GIVEN a table that lacks some, and has rows without an id
    scene.sql("DROP INDEX outbox_pending, outbox_waiting");
    scene.sql("ALTER TABLE outbox DROP CONSTRAINT outbox_pkey");
    scene.sql("CREATE INDEX ON outbox (id)");
    scene.sql("ALTER TABLE outbox ALTER id DROP IDENTITY IF EXISTS");
    scene.sql("ALTER TABLE outbox ALTER id DROP NOT NULL");
    scene.sql("ALTER TABLE outbox ALTER created_at DROP NOT NULL");
    let told = scene.walrelay(&["check"]);
    let without_time = "! created_at may be NULL: a published row without it is never deleted; \
        ALTER TABLE \"public\".\"outbox\" ALTER COLUMN \"created_at\" SET NOT NULL;";
    told.assert_done().assert_says(&[
        "! no partial index on \"id\"",
        "CREATE INDEX CONCURRENTLY",
        "! no index begins with \"next_retry_at\"",
        "! id may be NULL",
        without_time,
    ]);
    // WHEN nothing is deleted by its time THEN that is no matter
    let kept = ["--set", "source.polling.cleanup.enabled=false"];
    let told = scene.walrelay(&[&["check"], &kept[..]].concat());
    assert!(!told.assert_done().all().contains("created_at may be NULL"), "{told}");
}

#[test]
fn columns_that_cannot_hold_what_polling_writes_are_told_with_what_mends_them() {
    let scene = polled("polling_bad_columns");
    scene.sql(POLLING_SQL);
    // GIVEN columns that cannot hold what is written there
    scene.sql(
        "ALTER TABLE outbox ALTER locked_by TYPE uuid USING NULL, \
         ALTER locked_at TYPE date, ALTER retry_count DROP DEFAULT, ALTER retry_count TYPE text",
    );
    let told = scene.walrelay(&["check"]);
    assert_eq!(told.code, 1, "{told}");
    told.assert_says(&[
        "✗ retry_count is of type text: polling writes what fits integer",
        "✗ locked_at is of type date: polling writes what fits timestamptz",
        "✗ locked_by is of type uuid: polling writes what fits text",
    ]);
    let mend = "ALTER TABLE \"public\".\"outbox\" ALTER COLUMN \"retry_count\" TYPE integer USING \"retry_count\"::integer;";
    scene.walrelay(&["run"]).assert_fault(
        4,
        "table.column-type",
        &["retry_count is of type text", mend],
    );
    scene.sql(mend.strip_suffix(';').unwrap());
    scene.sql(
        "ALTER TABLE outbox ALTER COLUMN locked_at TYPE timestamptz USING locked_at::timestamptz",
    );
    scene.sql("ALTER TABLE outbox ALTER COLUMN locked_by TYPE text USING locked_by::text");
    scene.walrelay(&["check"]).assert_done();
}

#[test]
fn what_the_table_would_refuse_of_a_published_row_is_told_before() {
    let mut scene = polled("polling_bad_words");
    scene.sql(POLLING_SQL);
    scene.sql("INSERT INTO outbox (event_key, payload) VALUES ('k', '{}')");
    let shipped = scene.source.clone();
    let fault = |scene: &CliFixture<'_>, code: &str, words: &[&str]| {
        scene.walrelay(&["check"]).assert_says(words);
        scene.walrelay(&["run"]).assert_fault(4, code, words);
        assert_eq!(scene.sql("SELECT status, count(*) FROM outbox GROUP BY 1"), "pending|1");
    };
    // GIVEN words that a CHECK does not know
    scene.source += "[source.polling.status_values]\nfailed = \"dead\"\n";
    fault(
        &scene,
        "table.status-value",
        &["status does not take 'dead': CHECK outbox_status_check", "DROP CONSTRAINT"],
    );
    scene.source.clone_from(&shipped);
    // GIVEN columns that polling empties when it has published
    scene.sql("ALTER TABLE outbox ALTER next_retry_at SET DEFAULT now()");
    scene.sql("UPDATE outbox SET next_retry_at = now()");
    scene.sql("ALTER TABLE outbox ALTER next_retry_at SET NOT NULL");
    let mend = "ALTER COLUMN \"next_retry_at\" DROP NOT NULL;";
    fault(&scene, "table.column-null", &["next_retry_at takes no NULL", mend]);
    scene.sql("ALTER TABLE outbox ALTER next_retry_at DROP NOT NULL");
    // GIVEN what may do, and may not: that is said
    scene.sql("ALTER TABLE outbox ALTER locked_by TYPE varchar(50), DROP CONSTRAINT outbox_pkey");
    scene.walrelay(&["check"]).assert_done().assert_says(&[
        "! locked_by takes 50 characters: the name of a claim",
        "! no index begins with \"id\"",
    ]);
    scene.sql("ALTER TABLE outbox ALTER locked_by TYPE text, ADD PRIMARY KEY (id)");
    // GIVEN a status that is too short, an enum without the word
    scene.sql("ALTER TABLE outbox DROP CONSTRAINT outbox_status_check");
    scene.source += "[source.polling.status_values]\npublished = \"published by walrelay\"\n";
    scene.sql("ALTER TABLE outbox ALTER status TYPE varchar(15)");
    fault(
        &scene,
        "table.status-value",
        &["does not take 'published by walrelay': it is longer than character varying(15)"],
    );
    scene.source = shipped;
    scene.sql(
        "DROP INDEX outbox_pending, outbox_in_progress, outbox_waiting, outbox_failed, outbox_published;
         ALTER TABLE outbox ALTER status DROP DEFAULT;
         CREATE TYPE state AS ENUM ('pending', 'in_progress', 'failed');
         ALTER TABLE outbox ALTER status TYPE state USING status::state",
    );
    let words = [
        "invalid input value for enum public.state",
        "ALTER TYPE public.state ADD VALUE 'published';",
    ];
    fault(&scene, "table.status-value", &words);
    // THEN without that word it is well where rows are deleted, and what nobody would poll is said
    scene.source = "mode = \"polling\"\n[source.polling]\non_published = \"delete\"\ncleanup = { enabled = false }\n\
                    [[source.outbox]]\ntable = \"public.outbox\"\n"
        .into();
    scene.walrelay(&["check"]).assert_done().assert_says(&[
        "! status has no default: a row is published only if who writes it says 'pending'",
    ]);
}

#[test]
fn what_only_shows_with_a_row_ends_the_relay_with_the_reason() {
    let scene = polled("polling_refused");
    scene.sql(POLLING_SQL);
    scene.sql("ALTER TABLE outbox ADD CHECK (status <> 'in_progress' OR event_key <> 'k')");
    scene.sql("INSERT INTO outbox (event_key, payload) VALUES ('k', '\"canary\"')");
    let ended = scene.walrelay(&["run"]);
    ended.assert_fault(4, "polling.refused", &["check constraint", "outbox_check"]);
    // THEN without the row, of which Postgres has sent every value
    assert!(!ended.all().contains("canary"), "{ended}");
    assert_eq!(scene.sql("SELECT status FROM outbox"), "pending");
}

#[test]
fn an_id_that_is_no_text_ends_the_relay_with_the_reason() {
    let scene = polled_in(CliFixture::without_encoding("polling_ascii_id"));
    scene.sql(POLLING_SQL);
    scene.make_topic("polling_ascii_id", 1);
    // GIVEN an id that is a number THEN it is text in any database
    let check = scene.walrelay(&["check"]);
    assert!(!check.assert_done().all().contains("SQL_ASCII"), "{check}");
    scene.sql("ALTER TABLE outbox ALTER id DROP IDENTITY; ALTER TABLE outbox ALTER id TYPE text");
    scene.walrelay(&["check"]).assert_done().assert_says(&[
        "! the database is SQL_ASCII: a row whose id is not UTF-8 stops polling; if all are ASCII: ALTER TABLE",
    ]);
    scene.sql(
        r"INSERT INTO outbox (id, event_key, payload) VALUES (convert_from('\x31e9', 'SQL_ASCII'), 'polling_ascii_id', '{}')",
    );
    let words = ["column 0", "utf-8", "SQL_ASCII"];
    scene.walrelay(&["run"]).assert_fault(4, "source.protocol", &words);
}

#[test]
fn a_trigger_that_needs_a_search_path_is_named_with_what_gives_it_one() {
    let scene = polled("polling_trigger");
    scene.sql(POLLING_SQL);
    scene.sql(
        "CREATE TABLE audit (id bigint);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql
             AS $$ BEGIN INSERT INTO audit VALUES (NEW.id); RETURN NEW; END $$;
         CREATE TRIGGER note BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION note();
         INSERT INTO outbox (event_key, payload) VALUES ('k', '{}')",
    );
    scene.make_topic("k", 1);
    let words = ["function public.note()", "empty search_path", "ALTER FUNCTION … SET search_path"];
    scene.walrelay(&["run"]).assert_fault(4, "polling.refused", &words);
    assert_eq!(scene.sql("SELECT status FROM outbox"), "pending");
    // WHEN the function has a path of its own THEN it works
    scene.sql("ALTER FUNCTION public.note() SET search_path = public");
    let mut relay = scene.spawn(&["run"]);
    relay.wait_until("the row", || scene.sql("SELECT status FROM outbox") == "published");
    relay.stop();
}

#[test]
fn rows_are_only_looked_at_where_the_table_is_polled() {
    let scene = CliFixture::ready("polling_not");
    scene.walrelay(&["outbox", "list"]).assert_fault(2, "config.conflict", &["source.mode"]);
}

#[test]
fn a_table_that_is_locked_at_the_start_is_named_with_who_has_locked_it() {
    let mut scene = polled("polling_table_locked");
    let admin = scene.choose_admin();
    scene.sql(POLLING_SQL);
    // GIVEN a migration that takes long
    let migration = Session::open(&scene.url).unwrap();
    let value = |sql: &str| migration.first_value(sql).unwrap();
    let pid = value("SELECT pg_backend_pid()").unwrap();
    value("BEGIN; LOCK TABLE outbox");
    // WHEN polling starts THEN the log names the table, and finds the migration
    let mut relay = scene.spawn(&["run"]);
    relay.wait_to_say("polling.table-locked");
    let said = relay.said();
    let found = format!("WHERE pid IN ({pid});");
    assert!(said.contains("has locked public.outbox") && said.contains(&found), "{said}");
    // THEN /status tells the same
    let status = || -> Value {
        let answer = get(admin, "/status", Duration::from_secs(5)).unwrap();
        serde_json::from_str(&answer.body).unwrap()
    };
    let note = || {
        let status = status();
        assert_eq!(status["live"], true);
        status["note"].as_str().unwrap().to_owned()
    };
    assert!(note().contains("has locked public.outbox"), "{}", note());
    // WHEN the migration ends THEN polling begins
    value("COMMIT");
    relay.wait_to_say("table public.outbox can be polled");
    relay.wait_until("the note to end", || note().is_empty());
    relay.wait_until("the backlog", || status()["polling"]["backlog"] == 0);
    // WHEN another one begins while the table is polled THEN it is told, too, and the backlog is unknown
    value("BEGIN; LOCK TABLE outbox");
    relay.wait_until("the note", || note().contains(&found));
    relay.wait_until("no backlog", || status()["polling"]["backlog"].is_null());
    let mut list = scene.spawn(&["outbox", "list"]);
    list.wait_to_say("has locked public.outbox");
    value("COMMIT");
    list.wait().assert_done();
    relay.wait_until("the note to end", || note().is_empty());
    assert_eq!(relay.said().matches("polling.table-locked").count(), 2, "{}", relay.said());
    relay.stop();
    // WHEN a signal comes while polling waits for another one THEN it ends
    value("BEGIN; LOCK TABLE outbox");
    let mut relay = scene.spawn(&["run"]);
    relay.wait_to_say("polling.table-locked");
    relay.stop();
}
