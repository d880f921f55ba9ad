//! One suite over every sink there is: what the relay relies on, whatever the broker.

mod faults;
mod faulty_broker;
mod file;
mod fixture;
mod kafka;
mod letters;
mod memory;
mod plain;
mod rabbitmq;

use std::collections::{BTreeMap, BTreeSet};

use self::fixture::Arrived;
use crate::sinks::test_relay::{Event, TestRelay};

/// An event for that place, with its id as a header.
fn event(place: &Event, id: impl Into<String>) -> Event {
    let id = id.into();
    let headers = vec![("id".to_owned(), id.clone().into_bytes())];
    Event { value: Some(id.clone().into_bytes()), id, headers, ..place.clone() }
}

fn ids(arrived: &[Arrived]) -> Vec<String> {
    arrived.iter().map(Arrived::id).collect()
}

/// Publishes `count` events over `keys` keys.
fn publish(
    relay: &mut TestRelay,
    place: &Event,
    from: usize,
    count: usize,
    keys: usize,
) -> Vec<Event> {
    let number = |number: usize| {
        let key = format!("key{}", number % keys);
        let event = event(place, format!("{number:06}")).keyed(key);
        relay.publish(&event);
        event
    };
    (from..from + count).map(number).collect()
}

/// All are there, nothing else is, and of each key the first deliveries are in order; says how many
/// were there more than once.
#[track_caller]
fn compare(published: &[Event], arrived: &[Arrived]) -> usize {
    let mut seen = BTreeSet::new();
    let first: Vec<&Arrived> = arrived.iter().filter(|it| seen.insert(it.id())).collect();
    let mut wanted: BTreeMap<Option<&[u8]>, Vec<String>> = BTreeMap::new();
    for event in published {
        wanted.entry(event.key.as_deref()).or_default().push(event.id.clone());
    }
    let mut found: BTreeMap<Option<&[u8]>, Vec<String>> = BTreeMap::new();
    for event in &first {
        found.entry(event.key.as_deref()).or_default().push(event.id());
    }
    for (key, wanted) in &mut wanted {
        let found = found.entry(*key).or_default();
        if key.is_none() {
            // Without a key there is no order.
            wanted.sort();
            found.sort();
        }
        let key = key.map(String::from_utf8_lossy);
        assert_eq!(found, wanted, "key {key:?}");
    }
    assert_eq!(found.len(), wanted.len(), "keys that nobody published");
    arrived.len() - first.len()
}
