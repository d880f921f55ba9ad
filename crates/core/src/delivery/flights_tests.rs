use proptest::prelude::*;

use super::*;
use crate::base::event::Outbound;
use crate::dead_letter::writer::{CLASS_PARKED, DeadLetterCause};
use crate::delivery::flight::{Attempts, Extras};
use crate::sink::{Disposition, Failure};
use crate::testing::{cause, lsn};
use crate::trace::context::TraceContext;
use crate::trace::span::PublishSpan;

fn next_is_confirmed(flights: &Flights) -> bool {
    flights.earlier().is_some_and(|earlier| earlier.state.is_settled())
}

fn flight(bytes: u32) -> Flight {
    Flight { bytes, state: FlightState::Sent, ..Flight::settled(Position::default()) }
}

fn fill(flights: &mut Flights) {
    while flights.has_room() {
        flights.admit(flight(10));
    }
}

/// Passes in which the limit holds events back, and all in flight is confirmed.
fn busy(flights: &mut Flights, passes: std::ops::Range<u32>, began: Instant) {
    for pass in passes {
        fill(flights);
        flights.adapt(began + pass * Duration::from_millis(60));
        (flights.settled_below()..flights.next()).for_each(|it| drop(flights.settle(it)));
    }
}

#[test]
fn the_limit_follows_the_rate_but_not_that_of_a_time_with_retries() {
    let (mut flights, began) = (Flights::new(1 << 20, usize::MAX), Instant::now());
    let first = flights.limit();
    busy(&mut flights, 0..4, began);
    let measured = flights.limit();
    assert!(measured > first);
    // WHEN events wait for another attempt THEN only the upper bound applies
    let failed = flights.admit(flight(10));
    fail(&mut flights, failed);
    flights.adapt(began + Duration::from_millis(240));
    assert_eq!(flights.limit(), 1 << 20);
    for pass in 5..9 {
        for _ in 0..8192 {
            flights.admit(flight(10));
        }
        (failed + 1..flights.next()).for_each(|it| drop(flights.settle(it)));
        flights.adapt(began + pass * Duration::from_millis(60));
    }
    // AND what was measured before is the limit afterwards
    flights.settle(failed).unwrap();
    flights.adapt(began + Duration::from_millis(540));
    assert_eq!(flights.limit(), measured);
    busy(&mut flights, 10..14, began);
    assert!(flights.limit() > measured);
}

/// The limit after four passes of 60 ms each.
fn limit_after(mut pass: impl FnMut(&mut Flights, Instant)) -> usize {
    let (mut flights, began) = (Flights::new(1 << 20, usize::MAX), Instant::now());
    (0..4_u32).for_each(|number| pass(&mut flights, began + number * Duration::from_millis(60)));
    flights.limit()
}

fn settle_oldest(flights: &mut Flights, events: usize) {
    for _ in 0..events {
        flights.settle(flights.settled_below()).unwrap();
    }
}

#[test]
fn the_limit_rises_only_if_it_has_held_events_back() {
    let first = Flights::new(1 << 20, usize::MAX).limit();
    // GIVEN a table that is full in each pass until the broker confirms
    let waits = limit_after(|flights, now| {
        fill(flights);
        (0..3_u32).for_each(|part| flights.adapt(now + part * Duration::from_millis(20)));
        let all = flights.events();
        settle_oldest(flights, all);
    });
    // or that was full, and has room again when the pass ends
    let confirmed_soon = limit_after(|flights, now| {
        fill(flights);
        settle_oldest(flights, first / 2);
        flights.adapt(now);
    });
    // or that has always room
    let has_room = limit_after(|flights, now| {
        for _ in 0..first / 2 {
            flights.admit(flight(10));
        }
        flights.adapt(now);
        settle_oldest(flights, first / 2);
    });
    assert_eq!((waits, confirmed_soon, has_room), (2 * first, 2 * first, first));
}

#[test]
fn the_usual_time_of_a_confirm_does_not_contain_the_time_without_a_sink() {
    let (mut flights, began) = (Flights::new(8, 1000), Instant::now());
    let adapt = |flights: &mut Flights, ms| flights.adapt(began + Duration::from_millis(ms));
    let first = flights.admit(flight(10));
    adapt(&mut flights, 0);
    flights.settle(first).unwrap();
    adapt(&mut flights, 10);
    assert_eq!(flights.confirm_time(), Duration::from_millis(10));
    // WHEN the next event is in flight, and is admitted again a minute later
    flights.admit(flight(10));
    adapt(&mut flights, 20);
    flights.rewind();
    let again = flights.admit(flight(10));
    adapt(&mut flights, 60_020);
    flights.settle(again).unwrap();
    adapt(&mut flights, 60_030);
    assert!(flights.confirm_time() < Duration::from_millis(11), "{:?}", flights.confirm_time());
}

