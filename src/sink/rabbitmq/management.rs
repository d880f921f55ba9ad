//! The management API, as far as `check` needs it: one GET at a time, answered with JSON; and what
//! its answers say of bindings and queues.
//!
//! AMQP cannot list bindings or policies. The answer is bounded in size and in time, redirects are
//! not followed (the login would go with them), and no error quotes the URL.

use std::error::Error;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use serde_json::Value as Json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::settings::{ManagementUri, RabbitLogin, RabbitSettings, RabbitTls};
use super::tls;
use crate::base::encoding::percent_encode;

const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// A hundred thousand bindings, roughly.
const ANSWER_BYTES_MAX: usize = 16 << 20;

type BoxedError = Box<dyn Error + Send + Sync>;

/// Why a request has no answer, for people.
fn describe(error: &BoxedError) -> String {
    let Some(http) = error.downcast_ref::<hyper::Error>() else {
        let too_large = error.is::<LengthLimitError>();
        return if too_large { "its answer is too large".to_owned() } else { error.to_string() };
    };
    let source = http.source();
    let io = source.and_then(|source| source.downcast_ref::<std::io::Error>());
    let cut = io.is_some_and(|error| error.kind() == std::io::ErrorKind::UnexpectedEof);
    match source {
        _ if http.is_parse() => format!("its answer is no HTTP ({http})"),
        _ if cut || http.is_incomplete_message() => "its answer was cut short".to_owned(),
        Some(source) => source.to_string(),
        None => http.to_string(),
    }
}

/// The API at `sink.rabbitmq.management_url`.
pub(super) struct ManagementApi<'a> {
    uri: &'a ManagementUri,
    settings: &'a RabbitSettings,
}

impl<'a> ManagementApi<'a> {
    pub(super) fn of(settings: &'a RabbitSettings) -> Option<ManagementApi<'a>> {
        settings.management.as_ref().map(|uri| ManagementApi { uri, settings })
    }

    /// What it says of an exchange, and what is bound to it.
    pub(super) async fn exchange(
        &self,
        name: &str,
    ) -> Result<(Json, Vec<ExchangeBinding>), String> {
        let exchange = self.get("exchanges", &[name]).await?;
        let listed = self.get("exchanges", &[name, "bindings", "source"]).await?;
        Ok((exchange, bindings(&listed)))
    }

    /// What `GET /api/KIND/VHOST/PATH` says, or why it says nothing; the parts of the path are
    /// encoded here.
    pub(super) async fn get(&self, kind: &str, path: &[&str]) -> Result<Json, String> {
        let answer = match timeout(ANSWER_WITHIN, self.send(kind, path)).await {
            Ok(Ok((200, body))) => {
                serde_json::from_slice(&body).map_err(|_| "its answer is no JSON".to_owned())
            }
            Ok(Ok((401 | 403, _))) => {
                Err("it answered 401: the login was refused, or lacks the tag management"
                    .to_owned())
            }
            Ok(Ok((status, _))) => Err(format!("it answered {status}")),
            Ok(Err(error)) => Err(describe(&error)),
            Err(_) => Err(format!("it did not answer within {} s", ANSWER_WITHIN.as_secs())),
        };
        let asked = || {
            format!("the management API at {} was asked for {kind}/{}", self.uri, path.join("/"))
        };
        answer.map_err(|error| format!("{}: {error}", asked()))
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

    async fn send(&self, kind: &str, path: &[&str]) -> Result<(u16, Bytes), BoxedError> {
        let request = self.request(kind, path)?;
        let ManagementUri { host, tls, ca_file, .. } = self.uri;
        let stream = TcpStream::connect((host.name.as_str(), host.port)).await?;
        if !tls {
            return exchange(stream, request).await;
        }
        let roots = RabbitTls { ca_file: ca_file.clone(), ..RabbitTls::default() };
        exchange(tls::connect(stream, &host.name, &roots).await?, request).await
    }
}

async fn exchange<S>(stream: S, request: Request<Empty<Bytes>>) -> Result<(u16, Bytes), BoxedError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the sender; what ends it early comes with the answer.
    tokio::spawn(connection);
    let answer = sender.send_request(request).await?;
    let status = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await?;
    Ok((status, body.to_bytes()))
}

/// One binding of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExchangeBinding {
    /// A queue; else another exchange.
    pub(super) to_queue: bool,
    pub(super) destination: String,
    pub(super) key: String,
}

/// Is something bound for a routing key?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Routability {
    Bound,
    Unbound,
    /// It depends on more than the key.
    Unknown,
}

/// The bindings in an answer; what is no binding is left out.
fn bindings(answer: &Json) -> Vec<ExchangeBinding> {
    let text = |binding: &Json, name: &str| binding[name].as_str().map(str::to_owned);
    let bindings = answer.as_array().into_iter().flatten().filter_map(|binding| {
        Some(ExchangeBinding {
            to_queue: binding["destination_type"] == "queue",
            destination: text(binding, "destination")?,
            key: text(binding, "routing_key")?,
        })
    });
    bindings.collect()
}

/// Whether an exchange of this type sends the key anywhere.
pub(super) fn routability(kind: &str, bindings: &[ExchangeBinding], key: &str) -> Routability {
    let any = |bound: fn(&str, &str) -> bool| match bindings.iter().any(|it| bound(&it.key, key)) {
        true => Routability::Bound,
        false => Routability::Unbound,
    };
    match kind {
        _ if bindings.is_empty() => Routability::Unbound,
        "topic" => any(topic_matches),
        "direct" => any(|bound, key| bound == key),
        "fanout" => Routability::Bound,
        _ => Routability::Unknown,
    }
}

/// `*` is one word, `#` any number of them.
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

/// What of a queue can lose events that were confirmed, a sentence each.
pub(super) fn queue_doubts(queue: &Json) -> Vec<String> {
    let name = queue["name"].as_str().unwrap_or_default();
    // An argument of the queue, else what policies say.
    let limit = |name: &str| {
        let argument = &queue["arguments"][format!("x-{name}")];
        let policy = &queue["effective_policy_definition"][name];
        Some(if argument.is_null() { policy } else { argument }).filter(|value| !value.is_null())
    };
    let rejects = limit("overflow").and_then(Json::as_str).is_some_and(|it| it.contains("reject"));
    let keeps = rejects || queue["type"] == "stream";
    let bound = ["max-length", "max-length-bytes"].into_iter().find(|name| limit(name).is_some());
    let drops = bound.filter(|_| !keeps).map(|bound| {
        format!("drops its oldest events when it is full ({bound} with overflow = drop-head); overflow = reject-publish would hold them back")
    });
    let doubt = |doubtful: bool, text: &str| doubtful.then(|| text.to_owned());
    let gone = "is not durable: confirmed events in it are gone after a restart";
    let deleted = "deletes itself with its last consumer, and the events in it";
    let expires = "deletes itself when nobody uses it for a while (expires)";
    let too_old = "drops events that wait too long (message-ttl)";
    let doubts = [
        doubt(queue["durable"] == false, gone),
        doubt(queue["auto_delete"] == true, deleted),
        doubt(queue["exclusive"] == true, "is gone with the connection that made it"),
        drops,
        doubt(limit("message-ttl").is_some(), too_old),
        doubt(limit("expires").is_some(), expires),
    ];
    doubts.into_iter().flatten().map(|doubt| format!("queue {name} {doubt}")).collect()
}

#[cfg(test)]
#[path = "management_tests.rs"]
mod tests;
