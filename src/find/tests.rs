use super::*;

fn request(wanted: Wanted, since_is_given: bool) -> FindRequest {
    FindRequest { wanted, since_unix_us: 900 * MARGIN_US, since_is_given, within: Duration::ZERO }
}

#[test]
fn the_broker_is_searched_since_the_row_was_written_unless_a_time_is_given() {
    let rows = [30, 20].map(|minutes| OutboxRow {
        created_unix_us: Some(minutes * MARGIN_US),
        ..OutboxRow::default()
    });
    let id = || Wanted::Id("e".to_owned());
    assert_eq!(from(&request(id(), false), &rows), 19 * MARGIN_US);
    assert_eq!(from(&request(id(), true), &rows), 900 * MARGIN_US);
    assert_eq!(from(&request(id(), false), &[]), 900 * MARGIN_US);
    assert_eq!(from(&request(Wanted::Key("k".to_owned()), false), &rows), 900 * MARGIN_US);
}

#[test]
fn a_key_leads_to_a_partition_unless_a_column_does() {
    let mut route = Route::default();
    let key = request(Wanted::Key("k".to_owned()), false);
    assert_eq!(any_of(&route, &key).key.as_deref(), Some(&b"k"[..]));
    assert_eq!(any_of(&route, &request(Wanted::Id("e".to_owned()), false)).key, None);
    route.partition = Some("p".to_owned());
    assert_eq!(any_of(&route, &key).key, None);
}
