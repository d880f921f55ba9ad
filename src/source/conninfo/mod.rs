//! Connection strings, read the way libpq reads them.
//!
//! Both shapes are taken: `postgres://user@h1:5432,h2/db?sslmode=require` and `host=h1 dbname=db`. What
//! the string does not say comes from the `PG…` variables, then from libpq's defaults, and a password
//! that is nowhere comes from the passfile. Four deliberate differences: a parameter that would be ignored is
//! refused, nothing waits for ever (`connect_timeout=0` means the default), of several hosts the
//! primary is wanted (`target_session_attrs`), and a password is not sent over every link (`require_auth`).
//!
//! Invariant: no error carries a password, nor a piece of the string that might be one because a
//! `/`, `?`, `#` or `@` in the password was not percent-encoded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::passfile::{self, PassfileError};
use super::require_auth::RequireAuth;
use super::settings::{ConnInfo, Host, SslMode, TargetSessionAttrs};
use crate::base::secret::Secret;

mod text;

const PORT_DEFAULT: u16 = 5432;
const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
const HOSTS_MAX: usize = 32;

/// Each parameter we obey and the variable it falls back on.
const PARAMETERS: [(&str, &str); 16] = [
    ("host", "PGHOST"),
    ("port", "PGPORT"),
    ("user", "PGUSER"),
    ("password", "PGPASSWORD"),
    ("passfile", "PGPASSFILE"),
    ("dbname", "PGDATABASE"),
    ("sslmode", "PGSSLMODE"),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("sslcert", "PGSSLCERT"),
    ("sslkey", "PGSSLKEY"),
    ("require_auth", "PGREQUIREAUTH"),
    ("target_session_attrs", "PGTARGETSESSIONATTRS"),
    ("connect_timeout", "PGCONNECT_TIMEOUT"),
    ("application_name", "PGAPPNAME"),
    ("options", "PGOPTIONS"),
    ("fallback_application_name", ""),
];

/// libpq parameters that ask for what happens anyway: accepted with these values only, since many
/// providers put them into the strings they hand out.
const NEUTRAL: [(&str, &[&str]); 5] = [
    ("gssencmode", &["disable", "prefer"]),
    ("channel_binding", &["disable", "prefer"]),
    ("client_encoding", &["UTF8", "utf8", "auto"]),
    ("keepalives", &["1"]),
    ("sslnegotiation", &["postgres"]),
];

const SSL_MODES: [(&str, SslMode); 5] = [
    ("disable", SslMode::Disable),
    ("prefer", SslMode::Prefer),
    ("require", SslMode::Require),
    ("verify-ca", SslMode::VerifyCa),
    ("verify-full", SslMode::VerifyFull),
];

const SESSION_ATTRS: [(&str, TargetSessionAttrs); 6] = [
    ("any", TargetSessionAttrs::Any),
    ("read-write", TargetSessionAttrs::ReadWrite),
    ("read-only", TargetSessionAttrs::ReadOnly),
    ("primary", TargetSessionAttrs::Primary),
    ("standby", TargetSessionAttrs::Standby),
    ("prefer-standby", TargetSessionAttrs::PreferStandby),
];

