//! The address of the collector, and the headers of the requests to it.
//!
//! Invariant: no error quotes the URL or the headers, which may hold secrets.

use std::fmt;

use hyper::Uri;
use hyper::header::{HeaderName, HeaderValue};

use walrelay_base::encoding::percent_decode;
use walrelay_base::http;
use walrelay_base::secret::Secret;

const PATH: &str = "/v1/traces";

/// Where spans are posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpEndpoint {
    pub(super) tls: bool,
    /// A name or an address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// Host and port as they were written.
    pub(super) authority: String,
    pub(super) path: String,
}

impl OtlpEndpoint {
    /// Reads a base URL. The error says what is wrong with it.
    pub fn parse(url: &Secret) -> Result<OtlpEndpoint, &'static str> {
        let uri: Uri = url.expose().parse().map_err(|_| "this is no URL")?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err("the URL must begin with http:// or https://"),
        };
        let authority = uri.authority().ok_or("the URL has no host")?.as_str();
        if authority.contains('@') {
            return Err("a login in the URL is not sent");
        }
        if uri.query().is_some() {
            return Err("the URL must not have parameters");
        }
        let host = uri.host().unwrap_or_default();
        let port = http::port(&uri, if tls { 443 } else { 80 });
        let port = port.ok_or("the URL has no port from 1 to 65535")?;
        let host = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err("the URL has no host");
        }
        let base = uri.path().trim_end_matches('/');
        let base = base.strip_suffix(PATH).unwrap_or(base);
        Ok(OtlpEndpoint {
            tls,
            host: host.to_owned(),
            port,
            authority: authority.to_owned(),
            path: format!("{base}{PATH}"),
        })
    }
}

/// Without the path, which may hold a key of the collector's.
impl fmt::Display for OtlpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        let path = if self.path == PATH { PATH } else { "/***" };
        write!(f, "{scheme}://{}{path}", self.authority)
    }
}

/// Reads `name=value,name=value`. The error says which entry is wrong.
pub fn parse_headers(text: &Secret) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let entries = text.expose().split(',').zip(1..).filter(|(entry, _)| !entry.trim().is_empty());
    let read = |entry: &str| {
        let (name, value) = entry.split_once('=')?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
        let mut value = HeaderValue::from_str(&percent_decode(value.trim()).ok()?).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    };
    let headers = entries.map(|(entry, place)| {
        read(entry).ok_or_else(|| format!("entry {place} is no header written as name=value"))
    });
    headers.collect()
}

#[cfg(test)]
#[path = "endpoint_tests.rs"]
mod tests;
