//! What AMQP itself can tell of exchanges and queues, and the three orders that `init` gives.
//!
//! Each question has a channel of its own: the broker closes the channel of who asks in vain. No
//! question changes anything, though two of them look like orders. Declaring what is there already
//! changes nothing, and the broker says in what it differs. Unbinding what was never
//! bound changes nothing either, but the broker looks first whether we may write to the exchange,
//! which is what a publish needs.

use lapin::options::{
    ExchangeDeclareOptions, ExchangeUnbindOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, ExchangeKind};

use super::connection::Link;
use super::fault::Loss;
use super::message::short;
use super::replies::{ACCESS_REFUSED, COMMAND_INVALID, NOT_FOUND, PRECONDITION_FAILED};

/// A log, which reading does not empty.
pub(super) const STREAM: &str = "stream";
/// Nothing is ever bound from it.
const NO_SUCH_EXCHANGE: &str = "walrelay.never-declared";

/// How an exchange differs from the one that is configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    /// Its type, when it is another.
    pub(super) other_type: Option<String>,
    /// It does not outlive the broker.
    pub(super) transient: bool,
    /// It takes messages from other exchanges only.
    pub(super) internal: bool,
    /// It goes with its last binding.
    pub(super) auto_delete: bool,
    /// Where it sends what it cannot route.
    pub(super) alternate: Option<String>,
    /// This login may not be told.
    pub(super) hidden: bool,
    /// The broker has no such type at all.
    pub(super) unknown_type: bool,
}

async fn ask<T>(
    link: &Link,
    question: impl AsyncFnOnce(&Channel) -> lapin::Result<T>,
) -> Result<T, Loss> {
    let channel = link.asking().await?;
    let answer = question(&channel).await?;
    let _closed = channel.close(200, "".into()).await.is_ok();
    Ok(answer)
}

/// An answer of "no" is one, too.
fn found(answer: Result<(), Loss>) -> Result<bool, Loss> {
    match answer {
        Ok(()) => Ok(true),
        Err(loss) if loss.code == Some(NOT_FOUND) => Ok(false),
        Err(loss) => Err(loss),
    }
}

pub(super) async fn exchange_exists(link: &Link, name: &str) -> Result<bool, Loss> {
    let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
    let none = FieldTable::default();
    found(
        ask(link, async |channel| {
            channel.exchange_declare(short(name), ExchangeKind::Topic, options, none).await
        })
        .await,
    )
}

pub(super) async fn queue_exists(link: &Link, name: &str) -> Result<bool, Loss> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let none = FieldTable::default();
    found(
        ask(link, async |channel| {
            channel.queue_declare(short(name), options, none).await.map(drop)
        })
        .await,
    )
}

/// May this login publish to the exchange, which exists?
pub(super) async fn may_publish(link: &Link, name: &str) -> Result<bool, Loss> {
    let options = ExchangeUnbindOptions::default();
    let answer = ask(link, async |channel| {
        let (to, from) = (short(name), short(NO_SUCH_EXCHANGE));
        channel.exchange_unbind(to, from, short("never"), options, FieldTable::default()).await
    });
    match answer.await {
        Ok(()) => Ok(true),
        // Refused to read from the other exchange, which is asked second, means yes.
        Err(loss) if loss.code == Some(ACCESS_REFUSED) => {
            Ok(!loss.text.contains(&format!("exchange '{name}' in vhost")))
        }
        Err(loss) if loss.code.is_some() => Ok(true),
        Err(loss) => Err(loss),
    }
}

/// In what the exchange, which exists, differs from a durable one of this type.
pub(super) async fn shape(link: &Link, name: &str, kind: &str) -> Result<Shape, Loss> {
    let mut shape = Shape::default();
    // The broker names one difference at a time. Those that can be agreed to are, to see the next.
    for _ in 0..4 {
        let (internal, auto_delete) = (shape.internal, shape.auto_delete);
        let Err(loss) = declare_exchange(link, name, kind, internal, auto_delete).await else {
            break;
        };
        match loss.code {
            Some(ACCESS_REFUSED) => shape.hidden = true,
            Some(COMMAND_INVALID) => shape.unknown_type = true,
            Some(PRECONDITION_FAILED) if agree(&mut shape, &loss.text) => continue,
            Some(PRECONDITION_FAILED) => {}
            _ => return Err(loss),
        }
        break;
    }
    Ok(shape)
}

/// What stands in quotes behind the words.
fn quoted(text: &str, after: &str) -> Option<String> {
    let (_, rest) = text.split_once(after)?;
    rest.split('\'').nth(1).map(str::to_owned)
}

/// Takes note of a difference; true when it can be agreed to.
fn agree(shape: &mut Shape, text: &str) -> bool {
    let current = quoted(text, "current is").unwrap_or_default();
    match quoted(text, "inequivalent arg").as_deref() {
        Some("type") => shape.other_type = Some(current),
        Some("durable") => shape.transient = true,
        Some("alternate-exchange") => shape.alternate = Some(current),
        Some("internal") => return !std::mem::replace(&mut shape.internal, true),
        Some("auto_delete") => return !std::mem::replace(&mut shape.auto_delete, true),
        _ => {}
    }
    false
}

/// What kind of queue one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum QueueKind {
    /// A stream that keeps everything.
    Stream,
    /// A stream that forgets, by this argument.
    Forgetful(String),
    /// No stream.
    Other,
    /// This login may not be told.
    Hidden,
}

/// Is the queue, which exists, a stream?
pub(super) async fn queue_kind(link: &Link, name: &str) -> Result<QueueKind, Loss> {
    match declare_queue(link, name, STREAM).await {
        Ok(()) => Ok(QueueKind::Stream),
        Err(loss) if loss.code == Some(ACCESS_REFUSED) => Ok(QueueKind::Hidden),
        Err(loss) if loss.code == Some(PRECONDITION_FAILED) => {
            Ok(match quoted(&loss.text, "inequivalent arg").as_deref() {
                Some("x-queue-type" | "durable" | "auto_delete" | "exclusive") => QueueKind::Other,
                Some(limit @ ("x-max-age" | "x-max-length-bytes")) => {
                    QueueKind::Forgetful(limit.to_owned())
                }
                _ => QueueKind::Hidden,
            })
        }
        Err(loss) => Err(loss),
    }
}

pub(super) async fn declare_exchange(
    link: &Link,
    name: &str,
    kind: &str,
    internal: bool,
    auto_delete: bool,
) -> Result<(), Loss> {
    let kind = match kind {
        "topic" => ExchangeKind::Topic,
        "direct" => ExchangeKind::Direct,
        "fanout" => ExchangeKind::Fanout,
        "headers" => ExchangeKind::Headers,
        other => ExchangeKind::Custom(other.to_owned()),
    };
    let durable = true;
    let options = ExchangeDeclareOptions { durable, internal, auto_delete, ..Default::default() };
    ask(link, async |channel| {
        channel.exchange_declare(short(name), kind, options, FieldTable::default()).await
    })
    .await
}

/// Makes a durable queue of this type.
pub(super) async fn declare_queue(link: &Link, name: &str, kind: &str) -> Result<(), Loss> {
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
    ask(link, async |channel| {
        channel.queue_declare(short(name), options, arguments).await.map(drop)
    })
    .await
}

pub(super) async fn bind(link: &Link, queue: &str, exchange: &str, key: &str) -> Result<(), Loss> {
    let options = QueueBindOptions::default();
    ask(link, async |channel| {
        let (queue, exchange) = (short(queue), short(exchange));
        channel.queue_bind(queue, exchange, short(key), options, FieldTable::default()).await
    })
    .await
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
