//! A broker that is unwell: nothing is lost, nothing overtakes, and what is refused is told once.

use std::time::{Duration, Instant};

use walrelay::sink::Disposition;

use super::fixture::each;
use super::{compare, event, publish};
use crate::hand::{Event, Hand, LIMIT};

/// As long as a sink may take to end, whatever is in flight.
const END_WITHIN: Duration = Duration::from_secs(2);

fn ids(events: &[super::Arrived]) -> Vec<String> {
    events.iter().map(super::Arrived::id).collect()
}

#[test]
fn events_whose_answer_was_lost_are_not() {
    each(|bed| {
        // GIVEN a broker that takes events, and whose answers are lost
        let place = bed.place("lost-answers");
        let mut hand = Hand::open(bed.broker());
        let mut published = publish(&mut hand, &place, 0, 50, 7);
        hand.settle();
        bed.lose_answers();
        published.extend(publish(&mut hand, &place, 50, 100, 7));
        let began = Instant::now();
        while bed.count(&place) <= 50 {
            hand.poll(Duration::from_millis(10));
            assert!(began.elapsed() < LIMIT, "the broker takes nothing");
        }
        assert_eq!(hand.confirmed.len(), 50, "confirmed without an answer");
        // WHEN the connection ends THEN all are confirmed, and their first deliveries in order
        bed.cut();
        hand.settle();
        assert_eq!(hand.failures, []);
        compare(&published, &bed.take(&place));
    });
}

#[test]
fn a_broker_that_stalls_again_and_again_holds_nobody_up() {
    each(|bed| {
        let place = bed.place("stalls");
        let mut hand = Hand::open(bed.broker());
        let mut published = publish(&mut hand, &place, 0, 10, 3);
        hand.settle();
        for round in 1..=20 {
            bed.stall();
            let before = hand.confirmed.len();
            let began = Instant::now();
            published.extend(publish(&mut hand, &place, round * 50, 50, 3));
            hand.poll(Duration::from_millis(5));
            assert!(began.elapsed() < Duration::from_secs(1), "held up for {:?}", began.elapsed());
            bed.go_on();
            hand.until("a confirm", |hand| hand.confirmed.len() > before);
        }
        hand.settle();
        assert_eq!(hand.failures, []);
        assert_eq!(compare(&published, &bed.take(&place)), 0, "a stall is no reason to repeat");
    });
}

#[test]
fn a_broker_that_dies_and_comes_back_loses_nothing() {
    each(|bed| {
        // GIVEN a broker that is killed with events in flight
        let place = bed.place("killed");
        bed.keep();
        let mut hand = Hand::open(bed.broker());
        let mut published = publish(&mut hand, &place, 0, 200, 10);
        hand.settle();
        published.extend(publish(&mut hand, &place, 200, 300, 10));
        hand.poll(Duration::ZERO);
        bed.kill();
        published.extend(publish(&mut hand, &place, 500, 100, 10));
        // WHEN it is away THEN that is told
        hand.until("it is told that it is away", |hand| hand.weather.last() == Some(&false));
        // WHEN it is back THEN all are confirmed, their first deliveries in order, and that is told
        bed.revive();
        hand.settle();
        hand.until("it is told that it is back", |hand| hand.weather.last() == Some(&true));
        assert_eq!(hand.failures, []);
        compare(&published, &bed.take(&place));
    });
}

#[test]
fn an_event_that_is_refused_for_good_is_told_once_and_not_overtaken() {
    each(|bed| {
        // GIVEN events of two keys, and one that the broker will never take
        let place = bed.place("poison");
        let mut hand = Hand::open(bed.broker());
        hand.halts = true;
        for number in 0..5 {
            hand.publish(&event(&place, format!("a{number}")).keyed("a"));
            hand.publish(&event(&place, format!("b{number}")).keyed("b"));
        }
        hand.settle();
        let poison = bed.poison(event(&place, "a5").keyed("a"));
        // WHEN it is published with others behind it
        let culprit = hand.publish(&poison);
        for number in 6..10 {
            hand.publish(&event(&place, format!("a{number}")).keyed("a"));
        }
        hand.until("a failure", |hand| !hand.failures.is_empty());
        // As the relay, which settles what it can before it stops.
        for _ in 0..20 {
            hand.poll(Duration::from_millis(50));
        }
        // THEN it is told first, for good, and it is not confirmed; that it is told once, and what
        // is confirmed does not fail, the hand sees
        let (sequence, failure) = &hand.failures[0];
        assert_eq!(*sequence, culprit, "{failure:?}");
        assert_eq!(failure.disposition, Disposition::Terminal, "{failure:?}");
        assert!(!hand.confirmed.contains(&culprit));
        // A broker may refuse a whole batch for one of it; then none of the batch is there.
        for (other, _) in &hand.failures {
            assert!(!hand.confirmed.contains(other), "{other} is confirmed and refused");
        }
        // AND nothing of its key is there behind it
        hand.end();
        let arrived = ids(&bed.take(&place));
        let of_a: Vec<&String> = arrived.iter().filter(|id| id.starts_with('a')).collect();
        assert!(of_a.starts_with(&["a0", "a1", "a2", "a3", "a4"].map(str::to_owned).each_ref()));
        assert!(of_a.len() == 5, "{of_a:?}");
        bed.provide(&place);
    });
}

