use super::*;

fn sent(commit_unix_us: i64, lane: u64) -> EventInFlight {
    let sent_to = Some(Destination { topic: 0, partition: None, changes: 0 });
    EventInFlight { commit_unix_us, lane: Some(lane), sent_to }
}

#[test]
fn events_are_kept_whatever_the_order_of_answers() {
    let mut flight = InFlight::default();
    assert!(flight.is_empty());
    for sequence in [7, 8, 10] {
        flight.add(sequence, sent(100, 1));
    }
    flight.remove(8);
    flight.remove(7);
    // WHEN an older one is added again THEN it counts
    let held = EventInFlight { sent_to: None, ..sent(200, 2) };
    flight.add(8, held);
    assert_eq!(flight.get(8), Some(&held));
    assert_eq!(flight.lanes().collect::<Vec<_>>(), [1], "one that waits was not sent");
    assert_eq!(flight.remove(8), Some(held));
    assert_eq!((flight.remove(3), flight.remove(99)), (None, None));
    flight.remove(10);
    assert!(flight.is_empty());
    flight.add(2, EventInFlight::default());
    assert!(!flight.is_empty());
}

#[test]
fn an_event_finds_the_newest_older_one_of_its_key() {
    let mut flight = InFlight::default();
    for (sequence, lane) in [(5, 1), (6, 2), (7, 1), (9, 1)] {
        flight.add(sequence, sent(100, lane));
    }
    assert_eq!(flight.before(9, 1), Some(7));
    assert_eq!(flight.before(8, 2), Some(6));
    assert_eq!(flight.before(6, 2), None, "it is not behind itself");
    assert_eq!(flight.before(99, 1), Some(9));
    assert_eq!((flight.before(5, 1), flight.before(0, 1)), (None, None));
}
