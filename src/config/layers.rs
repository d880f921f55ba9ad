//! File, environment and flags laid over each other: one raw value and one origin per path.
//!
//! Nothing is judged here but names. Values are read only once every layer is in place, so a value
//! that a later layer replaces is never complained about.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use crate::base::error::{Exit, Fault};

use super::keys::{self, Key};
use super::kind::Raw;
use super::path::{Path, Segment};
use super::tree::Node;
use super::units;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    File { line: usize, column: usize, name: Arc<str> },
    Variable(String),
    Flag { position: usize, name: String },
    Default,
}

impl Origin {
    /// For faults: with the column, where there is one.
    pub(crate) fn place(&self) -> String {
        match self {
            Origin::File { name, line, column } => format!("{name}:{line}:{column}"),
            Origin::Variable(name) => format!("environment variable {name}"),
            Origin::Flag { name, .. } => name.clone(),
            Origin::Default => String::new(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { name, line, .. } => write!(f, "{name}:{line}"),
            Origin::Variable(name) => f.write_str(name),
            Origin::Flag { name, .. } => {
                f.write_str(name.split_once(' ').map_or(name.as_str(), |(flag, _)| flag))
            }
            Origin::Default => f.write_str("default"),
        }
    }
}

/// A fault, and the origin that gives it its place among the others.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) origin: Origin,
    pub(crate) fault: Fault,
}

impl Problem {
    /// A problem of the value at `path`.
    pub(crate) fn at(
        origin: &Origin,
        path: &str,
        code: &'static str,
        what: &str,
        mend: impl Into<String>,
    ) -> Problem {
        let fault = Fault::new(Exit::Usage, code, format!("{path}: {what}"), origin.place(), mend);
        Problem { origin: origin.clone(), fault }
    }
}

/// A raw value.
pub(crate) struct Entry {
    pub(crate) key: &'static Key,
    pub(crate) raw: Raw,
    pub(crate) origin: Origin,
}

/// All layers.
#[derive(Default)]
pub(crate) struct Layers {
    pub(crate) entries: BTreeMap<Path, Entry>,
    /// Sections that appear, even if nothing stands in them, and where they appear first.
    pub(crate) sections: BTreeMap<Path, Origin>,
    pub(crate) problems: Vec<Problem>,
}

/// Tells the origin of a stretch of TOML.
pub(crate) type Locate<'a> = &'a dyn Fn(Range<usize>) -> Origin;

impl Layers {
    pub(crate) fn set(&mut self, path: Path, key: &'static Key, raw: Raw, origin: Origin) {
        for section in path.ancestors() {
            self.open(section, &origin);
        }
        self.entries.insert(path, Entry { key, raw, origin });
    }

    fn open(&mut self, section: Path, origin: &Origin) {
        self.sections.entry(section).or_insert_with(|| origin.clone());
    }

    /// How many elements an array of tables has.
    pub(crate) fn count(&self, array: &Path) -> usize {
        let indices: BTreeSet<usize> = self
            .sections
            .keys()
            .filter_map(|path| match path.step_below(array) {
                Some(Segment::Index(index)) => Some(*index),
                Some(Segment::Name(_)) | None => None,
            })
            .collect();
        indices.last().map_or(0, |last| last + 1)
    }

    /// Lays a TOML table over what is there.
    pub(crate) fn table(
        &mut self,
        node: &'static Node,
        path: &Path,
        table: &DeTable<'_>,
        locate: Locate<'_>,
    ) {
        for (name, value) in table {
            let origin = locate(name.span());
            let below = path.child(name.get_ref());
            match node {
                Node::Map(key) => self.leaf(key, below, value.get_ref(), origin),
                Node::Table(_) => match node.child(name.get_ref()) {
                    Some(child) => self.value(child, below, value.get_ref(), origin, locate),
                    None => self.unknown(node, path, name.get_ref(), &origin),
                },
                Node::Leaf(_) | Node::Array(_) => {}
            }
        }
    }

