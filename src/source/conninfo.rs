//! Connection strings, read the way libpq reads them.
//!
//! Both shapes are taken: `postgres://user@h1:5432,h2/db?sslmode=require` and `host=h1 dbname=db`. What
//! the string does not say comes from the `PG…` variables, then from libpq's defaults, and a password
//! that is nowhere comes from the passfile. Four deliberate differences: a parameter that would be
//! ignored is refused, nothing waits for ever (`connect_timeout=0` means the default), of several hosts
//! the primary is wanted (`target_session_attrs`), and a password is not sent over every link
//! (`require_auth`).
//!
//! Invariant: no error carries a password, nor a piece of the string that might be one because a
//! `/`, `?`, `#` or `@` in the password was not percent-encoded. So messages about the shape are fixed
//! text.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::passfile::{self, PassfileError};
use super::require_auth::RequireAuth;
use super::settings::{ConnInfo, PostgresHost, SslMode, TargetSessionAttrs};
use crate::base::encoding::{PercentError, percent_decode};
use crate::base::secret::Secret;
use crate::base::text::nearest;

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

/// The usual cause of a URL that falls apart in an odd place.
const ENCODE: ConnInfoError = ConnInfoError::Malformed(
    "a parameter has an impossible name or no `=` (a `/`, `?`, `#`, `&` or `@` in a user or password \
     must be percent-encoded: %2F %3F %23 %26 %40)",
);

