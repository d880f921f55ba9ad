//! The passfile (`~/.pgpass`): passwords by host, port, database and role.
//!
//! A file that others can read is not used, as in libpq. For a file
//! that was named that is an error, since the login would only fail
//! later and less clearly; the default file is skipped with a warning.
//! Other than in libpq, the group may read a file of root, as with `sslkey`: Kubernetes mounts a Secret so.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::settings::{ConnInfo, PostgresHost};
use walrelay_base::secret::Secret;

const PASSFILE_BYTES_MAX: u64 = 1024 * 1024;

/// Why a passfile is not used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PassfileError {
    #[error("the passfile {path} cannot be read: {why}", path = .0.display(), why = .1)]
    Unreadable(PathBuf, String),
    #[error("the passfile {path} may be read or written by group or others; run: chmod 0600 {path}", path = .0.display())]
    Exposed(PathBuf),
    #[error("the passfile {} is not a plain UTF-8 file of at most 1 MiB", .0.display())]
    NotPlain(PathBuf),
}

/// Gives every host of `info` its password from the passfile. Returns the file, if it is used.
pub(super) fn fill(
    info: &mut ConnInfo,
    named: Option<PathBuf>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<PathBuf>, PassfileError> {
    if let Some(path) = named {
        return fill_from(info, &path).map(|()| Some(path));
    }
    let home = env("HOME").filter(|home| !home.is_empty());
    let default = home.map(|home| PathBuf::from(home).join(".pgpass"));
    let Some(path) = default.filter(|path| path.exists()) else { return Ok(None) };
    let filled = fill_from(info, &path).inspect_err(
        |error| tracing::warn!(code = "source.passfile-unused", %error, "passfile not used"),
    );
    Ok(filled.is_ok().then_some(path))
}

/// Gives every host of `info` its password as the file has it now.
pub(super) fn fill_from(info: &mut ConnInfo, path: &Path) -> Result<(), PassfileError> {
    let text = read(path)?;
    let (user, dbname) = (&info.user, &info.dbname);
    for host in &mut info.hosts {
        host.password = lookup(&text, host, dbname, user);
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, PassfileError> {
    let unreadable =
        |error: std::io::Error| PassfileError::Unreadable(path.to_owned(), error.to_string());
    let meta = std::fs::metadata(path).map_err(unreadable)?;
    if !meta.is_file() || meta.len() > PASSFILE_BYTES_MAX {
        return Err(PassfileError::NotPlain(path.to_owned()));
    }
    if is_exposed(meta.mode(), meta.uid()) {
        return Err(PassfileError::Exposed(path.to_owned()));
    }
    std::fs::read_to_string(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidData => PassfileError::NotPlain(path.to_owned()),
        _ => unreadable(error),
    })
}

/// A process that reads a file of root through its group cannot change the mode of that file.
fn is_exposed(mode: u32, uid: u32) -> bool {
    let denied = if uid == 0 { 0o027 } else { 0o077 };
    mode & denied != 0
}

/// The first line that matches is used, as in libpq. For a socket in one of the default directories
/// `localhost` matches, too.
fn lookup(text: &str, host: &PostgresHost, dbname: &str, user: &str) -> Option<Secret> {
    let port = host.port.to_string();
    let local = ["/tmp", "/var/run/postgresql"].contains(&host.name.as_str());
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = split(line)?;
        let [on_host, on_port, on_dbname, on_user, password] = &fields;
        let is = |field: &Field, value: &str| field.any || field.text == value;
        let at_host = is(on_host, &host.name) || (local && on_host.text == "localhost");
        let found = at_host && is(on_port, &port) && is(on_dbname, dbname) && is(on_user, user);
        found.then(|| Secret::new(&password.text))
    })
}

#[derive(Default)]
struct Field {
    text: String,
    /// It is a `*` that is not escaped.
    any: bool,
}

/// Five fields; a backslash escapes the next character. The password ends with the line.
fn split(line: &str) -> Option<[Field; 5]> {
    let mut fields: [Field; 5] = Default::default();
    let mut at = 0;
    let mut raw_start = 0;
    let mut chars = line.char_indices();
    while let Some((offset, c)) = chars.next() {
        match c {
            '\\' => fields[at].text.extend(chars.next().map(|(_, escaped)| escaped)),
            ':' if at < 4 => {
                fields[at].any = &line[raw_start..offset] == "*";
                at += 1;
                raw_start = offset + 1;
            }
            c => fields[at].text.push(c),
        }
    }
    (at == 4 && !fields[4].text.is_empty()).then_some(fields)
}

#[cfg(test)]
#[path = "passfile_tests.rs"]
mod tests;
