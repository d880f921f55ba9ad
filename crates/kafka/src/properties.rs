//! The librdkafka properties that the relay sets, and those that a user may not set.
//!
//! Any producer property is allowed unless its value would let an event be lost, duplicated or
//! reordered, or would decide what the relay itself decides. Values that
//! librdkafka rejects are left to librdkafka.

/// The user's properties come after these and win.
pub(super) const DEFAULTS: &[(&str, &str)] = &[
    ("client.id", "walrelay"),
    ("acks", "all"),
    ("enable.idempotence", "true"),
    ("max.in.flight", "2"),
    ("linger.ms", "0"),
    ("batch.size", "1000000"),
    ("batch.num.messages", "10000"),
    // Retries never end: the relay detects an outage itself, and a timeout would leave a gap.
    ("message.timeout.ms", "0"),
    // Larger than any window, so that the window is the limit and not the queue.
    ("queue.buffering.max.messages", "1000000"),
    ("queue.buffering.max.kbytes", "2097151"),
    // Chooses the same partition for a key as the Java producer.
    ("partitioner", "murmur2_random"),
    ("allow.auto.create.topics", "false"),
    // An event for an unknown topic fails at the broker's first answer. The isolated producer waits
    // for a topic that a broker does not know yet, and only the event's key waits with it.
    ("topic.metadata.propagation.max.ms", "0"),
    // Events behind a refused one are not sent: they would overtake its next delivery.
    ("enable.gapless.guarantee", "true"),
    ("socket.keepalive.enable", "true"),
    ("socket.nagle.disable", "true"),
    ("reconnect.backoff.ms", "50"),
    ("reconnect.backoff.max.ms", "500"),
    ("retry.backoff.ms", "50"),
    ("log.connection.close", "false"),
    // A client that is dropped would wait a second for the last answer, on the data thread.
    ("enable.metrics.push", "false"),
];

/// Partitioners that send all records of a key to one partition.
const KEYED: &[&str] =
    &["murmur2", "murmur2_random", "consistent", "consistent_random", "fnv1a", "fnv1a_random"];
/// The largest value that librdkafka takes for `retries`, and its default.
const RETRIES_MAX: i64 = 2_147_483_647;
/// An idempotent producer keeps the order with up to this many requests in flight.
const IN_FLIGHT_MAX: i64 = 5;

/// Which values of a property keep the relay's promises.
pub(super) struct PropertyRule {
    /// Other names of the property are its aliases in librdkafka; `_cb` stands for all callbacks.
    names: &'static [&'static str],
    allows: fn(&str) -> bool,
    /// The harm that any other value would do.
    pub(super) reason: &'static str,
    pub(super) mend: &'static str,
}

const RULES: &[PropertyRule] = &[
    PropertyRule {
        names: &["acks", "request.required.acks"],
        allows: |value| value == "all" || value == "-1",
        reason: "an event would count as published before all in-sync replicas have it, and be lost with the leader",
        mend: "remove it: acks = \"all\" is set",
    },
    PropertyRule {
        names: &["enable.idempotence"],
        allows: |value| value == "true",
        reason: "a retry inside the client would duplicate or reorder events",
        mend: "remove it: enable.idempotence = \"true\" is set",
    },
    PropertyRule {
        names: &["max.in.flight", "max.in.flight.requests.per.connection"],
        allows: |value| value.parse().is_ok_and(|count: i64| count <= IN_FLIGHT_MAX),
        reason: "more than 5 requests in flight cannot keep the order per key",
        mend: "write 5 or less, or remove it",
    },
    PropertyRule {
        names: &["message.timeout.ms", "delivery.timeout.ms"],
        allows: |value| value.parse() == Ok(0),
        reason: "the client would give up events during an outage; the relay holds them until the broker is back",
        mend: "remove it: 0 is set, and [delivery] decides what is given up",
    },
    PropertyRule {
        names: &["retries", "message.send.max.retries"],
        allows: |value| value.parse().is_ok_and(|count: i64| count >= RETRIES_MAX),
        reason: "the client would give up events during an outage; the relay holds them until the broker is back",
        mend: "remove it: delivery.attempts_max counts the attempts of one event",
    },
    PropertyRule {
        names: &["partitioner"],
        allows: |value| KEYED.contains(&value),
        reason: "events of one key would go to several partitions and lose their order",
        mend: "write murmur2_random (as the Java client), or consistent_random",
    },
    PropertyRule {
        names: &["bootstrap.servers", "metadata.broker.list"],
        allows: |_| false,
        reason: "the brokers have a key of their own",
        mend: "write sink.kafka.brokers = \"host:port\"",
    },
    PropertyRule {
        names: &["transactional.id"],
        allows: |_| false,
        reason: "the relay opens no Kafka transactions, and such a producer publishes nothing outside one",
        mend: "remove it",
    },
    PropertyRule {
        names: &["queuing.strategy"],
        allows: |value| value == "fifo",
        reason: "the client would send later events first",
        mend: "remove it: fifo is the default",
    },
    PropertyRule {
        names: &["enable.gapless.guarantee"],
        allows: |value| value == "true",
        reason: "events behind a refused one would overtake its next delivery",
        mend: "remove it: true is set already",
    },
    PropertyRule {
        names: &["delivery.report.only.error"],
        allows: |value| value == "false",
        reason: "events would never be confirmed, and the slot would never advance",
        mend: "remove it",
    },
    PropertyRule {
        names: &["opaque", "default_topic_conf", "interceptors", "_cb"],
        allows: |_| false,
        reason: "its value is a pointer or a function of the program that embeds librdkafka",
        mend: "remove it",
    },
];

/// The name of a property without the prefix that librdkafka allows for those of topics.
pub(super) fn plain_name(name: &str) -> &str {
    name.strip_prefix("topic.").unwrap_or(name)
}

/// The rule that `name = value` breaks.
pub(super) fn broken_rule(name: &str, value: &str) -> Option<&'static PropertyRule> {
    let (name, value) = (plain_name(name), value.trim().to_lowercase());
    let is_named = |known: &&str| *known == name || (*known == "_cb" && name.ends_with("_cb"));
    RULES.iter().find(|rule| rule.names.iter().any(is_named) && !(rule.allows)(&value))
}

#[cfg(test)]
#[path = "properties_tests.rs"]
mod tests;
