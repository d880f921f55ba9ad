use super::*;

#[test]
fn a_column_of_two_uses_is_made_once_and_takes_a_payload() {
    let made = |id: &str, key: &str, payload: &str| {
        let mut outbox = OutboxTable::default();
        let columns = &mut outbox.columns;
        (columns.id, columns.key, columns.payload) = (id.into(), key.into(), payload.into());
        table_sql(&outbox).unwrap()
    };
    let sql = made("id", "document", "document");
    assert!(sql.contains("\"document\" jsonb,") && sql.contains("\"type\" text NOT NULL"), "{sql}");
    assert_eq!(sql.matches("document").count(), 1, "{sql}");
    let sql = made("id", "key", "id");
    assert!(sql.contains("\"id\" uuid PRIMARY KEY"), "{sql}");
}
