//! Connection strings, read the way libpq reads them.
//!
//! Both forms are read: `postgres://user@h1:5432,h2/db?sslmode=require` and `host=h1 dbname=db`. A
//! parameter that is absent comes from its `PG…` variable, then from libpq's default, and a
//! password that is absent comes from the passfile. Four deliberate differences: a parameter that
//! would be ignored is refused, nothing waits for ever (`connect_timeout=0` means the default), of
//! several hosts the primary is wanted (`target_session_attrs`), and a password is not sent over
//! every link (`require_auth`).
//!
//! Invariant: no error contains a password, nor a piece of the string that might be one because a
//! `/`, `?`, `#` or `@` in the password was not percent-encoded. So messages about the form are fixed
//! text.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::passfile::{self, PassfileError};
use super::require_auth::RequireAuth;
use super::settings::{ConnInfo, LoginFiles, PostgresHost, SslMode, TargetSessionAttrs};
use walrelay_base::encoding::{PercentError, percent_decode};
use walrelay_base::secret::Secret;
use walrelay_base::settings::Choice;
use walrelay_base::text::nearest;

const PORT_DEFAULT: u16 = 5432;
const HOSTS_MAX: usize = 32;

/// Each supported parameter and the variable it falls back on.
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

/// Parameters that ask for what happens anyway: accepted with these values only, since many
/// providers put them into the strings they hand out. Those about the safety of a connection have their
/// variables: what a variable demands is refused, too, if it is not what happens.
const NEUTRAL: [(&str, &str, &[&str]); 8] = [
    ("gssencmode", "PGGSSENCMODE", &["disable", "prefer"]),
    ("channel_binding", "PGCHANNELBINDING", &["disable", "prefer"]),
    ("client_encoding", "", &["UTF8", "utf8", "auto"]),
    ("keepalives", "", &["1"]),
    ("sslnegotiation", "PGSSLNEGOTIATION", &["postgres"]),
    ("sslcertmode", "PGSSLCERTMODE", &["allow"]),
    ("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION", &["TLSv1", "TLSv1.1", "TLSv1.2"]),
    ("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION", &["TLSv1.3"]),
];

/// Variables that change where and how libpq connects, and are not read: one that is set would be ignored without a
/// message.
const UNREAD_VARIABLES: [&str; 4] = ["PGSERVICE", "PGHOSTADDR", "PGSSLCRL", "PGSSLCRLDIR"];

/// A parameter without a known name like its own, which may be a piece of a password.
const UNKNOWN: ConnInfoError = ConnInfoError::Malformed(
    "it has a parameter that is not known; its name is not shown, because it may be a piece of a password that has a \
     space or an `&` (write '…' around the password, in a URL %20 and %26)",
);

/// The usual cause of a URL that cannot be taken apart.
const ENCODE: ConnInfoError = ConnInfoError::Malformed(
    "a parameter has an impossible name or no `=` (a `/`, `?`, `#`, `&` or `@` in a user or password \
     must be percent-encoded: %2F %3F %23 %26 %40)",
);

