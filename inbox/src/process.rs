//! The way of one message: claimed, handled, and settled once everything about it is certain.
//!
//! A failure that is no fault of the message does not count: the message is held, and tried again
//! from the claim. A commit whose answer was lost is found there as a duplicate.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use walrelay_dead_letter::header::KAFKA_HEADER_BYTES;

use crate::breaker::Breaker;
use crate::broker::{Broker, Copies as _, Destination, Outgoing, Unconfirmed};
use crate::classify::is_conflict;
use crate::connection::{Outage, Session};
use crate::copies::{DeadLetter, HEADERS_BYTES_KEPT, VALUE_BYTES_KEPT, fit, retry_headers};
use crate::decision::{Cause, LevelCopy, Outcome, Step};
use crate::delivery::Delivery;
use crate::error::chain;
use crate::hold::HoldReason;
use crate::metrics::Metrics;
use crate::panics::caught;
use crate::span::{MessageSpan, Tracing};
use crate::store::{Change, Claim, Claimed, ends_session, is_of_data};
use crate::time::{Backoff, backoff, unix_now};
use crate::waiting::{GivenUp, Obstacle, Waiting, pause};
use crate::{Failure, Handler, Message, Settings};

const UNUSABLE_ID: &str = "the message has no id of 1 to 1024 bytes (as UTF-8 without NUL), so a \
    repetition could not be recognised";
/// A handler during which the connection is lost so often is the cause of it.
const LOSSES_MAX: u32 = 3;
/// How often a transaction that has lost against another one is repeated at once.
const CONFLICTS_MAX: u32 = 3;
const NO_ANSWER: Obstacle =
    (HoldReason::Postgres, "Postgres does not answer, or another session holds the message");
const NOT_CONFIRMED: Obstacle = (
    HoldReason::Broker,
    "the broker does not confirm a copy: it may be short of memory, disk or replicas",
);

/// The state that all lanes share.
pub(crate) struct Shared<B: Broker, H> {
    pub(crate) settings: Settings,
    pub(crate) handler: H,
    pub(crate) copies: B::Copies,
    /// `SERVICE@host`.
    pub(crate) writer: String,
    pub(crate) breaker: Breaker,
    pub(crate) metrics: Metrics,
    pub(crate) tracing: Tracing,
}

/// Handles the messages of a lane.
pub(crate) struct Processor<B: Broker, H> {
    shared: Arc<Shared<B, H>>,
    session: Session,
    backoff: Backoff,
    waiting: Waiting,
}

/// The broker will never take a copy.
struct Refused(String);

/// An attempt came to no decision.
enum Interrupted {
    Outage(Outage),
    GivenUp,
    LostInHandler(Outage),
    /// The transaction has lost against another one. If it is not repeated, this follows.
    Conflict(Result<Step, Outage>),
}

impl From<Outage> for Interrupted {
    fn from(outage: Outage) -> Interrupted {
        Interrupted::Outage(outage)
    }
}

impl From<GivenUp> for Interrupted {
    fn from(_: GivenUp) -> Interrupted {
        Interrupted::GivenUp
    }
}

impl From<tokio_postgres::Error> for Interrupted {
    fn from(error: tokio_postgres::Error) -> Interrupted {
        let has_lost = is_conflict(&error);
        let outage = Outage::from(error);
        if has_lost { Interrupted::Conflict(Err(outage)) } else { Interrupted::Outage(outage) }
    }
}

impl<B: Broker, H: Handler> Processor<B, H> {
    pub(crate) fn new(shared: Arc<Shared<B, H>>, session: Session) -> Processor<B, H> {
        let waiting = Waiting::new(&shared.settings.service, &shared.metrics);
        Processor { shared, session, backoff: backoff(), waiting }
    }

    pub(crate) async fn process(&mut self, mut delivery: Delivery<B::Mark>) {
        if !delivery.begin() {
            return;
        }
        let span = self.shared.tracing.begin(&mut delivery.message);
        let outcome = self.outcome(&mut delivery, &span).await.ok();
        self.backoff.succeeded();
        if outcome.is_none() {
            // It may still wait for an answer.
            self.session.discard();
        }
        if self.waiting.end() && outcome.is_some() {
            tracing::info!(consumer = self.shared.settings.service, "the lane goes on");
        }
        span.end(outcome, delivery.message.failed_attempts());
        if let Some(outcome) = outcome {
            self.shared.metrics.settled(outcome);
            delivery.settle();
        }
    }

