//! Finds values that contradict each other or a promise of the relay, which would otherwise show
//! with the first event or never. Each sink checks its own section itself.

use std::collections::BTreeMap;
use std::time::Duration;

use super::effective::Effective;
use super::layers::{Origin, Problem};
use super::path::Path;
use super::sections::{
    AdminSettings, ConfigFile, SourceMode, SourceSection, TOKEN_BYTES_MIN, path_of,
};
use crate::base::event::is_reserved_header;
use crate::base::settings::name_of;
use crate::base::settings::units;
use crate::base::template::{Part, Template};
use crate::delivery::settings::{DeliverySettings, OnDeadLetter};
use crate::outbox::PAYLOAD_MEMBER;
use crate::outbox::settings::{Columns, Messages, OutboxSection, Route};
use crate::polling::settings::{PollingSettings, StatusValues};
use crate::sink::{RouteRules, SinkKind};
use crate::source::settings::SourceSettings;
use crate::trace::{OtlpEndpoint, TracingSettings, parse_headers};

const CONFLICT: &str = "config.conflict";
const BAD_VALUE: &str = "config.bad-value";

/// Appends a problem for every contradiction.
pub(crate) fn check(file: &ConfigFile, effective: &Effective, problems: &mut Vec<Problem>) {
    let mut checks = Checks { file, effective, problems };
    checks.polling();
    let delivery = &file.delivery;
    checks.waits(
        &path_of!(ConfigFile.delivery / DeliverySettings.backoff_base),
        delivery.backoff_base,
        &path_of!(ConfigFile.delivery / DeliverySettings.backoff_cap),
        delivery.backoff_cap,
    );
    let source = &file.source.own;
    checks.waits(
        &path_of!(ConfigFile.source / SourceSettings.reconnect_base),
        source.reconnect_base,
        &path_of!(ConfigFile.source / SourceSettings.reconnect_cap),
        source.reconnect_cap,
    );
    checks.tables();
    checks.routes();
    checks.parked_keys();
    checks.token();
    checks.tracing();
}

fn outbox(index: usize) -> Path {
    path_of!(ConfigFile.source / SourceSection.outbox).index(index)
}

struct Checks<'a> {
    file: &'a ConfigFile,
    effective: &'a Effective,
    problems: &'a mut Vec<Problem>,
}

