use super::*;

#[test]
fn the_oldest_is_known_whatever_the_order_of_answers() {
    let mut flight = InFlight::default();
    assert_eq!(flight.oldest(), None);
    for sequence in [7, 8, 10] {
        flight.add(sequence, EventInFlight { commit_unix_us: 100, lane: Some(1) });
    }
    flight.remove(8);
    assert_eq!(flight.oldest(), Some(7));
    flight.remove(7);
    assert_eq!(flight.oldest(), Some(10));
    // WHEN an older one is added again THEN it counts
    flight.add(8, EventInFlight { commit_unix_us: 200, lane: None });
    assert_eq!(flight.oldest(), Some(8));
    assert_eq!(flight.lanes().count(), 1);
    assert_eq!(flight.remove(8), Some(EventInFlight { commit_unix_us: 200, lane: None }));
    assert_eq!((flight.remove(3), flight.remove(99)), (None, None));
    assert_eq!(flight.oldest(), Some(10));
    flight.remove(10);
    assert_eq!(flight.oldest(), None);
    assert!(flight.slots.is_empty());
    flight.add(2, EventInFlight::default());
    assert_eq!(flight.oldest(), Some(2));
}