#[test]
fn events_that_wait_for_a_silent_destination_do_not_use_up_the_measured_limit() {
    let (mut flights, began) = (Flights::new(4096, usize::MAX), Instant::now());
    let (measured, tick) = (flights.limit(), Duration::from_millis(100));
    // GIVEN events of which every other one is never confirmed
    let mut pass = 0;
    while flights.has_room() {
        let sequence = flights.admit(flight(10));
        if sequence % 2 == 0 {
            flights.settle(sequence).unwrap();
        }
    }
    assert_eq!(flights.events(), measured);
    // WHEN that lasts
    while flights.limit() == measured && pass < 30 {
        pass += 1;
        flights.adapt(began + pass * tick);
    }
    // THEN as many others may come
    assert_eq!(flights.limit(), 2 * measured, "after {pass} passes");
    // AND they are known as soon as a later one is confirmed
    assert_eq!(flights.overtaken().count(), 0);
    let later = flights.admit(flight(10));
    flights.settle(later).unwrap();
    pass += 1;
    flights.adapt(began + pass * tick);
    assert_eq!(flights.overtaken().count(), measured);
    assert!(flights.overtaken().all(|sequence| sequence % 2 == 1));
    // AND when they are confirmed at last, by what keeps the broker busy
    for sequence in flights.overtaken().collect::<Vec<_>>() {
        flights.settle(sequence).unwrap();
    }
    flights.adapt(began + (pass + 1) * tick);
    assert!(flights.limit() <= 2 * measured, "{}", flights.limit());
}

#[test]
fn a_silent_destination_that_comes_first_does_not_keep_others_out() {
    let (mut flights, began) = (Flights::new(4096, usize::MAX), Instant::now());
    let measured = flights.limit();
    let after = |flights: &mut Flights, seconds: std::ops::RangeInclusive<u32>| {
        seconds.for_each(|second| flights.adapt(began + Duration::from_secs(second.into())));
        flights.limit()
    };
    // GIVEN a full table of which nothing is confirmed
    fill(&mut flights);
    // THEN it stays as it is while the broker cannot be reached
    flights.set_reachable(false);
    assert_eq!(after(&mut flights, 0..=30), measured);
    // AND others may come when it can
    flights.set_reachable(true);
    assert_eq!(after(&mut flights, 31..=32), 2 * measured);
    assert_eq!(flights.overtaken().count(), 0, "none is known to be overtaken");
    // WHEN those are for the same destination THEN their number grows up to the upper limit
    fill(&mut flights);
    assert_eq!(after(&mut flights, 33..=36), 4 * measured);
    for round in 0..4 {
        fill(&mut flights);
        after(&mut flights, 40 + 4 * round..=43 + 4 * round);
    }
    assert_eq!(flights.limit(), 4096);
}

#[test]
fn a_receipt_counts_once_and_only_for_what_is_in_flight() {
    let mut flights = Flights::new(8, 1000);
    flights.admit(flight(10));
    flights.admit(flight(10));
    assert_eq!(flights.settle(2).map(drop), Err(NotInFlight(2)));
    assert!(flights.settle(1).is_ok());
    assert_eq!(flights.settle(1).map(drop), Err(NotInFlight(1)));
    assert!(flights.settle(0).is_ok());
    assert_eq!(flights.settle(0).map(drop), Err(NotInFlight(0)));
}

#[test]
fn dead_letters_that_follow_from_one_of_another_timeline_are_decided_anew() {
    let letter = |ordinal, class: &str, parks_key| {
        let position = Position { commit_lsn: Lsn::from_wire(1), ordinal };
        let cause = DeadLetterCause { parks_key, ..cause(class) };
        Flight { position, state: FlightState::DeadLetter(Box::new(cause)), ..flight(10) }
    };
    for parks_key in [true, false] {
        let mut flights = Flights::new(8, 1000);
        flights.admit(letter(0, "kafka.no", parks_key));
        flights.forget();
        let (parked, other) = (flights.admit(letter(1, CLASS_PARKED, false)), flights.next());
        flights.admit(letter(2, "kafka.no", true));
        fail(&mut flights, parked);
        fail(&mut flights, other);
        let Rewound { from, dropped_letters } = flights.rewind();
        assert_eq!((from.map(|it| it.ordinal), flights.next()), (Some(1), parked));
        assert_eq!(dropped_letters.len(), usize::from(parks_key));
        let letters: Vec<_> = flights.ring.iter().map(|it| it.dead_letter().is_some()).collect();
        assert_eq!(letters, [!parks_key, true]);
        assert_eq!(flights.failing, 2 - usize::from(parks_key));
    }
    // GIVEN that the same event has come again, and parks its key once more THEN that stands
    let mut flights = Flights::new(8, 1000);
    flights.admit(letter(0, "event.unreadable", true));
    flights.forget();
    flights.admit(letter(0, "event.unreadable", true));
    flights.admit(letter(1, CLASS_PARKED, false));
    assert_eq!(flights.rewind().dropped_letters, []);
    assert!(flights.ring.iter().all(|it| it.dead_letter().is_some()));
}

