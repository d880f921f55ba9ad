//! A value that must never appear in logs, errors, `config show`, panics or `Debug`.
//!
//! One that was given as `{ file = … }` is read again whenever a connection is made ([`Secret::current`]),
//! so that a password which was changed needs no restart.

use std::borrow::Cow;
use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use super::error::{Exit, Fault};

/// The code of a secret whose file cannot be read while the relay runs: it may be readable again.
pub const SECRET_UNREAD: &str = "config.secret-unread";

/// Prints as `***`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret {
    value: String,
    /// Where it came from.
    file: Option<Arc<Path>>,
}

/// Why the file of a secret cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {}: {why}", .path.display())]
pub struct SecretUnread {
    path: Arc<Path>,
    why: ErrorKind,
}

impl SecretUnread {
    pub(crate) fn mend(&self) -> String {
        format!("ls -l {}", self.path.display())
    }

    pub(crate) fn fault(&self, place: &str) -> Fault {
        Fault::new(Exit::Failed, SECRET_UNREAD, self.to_string(), place, self.mend())
    }
}

impl Secret {
    pub fn new(value: impl Into<String>) -> Secret {
        Secret { value: value.into(), file: None }
    }

    /// What the file holds, without a line end at its end.
    pub(crate) fn of_file(path: &Path) -> Result<Secret, SecretUnread> {
        Secret::read(&Arc::from(path))
    }

    fn read(path: &Arc<Path>) -> Result<Secret, SecretUnread> {
        let text = std::fs::read_to_string(path);
        let text =
            text.map_err(|error| SecretUnread { path: Arc::clone(path), why: error.kind() })?;
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let value = line.strip_suffix('\r').unwrap_or(line).to_owned();
        Ok(Secret { value, file: Some(Arc::clone(path)) })
    }

    /// The secret as it is now: what came from a file is read again.
    pub(crate) fn current(&self) -> Result<Cow<'_, Secret>, SecretUnread> {
        match &self.file {
            Some(path) => Secret::read(path).map(Cow::Owned),
            None => Ok(Cow::Borrowed(self)),
        }
    }

    /// The same secret with a value that it had at another time.
    pub(crate) fn with_value(&self, value: &str) -> Secret {
        Secret { value: value.to_owned(), file: self.file.clone() }
    }

    /// It may be another one at the next connection.
    pub(crate) fn is_of_file(&self) -> bool {
        self.file.is_some()
    }

    /// The value, for client libraries only.
    pub fn expose(&self) -> &str {
        &self.value
    }

    pub fn is_empty(&self) -> bool {
        self.value.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
#[path = "secret_tests.rs"]
mod tests;