    /// Does all that must be certain before the delivery is settled.
    async fn outcome(
        &mut self,
        delivery: &mut Delivery<B::Mark>,
        span: &MessageSpan,
    ) -> Result<Outcome, GivenUp> {
        let shared = Arc::clone(&self.shared);
        let mut breaker = shared.breaker.turn();
        let mut refused: Option<Cause> = None;
        loop {
            let step = match (self.step(delivery, span).await?, &refused) {
                // The copies that follow would be refused, too. So no attempt is counted any more.
                (step, Some(cause)) if step.is_retry() => Step::DeadLetter(cause.clone()),
                (step, _) => step,
            };
            let cause = match step {
                Step::Processed => {
                    breaker.succeeded();
                    return Ok(Outcome::Processed);
                }
                Step::Duplicate => return Ok(Outcome::Duplicate),
                Step::Hold { reason } => {
                    self.wait(HoldReason::Handler, &reason, delivery).await?;
                    continue;
                }
                Step::Copy(copy) => match self.copy_to_level(delivery, &copy).await? {
                    Ok(outcome) => return Ok(outcome),
                    Err(Refused(reason)) => {
                        let (consumer, id) = (&shared.settings.service, delivery.message.id());
                        let code = "inbox.copy-refused";
                        tracing::warn!(code, consumer, id, reason, "the broker refuses a copy");
                        let (class, attempts) = ("consumer.refused-copy".into(), copy.attempts);
                        refused.insert(Cause { class, attempts, reason, has_id: true }).clone()
                    }
                },
                Step::DeadLetter(cause) => cause,
            };
            match breaker.allow(&cause, Instant::now()) {
                Ok(()) => return self.dead_letter(delivery, &cause).await,
                Err(reason) => {
                    self.wait(HoldReason::Breaker, &reason, delivery).await?;
                }
            }
        }
    }

    async fn step(
        &mut self,
        delivery: &mut Delivery<B::Mark>,
        span: &MessageSpan,
    ) -> Result<Step, GivenUp> {
        let step = if self.shared.is_for_another(&delivery.message) {
            Step::Duplicate
        } else if delivery.message.has_id() {
            self.decide(delivery, span).await?
        } else {
            Step::without_id(UNUSABLE_ID.to_owned())
        };
        // What holds the lane is logged where it waits.
        let is_probe = self.waiting.reason() == Some(HoldReason::Breaker);
        if let Some(reason) = step.failure().filter(|_| !is_probe) {
            span.failed(reason);
            let (consumer, id) = (&self.shared.settings.service, delivery.message.id());
            tracing::warn!(code = "inbox.handler-failed", consumer, id, reason, "a message failed");
        }
        Ok(step)
    }

    /// Tries the message until it is known what follows.
    async fn decide(
        &mut self,
        delivery: &mut Delivery<B::Mark>,
        span: &MessageSpan,
    ) -> Result<Step, GivenUp> {
        let (mut losses, mut conflicts) = (0, 0);
        // Why the message is not handled again.
        let mut given_up = None;
        loop {
            let interrupted = match self.attempt(delivery, span, given_up.clone()).await {
                Ok(step) => return Ok(step),
                Err(interrupted) => interrupted,
            };
            let outage = match interrupted {
                Interrupted::GivenUp => return Err(GivenUp),
                Interrupted::Conflict(_) if conflicts < CONFLICTS_MAX => {
                    conflicts += 1;
                    continue;
                }
                Interrupted::Conflict(Ok(step)) => return Ok(step),
                Interrupted::Conflict(Err(outage)) | Interrupted::Outage(outage) => outage,
                Interrupted::LostInHandler(outage) => {
                    losses += 1;
                    let is_last = losses == LOSSES_MAX;
                    given_up =
                        is_last.then(|| format!("each time the connection was lost: {}", outage.0));
                    outage
                }
            };
            self.wait(HoldReason::Postgres, &outage.0, delivery).await?;
        }
    }

