//! Parses `amqps://user:password@mq1:5671,mq2:5671/vhost`.
//!
//! The rules are those of RabbitMQ's URI specification, with two differences:
//! several hosts are allowed, and an empty path means the virtual host `/`,
//! too. Parameters are refused, because each has a configuration key. The `url`
//! crate reads neither several hosts nor whether a port was given.
//!
//! Invariant: no error quotes the URL. Any part of it may belong to a password in which a `/`, `?`,
//! `#` or `@` was not percent-encoded.

use std::fmt;

use super::message::NAME_BYTES_MAX;
use walrelay_base::encoding::{PercentError, percent_decode};
use walrelay_base::secret::Secret;

const HOSTS_MAX: usize = 32;

const EXAMPLE: &str =
    "write amqps://user:password@host:5671/vhost, or amqp:// and port 5672 without TLS";
const ENCODE: &str = "percent-encode what is special in user, password and virtual host: \
                      / is %2F, ? is %3F, # is %23, @ is %40, : is %3A, % is %25, [ is %5B";
const NOT_ENCODED: &str = "falls apart: a special character is not percent-encoded";

/// Parameters that other clients know, and the configuration key of each.
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

/// A host name or address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RabbitHost {
    pub(super) name: String,
    pub(super) port: u16,
}

impl fmt::Display for RabbitHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RabbitHost { name, port } = self;
        if name.contains(':') { write!(f, "[{name}]:{port}") } else { write!(f, "{name}:{port}") }
    }
}

/// The parts of `sink.rabbitmq.url`.
#[derive(Debug)]
pub(super) struct AmqpUri {
    pub(super) tls: bool,
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
    pub(super) hosts: Vec<RabbitHost>,
    pub(super) vhost: String,
}

/// Why a URI cannot be used.
#[derive(Debug, thiserror::Error)]
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
            return wrong(what, EXAMPLE);
        };
        let (tls, port) = match scheme.to_ascii_lowercase().as_str() {
            "amqp" => (false, 5672),
            "amqps" => (true, 5671),
            _ => return wrong("is no AMQP URL: its scheme is not amqp or amqps", EXAMPLE),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        // A special character in the password or the
        // virtual host has split the URL at a wrong place.
        if path.contains(['@', '/']) || rest.contains('#') || query.contains('@') {
            return wrong(NOT_ENCODED, ENCODE);
        }
        refuse_parameters(query)?;
        let (user, password, servers) = split_login(authority)?;
        let hosts = servers.split(',').map(|server| host(server, port));
        let hosts: Vec<RabbitHost> = hosts.collect::<Result<_, _>>()?;
        if hosts.len() > HOSTS_MAX {
            let mend = "name some of them: one is enough to connect";
            return wrong("has more than 32 hosts", mend);
        }
        let mut vhost = decode(path)?;
        if vhost.is_empty() {
            vhost.push('/');
        }
        if vhost.len() > NAME_BYTES_MAX {
            let what = "has a virtual host of more than 255 bytes";
            return wrong(what, "AMQP carries 255 bytes");
        }
        Ok(AmqpUri { tls, user, password, hosts, vhost })
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

/// Splits `[user[:password]@]servers`. An empty user counts as none.
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

fn host(server: &str, default_port: u16) -> Result<RabbitHost, UriError> {
    const IPV6: &str = "write an IPv6 address as [::1]:5672";
    let server = server.trim();
    let (name, port) = match server.strip_prefix('[') {
        None => server.split_once(':').map_or((server, None), |(name, port)| (name, Some(port))),
        Some(rest) => match rest.split_once(']') {
            None => return wrong("has an IPv6 address without its ]", IPV6),
            Some((name, "")) => (name, None),
            Some((name, after)) if after.starts_with(':') => (name, Some(&after[1..])),
            Some(_) => return wrong("has text after the ] of an address", IPV6),
        },
    };
    let name = decode(name)?;
    if name.is_empty() {
        return wrong("names no host", EXAMPLE);
    }
    if name.contains(char::is_whitespace) {
        return wrong("has a space in a host name", EXAMPLE);
    }
    let port = port.map_or(Some(default_port), |port| port.parse().ok());
    let Some(port) = port.filter(|port| *port > 0) else {
        let what = "has a port that is not a number from 1 to 65535";
        return wrong(what, &format!("{EXAMPLE}; {ENCODE}"));
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
