//! What single values cannot show: values that contradict each other, or a promise of the relay.
//!
//! Everything refused here would otherwise come to light with the first event, or not at all.

use std::collections::BTreeMap;

use crate::outbox::template::Template;
use crate::sink::RouteRules;

use super::build::{Values, sink_kind};
use super::effective::{Effective, MESSAGES, OUTBOX, POLLING};
use super::layers::{Origin, Problem};
use super::path::Path;
use super::units;

/// Of a bearer token.
const TOKEN_BYTES_MIN: usize = 16;

/// Appends a problem for every contradiction.
pub(crate) fn check(effective: &Effective, problems: &mut Vec<Problem>) {
    let mut checks = Checks { values: Values(effective), problems };
    checks.polling();
    checks.waits("delivery.backoff_base", "delivery.backoff_cap");
    checks.waits("source.reconnect_base", "source.reconnect_cap");
    checks.tables();
    checks.routes();
    checks.token();
}

struct Checks<'a> {
    values: Values<'a>,
    problems: &'a mut Vec<Problem>,
}

impl Checks<'_> {
    fn refuse(&mut self, path: &Path, code: &'static str, what: &str, mend: &str) {
        let origin = self.values.0.origin(path);
        self.problems.push(Problem::at(&origin, &path.to_string(), code, what, mend));
    }

    /// Polling is about one table, and its batches must fit into the window.
    fn polling(&mut self) {
        if self.values.text(&Path::of("source.mode")) != "polling" {
            return;
        }
        if self.values.0.outboxes != 1 {
            let path = Path::of(OUTBOX).index(1);
            let (what, mend) = match self.values.0.outboxes {
                0 => ("polling needs a table, and messages are none", "write [[source.outbox]]"),
                _ => ("polling takes one table", "run one relay for each table"),
            };
            self.refuse(&path, "config.conflict", what, mend);
        }
        if self.values.0.sections.contains_key(&Path::of(MESSAGES)) {
            let what = "logical messages are not in any table: they cannot be polled";
            self.refuse(&Path::of(MESSAGES), "config.conflict", what, "remove the section");
        }
        let section = Path::of(POLLING);
        let (workers, batch) = (section.child("workers"), section.child("batch_max"));
        let window = self.values.integer(&Path::of("delivery.window_events_max"));
        let (of, each) = (self.values.integer(&workers), self.values.integer(&batch));
        if of.saturating_mul(each) > window {
            let what = format!(
                "{of} workers with {each} rows each are more than window_events_max = {window}"
            );
            let mend = "fewer workers, smaller batches, or a larger delivery.window_events_max";
            self.refuse(&batch, "config.conflict", &what, mend);
        }
        let mut seen: BTreeMap<String, Path> = BTreeMap::new();
        for word in ["pending", "in_progress", "published", "failed"] {
            let path = section.child("words").child(word);
            if let Some(first) = seen.insert(self.values.text(&path), path.clone()) {
                let what = format!("the same word as {first}: the two could not be told apart");
                self.refuse(&path, "config.conflict", &what, "give each status a word of its own");
            }
        }
    }

    fn waits(&mut self, base: &str, cap: &str) {
        let (base, cap) = (Path::of(base), Path::of(cap));
        let (low, high) = (self.values.duration(&base), self.values.duration(&cap));
        if high.is_zero() || low <= high {
            return;
        }
        let (low, high) = (units::show_duration(low), units::show_duration(high));
        // The complaint belongs to whichever of the two was given.
        let given = |path| self.values.0.settings.get(path).map(|setting| &setting.origin);
        let at = if given(&base) == Some(&Origin::Default) { &cap } else { &base };
        let what = format!("the first wait ({low}) is longer than the longest ({high})");
        let mend = format!("{} = \"{low}\" or more, or a shorter {}", cap.last(), base.last());
        self.refuse(at, "config.conflict", &what, &mend);
    }

    fn tables(&mut self) {
        let mut seen: BTreeMap<String, Path> = BTreeMap::new();
        for index in 0..self.values.0.outboxes {
            let path = Path::of(OUTBOX).index(index).child("table");
            let Some(name) = self.values.optional_text(&path) else { continue };
            let full = if name.contains('.') { name } else { format!("public.{name}") };
            if let Some(first) = seen.get(&full) {
                let what = format!("{full} is already the table of {first}");
                self.refuse(&path, "config.conflict", &what, "remove one of the two");
            } else {
                seen.insert(full, path);
            }
        }
    }

    fn routes(&mut self) {
        let outboxes = (0..self.values.0.outboxes).map(|index| Path::of(OUTBOX).index(index));
        let mut owners: Vec<Path> = outboxes.map(|owner| owner.child("route")).collect();
        owners.push(Path::of(MESSAGES).child("route"));
        owners.push(Path::of("route"));
        let Some(kind) = sink_kind(self.values) else { return };
        for owner in owners {
            let topic = owner.child("topic");
            let text = self.values.optional_text(&topic);
            let template = text.and_then(|text| Template::parse(&text).ok());
            if let Some(constant) = template.as_ref().and_then(Template::constant) {
                self.constant_topic(&topic, constant, &kind.routes);
            }
            let partition = owner.child("partition");
            let asked = self.values.optional_text(&partition).is_some();
            if asked && !kind.routes.have_partitions {
                let what = format!("{} has no partitions: the column would be ignored", kind.title);
                self.refuse(&partition, "config.conflict", &what, "remove it");
            }
            self.headers(&owner.child("headers"), &kind.routes);
        }
    }

    fn constant_topic(&mut self, path: &Path, topic: &str, rules: &RouteRules) {
        let dead_letters = self.values.text(&Path::of("dead_letter.topic"));
        if rules.reach_dead_letters && topic == dead_letters {
            let what = format!(
                "{topic:?} is the dead-letter topic: a dead letter would be an event again"
            );
            self.refuse(path, "config.conflict", &what, "give dead_letter.topic another name");
        } else if let Err((what, mend)) = (rules.check_topic)(topic) {
            self.refuse(path, "config.bad-value", &what, &mend);
        }
    }

    fn headers(&mut self, path: &Path, rules: &RouteRules) {
        let names: Vec<String> = self.values.below(path).map(|(name, _)| name.to_owned()).collect();
        for name in names {
            let taken = match name.as_str() {
                "id" => Some("the header id always carries the event id"),
                name => rules.own_headers.iter().find(|(own, _)| *own == name).map(|(_, why)| *why),
            };
            if let Some(what) = taken {
                self.refuse(&path.child(&name), "config.conflict", what, "choose another name");
            } else if name.is_empty() {
                let what = "a header needs a name";
                self.refuse(&path.child(&name), "config.bad-value", what, "name it or remove it");
            }
        }
    }

    /// A short one can be guessed.
    fn token(&mut self) {
        let path = Path::of("admin.token");
        let length = self.values.secret(&path).map(|token| token.expose().len());
        if length.is_some_and(|length| length < TOKEN_BYTES_MIN) {
            let what = format!("the token has fewer than {TOKEN_BYTES_MIN} characters");
            self.refuse(&path, "config.bad-value", &what, "make one: openssl rand -hex 32");
        }
    }
}
