//! User and passwords that come from files: a `source.url` that is one, and the passfile. They are
//! read again for each connection, so that a password which was changed needs no restart.
//!
//! Of another URL only the login is taken; where Postgres is stays as it was at the start.

use std::borrow::Cow;

use super::settings::ConnInfo;
use super::{conninfo, passfile};

/// Why user and password cannot be read now. Never quotes them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LoginUnread(String);

impl LoginUnread {
    fn of(why: impl ToString) -> LoginUnread {
        LoginUnread(why.to_string())
    }
}

impl ConnInfo {
    /// With user and passwords as they are now.
    pub(super) fn current(&self) -> Result<Cow<'_, ConnInfo>, LoginUnread> {
        let mut info = Cow::Borrowed(self);
        if let Some(url) = &self.login_files.url {
            let url = url.current().map_err(LoginUnread::of)?;
            let now = conninfo::parse(url.expose(), &|name| std::env::var(name).ok());
            info.to_mut().take_login_of(now.map_err(LoginUnread::of)?);
        } else if let Some(path) = &self.login_files.passfile {
            passfile::fill_from(info.to_mut(), path).map_err(LoginUnread::of)?;
        }
        Ok(info)
    }

    fn take_login_of(&mut self, other: ConnInfo) {
        (self.user, self.password) = (other.user, other.password);
        for host in &mut self.hosts {
            let same = other.hosts.iter().find(|it| (&it.name, it.port) == (&host.name, host.port));
            host.password = same.and_then(|same| same.password.clone());
        }
    }
}

#[cfg(test)]
#[path = "login_files_tests.rs"]
mod tests;