/// Why a connection string cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnInfoError {
    /// Not a shape we know.
    #[error("the connection string is malformed: {0}")]
    Malformed(&'static str),
    /// A parameter nobody knows.
    #[error("unknown connection parameter `{name}`{}", suggestion.map(|s| format!("; did you mean `{s}`?")).unwrap_or_default())]
    Unknown {
        /// As written.
        name: String,
        /// The nearest one we know.
        suggestion: Option<&'static str>,
    },
    /// A value that is not among the supported ones.
    #[error("connection parameter `{name}` is `{value}`; supported: {supported}")]
    Value {
        /// The parameter.
        name: String,
        /// As written; never that of `password`.
        value: String,
        /// What would do.
        supported: String,
    },
    /// Number of ports and hosts differ.
    #[error("{hosts} hosts but {ports} ports: give one port for all, or one for each")]
    PortCount {
        /// Hosts given.
        hosts: usize,
        /// Ports given.
        ports: usize,
    },
    /// Neither the string nor the environment names a role.
    #[error("no user: write postgres://USER@host/db, or set PGUSER")]
    NoUser,
    /// The passfile cannot be used.
    #[error(transparent)]
    Passfile(#[from] PassfileError),
}

type Params = BTreeMap<&'static str, String>;

/// Reads `url` and fills what it leaves open from `env`, then from the passfile.
///
/// # Errors
/// Whatever libpq would refuse, and whatever it would silently ignore.
pub fn parse(url: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<ConnInfo, ConnInfoError> {
    let mut params = Params::new();
    let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"));
    let pairs = match rest {
        Some(rest) => text::url_pairs(rest)?,
        None => text::keyword_pairs(url)?,
    };
    for (name, value) in pairs {
        put(&mut params, &name, value)?;
    }
    for (name, variable) in PARAMETERS {
        if !params.contains_key(name)
            && let Some(value) = Some(variable).filter(|v| !v.is_empty()).and_then(env)
        {
            params.insert(name, value);
        }
    }
    // An empty value is an absent one, as in libpq.
    params.retain(|_, value| !value.is_empty());
    assemble(&params, env)
}

fn put(params: &mut Params, name: &str, value: String) -> Result<(), ConnInfoError> {
    if name == "ssl" && value == "true" {
        params.insert("sslmode", "require".to_owned());
        return Ok(());
    }
    if let Some((known, _)) = PARAMETERS.iter().find(|(known, _)| *known == name) {
        params.insert(known, value);
        return Ok(());
    }
    if let Some((_, supported)) = NEUTRAL.iter().find(|(known, _)| *known == name) {
        if supported.contains(&value.as_str()) {
            return Ok(());
        }
        return Err(unsupported(name, &value, supported.iter().copied()));
    }
    // A name that is no word may be the tail of a password; it is not shown.
    if !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_') {
        return Err(ConnInfoError::Malformed(text::ENCODE));
    }
    let known = PARAMETERS.iter().map(|p| p.0).chain(NEUTRAL.iter().map(|p| p.0));
    let suggestion = known
        .map(|known| (strsim::jaro_winkler(known, name), known))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known);
    Err(ConnInfoError::Unknown { name: name.to_owned(), suggestion })
}

fn unsupported<'a>(
    name: &str,
    value: &str,
    supported: impl IntoIterator<Item = &'a str>,
) -> ConnInfoError {
    let supported = supported.into_iter().collect::<Vec<_>>().join(", ");
    ConnInfoError::Value { name: name.to_owned(), value: value.to_owned(), supported }
}

fn one_of<T: Copy>(
    params: &Params,
    name: &'static str,
    choices: &[(&str, T)],
) -> Result<Option<T>, ConnInfoError> {
    let Some(value) = params.get(name) else { return Ok(None) };
    match choices.iter().find(|(text, _)| text == value) {
        Some((_, choice)) => Ok(Some(*choice)),
        None => Err(unsupported(name, value, choices.iter().map(|(text, _)| *text))),
    }
}

