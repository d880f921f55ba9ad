//! The `[sink.kafka]` section, typed.

use std::collections::BTreeMap;

use super::properties::{DEFAULTS, broken_rule};
use walrelay_base::error::Fault;
use walrelay_base::secret::{Secret, SecretFile as _};
use walrelay_base::settings::kind::{TOPIC, TextRule};
use walrelay_base::settings::{integer, map, name_of, secret, settings, strings, text, units};
use walrelay_core::sink::kafka::fault::ToolArguments;
use walrelay_sink::settings::{InvalidSetting, Surroundings};

const BROKERS: TextRule = TextRule {
    pattern: "^[^,\\s]+(,\\s*[^,\\s]+)*$",
    wanted: "host:port,host:port",
    holds: |text| text.split(',').all(|broker| is_broker(broker.trim())),
};

/// The protocols that librdkafka knows before `://`, in any case.
const PROTOCOLS: [&str; 4] = ["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"];

fn is_broker(text: &str) -> bool {
    let (protocol, address) = text.split_once("://").unwrap_or((PROTOCOLS[0], text));
    let is_protocol = PROTOCOLS.iter().any(|known| known.eq_ignore_ascii_case(protocol));
    let is_ipv6 = address.starts_with('[');
    let with_port = address.rsplit_once(':').filter(|(host, _)| !is_ipv6 || host.ends_with(']'));
    let is_complete = match with_port {
        Some((host, port)) => !host.is_empty() && port.parse().is_ok_and(|port: u16| port > 0),
        None => !address.is_empty(),
    };
    is_protocol && is_complete && !address.contains(char::is_whitespace)
}

/// The prefixes of librdkafka properties whose values are not secret.
#[rustfmt::skip]
const OPEN_PROPERTIES: &[&str] = &[
    "acks", "batch.", "broker.", "client.id", "client.rack", "compression.", "connections.", "debug",
    "delivery.", "enable.", "linger.", "log.", "max.", "message.", "metadata.", "partitioner", "queue.",
    "reconnect.", "request.", "retries", "retry.", "sasl.mechanism", "security.protocol", "socket.",
    "ssl.ca.location", "ssl.endpoint.", "statistics.", "sticky.", "topic.",
];

/// The prefixes of properties about the login.
const LOGIN: &[&str] = &["sasl.", "ssl."];
const HIDDEN: &str = "***";
/// The beginning of a secret that a text may end with by chance.
const HEAD_BYTES_MIN: usize = 3;

settings! {
    /// The `[sink.kafka]` section.
    #[derive(Clone, Debug)]
    pub struct KafkaSettings {
        /// Bootstrap servers: `host:port,host:port`.
        pub brokers: String = text(BROKERS).required("localhost:9092"),
        /// Producer properties of librdkafka, except those that would break a promise of the relay.
        /// A value may be a secret.
        pub properties: BTreeMap<String, Secret> = map(secret().showing(OPEN_PROPERTIES)),
        /// Topics that `init` creates and that `check` and `run` require.
        pub topics: Vec<String> = strings(TOPIC).default(""),
        /// Partitions of a topic that `init` creates.
        pub partitions: i32 = integer(1, 100_000).default("8"),
        /// Replication factor of a topic that `init` creates; -1 is the broker's default.
        pub replication: i32 = integer(-1, 32_767).default("-1"),
    }
}

impl KafkaSettings {
    /// Settings that contradict each other, another section or a promise of the relay.
    pub(super) fn invalid(&self, around: &Surroundings<'_>) -> Vec<InvalidSetting> {
        let mut invalid = Vec::new();
        if self.replication == 0 {
            invalid.push(InvalidSetting::new(
                "config.bad-value",
                name_of!(KafkaSettings, replication),
                "a topic cannot have 0 replicas",
                "replication = 3, or -1 for the broker's default",
            ));
        }
        let dead_letters = &around.dead_letters.topic;
        if !dead_letters.is_empty() && self.topics.contains(dead_letters) {
            let taken = InvalidSetting::taken_by_dead_letters;
            let key = name_of!(KafkaSettings, topics);
            invalid.push(taken(key, dead_letters, "dead_letter.topic"));
        }
        let key = name_of!(KafkaSettings, properties);
        for (name, value) in &self.properties {
            let value = value.expose();
            let broken = broken_rule(name, value).map(|rule| {
                InvalidSetting::new("config.unsafe-property", key, rule.reason, rule.mend)
            });
            let small = small_queue(name, value, around).map(|what| {
                let mend = "remove it: the relay sizes the queue from the window";
                InvalidSetting::new("config.conflict", key, what, mend)
            });
            let found = broken.into_iter().chain(small);
            invalid.extend(found.map(|it| InvalidSetting { name: Some(name.clone()), ..it }));
        }
        invalid
    }

