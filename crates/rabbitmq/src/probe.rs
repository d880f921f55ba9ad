//! Questions over AMQP about exchanges and queues, and the declarations that `init` makes.
//!
//! Each question has a channel of its own, because the broker closes the channel when the answer is
//! no. No question changes anything, although two of them use methods that can. Declaring what
//! exists already changes nothing, and the broker reports a difference. Unbinding a binding that
//! does not exist changes nothing either, but the broker first checks the write permission for the
//! exchange, which is the one that a publish needs.

use std::sync::Arc;
use std::time::Duration;

use lapin::options::{
    ExchangeDeclareOptions, ExchangeUnbindOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, ExchangeKind};
use tokio::time::timeout;

use super::connection_loss::{AmqpResult, ConnectionLoss};
use super::exchanges::{Existence, permission_name};
use super::fault::{ACCESS_REFUSED, PRECONDITION_FAILED};
use super::lapin_error::loss_of;
use walrelay_sink::UNREACHABLE;

/// Queue type: a log that reading does not empty.
pub(super) const STREAM: &str = "stream";
/// How long a node may take to answer: one that sends heartbeats may answer nothing.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// An exchange that does not exist, so that nothing is bound to it.
const NO_SUCH_EXCHANGE: &str = "walrelay.never-declared";

/// How an exchange differs from the durable one that is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExchangeDifference {
    OtherType(String),
    NotDurable,
    Internal,
    AutoDelete,
    Alternate(String),
    /// Without the configure permission the broker does not compare.
    Hidden,
    /// The broker has no exchange type of the configured name.
    UnknownType,
    /// Not even whether it exists ([`Existence::Hidden`]).
    Unseen,
}

