//! What AMQP itself can tell of exchanges and queues, and the three orders that `init` gives.
//!
//! Each question has a channel of its own: the broker closes a channel when the answer is no. No
//! question changes anything, though two of them look like orders. Declaring what is there already
//! changes nothing, and the broker says in what it differs. Unbinding what was never
//! bound changes nothing either, but the broker looks first whether we may write to the exchange,
//! which is what a publish needs.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lapin::options::{
    ExchangeDeclareOptions, ExchangeUnbindOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, ExchangeKind};

use super::fault::{ACCESS_REFUSED, AmqpResult, COMMAND_INVALID, NOT_FOUND, PRECONDITION_FAILED};
use super::message::short;

/// A log, which reading does not empty.
pub(super) const STREAM: &str = "stream";
/// Nothing is ever bound from it.
const NO_SUCH_EXCHANGE: &str = "walrelay.never-declared";

/// How an exchange differs from the one that is configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ExchangeDifferences {
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
    /// This login has no right to know.
    pub(super) hidden: bool,
    /// The broker has no such type at all.
    pub(super) unknown_type: bool,
}

impl ExchangeDifferences {
    /// Takes note of a difference; true when it can be agreed to.
    fn agree(&mut self, text: &str) -> bool {
        let current = quoted(text, "current is").unwrap_or_default();
        match quoted(text, "inequivalent arg").as_deref() {
            Some("type") => self.other_type = Some(current),
            Some("durable") => self.transient = true,
            Some("alternate-exchange") => self.alternate = Some(current),
            Some("internal") => return !std::mem::replace(&mut self.internal, true),
            Some("auto_delete") => return !std::mem::replace(&mut self.auto_delete, true),
            _ => {}
        }
        false
    }
}

/// What kind of queue the one for dead letters is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DeadLetterQueue {
    /// A stream that keeps everything.
    Stream,
    /// A stream that forgets, by this argument.
    TruncatedStream(String),
    NotAStream,
    /// This login has no right to know.
    Unknown,
}

/// A connection to ask over.
#[derive(Clone)]
pub(super) struct Probe(pub(super) Arc<lapin::Connection>);

impl Probe {
    pub(super) async fn new_channel(&self) -> AmqpResult<Channel> {
        Ok(self.0.create_channel().await?)
    }

    async fn ask<T>(
        &self,
        question: impl AsyncFnOnce(&Channel) -> lapin::Result<T>,
    ) -> AmqpResult<T> {
        let channel = self.new_channel().await?;
        let answer = question(&channel).await?;
        let _closed = channel.close(200, "".into()).await.is_ok();
        Ok(answer)
    }

    pub(super) async fn exchange_exists(&self, name: &str) -> AmqpResult<bool> {
        let options = ExchangeDeclareOptions { passive: true, ..Default::default() };
        let (kind, none) = (ExchangeKind::Topic, FieldTable::default());
        let declared = self
            .ask(async |channel| channel.exchange_declare(short(name), kind, options, none).await);
        exists(declared.await)
    }

    pub(super) async fn queue_exists(&self, name: &str) -> AmqpResult<bool> {
        let options = QueueDeclareOptions { passive: true, ..Default::default() };
        let none = FieldTable::default();
        let declared = self
            .ask(async |channel| channel.queue_declare(short(name), options, none).await.map(drop));
        exists(declared.await)
    }

