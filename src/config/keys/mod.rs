//! The key table: every configuration key there is, once.
//!
//! The file reader, the environment, `--set`, `config show`, the JSON Schema and
//! docs/configuration.md all walk this table, so a key that is missing here does not exist and a
//! key that is here is known everywhere. In a path, `[]` stands for an array of tables and `*` for
//! a name the user chooses.

mod polling;
mod rabbitmq;

use std::sync::LazyLock;

use super::kind::{Kind, rule};

/// What holds when a key is absent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Absent {
    /// This value, spelled as in the environment.
    Value(&'static str),
    /// Nothing; the text says what that means.
    Means(&'static str),
    /// A problem (in its section, when that section is in use).
    Refused,
}

/// One configuration key.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) path: String,
    pub(crate) kind: Kind,
    pub(crate) absent: Absent,
    pub(crate) doc: &'static str,
}

impl Key {
    /// The environment variable that sets it; `N` stands for an index, `NAME` for a chosen name.
    pub(crate) fn variable(&self) -> String {
        let steps = self.path.replace("[]", ".N").replace('*', "NAME");
        format!("WALRELAY_{}", steps.replace('.', "__").to_uppercase())
    }
}

type Row = (&'static str, Kind, Absent, &'static str);

const fn within_ms(min_ms: u64, max_ms: u64) -> Kind {
    Kind::Duration { min_ms, max_ms }
}

const SECOND_MS: u64 = 1000;
const HOUR_MS: u64 = 3_600_000;
const MIB: u64 = 1 << 20;

const SOURCE: &[Row] = &[
    (
        "url",
        Kind::Url,
        Absent::Refused,
        "Where Postgres is: `postgres://user@host:5432/database?sslmode=verify-full`. Of several hosts (`a:5432,b:5432`) the primary is used, unless `target_session_attrs` says otherwise. A secret: it may hold a password.",
    ),
    (
        "mode",
        Kind::Choice(&["cdc", "polling"]),
        Absent::Value("cdc"),
        "How events are found: `cdc` streams the slot; `polling` claims rows of the table, which needs no slot.",
    ),
    ("slot", Kind::Text(rule::SLOT), Absent::Value("walrelay"), "Replication slot."),
    (
        "publication",
        Kind::Text(rule::IDENTIFIER),
        Absent::Value("walrelay"),
        "Publication that holds the outbox tables.",
    ),
    (
        "binary",
        Kind::Bool,
        Absent::Value("true"),
        "Ask Postgres for binary column values; a column whose binary form is not read falls back to text by itself.",
    ),
    (
        "stall_timeout",
        within_ms(100, HOUR_MS),
        Absent::Value("30s"),
        "Longest silence on the stream before Postgres is asked what its walsender does; one that decodes is waited for, a dead connection is given up.",
    ),
    (
        "reconnect_base",
        within_ms(1, HOUR_MS),
        Absent::Value("50ms"),
        "First wait before a reconnect, with full jitter.",
    ),
    (
        "reconnect_cap",
        within_ms(1, HOUR_MS),
        Absent::Value("5s"),
        "Longest wait before a reconnect.",
    ),
    (
        "watch_interval",
        within_ms(100, HOUR_MS),
        Absent::Value("1s"),
        "How often the slot is looked at on the second connection.",
    ),
];

const OUTBOX: &[Row] = &[(
    "table",
    Kind::Text(rule::TABLE),
    Absent::Value("public.outbox"),
    "Table as `schema.table`, spelled as Postgres stores it; without a schema it is in `public`.",
)];

const MESSAGES: &[Row] = &[(
    "prefix",
    Kind::Text(rule::FILLED),
    Absent::Value("outbox"),
    "Only messages of exactly this prefix, the second argument of `pg_logical_emit_message`.",
)];

