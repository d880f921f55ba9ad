//! Where the admin server of a relay is.

use std::fmt;
use std::net::SocketAddr;

use hyper::Uri;

use crate::admin::address::reachable;
use crate::base::error::{Exit, Fault};
use crate::base::http;

/// The port of `admin.listen` unless configured, where neither a scheme nor a port is given.
const PORT: u16 = 9464;
const HTTP_PORT: u16 = 80;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RelayUrl {
    /// A name or address; one of IPv6 without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// The path before `/status`, without a slash at its end.
    pub(super) prefix: String,
}

impl fmt::Display for RelayUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RelayUrl { host, port, prefix } = self;
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "http://{open}{host}{close}:{port}{prefix}")
    }
}

impl From<SocketAddr> for RelayUrl {
    /// The relay on this machine that listens on the address.
    fn from(listen: SocketAddr) -> RelayUrl {
        let address = reachable(listen);
        RelayUrl { host: address.ip().to_string(), port: address.port(), prefix: String::new() }
    }
}

impl RelayUrl {
    /// Reads `host`, `host:port`, or `http://host:port/prefix`.
    pub(super) fn parse(text: &str) -> Result<RelayUrl, Fault> {
        let text = text.trim();
        let (port, url) = match text.contains("://") {
            true => (HTTP_PORT, text.to_owned()),
            false => (PORT, format!("http://{text}")),
        };
        if text.contains('@') {
            // Not quoted: it may hold a password.
            return Err(wrong("a login in the URL is not sent; --url takes none".to_owned()));
        }
        let uri: Uri =
            url.parse().map_err(|error| wrong(format!("{text:?} is no URL: {error}")))?;
        if uri.scheme_str() != Some("http") {
            return Err(wrong(format!("{text:?} is not http://: a relay answers without TLS")));
        }
        if uri.query().is_some() {
            return Err(wrong(format!("{text:?} has a query")));
        }
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(wrong(format!("{text:?} names no host")));
        }
        let port = http::port(&uri, port)
            .ok_or_else(|| wrong(format!("{text:?} has no port from 1 to 65535")))?;
        let path = uri.path().trim_end_matches('/');
        let prefix = path.strip_suffix("/status").unwrap_or(path).to_owned();
        Ok(RelayUrl { host, port, prefix })
    }
}

fn wrong(what: String) -> Fault {
    let mend = "write host:9464 or http://host:9464, the address of [admin] listen of the relay";
    Fault::new(Exit::Usage, "status.bad-url", what, "--url", mend)
}

#[cfg(test)]
#[path = "relay_url_tests.rs"]
mod tests;