    /// May this login publish to the exchange, which exists?
    pub(super) async fn may_publish(&self, name: &str) -> AmqpResult<bool> {
        let (options, none) = (ExchangeUnbindOptions::default(), FieldTable::default());
        let unbound = self.ask(async |channel| {
            let (to, from) = (short(name), short(NO_SUCH_EXCHANGE));
            channel.exchange_unbind(to, from, short("never"), options, none).await
        });
        match unbound.await {
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
    pub(super) async fn differences(
        &self,
        name: &str,
        kind: &str,
    ) -> AmqpResult<ExchangeDifferences> {
        let mut found = ExchangeDifferences::default();
        // The broker names one difference at a time. Those that can be agreed to are, to see the next.
        for _ in 0..4 {
            let (internal, auto_delete) = (found.internal, found.auto_delete);
            let Err(loss) = self.declare_like(name, kind, internal, auto_delete).await else {
                break;
            };
            match loss.code {
                Some(ACCESS_REFUSED) => found.hidden = true,
                Some(COMMAND_INVALID) => found.unknown_type = true,
                Some(PRECONDITION_FAILED) if found.agree(&loss.text) => continue,
                Some(PRECONDITION_FAILED) => {}
                _ => return Err(loss),
            }
            break;
        }
        Ok(found)
    }

    /// Is the queue, which exists, a stream?
    pub(super) async fn queue_kind(&self, name: &str) -> AmqpResult<DeadLetterQueue> {
        match self.declare_queue(name, STREAM).await {
            Ok(()) => Ok(DeadLetterQueue::Stream),
            Err(loss) if loss.code == Some(ACCESS_REFUSED) => Ok(DeadLetterQueue::Unknown),
            Err(loss) if loss.code == Some(PRECONDITION_FAILED) => {
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
            Err(loss) => Err(loss),
        }
    }

    /// Makes a durable exchange of this type.
    pub(super) async fn declare_exchange(&self, name: &str, kind: &str) -> AmqpResult<()> {
        self.declare_like(name, kind, false, false).await
    }

    async fn declare_like(
        &self,
        name: &str,
        kind: &str,
        internal: bool,
        auto_delete: bool,
    ) -> AmqpResult<()> {
        let kind = match kind {
            "topic" => ExchangeKind::Topic,
            "direct" => ExchangeKind::Direct,
            "fanout" => ExchangeKind::Fanout,
            "headers" => ExchangeKind::Headers,
            other => ExchangeKind::Custom(other.to_owned()),
        };
        let (durable, none) = (true, FieldTable::default());
        let options =
            ExchangeDeclareOptions { durable, internal, auto_delete, ..Default::default() };
        let declared = self
            .ask(async |channel| channel.exchange_declare(short(name), kind, options, none).await);
        declared.await
    }

    /// Makes a durable queue of this type.
    pub(super) async fn declare_queue(&self, name: &str, kind: &str) -> AmqpResult<()> {
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
        let declared = self.ask(async |channel| {
            channel.queue_declare(short(name), options, arguments).await.map(drop)
        });
        declared.await
    }

    pub(super) async fn bind(&self, queue: &str, exchange: &str, key: &str) -> AmqpResult<()> {
        let (options, none) = (QueueBindOptions::default(), FieldTable::default());
        let bound = self.ask(async |channel| {
            channel.queue_bind(short(queue), short(exchange), short(key), options, none).await
        });
        bound.await
    }
}

/// Exchanges that are remembered; a template can name any number.
const REMEMBERED_MAX: usize = 1024;
/// How long an exchange counts as missing for further events.
const MISSING_FOR: Duration = Duration::from_secs(1);

type ExchangeQuestion = Pin<Box<dyn Future<Output = (String, AmqpResult<bool>)> + Send>>;

/// Which exchanges there are, as far as one connection has asked.
///
/// A publish to an exchange that is not there closes the channel, and everything in flight with it
/// would have to be sent again. So each exchange is asked for before its first event, one question
/// at a time, while confirms go on being collected.
#[derive(Default)]
pub(super) struct KnownExchanges {
    existing: BTreeSet<String>,
    missing: BTreeMap<String, Instant>,
    question: Option<ExchangeQuestion>,
    /// Since when the question has no answer.
    pub(super) asked_at: Option<Instant>,
}

impl KnownExchanges {
    /// Is it there? Asks when that is not known.
    pub(super) fn exists(&mut self, probe: &Probe, name: &str) -> Option<bool> {
        // The default exchange is always there, and may not be asked for.
        if name.is_empty() || self.existing.contains(name) {
            return Some(true);
        }
        if self.missing.get(name).is_some_and(|since| since.elapsed() < MISSING_FOR) {
            return Some(false);
        }
        if self.question.is_none() {
            let (probe, name) = (probe.clone(), name.to_owned());
            self.asked_at = Some(Instant::now());
            self.question = Some(Box::pin(async move {
                let answer = probe.exchange_exists(&name).await;
                (name, answer)
            }));
        }
        None
    }

    /// An event that was refused for want of it is tried again.
    pub(super) fn ask_again(&mut self, name: &str) {
        self.missing.remove(name);
    }

    /// When the question is answered; never when there is none.
    pub(super) async fn answer(&mut self) -> AmqpResult<()> {
        let Some(question) = &mut self.question else { return std::future::pending().await };
        let (name, answer) = question.await;
        (self.question, self.asked_at) = (None, None);
        if self.existing.len() + self.missing.len() >= REMEMBERED_MAX {
            self.existing.clear();
            self.missing.clear();
        }
        self.missing.remove(&name);
        if answer? {
            self.existing.insert(name);
        } else {
            self.missing.insert(name, Instant::now());
        }
        Ok(())
    }
}

/// An answer of "no" is one, too.
fn exists(answer: AmqpResult<()>) -> AmqpResult<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(loss) if loss.code == Some(NOT_FOUND) => Ok(false),
        Err(loss) => Err(loss),
    }
}

/// What stands in quotes behind the words.
fn quoted(text: &str, after: &str) -> Option<String> {
    let (_, rest) = text.split_once(after)?;
    rest.split('\'').nth(1).map(str::to_owned)
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
