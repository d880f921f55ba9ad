//! What is wrong with a polled table is told before a row moves.

use crate::support::faults::{HALT, Scene};

const POLLING_SQL: &str = include_str!("../../sql/polling.sql");

fn polled(name: &str) -> Scene<'static> {
    let mut scene = Scene::bare(name);
    scene.source = "mode = \"polling\"\n[[source.outbox]]\ntable = \"public.outbox\"\n".into();
    scene.extra = HALT.into();
    scene
}

#[test]
fn init_makes_the_table_and_check_agrees() {
    let scene = polled("polling_init");
    let told = scene.walrelay(&["check"]);
    assert_eq!(told.code, 1, "{told}");
    told.assert_says(&["✗ outbox table public.outbox does not exist", "sql/polling.sql"]);
    scene.walrelay(&["init"]).assert_done().assert_says(&["+ make outbox table public.outbox"]);
    scene.walrelay(&["init"]).assert_done().assert_says(&["nothing is missing"]);
    scene.walrelay(&["check"]).assert_done().assert_says(&["✓ table public.outbox can be polled"]);
}

#[test]
fn what_polling_cannot_do_with_a_table_is_told_with_what_mends_it() {
    let scene = polled("polling_bad_table");
    let refused = |exit, code: &str, words: &[&str]| {
        scene.walrelay(&["run"]).assert_fault(exit, code, words);
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
    refused(4, "table.kind", &["public.outbox is not a table"]);
    scene.sql("DROP VIEW outbox");
    scene.sql(POLLING_SQL);
    // GIVEN a mark that every new row has: after a handover polling would take the slot's rows, too
    scene.sql("ALTER TABLE outbox ALTER locked_by SET DEFAULT ''");
    refused(4, "table.column-default", &["locked_by must be NULL", "DROP DEFAULT"]);
    scene.sql("ALTER TABLE outbox ALTER locked_by DROP DEFAULT");
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
    refused(4, "table.column-type", &["retry_count is of type text", mend]);
    scene.sql(mend.strip_suffix(';').unwrap());
    scene.sql(
        "ALTER TABLE outbox ALTER COLUMN locked_at TYPE timestamptz USING locked_at::timestamptz",
    );
    scene.sql("ALTER TABLE outbox ALTER COLUMN locked_by TYPE text USING locked_by::text");
    scene.walrelay(&["check"]).assert_done();
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
    reader.walrelay(&["run"]).assert_fault(
        4,
        "table.rights",
        &["may not UPDATE, DELETE", "GRANT UPDATE, DELETE ON"],
    );
    // GIVEN a slot: its relay would publish the same rows
    let name = &scene.name;
    scene.sql(&format!("SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')"));
    refused(3, "slot.exists", &[&format!("slot {name} exists"), "source.mode = \"cdc\""]);
    assert_eq!(scene.walrelay(&["check"]).code, 1);
    // THEN a table without its indexes works, and that is said
    scene.sql(&format!("SELECT pg_drop_replication_slot('{name}'); DROP INDEX outbox_pending"));
    let told = scene.walrelay(&["check"]);
    told.assert_done().assert_says(&["! no partial index", "CREATE INDEX CONCURRENTLY"]);
}

#[test]
fn words_that_the_table_refuses_end_the_relay_with_the_reason() {
    let mut scene = polled("polling_bad_words");
    scene.sql(POLLING_SQL);
    scene.source += "[source.polling.words]\nin_progress = \"claimed\"\n";
    scene.sql("INSERT INTO outbox (event_key, payload) VALUES ('k', '{}')");
    let ended = scene.walrelay(&["run"]);
    ended.assert_fault(4, "polling.refused", &["check constraint", "[source.polling.words]"]);
    assert_eq!(scene.sql("SELECT status FROM outbox"), "pending");
}

#[test]
fn rows_are_only_looked_at_where_the_table_is_polled() {
    let scene = Scene::ready("polling_not");
    scene.walrelay(&["outbox", "list"]).assert_fault(2, "config.conflict", &["source.mode"]);
}
