//! Secrets in files. One that was given as `{ file = … }` is read again whenever a connection is made
//! ([`SecretFile::current`]), so that a password which was changed needs no restart.

use std::borrow::Cow;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

pub use walrelay_core::base::secret::Secret;

use super::error::{Exit, Fault};
use super::settings::kind::BadValue;

/// The code of a secret whose file cannot be read.
pub const SECRET_UNREAD: &str = "config.secret-unread";

/// Why the file of a secret cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {}: {}", .path.display(), reason(.why))]
pub struct SecretUnread {
    path: Arc<Path>,
    why: ErrorKind,
}

impl SecretUnread {
    pub fn mend(&self) -> String {
        let path = self.path.display();
        let look = format!("ls -l {path}");
        match self.why {
            ErrorKind::InvalidData => return format!("save it as UTF-8: file {path}"),
            ErrorKind::NotFound if self.path.is_relative() => {}
            _ => return look,
        }
        let folder = std::env::current_dir().map(|folder| format!(" ({})", folder.display()));
        format!(
            "{look}; a relative path begins at the working directory{}: write the whole path",
            folder.unwrap_or_default()
        )
    }

    pub fn fault(&self, place: &str) -> Fault {
        Fault::new(Exit::Failed, SECRET_UNREAD, self.to_string(), place, self.mend()).passing()
    }
}

fn reason(why: &ErrorKind) -> String {
    match why {
        ErrorKind::NotFound => "no such file".to_owned(),
        ErrorKind::InvalidData => "it is not UTF-8".to_owned(),
        other => other.to_string(),
    }
}

/// A secret whose value is in a file.
pub trait SecretFile: Sized {
    /// Reads the text of the file, without a line end at its end.
    fn of_file(path: &Path) -> Result<Self, SecretUnread>;

    /// The secret as it is now: what came from a file is read again.
    fn current(&self) -> Result<Cow<'_, Secret>, SecretUnread>;
}

impl SecretFile for Secret {
    fn of_file(path: &Path) -> Result<Secret, SecretUnread> {
        read(&Arc::from(path))
    }

    fn current(&self) -> Result<Cow<'_, Secret>, SecretUnread> {
        match self.file() {
            Some(path) => read(path).map(Cow::Owned),
            None => Ok(Cow::Borrowed(self)),
        }
    }
}

/// For a setting; a later start may read it.
pub fn read_file(path: &Path) -> Result<Secret, BadValue> {
    let bad = |unread: SecretUnread| BadValue {
        what: unread.to_string(),
        mend: unread.mend(),
        may_pass: true,
    };
    Secret::of_file(path).map_err(bad)
}

fn read(path: &Arc<Path>) -> Result<Secret, SecretUnread> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| SecretUnread { path: Arc::clone(path), why: error.kind() })?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let value = line.strip_suffix('\r').unwrap_or(line).to_owned();
    Ok(Secret::of(value, Arc::clone(path)))
}

#[cfg(test)]
#[path = "secret_tests.rs"]
mod tests;