    /// The values for the commands that texts name.
    pub(super) fn tools(&self) -> ToolArguments {
        ToolArguments { brokers: self.brokers.clone(), partitions: self.partitions }
    }

    /// The librdkafka properties in force: those of the relay, then the user's as they were at the
    /// start.
    pub(super) fn properties_at_start(&self) -> Vec<(String, String)> {
        let defaults = DEFAULTS.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let brokers = ("bootstrap.servers".to_owned(), self.brokers.clone());
        let own = self.properties.iter().map(|(name, it)| (name.clone(), it.expose().to_owned()));
        defaults.chain(system_roots()).chain([brokers]).chain(own).collect()
    }

    /// The properties for a new client: what belongs to the login is as its files have it now.
    pub(super) fn effective_properties(&self) -> Result<Vec<(String, String)>, Fault> {
        let mut properties = self.properties_at_start();
        for (name, value) in &self.properties {
            if LOGIN.iter().any(|prefix| name.starts_with(prefix)) {
                let key = format!("sink.kafka.properties.{name:?}");
                let now = value.current().map_err(|unread| unread.fault(&key))?;
                properties.push((name.clone(), now.expose().to_owned()));
            }
        }
        Ok(properties)
    }

    /// A text of librdkafka without the values of properties that may be secret.
    pub(super) fn without_secrets(&self, text: &str) -> String {
        let is_open = |name: &str| OPEN_PROPERTIES.iter().any(|prefix| name.starts_with(prefix));
        let secret = self.properties.iter().filter(|(name, it)| !is_open(name) || it.is_of_file());
        secret.fold(text.to_owned(), |text, (_, secret)| without(&text, secret.expose()))
    }
}

/// Where the root certificates of the system are. An OpenSSL that is linked in would look where it was
/// built for, and no system has them there; librdkafka looks where the distributions put them. The two
/// variables of OpenSSL go before that, as they do with the system's OpenSSL.
fn system_roots() -> Option<(String, String)> {
    let is_named =
        ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|it| std::env::var_os(it).is_some());
    let wanted = cfg!(feature = "portable") && !is_named;
    wanted.then(|| ("ssl.ca.location".to_owned(), "probe".to_owned()))
}

/// The text without the value. librdkafka cuts its texts, so the end may be the beginning of it.
fn without(text: &str, value: &str) -> String {
    if value.is_empty() {
        return text.to_owned();
    }
    let mut text = text.replace(value, HIDDEN);
    let begins = (HEAD_BYTES_MIN..value.len()).rev().filter_map(|length| value.get(..length));
    if let Some(cut) = begins.into_iter().find(|begin| text.ends_with(begin)) {
        text.truncate(text.len() - cut.len());
        text.push_str(HIDDEN);
    }
    text
}

/// The problem of a client queue that is smaller than the window: it would fill first.
fn small_queue(name: &str, value: &str, around: &Surroundings<'_>) -> Option<String> {
    let size = value.trim().parse::<u64>().ok()?;
    let (limit, window, shown) = match name {
        // 0 lifts the limit.
        "queue.buffering.max.messages" if size > 0 => {
            let events = around.window_events_max;
            (size, events as u64, format!("window_events_max = {events}"))
        }
        "queue.buffering.max.kbytes" => {
            let bytes = around.window_bytes_max;
            let shown = format!("window_bytes_max = {:?}", units::show_bytes(bytes as i64));
            (size.saturating_mul(1024), bytes as u64, shown)
        }
        _ => return None,
    };
    let what = || format!("the client's queue ({size}) is smaller than the window ({shown})");
    (limit < window).then(what)
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
