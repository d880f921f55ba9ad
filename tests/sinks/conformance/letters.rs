//! Tests with an event that is given up: its dead letter arrives, in its place, and takes no other
//! event with it.

use walrelay::dead_letter::writer::{self, DeadLetterCause, DeadLetterWriter};
use walrelay::sink::Disposition;

use super::fixture::{Arrived, SinkFixture, each};
use super::{compare, event, ids, publish};
use crate::sinks::test_relay::{Event, TestRelay, dead_letter_cause, dead_letter_writer};

/// Less than what the poison of any broker weighs.
const VALUE_BYTES_MAX: usize = 100_000;

fn writer(place: &Event) -> DeadLetterWriter {
    let mut writer = dead_letter_writer(&place.exchange, &place.topic);
    writer.settings.value_bytes_max = VALUE_BYTES_MAX;
    writer
}

fn cause(class: &str, parks_key: bool) -> DeadLetterCause {
    DeadLetterCause { parks_key, ..dead_letter_cause(class) }
}

fn header(arrived: &Arrived, name: &str) -> Option<String> {
    let found = arrived.headers.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| String::from_utf8(value.clone()).unwrap())
}

#[test]
fn a_dead_letter_arrives_whole_and_settles_under_the_number_of_its_event() {
    each(|fixture| {
        // GIVEN an event that the broker refuses for good
        let (place, letters) = (fixture.place("letter"), fixture.place("letter-dlq"));
        let mut relay = TestRelay::open(fixture.broker());
        let poison = fixture.poison(event(&place, "a1").keyed("a"));
        let first = event(&place, "a0").keyed("a");
        relay.publish(&first);
        let culprit = relay.publish(&poison);
        relay.until("a failure", |relay| relay.refused.contains_key(&culprit));
        // WHEN it is buried THEN it is confirmed, and what is behind it flows
        let last = event(&place, "a2").keyed("a");
        relay.publish(&last);
        relay.replace_with_dead_letter(culprit, &writer(&letters), &cause("test.refused", false));
        relay.settle();
        assert!(relay.confirmed.contains(&culprit));
        assert_eq!(relay.failures.len(), 1, "{:?}", relay.failures);
        compare(&[first, last], &fixture.take(&place));
        // AND its letter is the event with its fate beside it
        let arrived = fixture.take(&letters);
        let [arrived] = arrived.as_slice() else { panic!("{} letters", arrived.len()) };
        assert_eq!((arrived.id().as_str(), arrived.key.as_deref()), ("a1", Some(&b"a"[..])));
        let value = poison.value.unwrap_or_default();
        let kept = &value[..value.len().min(VALUE_BYTES_MAX)];
        assert_eq!(arrived.value.as_deref(), Some(kept));
        let of = |name| header(arrived, name).unwrap_or_default();
        assert_eq!(of(writer::EVENT_ID), "a1");
        assert_eq!(of(writer::ORIGINAL_TOPIC), place.topic);
        assert_eq!(header(arrived, writer::ORIGINAL_EXCHANGE).unwrap_or_default(), place.exchange);
        assert_eq!(of(writer::ERROR_CLASS), "test.refused");
        assert_eq!(of(writer::ERROR_MSG), "for a test");
        assert_eq!(of(writer::ATTEMPTS), "5");
        assert_eq!(of(writer::FAILED_AT), "2023-11-14T22:13:22.500000Z");
        assert_eq!(of(writer::LSN), "16/B374D848");
        assert_eq!(of(writer::COMMIT_TS), "2023-11-14T22:13:20.000000Z");
        assert_eq!(of(writer::RELAY), "walrelay@test");
        assert_eq!(header(arrived, writer::PARKS_KEY), None);
        let cut = value.len() > VALUE_BYTES_MAX;
        let size = header(arrived, writer::VALUE_SIZE);
        assert_eq!(size, cut.then(|| value.len().to_string()));
        fixture.provide(&place);
    });
}