const COLUMNS: &[Row] = &[
    (
        "id",
        Kind::Text(rule::IDENTIFIER),
        Absent::Value("id"),
        "Column of the event id. Required in the table.",
    ),
    (
        "key",
        Kind::Text(rule::IDENTIFIER),
        Absent::Value("aggregateid"),
        "Column of the ordering key; the default `route.key`. `event_key` where the table is polled.",
    ),
    (
        "type",
        Kind::Text(rule::IDENTIFIER),
        Absent::Value("type"),
        "Column of the event type; the header `event_type`.",
    ),
    (
        "payload",
        Kind::Text(rule::IDENTIFIER),
        Absent::Value("payload"),
        "Column of the payload. Required in the table.",
    ),
    (
        "traceparent",
        Kind::Text(rule::IDENTIFIER),
        Absent::Value("traceparent"),
        "Column of the W3C trace context; may be absent from the table.",
    ),
    (
        "headers",
        Kind::Text(rule::IDENTIFIER),
        Absent::Value("headers"),
        "Column of a JSON object of extra headers; may be absent from the table.",
    ),
];

const ROUTE: &[Row] = &[
    (
        "topic",
        Kind::Template,
        Absent::Value("outbox.event.${aggregatetype}"),
        "Kafka topic or RabbitMQ routing key. `${event_key}` where the table is polled.",
    ),
    ("key", Kind::Template, Absent::Means("the key column"), "Ordering key and Kafka record key."),
    (
        "headers.*",
        Kind::Template,
        Absent::Means("no further headers"),
        "Further headers, name to template. NULL leaves the header out.",
    ),
    ("format", Kind::Choice(crate::format::FORMATS), Absent::Value("raw"), "Payload format."),
    (
        "preset",
        Kind::Choice(&["walrelay", "debezium"]),
        Absent::Value("walrelay"),
        "Standard headers: `walrelay` adds `id`, `event_type`, `traceparent`, `commit_ts`, `lsn`; `debezium` adds `id` only.",
    ),
    (
        "partition",
        Kind::Text(rule::IDENTIFIER),
        Absent::Means("the partitioner decides"),
        "Column that holds an explicit Kafka partition.",
    ),
];

const SINK: &[Row] = &[(
    "kind",
    Kind::Choice(&["kafka", "rabbitmq", "memory"]),
    Absent::Value("kafka"),
    "Broker. `memory` confirms everything and keeps nothing, for measuring the source alone.",
)];

const KAFKA: &[Row] = &[
    (
        "brokers",
        Kind::Text(rule::BROKERS),
        Absent::Refused,
        "Bootstrap servers: `host:port,host:port`.",
    ),
    (
        "properties.*",
        Kind::Secret,
        Absent::Means("none"),
        "Any librdkafka producer property that breaks no promise; a value may be a secret.",
    ),
    (
        "topics",
        Kind::Strings(rule::TOPIC),
        Absent::Value(""),
        "Topics that `init` creates and that `check` and `run` insist on.",
    ),
    (
        "partitions",
        Kind::Integer { min: 1, max: 100_000 },
        Absent::Value("8"),
        "Partitions of a topic that `init` creates.",
    ),
    (
        "replication",
        Kind::Integer { min: -1, max: 32_767 },
        Absent::Value("-1"),
        "Replication factor of a topic that `init` creates; -1 is the broker's default.",
    ),
];

const DELIVERY: &[Row] = &[
    (
        "window_events_max",
        Kind::Integer { min: 1, max: 10_000_000 },
        Absent::Value("16384"),
        "Most events between admission and confirmation.",
    ),
    (
        "window_bytes_max",
        Kind::Bytes { min: MIB / 16, max: MIB << 14 },
        Absent::Value("64MiB"),
        "Most bytes between admission and confirmation.",
    ),
    (
        "attempts_max",
        Kind::Integer { min: 1, max: 1000 },
        Absent::Value("5"),
        "Attempts of one event before it is given up.",
    ),
    (
        "backoff_base",
        within_ms(1, HOUR_MS),
        Absent::Value("200ms"),
        "First wait before a retry, with full jitter.",
    ),
    ("backoff_cap", within_ms(1, HOUR_MS), Absent::Value("30s"), "Longest wait before a retry."),
    (
        "retry_budget_percent",
        Kind::Integer { min: 1, max: 1000 },
        Absent::Value("20"),
        "Most retries in a hundred first attempts; a few are always allowed. More wait.",
    ),
    (
        "on_dead_letter",
        Kind::Choice(&["continue", "park_key", "halt"]),
        Absent::Value("continue"),
        "After a dead letter: go on (`continue`), or send later events of its key to the dead-letter topic too, until it is released (`park_key`; the breaker does not count those). `halt` writes none: the relay stops, and the slot is held before the event.",
    ),
    (
        "drain_timeout",
        within_ms(SECOND_MS / 10, HOUR_MS),
        Absent::Value("20s"),
        "How long a stop may take to settle the window.",
    ),
    (
        "crash_file",
        Kind::Text(rule::FILLED),
        Absent::Means("a file named after the slot in the directory for temporary files"),
        "Remembers across crashes which event was in hand: one that killed the process three times becomes a dead letter. Must survive a restart of the process; 100 bytes.",
    ),
];