    /// Lays one TOML value over what is there.
    pub(crate) fn value(
        &mut self,
        node: &'static Node,
        path: Path,
        value: &DeValue<'_>,
        origin: Origin,
        locate: Locate<'_>,
    ) {
        match (node, value) {
            (Node::Leaf(key), _) => self.leaf(key, path, value, origin),
            (Node::Table(_) | Node::Map(_), DeValue::Table(table)) => {
                self.open(path.clone(), &origin);
                self.table(node, &path, table, locate);
            }
            (Node::Array(element), DeValue::Array(items)) => {
                self.forget(&path);
                for (index, item) in items.iter().enumerate() {
                    let at = locate(item.span());
                    self.value(element, path.index(index), item.get_ref(), at, locate);
                }
            }
            (Node::Array(_), _) => {
                let mend = format!("write [[{}]]", path.header());
                self.bad(&path, &origin, "expected an array of tables", mend);
            }
            (Node::Table(_) | Node::Map(_), _) => {
                let mend = format!("write [{}]", path.header());
                self.bad(&path, &origin, "expected a table", mend);
            }
        }
    }

    /// An array given anew replaces the old one whole.
    fn forget(&mut self, array: &Path) {
        self.entries.retain(|path, _| path.step_below(array).is_none());
        self.sections.retain(|path, _| path.step_below(array).is_none());
    }

    fn leaf(&mut self, key: &'static Key, path: Path, value: &DeValue<'_>, origin: Origin) {
        match raw_of(value) {
            Ok(raw) => self.set(path, key, raw, origin),
            Err(what) => {
                let mend = "write { env = \"NAME\" } or { file = \"/run/secrets/x\" }";
                self.bad(&path, &origin, what, mend);
            }
        }
    }

    pub(crate) fn bad(
        &mut self,
        path: &Path,
        origin: &Origin,
        what: &str,
        mend: impl Into<String>,
    ) {
        self.problems.push(Problem::at(origin, &path.to_string(), "config.bad-value", what, mend));
    }

    fn unknown(&mut self, node: &Node, path: &Path, name: &str, origin: &Origin) {
        let names = node.names();
        let section =
            if path.is_root() { "the file".to_owned() } else { format!("[{}]", path.header()) };
        let elsewhere = || {
            let mut keys = keys::all().iter().map(|key| key.path.as_str());
            keys.find(|key| key.rsplit('.').next() == Some(name)).map(str::to_owned)
        };
        let near = units::nearest(name, names.iter().copied());
        let mend = match near.map(|near| near.to_owned()).or_else(elsewhere) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("{section} knows: {}", names.join(", ")),
        };
        let full = path.child(name).to_string();
        let fault = Fault::new(
            Exit::Usage,
            "config.unknown-key",
            format!("unknown key `{full}`"),
            origin.place(),
            mend,
        );
        self.problems.push(Problem { origin: origin.clone(), fault });
    }
}

/// A TOML value as a raw one; an error for a table that is no reference to a secret.
pub(crate) fn raw_of(value: &DeValue<'_>) -> Result<Raw, &'static str> {
    let raw = match value {
        DeValue::String(text) => Raw::Text(text.to_string()),
        DeValue::Boolean(flag) => Raw::Bool(*flag),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or(Raw::Foreign("an integer beyond 64 bits"), Raw::Integer),
        DeValue::Float(_) => Raw::Foreign("a float"),
        DeValue::Datetime(_) => Raw::Foreign("a date or time"),
        DeValue::Array(items) => {
            Raw::List(items.iter().map(|item| raw_of(item.get_ref())).collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => {
            let mut fields = table.iter();
            let (Some((name, value)), None) = (fields.next(), fields.next()) else {
                return Err("this table is no reference to a secret");
            };
            match (name.get_ref().as_ref(), value.get_ref()) {
                ("env", DeValue::String(name)) => Raw::Variable(name.to_string()),
                ("file", DeValue::String(path)) => Raw::File(path.to_string()),
                _ => return Err("this table is no reference to a secret"),
            }
        }
    };
    Ok(raw)
}
