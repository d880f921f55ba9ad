use super::*;

#[test]
fn rows_are_published_again_in_the_order_in_which_they_were_written() {
    let shipped = OutboxTable::default();
    assert_eq!(
        republish_table_sql(&shipped),
        "BEGIN; LOCK TABLE \"public\".\"outbox\" IN SHARE ROW EXCLUSIVE MODE; \
         WITH moved AS (DELETE FROM \"public\".\"outbox\" WHERE created_at >= 'TIME' RETURNING *) \
         INSERT INTO \"public\".\"outbox\" OVERRIDING SYSTEM VALUE SELECT * FROM moved ORDER BY \"seq\"; COMMIT; \
         /* if the table has no created_at: WHERE \"seq\" >= FIRST; if it has no \"seq\", there is no statement: \
         the order of the rows of one key is not known; if the table has generated columns: list the others after INTO and in place of * */"
    );
    // GIVEN a table of other names THEN without its order there is no statement
    let mut mapped = OutboxTable { table: "events".into(), ..OutboxTable::default() };
    let text = republish_table_sql(&mapped);
    assert!(!text.contains("INSERT") && text.contains("columns.order"), "{text}");
    mapped.order = Some("No".into());
    let text = republish_table_sql(&mapped);
    assert!(
        text.contains("WHERE \"No\" >= FIRST") && text.contains("ORDER BY \"No\"; COMMIT;"),
        "{text}"
    );
}