#[test]
fn an_event_that_is_refused_for_now_holds_its_key_until_it_passes() {
    each(|bed| {
        let (place, elsewhere) = (bed.place("for-now"), bed.place("for-now-elsewhere"));
        let mut hand = Hand::open(bed.broker());
        // GIVEN an event that the broker refuses, with others around it
        let Some(refused) = bed.refuse_for_now(event(&place, "a1").keyed("a")) else { return };
        let behind = Event { topic: refused.topic.clone(), ..event(&place, "a2").keyed("a") };
        let mut published = vec![event(&place, "a0").keyed("a"), refused, behind];
        let mut sequences: Vec<u64> = published.iter().map(|event| hand.publish(event)).collect();
        let other = event(&elsewhere, "a3").keyed("a");
        sequences.push(hand.publish(&other));
        let of_b = (0..10).map(|number| event(&place, format!("b{number}")).keyed("b"));
        published.extend(of_b.inspect(|event| sequences.push(hand.publish(event))));
        // WHEN it is retried in vain THEN it fails as often, and its key waits
        for times in 1..=3 {
            hand.until("a failure", |hand| hand.failures.len() == times);
            assert_eq!(hand.refused.keys().collect::<Vec<_>>(), [&sequences[1]]);
            assert_eq!(hand.failures[times - 1].1.disposition, Disposition::Transient);
            assert!(!hand.confirmed.contains(&sequences[2]));
            assert!(!hand.confirmed.contains(&sequences[3]), "wherever it goes");
            if times < 3 {
                hand.retry(sequences[1]);
            }
        }
        // WHEN it may pass THEN it does, before what waited for it
        bed.provide(&place);
        hand.retry(sequences[1]);
        hand.settle();
        assert_eq!(hand.failures.len(), 3, "{:?}", hand.failures);
        assert_eq!(compare(&published, &bed.take(&place)), 0);
        assert_eq!(ids(&bed.take(&elsewhere)), ["a3"]);
        let of_a = hand.confirmed.iter().filter(|sequence| sequences[..4].contains(sequence));
        assert_eq!(of_a.copied().collect::<Vec<_>>(), sequences[..4]);
    });
}

#[test]
fn keys_that_go_to_two_destinations_flow_in_order_also_after_the_sink_was_lost() {
    each(|bed| {
        // GIVEN more than a window of events, whose keys go to both in turns
        let places = [bed.place("turns-one"), bed.place("turns-two")];
        let mut hand = Hand::open(bed.broker());
        let place_of = |number: usize| (number / 300 + number / 7) % 2;
        let key_of = |number: usize| format!("key{}", number % 300);
        let mut published = Vec::new();
        let mut last = std::collections::BTreeMap::new();
        for number in 0..3_000 {
            let event = event(&places[place_of(number)], format!("{number:06}"));
            published.push(event.keyed(key_of(number)));
            hand.publish(&published[number]);
            // WHEN the sink is lost in between THEN the next one goes on
            if number == 1_500 {
                hand.reopen();
            }
        }
        // WHEN the connection ends THEN all are confirmed, in the order of their keys
        bed.cut();
        hand.settle();
        assert_eq!(hand.failures, []);
        for sequence in &hand.confirmed {
            let before = last.insert(sequence % 300, *sequence);
            assert!(before < Some(*sequence), "{before:?} was confirmed before {sequence}");
        }
        for place in &places {
            let there = published.iter().filter(|event| event.topic == place.topic);
            let there: Vec<Event> =
                there.filter(|event| event.exchange == place.exchange).cloned().collect();
            compare(&there, &bed.take(place));
        }
        let ended = hand.end();
        assert!(ended < END_WITHIN, "the end took {ended:?}");
    });
}

/// Of each key, what is there is what was published first, without a gap.
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
    each(|bed| {
        // GIVEN a broker that takes nothing, and events in flight
        let place = bed.place("dropped");
        let mut hand = Hand::open(bed.broker());
        let mut published = publish(&mut hand, &place, 0, 10, 5);
        hand.settle();
        bed.stall();
        published.extend(publish(&mut hand, &place, 10, 500, 5));
        hand.poll(Duration::from_millis(20));
        // WHEN the sink is dropped THEN that takes no longer than it may
        let ended = hand.end();
        assert!(ended < END_WITHIN, "the end took {ended:?}");
        // AND it has left: what is on its way may arrive, and nothing else
        bed.go_on();
        let began = Instant::now();
        while bed.connections() > 0 {
            assert!(began.elapsed() < END_WITHIN, "{} connections", bed.connections());
            std::thread::sleep(Duration::from_millis(5));
        }
        is_prefix(&published, &bed.take(&place));
    });
}
