//! Effective values as typed settings.
//!
//! A value that could not be read has been complained about already and is replaced by something
//! harmless here: the result is dropped when any problem was told.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::base::event::CloudEventsBinding;
use crate::base::secret::Secret;
use crate::dead_letter::writer::{DeadLetterAddress, DeadLetterSettings};
use crate::delivery::settings::{DeliverySettings, OnDeadLetter};
use crate::outbox::settings::{Columns, Messages, OutboxTable, Preset, Route};
use crate::outbox::template::Template;
use crate::sink::settings::{InvalidSetting, Section, Surroundings};
use crate::sink::{self, Broker, SinkKind};
use crate::source::conninfo;
use crate::source::settings::{ConnInfo, SourceSettings};

mod polling;

use super::effective::{Effective, MESSAGES, OUTBOX, Setting};
use super::kind::{Lookup, Value};
use super::layers::Problem;
use super::path::{Path, Segment};
use super::units;
use super::{AdminSettings, Config};

/// Types everything; `None` when the connection information will not do.
pub(crate) fn build(
    effective: &Effective,
    problems: &mut Vec<Problem>,
    env: Lookup<'_>,
) -> Option<Config> {
    let connection = connection(effective, problems, env);
    // Also without a connection: every problem is reported.
    let sink = sink(effective, problems)?;
    let connection = connection?;
    let values = Values(effective);
    Some(Config {
        source: source(values, connection),
        polling: polling::polling(values),
        sink,
        delivery: delivery(values),
        dead_letter: dead_letter(values),
        admin: AdminSettings {
            listen: values
                .text(&Path::of("admin.listen"))
                .parse()
                .unwrap_or_else(|_| SocketAddr::from((Ipv4Addr::LOCALHOST, 9464))),
            token: values.secret(&Path::of("admin.token")),
        },
    })
}

fn connection(
    effective: &Effective,
    problems: &mut Vec<Problem>,
    env: Lookup<'_>,
) -> Option<ConnInfo> {
    let path = Path::of("source.url");
    let setting = effective.settings.get(&path)?;
    let Value::Secret(url) = &setting.value else { return None };
    conninfo::parse(url.expose(), env)
        .map_err(|error| {
            let what = error.to_string();
            let mend = match error {
                conninfo::ConnInfoError::Passfile(_) => {
                    "name a file of your own in PGPASSFILE, or passfile= in source.url, and: chmod 0600 FILE"
                }
                _ => "write postgres://user@host:5432/database?sslmode=verify-full",
            };
            problems.push(Problem::at(
                &setting.origin,
                "source.url",
                "config.bad-value",
                &what,
                mend,
            ));
        })
        .ok()
}

fn source(values: Values<'_>, connection: ConnInfo) -> SourceSettings {
    let at = |name: &str| Path::of("source").child(name);
    let outbox = Path::of(OUTBOX);
    let outboxes = (0..values.0.outboxes).map(|index| outbox_table(values, &outbox.index(index)));
    let messages = Path::of(MESSAGES);
    SourceSettings {
        connection,
        slot: values.text(&at("slot")),
        publication: values.text(&at("publication")),
        outboxes: outboxes.collect(),
        messages: values.0.sections.contains_key(&messages).then(|| Messages {
            prefix: values.text(&messages.child("prefix")),
            columns: columns(values, &messages.child("columns")),
            route: route(values, &messages),
        }),
        binary: values.flag(&at("binary")),
        stall_timeout: values.duration(&at("stall_timeout")),
        reconnect_base: values.duration(&at("reconnect_base")),
        reconnect_cap: values.duration(&at("reconnect_cap")),
        watch_interval: values.duration(&at("watch_interval")),
    }
}

fn outbox_table(values: Values<'_>, path: &Path) -> OutboxTable {
    let name = values.text(&path.child("table"));
    let (schema, table) = name.split_once('.').unwrap_or(("public", &name));
    OutboxTable {
        schema: schema.to_owned(),
        table: table.to_owned(),
        columns: columns(values, &path.child("columns")),
        route: route(values, path),
    }
}

fn columns(values: Values<'_>, path: &Path) -> Columns {
    let name = |part: &str| values.text(&path.child(part));
    Columns {
        id: name("id"),
        key: name("key"),
        event_type: name("type"),
        payload: name("payload"),
        traceparent: name("traceparent"),
        headers: name("headers"),
    }
}

