//! Trait that the user of the crate implements: the effect of a message, and the failures that may
//! pass.

use std::borrow::Cow;

use tokio_postgres::Transaction;

use crate::Message;

/// Handles the messages of one consumer.
///
/// Rows that the handler writes with `transaction` and the row that marks the message as processed
/// are committed together. Everything else that it does (mails, HTTP calls) may be repeated.
pub trait Handler: Send + Sync + 'static {
    type Error: std::error::Error + Send + Sync + 'static;

    /// Handles one message. On an error or a panic the transaction is rolled back.
    fn handle(
        &self,
        message: &Message,
        transaction: &Transaction<'_>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Says whether another attempt may help. The default is [`crate::classify`].
    fn classify(&self, error: &Self::Error) -> Failure {
        crate::classify(error)
    }
}

/// Whether another attempt at a message may help.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// It may: the message goes through the retry levels.
    Transient,
    /// It cannot: the message is dead-lettered at once, as class `consumer.permanent`.
    Permanent,
    /// Like `Permanent`, with an error class of its own for `walrelay dlq list --error-class`.
    PermanentAs(Cow<'static, str>),
    /// The message is not the cause: a dependency is away, a table or a right is missing. The lane is
    /// held, and the message is tried again until it passes; no attempt is counted.
    Hold,
}