impl Checks<'_> {
    fn refuse(&mut self, path: &Path, code: &'static str, what: &str, mend: &str) {
        self.problems.push(self.effective.problem(path, code, what, mend));
    }

    /// Polling has one table, and its batches fit into the window.
    fn polling(&mut self) {
        if self.file.source.mode != SourceMode::Polling {
            return;
        }
        let one_table = match self.file.source.outbox.len() {
            0 => Some(("polling needs a table, and messages are none", "write [[source.outbox]]")),
            1 => None,
            _ => Some(("polling takes one table", "run one relay for each table")),
        };
        if let Some((what, mend)) = one_table {
            self.refuse(&outbox(1), CONFLICT, what, mend);
        }
        if self.file.source.messages.is_some() {
            let path = path_of!(ConfigFile.source / SourceSection.messages);
            let what = "logical messages are not in any table: they cannot be polled";
            self.refuse(&path, CONFLICT, what, "remove the section");
        }
        for (index, section) in self.file.source.outbox.iter().enumerate() {
            if section.filter.is_some() {
                let path = outbox(index).child("where");
                let what =
                    "a row filter belongs to a publication, and polling claims every pending row";
                self.refuse(&path, CONFLICT, what, "remove it");
            }
        }
        let section = path_of!(ConfigFile.source / SourceSection.polling);
        let Some(PollingSettings { workers, batch_max, status_values: values, .. }) =
            &self.file.source.polling
        else {
            return;
        };
        let window = self.file.delivery.window_events_max;
        if workers.saturating_mul(*batch_max) > window {
            let what = format!(
                "{workers} workers with {batch_max} rows each are more than window_events_max = {window}"
            );
            let mend = "fewer workers, smaller batches, or a larger delivery.window_events_max";
            let path = section.child(name_of!(PollingSettings, batch_max));
            self.refuse(&path, CONFLICT, &what, mend);
        }
        let section = section.child(name_of!(PollingSettings, status_values));
        let values = [
            (name_of!(StatusValues, pending), &values.pending),
            (name_of!(StatusValues, in_progress), &values.in_progress),
            (name_of!(StatusValues, published), &values.published),
            (name_of!(StatusValues, failed), &values.failed),
        ];
        let values = values.map(|(name, value)| (section.child(name), value.clone()));
        let what = |_: &str, first: &Path| {
            format!("the same value as {first}: these statuses could not be distinguished")
        };
        self.distinct(values.into(), what, "give each status a value of its own");
    }

    fn waits(&mut self, base: &Path, low: Duration, cap: &Path, high: Duration) {
        let unread = |path| self.effective.broken.contains(path);
        if low <= high || unread(base) || unread(cap) {
            return;
        }
        let (low, high) = (units::show_duration(low), units::show_duration(high));
        // The place of the fault is the key that was given.
        let given = self.effective.settings.get(base).map(|setting| &setting.origin);
        let at = if given == Some(&Origin::Default) { cap } else { base };
        let what = format!("the first wait ({low}) is longer than the longest ({high})");
        let mend = format!("{} = \"{low}\" or more, or a shorter {}", cap.last(), base.last());
        self.refuse(at, CONFLICT, &what, &mend);
    }

    fn tables(&mut self) {
        let sections = self.file.source.outbox.iter().enumerate();
        let tables = sections.map(|(index, section)| {
            (outbox(index).child(name_of!(OutboxSection, table)), section.table.to_string())
        });
        let tables = tables.filter(|(path, _)| !self.effective.broken.contains(path)).collect();
        let what = |table: &str, first: &Path| format!("{table} is already the table of {first}");
        self.distinct(tables, what, "remove one of the two");
    }

    /// Refuses a value that an earlier path has, too.
    fn distinct(
        &mut self,
        values: Vec<(Path, String)>,
        what: fn(&str, &Path) -> String,
        mend: &str,
    ) {
        let mut seen: BTreeMap<String, Path> = BTreeMap::new();
        for (path, value) in values {
            match seen.get(&value) {
                Some(first) => self.refuse(&path, CONFLICT, &what(&value, first), mend),
                None => {
                    seen.insert(value, path);
                }
            }
        }
    }

    fn routes(&mut self) {
        let Some(sink) = self.file.sink.kind() else { return };
        let source = &self.file.source;
        for (index, section) in source.outbox.iter().enumerate() {
            let path = outbox(index).child(name_of!(OutboxSection, route));
            self.route(&path, &section.route, sink);
            self.members(&path, &section.route, &section.columns.parts);
        }
        if let Some(messages) = &source.messages {
            let path = path_of!(ConfigFile.source / SourceSection.messages / Messages.route);
            self.route(&path, &messages.route, sink);
            self.members(&path, &messages.route, &messages.columns);
            if messages.route.templates().any(Template::names_table) {
                let what = "messages have no table, and a template names ${table}";
                self.refuse(&path, CONFLICT, what, "write a route without it for the messages");
            }
        }
        self.route(&path_of!(ConfigFile.route), &self.file.route, sink);
    }

    /// A payload is passed on as it is, so no member of it can be read.
    fn members(&mut self, section: &Path, route: &Route, columns: &Columns) {
        let parts = route.templates().flat_map(Template::parts);
        let is_payload =
            |part: &Part| matches!(part, Part::Member { column, .. } if *column == columns.payload);
        if let Some(part) = parts.clone().find(|part| is_payload(part)) {
            let what = format!("{part} is a member of the payload, which is never parsed");
            let mend =
                "write what a route needs into a column of its own, or into the headers column";
            self.refuse(section, CONFLICT, &what, mend);
        }
    }

    /// Checks only keys that are given in this section;
    /// inherited ones are checked where they are given.
    fn route(&mut self, section: &Path, route: &Route, sink: &SinkKind) {
        let topic = section.child(name_of!(Route, topic));
        let own = self.effective.settings.contains_key(&topic);
        if let Some(constant) = route.topic.constant().filter(|_| own) {
            self.constant_topic(&topic, constant, &sink.routes);
        }
        let partition = section.child(name_of!(Route, partition));
        if !sink.routes.have_partitions && self.effective.settings.contains_key(&partition) {
            let what = format!("{} has no partitions: the column would be ignored", sink.title);
            self.refuse(&partition, CONFLICT, &what, "remove it");
        }
        self.envelope(section);
        let headers = section.child(name_of!(Route, headers));
        let names: Vec<String> =
            self.effective.entries(&headers).map(|(name, _)| name.to_owned()).collect();
        for name in names {
            let path = headers.child(&name);
            let id = ("id", "the header id always carries the event id");
            let mut reserved = [id].into_iter().chain(sink.routes.own_headers.iter().copied());
            if let Some((_, what)) = reserved.find(|(own, _)| *own == name) {
                self.refuse(&path, CONFLICT, what, "choose another name");
            } else if is_reserved_header(&name) {
                let what =
                    "names that begin with dlq- or x-retry- are those of replays and of consumers";
                self.refuse(&path, CONFLICT, what, "choose another name");
            } else if name.is_empty() {
                self.refuse(&path, BAD_VALUE, "a header needs a name", "name it or remove it");
            }
        }
    }

    /// A restart reads from the dead letters which keys are parked.
    fn parked_keys(&mut self) {
        let parks = self.file.delivery.on_dead_letter == OnDeadLetter::ParkKey;
        if let Some(sink) = self.file.sink.kind().filter(|sink| parks && !sink.reads_dead_letters) {
            let path = path_of!(ConfigFile.delivery / DeliverySettings.on_dead_letter);
            let what = format!(
                "dead letters in {} are not read, so a restart would forget which keys are parked",
                sink.title
            );
            self.refuse(&path, CONFLICT, &what, "on_dead_letter = \"continue\" or \"halt\"");
        }
    }

    fn envelope(&mut self, section: &Path) {
        let path = section.child(name_of!(Route, envelope));
        let names: Vec<String> =
            self.effective.entries(&path).map(|(name, _)| name.to_owned()).collect();
        for name in names {
            if name == PAYLOAD_MEMBER {
                let what = "the member payload is the payload itself";
                self.refuse(&path.child(&name), CONFLICT, what, "choose another name");
            } else if name.is_empty() {
                let what = "a member of the envelope needs a name";
                self.refuse(&path.child(&name), BAD_VALUE, what, "name it or remove it");
            }
        }
    }

    fn constant_topic(&mut self, path: &Path, topic: &str, rules: &RouteRules) {
        let dead_letters = &self.file.dead_letter.address.topic;
        if rules.reach_dead_letters && topic == dead_letters {
            let what = format!(
                "{topic:?} is the dead-letter topic: a dead letter would be an event again"
            );
            self.refuse(path, CONFLICT, &what, "give dead_letter.topic another name");
        } else if let Err((what, mend)) = (rules.check_topic)(topic) {
            self.refuse(path, BAD_VALUE, &what, &mend);
        }
    }

    /// A short token can be guessed.
    fn token(&mut self) {
        let token = self.file.admin.token.as_ref();
        if token.is_some_and(|token| token.expose().len() < TOKEN_BYTES_MIN) {
            let path = path_of!(ConfigFile.admin / AdminSettings.token);
            let what = format!("the token has fewer than {TOKEN_BYTES_MIN} characters");
            self.refuse(&path, BAD_VALUE, &what, "make one: openssl rand -hex 32");
        }
    }

    /// Where spans go to, and with which headers.
    fn tracing(&mut self) {
        let TracingSettings { endpoint, headers, .. } = &self.file.tracing;
        let unread = |path: &Path| self.effective.broken.contains(path);
        let path = path_of!(ConfigFile.tracing / TracingSettings.endpoint);
        if let Some(url) = endpoint.as_ref().filter(|_| !unread(&path)) {
            let mend = "write http://host:4318 or https://host, where OTLP over HTTP is received";
            if !cfg!(feature = "otlp") {
                let origin = self.effective.origin(&path);
                self.problems.push(Problem::missing_feature(&origin, path, "otlp"));
            } else if let Err(what) = OtlpEndpoint::parse(url) {
                self.refuse(&path, BAD_VALUE, what, mend);
            }
        }
        let sent = headers.as_ref().filter(|_| endpoint.is_some());
        if let Some(Err(what)) = sent.map(parse_headers) {
            let path = path_of!(ConfigFile.tracing / TracingSettings.headers);
            let mend =
                "write name=value,name=value, with what is special in values percent-encoded";
            self.refuse(&path, BAD_VALUE, &what, mend);
        }
    }
}
