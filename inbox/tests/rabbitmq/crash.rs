//! `kill -9` of a consumer under load.

use super::fixture::{Fixture, settings, source};
use crate::support::killed::{self, KilledConsumer};
use crate::support::until;

#[test]
#[ignore = "the consumer of the test below, started by it"]
fn child() {
    killed::run(|service, url, broker| {
        walrelay_inbox::Inbox::new(settings(service, url), source(broker, service))
    });
}

#[test]
fn what_a_killed_consumer_has_not_committed_is_repeated_harmlessly() {
    // GIVEN a load of which a part fails once or twice, or for good
    let fixture = Fixture::new("r_crash");
    let load = killed::send_load(|key, id, value| fixture.send(key, id, value));
    // WHEN the consumer is killed again and again while it works
    let Fixture { name, database, url, .. } = &fixture;
    let consumer =
        KilledConsumer { test: "rabbitmq::crash::child", service: name, database, broker: url };
    let child = consumer.kill_under(&load);
    let letters = fixture.wait_dead_letters(load.permanent);
    until("nothing is deferred", || (fixture.database.deferred() == 0).then_some(()));
    killed::end(child);
    // THEN each message is handled once or a dead letter, and each key is in order
    load.assert_handled(database);
    let mut dead: Vec<String> =
        letters.iter().map(|letter| letter.header("dlq-event-id")).collect();
    dead.sort();
    dead.dedup();
    assert!(dead.iter().all(|id| id.parse::<usize>().unwrap() % 40 == 29), "{dead:?}");
    fixture.assert_all_acknowledged();
}
