//! User and passwords that come from files: a `source.url` that is one, and the passfile. They are
//! read again for each connection, so that a password which was changed needs no restart.
//!
//! Only the login of another URL is taken; where Postgres is stays as it was at the start.

use std::borrow::Cow;

use super::settings::ConnInfo;
use super::{conninfo, passfile};
use walrelay_base::secret::SecretFile as _;

/// Why user and password cannot be read now. Never quotes them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LoginUnread(String);

impl LoginUnread {
    fn of(why: impl ToString) -> LoginUnread {
        LoginUnread(why.to_string())
    }
}

/// With user and passwords as they are now.
pub(super) fn current(of: &ConnInfo) -> Result<Cow<'_, ConnInfo>, LoginUnread> {
    let mut info = Cow::Borrowed(of);
    if let Some(url) = &of.login_files.url {
        let url = url.current().map_err(LoginUnread::of)?;
        if url.is_empty() {
            return Err(LoginUnread::of("the file of source.url is empty"));
        }
        let now = conninfo::parse(url.expose(), &|name| std::env::var(name).ok());
        take_login_of(info.to_mut(), now.map_err(LoginUnread::of)?);
    } else if let Some(path) = &of.login_files.passfile {
        passfile::fill_from(info.to_mut(), path).map_err(LoginUnread::of)?;
    }
    Ok(info)
}

fn take_login_of(info: &mut ConnInfo, other: ConnInfo) {
    (info.user, info.password) = (other.user, other.password);
    for host in &mut info.hosts {
        let same = other.hosts.iter().find(|it| (&it.name, it.port) == (&host.name, host.port));
        host.password = same.and_then(|same| same.password.clone());
    }
}

#[cfg(test)]
#[path = "login_files_tests.rs"]
mod tests;
