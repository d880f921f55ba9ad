//! `kill -9` of a consumer under load.

use super::fixture::{KafkaBroker, source};
use crate::both::survive_kills;
use crate::support::{killed, settings};

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
    survive_kills::<KafkaBroker>("kafka::crash::child");
}
