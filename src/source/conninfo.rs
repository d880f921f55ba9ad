//! `source.url` as connection information: the simple URL form only.

use std::time::Duration;

use super::settings::{ConnInfo, Host, SslMode, TargetSessionAttrs};
use crate::secret::Secret;

/// A URL that is no connection information. Never quotes the URL: it may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnInfoError {
    /// Not `postgres://`.
    #[error("the URL does not begin with postgres:// or postgresql://")]
    Scheme,
    /// A port that is none.
    #[error("the port is not a number from 1 to 65535")]
    Port,
}

/// Parses `url`; `env` gives what the URL leaves out.
pub fn parse(url: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<ConnInfo, ConnInfoError> {
    let rest = url
        .strip_prefix("postgres://")
        .or_else(|| url.strip_prefix("postgresql://"))
        .ok_or(ConnInfoError::Scheme)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, dbname) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, address) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (user, Some(Secret::new(password))),
        None => (login, env("PGPASSWORD").map(Secret::new)),
    };
    let (name, port) = address.split_once(':').unwrap_or((address, "5432"));
    let port = port.parse().map_err(|_| ConnInfoError::Port)?;
    let sslmode = match query.split('&').find_map(|pair| pair.strip_prefix("sslmode=")) {
        Some("disable") => SslMode::Disable,
        Some("require") => SslMode::Require,
        Some("verify-ca") => SslMode::VerifyCa,
        Some("verify-full") => SslMode::VerifyFull,
        Some(_) | None => SslMode::Prefer,
    };
    Ok(ConnInfo {
        hosts: vec![Host { name: name.to_owned(), port, password: None }],
        user: user.to_owned(),
        password,
        dbname: dbname.to_owned(),
        application_name: "walrelay".to_owned(),
        options: None,
        connect_timeout: Duration::from_secs(10),
        sslmode,
        sslrootcert: None,
        sslcert: None,
        sslkey: None,
        target_session_attrs: TargetSessionAttrs::Any,
    })
}