/// Why a connection string cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnInfoError {
    /// Not a shape we know.
    #[error("the connection string is malformed: {0}")]
    Malformed(&'static str),
    /// A parameter nobody knows, and a question whether the nearest one that we know is meant.
    #[error("unknown connection parameter `{0}`{1}")]
    Unknown(String, String),
    /// A parameter's value, never that of `password`, and the supported ones.
    #[error("connection parameter `{0}` is `{1}`; supported: {2}")]
    Value(String, String, String),
    /// Numbers of hosts and ports differ.
    #[error("{0} hosts but {1} ports: give one port for all, or one for each")]
    PortCount(usize, usize),
    /// Neither the string nor the environment names a role.
    #[error("no user: write postgres://USER@host/db, or set PGUSER")]
    NoUser,
    /// The passfile cannot be used.
    #[error(transparent)]
    Passfile(#[from] PassfileError),
}

type Pairs = Vec<(String, String)>;

/// Reads `url` and fills what it leaves open from `env`, then from the passfile. Refuses what libpq
/// would refuse, and what it would silently ignore.
pub fn parse(url: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<ConnInfo, ConnInfoError> {
    let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"));
    let pairs = match rest {
        Some(rest) => url_pairs(rest)?,
        None => keyword_pairs(url)?,
    };
    let mut params = Params::default();
    for (name, value) in pairs {
        params.put(&name, value)?;
    }
    for (name, variable) in PARAMETERS.iter().filter(|(_, variable)| !variable.is_empty()) {
        if let (false, Some(value)) = (params.0.contains_key(name), env(variable)) {
            params.0.insert(name, value);
        }
    }
    // An empty value is an absent one, as in libpq.
    params.0.retain(|_, value| !value.is_empty());
    params.assemble(env)
}

/// What the string and the environment say, by parameter.
#[derive(Default)]
struct Params(BTreeMap<&'static str, String>);

impl Params {
    fn put(&mut self, name: &str, value: String) -> Result<(), ConnInfoError> {
        if name == "ssl" && value == "true" {
            self.0.insert("sslmode", "require".to_owned());
            return Ok(());
        }
        if let Some((known, _)) = PARAMETERS.iter().find(|(known, _)| *known == name) {
            self.0.insert(known, value);
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
            return Err(ENCODE);
        }
        let known = PARAMETERS.iter().map(|p| p.0).chain(NEUTRAL.iter().map(|p| p.0));
        let question = nearest(name, known).map(|known| format!("; did you mean `{known}`?"));
        Err(ConnInfoError::Unknown(name.to_owned(), question.unwrap_or_default()))
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn text(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        self.text(name).map(PathBuf::from)
    }

    fn one_of<T: Copy>(
        &self,
        name: &str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, ConnInfoError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match choices.iter().find(|(text, _)| *text == value) {
            Some((_, choice)) => Ok(Some(*choice)),
            None => Err(unsupported(name, value, choices.iter().map(|(text, _)| *text))),
        }
    }

    fn assemble(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<ConnInfo, ConnInfoError> {
        let login = |variable| env(variable).filter(|user| !user.is_empty());
        let user = self.text("user").or_else(|| login("USER")).or_else(|| login("LOGNAME"));
        let user = user.ok_or(ConnInfoError::NoUser)?;
        let hosts = self.hosts()?;
        // Of several servers the standbys are no use to a relay, and they answer first in a failover.
        let attrs = match hosts.len() {
            1 => TargetSessionAttrs::Any,
            _ => TargetSessionAttrs::Primary,
        };
        let mut info = ConnInfo {
            hosts,
            password: self.text("password").map(Secret::new),
            dbname: self.text("dbname").unwrap_or_else(|| user.clone()),
            user,
            application_name: self
                .text("application_name")
                .or_else(|| self.text("fallback_application_name"))
                .unwrap_or_else(|| "walrelay".to_owned()),
            options: self.text("options"),
            connect_timeout: self.connect_timeout()?,
            sslmode: self.sslmode()?,
            sslrootcert: self.path("sslrootcert"),
            sslcert: self.path("sslcert"),
            sslkey: self.path("sslkey"),
            require_auth: self.require_auth()?,
            target_session_attrs: self
                .one_of("target_session_attrs", &TargetSessionAttrs::WORDS)?
                .unwrap_or(attrs),
        };
        if info.password.is_none() {
            passfile::fill(&mut info, self.path("passfile"), env)?;
        }
        Ok(info)
    }

    /// `sslrootcert=system` without name verification would trust anybody with a public certificate,
    /// so it implies `verify-full` and refuses less, as in libpq.
    fn sslmode(&self) -> Result<SslMode, ConnInfoError> {
        let given = self.one_of("sslmode", &SSL_MODES)?;
        if self.get("sslrootcert") != Some("system") {
            return Ok(given.unwrap_or(SslMode::Prefer));
        }
        match given {
            None | Some(SslMode::VerifyFull) => Ok(SslMode::VerifyFull),
            Some(_) => {
                let only = "verify-full (the only one with sslrootcert=system)";
                Err(unsupported("sslmode", self.get("sslmode").unwrap_or_default(), [only]))
            }
        }
    }

    fn require_auth(&self) -> Result<RequireAuth, ConnInfoError> {
        let Some(value) = self.get("require_auth") else { return Ok(RequireAuth::default()) };
        RequireAuth::parse(value).map_err(|words| unsupported("require_auth", value, words))
    }

    fn connect_timeout(&self) -> Result<Duration, ConnInfoError> {
        let Some(value) = self.get("connect_timeout") else { return Ok(CONNECT_TIMEOUT_DEFAULT) };
        let seconds = value.trim().parse::<i32>();
        let seconds =
            seconds.map_err(|_| unsupported("connect_timeout", value, ["whole seconds"]))?;
        let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
        Ok(seconds.map_or(CONNECT_TIMEOUT_DEFAULT, Duration::from_secs))
    }

    fn hosts(&self) -> Result<Vec<PostgresHost>, ConnInfoError> {
        let ports = self.get("port").unwrap_or_default().split(',').map(port);
        let ports = ports.collect::<Result<Vec<_>, _>>()?;
        let names: Vec<&str> = self.get("host").unwrap_or_default().split(',').collect();
        if names.len() > HOSTS_MAX {
            return Err(ConnInfoError::Malformed("more than 32 hosts"));
        }
        if ports.len() != 1 && ports.len() != names.len() {
            return Err(ConnInfoError::PortCount(names.len(), ports.len()));
        }
        let hosts = names.into_iter().enumerate().map(|(at, name)| {
            let port = ports.get(at).or(ports.first()).copied().unwrap_or(PORT_DEFAULT);
            let name = if name.is_empty() { default_host(port) } else { name.to_owned() };
            PostgresHost { name, port, password: None }
        });
        Ok(hosts.collect())
    }
}

fn unsupported<'a>(
    name: &str,
    value: &str,
    supported: impl IntoIterator<Item = &'a str>,
) -> ConnInfoError {
    let supported = supported.into_iter().collect::<Vec<_>>().join(", ");
    ConnInfoError::Value(name.to_owned(), value.to_owned(), supported)
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

/// What follows `postgres://`: `user:password@h1:p1,h2:p2/dbname?name=value&…`. No URL parser takes
/// several hosts.
fn url_pairs(rest: &str) -> Result<Pairs, ConnInfoError> {
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    // All three mean that a password was cut in two; going on would print its pieces as names.
    let cut = path.contains(['@', '/'])
        || rest.contains('#')
        || (query.contains('@') && !authority.contains('@') && authority.contains(':'));
    if cut {
        return Err(ENCODE);
    }
    let (login, servers) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let servers = servers.split(',').map(server).collect::<Result<Vec<_>, _>>()?;
    let (names, ports): (Vec<String>, Vec<String>) = servers.into_iter().unzip();
    // All ports open: the parameter stays open too, so that PGPORT can fill it.
    let list = |all: Vec<String>| match all.iter().all(String::is_empty) {
        true => String::new(),
        false => all.join(","),
    };
    let mut pairs: Pairs = [
        ("user", decode(user)?),
        ("password", decode(password)?),
        ("dbname", decode(path)?),
        ("host", list(names)),
        ("port", list(ports)),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or(ENCODE)?;
        if value.contains('=') {
            return Err(ConnInfoError::Malformed("a parameter has two `=` (write %3D in a value)"));
        }
        pairs.push((decode(name)?, decode(value)?));
    }
    Ok(pairs)
}

/// Name and port of one server.
fn server(text: &str) -> Result<(String, String), ConnInfoError> {
    let (name, port) = match text.strip_prefix('[') {
        None => text.split_once(':').unwrap_or((text, "")),
        Some(bracketed) => {
            let parts = bracketed.split_once(']');
            let (name, after) =
                parts.ok_or(ConnInfoError::Malformed("an IPv6 address lacks its `]`"))?;
            let port = if after.is_empty() { Some("") } else { after.strip_prefix(':') };
            let stray = ConnInfoError::Malformed("text after the `]` of an address");
            (name, port.ok_or(stray)?)
        }
    };
    Ok((decode(name)?, decode(port)?))
}

fn decode(text: &str) -> Result<String, ConnInfoError> {
    percent_decode(text).map_err(|malformed| {
        ConnInfoError::Malformed(match malformed {
            PercentError::Digits => "a `%` is not followed by two hexadecimal digits (write %25)",
            PercentError::Nul => "%00 is not allowed",
            PercentError::NotUtf8 => "a percent-encoded text is not UTF-8",
        })
    })
}

/// `name = value name='va l\'ue'`, spaces around `=` allowed.
fn keyword_pairs(text: &str) -> Result<Pairs, ConnInfoError> {
    let mut pairs = Pairs::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=').ok_or(ConnInfoError::Malformed(
            "expected postgres://user@host/db, or name=value pairs (a value with a space needs quotes)",
        ))?;
        let name = name.trim_end();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(ConnInfoError::Malformed(
                "a parameter lacks its `=` (a value with a space needs quotes: name='va lue')",
            ));
        }
        let (value, after) = keyword_value(after.trim_start())?;
        pairs.push((name.to_owned(), value));
        rest = after.trim_start();
    }
    Ok(pairs)
}

fn keyword_value(text: &str) -> Result<(String, &str), ConnInfoError> {
    let quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut chars = text.char_indices().skip(usize::from(quoted));
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            '\'' if quoted => return Ok((value, &text[at + 1..])),
            c if !quoted && c.is_whitespace() => return Ok((value, &text[at..])),
            c => value.push(c),
        }
    }
    if quoted {
        return Err(ConnInfoError::Malformed("a quoted value lacks its closing quote"));
    }
    Ok((value, ""))
}

#[cfg(test)]
#[path = "conninfo_tests.rs"]
mod tests;
