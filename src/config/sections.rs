//! The configuration file as one declaration. Each part of the relay declares its own section, and
//! so does each sink; this file puts them together.

use std::net::SocketAddr;
use std::sync::LazyLock;

use crate::base::secret::Secret;
use crate::base::settings::kind::{ADDRESS, FILLED, HOST_NAME, SettingValue};
use crate::base::settings::{
    Choice, KeyRow, Row, SettingField, SettingType, Settings, Shape, Used, Values, choice,
    flattened, optional_section, secret, section, section_when, sections, settings, strings, text,
    url, word,
};
use crate::dead_letter::writer::DeadLetterSettings;
use crate::delivery::settings::DeliverySettings;
use crate::outbox::settings::{Messages, OutboxSection, Route};
use crate::polling::settings::PollingSettings;
use crate::sink::{self, SINKS, SinkKind};
use crate::source::settings::SourceSettings;
use crate::trace::TracingSettings;

settings! {
    pub(crate) struct ConfigFile {
        pub(crate) source: SourceSection = section(),
        pub(crate) route: Route = section(),
        pub(crate) sink: SinkSection = section(),
        pub(crate) delivery: DeliverySettings = section(),
        pub(crate) dead_letter: DeadLetterSettings = section(),
        pub(crate) admin: AdminSettings = section(),
        pub(crate) tracing: TracingSettings = section(),
        pub(crate) log: LogSettings = section(),
    }
}

settings! {
    #[derive(Clone, Debug)]
    pub struct LogSettings {
        /// Level or filter of the log, as in `debug` or `info,walrelay=trace`; `--log` and
        /// `WALRELAY_LOG` take precedence over it. `run` reads it again at SIGHUP.
        pub level: Option<String> = text(FILLED).or_none("`info`"),
    }
}

settings! {
    pub(crate) struct SourceSection {
        /// Where Postgres is: `postgres://user@host:5432/database?sslmode=verify-full`. Of several
        /// hosts (`a:5432,b:5432`) the primary is used, unless `target_session_attrs` says
        /// otherwise. A secret: it may hold a password.
        pub(crate) url: Secret = url().required("postgres://walrelay@localhost/app"),
        /// How events are found: `cdc` streams the slot; `polling` claims rows of the table, which
        /// needs no slot.
        pub(crate) mode: SourceMode = choice().default("cdc"),
        pub(crate) own: SourceSettings = flattened(),
        pub(crate) outbox: Vec<OutboxSection> = sections(),
        pub(crate) messages: Option<Messages> = optional_section(),
        pub(crate) polling: Option<PollingSettings> = section_when("mode", "polling"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceMode {
    Cdc,
    Polling,
}

impl Choice for SourceMode {
    const WORDS: &'static [(&'static str, SourceMode)] =
        &[("cdc", SourceMode::Cdc), ("polling", SourceMode::Polling)];
}

/// A shorter token can be guessed.
pub(crate) const TOKEN_BYTES_MIN: usize = 16;

settings! {
    #[derive(Clone, Debug)]
    pub struct AdminSettings {
        /// IP address and port of the console, `/metrics`, `/livez`, `/readyz`, `/status` and `/api`.
        pub listen: SocketAddr = text(ADDRESS).default("127.0.0.1:9464"),
        /// Bearer token for `/api`, at least 16 characters.
        pub token: Option<Secret> = secret().or_none("`/api` is refused"),
        /// Host names, without port, by which browsers and proxies may reach the server, in
        /// addition to `localhost` and IP addresses. `/metrics`, `/livez` and `/readyz` answer
        /// under any name.
        pub hosts: Vec<String> = strings(HOST_NAME).default(""),
    }
}

/// The `[sink]` section: the kind, and the section of that kind.
#[derive(Default)]
pub(crate) struct SinkSection {
    name: String,
    pub(crate) own: Values,
}

impl Settings for SinkSection {
    fn fields() -> Vec<SettingField> {
        let kind: Row<String> = word(|| SINKS.iter().map(|sink| sink.name).collect());
        let doc = "Broker. `memory` confirms everything and keeps nothing, for measuring the source alone.";
        let mut fields = kind.default("kafka").fields("kind", doc);
        for sink in SINKS {
            // A sink without keys has no section.
            let rows = (sink.keys)();
            if rows.is_empty() {
                continue;
            }
            let shape = Shape::Section(rows, Used::Chosen("kind", sink.name));
            fields.push(SettingField { name: sink.name, doc: "", shape });
        }
        fields
    }

    fn read(values: &Values) -> SinkSection {
        let name = String::read(values.get("kind"));
        let own = match values.get(&name) {
            Some(SettingValue::Section(own)) => own.clone(),
            _ => Values::new(),
        };
        SinkSection { name, own }
    }
}

impl SinkSection {
    pub(crate) fn kind(&self) -> Option<&'static SinkKind> {
        sink::kind_named(&self.name)
    }
}

/// The path of a key, as declarations and their fields: a wrong name does not compile.
macro_rules! path_of {
    ($($section:ident.$field:ident)/+) => {
        $crate::config::path::Path::of(&[$($crate::base::settings::name_of!($section, $field)),+])
    };
}
pub(crate) use path_of;

pub(crate) fn root() -> &'static Shape {
    static ROOT: LazyLock<Shape> =
        LazyLock::new(|| Shape::Section(ConfigFile::fields(), Used::Always));
    &ROOT
}

/// A declared key. In its path `[]` stands for an index, `*` for a name that the user chooses.
pub(crate) struct KnownKey {
    /// `source.outbox[].route`.
    pub(crate) section: String,
    pub(crate) name: String,
    pub(crate) row: KeyRow,
    pub(crate) doc: &'static str,
}

impl KnownKey {
    pub(crate) fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// The environment variable; `N` stands for an index, `NAME` for a name that the user chooses.
    pub(crate) fn variable(&self) -> String {
        let steps = self.path().replace("[]", ".N").replace('*', "NAME");
        format!("WALRELAY_{}", steps.replace('.', "__").to_uppercase())
    }
}

/// All keys in the order of their declaration.
pub(crate) fn keys() -> &'static [KnownKey] {
    static KEYS: LazyLock<Vec<KnownKey>> = LazyLock::new(|| {
        let mut keys = Vec::new();
        collect(root().fields(), "", &mut keys);
        keys
    });
    &KEYS
}

fn collect(fields: &[SettingField], section: &str, keys: &mut Vec<KnownKey>) {
    for SettingField { name, doc, shape } in fields {
        let below =
            if section.is_empty() { (*name).to_owned() } else { format!("{section}.{name}") };
        let mut key = |name: String, row: &KeyRow| {
            keys.push(KnownKey { section: section.to_owned(), name, row: *row, doc: doc.trim() });
        };
        match shape {
            Shape::Key(row) => key((*name).to_owned(), row),
            Shape::Map(row) => key(format!("{name}.*"), row),
            Shape::Section(fields, _) => collect(fields, &below, keys),
            Shape::Sections(element) => collect(element.fields(), &format!("{below}[]"), keys),
        }
    }
}
