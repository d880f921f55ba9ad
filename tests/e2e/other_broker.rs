//! Tests with another broker: confirms of one broker say nothing of another, nor of a topic that
//! was made anew.

use walrelay_harness::BrokerKind;
use walrelay_harness::consumer::{create_topic, delete_topic, end_offsets, topics_of};
use walrelay_harness::relay::{RelayConfig, RelayProcess};

use crate::support::broker::Destination;
use crate::support::{Fixture, LIMIT, metric, shared_kafka, shared_postgres, wait_until};

const EVENTS: u64 = 4_000;
const KEYS: u64 = 50;

/// Small, so that much is confirmed while much is still to come.
fn config(site: &Fixture, file_of: &str) -> RelayConfig {
    let mut config = site.config();
    let file = format!("{}/{file_of}.state", env!("CARGO_TARGET_TMPDIR"));
    config.extra = format!("[delivery]\nstate_file = \"{file}\"\nwindow_events_max = 100\n");
    config
}

fn known(relay: &RelayProcess) -> f64 {
    metric(relay, "outbox_events_known_total{source=\"state_file\"}").unwrap()
}

/// Kills a relay within a transaction of which the slot knows nothing before its end.
fn killed_half_way(site: &Fixture) {
    let file = format!("{}/{}.state", env!("CARGO_TARGET_TMPDIR"), site.name);
    drop(std::fs::remove_file(file));
    let (mut relay, reader) = (site.relay_with(config(site, &site.name)), site.reader());
    site.insert_transaction(0, EVENTS, KEYS);
    reader.wait_until(EVENTS / 4, LIMIT);
    relay.kill9().unwrap();
    assert!(reader.count() < EVENTS, "it was done before it was killed");
}

/// Deletes a topic, and waits for its end.
fn delete_topic_of(site: &Fixture, kafka: &str) {
    delete_topic(kafka, &site.name).unwrap();
    wait_until("the end of the topic", || topics_of(kafka, &site.name).unwrap().is_empty());
}

/// WHEN the next process publishes there THEN it passes over nothing, and everything arrives.
fn all_arrives_at(moved: &Fixture) {
    let reader = moved.reader();
    let mut relay = moved.relay_with(config(moved, &moved.name));
    let (verdict, _) = moved.judge(&mut relay, reader);
    assert_eq!(known(&relay), 0.0);
    verdict.assert_exact(0);
}

#[test]
fn marks_of_another_virtual_host_are_not_believed() {
    let [first, second] = ["other_vhost_a", "other_vhost_b"].map(Destination::vhost);
    let site = Fixture::new(shared_postgres(), first, "other_vhost");
    killed_half_way(&site);
    all_arrives_at(&site.moved_to(second));
}

#[test]
fn marks_of_a_topic_that_was_made_anew_are_not_believed() {
    let site = Fixture::on(BrokerKind::Kafka, "anew");
    killed_half_way(&site);
    let kafka = shared_kafka().bootstrap();
    delete_topic_of(&site, &kafka);
    let moved = site.moved_to(shared_kafka());
    assert!(end_offsets(&kafka, &site.name).unwrap().values().all(|end| *end == 0));
    all_arrives_at(&moved);
}

#[test]
#[ignore = "soak"]
fn a_topic_that_was_made_anew_while_nothing_was_sent_gets_a_new_client() {
    // GIVEN a relay that has published, and is quiet
    let site = Fixture::on(BrokerKind::Kafka, "anew_quiet");
    let mut relay = site.relay();
    site.insert_event("key", 1);
    site.wait_confirmed(&mut relay, LIMIT);
    // WHEN its topic is deleted and created again
    let kafka = shared_kafka().bootstrap();
    delete_topic_of(&site, &kafka);
    create_topic(&kafka, &site.name, 3, &[]).unwrap();
    // THEN the relay finds that out, and goes on
    wait_until("a new client", || {
        assert!(relay.is_running());
        relay.tail(100).contains("may have been deleted and created again")
    });
    site.insert_event("key", 2);
    site.wait_confirmed(&mut relay, LIMIT);
    let ends = end_offsets(&kafka, &site.name).unwrap();
    assert_eq!(ends.values().sum::<i64>(), 1, "{ends:?}");
}
