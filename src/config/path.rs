//! The path of a configured value: `source.outbox[0].table`. File, environment and `--set` use the
//! same paths, so that a later layer replaces exactly what an earlier one has set.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Segment {
    Name(String),
    Index(usize),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Path(Vec<Segment>);

impl Path {
    pub(crate) fn of(names: &[&str]) -> Path {
        Path(names.iter().map(|name| Segment::Name((*name).to_owned())).collect())
    }

    pub(crate) fn child(&self, name: &str) -> Path {
        self.below(Segment::Name(name.to_owned()))
    }

    pub(crate) fn index(&self, index: usize) -> Path {
        self.below(Segment::Index(index))
    }

    fn below(&self, step: Segment) -> Path {
        Path(self.0.iter().cloned().chain([step]).collect())
    }

    pub(crate) fn parent(&self) -> Path {
        Path(self.0[..self.0.len().saturating_sub(1)].to_vec())
    }

    /// The last name; empty for the root and for an index.
    pub(crate) fn last(&self) -> &str {
        match self.0.last() {
            Some(Segment::Name(name)) => name,
            Some(Segment::Index(_)) | None => "",
        }
    }

    /// The step after `parent`, if the path is below it.
    pub(crate) fn step_below(&self, parent: &Path) -> Option<&Segment> {
        if self.0.starts_with(&parent.0) { self.0.get(parent.0.len()) } else { None }
    }

    pub(crate) fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Every path above it except the root.
    pub(crate) fn ancestors(&self) -> impl Iterator<Item = Path> + '_ {
        (1..self.0.len()).map(|length| Path(self.0[..length].to_vec()))
    }

    /// The header of its table in a TOML file, which has no indices.
    pub(crate) fn header(&self) -> String {
        let named = |segment: &&Segment| matches!(segment, Segment::Name(_));
        Path(self.0.iter().filter(named).cloned().collect()).to_string()
    }
}

/// A TOML key, quoted only if TOML requires it.
pub(crate) fn bare_or_quoted(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(bare) {
        name.to_owned()
    } else {
        toml::Value::String(name.to_owned()).to_string()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Name(name) => {
                    let dot = if position == 0 { "" } else { "." };
                    write!(f, "{dot}{}", bare_or_quoted(name))?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;
