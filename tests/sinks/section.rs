//! A broker made from a `[sink.NAME]` section, as the relay makes it, without a file.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use walrelay::config::{self, Request};
use walrelay::sink::Broker;

/// The values that are given of a section; every other key has its default.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values(BTreeMap<String, String>);

impl Values {
    /// `key = value`; an entry of a table is `table."name"`.
    pub(crate) fn set(mut self, key: &str, value: impl ToString) -> Values {
        self.0.insert(key.to_owned(), value.to_string());
        self
    }

    pub(crate) fn configure(&self, kind: &str) -> Arc<dyn Broker> {
        let own = self.0.iter().map(|(key, value)| format!("sink.{kind}.{key}={value}"));
        let others = [format!("sink.kind={kind}"), "source.url=postgres://u@db/app".to_owned()];
        let settings = others.into_iter().chain(own).collect();
        let loaded = config::load(&Request { settings, ..Request::default() });
        loaded.unwrap_or_else(|faults| panic!("{faults:?}")).config.sink
    }
}

/// A RabbitMQ on a loopback port, whose exchange comes from the event.
pub(crate) fn rabbitmq(port: u16, heartbeat: Duration) -> Arc<dyn Broker> {
    rabbitmq_as("guest", port, heartbeat)
}

/// The same for a user whose password is the name.
pub(crate) fn rabbitmq_as(user: &str, port: u16, heartbeat: Duration) -> Arc<dyn Broker> {
    Values::default()
        .set("url", format!("amqp://{user}:{user}@127.0.0.1:{port}/%2f"))
        .set("exchange", "${exchange}")
        .set("heartbeat", format!("{}ms", heartbeat.as_millis()))
        .configure("rabbitmq")
}
