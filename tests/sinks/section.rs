//! A section of the configuration without a file: what a key is given, else its default.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use walrelay::base::secret::Secret;
use walrelay::sink::settings::Section;
use walrelay::sink::{Broker, SINKS};

/// Values by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values {
    texts: BTreeMap<String, String>,
    below: BTreeMap<String, BTreeMap<String, String>>,
    integers: BTreeMap<String, i64>,
    durations: BTreeMap<String, Duration>,
}

impl Values {
    pub(crate) fn text(mut self, key: &str, value: &str) -> Values {
        self.texts.insert(key.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn below(mut self, key: &str, name: &str, value: &str) -> Values {
        self.below.entry(key.to_owned()).or_default().insert(name.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn integer(mut self, key: &str, value: i64) -> Values {
        self.integers.insert(key.to_owned(), value);
        self
    }

    pub(crate) fn duration(mut self, key: &str, value: Duration) -> Values {
        self.durations.insert(key.to_owned(), value);
        self
    }

    /// The broker of that kind, as the relay makes it.
    pub(crate) fn configure(&self, kind: &str) -> Arc<dyn Broker> {
        let kind = SINKS.iter().find(|it| it.name == kind).expect("a kind of SINKS");
        (kind.configure)(self).unwrap_or_else(|misfits| panic!("{misfits:?}"))
    }
}

impl Section for Values {
    fn optional_text(&self, key: &str) -> Option<String> {
        self.texts.get(key).cloned()
    }

    fn secret(&self, key: &str) -> Option<Secret> {
        self.texts.get(key).map(Secret::new)
    }

    fn integer(&self, key: &str) -> i64 {
        self.integers.get(key).copied().unwrap_or_default()
    }

    fn duration(&self, key: &str) -> Duration {
        self.durations.get(key).copied().unwrap_or_default()
    }

    fn strings(&self, _key: &str) -> Vec<String> {
        Vec::new()
    }

    fn texts_below(&self, key: &str) -> BTreeMap<String, String> {
        self.below.get(key).cloned().unwrap_or_default()
    }

    fn secrets_below(&self, key: &str) -> BTreeMap<String, Secret> {
        let texts = self.texts_below(key).into_iter();
        texts.map(|(name, value)| (name, Secret::new(value))).collect()
    }
}

/// A RabbitMQ on a loopback port, with the defaults of its section.
pub(crate) fn rabbitmq(port: u16, heartbeat: Duration) -> Arc<dyn Broker> {
    let broker = Values::default()
        .text("url", &format!("amqp://guest:guest@127.0.0.1:{port}/%2f"))
        .text("exchange_type", "topic")
        .text("queue_type", "quorum")
        .duration("heartbeat", heartbeat)
        .duration("connect_timeout", Duration::from_secs(5))
        .configure("rabbitmq");
    // The key may not be read yet; what counts here is the silence that it bounds.
    let settings = (&*broker as &dyn std::any::Any)
        .downcast_ref::<walrelay::sink::rabbitmq::settings::RabbitSettings>();
    let mut settings = settings.expect("the settings of RabbitMQ").clone();
    settings.heartbeat = heartbeat;
    Arc::new(settings)
}
