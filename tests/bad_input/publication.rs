//! Tables and publications that would hold events back.

use crate::support::faults::CliFixture;

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
