//! `amqps://user:password@mq1:5671,mq2:5671/vhost`, and the management API's `http://…`, taken apart.
//!
//! As RabbitMQ's own URI rules, with several hosts, and without parameters: each of those has a
//! configuration key, so that nothing is said twice. Two deliberate differences: no path and an
//! empty one both mean the virtual host `/`, and what would be ignored is refused. The `url` crate
//! knows neither several hosts nor whether a port was written.
//!
//! Invariant: messages are fixed text. Any piece of the URI may be part of a password in which a
//! `/`, `?`, `#` or `@` was not percent-encoded.

use std::fmt;
use std::path::PathBuf;

use crate::base::encoding::{PercentError, percent_decode};
use crate::base::secret::Secret;

/// Most bytes of a name in AMQP.
pub(super) const NAME_BYTES_MAX: usize = 255;
const HOSTS_MAX: usize = 32;

const AMQP_EXAMPLE: &str =
    "write amqps://user:password@host:5671/vhost, or amqp:// and port 5672 without TLS";
const HTTP_EXAMPLE: &str = "write http://user:password@host:15672, with what is special in user and password percent-encoded";
const ENCODE: &str = "percent-encode what is special in user, password and virtual host: \
                      / is %2F, ? is %3F, # is %23, @ is %40, : is %3A, % is %25, [ is %5B";
const NOT_ENCODED: &str = "falls apart: a special character is not percent-encoded";

/// Parameters that other clients know, and the key that says the same here.
const PARAMETERS: [(&str, &str); 8] = [
    ("heartbeat", "heartbeat = \"10s\""),
    ("connection_timeout", "connect_timeout = \"5s\""),
    ("cacertfile", "ca_file = \"/path/ca.pem\""),
    ("certfile", "cert_file = \"/path/client.pem\""),
    ("keyfile", "key_file = \"/path/client.key\""),
    ("server_name_indication", "server_name = \"NAME\""),
    ("auth_mechanism", "auth = \"plain\" or \"external\""),
    ("verify", "amqps://, which always verifies the server"),
];

/// One server of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RabbitHost {
    /// Name or address.
    pub name: String,
    /// Port.
    pub port: u16,
}

impl fmt::Display for RabbitHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RabbitHost { name, port } = self;
        if name.contains(':') { write!(f, "[{name}]:{port}") } else { write!(f, "{name}:{port}") }
    }
}

/// Where the brokers are, and the login, where the URI has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AmqpUri {
    pub(super) tls: bool,
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
    pub(super) hosts: Vec<RabbitHost>,
    pub(super) vhost: String,
}

/// Where the management API is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagementUri {
    /// `https`.
    pub tls: bool,
    /// Server.
    pub host: RabbitHost,
    /// What comes before `/api`; without a slash at its end.
    pub prefix: String,
    /// User and password; those of `sink.rabbitmq.url` when absent.
    pub login: Option<(String, Secret)>,
    /// Roots for `https`; the system's when absent.
    pub ca_file: Option<PathBuf>,
}

impl fmt::Display for ManagementUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.host, self.prefix)
    }
}

/// Why a URI cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub(super) struct UriError {
    pub(super) what: &'static str,
    pub(super) mend: String,
}

fn wrong<T>(what: &'static str, mend: &str) -> Result<T, UriError> {
    Err(UriError { what, mend: mend.to_owned() })
}

