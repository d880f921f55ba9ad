//! `kill -9` of a consumer under load.

use super::fixture::{RabbitBroker, source};
use crate::both::survive_kills;
use crate::support::{killed, settings};

#[test]
#[ignore = "the consumer of the test below, started by it"]
fn child() {
    killed::run(|service, url, broker| {
        walrelay_inbox::Inbox::new(settings(service, url), source(broker, service))
    });
}

#[test]
fn what_a_killed_consumer_has_not_committed_is_repeated_harmlessly() {
    survive_kills::<RabbitBroker>("rabbitmq::crash::child");
}