/// The route of the outbox at `owner`: its own keys over those of `[route]`.
fn route(values: Values<'_>, owner: &Path) -> Route {
    let shared = Path::of("route");
    let own = owner.child("route");
    let find = |name: &str| {
        let inherited = || values.optional_text(&shared.child(name));
        values.optional_text(&own.child(name)).or_else(inherited)
    };
    let template = |text: String| Template::parse(&text).unwrap_or_else(|_| Template::column("id"));
    let mut headers: BTreeMap<String, String> = values.texts_below(&shared.child("headers"));
    headers.extend(values.texts_below(&own.child("headers")));
    let key_column = || values.text(&owner.child("columns").child("key"));
    Route {
        topic: template(find("topic").unwrap_or_default()),
        exchange: exchange(values).map(template),
        binding: sink_kind(values).map_or(CloudEventsBinding::Kafka, |kind| kind.binding),
        key: find("key").map_or_else(|| Template::column(&key_column()), template),
        headers: headers.into_iter().map(|(name, text)| (name, template(text))).collect(),
        preset: match find("preset").as_deref() {
            Some("debezium") => Preset::Debezium,
            Some(_) | None => Preset::Walrelay,
        },
        format: find("format").unwrap_or_default(),
        partition: find("partition"),
    }
}

/// A section of another sink may stand in the file and has no part in it.
fn exchange(values: Values<'_>) -> Option<String> {
    let kind = sink_kind(values)?;
    let section = Path::of("sink").child(kind.name);
    values.optional_text(&section.child(kind.routes.exchange_key?))
}

/// The kind of the sink; nothing when `sink.kind` cannot be read.
pub(crate) fn sink_kind(values: Values<'_>) -> Option<&'static SinkKind> {
    sink::kind_named(&values.text(&Path::of("sink.kind")))
}

fn sink(effective: &Effective, problems: &mut Vec<Problem>) -> Option<Arc<dyn Broker>> {
    let values = Values(effective);
    let kind = sink_kind(values)?;
    let section = SectionOf { values, path: Path::of("sink").child(kind.name) };
    let events = values.integer(&Path::of("delivery.window_events_max"));
    let bytes = values.bytes(&Path::of("delivery.window_bytes_max"));
    let around = Surroundings {
        window_events_max: u64::try_from(events).unwrap_or(0),
        window_bytes_max: bytes,
        window_bytes_text: &units::show_bytes(bytes),
        dead_letters: &dead_letter(values).address,
    };
    let invalid = match (kind.configure)(&section, &around) {
        Ok(broker) => return Some(broker),
        Err(invalid) => invalid,
    };
    for InvalidSetting { key, name, code, what, mend } in invalid {
        let path = section.path.child(key);
        let path = name.map_or(path.clone(), |name| path.child(&name));
        // A value that cannot be read at all has been reported.
        if !effective.broken.contains(&path) {
            let (origin, place) = (effective.origin(&path), path.to_string());
            problems.push(Problem::at(&origin, &place, code, &what, &mend));
        }
    }
    None
}

/// A sink's own section.
struct SectionOf<'a> {
    values: Values<'a>,
    path: Path,
}

impl Section for SectionOf<'_> {
    fn optional_text(&self, key: &str) -> Option<String> {
        self.values.optional_text(&self.path.child(key))
    }

    fn secret(&self, key: &str) -> Option<Secret> {
        self.values.secret(&self.path.child(key))
    }

    fn integer(&self, key: &str) -> i64 {
        self.values.integer(&self.path.child(key))
    }

    fn duration(&self, key: &str) -> Duration {
        self.values.duration(&self.path.child(key))
    }

    fn strings(&self, key: &str) -> Vec<String> {
        self.values.strings(&self.path.child(key))
    }

    fn texts_below(&self, key: &str) -> BTreeMap<String, String> {
        self.values.texts_below(&self.path.child(key))
    }

    fn secrets_below(&self, key: &str) -> BTreeMap<String, Secret> {
        self.values.secrets_below(&self.path.child(key))
    }

    fn constant(&self, key: &str) -> Option<String> {
        let template = Template::parse(&self.text(key)).ok()?;
        template.constant().map(str::to_owned)
    }
}

