//! Finds values that contradict each other or a promise of the relay, which would otherwise show
//! with the first event or never. Each sink checks its own section itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::missing;
use super::sections::{AdminSettings, ConfigFile, SourceMode, SourceSection, path_of, token_fault};
use crate::base::event::is_reserved_header;
use crate::base::settings::{Origin, Path, Visit, name_of, units};
use crate::base::template::{Part, Template};
use crate::delivery::settings::{DeliverySettings, OnDeadLetter};
use crate::outbox::PAYLOAD_MEMBER;
use crate::outbox::settings::{Columns, Messages, OutboxSection, Route};
use crate::polling::settings::{PollingSettings, StatusValues, WorkColumns};
use crate::sink::SinkKind;
use crate::source::settings::SourceSettings;
use crate::trace::{OtlpEndpoint, TracingSettings, parse_headers};

/// Appends a problem for every contradiction.
pub(crate) fn check(file: &ConfigFile, visit: &mut Visit) {
    let mut checks = Checks { file, visit };
    checks.polling();
    let delivery = &file.delivery;
    checks.check_waits(
        &path_of!(ConfigFile.delivery / DeliverySettings.backoff_base),
        delivery.backoff_base,
        &path_of!(ConfigFile.delivery / DeliverySettings.backoff_cap),
        delivery.backoff_cap,
    );
    let source = &file.source.own;
    checks.check_waits(
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
    visit: &'a mut Visit,
}

impl Checks<'_> {
    fn conflict(&mut self, path: &Path, what: &str, mend: &str) {
        self.visit.refuse(path, "config.conflict", what, mend);
    }

    fn bad_value(&mut self, path: &Path, what: &str, mend: &str) {
        self.visit.refuse(path, "config.bad-value", what, mend);
    }

    fn is_known(&self, path: &Path) -> bool {
        self.visit.effective.settings.contains_key(path)
    }

    fn is_broken(&self, path: &Path) -> bool {
        self.visit.broken.contains(path)
    }

    fn entries(&self, map: &Path) -> Vec<Path> {
        self.visit.tree.entries(map).into_iter().filter(|path| self.is_known(path)).collect()
    }

    /// Polling has one table, and its batches fit into the window.
    fn polling(&mut self) {
        let source = &self.file.source;
        if source.mode != SourceMode::Polling {
            return;
        }
        let (second, none) = (outbox(1), "polling needs a table, and messages are none");
        match source.outbox.len() {
            0 => self.conflict(&second, none, "write [[source.outbox]]"),
            1 => {}
            _ => self.conflict(&second, "polling takes one table", "run one relay for each table"),
        }
        if source.messages.is_some() {
            let path = path_of!(ConfigFile.source / SourceSection.messages);
            let what = "logical messages are not in any table: they cannot be polled";
            self.conflict(&path, what, "remove the section");
        }
        for (index, _) in source.outbox.iter().enumerate().filter(|(_, it)| it.filter.0.is_some()) {
            let what =
                "a row filter belongs to a publication, and polling claims every pending row";
            let mend = "remove it, or that of a library with where = \"\"";
            self.conflict(&outbox(index).child("where"), what, mend);
        }
        let Some(settings) = &source.polling else { return };
        let PollingSettings { workers, batch_max, .. } = settings;
        let section = path_of!(ConfigFile.source / SourceSection.polling);
        let window = self.file.delivery.window_events_max;
        if workers.saturating_mul(*batch_max) > window {
            let what = format!(
                "{workers} workers with {batch_max} rows each are more than window_events_max = {window}"
            );
            let mend = "fewer workers, smaller batches, or a larger delivery.window_events_max";
            self.conflict(&section.child(name_of!(PollingSettings, batch_max)), &what, mend);
        }
        self.work_columns(&section.child(name_of!(PollingSettings, columns)), &settings.columns);
        let section = section.child(name_of!(PollingSettings, status_values));
        let values = &settings.status_values;
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

    /// One statement cannot write two values into a column, and none may be written over a part of the event. The order and
    /// the time of the INSERT are only read, and may be one column.
    fn work_columns(&mut self, section: &Path, columns: &WorkColumns) {
        let written = [
            (name_of!(WorkColumns, status), &columns.status),
            (name_of!(WorkColumns, retry_count), &columns.retry_count),
            (name_of!(WorkColumns, next_retry_at), &columns.next_retry_at),
            (name_of!(WorkColumns, locked_at), &columns.locked_at),
            (name_of!(WorkColumns, locked_by), &columns.locked_by),
            (name_of!(WorkColumns, failure_reason), &columns.failure_reason),
            (name_of!(WorkColumns, failed_at), &columns.failed_at),
        ];
        let mut named = vec![(name_of!(WorkColumns, order), &columns.order)];
        named.extend(written);
        if columns.created_at != columns.order {
            named.push((name_of!(WorkColumns, created_at), &columns.created_at));
        }
        let named = named.into_iter().map(|(name, column)| (section.child(name), column.clone()));
        let what = |_: &str, first: &Path| {
            format!("the same column as {first}: polling would write one over the other")
        };
        self.distinct(named.collect(), what, "give each a column of its own");
        let Some(table) = self.file.source.outbox.first() else { return };
        let Columns { id, key, event_type, payload, traceparent, headers } = &table.columns.parts;
        let parts = [id, key, event_type, payload, traceparent, headers].map(String::as_str);
        let templates = table.route.templates().flat_map(Template::columns);
        let read: BTreeSet<String> =
            parts.into_iter().chain(templates).map(str::to_owned).collect();
        for (name, column) in written.into_iter().filter(|(_, column)| read.contains(*column)) {
            let what = format!("polling would write over column {column}, a part of the event");
            self.conflict(&section.child(name), &what, "give polling a column of its own");
        }
    }

    fn check_waits(&mut self, base: &Path, low: Duration, cap: &Path, high: Duration) {
        if low <= high || self.is_broken(base) || self.is_broken(cap) {
            return;
        }
        let (low, high) = (units::show_duration(low), units::show_duration(high));
        // The place of the fault is the key that was given.
        let given = self.visit.effective.settings.get(base).map(|setting| &setting.origin);
        let at = if given == Some(&Origin::Default) { cap } else { base };
        let what = format!("the first wait ({low}) is longer than the longest ({high})");
        let mend = format!("{} = \"{low}\" or more, or a shorter {}", cap.name(), base.name());
        self.conflict(at, &what, &mend);
    }

    fn tables(&mut self) {
        let sections = self.file.source.outbox.iter().enumerate();
        let tables = sections.map(|(index, section)| {
            (outbox(index).child(name_of!(OutboxSection, table)), section.table.to_string())
        });
        let tables = tables.filter(|(path, _)| !self.is_broken(path)).collect();
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
                Some(first) => self.conflict(&path, &what(&value, first), mend),
                None => drop(seen.insert(value, path)),
            }
        }
    }

    fn routes(&mut self) {
        let Some((sink, _)) = &self.file.sink.kind else { return };
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
                self.conflict(&path, what, "write a route without it for the messages");
            }
        }
        self.route(&path_of!(ConfigFile.route), &self.file.route, sink);
    }

    /// A payload is passed on as it is, so no member of it can be read.
    fn members(&mut self, section: &Path, route: &Route, columns: &Columns) {
        let mut parts = route.templates().flat_map(Template::parts);
        let is_payload = |part: &&Part| matches!(part, Part::Member { column, .. } if *column == columns.payload);
        if let Some(part) = parts.find(is_payload) {
            let what = format!("{part} is a member of the payload, which is never parsed");
            let mend =
                "write what a route needs into a column of its own, or into the headers column";
            self.conflict(section, &what, mend);
        }
    }

    /// Checks only keys that are given in this section;
    /// inherited ones are checked where they are given.
    fn route(&mut self, section: &Path, route: &Route, sink: &SinkKind) {
        let topic = section.child(name_of!(Route, topic));
        if self.is_known(&topic) {
            match route.topic.constant() {
                Some(constant) => self.constant_topic(&topic, constant, sink),
                None => self.topic_template(&topic, &route.topic, sink),
            }
        }
        let partition = section.child(name_of!(Route, partition));
        if !sink.routes.have_partitions && self.is_known(&partition) {
            let what = format!("{} has no partitions: the column would be ignored", sink.title);
            self.conflict(&partition, &what, "remove it");
        }
        for path in self.entries(&section.child(name_of!(Route, envelope))) {
            match path.name() {
                PAYLOAD_MEMBER => {
                    let what = "the member payload is the payload itself";
                    self.conflict(&path, what, "choose another name");
                }
                "" => {
                    let what = "a member of the envelope needs a name";
                    self.bad_value(&path, what, "name it or remove it");
                }
                _ => {}
            }
        }
        let id = ("id", "the header id always carries the event id");
        for path in self.entries(&section.child(name_of!(Route, headers))) {
            let mut reserved = [id].into_iter().chain(sink.routes.own_headers.iter().copied());
            let of_others =
                "names that begin with dlq- or x-retry- are those of replays and of consumers";
            match reserved.find(|(own, _)| *own == path.name()) {
                Some((_, what)) => self.conflict(&path, what, "choose another name"),
                None if is_reserved_header(path.name()) => {
                    self.conflict(&path, of_others, "choose another name");
                }
                None if path.name().is_empty() || path.name().contains('\0') => {
                    let what = "a header needs a name, without the character NUL";
                    self.bad_value(&path, what, "name it or remove it");
                }
                None => {}
            }
        }
    }

    /// A restart reads from the dead letters which keys are parked.
    fn parked_keys(&mut self) {
        let parks = self.file.delivery.on_dead_letter == OnDeadLetter::ParkKey;
        let kind = self.file.sink.kind.as_ref().map(|(sink, _)| sink);
        if let Some(sink) = kind.filter(|sink| parks && !sink.reads_dead_letters) {
            let path = path_of!(ConfigFile.delivery / DeliverySettings.on_dead_letter);
            let what = format!(
                "dead letters in {} are not read, so a restart would forget which keys are parked",
                sink.title
            );
            self.conflict(&path, &what, "on_dead_letter = \"continue\" or \"halt\"");
        }
    }

    fn constant_topic(&mut self, path: &Path, topic: &str, sink: &SinkKind) {
        let is_of_dead_letters = topic == self.file.dead_letter.address.topic;
        if is_of_dead_letters && self.reaches_dead_letters(sink) {
            let what = format!(
                "{topic:?} is the dead-letter topic: a dead letter would be an event again"
            );
            self.conflict(path, &what, "give dead_letter.topic another name");
        } else if let Err((what, mend)) = (sink.routes.check_topic)(topic) {
            self.bad_value(path, &what, &mend);
        }
    }

    /// Refuses a template of which no value of its columns makes a topic.
    fn topic_template(&mut self, path: &Path, template: &Template, sink: &SinkKind) {
        let short = |value: &str| {
            let text = template.parts().iter().map(|part| match part {
                Part::Literal(text) => text.as_str(),
                Part::Column(_) | Part::Member { .. } | Part::Table => value,
            });
            (sink.routes.check_topic)(&text.collect::<String>())
        };
        if let (Err(_), Err((_, mend))) = (short(""), short("x")) {
            let text = template.to_string();
            let what = format!("{text:?} gives no valid topic, whatever its columns hold");
            self.bad_value(path, &what, &mend);
        }
    }

    /// Whether a topic without columns leads to the dead letters if it has the name of theirs. The default exchange
    /// takes a topic as the name of a queue.
    fn reaches_dead_letters(&self, sink: &SinkKind) -> bool {
        sink.routes.exchange_key.is_none_or(|key| {
            let path = path_of!(ConfigFile.sink).child(sink.name).child(key);
            self.visit.effective.settings.get(&path).is_some_and(|it| it.value == "")
        })
    }

    fn token(&mut self) {
        let token = self.file.admin.token.as_ref();
        if let Some(what) = token.and_then(|token| token_fault(token.expose())) {
            let path = path_of!(ConfigFile.admin / AdminSettings.token);
            self.bad_value(&path, &what, "make one: openssl rand -hex 32");
        }
    }

    /// Where spans go to, and with which headers.
    fn tracing(&mut self) {
        let TracingSettings { endpoint, headers, .. } = &self.file.tracing;
        let Some(url) = endpoint else { return };
        let path = path_of!(ConfigFile.tracing / TracingSettings.endpoint);
        if !cfg!(feature = "otlp") {
            missing::refuse(self.visit, &path, "otlp");
        } else if let Err(what) = OtlpEndpoint::parse(url) {
            let mend = "write http://host:4318 or https://host, where OTLP over HTTP is received";
            self.bad_value(&path, what, mend);
        }
        if let Some(Err(what)) = headers.as_ref().map(parse_headers) {
            let path = path_of!(ConfigFile.tracing / TracingSettings.headers);
            let mend =
                "write name=value,name=value, with what is special in values percent-encoded";
            self.bad_value(&path, &what, mend);
        }
    }
}
