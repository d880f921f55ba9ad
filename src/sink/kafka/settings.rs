//! The `[sink.kafka]` section, typed, and what it opens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::letter_limit::{self, LetterLimit};
use super::properties::{self, Refusal};
use super::{KafkaSink, SINK, bench_target, doctor, topics};
use crate::base::error::Fault;
use crate::base::secret::Secret;
use crate::base::settings::kind::{TOPIC, TextRule};
use crate::base::settings::{
    Settings as _, Values, integer, map, name_of, secret, settings, strings, text, units,
};
use crate::dead_letter::writer::DeadLetterAddress;
use crate::sink::bench_target::Scratch;
use crate::sink::kafka::dead_letters::KafkaLog;
use crate::sink::log::{DeadLetterLog, ReadFrom};
use crate::sink::settings::{InvalidSetting, Surroundings};
use crate::sink::{Broker, First, Inspection, Sink, SinkKind, Wanted};

const BROKERS: TextRule = TextRule {
    pattern: "^[^,\\s]+(,\\s*[^,\\s]+)*$",
    wanted: "host:port,host:port",
    holds: |text| text.split(',').all(|broker| is_broker(broker.trim())),
};

fn is_broker(text: &str) -> bool {
    let address = text.rsplit_once("://").map_or(text, |(_, address)| address);
    let is_ipv6 = address.starts_with('[');
    let with_port = address.rsplit_once(':').filter(|(host, _)| !is_ipv6 || host.ends_with(']'));
    let is_valid = match with_port {
        Some((host, port)) => !host.is_empty() && port.parse().is_ok_and(|port: u16| port > 0),
        None => !address.is_empty(),
    };
    is_valid && !address.contains(char::is_whitespace)
}

/// Beginnings of librdkafka property names whose values are no secrets.
const OPEN_PROPERTIES: &[&str] = &[
    "acks",
    "batch.",
    "broker.",
    "client.id",
    "client.rack",
    "compression.",
    "connections.",
    "debug",
    "delivery.",
    "enable.",
    "linger.",
    "log.",
    "max.",
    "message.",
    "metadata.",
    "partitioner",
    "queue.",
    "reconnect.",
    "request.",
    "retries",
    "retry.",
    "sasl.mechanism",
    "security.protocol",
    "socket.",
    "ssl.ca.location",
    "ssl.endpoint.",
    "statistics.",
    "sticky.",
    "topic.",
];

settings! {
    /// The `[sink.kafka]` section.
    #[derive(Clone, Debug)]
    pub struct KafkaSettings {
        /// Bootstrap servers: `host:port,host:port`.
        pub brokers: String = text(BROKERS).required("localhost:9092"),
        /// Any librdkafka producer property that breaks no promise; a value may be a secret.
        pub properties: BTreeMap<String, Secret> = map(secret().showing(OPEN_PROPERTIES)),
        /// Topics that `init` creates and that `check` and `run` insist on.
        pub topics: Vec<String> = strings(TOPIC).default(""),
        /// Partitions of a topic that `init` creates.
        pub partitions: i32 = integer(1, 100_000).default("8"),
        /// Replication factor of a topic that `init` creates; -1 is the broker's default.
        pub replication: i32 = integer(-1, 32_767).default("-1"),
        /// How large a dead letter may be, as far as it is known by now.
        pub letter_limit: LetterLimit,
    }
}

pub(super) fn configure(
    values: &Values,
    around: &Surroundings<'_>,
) -> Result<Arc<dyn Broker>, Vec<InvalidSetting>> {
    let mut settings = KafkaSettings::read(values);
    settings.brokers.retain(|c| !c.is_whitespace());
    let client_limit = settings.properties.get(letter_limit::PROPERTY).map(Secret::expose);
    settings.letter_limit = LetterLimit::new(client_limit);
    let invalid = settings.invalid(around);
    if invalid.is_empty() { Ok(Arc::new(settings)) } else { Err(invalid) }
}

impl KafkaSettings {
    /// What contradicts itself, another section or a promise of the relay.
    fn invalid(&self, around: &Surroundings<'_>) -> Vec<InvalidSetting> {
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
            let refusals = [properties::refuse(name, value), small_queue(name, value, around)];
            invalid.extend(refusals.into_iter().flatten().map(|refusal| InvalidSetting {
                name: Some(name.clone()),
                ..InvalidSetting::new(refusal.code, key, refusal.reason, refusal.mend)
            }));
        }
        invalid
    }

    fn sink(&self) -> Result<KafkaSink, Vec<Fault>> {
        KafkaSink::new(self).map_err(|reason| vec![doctor::refused_property(&reason)])
    }

    fn wanted(&self, wanted: &Wanted) -> Vec<String> {
        let mut known: Vec<String> = wanted.topics.iter().chain(&self.topics).cloned().collect();
        known.sort();
        known.dedup();
        known
    }
}

