//! `amqps://user:password@mq1:5671,mq2:5671/vhost`, taken apart.
//!
//! As RabbitMQ's own URI rules, with several hosts, and without parameters: what those say has keys
//! of its own, so that nothing is said twice. Two deliberate differences: no path and an empty one
//! both mean the virtual host `/`, and what would be ignored is refused.
//!
//! Invariant: messages are fixed text. Any piece of the URL may be part of a password in which a
//! `/`, `?`, `#` or `@` was not percent-encoded.

use super::message::NAME_BYTES_MAX;
use super::settings::Host;
use crate::base::encoding::{PercentError, percent_decode};
use crate::base::secret::Secret;

const PORT_PLAIN: u16 = 5672;
const PORT_TLS: u16 = 5671;
const HOSTS_MAX: usize = 32;
const VHOST_DEFAULT: &str = "/";

/// What to write.
pub(super) const EXAMPLE: &str =
    "write amqps://user:password@host:5671/vhost, or amqp:// and port 5672 without TLS";
const ENCODE: &str = "percent-encode what is special in user, password and virtual host: \
                      / is %2F, ? is %3F, # is %23, @ is %40, : is %3A, % is %25, [ is %5B";

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

/// A broker's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AmqpUrl {
    pub(super) tls: bool,
    /// `guest` where the URL names nobody.
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
    pub(super) hosts: Vec<Host>,
    pub(super) vhost: String,
}

/// Why a URL cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub(super) struct UrlError {
    pub(super) what: &'static str,
    pub(super) mend: String,
}

fn wrong(what: &'static str, mend: &str) -> UrlError {
    UrlError { what, mend: mend.to_owned() }
}

/// Takes a URL apart.
pub(super) fn parse(url: &str) -> Result<AmqpUrl, UrlError> {
    let (scheme, rest) = url.trim().split_once("://").ok_or_else(|| {
        wrong("is no AMQP URL: it does not begin with amqp:// or amqps://", EXAMPLE)
    })?;
    let tls = match scheme.to_ascii_lowercase().as_str() {
        "amqp" => false,
        "amqps" => true,
        _ => return Err(wrong("is no AMQP URL: its scheme is not amqp or amqps", EXAMPLE)),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    // All three mean that a password was cut in two, or that a virtual host has a bare slash.
    if path.contains(['@', '/']) || rest.contains('#') || query.contains('@') {
        return Err(wrong("falls apart: a special character is not percent-encoded", ENCODE));
    }
    refuse_parameters(query)?;
    let (user, password, servers) = match authority.rsplit_once('@') {
        Some((login, servers)) => {
            let (user, password) = match login.split_once(':') {
                Some((user, password)) => (user, Some(Secret::new(decode(password)?))),
                None => (login, None),
            };
            (Some(decode(user)?).filter(|user| !user.is_empty()), password, servers)
        }
        None => (None, None, authority),
    };
    Ok(AmqpUrl { tls, user, password, hosts: hosts(servers, tls)?, vhost: vhost(path)? })
}

fn refuse_parameters(query: &str) -> Result<(), UrlError> {
    if query.is_empty() {
        return Ok(());
    }
    let names = || query.split('&').filter_map(|pair| pair.split('=').next());
    let known: Vec<String> = PARAMETERS
        .iter()
        .filter(|(name, _)| names().any(|given| given == *name))
        .map(|(name, key)| format!("instead of {name} write {key}"))
        .collect();
    let mend = match known.as_slice() {
        [] => format!("remove everything from the ? on; {ENCODE}"),
        known => format!("under [sink.rabbitmq], {}", known.join("; ")),
    };
    Err(UrlError { what: "has parameters: they are keys of their own here", mend })
}

fn vhost(path: &str) -> Result<String, UrlError> {
    let vhost = decode(path)?;
    match vhost.len() {
        0 => Ok(VHOST_DEFAULT.to_owned()),
        1..=NAME_BYTES_MAX => Ok(vhost),
        _ => Err(wrong("has a virtual host of more than 255 bytes", "AMQP carries 255 bytes")),
    }
}

fn hosts(servers: &str, tls: bool) -> Result<Vec<Host>, UrlError> {
    let hosts: Vec<Host> =
        servers.split(',').map(|server| host(server, tls)).collect::<Result<_, _>>()?;
    if hosts.len() > HOSTS_MAX {
        return Err(wrong("has more than 32 hosts", "name some of them: one is enough to connect"));
    }
    Ok(hosts)
}

fn host(server: &str, tls: bool) -> Result<Host, UrlError> {
    const IPV6: &str = "write an IPv6 address as [::1]:5672";
    let (name, port) = match server.trim().strip_prefix('[') {
        Some(bracketed) => {
            let (name, after) = bracketed
                .split_once(']')
                .ok_or_else(|| wrong("has an IPv6 address without its ]", IPV6))?;
            match after.strip_prefix(':') {
                Some(port) => (name, Some(port)),
                None if after.is_empty() => (name, None),
                None => return Err(wrong("has text after the ] of an address", IPV6)),
            }
        }
        None => match server.trim().split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (server.trim(), None),
        },
    };
    let name = decode(name)?;
    if name.is_empty() {
        return Err(wrong("names no host", EXAMPLE));
    }
    if name.contains(char::is_whitespace) {
        return Err(wrong("has a space in a host name", EXAMPLE));
    }
    let port = match port {
        None if tls => PORT_TLS,
        None => PORT_PLAIN,
        Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(|| {
            wrong(
                "has a port that is not a number from 1 to 65535",
                &format!("{EXAMPLE}; {ENCODE}"),
            )
        })?,
    };
    Ok(Host { name, port })
}

/// Undoes percent-encoding.
pub(super) fn decode(text: &str) -> Result<String, UrlError> {
    percent_decode(text).map_err(|malformed| {
        let what = match malformed {
            PercentError::Digits => "has a % that is not followed by two hexadecimal digits",
            PercentError::Nul => "has a NUL (%00) in it",
            PercentError::NotUtf8 => "is not UTF-8 once decoded",
        };
        wrong(what, ENCODE)
    })
}

#[cfg(test)]
#[path = "url_tests.rs"]
mod tests;
