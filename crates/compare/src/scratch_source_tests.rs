use super::*;

#[test]
fn a_name_fits_a_slot_and_is_fresh() {
    let name = fresh_name();
    assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'));
    assert!(name.len() < 63 && name.starts_with(PREFIX), "{name}");
    assert_ne!(name, fresh_name());
}

#[test]
fn both_tables_have_what_the_load_writes_and_lie_in_the_scratch_schema() {
    for sql in [CDC_SQL, POLLING_SQL] {
        assert!(sql.contains("public.outbox"));
        assert!(sql.contains("event_key") && sql.contains("payload"));
        assert_eq!(sql.matches("public.").count(), sql.matches("public.outbox").count());
    }
}