const DEAD_LETTER: &[Row] = &[
    (
        "topic",
        Kind::Text(rule::TOPIC),
        Absent::Value("outbox.dlq"),
        "Where events go that cannot be published: Kafka topic, or RabbitMQ stream queue.",
    ),
    (
        "exchange",
        Kind::Text(rule::FILLED),
        Absent::Value("outbox.dlx"),
        "RabbitMQ: the exchange in front of that queue.",
    ),
    (
        "value_bytes_max",
        Kind::Bytes { min: 0, max: MIB << 10 },
        Absent::Value("900KiB"),
        "A larger value is cut in its dead letter; its size and SHA-256 stand in headers. What the broker finds too large is cut further.",
    ),
    (
        "burst_max",
        Kind::Integer { min: 1, max: 10_000_000 },
        Absent::Value("100"),
        "The breaker: with more dead letters than this in `burst_window` the relay stops, because something else is wrong than the events. Letters that follow a parked key do not count.",
    ),
    (
        "burst_window",
        within_ms(SECOND_MS, 24 * HOUR_MS),
        Absent::Value("60s"),
        "What `burst_max` is counted in.",
    ),
];

const ADMIN: &[Row] = &[
    (
        "listen",
        Kind::Address,
        Absent::Value("127.0.0.1:9464"),
        "Where `/metrics`, `/livez`, `/readyz`, `/status` and `/api` listen.",
    ),
    (
        "token",
        Kind::Secret,
        Absent::Means("`/api` is refused"),
        "Bearer token for `/api`, at least 16 characters.",
    ),
];

/// Sections in the order in which they are shown; the flag marks those that inherit from `[route]`.
const SECTIONS: &[(&str, &[Row], bool)] = &[
    ("source", SOURCE, false),
    ("source.outbox[]", OUTBOX, false),
    ("source.outbox[].columns", COLUMNS, false),
    ("source.outbox[].route", ROUTE, true),
    ("source.messages", MESSAGES, false),
    ("source.messages.columns", COLUMNS, false),
    ("source.messages.route", ROUTE, true),
    ("source.polling", polling::ROWS, false),
    ("source.polling.columns", polling::COLUMNS, false),
    ("source.polling.words", polling::WORDS, false),
    ("source.polling.cleanup", polling::CLEANUP, false),
    ("route", ROUTE, false),
    ("sink", SINK, false),
    ("sink.kafka", KAFKA, false),
    ("sink.rabbitmq", rabbitmq::ROWS, false),
    ("delivery", DELIVERY, false),
    ("dead_letter", DEAD_LETTER, false),
    ("admin", ADMIN, false),
];

/// What an override that is not given stands for.
pub(crate) const INHERITED: Absent = Absent::Means("as in `[route]`");

static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
    let rows = SECTIONS.iter().flat_map(|&(section, rows, inherits)| {
        rows.iter().map(move |&(name, kind, absent, doc)| Key {
            path: format!("{section}.{name}"),
            kind,
            absent: if inherits { INHERITED } else { absent },
            doc,
        })
    });
    rows.collect()
});

/// Every key, in the order of the table.
pub(crate) fn all() -> &'static [Key] {
    &KEYS
}

#[cfg(test)]
mod tests;
