//! A broker that is unwell: nothing is lost, nothing overtakes, and what is refused is told once.

use std::time::{Duration, Instant};

use walrelay::sink::Disposition;

use super::fixture::each;
use super::{compare, event, ids, publish};
use crate::sinks::test_relay::{Event, LIMIT, TestRelay};

/// As long as a sink may take to end, whatever is in flight.
const END_WITHIN: Duration = Duration::from_secs(2);
/// A sink that waits for the broker takes far longer; a busy machine does not.
const HELD_UP_LIMIT: Duration = Duration::from_secs(10);

#[test]
fn events_whose_answer_was_lost_are_not() {
    each(|fixture| {
        // GIVEN a broker that takes events, and whose answers are lost
        let place = fixture.place("lost-answers");
        let mut relay = TestRelay::open(fixture.broker());
        let mut published = publish(&mut relay, &place, 0, 50, 7);
        relay.settle();
        fixture.lose_answers();
        published.extend(publish(&mut relay, &place, 50, 100, 7));
        let began = Instant::now();
        while fixture.count(&place) <= 50 {
            relay.poll(Duration::from_millis(10));
            assert!(began.elapsed() < LIMIT, "the broker takes nothing");
        }
        assert_eq!(relay.confirmed.len(), 50, "confirmed without an answer");
        // WHEN the connection ends THEN all are confirmed, and their first deliveries in order
        fixture.cut();
        relay.settle();
        assert_eq!(relay.failures, []);
        compare(&published, &fixture.take(&place));
    });
}

#[test]
fn a_broker_that_stalls_again_and_again_holds_nobody_up() {
    each(|fixture| {
        let place = fixture.place("stalls");
        let mut relay = TestRelay::open(fixture.broker());
        let mut published = publish(&mut relay, &place, 0, 10, 3);
        relay.settle();
        for round in 1..=20 {
            fixture.stall();
            let before = relay.confirmed.len();
            let began = Instant::now();
            published.extend(publish(&mut relay, &place, round * 50, 50, 3));
            relay.poll(Duration::from_millis(5));
            assert!(began.elapsed() < HELD_UP_LIMIT, "held up for {:?}", began.elapsed());
            fixture.go_on();
            relay.until("a confirm", |relay| relay.confirmed.len() > before);
        }
        relay.settle();
        assert_eq!(relay.failures, []);
        assert_eq!(compare(&published, &fixture.take(&place)), 0, "a stall is no reason to repeat");
    });
}

#[test]
fn a_broker_that_dies_and_comes_back_loses_nothing() {
    each(|fixture| {
        // GIVEN a broker that is killed with events in flight
        let place = fixture.place("killed");
        fixture.keep();
        let mut relay = TestRelay::open(fixture.broker());
        let mut published = publish(&mut relay, &place, 0, 200, 10);
        relay.settle();
        published.extend(publish(&mut relay, &place, 200, 300, 10));
        relay.poll(Duration::ZERO);
        fixture.kill();
        published.extend(publish(&mut relay, &place, 500, 100, 10));
        // WHEN it is away THEN that is told
        relay
            .until("it is told that it is away", |relay| relay.reachability.last() == Some(&false));
        // WHEN it is back THEN all are confirmed, their first deliveries in order, and that is told
        fixture.revive();
        relay.settle();
        relay.until("it is told that it is back", |relay| relay.reachability.last() == Some(&true));
        assert_eq!(relay.failures, []);
        compare(&published, &fixture.take(&place));
    });
}

#[test]
fn an_event_that_is_refused_for_good_is_told_once_and_not_overtaken() {
    each(|fixture| {
        // GIVEN events of two keys, and one that the broker will never take
        let place = fixture.place("poison");
        let mut relay = TestRelay::open(fixture.broker());
        relay.halts = true;
        for number in 0..5 {
            relay.publish(&event(&place, format!("a{number}")).keyed("a"));
            relay.publish(&event(&place, format!("b{number}")).keyed("b"));
        }
        relay.settle();
        let poison = fixture.poison(event(&place, "a5").keyed("a"));
        // WHEN it is published with others behind it
        let culprit = relay.publish(&poison);
        for number in 6..10 {
            relay.publish(&event(&place, format!("a{number}")).keyed("a"));
        }
        relay.until("a failure", |relay| !relay.failures.is_empty());
        // As the relay, which settles what it can before it stops.
        for _ in 0..20 {
            relay.poll(Duration::from_millis(50));
        }
        // THEN it is told first, for good, and it is not confirmed; that it is told once, and what
        // is confirmed does not fail, the test relay sees
        let (sequence, failure) = &relay.failures[0];
        assert_eq!(*sequence, culprit, "{failure:?}");
        assert_eq!(failure.disposition, Disposition::Terminal, "{failure:?}");
        assert!(!relay.confirmed.contains(&culprit));
        // A broker may refuse a whole batch for one of it; then none of the batch is there.
        for (other, _) in &relay.failures {
            assert!(!relay.confirmed.contains(other), "{other} is confirmed and refused");
        }
        // AND nothing of its key is there behind it
        relay.end();
        let arrived = ids(&fixture.take(&place));
        let of_a: Vec<&String> = arrived.iter().filter(|id| id.starts_with('a')).collect();
        assert!(of_a.starts_with(&["a0", "a1", "a2", "a3", "a4"].map(str::to_owned).each_ref()));
        assert!(of_a.len() == 5, "{of_a:?}");
        fixture.provide(&place);
    });
}

