//! Tables and publications that would hold events back.

use crate::support::faults::CliFixture;

#[test]
fn a_wrong_column_is_told_with_the_one_that_was_meant() {
    let mut scene = CliFixture::waiting("table_column");
    scene.source = "[[source.outbox]]\ncolumns = { payload = \"paylod\" }".into();
    scene.assert_refused(
        4,
        "table.column-missing",
        &[
            "public.outbox has no column paylod",
            "it has id, aggregatetype",
            "name column \"payload\" instead",
        ],
    );
    scene.source = String::new();
    scene.route = "topic = \"x.${nowhere}\"".into();
    scene.assert_refused(4, "table.column-missing", &["has no column nowhere"]);
    scene.route = "headers = { h = \"${hdr}\" }".into();
    scene.assert_refused(4, "table.column-missing", &["has no column hdr"]);
}

#[test]
fn a_missing_table_is_told_with_the_one_that_was_meant() {
    let mut scene = CliFixture::waiting("table_missing");
    scene.source = "[[source.outbox]]\ntable = \"public.outbux\"".into();
    let words =
        ["outbox table public.outbux does not exist", "table = \"public.outbox\"", "walrelay init"];
    scene.assert_refused(4, "table.missing", &words);
    // A view's rows are in no WAL.
    scene.sql("CREATE VIEW seen AS SELECT * FROM outbox");
    scene.source = "[[source.outbox]]\ntable = \"public.seen\"".into();
    scene.assert_refused(4, "table.kind", &["public.seen is a view"]);
    scene.sql("CREATE UNLOGGED TABLE fast (LIKE outbox)");
    scene.source = "[[source.outbox]]\ntable = \"public.fast\"".into();
    scene.assert_refused(4, "table.unlogged", &["ALTER TABLE \"public\".\"fast\" SET LOGGED;"]);
}

#[test]
fn a_publication_that_holds_rows_back_is_refused_with_the_sql_that_mends_it() {
    let mut scene = CliFixture::waiting("pub_content");
    // GIVEN the publication as each of these leaves it
    let cases = [
        (
            "SET TABLE outbox WHERE (type = 'other')",
            "publication.row-filter",
            "rows outside of (type = 'other'::text) are lost silently",
        ),
        (
            "SET TABLE outbox (id, aggregateid, type, aggregatetype)",
            "publication.column-list",
            "leaves out columns of public.outbox that are needed: payload",
        ),
        ("SET (publish = 'update, delete')", "publication.insert", "does not publish INSERT"),
        ("DROP TABLE outbox", "publication.table-missing", "does not contain public.outbox"),
    ];
    for (change, code, what) in cases {
        scene.sql(&format!("ALTER PUBLICATION walrelay {change}"));
        let ended = scene.assert_refused(4, code, &[what]);
        // THEN the SQL of the hint mends it, as it stands there
        let all = ended.all();
        let hint = all.split("help:").nth(1).unwrap();
        let first = hint.trim().lines().next().unwrap();
        let sql = first.split(" (as owner").next().unwrap();
        scene.sql(sql);
        // Rows that were written meanwhile would be missing: from the second change on the slot has
        // been read, by the check before.
        let resumed = scene.walrelay(&["resume", "--yes"]);
        assert!([0, 1].contains(&resumed.code), "{resumed}");
        scene.walrelay(&["check"]).assert_done();
        scene.sql("ALTER PUBLICATION walrelay SET (publish = 'insert')");
    }
    // THEN the event that waited all the while is relayed, once it is acknowledged that it was the only one
    scene.walrelay(&["resume", "--yes"]).assert_done();
    scene.route = String::new();
    let ids = scene.carry(&[&scene.topic()]);
    assert_eq!(ids.len(), 1);
}

#[test]
fn a_publication_that_is_not_there_is_told() {
    let scene = CliFixture::waiting("pub_missing");
    scene.sql("DROP PUBLICATION walrelay");
    scene.assert_refused(
        4,
        "publication.missing",
        &[
            "publication walrelay does not exist",
            "CREATE PUBLICATION \"walrelay\" FOR TABLE \"public\".\"outbox\"",
            "slot is older than that publication",
        ],
    );
}

#[test]
fn partitions_under_their_own_names_are_refused() {
    let mut scene = CliFixture::bare("pub_root");
    scene.sql(
        "CREATE TABLE outbox (id int, aggregateid text, payload text) PARTITION BY RANGE (id);
         CREATE TABLE outbox_a PARTITION OF outbox DEFAULT;
         CREATE PUBLICATION walrelay FOR TABLE outbox WITH (publish = 'insert');",
    );
    scene.make_slot();
    scene.route = format!("topic = \"{}\"", scene.topic());
    scene.make_topic(&scene.topic(), 1);
    scene.sql("INSERT INTO outbox VALUES (1, 'k', 'x')");
    scene.assert_refused(4, "publication.via-root", &["SET (publish_via_partition_root = true);"]);
}
