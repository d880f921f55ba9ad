use super::*;

fn sent(lane: u64) -> Event {
    let to = Destination { topic: 0, partition: None, changes: 0 };
    Event { commit_unix_us: 100, lane: Some(lane), state: SendState::Sent(to) }
}

fn held(lane: u64) -> Event {
    let key = Some(lane.to_string().into_bytes());
    Event::awaits_turn(Record { key, lane: Some(lane), ..Record::default() })
}

#[test]
fn events_are_kept_whatever_the_order_of_answers() {
    let mut events = Events::default();
    assert!(events.is_empty());
    for sequence in [7, 8, 10] {
        events.add(sequence, sent(1));
    }
    events.remove(8);
    events.remove(7);
    // WHEN an older one is added again THEN it counts
    events.add(8, held(2));
    assert_eq!(events.get(8).and_then(|event| event.lane), Some(2));
    assert_eq!(events.lanes().collect::<Vec<_>>(), [1], "one that waits was not sent");
    assert!(events.remove(8).is_some());
    assert!(events.remove(3).is_none() && events.remove(99).is_none());
    events.remove(10);
    assert!(events.is_empty());
    events.add(2, sent(1));
    assert!(!events.is_empty());
    assert_eq!(events.slots.len(), 1, "it needs no slots for those before it");
    // WHEN the oldest is confirmed THEN its slot is free
    events.confirm(2);
    assert!(events.is_empty());
}

#[test]
fn what_a_confirmed_event_of_the_key_and_destination_follows_is_stored() {
    let mut events = Events::default();
    let elsewhere = Destination { topic: 1, partition: None, changes: 0 };
    for (sequence, lane) in [(5, 1), (6, 1), (7, 2), (9, 1), (10, 1), (11, 2)] {
        events.add(sequence, sent(lane));
    }
    events.add(5, Event { state: SendState::Sent(elsewhere), ..sent(1) });
    events.add(8, held(1));
    assert!(events.stored_before().is_empty());
    assert_eq!(events.under_way(1).collect::<Vec<_>>(), [(5, None)]);
    assert_eq!((events.confirm(9), events.confirm(9 + 99)), (Some(Some(1)), None));
    assert!(events.get(9).is_none() && events.get(10).is_some());
    assert_eq!(events.stored_before().into_iter().collect::<Vec<_>>(), [6]);
    // What is confirmed is no older event that another one waits for.
    assert_eq!((events.before(10, 1), events.lanes().count()), (Some(8), 5));
    for sequence in [5, 6, 7, 8] {
        events.remove(sequence);
    }
    assert!(events.get(9).is_none() && events.confirm(9).is_none(), "nothing older is left");
    assert!(events.stored_before().is_empty());
}

#[test]
fn an_event_finds_the_newest_older_one_of_its_key() {
    let mut events = Events::default();
    for (sequence, lane) in [(5, 1), (6, 2), (7, 1), (9, 1)] {
        events.add(sequence, sent(lane));
    }
    assert_eq!(events.before(9, 1), Some(7));
    assert_eq!(events.before(8, 2), Some(6));
    assert_eq!(events.before(6, 2), None, "it is not behind itself");
    assert_eq!(events.before(99, 1), Some(9));
    assert_eq!((events.before(5, 1), events.before(0, 1)), (None, None));
}

#[test]
fn only_what_waits_can_be_taken_out_and_sent_again() {
    let mut events = Events::default();
    let to = Destination { topic: 0, partition: Some(3), changes: 0 };
    for (sequence, event) in [(5, held(1)), (6, sent(1)), (7, held(2)), (9, held(1))] {
        events.add(sequence, event);
    }
    let state = SendState::AwaitsPartition(to, Box::default());
    events.add(10, Event { state, ..sent(1) });
    assert_eq!(events.held_behind(5, 1), [9, 10]);
    assert_eq!(events.held_behind(0, 2), [7]);
    assert!(events.held_behind(10, 1).is_empty());
    assert!(events.remove_held(6).is_none() && events.remove_held(8).is_none());
    let taken = events.remove_held(9).map(|(record, lane_sent)| (record.key, lane_sent));
    assert_eq!(taken, Some((Some(b"1".to_vec()), None)));
    let taken = events.remove_held(10).map(|(_, lane_sent)| lane_sent);
    assert_eq!(taken, Some(Some(1)), "later events of its key count on it");
    assert_eq!(events.get(10).map(|event| event.lane), None);
}
