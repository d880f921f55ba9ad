//! Which librdkafka properties are set, and which would break a promise of the relay.
//!
//! Any producer property may be set, except where a value would let an event be lost, doubled or
//! overtaken (promises G1 to G3), or would take away what the relay itself decides. Each refusal
//! says which of these it is. Values that librdkafka would reject by itself are left to it.

/// What we set; the user's own properties come after and win.
pub(super) const DEFAULTS: &[(&str, &str)] = &[
    ("client.id", "walrelay"),
    ("acks", "all"),
    ("enable.idempotence", "true"),
    ("max.in.flight", "2"),
    ("linger.ms", "0"),
    ("batch.size", "1000000"),
    ("batch.num.messages", "10000"),
    // Retries never end: our own clock tells an outage, and a timeout would leave a gap.
    ("message.timeout.ms", "0"),
    // Above every window, so that the window and not the queue is the bound.
    ("queue.buffering.max.messages", "1000000"),
    ("queue.buffering.max.kbytes", "2097151"),
    // The partition that Java producers choose for the same key.
    ("partitioner", "murmur2_random"),
    ("allow.auto.create.topics", "false"),
    // A topic that is not there may only be late: a broker that has just started says so, too.
    ("topic.metadata.propagation.max.ms", "15000"),
    // What follows a refused event is not sent: it would overtake the event's next delivery.
    ("enable.gapless.guarantee", "true"),
    ("socket.keepalive.enable", "true"),
    ("socket.nagle.disable", "true"),
    ("reconnect.backoff.ms", "50"),
    ("reconnect.backoff.max.ms", "500"),
    ("retry.backoff.ms", "50"),
    ("log.connection.close", "false"),
];

/// Why a property is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// `config.unsafe-property`, or `config.conflict`.
    pub code: &'static str,
    /// What would go wrong.
    pub reason: String,
    /// What to write instead.
    pub mend: String,
}

impl Refusal {
    fn unsafe_property(reason: &str, mend: &str) -> Refusal {
        let code = "config.unsafe-property";
        Refusal { code, reason: reason.to_owned(), mend: mend.to_owned() }
    }
}

/// Partitioners that send one key to one partition.
const KEYED: &[&str] =
    &["murmur2", "murmur2_random", "consistent", "consistent_random", "fnv1a", "fnv1a_random"];

/// librdkafka's own default of `retries`: the largest there is.
const RETRIES_MAX: i64 = 2_147_483_647;

/// Most requests in flight with which an idempotent producer keeps order.
const IN_FLIGHT_MAX: i64 = 5;

/// A refusal, when `name = value` would break a promise.
#[must_use]
pub fn refuse(name: &str, value: &str) -> Option<Refusal> {
    let value = value.trim().to_lowercase();
    let number = value.parse::<i64>().ok();
    let (breaks, reason, mend) = match name {
        "acks" | "request.required.acks" => (
            value != "all" && value != "-1",
            "an event would count as published before all in-sync replicas have it, and be lost with the leader",
            "remove it: acks = \"all\" is set",
        ),
        "enable.idempotence" => (
            value != "true",
            "a retry inside the client would double or reorder events",
            "remove it: enable.idempotence = \"true\" is set",
        ),
        "max.in.flight" | "max.in.flight.requests.per.connection" => (
            number.is_none_or(|count| count > IN_FLIGHT_MAX),
            "more than 5 requests in flight cannot keep the order per key",
            "write 5 or less, or remove it",
        ),
        "message.timeout.ms" | "delivery.timeout.ms" => (
            number != Some(0),
            "the client would give up events during an outage; the relay holds them until the broker is back",
            "remove it: 0 is set, and [delivery] decides what is given up",
        ),
        "retries" | "message.send.max.retries" => (
            number.is_none_or(|count| count < RETRIES_MAX),
            "the client would give up events during an outage; the relay holds them until the broker is back",
            "remove it: delivery.attempts_max counts the attempts of one event",
        ),
        "partitioner" => (
            !KEYED.contains(&value.as_str()),
            "events of one key would go to several partitions and lose their order",
            "write murmur2_random (as the Java client), or consistent_random",
        ),
        _ => return refuse_by_presence(name, &value),
    };
    breaks.then(|| Refusal::unsafe_property(reason, mend))
}

/// Properties whose harm does not hang on a number.
fn refuse_by_presence(name: &str, value: &str) -> Option<Refusal> {
    let (breaks, reason, mend) = match name {
        "bootstrap.servers" | "metadata.broker.list" => (
            true,
            "the brokers have a key of their own",
            "write sink.kafka.brokers = \"host:port\"",
        ),
        "transactional.id" => (
            true,
            "the relay opens no Kafka transactions, and such a producer publishes nothing outside one",
            "remove it",
        ),
        "queuing.strategy" => (
            value != "fifo",
            "the client would send later events first",
            "remove it: fifo is the default",
        ),
        "enable.gapless.guarantee" => (
            value != "true",
            "events behind a refused one would overtake its next delivery",
            "remove it: true is set already",
        ),
        "delivery.report.only.error" => (
            value != "false",
            "events would never be confirmed, and the slot would never move on",
            "remove it",
        ),
        "opaque" | "default_topic_conf" | "interceptors" => {
            (true, "this is not a value but code of the client's user", "remove it")
        }
        _ if name.ends_with("_cb") => {
            (true, "this is not a value but code of the client's user", "remove it")
        }
        _ => return None,
    };
    breaks.then(|| Refusal::unsafe_property(reason, mend))
}

#[cfg(test)]
#[path = "properties_tests.rs"]
mod tests;