    /// `given_up`: why it is only looked whether the message is processed.
    async fn attempt(
        &mut self,
        delivery: &mut Delivery<B::Mark>,
        span: &MessageSpan,
        given_up: Option<String>,
    ) -> Result<Step, Interrupted> {
        let Processor { shared, session, waiting, .. } = self;
        let store = waiting.answer(NO_ANSWER, delivery, session.store()).await??;
        let began = Instant::now();
        let claimed = waiting.answer(NO_ANSWER, delivery, store.begin()).await??;
        let claiming = claimed.claim(&delivery.message);
        let claim = match waiting.answer(NO_ANSWER, delivery, claiming).await? {
            Err(error) if is_of_data(&error) => {
                let reason = format!("Postgres cannot store id or key: {}", chain(&error));
                return Ok(Step::without_id(reason));
            }
            claim => claim?,
        };
        let step = match claim {
            Claim::First { attempts } => {
                delivery.message.count_attempts(attempts.unwrap_or_default());
                // The commit before, whose answer was lost, had no effect.
                if let Some(reason) = given_up {
                    return Ok(shared.failed(&delivery.message, Failure::Transient, reason));
                }
                shared.handle(claimed, delivery, span, waiting).await?
            }
            Claim::Duplicate { has_row } => {
                drop(claimed);
                if has_row {
                    let forgetting = store.change(&delivery.message, Change::Forget);
                    waiting.answer(NO_ANSWER, delivery, forgetting).await??;
                }
                return Ok(Step::Duplicate);
            }
            Claim::Waiting { level, due, attempts } => {
                delivery.message.count_attempts(attempts.unwrap_or_default());
                let attempts = delivery.message.failed_attempts();
                return Ok(Step::behind(level, due, attempts, &shared.settings.levels));
            }
        };
        shared.metrics.processed_in(began.elapsed());
        Ok(step)
    }

    /// The row first: from then on later messages of the key wait, whenever the copy comes. There
    /// is none if another instance has processed the message meanwhile.
    async fn copy_to_level(
        &mut self,
        delivery: &Delivery<B::Mark>,
        level_copy: &LevelCopy,
    ) -> Result<Result<Outcome, Refused>, GivenUp> {
        let shared = Arc::clone(&self.shared);
        let LevelCopy { level, wait, attempts, ref failure } = *level_copy;
        let defer = Change::Defer {
            level: i32::try_from(level).unwrap_or(i32::MAX),
            attempts: i32::try_from(attempts).unwrap_or(i32::MAX),
            wait,
        };
        let Some(copy) = self.change(delivery, defer).await? else {
            return Ok(Ok(Outcome::Duplicate));
        };
        let has_failed = failure.is_some();
        let level = shared.settings.levels[level - 1];
        let message = &delivery.message;
        let headers = retry_headers(message, level_copy, copy, unix_now());
        let destination = Destination::Level { level, wait };
        let value = message.received.value.clone();
        let outgoing = Outgoing { message, destination, headers, value };
        let published = self.publish(&outgoing, delivery).await?;
        if published.is_ok() {
            if has_failed {
                shared.metrics.retried(level);
            }
            self.change(delivery, Change::Copied { copy }).await?;
        }
        let outcome = if has_failed { Outcome::Retried } else { Outcome::Deferred };
        Ok(published.map(|()| outcome))
    }

    async fn dead_letter(
        &mut self,
        delivery: &Delivery<B::Mark>,
        cause: &Cause,
    ) -> Result<Outcome, GivenUp> {
        self.publish_dead_letter(delivery, cause).await?;
        if cause.has_id {
            self.change(delivery, Change::Dead).await?;
        }
        Ok(Outcome::DeadLettered)
    }

    /// Changes the message's row, however long Postgres is away.
    async fn change(
        &mut self,
        delivery: &Delivery<B::Mark>,
        change: Change,
    ) -> Result<Option<i32>, GivenUp> {
        loop {
            let session = &mut self.session;
            let message = &delivery.message;
            let changing = async { Ok(session.store().await?.change(message, change).await?) };
            let outage: Outage = match self.waiting.answer(NO_ANSWER, delivery, changing).await? {
                Ok(copy) => return Ok(copy),
                Err(outage) => outage,
            };
            self.wait(HoldReason::Postgres, &outage.0, delivery).await?;
        }
    }

    /// Holds the lane for a while, before the message is tried again. The next attempt has a new
    /// session: the old one may be lost, or know a table as it was before its migration.
    async fn wait(
        &mut self,
        reason: HoldReason,
        why: &str,
        delivery: &Delivery<B::Mark>,
    ) -> Result<(), GivenUp> {
        self.waiting.hold(reason, why, &delivery.message);
        self.session.discard();
        pause(self.backoff.next_delay(), delivery).await
    }

