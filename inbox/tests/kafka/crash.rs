//! `kill -9` of a consumer under load.

use super::fixture::{Fixture, settings, source};
use crate::support::killed::{self, KilledConsumer};
use crate::support::until;

#[test]
#[ignore = "the consumer of the test below, started by it"]
fn child() {
    killed::run(|service, url, brokers| {
        let source = source(brokers, service).property("session.timeout.ms", "1000");
        walrelay_inbox::Inbox::new(settings(service, url), source)
    });
}

#[test]
fn what_a_killed_consumer_has_not_committed_is_repeated_harmlessly() {
    // GIVEN a load of which a part fails once or twice, or for good
    let fixture = Fixture::new("crash");
    let load = killed::send_load(|key, id, value| fixture.send(key, id, value));
    // WHEN the consumer is killed again and again while it works
    let Fixture { name, database, brokers, .. } = &fixture;
    let consumer =
        KilledConsumer { test: "kafka::crash::child", service: name, database, broker: brokers };
    let child = consumer.kill_under(&load);
    fixture.wait_dead_letters(load.permanent);
    until("nothing is deferred", || (fixture.database.deferred() == 0).then_some(()));
    fixture.wait_committed(load.messages as i64);
    killed::end(child);
    // THEN each message is handled once or a dead letter, and each key is in order
    load.assert_handled(database);
    let mut dead: Vec<String> =
        fixture.dead_letters().iter().map(|letter| letter.header("id").to_owned()).collect();
    // A kill between a confirmed letter and its row in `processed_messages` leaves a second letter.
    dead.sort();
    dead.dedup();
    assert_eq!(dead.len(), load.permanent);
}