#[test]
fn bounds_hold_in_events_and_in_bytes_and_a_giant_may_pass_alone() {
    let mut flights = Flights::new(2, 100);
    flights.admit(flight(10));
    assert!(flights.has_room());
    flights.admit(flight(10));
    assert!(!flights.has_room(), "two events are the bound");
    let mut flights = Flights::new(10, 100);
    flights.admit(flight(5000));
    assert!(!flights.has_room(), "bytes are bounded too");
    assert!(flights.settle(0).is_ok());
    assert!(flights.has_room());
}

#[test]
fn one_event_that_waits_stops_no_other_for_long() {
    let mut flights = Flights::new(2, 100);
    let waits = flights.admit(flight(1));
    let mut admitted = 1;
    while flights.has_room() {
        let sequence = flights.admit(flight(1));
        assert!(flights.settle(sequence).is_ok());
        admitted += 1;
    }
    assert_eq!(admitted, 2 * SPAN_FACTOR);
    // WHEN it is settled THEN all of that leaves the table
    assert!(flights.settle(waits).is_ok());
    assert!(flights.is_empty() && flights.has_room());
}

fn refused() -> Failure {
    Failure {
        disposition: Disposition::Terminal,
        known: true,
        key: None,
        class: "kafka.no".to_owned(),
        subject: String::new(),
        reason: String::new(),
        mend: String::new(),
    }
}

fn fail(flights: &mut Flights, sequence: Sequence) {
    let fail = |flight: &mut Flight| {
        let attempts = flight.attempts().unwrap_or(Attempts::none(7));
        flight.set_attempts(Some(attempts.failed()));
    };
    flights.update(sequence, fail).unwrap();
}

fn give_up(flights: &mut Flights, sequence: Sequence) {
    let given_up = FlightState::GivenUp(Box::new(refused()));
    flights.update(sequence, |flight| flight.state = given_up).unwrap();
}

#[test]
fn a_dead_letter_keeps_its_attempts_and_one_that_the_next_sink_gets_counts_anew() {
    for was_dead_letter in [true, false] {
        let letter = || FlightState::DeadLetter(Box::new(cause("kafka.no")));
        let mut earlier =
            Flight { extras: Extras::of(Some(Attempts::none(7).failed()), None), ..flight(10) };
        if was_dead_letter {
            earlier.state = letter();
        }
        let attempts = earlier.attempts().filter(|_| was_dead_letter);
        let mut now = Flight { state: letter(), ..flight(10) };
        now.resume(&mut earlier);
        assert_eq!(now.attempts(), attempts);
    }
}

#[test]
fn what_was_decided_about_an_event_outlives_the_sink_and_ends_with_the_event() {
    let mut flights = Flights::new(8, 1000);
    (0..3).for_each(|_| assert!(flights.admit(flight(10)) < 3));
    fail(&mut flights, 1);
    give_up(&mut flights, 2);
    assert_eq!((flights.failing, flights.given_up()), (1, vec![2]));
    // WHEN there is a new sink THEN it has none of them, and what waited for the topic is sent
    flights.rewind();
    assert_eq!(flights.update(1, |_| ()), Err(NotInFlight(1)));
    assert!(flights.given_up().is_empty());
    (0..3).for_each(|_| assert!(flights.admit(flight(10)) < 3));
    assert_eq!(flights.update(1, |it| it.attempts()), Ok(Some(Attempts::none(7).failed())));
    assert_eq!(flights.update(2, |it| format!("{:?}", it.state)), Ok("Sent".to_owned()));
    // WHEN an earlier process has published it THEN nothing fails any more
    assert_eq!(flights.failing, 1);
    flights.rewind();
    flights.admit(flight(10));
    flights.pass_over(Position::default());
    assert_eq!(flights.failing, 0);
    // WHEN it is another timeline THEN nothing is known of those
    fail(&mut flights, 0);
    let fingerprint = Fingerprint { event: 1, key: 1 };
    let marked = flights.admit(Flight { fingerprint, ..flight(10) });
    flights.forget();
    // Their places are those of other events in the state file, too.
    assert_eq!(flights.settle(marked).map(|it| it.mark()), Ok(None));
    assert_eq!(flights.failing, 1, "the sink still has it");
    flights.rewind();
    assert_eq!((flights.failing, flights.earlier().is_none()), (0, true));
}