#[test]
fn what_waits_behind_a_parked_key_fails_in_order_and_other_keys_flow() {
    each(|fixture| {
        // The relay itself holds back what comes behind an event that is refused at once.
        if fixture.refuses_at_once() {
            return;
        }
        // GIVEN an event that is refused, with others of its key and of another behind it
        let (place, letters) = (fixture.place("parks"), fixture.place("parks-dlq"));
        let mut relay = TestRelay::open(fixture.broker());
        let culprit = relay.publish(&fixture.poison(event(&place, "a0").keyed("a")));
        relay.until("a failure", |relay| relay.refused.contains_key(&culprit));
        let (mut behind, mut others) = (Vec::new(), Vec::new());
        for number in 1..=5 {
            behind.push(relay.publish(&event(&place, format!("a{number}")).keyed("a")));
            others.push(event(&place, format!("b{number}")).keyed("b"));
            relay.publish(&others[number - 1]);
        }
        // WHEN it is buried, and its key parked THEN what is behind it fails, in order
        let writer = writer(&letters);
        relay.replace_with_dead_letter(culprit, &writer, &cause("test.refused", true));
        relay.until("all behind it have failed", |relay| relay.failures.len() == 6);
        let failed: Vec<u64> = relay.failures[1..].iter().map(|(sequence, _)| *sequence).collect();
        assert_eq!(failed, behind);
        for (_, failure) in &relay.failures[1..] {
            assert_eq!(failure.class, writer::CLASS_PARKED);
            assert_eq!(failure.disposition, Disposition::Terminal);
            assert_eq!(failure.key.as_deref(), Some(&b"a"[..]));
        }
        // WHEN they are buried, too THEN all are letters, in order
        for sequence in behind {
            relay.replace_with_dead_letter(sequence, &writer, &cause(writer::CLASS_PARKED, true));
        }
        relay.settle();
        assert_eq!(relay.failures.len(), 6, "{:?}", relay.failures);
        compare(&others, &fixture.take(&place));
        let arrived = fixture.take(&letters);
        assert_eq!(ids(&arrived), ["a0", "a1", "a2", "a3", "a4", "a5"]);
        let parks = arrived.iter().filter_map(|it| header(it, writer::PARKS_KEY)).count();
        assert_eq!(parks, 6);
        fixture.provide(&place);
    });
}

/// Publishes 600 events of 20 keys, one of them such that the broker refuses it.
fn with_a_culprit(
    fixture: &mut dyn SinkFixture,
    relay: &mut TestRelay,
    place: &Event,
) -> (Vec<Event>, u64) {
    let mut published = publish(relay, place, 0, 300, 20);
    relay.settle();
    published.extend(publish(relay, place, 300, 150, 20));
    let culprit = relay.publish(&fixture.poison(event(place, "culprit").keyed("key7")));
    published.extend(publish(relay, place, 450, 150, 20));
    (published, culprit)
}

#[test]
fn innocents_of_a_refused_batch_arrive_in_order_and_only_the_culprit_fails() {
    each(|fixture| {
        // GIVEN a broker that refuses a whole batch for one of it
        let (place, letters) = (fixture.place("batch"), fixture.place("batch-dlq"));
        let mut relay = TestRelay::open(fixture.broker());
        // WHEN one of many events is refused THEN it alone has failed
        let (published, culprit) = with_a_culprit(fixture, &mut relay, &place);
        relay.until("a failure", |relay| relay.refused.contains_key(&culprit));
        assert_eq!(relay.failures.len(), 1, "{:?}", relay.failures);
        assert_eq!(relay.failures[0].1.disposition, Disposition::Terminal);
        relay.replace_with_dead_letter(culprit, &writer(&letters), &cause("test.refused", false));
        relay.settle();
        // AND the others are there, first deliveries in order
        compare(&published, &fixture.take(&place));
        assert_eq!(ids(&fixture.take(&letters)), ["culprit"]);
        assert_eq!(relay.confirmed.len(), published.len() + 1);
        fixture.provide(&place);
    });
}
