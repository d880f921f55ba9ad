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
fn a_row_and_a_key_lead_to_a_partition_unless_a_column_does() {
    let row = OutboxRow {
        topic: Some("t".to_owned()),
        key: Some(b"k".to_vec()),
        partition: Some(3),
        ..OutboxRow::default()
    };
    let found = route_of(&row).unwrap();
    assert_eq!((found.topic, found.key.as_deref()), (Template::literal("t"), Some(&b"k"[..])));
    assert_eq!(found.partition, Some(3));
    assert_eq!(route_of(&OutboxRow { topic: None, ..row }), None);
    let mut route = Route::default();
    assert_eq!(route_of_key(&route, Some(b"k")).key.as_deref(), Some(&b"k"[..]));
    // It is searched everywhere.
    assert_eq!(route_of_key(&route, None).key, None);
    route.partition = Some("p".to_owned());
    assert_eq!(route_of_key(&route, Some(b"k")).key, None);
}