/// A client queue smaller than the window would fill before the window does.
fn small_queue(name: &str, value: &str, around: &Surroundings<'_>) -> Option<Refusal> {
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
    (limit < window).then(|| Refusal {
        code: "config.conflict",
        reason: format!("the client's queue ({size}) is smaller than the window ({shown})"),
        mend: "remove it: the relay sizes the queue from the window".to_owned(),
    })
}

impl Broker for KafkaSettings {
    fn kind(&self) -> &'static SinkKind {
        &SINK
    }

    fn open(&self, first: Option<&First<'_>>) -> Result<Box<dyn Sink>, Vec<Fault>> {
        let mut sink = self.sink()?;
        if let Some(First { wanted, stop }) = first {
            let known = self.wanted(wanted);
            doctor::inspect(&mut sink, self, &known, wanted.dead_letters.as_ref(), stop)?;
            if let Some(letters) = &wanted.dead_letters {
                sink.producer().ask_record_limit(&letters.topic);
            }
        }
        Ok(Box::new(sink))
    }

    fn inspect(&self, wanted: &Wanted) -> Inspection {
        let known = self.wanted(wanted);
        // To ask for a topic must not make it.
        let mut own = self.clone();
        own.properties.remove("allow.auto.create.topics");
        let found = own.sink().and_then(|mut sink| {
            let letters = wanted.dead_letters.as_ref();
            doctor::inspect(&mut sink, self, &known, letters, &AtomicBool::new(false))?;
            Ok(sink)
        });
        let mut sink = match found {
            Ok(sink) => sink,
            Err(faults) => return Inspection { faults, ..Inspection::default() },
        };
        let brokers = &self.brokers;
        let text = match known.as_slice() {
            [] => format!("kafka answers at {brokers}"),
            [topic] => format!("kafka answers at {brokers}; topic {topic} is there"),
            topics => format!("kafka answers at {brokers}; {} topics are there", topics.len()),
        };
        let letters = wanted.dead_letters.as_ref();
        let letters = letters.map(|it| format!("dead letters go to topic {}", it.topic));
        let well = [text].into_iter().chain(letters).collect();
        let mut found = Inspection { well, ..Inspection::default() };
        let from_rows: Vec<&String> =
            wanted.from_rows.iter().filter(|topic| !known.contains(topic)).collect();
        if known.is_empty() && from_rows.is_empty() {
            found.doubtful.push(
                "topics come from rows, and no row says which: none is checked; name them in sink.kafka.topics"
                    .to_owned(),
            );
        }
        doctor::look_at_topics_of_rows(&mut sink, self, &from_rows, &mut found);
        found
    }

    /// Makes the topics of routes without columns, those of `sink.kafka.topics`, and the
    /// dead-letter topic.
    fn prepare(&self, wanted: &Wanted) -> Result<Vec<String>, Vec<Fault>> {
        let letters = wanted.dead_letters.as_ref().map(|address| address.topic.as_str());
        let made = topics::create(self, &self.wanted(wanted), letters);
        let made = made.map_err(|fault| vec![fault])?;
        Ok(made.into_iter().map(|topic| format!("topic {topic}")).collect())
    }

    fn log(
        &self,
        dead_letters: &DeadLetterAddress,
        from: ReadFrom,
    ) -> Result<Box<dyn DeadLetterLog>, Fault> {
        Ok(Box::new(KafkaLog::open(self, &dead_letters.topic, &from)?))
    }

    fn toward_scratch(&self, _name: &str) -> Result<Arc<dyn Broker>, Fault> {
        Ok(Arc::new(KafkaSettings { topics: Vec::new(), ..self.clone() }))
    }

    fn make_scratch(&self, name: &str) -> Result<Box<dyn Scratch>, Fault> {
        Ok(Box::new(bench_target::make(self, name)?))
    }

    fn scratch_by_hand(&self, name: &str) -> String {
        bench_target::by_hand(name)
    }

    fn remove_scratch(&self, name: &str) -> Result<(), Fault> {
        bench_target::remove(self, name)
    }
}
