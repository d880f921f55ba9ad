//! What holds once all layers are laid and every default is filled in, with the origin of each
//! value. [`super::build`] types it, [`super::show`] prints it.

use std::collections::{BTreeMap, BTreeSet};

use super::keys::{Absent, Key};
use super::kind::{self, Kind, Lookup, Raw, Value};
use super::layers::{Layers, Origin, Problem};
use super::path::Path;
use super::tree::{self, Node};
use crate::sink;

/// A value of its kind, and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) kind: Kind,
    pub(crate) value: Value,
    pub(crate) origin: Origin,
    /// True when the value was given as a reference to a secret.
    pub(crate) referenced: bool,
}

/// Every value that holds.
#[derive(Clone, Debug, Default)]
pub struct Effective {
    pub(crate) settings: BTreeMap<Path, Setting>,
    /// Keys without a value, and what that means.
    pub(crate) unset: BTreeMap<Path, &'static str>,
    /// Sections in use.
    pub(crate) sections: BTreeMap<Path, Origin>,
    /// Number of outbox tables.
    pub(crate) outboxes: usize,
    /// Keys that are given or defaulted, but not readable: a problem has been told.
    pub(crate) broken: BTreeSet<Path>,
}

/// The name of the array of outbox tables.
pub(crate) const OUTBOX: &str = "source.outbox";
/// Defaults that are others in `source.mode = "polling"`.
const POLLED: &[(&str, &str)] =
    &[("source.outbox[].columns.key", "event_key"), ("route.topic", "${event_key}")];
/// The section of polling.
pub(crate) const POLLING: &str = "source.polling";
/// The section of logical messages.
pub(crate) const MESSAGES: &str = "source.messages";

/// Reads every value and fills in the defaults.
pub(crate) fn settle(mut layers: Layers, env: Lookup<'_>) -> (Effective, Vec<Problem>) {
    let outbox = Path::of(OUTBOX);
    let mut outboxes = layers.count(&outbox);
    if outboxes == 0 && !layers.sections.contains_key(&Path::of(MESSAGES)) {
        outboxes = 1;
    } else {
        outboxes = refuse_gaps(&mut layers, &outbox, outboxes);
    }
    let Layers { entries, sections, mut problems } = layers;
    let mut effective = Effective { sections, outboxes, ..Effective::default() };
    for (path, entry) in entries {
        let referenced = matches!(entry.raw, Raw::Variable(_) | Raw::File(_));
        match kind::read(entry.key.kind, &entry.raw, env) {
            Ok(value) => {
                let setting =
                    Setting { kind: entry.key.kind, value, origin: entry.origin, referenced };
                effective.settings.insert(path, setting);
            }
            Err(wrong) => {
                let place = path.to_string();
                let code = if referenced { "config.missing-secret" } else { "config.bad-value" };
                problems.push(Problem::at(&entry.origin, &place, code, &wrong.what, wrong.mend));
                effective.broken.insert(path);
            }
        }
    }
    let mut defaults = Defaults { effective: &mut effective, problems: &mut problems };
    defaults.fill(tree::root(), &Path::default());
    (effective, problems)
}

/// `source.outbox[5]` without its predecessors is a slip that would add tables by default. The
/// answer is how many tables stand before the first gap.
fn refuse_gaps(layers: &mut Layers, array: &Path, count: usize) -> usize {
    let given = |index: &usize| layers.sections.get(&array.index(*index));
    let Some(gap) = (0..count).find(|index| given(index).is_none()) else { return count };
    if let Some(origin) = (gap..count).find_map(|index| given(&index).cloned()) {
        let missing = array.index(gap);
        let mend = format!("number the tables from 0 without a gap: {missing} is missing");
        let (place, what) = (array.to_string(), "there is a gap");
        layers.problems.push(Problem::at(&origin, &place, "config.bad-value", what, mend));
    }
    gap
}

impl Effective {
    /// Where the value at `path` comes from; for a default, the line of the file where its section
    /// begins, if there is one.
    pub(crate) fn origin(&self, path: &Path) -> Origin {
        match self.settings.get(path) {
            Some(setting) if setting.origin != Origin::Default => setting.origin.clone(),
            Some(_) | None => self.section_origin(path),
        }
    }

    fn section_origin(&self, path: &Path) -> Origin {
        let sections = path.ancestors().filter_map(|section| self.sections.get(&section));
        let in_file = sections.filter(|origin| matches!(origin, Origin::File { .. }));
        in_file.last().cloned().unwrap_or(Origin::Default)
    }
}

struct Defaults<'a> {
    effective: &'a mut Effective,
    problems: &'a mut Vec<Problem>,
}

impl Defaults<'_> {
    fn fill(&mut self, node: &'static Node, path: &Path) {
        match node {
            Node::Leaf(key) => self.leaf(key, path),
            Node::Array(element) => {
                for index in 0..self.effective.outboxes {
                    self.fill(element, &path.index(index));
                }
            }
            Node::Table(fields) => {
                if !self.in_use(path) {
                    return;
                }
                for (name, child) in fields {
                    self.fill(child, &path.child(name));
                }
            }
            Node::Map(_) => {}
        }
    }

    /// A section that plays no part is not filled in, nor missed.
    fn in_use(&self, path: &Path) -> bool {
        let word = |path: &str| match self.effective.settings.get(&Path::of(path)) {
            Some(Setting { value: Value::Text(word), .. }) => Some(word.clone()),
            Some(_) | None => None,
        };
        match path.to_string().as_str() {
            MESSAGES => self.effective.sections.contains_key(path),
            POLLING => word("source.mode").as_deref() == Some("polling"),
            text => match text.strip_prefix("sink.") {
                Some(name) if sink::kind_named(name).is_some() => {
                    word("sink.kind").as_deref() == Some(name)
                }
                _ => true,
            },
        }
    }

    /// What holds instead where a table of sql/polling.sql is polled.
    fn polled(&self, key: &str) -> Option<&'static str> {
        let polls = self.in_use(&Path::of(POLLING));
        POLLED.iter().find(|(path, _)| polls && *path == key).map(|(_, text)| *text)
    }

    fn leaf(&mut self, key: &'static Key, path: &Path) {
        if self.effective.settings.contains_key(path) || self.effective.broken.contains(path) {
            return;
        }
        match key.absent {
            Absent::Means(text) => {
                self.effective.unset.insert(path.clone(), text);
            }
            Absent::Value(text) => {
                let text = self.polled(&key.path).unwrap_or(text);
                let value = kind::read(key.kind, &Raw::Word(text.to_owned()), &|_| None);
                if let Ok(value) = value {
                    let setting = Setting {
                        kind: key.kind,
                        value,
                        origin: Origin::Default,
                        referenced: false,
                    };
                    self.effective.settings.insert(path.clone(), setting);
                }
            }
            Absent::Refused => {
                let what = "is missing";
                let (section, name) = key.path.rsplit_once('.').unwrap_or(("", &key.path));
                let example = match key.kind {
                    Kind::Url if section == "source" => "postgres://walrelay@localhost/app",
                    Kind::Url => "amqps://relay@localhost/%2f",
                    _ => "localhost:9092",
                };
                let mend = format!(
                    "write in the file, under [{section}]:\n{name} = \"{example}\"\nor: export {}={example}",
                    key.variable()
                );
                let origin = self.effective.section_origin(path);
                let place = path.to_string();
                self.problems.push(Problem::at(&origin, &place, "config.missing-key", what, mend));
                self.effective.broken.insert(path.clone());
            }
        }
    }
}
