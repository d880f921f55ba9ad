//! The values as they were given: file, environment and flags are merged into one [`Tree`]. Values are
//! parsed only when it is complete, so that an invalid value that a later layer replaces is no problem.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::kind::Raw;
use super::path::Path;
use crate::base::error::{Exit, Fault};

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
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
    fn place(&self) -> String {
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
            Origin::Flag { name, .. } => f.write_str(name.split(' ').next().unwrap_or_default()),
            Origin::Library(name) => write!(f, "library {name}"),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// A fault, and the origin by which faults are sorted.
#[derive(Debug)]
pub struct Problem {
    pub origin: Origin,
    pub fault: Fault,
    /// The key that is wrong, as in `source.url`; empty for a problem of another kind.
    pub key: String,
}

impl Problem {
    pub fn new(
        origin: &Origin,
        code: &'static str,
        what: impl Into<String>,
        mend: impl Into<String>,
    ) -> Problem {
        let fault = Fault::new(Exit::Usage, code, what, origin.place(), mend);
        Problem { origin: origin.clone(), fault, key: String::new() }
    }

    pub fn at(
        origin: &Origin,
        path: impl fmt::Display,
        code: &'static str,
        what: &str,
        mend: impl Into<String>,
    ) -> Problem {
        let problem = Problem::new(origin, code, format!("{path}: {what}"), mend);
        Problem { key: path.to_string(), ..problem }
    }
}

pub struct Given {
    pub raw: Raw,
    pub origin: Origin,
}

#[derive(Default)]
pub struct Tree {
    /// Values, and sections where they appear first.
    pub given: BTreeMap<Path, Given>,
    pub problems: Vec<Problem>,
    /// The environment, which secrets may refer to.
    pub variables: BTreeMap<String, String>,
}

impl Tree {
    pub fn set(&mut self, path: Path, raw: Raw, origin: &Origin) {
        path.sections().for_each(|section| self.open(section, origin));
        self.given.insert(path, Given { raw, origin: origin.clone() });
    }

    /// Adds a section, which may be empty.
    pub fn open(&mut self, section: Path, origin: &Origin) {
        let given = || Given { raw: Raw::Section, origin: origin.clone() };
        self.given.entry(section).or_insert_with(given);
    }

    /// The indices of an array of sections.
    pub fn indices(&self, array: &Path) -> BTreeSet<usize> {
        self.given.keys().filter_map(|path| path.index_in(array)).collect()
    }

    /// Removes an array: a new one replaces all of its elements.
    pub fn remove_array(&mut self, array: &Path) {
        self.given.retain(|path, _| path.index_in(array).is_none());
    }

    /// The entries of a map.
    pub fn entries(&self, map: &Path) -> Vec<Path> {
        self.given.keys().filter(|path| path.parent() == *map).cloned().collect()
    }

    pub fn bad(&mut self, path: &Path, origin: &Origin, what: &str, mend: impl Into<String>) {
        self.problems.push(Problem::at(origin, path, "config.bad-value", what, mend));
    }

    /// Where a problem with this path is: where its value was given, else where the section that it is in
    /// begins in the file.
    pub fn origin(&self, path: &Path) -> Origin {
        let of = |path: &Path| self.given.get(path).map(|given| &given.origin);
        let is_section =
            self.given.get(path).is_some_and(|given| matches!(given.raw, Raw::Section));
        let own = of(path).filter(|it| !is_section && !matches!(it, Origin::Library(_)));
        let sections: Vec<&Origin> = path.sections().filter_map(|section| of(&section)).collect();
        let mut of_file = sections.into_iter().rev().filter(|it| matches!(it, Origin::File { .. }));
        own.or_else(|| of_file.next()).cloned().unwrap_or(Origin::Default)
    }
}
