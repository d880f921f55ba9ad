//! File, environment and flags laid over each other: one raw value and one origin per path.
//!
//! Only names are judged here. Values are read only once every layer is in place, so a value that a
//! later layer replaces is never complained about.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::path::{Path, Segment};
use crate::base::error::{Exit, Fault};
use crate::base::settings::KeyRow;
use crate::base::settings::kind::RawValue;

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
    pub(crate) fn new(
        origin: &Origin,
        code: &'static str,
        what: impl Into<String>,
        mend: impl Into<String>,
    ) -> Problem {
        let fault = Fault::new(Exit::Usage, code, what, origin.place(), mend);
        Problem { origin: origin.clone(), fault }
    }

    /// A problem of the value at `path`.
    pub(crate) fn at(
        origin: &Origin,
        path: impl fmt::Display,
        code: &'static str,
        what: &str,
        mend: impl Into<String>,
    ) -> Problem {
        Problem::new(origin, code, format!("{path}: {what}"), mend)
    }
}

/// A raw value.
pub(crate) struct Entry {
    pub(crate) row: KeyRow,
    pub(crate) raw: RawValue,
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

impl Layers {
    pub(crate) fn set(&mut self, path: Path, row: KeyRow, raw: RawValue, origin: &Origin) {
        path.ancestors().for_each(|section| self.open(section, origin));
        self.entries.insert(path, Entry { row, raw, origin: origin.clone() });
    }

    pub(crate) fn open(&mut self, section: Path, origin: &Origin) {
        self.sections.entry(section).or_insert_with(|| origin.clone());
    }

    /// How many elements an array of tables has.
    pub(crate) fn count(&self, array: &Path) -> usize {
        let ends = self.sections.keys().filter_map(|path| match path.step_below(array) {
            Some(Segment::Index(index)) => Some(index + 1),
            Some(Segment::Name(_)) | None => None,
        });
        ends.max().unwrap_or(0)
    }

    /// An array given anew replaces the old one whole.
    pub(crate) fn forget(&mut self, array: &Path) {
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
