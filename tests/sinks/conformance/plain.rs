//! A broker that is well: everything is confirmed once, as it was, in order.

use std::time::Duration;

use super::fixture::{Arrived, each};
use super::{compare, event, publish};
use crate::sinks::test_relay::{Event, TestRelay, WINDOW};

#[test]
fn every_event_is_confirmed_once_and_keys_keep_their_order() {
    each(|fixture| {
        let place = fixture.place("confirms");
        let mut relay = TestRelay::open(fixture.broker());
        let mut published = publish(&mut relay, &place, 0, 3_000, 17);
        for number in 3_000..3_500 {
            published.push(event(&place, number.to_string()));
            relay.publish(&published[number]);
        }
        relay.settle();
        assert_eq!(relay.confirmed.len(), 3_500);
        assert_eq!(relay.failures, []);
        assert_eq!(
            compare(&published, &fixture.take(&place)),
            0,
            "duplicates of a broker that is well"
        );
    });
}

#[test]
fn a_full_window_is_taken_without_a_poll_and_confirmed() {
    each(|fixture| {
        // Half of the keys go to two destinations, in turns.
        let (place, other) = (fixture.place("window"), fixture.place("window-other"));
        let mut relay = TestRelay::open(fixture.broker());
        let mut published = Vec::new();
        for number in 0..WINDOW {
            let place = if number % 2 == 0 && number / 1000 % 2 == 0 { &other } else { &place };
            let it = event(place, format!("{number:06}")).keyed((number % 1000).to_string());
            relay.offer(&it).expect("room for a window");
            published.push(it);
        }
        relay.settle();
        assert_eq!(relay.confirmed.len(), WINDOW);
        for place in [&place, &other] {
            let is_there =
                |event: &&Event| (&event.exchange, &event.topic) == (&place.exchange, &place.topic);
            let there: Vec<Event> = published.iter().filter(is_there).cloned().collect();
            assert_eq!(compare(&there, &fixture.take(place)), 0);
        }
    });
}

#[test]
fn a_drained_sink_ends_at_once_and_the_next_has_nothing_to_repeat() {
    each(|fixture| {
        let place = fixture.place("drain");
        let mut relay = TestRelay::open(fixture.broker());
        let mut published = publish(&mut relay, &place, 0, 2_000, 10);
        relay.settle();
        let ended = relay.end();
        assert!(ended < Duration::from_secs(2), "the end took {ended:?}");
        relay.reopen();
        published.extend(publish(&mut relay, &place, 2_000, 10, 10));
        relay.settle();
        assert_eq!(compare(&published, &fixture.take(&place)), 0);
    });
}

/// Events at the edges of what may travel.
fn edges(place: &Event) -> Vec<Event> {
    let all_bytes: Vec<u8> = (0..=255).collect();
    let with = |id: &str, value: Option<Vec<u8>>, headers: &[(&str, &[u8])]| {
        let mut it = event(place, id);
        let own = headers.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec()));
        it.headers.extend(own);
        Event { value, ..it }
    };
    let long = vec![b'l'; 20_000];
    let longest_name = "n".repeat(255);
    let many: Vec<String> = (0..30).map(|number| format!("h{number:02}")).collect();
    let many: Vec<(&str, &[u8])> =
        many.iter().map(|name| (name.as_str(), name.as_bytes())).collect();
    vec![
        with("empty", Some(Vec::new()), &[]),
        with("null", None, &[]),
        with("all-bytes", Some(all_bytes.clone()), &[]),
        with("mebibyte", Some(all_bytes.repeat(4096)), &[]),
        // One byte on either side of what fits one frame, and of two.
        with("frame", Some(vec![b'f'; 32 * 1024 - 8]), &[]),
        with("frame+1", Some(vec![b'f'; 32 * 1024 - 7]), &[]),
        with("frames", Some(vec![b'f'; 2 * (32 * 1024 - 8)]), &[]),
        with("empty-header", Some(b"v".to_vec()), &[("empty", b"")]),
        with("long-header", Some(b"v".to_vec()), &[("long", &long)]),
        with("binary-header", Some(b"v".to_vec()), &[("binary", &all_bytes)]),
        with("unicode", Some(b"v".to_vec()), &[("näme-🦀", "wört-🦀".as_bytes())]),
        with("long-name", Some(b"v".to_vec()), &[(&longest_name, b"v")]),
        with("many", Some(b"v".to_vec()), &many),
        with("empty-key", Some(b"v".to_vec()), &[]).keyed(b""),
        with("binary-key", Some(b"v".to_vec()), &[]).keyed(&all_bytes),
        with("unicode-🦀", Some(b"v".to_vec()), &[]).keyed("schlüssel"),
    ]
}

#[test]
fn events_arrive_as_they_were() {
    each(|fixture| {
        let place = fixture.place("fidelity");
        let mut relay = TestRelay::open(fixture.broker());
        let published = edges(&place);
        for it in &published {
            relay.publish(it);
        }
        relay.settle();
        assert_eq!(relay.failures, []);
        let arrived = fixture.take(&place);
        assert_eq!(arrived.len(), published.len());
        for it in arrived {
            let id = it.id();
            let sent = published.iter().find(|sent| sent.id == id).expect("an event of ours");
            let sent = Arrived {
                key: sent.key.clone(),
                value: sent.value.clone(),
                headers: sent.headers.clone(),
            };
            assert!(fixture.normal(it) == fixture.normal(sent), "event {id} was altered");
        }
    });
}