/// Why a connection string cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnInfoError {
    #[error("the connection string is malformed: {0}")]
    Malformed(&'static str),
    /// The parameter, and a question whether the nearest known one is meant.
    #[error("unknown connection parameter `{0}`{1}")]
    Unknown(String, String),
    /// The parameter, its value (never that of `password`), and the supported ones.
    #[error("connection parameter `{0}` is `{1}`; supported: {2}")]
    Value(String, String, String),
    /// The environment variable, its value, and the supported ones.
    #[error("`{0}` is `{1}`; supported: {2}")]
    Variable(String, String, String),
    #[error("{0} hosts but {1} ports: give one port for all, or one for each")]
    PortCount(usize, usize),
    #[error("no user: write postgres://USER@host/db, or set PGUSER")]
    NoUser,
    #[error(transparent)]
    Passfile(#[from] PassfileError),
}

type Pairs = Vec<(String, String)>;

/// Reads `url` and fills what it leaves open from `env`, then from the passfile. Refuses what libpq
/// would refuse, and what it would ignore without a message.
pub fn parse(url: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<ConnInfo, ConnInfoError> {
    let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"));
    let pairs = match rest {
        Some(rest) => url_pairs(rest)?,
        None => keyword_pairs(url)?,
    };
    let mut params = Params::default();
    let is_given = |name: &str| pairs.iter().any(|(given, _)| given == name);
    for (name, variable, _) in NEUTRAL.into_iter().filter(|(name, ..)| !is_given(name)) {
        let value = if variable.is_empty() { None } else { env(variable) };
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            neutral(name, variable, &value)?;
        }
    }
    for variable in UNREAD_VARIABLES {
        if let Some(value) = env(variable).filter(|value| !value.is_empty()) {
            return Err(unsupported(variable, &value, &["not set, because it is not read"]));
        }
    }
    for (name, value) in pairs {
        params.put(&name, value)?;
    }
    for (name, variable) in PARAMETERS.iter().filter(|(_, variable)| !variable.is_empty()) {
        if let (false, Some(value)) = (params.values.contains_key(name), env(variable)) {
            params.values.insert(name, value);
            params.variables.insert(name, variable);
        }
    }
    // An empty value is an absent one, as in libpq.
    params.values.retain(|_, value| !value.is_empty());
    params.conn_info(env)
}

/// The values from the string and the environment, by parameter.
#[derive(Default)]
struct Params {
    values: BTreeMap<&'static str, String>,
    /// The environment variables that values come from.
    variables: BTreeMap<&'static str, &'static str>,
}

impl Params {
    fn put(&mut self, name: &str, value: String) -> Result<(), ConnInfoError> {
        if name == "ssl" && value == "true" {
            return self.put("sslmode", "require".to_owned());
        }
        if let Some((known, _)) = PARAMETERS.iter().find(|(known, _)| *known == name) {
            self.values.insert(known, value);
            return Ok(());
        }
        if NEUTRAL.iter().any(|(known, ..)| *known == name) {
            return neutral(name, name, &value);
        }
        // Any other name may be the tail of a password; it is not shown.
        if !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_') {
            return Err(ENCODE);
        }
        let known = PARAMETERS.iter().map(|p| p.0).chain(NEUTRAL.iter().map(|p| p.0));
        Err(nearest(name, known).map_or(UNKNOWN, |known| {
            ConnInfoError::Unknown(name.to_owned(), format!("; did you mean `{known}`?"))
        }))
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// The parameter, or the variable that its value comes from.
    fn place<'a>(&self, name: &'a str) -> &'a str {
        self.variables.get(name).copied().unwrap_or(name)
    }

    fn owned<T: From<String>>(&self, name: &str) -> Option<T> {
        self.values.get(name).cloned().map(T::from)
    }

    /// Reads a value; the error of `read` are the supported ones.
    fn read<T>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, Vec<&'static str>>,
    ) -> Result<Option<T>, ConnInfoError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let place = self.place(name);
        read(value).map(Some).map_err(|supported| unsupported(place, value, &supported))
    }

    fn one_of<T: Choice>(&self, name: &str) -> Result<Option<T>, ConnInfoError> {
        self.read(name, |value| {
            let choice =
                T::WORDS.iter().find(|(word, _)| *word == value).map(|(_, choice)| *choice);
            choice.ok_or_else(|| T::WORDS.iter().map(|(word, _)| *word).collect())
        })
    }

    fn conn_info(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<ConnInfo, ConnInfoError> {
        let default = ConnInfo::default();
        let login = |variable| env(variable).filter(|user| !user.is_empty());
        let user = self.owned("user").or_else(|| login("USER")).or_else(|| login("LOGNAME"));
        let user: String = user.ok_or(ConnInfoError::NoUser)?;
        let application_name = self.owned("application_name");
        let timeout = self.read("connect_timeout", |value| {
            value.trim().parse::<i32>().map_err(|_| vec!["whole seconds"])
        })?;
        let timeout = timeout.and_then(|seconds| u64::try_from(seconds).ok()).filter(|it| *it > 0);
        let hosts = self.hosts()?;
        // Standbys are of no use to the relay, and in a failover they answer first.
        let attrs = match hosts.len() {
            1 => TargetSessionAttrs::Any,
            _ => TargetSessionAttrs::Primary,
        };
        let mut info = ConnInfo {
            hosts,
            password: self.get("password").map(Secret::new),
            dbname: self.owned("dbname").unwrap_or_else(|| user.clone()),
            user,
            application_name: application_name
                .or_else(|| self.owned("fallback_application_name"))
                .unwrap_or(default.application_name),
            options: self.owned("options"),
            connect_timeout: timeout.map_or(default.connect_timeout, Duration::from_secs),
            sslmode: self.sslmode()?.unwrap_or(default.sslmode),
            sslrootcert: self.owned("sslrootcert"),
            sslcert: self.owned("sslcert"),
            sslkey: self.owned("sslkey"),
            require_auth: self.read("require_auth", RequireAuth::parse)?.unwrap_or_default(),
            target_session_attrs: self.one_of("target_session_attrs")?.unwrap_or(attrs),
            login_files: LoginFiles::default(),
        };
        if info.password.is_none() {
            info.login_files.passfile = passfile::fill(&mut info, self.owned("passfile"), env)?;
        }
        Ok(info)
    }

    /// `sslrootcert=system` without name verification would trust anybody with a public certificate,
    /// so it implies `verify-full` and allows no other mode, as in libpq.
    fn sslmode(&self) -> Result<Option<SslMode>, ConnInfoError> {
        let given = self.one_of("sslmode")?;
        if self.get("sslrootcert") != Some("system") {
            return Ok(given);
        }
        match given {
            None | Some(SslMode::VerifyFull) => Ok(Some(SslMode::VerifyFull)),
            Some(_) => {
                let only = "verify-full (the only one with sslrootcert=system)";
                let mode = self.get("sslmode").unwrap_or_default();
                Err(unsupported(self.place("sslmode"), mode, &[only]))
            }
        }
    }

    fn hosts(&self) -> Result<Vec<PostgresHost>, ConnInfoError> {
        let given = self.get("port").unwrap_or_default();
        let ports = given.split(',').map(port).collect::<Result<Vec<_>, _>>();
        let ports = ports.map_err(|error| match self.variables.get("port") {
            Some(variable) => unsupported(variable, given, &["numbers from 1 to 65535"]),
            None => error,
        })?;
        let names: Vec<&str> = self.get("host").unwrap_or_default().split(',').collect();
        if names.len() > HOSTS_MAX {
            return Err(ConnInfoError::Malformed("more than 32 hosts"));
        }
        if ports.len() != 1 && ports.len() != names.len() {
            return Err(ConnInfoError::PortCount(names.len(), ports.len()));
        }
        let hosts = names.into_iter().zip(ports.iter().cycle()).map(|(name, port)| {
            let name = if name.is_empty() { default_host(*port) } else { name.to_owned() };
            PostgresHost { name, port: *port, password: None }
        });
        Ok(hosts.collect())
    }
}

