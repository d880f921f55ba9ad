//! The configuration file as one declaration. Each part of the relay declares its own section, and
//! so does each sink; this file puts them together.

use std::net::SocketAddr;
use std::sync::LazyLock;

use tracing_subscriber::filter::LevelFilter;

use crate::base::secret::Secret;
use crate::base::settings::kind::{ADDRESS, FILLED, HOST_NAME, TextRule};
use crate::base::settings::visit::{KnownKey, known_keys};
use crate::base::settings::{
    Choice, Field, Key, Path, Row, Settings, Visit, choice, flattened, optional_section, secret,
    section, section_when, sections, settings, strings, text, url, word,
};
use crate::dead_letter::writer::DeadLetterSettings;
use crate::delivery::settings::DeliverySettings;
use crate::outbox::settings::{Messages, OutboxSection, Route};
use crate::polling::settings::PollingSettings;
use crate::sink::{self, Configure, SINKS, SinkKind};
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

/// The level of the log, or levels by target.
pub(crate) const LOG_FILTER: TextRule = TextRule {
    pattern: FILLED.pattern,
    wanted: "one of error, warn, info, debug, trace and off, or a filter as in info,walrelay=debug",
    holds: |text| text.split(',').all(is_level),
};

/// Whether a part of a filter is `LEVEL`, `TARGET=LEVEL`, or a target of this program alone. For `tracing` any
/// other word or character belongs to the name of a target, which may be a misspelt level, and an empty level is
/// `error`.
fn is_level(part: &str) -> bool {
    let is_known = |c: char| c.is_ascii_alphanumeric() || "_:-".contains(c);
    let is_target = |text: &str| text.chars().all(is_known);
    let is_level = |text: &str| !text.is_empty() && text.parse::<LevelFilter>().is_ok();
    match part.split_once('=') {
        Some((target, level)) => is_target(target) && is_level(level),
        None => is_level(part) || part.starts_with("walrelay") && is_target(part),
    }
}

settings! {
    #[derive(Clone, Debug)]
    pub struct LogSettings {
        /// Level or filter of the log, as in `debug` or `info,walrelay=trace`; `--log`,
        /// `WALRELAY_LOG` and `RUST_LOG` take precedence over it, in this order. `run` reads it again at SIGHUP.
        pub level: Option<String> = text(LOG_FILTER).or_none("`info`"),
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
const TOKEN_BYTES_MIN: usize = 16;

/// Why no client can send a token, or anybody can guess it.
pub(crate) fn token_fault(token: &str) -> Option<String> {
    if token.len() < TOKEN_BYTES_MIN {
        return Some(format!("the token has fewer than {TOKEN_BYTES_MIN} characters"));
    }
    // What is around a token in a header is not part of it.
    let can_be_sent = token.bytes().all(|byte| byte.is_ascii_graphic());
    let what =
        "the token has a blank, a line end or a character that is not ASCII: no client can send it";
    (!can_be_sent).then(|| what.to_owned())
}

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

/// The `[sink]` section: the kind, and what makes a broker of the section of that kind.
#[derive(Default)]
pub(crate) struct SinkSection {
    pub(crate) kind: Option<(&'static SinkKind, Configure)>,
    /// The kind, if this build lacks it.
    pub(crate) missing: Option<&'static str>,
}

impl Settings for SinkSection {
    fn read(at: &mut Visit) -> SinkSection {
        let kind: Key<_, String> = word(sink::kind_names());
        let doc = "Broker. `memory` confirms everything and keeps nothing, for measuring the source alone.";
        let name: String = kind.default(SINKS[0].name).read(at, Field { name: "kind", doc });
        let missing = sink::kind_names().into_iter().find(|it| *it == name && sink::is_missing(it));
        let other = section_without_kind(at);
        if let Some(other) = other {
            let what = format!(
                "is {name} by default, and the configuration has [sink.{other}] and no [sink.{name}]"
            );
            let mend = format!(
                "write in the file, under [sink]:\nkind = \"{other}\"\nor: export WALRELAY_SINK__KIND={other}"
            );
            at.refuse(&Path::of(&["sink", "kind"]), "config.conflict", &what, mend);
        }
        let mut section = SinkSection { kind: None, missing };
        for sink in SINKS {
            let is_chosen = at.is_chosen("kind", sink.name) && other.is_none();
            let configure = at.section(sink.name, is_chosen, sink.read);
            if is_chosen {
                section.kind = Some((sink, configure));
            }
        }
        section
    }
}

/// The sink other than the default whose section is given without `sink.kind`, if no other sink has a section.
fn section_without_kind(at: &Visit) -> Option<&'static str> {
    let is_given = |name: &str| at.tree.given.contains_key(&Path::of(&["sink", name]));
    let mut given = SINKS.iter().map(|sink| sink.name).filter(|&name| is_given(name));
    let only = given.next().filter(|_| given.next().is_none())?;
    Some(only).filter(|&name| name != SINKS[0].name && !is_given("kind"))
}

/// The path of a key, as declarations and their fields: a wrong name does not compile.
macro_rules! path_of {
    ($($section:ident.$field:ident)/+) => {
        $crate::base::settings::Path::of(&[$($crate::base::settings::name_of!($section, $field)),+])
    };
}
pub(crate) use path_of;

/// All keys in the order of their declaration.
pub(crate) fn keys() -> &'static [KnownKey] {
    static KEYS: LazyLock<Vec<KnownKey>> = LazyLock::new(known_keys::<ConfigFile>);
    &KEYS
}

/// The environment variable of a key; `N` stands for an index, `NAME` for a name that the user chooses.
pub(crate) fn variable(key: &KnownKey) -> String {
    let steps = key.path.replace("[]", ".N").replace('*', "NAME");
    format!("WALRELAY_{}", steps.replace('.', "__").to_uppercase())
}

/// The kinds of things that may stand at a path.
pub(crate) enum Declared {
    Key(&'static KnownKey),
    /// Values of this key under names that the user chooses.
    Map(&'static KnownKey),
    Section,
    Array,
}

pub(crate) fn declared(path: &Path) -> Option<Declared> {
    let key = |path: String| keys().iter().find(|key| key.path == path);
    let pattern = path.pattern();
    let has = |end: &str| keys().iter().any(|key| key.path.starts_with(&format!("{pattern}{end}")));
    let entry = || key(format!("{}.*", path.parent().pattern()));
    match key(pattern.clone()).or_else(entry) {
        Some(key) => Some(Declared::Key(key)),
        None => match key(format!("{pattern}.*")) {
            Some(key) => Some(Declared::Map(key)),
            None if has("[]") => Some(Declared::Array),
            None => (path.is_root() || has(".")).then_some(Declared::Section),
        },
    }
}

/// The names that a section knows.
pub(crate) fn names(section: &Path) -> Vec<&'static str> {
    let prefix = if section.is_root() { String::new() } else { format!("{}.", section.pattern()) };
    let rests = keys().iter().filter_map(|key| key.path.strip_prefix(&prefix));
    let mut names: Vec<&str> = rests.filter_map(|rest| rest.split(['.', '[']).next()).collect();
    names.dedup();
    names
}
