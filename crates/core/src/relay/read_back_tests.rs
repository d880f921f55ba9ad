use std::sync::{Arc, Mutex};

use super::*;
use crate::relay::testing::{LinkEnd, link};

pub(in crate::relay) type End = LinkEnd<ReadRequest, Result<FoundRecords, String>>;

pub(in crate::relay) const TRANSACTIONS: Range<Lsn> = Lsn::from_wire(100)..Lsn::from_wire(200);

/// Reads back these transactions, with the other end of its reader once that was opened.
pub(in crate::relay) fn started() -> (ReadBack, Arc<Mutex<Option<End>>>) {
    let opened = Arc::<Mutex<Option<End>>>::default();
    let end = Arc::clone(&opened);
    let open = move || {
        let (link, other_end) = link();
        *end.lock().unwrap() = Some(other_end);
        Some(link)
    };
    let mut read_back = ReadBack::new(Box::new(open), 1);
    read_back.start(TRANSACTIONS);
    (read_back, opened)
}

pub(in crate::relay) fn with<T>(lsn: u64, value: u8, then: impl FnOnce(&Outbound<'_>) -> T) -> T {
    let lsn = Lsn::from_wire(lsn).to_string();
    then(&Outbound {
        topic: "orders",
        value: Some(&[value]),
        id: "1",
        headers: &[("lsn", lsn.as_bytes())],
        commit_unix_us: 50_000_000,
        ..Outbound::default()
    })
}

fn find(read_back: &mut ReadBack, lsn: u64, value: u8) -> Option<Stored> {
    with(lsn, value, |event| read_back.find(event, Lsn::from_wire(lsn)))
}

/// Answers the request for the topic with these records.
pub(in crate::relay) fn answer(
    read_back: &mut ReadBack,
    end: &Mutex<Option<End>>,
    records: &[(u64, u8)],
) {
    assert!(read_back.is_reading());
    let end = end.lock().unwrap();
    let end = end.as_ref().unwrap();
    let mut request = end.requests.try_recv().unwrap();
    assert_eq!((request.topic.as_str(), request.from_unix_us), ("orders", 40_000_000));
    for (lsn, value) in records {
        assert!(with(*lsn, *value, |record| request.take(record)));
    }
    end.answers.send(Ok(FoundRecords { records: request.stored, whole: true })).unwrap();
    assert!(!read_back.is_reading());
}

#[test]
fn the_first_event_for_a_topic_waits_until_its_end_is_read() {
    let (mut read_back, end) = started();
    assert_eq!(find(&mut read_back, 150, 1), None);
    answer(&mut read_back, &end, &[(150, 1)]);
    assert_eq!(find(&mut read_back, 150, 1), Some(Stored::Yes));
    // Each record stands for one event, and no topic is read twice.
    assert_eq!(find(&mut read_back, 150, 1), Some(Stored::No));
    // Of another transaction nothing is known.
    assert_eq!(find(&mut read_back, 250, 1), Some(Stored::Unknown));
}

#[test]
fn it_covers_the_transactions_from_the_first_until_all_were_received() {
    let (mut read_back, _end) = started();
    let covers = |it: &ReadBack, lsn| it.covers(Lsn::from_wire(lsn));
    assert!(read_back.is_active());
    assert!(!covers(&read_back, 99) && covers(&read_back, 100) && covers(&read_back, 200));
    assert!(read_back.received(Lsn::from_wire(199)) && read_back.is_active());
    assert!(read_back.received(Lsn::from_wire(200)) && !read_back.is_active());
    assert!(!covers(&read_back, 150));
    // WHEN a session begins without such transactions THEN nothing is looked for
    read_back.start(TRANSACTIONS);
    read_back.start(Lsn::from_wire(5)..Lsn::from_wire(5));
    assert!(!read_back.is_active());
}

#[test]
fn a_long_backlog_without_a_stored_event_is_not_looked_for() {
    for records in [&[(150, 1)][..], &[]] {
        let (mut read_back, end) = started();
        assert_eq!(find(&mut read_back, 150, 2), None);
        answer(&mut read_back, &end, records);
        let miss = |read_back: &mut ReadBack, times: usize| {
            (0..times).for_each(|_| assert_eq!(find(read_back, 150, 2), Some(Stored::No)));
        };
        miss(&mut read_back, MISSES_MAX);
        assert!(read_back.received(Lsn::from_wire(150)) && read_back.is_active());
        if !records.is_empty() {
            // One that is stored begins the count anew.
            assert_eq!(find(&mut read_back, 150, 1), Some(Stored::Yes));
            miss(&mut read_back, MISSES_MAX);
            assert!(read_back.received(Lsn::from_wire(150)) && read_back.is_active());
        }
        miss(&mut read_back, 1);
        assert!(!read_back.received(Lsn::from_wire(150)) && !read_back.is_active());
        assert!(read_back.received(Lsn::from_wire(150)), "it is told once");
    }
}

#[test]
fn a_backlog_of_which_the_topics_say_nothing_refutes_nothing() {
    let mut read_back = ReadBack::new(Box::new(|| None), 1);
    read_back.start(TRANSACTIONS);
    // Without a reader it stops at the first event that a topic might hold.
    assert_eq!(find(&mut read_back, 150, 1), Some(Stored::Unknown));
    assert!(!read_back.is_active());
    let (mut read_back, end) = started();
    assert_eq!(find(&mut read_back, 150, 1), None);
    assert!(read_back.is_reading());
    let answers = end.lock().unwrap().take().unwrap().answers;
    answers.send(Err("it is not there".to_owned())).unwrap();
    assert!(!read_back.is_reading());
    for _ in 0..=MISSES_MAX {
        assert_eq!(find(&mut read_back, 150, 1), Some(Stored::Unknown));
    }
    assert!(read_back.received(Lsn::from_wire(150)) && !read_back.is_active());
}

#[test]
fn so_many_records_are_taken_as_there_is_room_for() {
    let (mut read_back, end) = started();
    assert_eq!(find(&mut read_back, 150, 1), None);
    let mut request = end.lock().unwrap().as_ref().unwrap().requests.try_recv().unwrap();
    request.room = 2;
    let taken = [1, 2, 3].map(|value| with(150, value, |record| request.take(record)));
    assert_eq!(taken, [true, true, false]);
}