/// Refuses a value of a neutral parameter that asks for something else; `place` is where it stands.
fn neutral(name: &str, place: &str, value: &str) -> Result<(), ConnInfoError> {
    let known = NEUTRAL.iter().find(|(known, ..)| *known == name);
    match known.filter(|(.., supported)| !supported.contains(&value)) {
        Some((.., supported)) => Err(unsupported(place, value, supported)),
        None => Ok(()),
    }
}

/// `place` is a parameter, in small letters, or an environment variable.
fn unsupported(place: &str, value: &str, supported: &[&str]) -> ConnInfoError {
    let is_variable = place.starts_with("PG");
    let error = if is_variable { ConnInfoError::Variable } else { ConnInfoError::Value };
    error(place.to_owned(), value.to_owned(), supported.join(", "))
}

/// The value is not shown: in a URL it may be the head of a password with a `/`.
fn port(text: &str) -> Result<u16, ConnInfoError> {
    match text.trim() {
        "" => Ok(PORT_DEFAULT),
        text => text.parse().ok().filter(|port| *port > 0).ok_or(ConnInfoError::Malformed(
            "a port is not a number from 1 to 65535 (or the password holds a `/`, `?`, `#` or `@` \
             that is not percent-encoded)",
        )),
    }
}

/// Without a host, libpq takes the socket directory that it was built with; distributions use two.
fn default_host(port: u16) -> String {
    ["/var/run/postgresql", "/tmp"]
        .into_iter()
        .find(|folder| Path::new(folder).join(format!(".s.PGSQL.{port}")).exists())
        .unwrap_or("localhost")
        .to_owned()
}

/// Reads what follows `postgres://`: `user:password@h1:p1,h2:p2/dbname?name=value&…`. URL parsers
/// do not accept several hosts.
fn url_pairs(rest: &str) -> Result<Pairs, ConnInfoError> {
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    // Each of these means that a password was cut in two, whose pieces would be shown as names.
    let cut = path.contains(['@', '/'])
        || rest.contains('#')
        || (query.contains('@') && login_of(authority).contains(':'));
    if cut {
        return Err(ENCODE);
    }
    let (login, servers) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let servers = servers.split(',').map(server).collect::<Result<Vec<_>, _>>()?;
    let (names, ports): (Vec<String>, Vec<String>) = servers.into_iter().unzip();
    // A list without any entry stays open, so that PGHOST or PGPORT can fill it.
    let list = |all: Vec<String>| match all.iter().all(String::is_empty) {
        true => String::new(),
        false => all.join(","),
    };
    let mut pairs: Pairs = vec![
        ("user".to_owned(), decode(user)?),
        ("password".to_owned(), decode(password)?),
        ("dbname".to_owned(), decode(path)?),
        ("host".to_owned(), list(names)),
        ("port".to_owned(), list(ports)),
    ];
    pairs.retain(|(_, value)| !value.is_empty());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or(ENCODE)?;
        if value.contains('=') {
            return Err(ConnInfoError::Malformed("a parameter has two `=` (write %3D in a value)"));
        }
        pairs.push((decode(name)?, decode(value)?));
    }
    Ok(pairs)
}

/// The user and the password before the servers, or all if there is no login.
fn login_of(authority: &str) -> &str {
    authority.rsplit_once('@').map_or(authority, |(login, _)| login)
}

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
