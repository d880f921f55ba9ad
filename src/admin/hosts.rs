//! Under which host names the server answers, and for which sites.
//!
//! A site of somebody else can let its own name resolve to this server's address (DNS rebinding); a browser
//! then takes the server for that site. Such a request has the foreign name in its `Host` header, so only
//! known names are answered. An IP address is no name that anybody could rebind. `/metrics` and the probes
//! answer under every name: monitoring reaches them by names of services, and they hold no secrets.
//!
//! A request that changes something must come from this site as well: a browser says so in `Origin`, and a
//! client that is no browser sends none.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::answer::{JSON, TEXT, answer};
use crate::base::error::{Exit, Fault};
use crate::base::text::escaped;

const UNDER_ANY_NAME: [&str; 3] = ["/metrics", "/livez", "/readyz"];
/// A message repeats so much of a refused name.
const SHOWN_CHARS_MAX: usize = 253;

/// Names beside `localhost` and IP addresses.
pub(super) struct AllowedHosts(pub(super) Vec<String>);

impl AllowedHosts {
    fn check(&self, request: &Request) -> Result<(), (StatusCode, Fault)> {
        if UNDER_ANY_NAME.contains(&request.uri().path()) {
            return Ok(());
        }
        let headers = request.headers();
        let host = only(headers, &header::HOST);
        if !host.is_some_and(|host| self.allows(name_of(host))) {
            let host = host.unwrap_or_default();
            return Err((StatusCode::MISDIRECTED_REQUEST, unknown_host(host)));
        }
        let changes = ![Method::GET, Method::HEAD].contains(request.method());
        if changes && headers.contains_key(header::ORIGIN) {
            let origin = only(headers, &header::ORIGIN).unwrap_or_default();
            let authority = origin.split_once("://").map(|(_, authority)| authority);
            let is_own = authority.is_some_and(|it| Some(it) == host || self.names(name_of(it)));
            if !is_own {
                return Err((StatusCode::FORBIDDEN, foreign_origin(origin)));
            }
        }
        Ok(())
    }

    fn allows(&self, name: &str) -> bool {
        let bracketed = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        let is_address = match bracketed {
            Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
            None => name.parse::<IpAddr>().is_ok(),
        };
        is_address || name.eq_ignore_ascii_case("localhost") || self.names(name)
    }

    fn names(&self, name: &str) -> bool {
        self.0.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

pub(super) async fn check(
    State(hosts): State<Arc<AllowedHosts>>,
    request: Request,
    next: Next,
) -> Response {
    match hosts.check(&request) {
        Ok(()) => next.run(request).await,
        Err((status, fault)) => refusal(request.uri().path(), status, &fault),
    }
}

/// The value of a header that is there once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    value.to_str().ok()
}

/// `name:port` without the port.
fn name_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => authority,
    }
}

fn unknown_host(host: &str) -> Fault {
    let name: String = name_of(host).chars().take(SHOWN_CHARS_MAX).collect();
    let name = escaped(&name);
    let what = match name.as_str() {
        "" => "the request names no host, or more than one".to_owned(),
        name => format!("this server does not answer under the host name {name}"),
    };
    let mend = match name.as_str() {
        "" => "send one header Host".to_owned(),
        name => format!(
            "use localhost or an IP address, or allow the name: [admin] hosts = [\"{name}\"]"
        ),
    };
    Fault::new(Exit::Usage, "admin.host", what, "admin.hosts", mend)
}

fn foreign_origin(origin: &str) -> Fault {
    let origin: String = origin.chars().take(SHOWN_CHARS_MAX).collect();
    let what = format!("the request comes from another site: {}", escaped(&origin));
    let mend =
        "let the proxy pass the header Host on, or allow the name of the site: [admin] hosts";
    Fault::new(Exit::Usage, "admin.origin", what, "admin.hosts", mend)
}

fn refusal(path: &str, status: StatusCode, fault: &Fault) -> Response {
    if path.starts_with("/api") {
        return answer(status, JSON, format!("{}\n", fault.to_json()));
    }
    let Fault { code, what, mend, .. } = fault;
    answer(status, TEXT, format!("{code}: {what}\n{mend}\n"))
}

#[cfg(test)]
#[path = "hosts_tests.rs"]
mod tests;
