//! The management API, as far as `check` needs it: one GET at a time, answered with JSON.
//!
//! AMQP cannot list bindings or policies. The answer is bounded in size and in time, redirects are
//! not followed (the login would go with them), and no error quotes the URL.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::http;
use super::settings::Host;
use super::tls;
use super::url::{UrlError, decode};
use crate::base::encoding::percent_encode;
use crate::base::secret::Secret;

const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// A hundred thousand bindings, roughly.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
const PORT_PLAIN: u16 = 15672;
const PORT_TLS: u16 = 15671;

/// Where the management API is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Management {
    /// `https`.
    pub tls: bool,
    /// Server.
    pub host: Host,
    /// What comes before `/api`; without a slash at its end.
    pub prefix: String,
    /// User and password; those of `sink.rabbitmq.url` when absent.
    pub login: Option<(String, Secret)>,
    /// Roots for `https`; the system's when absent.
    pub ca_file: Option<PathBuf>,
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAnswer {
    #[error("it did not answer within {} s", ANSWER_WITHIN.as_secs())]
    Late,
    #[error("it answered 401: the login was refused, or lacks the tag management")]
    Login,
    #[error("it answered 404")]
    NotFound,
    #[error("it answered {0}")]
    Status(u16),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("its answer is no JSON")]
    NoJson,
}

impl Management {
    /// The host, when what is said to it can be read on the way.
    pub(super) fn unencrypted(&self) -> Option<&str> {
        (!self.tls).then_some(self.host.name.as_str())
    }

    /// Takes `http://user:password@host:15672/prefix` apart.
    pub(super) fn parse(url: &str, ca_file: Option<PathBuf>) -> Result<Management, UrlError> {
        let wrong = |what| {
            let mend = "write http://user:password@host:15672, with what is special in user and password percent-encoded";
            UrlError { what, mend: mend.to_owned() }
        };
        let (tls, rest) = match url.trim().split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            _ => return Err(wrong("does not begin with http:// or https://")),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if rest.contains(['?', '#']) || path.contains('@') {
            return Err(wrong("falls apart: a special character is not percent-encoded"));
        }
        let printable = path.bytes().all(|byte| byte.is_ascii_graphic());
        let path = path.trim_end_matches('/');
        let path = path.strip_suffix("api").unwrap_or(path).trim_end_matches('/');
        let (login, server) = match authority.rsplit_once('@') {
            Some((login, server)) => {
                let (user, password) = login.split_once(':').unwrap_or((login, ""));
                (Some((decode(user)?, Secret::new(decode(password)?))), server)
            }
            None => (None, authority),
        };
        let (name, port) = match server.rsplit_once(':') {
            Some((name, port)) if !server.ends_with(']') => {
                let port = port.parse().ok().filter(|port| *port > 0);
                (
                    name,
                    port.ok_or_else(|| wrong("has a port that is not a number from 1 to 65535"))?,
                )
            }
            _ => (server, if tls { PORT_TLS } else { PORT_PLAIN }),
        };
        let name = name.trim_start_matches('[').trim_end_matches(']');
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic()) || !printable {
            return Err(wrong("names no host, or has a space in it"));
        }
        let prefix = if path.is_empty() { String::new() } else { format!("/{path}") };
        let host = Host { name: name.to_owned(), port };
        Ok(Management { tls, host, prefix, login, ca_file })
    }

    /// What `GET /api/PATH` says; the parts of the path are encoded here.
    pub(super) async fn get(
        &self,
        parts: &[&str],
        fallback: Option<(&str, &Secret)>,
    ) -> Result<Json, NoAnswer> {
        let request = self.request(parts, fallback);
        let (status, body) =
            timeout(ANSWER_WITHIN, self.ask(&request)).await.map_err(|_| NoAnswer::Late)??;
        match status {
            200 => serde_json::from_slice(&body).map_err(|_| NoAnswer::NoJson),
            401 | 403 => Err(NoAnswer::Login),
            404 => Err(NoAnswer::NotFound),
            status => Err(NoAnswer::Status(status)),
        }
    }

    /// No `Debug` of it: there is a login in it.
    fn request(&self, parts: &[&str], fallback: Option<(&str, &Secret)>) -> String {
        let path: String = parts.iter().map(|part| format!("/{}", percent_encode(part))).collect();
        let own = self.login.as_ref().map(|(user, password)| (user.as_str(), password));
        let login = own.or(fallback).map(|(user, password)| {
            let login = STANDARD.encode(format!("{user}:{}", password.expose()));
            format!("Authorization: Basic {login}\r\n")
        });
        let (prefix, host, login) = (&self.prefix, &self.host, login.unwrap_or_default());
        format!(
            "GET {prefix}/api{path} HTTP/1.1\r\nHost: {host}\r\nAccept: application/json\r\n{login}Connection: close\r\n\r\n"
        )
    }

    async fn ask(&self, request: &str) -> Result<(u16, Vec<u8>), NoAnswer> {
        let stream = TcpStream::connect((self.host.name.as_str(), self.host.port)).await?;
        if !self.tls {
            return exchange(stream, request).await;
        }
        let stream = tls::over(stream, &self.host.name, &self.roots()).await?;
        exchange(stream, request).await
    }

    fn roots(&self) -> super::settings::TlsSettings {
        let ca_file = self.ca_file.clone();
        super::settings::TlsSettings { ca_file, ..Default::default() }
    }
}

impl fmt::Display for Management {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.host, self.prefix)
    }
}

async fn exchange<S>(mut stream: S, request: &str) -> Result<(u16, Vec<u8>), NoAnswer>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    let mut bounded = stream.take(ANSWER_BYTES_MAX + 1);
    loop {
        // A server may keep the connection in spite of us, or end TLS without a farewell.
        let read = bounded.read_buf(&mut answer).await;
        if let Some(complete) = http::complete(&answer)? {
            return Ok(complete);
        }
        match read {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error.into()),
        }
    }
    if answer.len() as u64 > ANSWER_BYTES_MAX {
        return Err(io::Error::other("its answer is too large").into());
    }
    Ok(http::at_end(&answer)?)
}

#[cfg(test)]
#[path = "management_tests.rs"]
mod tests;
