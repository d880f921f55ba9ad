use super::*;

const TRANSACTIONS: Range<Lsn> = Lsn::from_wire(100)..Lsn::from_wire(200);

/// The parts of an event: transaction, key, value.
type Row = (u64, Option<u8>, u8);

fn with<T>((lsn, key, value): Row, then: impl FnOnce(&Outbound<'_>) -> T) -> T {
    let (lsn, key) = (Lsn::from_wire(lsn).to_string(), key.map(|key| [key]));
    let headers: [(&str, &[u8]); 2] = [("id", b"1"), ("lsn", lsn.as_bytes())];
    then(&Outbound {
        topic: "orders",
        key: key.as_ref().map(<[u8; 1]>::as_slice),
        value: Some(&[value]),
        id: "1",
        headers: &headers,
        ..Outbound::default()
    })
}

fn stored(records: &[Row]) -> StoredEvents {
    let mut stored = StoredEvents::of(TRANSACTIONS);
    let mut found = stored.another();
    records.iter().for_each(|row| with(*row, |record| found.add(record, 0)));
    stored.append(("orders".to_owned(), false), found, true);
    stored
}

fn take(stored: &mut StoredEvents, row: Row) -> Stored {
    with(row, |event| stored.take(event, Lsn::from_wire(row.0)))
}

const A: Option<u8> = Some(b'a');

#[test]
fn an_event_is_stored_if_everything_of_it_is() {
    let whole: Row = (150, A, 1);
    assert_eq!(take(&mut stored(&[whole]), whole), Stored::Yes);
    for other in [(151, A, 1), (150, Some(b'b'), 1), (150, None, 1), (150, A, 2)] {
        assert_eq!(take(&mut stored(&[whole]), other), Stored::No, "{other:?}");
        let found = take(&mut stored(&[other]), whole);
        assert!(matches!(found, Stored::No | Stored::Overtaken), "{other:?}");
    }
    let differs = |change: fn(&mut Outbound<'_>)| {
        let mut stored = stored(&[whole]);
        with(whole, |event| {
            let mut event = *event;
            change(&mut event);
            stored.take(&event, Lsn::from_wire(150))
        })
    };
    assert_eq!(differs(|_| ()), Stored::Yes);
    // The trace context may have been added when the record was written.
    let traced: fn(&mut Outbound<'_>) = |event| {
        event.headers = &[("id", b"1"), ("lsn", b"0/96"), ("traceparent", b"00-1-2-01")];
    };
    assert_eq!(differs(traced), Stored::Yes);
    assert_eq!(differs(|event| event.topic = "other"), Stored::Unknown);
    assert_eq!(differs(|event| event.value = None), Stored::No);
    assert_eq!(differs(|event| event.value = Some(b"")), Stored::No);
    assert_eq!(differs(|event| event.partition = Some(0)), Stored::Unknown);
    assert_eq!(differs(|event| event.headers = &[("id", b"1")]), Stored::Unknown);
    let reordered: fn(&mut Outbound<'_>) =
        |event| event.headers = &[("lsn", b"0/96"), ("id", b"1")];
    assert_eq!(differs(reordered), Stored::No);
    assert_eq!(differs(|event| event.headers = &[("id", b"1"), ("lsn", b"0/96")]), Stored::Yes);
    assert_eq!(differs(|event| event.headers = &[("id", b"2"), ("lsn", b"0/96")]), Stored::No);
    // What is not published does not count.
    assert_eq!(differs(|event| event.id = "2"), Stored::Yes);
}

/// The topic was given more partitions: which record of the key is the last one is not known.
#[test]
fn a_key_with_records_in_two_partitions_is_published_again() {
    let rows = [(150, A, 1), (160, A, 2), (170, A, 3)];
    for (partitions, is_known) in [([0, 0, 0], true), ([1, 0, 0], false), ([0, 0, 1], false)] {
        let mut stored = StoredEvents::of(TRANSACTIONS);
        let mut found = stored.another();
        for (row, partition) in rows.iter().zip(partitions) {
            with(*row, |record| found.add(record, partition));
        }
        stored.append(("orders".to_owned(), false), found, true);
        let expected = if is_known { Stored::Yes } else { Stored::No };
        assert!(rows.iter().all(|row| take(&mut stored, *row) == expected), "{partitions:?}");
    }
}

#[test]
fn a_header_that_is_not_the_position_of_the_transaction_excuses_nothing() {
    let row = (150, None, 1);
    let mut stored = stored(&[row]);
    let found = with(row, |event| stored.take(event, Lsn::from_wire(149)));
    assert_eq!(found, Stored::Unknown);
    assert_eq!(take(&mut stored, row), Stored::Yes);
}

#[test]
fn each_record_stands_for_one_event() {
    let row = (150, None, 1);
    let mut stored = stored(&[row, row]);
    let found = [0; 3].map(|_| take(&mut stored, row));
    assert_eq!(found, [Stored::Yes, Stored::Yes, Stored::No]);
}

#[test]
fn transactions_that_are_not_sent_again_are_not_looked_for() {
    for lsn in [99, 200] {
        let row = (lsn, None, 1);
        assert_eq!(take(&mut stored(&[row, (150, None, 1)]), row), Stored::Unknown);
    }
    // A key that ends with one of them has gone back: nothing of it counts.
    for lsn in [99, 200] {
        let mut found = stored(&[(150, A, 1), (150, Some(b'b'), 1), (lsn, A, 2)]);
        assert_eq!(take(&mut found, (150, A, 1)), Stored::No);
        assert_eq!(take(&mut found, (150, Some(b'b'), 1)), Stored::Yes);
    }
    let mut found = stored(&[(99, A, 2), (150, A, 1)]);
    assert_eq!(take(&mut found, (150, A, 1)), Stored::Yes);
}

#[test]
fn a_partition_that_was_left_out_says_nothing() {
    let mut stored = StoredEvents::of(TRANSACTIONS);
    let mut found = stored.another();
    with((150, A, 1), |record| found.add(record, 0));
    stored.append(("orders".to_owned(), false), found, false);
    // Of a key that was found everything is known.
    assert_eq!(take(&mut stored, (150, A, 1)), Stored::Yes);
    assert_eq!(take(&mut stored, (151, A, 2)), Stored::No);
    for other in [(150, Some(b'b'), 1), (151, Some(b'b'), 1), (150, None, 1)] {
        assert_eq!(take(&mut stored, other), Stored::Unknown, "{other:?}");
    }
}
