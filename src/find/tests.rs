use super::*;
use crate::base::template::Template;

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
    // An UPDATE may have given it the time of its commit.
    let updated = |minutes| OutboxRow {
        committed_unix_us: Some(minutes * MARGIN_US),
        ..OutboxRow::default()
    };
    assert_eq!(from(&request(id(), false), &[updated(950)]), 900 * MARGIN_US);
    assert_eq!(from(&request(id(), false), &[updated(20)]), 19 * MARGIN_US);
    assert_eq!(from(&request(id(), false), &[]), 900 * MARGIN_US);
    // The records of all rows that were found, which may be older than the time given.
    let of_key = || request(Wanted::Key("k".to_owned()), true);
    assert_eq!(from(&of_key(), &rows), 19 * MARGIN_US);
    assert_eq!(from(&of_key(), &[]), 900 * MARGIN_US);
}

#[test]
fn dead_letters_are_read_from_the_oldest_row_on_and_all_of_them_if_its_time_is_not_known() {
    let row = |created_unix_us, committed_unix_us| OutboxRow {
        created_unix_us,
        committed_unix_us,
        ..OutboxRow::default()
    };
    let (known, unknown) = (row(Some(30), None), row(None, None));
    let id = || Wanted::Id("e".to_owned());
    let key = || Wanted::Key("k".to_owned());
    for of_time in [request(id(), true), request(key(), false)] {
        assert_eq!(letters_from(&of_time, &[], 40), ReadFrom::Time(40));
    }
    // The event may be older than the time of a search without `--since`.
    let request = request(id(), false);
    assert_eq!(letters_from(&request, &[], 40), ReadFrom::Beginning);
    assert_eq!(
        letters_from(&request, &[known.clone(), row(Some(50), None)], 40),
        ReadFrom::Time(30)
    );
    assert_eq!(
        letters_from(&request, &[known.clone(), row(Some(20), Some(90))], 40),
        ReadFrom::Time(20)
    );
    assert_eq!(letters_from(&request, std::slice::from_ref(&known), 10), ReadFrom::Time(10));
    assert_eq!(letters_from(&request, &[known, unknown], 10), ReadFrom::Beginning);
    // An UPDATE may have given it the time of its commit.
    assert_eq!(letters_from(&request, &[row(None, Some(30))], 40), ReadFrom::Beginning);
}

#[test]
fn a_row_and_a_key_lead_to_a_partition_unless_a_column_does() {
    let row = OutboxRow {
        topic: Some("t".to_owned()),
        key: Some(b"k".to_vec()),
        partition: Some(3),
        ..OutboxRow::default()
    };
    let found = row.route().unwrap();
    assert_eq!((found.topic, found.key.as_deref()), (Template::literal("t"), Some(&b"k"[..])));
    assert_eq!(found.partition, Some(3));
    assert_eq!(OutboxRow { topic: None, ..row }.route(), None);
    let mut route = Route::default();
    let spelled = Spelling::Bytes(b"k".to_vec());
    assert_eq!(route_of_key(&route, &spelled).unwrap().key.as_deref(), Some(&b"k"[..]));
    // The partition is not known.
    assert_eq!(route_of_key(&route, &Spelling::Unknown).unwrap().key, None);
    // The table cannot have the key.
    assert_eq!(route_of_key(&route, &Spelling::NoValue(String::new())), None);
    route.partition = Some("p".to_owned());
    assert_eq!(route_of_key(&route, &spelled).unwrap().key, None);
}