impl ExchangeDifference {
    /// Parses the text with which the broker refuses a declaration.
    fn parse(text: &str) -> Option<ExchangeDifference> {
        let current = || quoted(text, "current is").unwrap_or_default();
        match quoted(text, "inequivalent arg")?.as_str() {
            "type" => Some(ExchangeDifference::OtherType(current())),
            "durable" => Some(ExchangeDifference::NotDurable),
            "internal" => Some(ExchangeDifference::Internal),
            "auto_delete" => Some(ExchangeDifference::AutoDelete),
            "alternate-exchange" => Some(ExchangeDifference::Alternate(current())),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DeadLetterQueue {
    Stream,
    /// A stream that drops its oldest records, by this argument.
    TruncatedStream(String),
    NotAStream,
    /// The login lacks the permissions to find out.
    Unknown,
}

#[derive(Clone)]
pub(super) struct Probe {
    pub(super) connection: Arc<lapin::Connection>,
    /// The host and the port of the node.
    pub(super) node: String,
}

impl Probe {
    pub(super) async fn new_channel(&self) -> lapin::Result<Channel> {
        self.connection.create_channel().await
    }

    /// Waits for the answers of the node. `silent` is the code of the fault if they do not come in time.
    pub(super) async fn within<T>(
        &self,
        limit: Duration,
        silent: &'static str,
        asking: impl Future<Output = lapin::Result<T>>,
    ) -> AmqpResult<T> {
        let late = |_| {
            let (node, limit) = (&self.node, limit.as_secs());
            let text = format!("{node} lets a client in, and answers no question within {limit} s");
            let mend = "there: rabbitmq-diagnostics status && rabbitmqctl cluster_status; restart that node, or name another host first in sink.rabbitmq.url";
            ConnectionLoss::of(text).caused_by(silent, mend, false)
        };
        timeout(limit, asking).await.map_err(late)?.map_err(loss_of)
    }

    pub(super) async fn in_time<T>(
        &self,
        asking: impl Future<Output = lapin::Result<T>>,
    ) -> AmqpResult<T> {
        self.within(ANSWER_WITHIN, UNREACHABLE, asking).await
    }

    /// Opens so many channels at once, and closes them again.
    pub(super) async fn open_channels(&self, count: usize) -> AmqpResult<()> {
        let opening = async {
            let mut channels = Vec::with_capacity(count);
            for _ in 0..count {
                channels.push(self.new_channel().await?);
            }
            for channel in channels {
                let _closed = channel.close(200, "".into()).await.is_ok();
            }
            Ok(())
        };
        self.in_time(opening).await
    }

    /// Asks on a channel of its own, which is closed behind the answer.
    pub(super) async fn ask<T>(
        &self,
        question: impl AsyncFnOnce(&Channel) -> lapin::Result<T>,
    ) -> AmqpResult<T> {
        let asking = async {
            let channel = self.new_channel().await?;
            let answer = question(&channel).await?;
            let _closed = channel.close(200, "".into()).await.is_ok();
            Ok(answer)
        };
        self.in_time(asking).await
    }

    pub(super) async fn exchange_exists(&self, name: &str) -> AmqpResult<Existence> {
        let options = ExchangeDeclareOptions { passive: true, ..Default::default() };
        Existence::of(self.exchange_declare(name, "topic", options).await)
    }

    pub(super) async fn queue_exists(&self, name: &str) -> AmqpResult<Existence> {
        let options = QueueDeclareOptions { passive: true, ..Default::default() };
        Existence::of(self.queue_declare(name, options, FieldTable::default()).await)
    }

    /// Has this login the permission to publish to the exchange, which exists? For the default exchange the broker
    /// also refuses with the same code what it allows nobody, and names no exchange then.
    pub(super) async fn may_publish(&self, name: &str) -> AmqpResult<bool> {
        let (options, none) = (ExchangeUnbindOptions::default(), FieldTable::default());
        let unbound = self.ask(async |channel| {
            let (to, from) = (short(name), short(NO_SUCH_EXCHANGE));
            channel.exchange_unbind(to, from, short("never"), options, none).await
        });
        match unbound.await {
            Ok(()) => Ok(true),
            // The read permission for the other exchange is checked second: its lack means yes.
            Err(loss) if loss.code == Some(ACCESS_REFUSED) => {
                let refused = format!("exchange '{}' in vhost", permission_name(name));
                Ok(!loss.text.contains(&refused))
            }
            Err(loss) if loss.code.is_some() => Ok(true),
            Err(loss) => Err(loss),
        }
    }

    /// Compares the exchange, if it exists, with a durable one of this type, or of any type.
    pub(super) async fn exchange(
        &self,
        name: &str,
        kind: &str,
        any_type: bool,
    ) -> AmqpResult<Option<Vec<ExchangeDifference>>> {
        match self.exchange_exists(name).await? {
            Existence::There => {}
            Existence::Missing => return Ok(None),
            Existence::Hidden => return Ok(Some(vec![ExchangeDifference::Unseen])),
        }
        let (mut kind, mut found) = (kind.to_owned(), Vec::new());
        let mut options = ExchangeDeclareOptions { durable: true, ..Default::default() };
        // The broker reports one difference at a time. The next declaration adopts it where it can.
        while let Err(loss) = self.exchange_declare(name, &kind, options).await {
            let difference = match loss.code {
                Some(ACCESS_REFUSED) => Some(ExchangeDifference::Hidden),
                _ if loss.is_unknown_exchange_type() => Some(ExchangeDifference::UnknownType),
                Some(PRECONDITION_FAILED) => ExchangeDifference::parse(&loss.text),
                _ => return Err(loss),
            };
            let Some(difference) = difference.filter(|it| !found.contains(it)) else { break };
            let adopted = match &difference {
                ExchangeDifference::Internal => !std::mem::replace(&mut options.internal, true),
                ExchangeDifference::AutoDelete => {
                    !std::mem::replace(&mut options.auto_delete, true)
                }
                ExchangeDifference::OtherType(current) if any_type && kind != *current => {
                    kind.clone_from(current);
                    continue;
                }
                _ => false,
            };
            found.push(difference);
            if !adopted {
                break;
            }
        }
        Ok(Some(found))
    }

    /// Is the queue, which exists, a stream?
    pub(super) async fn queue_kind(&self, name: &str) -> AmqpResult<DeadLetterQueue> {
        let Err(loss) = self.declare_queue(name, STREAM).await else {
            return Ok(DeadLetterQueue::Stream);
        };
        match loss.code {
            Some(ACCESS_REFUSED) => Ok(DeadLetterQueue::Unknown),
            Some(PRECONDITION_FAILED) => {
                Ok(match quoted(&loss.text, "inequivalent arg").as_deref() {
                    Some("x-queue-type" | "durable" | "auto_delete" | "exclusive") => {
                        DeadLetterQueue::NotAStream
                    }
                    Some(limit @ ("x-max-age" | "x-max-length-bytes")) => {
                        DeadLetterQueue::TruncatedStream(limit.to_owned())
                    }
                    _ => DeadLetterQueue::Unknown,
                })
            }
            _ => Err(loss),
        }
    }

    pub(super) async fn declare_exchange(&self, name: &str, kind: &str) -> AmqpResult<()> {
        let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
        self.exchange_declare(name, kind, options).await
    }

    pub(super) async fn declare_queue(&self, name: &str, kind: &str) -> AmqpResult<()> {
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
        self.queue_declare(name, options, arguments).await
    }

    pub(super) async fn bind(&self, queue: &str, exchange: &str, key: &str) -> AmqpResult<()> {
        let (options, none) = (QueueBindOptions::default(), FieldTable::default());
        let bound = self.ask(async |channel| {
            channel.queue_bind(short(queue), short(exchange), short(key), options, none).await
        });
        bound.await
    }

    async fn exchange_declare(
        &self,
        name: &str,
        kind: &str,
        options: ExchangeDeclareOptions,
    ) -> AmqpResult<()> {
        // A type is sent as its name, also one that lapin knows.
        let (kind, none) = (ExchangeKind::Custom(kind.to_owned()), FieldTable::default());
        let declared = self
            .ask(async |channel| channel.exchange_declare(short(name), kind, options, none).await);
        declared.await
    }

    async fn queue_declare(
        &self,
        name: &str,
        options: QueueDeclareOptions,
        arguments: FieldTable,
    ) -> AmqpResult<()> {
        let declared =
            self.ask(async |channel| channel.queue_declare(short(name), options, arguments).await);
        declared.await.map(drop)
    }
}

/// Converts a name whose length was checked.
pub(super) fn short(name: &str) -> ShortString {
    ShortString::try_new(name).unwrap_or_default()
}

/// Returns the first text in single quotes behind `after`.
fn quoted(text: &str, after: &str) -> Option<String> {
    let (_, rest) = text.split_once(after)?;
    rest.split('\'').nth(1).map(str::to_owned)
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
