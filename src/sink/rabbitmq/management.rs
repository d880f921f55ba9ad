//! The management API, as far as `check` needs it, and what its answers say of bindings and queues.
//!
//! AMQP cannot list bindings or policies. No error quotes the login of the URL.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::{Request, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use tokio::net::TcpStream;

use super::settings::{RabbitLogin, RabbitSettings, RabbitTls};
use super::tls;
use super::uri::ManagementUri;
use crate::base::encoding::percent_encode;
use crate::base::http::{HttpAnswer, HttpError, answer_within, exchange};

const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Roughly a hundred thousand bindings.
const ANSWER_BYTES_MAX: usize = 16 << 20;

pub(super) struct ManagementApi<'a> {
    uri: &'a ManagementUri,
    settings: &'a RabbitSettings,
}

impl<'a> ManagementApi<'a> {
    pub(super) fn of(settings: &'a RabbitSettings) -> Option<ManagementApi<'a>> {
        settings.management.as_ref().map(|uri| ManagementApi { uri, settings })
    }

    /// Returns an exchange and its bindings.
    pub(super) async fn exchange(
        &self,
        name: &str,
    ) -> Result<(Json, Vec<ExchangeBinding>), String> {
        let exchange = self.get("exchanges", &[name]).await?;
        Ok((exchange, self.get("exchanges", &[name, "bindings", "source"]).await?))
    }

    /// Returns the alternate exchange that the exchange's arguments or its policy name.
    pub(super) async fn alternate_exchange(
        &self,
        name: &str,
        exchange: &Json,
    ) -> Result<Option<String>, String> {
        let alternate = |value: &Json| value["alternate-exchange"].as_str().map(str::to_owned);
        let own = alternate(&exchange["arguments"]);
        let policy = exchange["policy"].as_str().filter(|policy| !policy.is_empty());
        let Some(policy) = policy.filter(|_| own.is_none()) else { return Ok(own) };
        let definition: Result<Json, String> = self.get("policies", &[policy]).await;
        definition.map(|policy| alternate(&policy["definition"])).map_err(|error| format!(
            "exchange {name} is under policy {policy}, which may send what is unroutable elsewhere; it cannot be read: {error}"
        ))
    }

    /// Gets `/api/KIND/VHOST/PATH`.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        kind: &str,
        path: &[&str],
    ) -> Result<T, String> {
        let answer = answer_within(ANSWER_WITHIN, self.send(kind, path)).await;
        let answer = answer.and_then(|answer| match answer {
            (200, body) => serde_json::from_slice(&body)
                .map_err(|error| format!("its answer is not the JSON that was expected: {error}")),
            (401 | 403, _) => {
                Err("it answered 401: the login was refused, or lacks the tag management"
                    .to_owned())
            }
            (status, _) => Err(format!("it answered {status}")),
        });
        let path = || path.join("/");
        answer.map_err(|error| {
            format!("the management API at {} was asked for {kind}/{}: {error}", self.uri, path())
        })
    }

    fn request(&self, kind: &str, path: &[&str]) -> hyper::http::Result<Request<Empty<Bytes>>> {
        let ManagementUri { host, prefix, login, .. } = self.uri;
        let mut target = format!("{prefix}/api/{kind}");
        for part in [self.settings.vhost.as_str()].iter().chain(path) {
            target.push('/');
            target.push_str(&percent_encode(part));
        }
        let mut request = Request::get(target)
            .header(header::HOST, host.to_string())
            .header(header::ACCEPT, "application/json")
            .header(header::CONNECTION, "close");
        let login = match (login, &self.settings.login) {
            (Some((user, password)), _) | (None, RabbitLogin::Plain(user, password)) => {
                Some((user, password))
            }
            (None, RabbitLogin::External) => None,
        };
        if let Some((user, password)) = login {
            let login = STANDARD.encode(format!("{user}:{}", password.expose()));
            request = request.header(header::AUTHORIZATION, format!("Basic {login}"));
        }
        request.body(Empty::new())
    }