#[test]
fn an_event_that_has_left_its_transaction_is_still_expected_when_that_ends() {
    let at = |commit, ordinal| {
        let position = Position { commit_lsn: lsn(commit), ordinal };
        Flight { position, ..flight(10) }
    };
    let mut flights = Flights::new(8, 1000);
    for (commit, ordinal) in [(1, 0), (1, 1), (2, 0)] {
        flights.admit(at(commit, ordinal));
    }
    flights.rewind();
    // WHEN one event fewer than before has come THEN the rest may stand in the wrong places
    flights.admit(at(1, 0));
    assert!(flights.expects_more_of(lsn(1)) && !flights.expects_more_of(lsn(2)));
    // WHEN all have come THEN what follows is of the next transaction
    flights.admit(at(1, 1));
    assert!(!flights.expects_more_of(lsn(1)));
}

#[test]
fn the_span_of_an_event_goes_on_in_the_next_sink() {
    let context = TraceContext::sampled([1; 16], [1; 8]);
    let span = PublishSpan::of(&Outbound::default(), lsn(1), context, None, 7);
    let mut flights = Flights::new(8, 1000);
    flights.admit(Flight { extras: Extras::of(None, Some(Box::new(span.clone()))), ..flight(10) });
    flights.rewind();
    let again = flights.admit(flight(10));
    assert_eq!(flights.settle(again).unwrap().span(), Some(&span));
}

proptest! {
    #[test]
    fn it_equals_the_naive_model(steps in prop::collection::vec((0u8..7, 0usize..64), 1..400)) {
        let mut flights = Flights::new(16, 1 << 20);
        // Naive: the set of unsettled numbers, and the count of all admitted.
        let mut unsettled = std::collections::BTreeSet::new();
        let mut confirmed = std::collections::BTreeSet::new();
        let (mut admitted, mut forgotten_below): (Sequence, Sequence) = (0, 0);
        // Also those that an earlier sink had.
        let mut failing = std::collections::BTreeSet::new();
        for (kind, pick) in steps {
            let prefix = unsettled.first().copied().unwrap_or(admitted);
            match kind {
                0 | 1 if flights.has_room() && confirmed.contains(&admitted) => {
                    prop_assert!(next_is_confirmed(&flights));
                    flights.pass_over(Position::default());
                    admitted += 1;
                }
                0 | 1 if flights.has_room() => {
                    prop_assert!(!next_is_confirmed(&flights));
                    prop_assert_eq!(flights.admit(flight(1)), admitted);
                    unsettled.insert(admitted);
                    admitted += 1;
                }
                3 if pick < 4 => {
                    flights.rewind();
                    admitted = prefix.max(forgotten_below);
                    confirmed.retain(|sequence| *sequence >= admitted);
                    failing.retain(|sequence| *sequence >= admitted);
                    unsettled.clear();
                }
                4 if pick == 0 => {
                    flights.forget();
                    forgotten_below = admitted;
                    confirmed.retain(|sequence| *sequence < admitted);
                    failing.retain(|sequence| *sequence < admitted);
                }
                _ => {
                    let target = unsettled.iter().nth(pick % unsettled.len().max(1)).copied();
                    if let Some(sequence) = target && kind > 4 {
                        match kind {
                            5 => fail(&mut flights, sequence),
                            _ => give_up(&mut flights, sequence),
                        }
                        if kind == 5 { failing.insert(sequence); }
                    } else if let Some(sequence) = target {
                        failing.remove(&sequence);
                        prop_assert!(flights.settle(sequence).is_ok());
                        unsettled.remove(&sequence);
                        confirmed.insert(sequence);
                    }
                }
            }
            let prefix = unsettled.first().copied().unwrap_or(admitted);
            prop_assert_eq!(flights.settled_below(), prefix);
            prop_assert_eq!(flights.events(), unsettled.len());
            prop_assert_eq!(flights.failing, failing.len());
            prop_assert_eq!(flights.bytes(), unsettled.len());
            prop_assert!(unsettled.len() <= 16);
            prop_assert!(admitted - prefix <= 64);
        }
    }
}