fn delivery(values: Values<'_>) -> DeliverySettings {
    let at = |name: &str| Path::of("delivery").child(name);
    let window_events = values.integer(&at("window_events_max"));
    DeliverySettings {
        window_events_max: usize::try_from(window_events).unwrap_or(usize::MAX),
        window_bytes_max: usize::try_from(values.bytes(&at("window_bytes_max")))
            .unwrap_or(usize::MAX),
        attempts_max: u32::try_from(values.integer(&at("attempts_max"))).unwrap_or(u32::MAX),
        backoff_base: values.duration(&at("backoff_base")),
        backoff_cap: values.duration(&at("backoff_cap")),
        on_dead_letter: match values.text(&at("on_dead_letter")).as_str() {
            "park_key" => OnDeadLetter::ParkKey,
            "halt" => OnDeadLetter::Halt,
            _ => OnDeadLetter::Continue,
        },
        drain_timeout: values.duration(&at("drain_timeout")),
        retry_budget_percent: u32::try_from(values.integer(&at("retry_budget_percent")))
            .unwrap_or(u32::MAX),
        crash_file: values.optional_text(&at("crash_file")).map(PathBuf::from),
    }
}

fn dead_letter(values: Values<'_>) -> DeadLetterSettings {
    let at = |name: &str| Path::of("dead_letter").child(name);
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    DeadLetterSettings {
        address: DeadLetterAddress {
            exchange: values.text(&at("exchange")),
            topic: values.text(&at("topic")),
        },
        value_bytes_max: size(values.bytes(&at("value_bytes_max"))),
        burst_max: usize::try_from(values.integer(&at("burst_max"))).unwrap_or(usize::MAX),
        burst_window: values.duration(&at("burst_window")),
    }
}

/// Values by path; a value that is missing or broken reads as its type's default.
#[derive(Clone, Copy)]
pub(crate) struct Values<'a>(pub(crate) &'a Effective);

impl<'a> Values<'a> {
    fn value(self, path: &Path) -> Option<&'a Value> {
        self.0.settings.get(path).map(|setting| &setting.value)
    }

    pub(crate) fn optional_text(self, path: &Path) -> Option<String> {
        match self.value(path) {
            Some(Value::Text(text)) => Some(text.clone()),
            Some(_) | None => None,
        }
    }

    pub(crate) fn text(self, path: &Path) -> String {
        self.optional_text(path).unwrap_or_default()
    }

    pub(crate) fn secret(self, path: &Path) -> Option<Secret> {
        match self.value(path) {
            Some(Value::Secret(secret)) => Some(secret.clone()),
            Some(_) | None => None,
        }
    }

    pub(crate) fn flag(self, path: &Path) -> bool {
        matches!(self.value(path), Some(Value::Bool(true)))
    }

    pub(crate) fn integer(self, path: &Path) -> i64 {
        match self.value(path) {
            Some(Value::Integer(number)) => *number,
            Some(_) | None => 0,
        }
    }

    pub(crate) fn bytes(self, path: &Path) -> u64 {
        match self.value(path) {
            Some(Value::Bytes(bytes)) => *bytes,
            Some(_) | None => 0,
        }
    }

    pub(crate) fn duration(self, path: &Path) -> Duration {
        match self.value(path) {
            Some(Value::Duration(duration)) => *duration,
            Some(_) | None => Duration::ZERO,
        }
    }

    pub(crate) fn strings(self, path: &Path) -> Vec<String> {
        match self.value(path) {
            Some(Value::Strings(strings)) => strings.clone(),
            Some(_) | None => Vec::new(),
        }
    }

    /// The entries of a table whose names the user chose.
    pub(crate) fn below(self, path: &Path) -> impl Iterator<Item = (&'a str, &'a Setting)> {
        let parent = path.clone();
        self.0.settings.iter().filter_map(move |(path, setting)| match path.step_below(&parent) {
            Some(Segment::Name(_)) => Some((path.last(), setting)),
            Some(Segment::Index(_)) | None => None,
        })
    }

    fn texts_below(self, path: &Path) -> BTreeMap<String, String> {
        let texts = self.below(path).filter_map(|(name, setting)| match &setting.value {
            Value::Text(text) => Some((name.to_owned(), text.clone())),
            _ => None,
        });
        texts.collect()
    }

    fn secrets_below(self, path: &Path) -> BTreeMap<String, Secret> {
        let secrets = self.below(path).filter_map(|(name, setting)| match &setting.value {
            Value::Secret(secret) => Some((name.to_owned(), secret.clone())),
            _ => None,
        });
        secrets.collect()
    }
}
