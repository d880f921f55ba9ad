//! The layers of the configuration (file, environment, flags): one raw value and its origin per
//! path. Values are read only when all layers are complete, so that an invalid value that a later
//! layer replaces is no problem.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::path::{Path, Segment};
use crate::base::error::{Exit, Fault};
use crate::base::features;
use crate::base::settings::KeyRow;
use crate::base::settings::kind::RawValue;
use crate::sink;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    File {
        line: usize,
        column: usize,
        name: Arc<str>,
    },
    Variable(String),
    Flag {
        position: usize,
        name: String,
    },
    /// The library that a table names.
    Library(&'static str),
    Default,
}

impl Origin {
    /// For faults: with the column, if it has one.
    pub(crate) fn place(&self) -> String {
        match self {
            Origin::File { name, line, column } => format!("{name}:{line}:{column}"),
            Origin::Variable(name) => format!("environment variable {name}"),
            Origin::Flag { name, .. } => name.clone(),
            Origin::Library(_) | Origin::Default => String::new(),
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
            Origin::Library(name) => write!(f, "library {name}"),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// A fault, and the origin by which faults are sorted.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) origin: Origin,
    pub(crate) fault: Fault,
    /// The key that is wrong, as in `source.url`; empty for a problem of another kind.
    pub(crate) key: String,
}

impl Problem {
    pub(crate) fn new(
        origin: &Origin,
        code: &'static str,
        what: impl Into<String>,
        mend: impl Into<String>,
    ) -> Problem {
        let fault = Fault::new(Exit::Usage, code, what, origin.place(), mend);
        Problem { origin: origin.clone(), fault, key: String::new() }
    }

    pub(crate) fn at(
        origin: &Origin,
        path: impl fmt::Display,
        code: &'static str,
        what: &str,
        mend: impl Into<String>,
    ) -> Problem {
        let problem = Problem::new(origin, code, format!("{path}: {what}"), mend);
        Problem { key: path.to_string(), ..problem }
    }

    pub(crate) fn missing_feature(
        origin: &Origin,
        path: impl fmt::Display,
        feature: &str,
    ) -> Problem {
        let (what, mend) = features::missing(feature);
        Problem::at(origin, path, "config.missing-feature", &what, mend)
    }
}

/// The path of a key or section, if it is one of a sink that this build lacks.
pub(crate) fn of_missing_sink(path: &str, origin: &Origin) -> Option<Problem> {
    let name = path.strip_prefix("sink.")?.split('.').next()?;
    sink::is_missing(name).then(|| Problem::missing_feature(origin, path, name))
}

pub(crate) struct Entry {
    pub(crate) row: KeyRow,
    pub(crate) raw: RawValue,
    pub(crate) origin: Origin,
}

#[derive(Default)]
pub(crate) struct Layers {
    pub(crate) entries: BTreeMap<Path, Entry>,
    /// All sections that appear, even empty ones, and where each appears first.
    pub(crate) sections: BTreeMap<Path, Origin>,
    pub(crate) problems: Vec<Problem>,
}

impl Layers {
    /// The configuration file cannot be read, or is no TOML: no value comes from it.
    pub(crate) fn lacks_file(&self) -> bool {
        let codes = ["config.syntax", "config.unreadable"];
        self.problems.iter().any(|problem| codes.contains(&problem.fault.code))
    }

    pub(crate) fn set(&mut self, path: Path, row: KeyRow, raw: RawValue, origin: &Origin) {
        path.ancestors().for_each(|section| self.open(section, origin));
        self.entries.insert(path, Entry { row, raw, origin: origin.clone() });
    }

    pub(crate) fn open(&mut self, section: Path, origin: &Origin) {
        self.sections.entry(section).or_insert_with(|| origin.clone());
    }

    /// The number of elements of an array of tables.
    pub(crate) fn count(&self, array: &Path) -> usize {
        let count = |path: &Path| match path.step_below(array) {
            Some(Segment::Index(index)) => index + 1,
            Some(Segment::Name(_)) | None => 0,
        };
        self.sections.keys().map(count).max().unwrap_or(0)
    }

    /// Removes an array: a new one replaces all of its elements.
    pub(crate) fn remove_array(&mut self, array: &Path) {
        self.entries.retain(|path, _| path.step_below(array).is_none());
        self.sections.retain(|path, _| path.step_below(array).is_none());
    }

    pub(crate) fn bad(
        &mut self,
        path: &Path,
        origin: &Origin,
        what: &str,
        mend: impl Into<String>,
    ) {
        self.problems.push(Problem::at(origin, path, "config.bad-value", what, mend));
    }
}
