//! The RabbitMQ sink: hands events to the connection's
//! thread, and checks the broker before the first.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};

use super::connection::AmqpConnection;
use super::connection_loss::ConnectionLoss;
use super::doctor;
use super::limits::Limits;
use super::message::{self, AmqpMessage};
use super::publisher::{PublishOrder, Publisher, PublisherState};
use super::settings::RabbitSettings;
use crate::base::error::Fault;
use crate::base::event::{Outbound, Sequence};
use crate::base::finding;
use crate::base::{random, runtime};
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};
use crate::sink::key_lanes::KeyHasher;
use crate::sink::{
    Failure, PublishError, PublishLimits, Sink, SinkReport, StartupCheck, UNREACHABLE,
};

/// With this many orders the sink does not wait for the next poll to hand them over.
const GATHERED_MAX: usize = 256;
/// How long the first connection may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Between two attempts of the first connection.
const RETRY_EVERY: Duration = Duration::from_millis(250);
/// How long the thread may take to close the connection.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct RabbitSink {
    orders: UnboundedSender<Vec<PublishOrder>>,
    gathered: Vec<PublishOrder>,
    /// Disconnected when the thread has ended.
    reports: Receiver<Vec<SinkReport>>,
    has_ended: bool,
    shared: PublisherState,
    key_hasher: KeyHasher,
}

impl RabbitSink {
    pub(super) fn open(
        settings: &RabbitSettings,
        check: Option<&StartupCheck<'_>>,
    ) -> Result<RabbitSink, Vec<Fault>> {
        let runtime = runtime::current_thread()?;
        let first = match check.map(|check| runtime.block_on(first_connection(settings, check))) {
            Some(Ok(first)) => first,
            None => None,
            Some(Err(faults)) => {
                // Does not wait for a name that is being resolved.
                runtime.shutdown_background();
                return Err(faults);
            }
        };
        let ((orders, ordered), (reporting, reports)) = (unbounded_channel(), channel());
        let shared = PublisherState::default();
        if let Some(connection) = &first {
            shared.connected(connection, settings);
        }
        let publisher = Publisher::new(settings.clone(), ordered, reporting, shared.clone());
        runtime::spawn("rabbitmq", move || {
            runtime.block_on(publisher.run(first));
            runtime.shutdown_background();
        })?;
        let (gathered, has_ended, key_hasher) = (Vec::new(), false, KeyHasher::new(random::seed()));
        Ok(RabbitSink { orders, gathered, reports, has_ended, shared, key_hasher })
    }

    fn gather(
        &mut self,
        sequence: Sequence,
        event: &Outbound<'_>,
        copy: impl FnOnce(&Outbound<'_>, &Limits, Option<u64>) -> Result<AmqpMessage, Failure>,
    ) -> Result<(), PublishError> {
        if self.shared.blocked.load(Ordering::Relaxed) {
            return Err(PublishError::QueueFull);
        }
        let lane = event.key.map(|key| self.key_hasher.lane(key));
        let limits = self.shared.limits.get();
        let message = copy(event, &limits, lane).map_err(PublishError::Failed)?;
        self.gathered.push(PublishOrder::Publish(sequence, message));
        if self.gathered.len() >= GATHERED_MAX {
            self.hand_over();
        }
        Ok(())
    }

    fn hand_over(&mut self) {
        if !self.gathered.is_empty() {
            // The next poll sees that the thread has ended.
            let _has_ended = self.orders.send(std::mem::take(&mut self.gathered)).is_err();
        }
    }
}

/// Opens the first connection and checks what must exist. Returns none when the process is stopped.
async fn first_connection(
    settings: &RabbitSettings,
    check: &StartupCheck<'_>,
) -> Result<Option<AmqpConnection>, Vec<Fault>> {
    let stopped = async {
        while !check.stop.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        connected = checked_connection(settings, check) => connected.map(Some),
        () = stopped => Ok(None),
    }
}

async fn checked_connection(
    settings: &RabbitSettings,
    check: &StartupCheck<'_>,
) -> Result<AmqpConnection, Vec<Fault>> {
    let deadline = Instant::now() + ANSWER_WITHIN;
    loop {
        match AmqpConnection::open(settings, 0).await {
            Ok(connection) => {
                let checks = doctor::check(settings, check.required, &connection, false);
                let Ok(findings) = timeout(ANSWER_WITHIN, checks).await else {
                    let late = ConnectionLoss::of("it let us in and answers no question");
                    return Err(vec![late.unreachable(settings)]);
                };
                let faults: Vec<Fault> = finding::faults(&findings).cloned().collect();
                // A node that has just started accepts logins before its queues answer.
                let is_starting = faults.iter().any(|fault| fault.code == UNREACHABLE);
                if !is_starting || Instant::now() >= deadline {
                    for finding in findings.iter().filter(|finding| finding.is_warning()) {
                        tracing::warn!(code = finding.topic, "{}", finding.text);
                    }
                    return if faults.is_empty() { Ok(connection) } else { Err(faults) };
                }
            }
            Err(loss) if loss.is_final() || Instant::now() > deadline => {
                return Err(vec![loss.unreachable(settings)]);
            }
            Err(_) => {}
        }
        sleep(RETRY_EVERY).await;
    }
}

impl Sink for RabbitSink {
    fn broker(&mut self) -> u64 {
        self.shared.broker.load(Ordering::Acquire)
    }