    async fn send(&self, kind: &str, path: &[&str]) -> Result<HttpAnswer, HttpError> {
        let request = self.request(kind, path)?;
        let ManagementUri { host, tls, .. } = self.uri;
        let stream = TcpStream::connect((host.name.as_str(), host.port)).await?;
        if !tls {
            return exchange(stream, request, ANSWER_BYTES_MAX).await;
        }
        let ca_file = self.settings.tls_files.ca_file.clone();
        let roots = RabbitTls { ca_file, ..RabbitTls::default() };
        let stream = tls::connect(stream, &host.name, &roots).await?;
        exchange(stream, request, ANSWER_BYTES_MAX).await
    }
}

#[derive(Deserialize)]
pub(super) struct ExchangeBinding {
    destination_type: String,
    pub(super) destination: String,
    pub(super) routing_key: String,
}

impl ExchangeBinding {
    /// False for a binding to another exchange.
    pub(super) fn to_queue(&self) -> bool {
        self.destination_type == "queue"
    }
}

/// Whether something is bound for a routing key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Routability {
    Bound,
    Unbound,
    /// Routing depends on more than the key.
    Unknown,
}

pub(super) fn routability(kind: &str, bindings: &[ExchangeBinding], key: &str) -> Routability {
    let any = |matches: fn(&str, &str) -> bool| {
        let is_bound = bindings.iter().any(|binding| matches(&binding.routing_key, key));
        if is_bound { Routability::Bound } else { Routability::Unbound }
    };
    match kind {
        _ if bindings.is_empty() => Routability::Unbound,
        "topic" => any(topic_matches),
        "direct" => any(|bound, key| bound == key),
        "fanout" => Routability::Bound,
        _ => Routability::Unknown,
    }
}

/// `*` matches one word, `#` any number of them.
fn topic_matches(pattern: &str, key: &str) -> bool {
    fn words(text: &str) -> Vec<&str> {
        if text.is_empty() { Vec::new() } else { text.split('.').collect() }
    }
    let key = words(key);
    // reached[n]: the pattern so far matches the first n words.
    let mut reached = vec![false; key.len() + 1];
    reached[0] = true;
    for word in words(pattern) {
        let mut next = vec![false; key.len() + 1];
        for at in 0..=key.len() {
            next[at] = match word {
                "#" => reached[at] || (at > 0 && next[at - 1]),
                word => at > 0 && reached[at - 1] && (word == "*" || word == key[at - 1]),
            };
        }
        reached = next;
    }
    reached[key.len()]
}

/// How a queue can lose events that were confirmed, one sentence each.
pub(super) fn queue_warnings(queue: &Json) -> Vec<String> {
    let name = queue["name"].as_str().unwrap_or_default();
    // An argument of the queue, or else of its policies.
    let limit = |name: &str| {
        let argument = &queue["arguments"][format!("x-{name}")];
        let policy = &queue["effective_policy_definition"][name];
        Some(if argument.is_null() { policy } else { argument }).filter(|value| !value.is_null())
    };
    let rejects = limit("overflow").and_then(Json::as_str).is_some_and(|it| it.contains("reject"));
    let keeps = rejects || queue["type"] == "stream";
    let bound = ["max-length", "max-length-bytes"].into_iter().find(|name| limit(name).is_some());
    let drops = format!(
        "drops its oldest events when it is full ({} with overflow = drop-head); overflow = reject-publish would hold them back",
        bound.unwrap_or_default()
    );
    let warnings = [
        (
            queue["durable"] == false,
            "is not durable: confirmed events in it are gone after a restart",
        ),
        (
            queue["auto_delete"] == true,
            "deletes itself with its last consumer, and the events in it",
        ),
        (queue["exclusive"] == true, "is gone with the connection that made it"),
        (bound.is_some() && !keeps, &drops),
        (limit("message-ttl").is_some(), "drops events that wait too long (message-ttl)"),
        (limit("expires").is_some(), "deletes itself when nobody uses it for a while (expires)"),
    ];
    let warnings = warnings.iter().filter(|(applies, _)| *applies);
    warnings.map(|(_, warning)| format!("queue {name} {warning}")).collect()
}

#[cfg(test)]
#[path = "management_tests.rs"]
mod tests;
