//! A value that must never appear in logs, errors, `config show`, panics or `Debug`.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// Prints as `***`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret {
    value: String,
    /// Where it came from.
    file: Option<Arc<Path>>,
}

impl Secret {
    pub fn new(value: impl Into<String>) -> Secret {
        Secret { value: value.into(), file: None }
    }

    /// The value that this file held.
    pub fn of(value: String, file: Arc<Path>) -> Secret {
        Secret { value, file: Some(file) }
    }

    /// The file that holds it, where it may be another one later.
    #[must_use]
    pub fn file(&self) -> Option<&Arc<Path>> {
        self.file.as_ref()
    }

    /// The same secret with a value that it had at another time.
    #[must_use]
    pub fn with_value(&self, value: &str) -> Secret {
        Secret { value: value.to_owned(), file: self.file.clone() }
    }

    /// It may be another one at the next connection.
    #[must_use]
    pub fn is_of_file(&self) -> bool {
        self.file.is_some()
    }

    /// The value, for client libraries only.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.value
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.value.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_prints_as_stars() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret} {secret:?}"), "*** ***");
        assert_eq!(secret.expose(), "hunter2");
    }
}