impl AmqpUri {
    pub(super) fn parse(uri: &str) -> Result<AmqpUri, UriError> {
        let Some((scheme, rest)) = uri.trim().split_once("://") else {
            let what = "is no AMQP URL: it does not begin with amqp:// or amqps://";
            return wrong(what, AMQP_EXAMPLE);
        };
        let (tls, port) = match scheme.to_ascii_lowercase().as_str() {
            "amqp" => (false, 5672),
            "amqps" => (true, 5671),
            _ => return wrong("is no AMQP URL: its scheme is not amqp or amqps", AMQP_EXAMPLE),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        // All three mean that a password was cut in two, or that a virtual host has a bare slash.
        if path.contains(['@', '/']) || rest.contains('#') || query.contains('@') {
            return wrong(NOT_ENCODED, ENCODE);
        }
        refuse_parameters(query)?;
        let (user, password, servers) = split_login(authority)?;
        let host = |server| host(server, port, AMQP_EXAMPLE);
        let hosts: Vec<RabbitHost> = servers.split(',').map(host).collect::<Result<_, _>>()?;
        if hosts.len() > HOSTS_MAX {
            let mend = "name some of them: one is enough to connect";
            return wrong("has more than 32 hosts", mend);
        }
        let vhost = match decode(path)? {
            path if path.is_empty() => "/".to_owned(),
            path if path.len() <= NAME_BYTES_MAX => path,
            _ => {
                let what = "has a virtual host of more than 255 bytes";
                return wrong(what, "AMQP carries 255 bytes");
            }
        };
        Ok(AmqpUri { tls, user, password, hosts, vhost })
    }
}

impl ManagementUri {
    /// Takes `http://user:password@host:15672/prefix` apart.
    pub(super) fn parse(uri: &str, ca_file: Option<PathBuf>) -> Result<ManagementUri, UriError> {
        let (tls, port, rest) = match uri.trim().split_once("://") {
            Some(("http", rest)) => (false, 15672, rest),
            Some(("https", rest)) => (true, 15671, rest),
            _ => return wrong("does not begin with http:// or https://", HTTP_EXAMPLE),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if rest.contains(['?', '#']) || path.contains('@') {
            return wrong(NOT_ENCODED, HTTP_EXAMPLE);
        }
        let (user, password, server) = split_login(authority)?;
        if !path.bytes().chain(server.bytes()).all(|byte| byte.is_ascii_graphic()) {
            return wrong("has a space or a letter that is not ASCII in it", HTTP_EXAMPLE);
        }
        let path = path.trim_end_matches('/');
        let path = path.strip_suffix("api").unwrap_or(path).trim_end_matches('/');
        let prefix = if path.is_empty() { String::new() } else { format!("/{path}") };
        let login = user.map(|user| (user, password.unwrap_or_default()));
        Ok(ManagementUri { tls, host: host(server, port, HTTP_EXAMPLE)?, prefix, login, ca_file })
    }

    /// The host, when what is said to it can be read on the way.
    pub(super) fn unencrypted(&self) -> Option<&str> {
        (!self.tls).then_some(self.host.name.as_str())
    }
}

fn refuse_parameters(query: &str) -> Result<(), UriError> {
    if query.is_empty() {
        return Ok(());
    }
    let names = || query.split('&').filter_map(|pair| pair.split('=').next());
    let known = PARAMETERS.iter().filter(|(name, _)| names().any(|given| given == *name));
    let known: Vec<_> = known.map(|(name, key)| format!("instead of {name} write {key}")).collect();
    let mend = match known.as_slice() {
        [] => format!("remove everything from the ? on; {ENCODE}"),
        known => format!("under [sink.rabbitmq], {}", known.join("; ")),
    };
    Err(UriError { what: "has parameters: they are keys of their own here", mend })
}

type LoginAndServers<'a> = (Option<String>, Option<Secret>, &'a str);

/// `[user[:password]@]servers`; a user without a name is none.
fn split_login(authority: &str) -> Result<LoginAndServers<'_>, UriError> {
    let Some((login, servers)) = authority.rsplit_once('@') else {
        return Ok((None, None, authority));
    };
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (user, Some(Secret::new(decode(password)?))),
        None => (login, None),
    };
    Ok((Some(decode(user)?).filter(|user| !user.is_empty()), password, servers))
}

fn host(server: &str, port: u16, example: &str) -> Result<RabbitHost, UriError> {
    const IPV6: &str = "write an IPv6 address as [::1]:5672";
    let server = server.trim();
    let (name, given) = match server.strip_prefix('[').map(|rest| rest.split_once(']')) {
        None => server.split_once(':').map_or((server, None), |(name, port)| (name, Some(port))),
        Some(None) => return wrong("has an IPv6 address without its ]", IPV6),
        Some(Some((name, ""))) => (name, None),
        Some(Some((name, after))) => match after.strip_prefix(':') {
            Some(port) => (name, Some(port)),
            None => return wrong("has text after the ] of an address", IPV6),
        },
    };
    let name = decode(name)?;
    if name.is_empty() {
        return wrong("names no host", example);
    }
    if name.contains(char::is_whitespace) {
        return wrong("has a space in a host name", example);
    }
    let port = match given.map(|given| given.parse().ok().filter(|port| *port > 0)) {
        None => port,
        Some(Some(given)) => given,
        Some(None) => {
            let what = "has a port that is not a number from 1 to 65535";
            return wrong(what, &format!("{example}; {ENCODE}"));
        }
    };
    Ok(RabbitHost { name, port })
}

fn decode(text: &str) -> Result<String, UriError> {
    percent_decode(text).or_else(|error| {
        let what = match error {
            PercentError::Digits => "has a % that is not followed by two hexadecimal digits",
            PercentError::Nul => "has a NUL (%00) in it",
            PercentError::NotUtf8 => "is not UTF-8 once decoded",
        };
        wrong(what, ENCODE)
    })
}

#[cfg(test)]
#[path = "uri_tests.rs"]
mod tests;