fn assemble(
    params: &Params,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<ConnInfo, ConnInfoError> {
    let text = |name| params.get(name).cloned();
    let user = text("user")
        .or_else(|| env("USER").filter(|user| !user.is_empty()))
        .or_else(|| env("LOGNAME").filter(|user| !user.is_empty()))
        .ok_or(ConnInfoError::NoUser)?;
    let hosts = hosts(params)?;
    // Of several servers the standbys are no use to a relay, and they answer first in a failover.
    let any = if hosts.len() > 1 { TargetSessionAttrs::Primary } else { TargetSessionAttrs::Any };
    let mut info = ConnInfo {
        hosts,
        password: text("password").map(Secret::new),
        dbname: text("dbname").unwrap_or_else(|| user.clone()),
        user,
        application_name: text("application_name")
            .or_else(|| text("fallback_application_name"))
            .unwrap_or_else(|| "walrelay".to_owned()),
        options: text("options"),
        connect_timeout: connect_timeout(params)?,
        sslmode: sslmode(params)?,
        sslrootcert: text("sslrootcert").map(PathBuf::from),
        sslcert: text("sslcert").map(PathBuf::from),
        sslkey: text("sslkey").map(PathBuf::from),
        require_auth: require_auth(params)?,
        target_session_attrs: one_of(params, "target_session_attrs", &SESSION_ATTRS)?
            .unwrap_or(any),
    };
    if info.password.is_none() {
        passfile::fill(&mut info, text("passfile").map(PathBuf::from), env)?;
    }
    Ok(info)
}

/// `sslrootcert=system` without name verification would trust anybody with a public certificate, so
/// it implies `verify-full` and refuses less, as in libpq.
fn sslmode(params: &Params) -> Result<SslMode, ConnInfoError> {
    let given = one_of(params, "sslmode", &SSL_MODES)?;
    if params.get("sslrootcert").is_some_and(|path| path == "system") {
        return match given {
            None | Some(SslMode::VerifyFull) => Ok(SslMode::VerifyFull),
            Some(_) => Err(unsupported(
                "sslmode",
                params.get("sslmode").map_or("", String::as_str),
                ["verify-full (the only one with sslrootcert=system)"],
            )),
        };
    }
    Ok(given.unwrap_or(SslMode::Prefer))
}

fn require_auth(params: &Params) -> Result<RequireAuth, ConnInfoError> {
    let Some(value) = params.get("require_auth") else { return Ok(RequireAuth::default()) };
    RequireAuth::parse(value).map_err(|words| unsupported("require_auth", value, words))
}

fn connect_timeout(params: &Params) -> Result<Duration, ConnInfoError> {
    let Some(value) = params.get("connect_timeout") else { return Ok(CONNECT_TIMEOUT_DEFAULT) };
    match value.trim().parse::<i32>() {
        Ok(seconds) => Ok(u64::try_from(seconds)
            .ok()
            .filter(|seconds| *seconds > 0)
            .map_or(CONNECT_TIMEOUT_DEFAULT, Duration::from_secs)),
        Err(_) => Err(unsupported("connect_timeout", value, ["whole seconds"])),
    }
}

fn hosts(params: &Params) -> Result<Vec<Host>, ConnInfoError> {
    let ports = params.get("port").map_or("", String::as_str).split(',').collect::<Vec<_>>();
    let ports = ports.into_iter().map(port).collect::<Result<Vec<_>, _>>()?;
    let names = match params.get("host") {
        Some(names) => names.split(',').map(str::to_owned).collect(),
        None => vec![String::new()],
    };
    if names.len() > HOSTS_MAX {
        return Err(ConnInfoError::Malformed("more than 32 hosts"));
    }
    if ports.len() != 1 && ports.len() != names.len() {
        return Err(ConnInfoError::PortCount { hosts: names.len(), ports: ports.len() });
    }
    let hosts = names.into_iter().enumerate().map(|(at, name)| {
        let port = ports.get(at).or(ports.first()).copied().unwrap_or(PORT_DEFAULT);
        let name = if name.is_empty() { default_host(port) } else { name };
        Host { name, port, password: None }
    });
    Ok(hosts.collect())
}

/// The value is not shown: in a URL it may be the head of a password with a bare `/`.
fn port(text: &str) -> Result<u16, ConnInfoError> {
    match text.trim() {
        "" => Ok(PORT_DEFAULT),
        text => text.parse().ok().filter(|port| *port > 0).ok_or(ConnInfoError::Malformed(
            "a port is not a number from 1 to 65535 (or the password holds a `/`, `?`, `#` or `@` \
             that is not percent-encoded)",
        )),
    }
}

/// Without a host, libpq takes the local socket it was built for; we look where distributions put it.
fn default_host(port: u16) -> String {
    ["/var/run/postgresql", "/tmp"]
        .into_iter()
        .find(|folder| Path::new(folder).join(format!(".s.PGSQL.{port}")).exists())
        .unwrap_or("localhost")
        .to_owned()
}

#[cfg(test)]
mod tests;
