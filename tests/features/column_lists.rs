//! Publications of some columns of a table, which PostgreSQL 14 does not have.

use crate::support::faults::{CliFixture, read};

/// Postgres describes such a partition by the column numbers of its root, which are those of other columns.
#[test]
fn a_partition_whose_columns_have_other_numbers_is_published_with_a_column_list() {
    let mut scene = CliFixture::bare("tables_numbers");
    scene.sql(
        "CREATE TABLE public.outbox (gone int, id int, aggregateid text, payload text, extra int) PARTITION BY RANGE (id);
         ALTER TABLE outbox DROP COLUMN gone;",
    );
    scene.prepare("TABLE public.outbox (id, aggregateid, payload)", "tables.numbers");
    scene.route = "topic = \"tables.numbers\"".into();
    scene.sql(
        "CREATE TABLE public.outbox_a PARTITION OF outbox FOR VALUES FROM (0) TO (10);
         INSERT INTO outbox VALUES (1, 'k', 'a', 7);",
    );
    scene.carry(&[]);
    // WHEN one is dropped whose rows have not been received THEN they arrive all the same
    scene.sql("INSERT INTO outbox VALUES (2, 'k', 'b', 8); DROP TABLE outbox_a;");
    scene.carry(&[]);
    let records = read(&["tables.numbers"]);
    let found: Vec<_> = records.iter().map(|r| (r.header("id").unwrap(), r.text())).collect();
    assert_eq!(found, [("1", "a"), ("2", "b")]);
}