    /// Publishes a dead letter, and cuts parts that are too large for the broker. A dead letter
    /// that is refused even without its value and its large headers is not given up: somebody must
    /// change the broker's settings.
    async fn publish_dead_letter(
        &mut self,
        delivery: &Delivery<B::Mark>,
        cause: &Cause,
    ) -> Result<(), GivenUp> {
        let (message, shared) = (&delivery.message, Arc::clone(&self.shared));
        let exchange = B::HAS_EXCHANGES.then_some(shared.settings.service.as_str());
        let letter = DeadLetter { cause, exchange, relay: &shared.writer };
        let whole = message.received.value.clone();
        let length = whole.as_ref().map_or(0, Bytes::len);
        let mut kept_max = length;
        let mut was_refused = false;
        loop {
            let value = whole.as_ref().map(|value| value.slice(..kept_max));
            let mut headers = letter.headers(message, kept_max < length, unix_now());
            if was_refused {
                fit(&mut headers, HEADERS_BYTES_KEPT, KAFKA_HEADER_BYTES);
            }
            let destination = Destination::DeadLetters;
            let outgoing = Outgoing { message, destination, headers, value };
            let Err(Refused(reason)) = self.publish(&outgoing, delivery).await? else {
                return Ok(());
            };
            if was_refused && kept_max == 0 {
                let why = format!("the broker refuses even the shortest dead letter: {reason}");
                self.waiting.hold(HoldReason::Broker, &why, message);
            } else {
                let (consumer, id) = (&shared.settings.service, message.id());
                let code = "inbox.dead-letter-refused";
                tracing::warn!(code, consumer, id, reason, "it is sent again, shorter");
            }
            was_refused = true;
            kept_max = if kept_max > VALUE_BYTES_KEPT { VALUE_BYTES_KEPT } else { 0 };
            pause(self.backoff.next_delay(), delivery).await?;
        }
    }

    /// Sends a copy until the broker has confirmed or refused it, as long as the message is wanted.
    async fn publish(
        &mut self,
        copy: &Outgoing<'_>,
        delivery: &Delivery<B::Mark>,
    ) -> Result<Result<(), Refused>, GivenUp> {
        loop {
            let sending = self.shared.copies.send(copy);
            match self.waiting.answer(NOT_CONFIRMED, delivery, sending).await? {
                Ok(()) => return Ok(Ok(())),
                Err(Unconfirmed::Refused(reason)) => return Ok(Err(Refused(reason))),
                Err(Unconfirmed::Outage(reason)) => {
                    self.waiting.hold(HoldReason::Broker, &reason, copy.message);
                    pause(self.backoff.next_delay(), delivery).await?;
                }
            }
        }
    }
}

impl<B: Broker, H: Handler> Shared<B, H> {
    /// A replayed dead letter of another consumer of the same topic.
    fn is_for_another(&self, message: &Message) -> bool {
        message.replayed_for().is_some_and(|service| service != self.settings.service)
    }

    /// Runs the handler in the transaction that has claimed the message.
    async fn handle(
        &self,
        claimed: Claimed<'_>,
        delivery: &Delivery<B::Mark>,
        span: &MessageSpan,
        waiting: &mut Waiting,
    ) -> Result<Step, Interrupted> {
        let message = &delivery.message;
        let handle = async { self.handler.handle(message, &claimed.transaction).await };
        let handling = span.hold(caught(handle));
        let lost = |error: tokio_postgres::Error| Interrupted::LostInHandler(error.into());
        let (failure, reason, has_lost) = match handling.await {
            Ok(Ok(())) => {
                let committing = pin!(claimed.commit());
                let committed = waiting.last_answer(NO_ANSWER, message, committing).await;
                let Err(error) = committed else {
                    return Ok(Step::Processed);
                };
                if ends_session(&error) {
                    return Err(lost(error));
                }
                // It may be one of before: a statement failed, and the handler did not say so.
                let step = self.failed(message, crate::classify(&error), chain(&error));
                return repeatable(step, is_conflict(&error));
            }
            Ok(Err(error)) => {
                let judging =
                    async { (self.handler.classify(&error), chain(&error), is_conflict(&error)) };
                caught(judging).await.unwrap_or_else(|panic| {
                    let reason = format!("judging the handler's error panicked: {panic}");
                    (Failure::Transient, reason, false)
                })
            }
            Err(panic) => (Failure::Transient, format!("the handler panicked: {panic}"), false),
        };
        waiting.answer(NO_ANSWER, delivery, claimed.rollback()).await?.map_err(lost)?;
        repeatable(self.failed(message, failure, reason), has_lost)
    }

    fn failed(&self, message: &Message, failure: Failure, reason: String) -> Step {
        Step::after_failure(failure, reason, message.failed_attempts(), &self.settings.levels)
    }
}

/// `has_lost`: against another transaction, so that it may be repeated at once.
fn repeatable(step: Step, has_lost: bool) -> Result<Step, Interrupted> {
    if has_lost { Err(Interrupted::Conflict(Ok(step))) } else { Ok(step) }
}