    fn publish(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), PublishError> {
        self.gather(sequence, event, AmqpMessage::event)
    }

    fn publish_dead_letter(
        &mut self,
        sequence: Sequence,
        dead_letter: &Outbound<'_>,
    ) -> Result<(), PublishError> {
        self.gather(sequence, dead_letter, AmqpMessage::dead_letter)
    }

    fn has_room_for(&self, event: &Outbound<'_>) -> bool {
        message::has_room_for(event, &self.shared.limits.get())
    }

    fn poll(&mut self, _now: Instant, patience: Duration, reports: &mut Vec<SinkReport>) {
        self.hand_over();
        match self.reports.recv_timeout(patience) {
            Ok(first) => reports.extend(first.into_iter().chain(self.reports.try_iter().flatten())),
            Err(RecvTimeoutError::Disconnected) if !self.has_ended => {
                self.has_ended = true;
                let text = "the connection's thread has ended".to_owned();
                reports.push(SinkReport::Broken(text));
            }
            Err(_) => {}
        }
    }

    fn publish_until(&mut self, limits: PublishLimits) {
        self.shared.deadline.set(limits);
    }

    fn destination(&self, sequence: Sequence) -> Option<String> {
        let unanswered = self.shared.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        unanswered.as_ref().filter(|(oldest, _)| *oldest == sequence).map(|(_, name)| name.clone())
    }

    fn withdraw(&mut self, now: Instant, reports: &mut Vec<SinkReport>) {
        self.shared.deadline.set(PublishLimits { begin_until: now, finish_until: now });
        let known = self.reports.try_iter().flatten();
        reports.extend(known.filter(|report| matches!(report, SinkReport::Confirmed(_))));
    }

    fn retry(&mut self, sequence: Sequence) {
        self.gathered.push(PublishOrder::Retry(sequence));
    }

    fn replace_with_dead_letter(
        &mut self,
        sequence: Sequence,
        writer: &DeadLetterWriter,
        cause: &DeadLetterCause,
    ) {
        let letter = Box::new((writer.clone(), cause.clone()));
        self.gathered.push(PublishOrder::DeadLetter(sequence, letter));
    }
}

impl Drop for RabbitSink {
    /// Waits until the thread has closed the connection, at most [`CLOSE_WITHIN`].
    fn drop(&mut self) {
        (self.orders, _) = unbounded_channel();
        let deadline = Instant::now() + CLOSE_WITHIN;
        let left = || deadline.saturating_duration_since(Instant::now());
        while self.reports.recv_timeout(left()).is_ok() {}
    }
}