#[test]
fn an_event_that_is_refused_for_now_holds_its_key_until_it_passes() {
    each(|fixture| {
        let (place, elsewhere) = (fixture.place("for-now"), fixture.place("for-now-elsewhere"));
        let mut relay = TestRelay::open(fixture.broker());
        // GIVEN an event that the broker refuses, with others around it
        let Some(refused) = fixture.refuse_for_now(event(&place, "a1").keyed("a")) else { return };
        let behind = Event { topic: refused.topic.clone(), ..event(&place, "a2").keyed("a") };
        let mut published = vec![event(&place, "a0").keyed("a"), refused, behind];
        let mut sequences: Vec<u64> = published.iter().map(|event| relay.publish(event)).collect();
        let other = event(&elsewhere, "a3").keyed("a");
        sequences.push(relay.publish(&other));
        let of_b = (0..10).map(|number| event(&place, format!("b{number}")).keyed("b"));
        published.extend(of_b.inspect(|event| sequences.push(relay.publish(event))));
        // WHEN it is retried in vain THEN it fails as often, and its key waits
        for times in 1..=3 {
            relay.until("a failure", |relay| relay.failures.len() == times);
            assert_eq!(relay.refused.keys().collect::<Vec<_>>(), [&sequences[1]]);
            assert_eq!(relay.failures[times - 1].1.disposition, Disposition::Transient);
            assert!(!relay.confirmed.contains(&sequences[2]));
            assert!(!relay.confirmed.contains(&sequences[3]), "wherever it goes");
            if times < 3 {
                relay.retry(sequences[1]);
            }
        }
        // WHEN it may pass THEN it does, before what waited for it. A broker may say for a moment
        // that a topic which was just made is unknown, of the next event for it as well.
        fixture.provide(&place);
        while relay.in_flight() > 0 {
            let refused: Vec<u64> = relay.refused.keys().copied().collect();
            refused.into_iter().for_each(|sequence| relay.retry(sequence));
            relay.until("an answer", |relay| relay.in_flight() == 0 || !relay.refused.is_empty());
        }
        let of_the_topic = |(of, _): &(u64, _)| sequences[1..3].contains(of);
        assert!(relay.failures.iter().all(of_the_topic), "{:?}", relay.failures);
        assert_eq!(compare(&published, &fixture.take(&place)), 0);
        assert_eq!(ids(&fixture.take(&elsewhere)), ["a3"]);
        let of_a = relay.confirmed.iter().filter(|sequence| sequences[..4].contains(sequence));
        assert_eq!(of_a.copied().collect::<Vec<_>>(), sequences[..4]);
    });
}

#[test]
fn keys_that_go_to_two_destinations_flow_in_order_also_after_the_sink_was_lost() {
    each(|fixture| {
        // GIVEN more than a window of events, whose keys go to both in turns
        let places = [fixture.place("turns-one"), fixture.place("turns-two")];
        let mut relay = TestRelay::open(fixture.broker());
        let place_of = |number: usize| (number / 300 + number / 7) % 2;
        let key_of = |number: usize| format!("key{}", number % 300);
        let mut published = Vec::new();
        let mut last = std::collections::BTreeMap::new();
        for number in 0..3_000 {
            let event = event(&places[place_of(number)], format!("{number:06}"));
            published.push(event.keyed(key_of(number)));
            relay.publish(&published[number]);
            // WHEN the sink is lost in between THEN the next one goes on
            if number == 1_500 {
                relay.reopen();
            }
        }
        // WHEN the connection ends THEN all are confirmed, in the order of their keys
        fixture.cut();
        relay.settle();
        assert_eq!(relay.failures, []);
        for sequence in &relay.confirmed {
            let before = last.insert(sequence % 300, *sequence);
            assert!(before < Some(*sequence), "{before:?} was confirmed before {sequence}");
        }
        for place in &places {
            let there = published.iter().filter(|event| event.topic == place.topic);
            let there: Vec<Event> =
                there.filter(|event| event.exchange == place.exchange).cloned().collect();
            compare(&there, &fixture.take(place));
        }
        let ended = relay.end();
        assert!(ended < END_WITHIN, "the end took {ended:?}");
    });
}

/// Asserts that each key has what was published first, without a gap.
#[track_caller]
fn is_prefix(published: &[Event], arrived: &[super::Arrived]) {
    let keys: std::collections::BTreeSet<_> = published.iter().map(|it| it.key.clone()).collect();
    for key in keys {
        let of_key = published.iter().filter(|event| event.key == key);
        let wanted: Vec<String> = of_key.map(|event| event.id.clone()).collect();
        let found: Vec<String> =
            arrived.iter().filter(|it| it.key == key).map(super::Arrived::id).collect();
        assert!(wanted.starts_with(&found), "{found:?}");
    }
}

#[test]
fn a_sink_that_is_dropped_with_events_in_flight_ends_soon_and_sends_nothing_more() {
    each(|fixture| {
        // GIVEN a broker that takes nothing, and events in flight
        let place = fixture.place("dropped");
        let mut relay = TestRelay::open(fixture.broker());
        let mut published = publish(&mut relay, &place, 0, 10, 5);
        relay.settle();
        fixture.stall();
        published.extend(publish(&mut relay, &place, 10, 500, 5));
        relay.poll(Duration::from_millis(20));
        // WHEN the sink is dropped THEN that takes no longer than it may
        let ended = relay.end();
        assert!(ended < END_WITHIN, "the end took {ended:?}");
        // AND it has left: what is on its way may arrive, and nothing else
        fixture.go_on();
        let began = Instant::now();
        while fixture.connections() > 0 {
            assert!(began.elapsed() < END_WITHIN, "{} connections", fixture.connections());
            std::thread::sleep(Duration::from_millis(5));
        }
        is_prefix(&published, &fixture.take(&place));
    });
}
