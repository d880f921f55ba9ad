//! The properties of the clients: defaults, then the user's, then what the inbox relies on.

use std::time::Duration;

use rdkafka::ClientConfig;

use super::Kafka;
use crate::Settings;
use crate::settings::DAY;

const SHARED_DEFAULTS: &[(&str, &str)] = &[
    ("socket.keepalive.enable", "true"),
    ("socket.nagle.disable", "true"),
    ("reconnect.backoff.ms", "50"),
    ("reconnect.backoff.max.ms", "1000"),
    ("log.connection.close", "false"),
];
const CONSUMER_DEFAULTS: &[(&str, &str)] = &[
    // After a crash the group waits so long before others take over.
    ("session.timeout.ms", "15000"),
    ("fetch.wait.max.ms", "100"),
    // Of each partition, since each has a queue of its own. What is fetched ahead is read again after
    // a rebalance.
    ("queued.min.messages", "2000"),
    ("queued.max.messages.kbytes", "1024"),
    ("fetch.queue.backoff.ms", "20"),
    // New topics and partitions are found after this.
    ("topic.metadata.refresh.interval.ms", "30000"),
];
const CONSUMER_FIXED: &[(&str, &str)] = &[
    // Where no offset is committed, as of a retry topic after a crash, or the committed one is gone.
    ("auto.offset.reset", "earliest"),
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    // The end of a partition would come to the reader as an error.
    ("enable.partition.eof", "false"),
    ("allow.auto.create.topics", "false"),
    // Topics of equally many partitions: a key is with one consumer in all of them. The reader
    // answers rebalances as this strategy wants them answered.
    ("partition.assignment.strategy", "range"),
];
const PRODUCER_DEFAULTS: &[(&str, &str)] = &[
    ("linger.ms", "0"),
    ("retry.backoff.ms", "50"),
    ("topic.metadata.propagation.max.ms", "1000"),
    // The topic decides on the size of a copy.
    ("message.max.bytes", "100000000"),
];
const PRODUCER_FIXED: &[(&str, &str)] = &[
    ("acks", "all"),
    ("enable.idempotence", "true"),
    // Without the report of a success no copy would ever count as confirmed.
    ("delivery.report.only.error", "false"),
    // An outage is waited for.
    ("message.timeout.ms", "0"),
    // Chooses the same partition for a key as the Java producer.
    ("partitioner", "murmur2_random"),
    ("allow.auto.create.topics", "false"),
];

const POLL_INTERVAL: &str = "max.poll.interval.ms";
/// librdkafka's default.
const POLL_INTERVAL_MIN: Duration = Duration::from_secs(300);
const POLLED_AFTER: Duration = Duration::from_secs(60);

pub(super) fn consumer(kafka: &Kafka, settings: &Settings) -> ClientConfig {
    let mut config = client(kafka, settings, CONSUMER_DEFAULTS, CONSUMER_FIXED);
    config.set("group.id", &settings.service);
    // At a rebalance handlers are waited for, and the consumer is not polled meanwhile. (librdkafka wants a day at most.)
    let interval = settings.stop_within.saturating_add(POLLED_AFTER).clamp(POLL_INTERVAL_MIN, DAY);
    if config.get(POLL_INTERVAL).is_none() {
        config.set(POLL_INTERVAL, interval.as_millis().to_string());
    }
    config
}

pub(super) fn producer(kafka: &Kafka, settings: &Settings) -> ClientConfig {
    client(kafka, settings, PRODUCER_DEFAULTS, PRODUCER_FIXED)
}

/// The properties of a client that makes topics.
pub(super) fn admin(kafka: &Kafka, settings: &Settings) -> ClientConfig {
    client(kafka, settings, &[], &[("allow.auto.create.topics", "false")])
}

fn client(
    kafka: &Kafka,
    settings: &Settings,
    defaults: &[(&str, &str)],
    fixed: &[(&str, &str)],
) -> ClientConfig {
    let id = [("client.id", settings.service.as_str())];
    let user = kafka.properties.iter().map(|(name, value)| (own_name(name), value.as_str()));
    let fixed = fixed.iter().copied().chain([("bootstrap.servers", kafka.brokers.as_str())]);
    let defaults = SHARED_DEFAULTS.iter().chain(defaults).copied();
    // The last of several values of a property counts.
    let all = id.into_iter().chain(defaults).chain(user).chain(fixed);
    all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The name by which a property is set here, of the two that librdkafka knows it by. It is told all
/// properties in an order by chance, and the last of two names counts.
fn own_name(name: &str) -> &str {
    match name {
        "delivery.timeout.ms" => "message.timeout.ms",
        "metadata.broker.list" => "bootstrap.servers",
        "queue.buffering.max.ms" => "linger.ms",
        "request.required.acks" => "acks",
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_may_change_defaults_and_not_what_the_inbox_relies_on() {
        let kafka = Kafka::new("a:1", ["orders"])
            .property("session.timeout.ms", "6000")
            .property("enable.auto.commit", "true")
            .property("auto.offset.reset", "latest")
            .property("enable.partition.eof", "true")
            .property("delivery.report.only.error", "true")
            .property("acks", "1");
        let settings = Settings::new("billing", "").stop_within(Duration::from_secs(600));
        let consumer = consumer(&kafka, &settings);
        assert_eq!(consumer.get("max.poll.interval.ms"), Some("660000"));
        assert_eq!(consumer.get("session.timeout.ms"), Some("6000"));
        assert_eq!(consumer.get("enable.auto.commit"), Some("false"));
        assert_eq!(consumer.get("auto.offset.reset"), Some("earliest"));
        assert_eq!(consumer.get("enable.partition.eof"), Some("false"));
        assert_eq!(consumer.get("group.id"), Some("billing"));
        let producer = producer(&kafka, &settings);
        assert_eq!(producer.get("acks"), Some("all"));
        assert_eq!(producer.get("delivery.report.only.error"), Some("false"));
    }

    #[test]
    fn another_name_of_a_property_is_the_same_property() {
        let kafka = Kafka::new("a:1", ["orders"])
            .property("request.required.acks", "1")
            .property("delivery.timeout.ms", "1000")
            .property("metadata.broker.list", "b:1")
            .property("queue.buffering.max.ms", "5");
        let producer = producer(&kafka, &Settings::new("billing", ""));
        for (name, other, value) in [
            ("acks", "request.required.acks", "all"),
            ("message.timeout.ms", "delivery.timeout.ms", "0"),
            ("bootstrap.servers", "metadata.broker.list", "a:1"),
            // This one is but a default.
            ("linger.ms", "queue.buffering.max.ms", "5"),
        ] {
            assert_eq!((producer.get(name), producer.get(other)), (Some(value), None), "{name}");
        }
    }
}
