//! The path of a configured value: `source.outbox[0].table`. File, environment and `--set` use the
//! same paths, so that a later layer replaces exactly what an earlier one has set.

use std::fmt;

use serde_json::Value as Json;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Name(String),
    Index(usize),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(Vec<Step>);

impl Path {
    pub fn of(names: &[&str]) -> Path {
        names.iter().fold(Path::default(), |path, name| path.child(name))
    }

    #[must_use]
    pub fn child(&self, name: &str) -> Path {
        Path([&*self.0, &[Step::Name(name.to_owned())]].concat())
    }

    #[must_use]
    pub fn index(&self, index: usize) -> Path {
        Path([&*self.0, &[Step::Index(index)]].concat())
    }

    #[must_use]
    pub fn parent(&self) -> Path {
        Path(self.0[..self.0.len().saturating_sub(1)].to_vec())
    }

    /// The last name; empty for the root and for an index.
    pub fn name(&self) -> &str {
        if let Some(Step::Name(name)) = self.0.last() { name } else { "" }
    }

    /// The index of the element that this is, or that this is in.
    pub fn index_in(&self, array: &Path) -> Option<usize> {
        match self.0.strip_prefix(&*array.0) {
            Some([Step::Index(index), ..]) => Some(*index),
            _ => None,
        }
    }

    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Every section that the path is in, except the root.
    pub fn sections(&self) -> impl Iterator<Item = Path> + '_ {
        (1..self.0.len()).map(|length| Path(self.0[..length].to_vec()))
    }

    /// The header of its table in a TOML file, which has no indices.
    pub fn header(&self) -> String {
        self.spelled(|_| String::new())
    }

    /// The path as it is documented, with `[]` for every index.
    pub fn pattern(&self) -> String {
        self.spelled(|_| "[]".to_owned())
    }

    fn spelled(&self, index: impl Fn(usize) -> String) -> String {
        let mut text = String::new();
        for step in &self.0 {
            match step {
                Step::Index(number) => text += &index(*number),
                Step::Name(name) => {
                    text += if text.is_empty() { "" } else { "." };
                    text += &bare_or_quoted(name);
                }
            }
        }
        text
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spelled(|index| format!("[{index}]")))
    }
}

/// A TOML key, quoted only if TOML requires it.
pub fn bare_or_quoted(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(is_bare) {
        return name.to_owned();
    }
    // The escapes of JSON are those of TOML; without any, a text is easier to read in single quotes.
    match name.contains(['"', '\\']) && !name.contains(|c: char| c == '\'' || c.is_control()) {
        true => format!("'{name}'"),
        false => Json::from(name).to_string(),
    }
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;
