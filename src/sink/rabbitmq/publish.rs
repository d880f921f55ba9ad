//! The RabbitMQ sink: hands events to the connection's
//! thread, and checks the broker before the first.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};
use walrelay_core::sink::rabbitmq::publish::{PublisherLink, RabbitSink};

use super::connection::AmqpConnection;
use super::connection_loss::ConnectionLoss;
use super::doctor;
use super::driver::{Driver, LapinPort, Shared};
use super::publisher::{PublishOrder, Publisher, PublisherStatus};
use super::settings::RabbitSettings;
use crate::base::error::Fault;
use crate::base::finding;
use crate::base::{random, runtime};
use crate::sink::{PublishLimits, SinkReport, StartupCheck, UNREACHABLE};

/// With this many orders the sink does not wait for the next poll to hand them over.
const GATHERED_MAX: usize = 256;
/// How long the first connection may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Between two attempts of the first connection.
const RETRY_EVERY: Duration = Duration::from_millis(250);
/// How long the thread may take to close the connection.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// The way to the connection's thread.
#[derive(Debug)]
pub(super) struct ThreadLink {
    orders: UnboundedSender<Vec<PublishOrder>>,
    gathered: Vec<PublishOrder>,
    /// Disconnected when the thread has ended.
    reports: Receiver<Vec<SinkReport>>,
    has_ended: bool,
    shared: Shared,
}

pub(super) fn open(
    settings: &RabbitSettings,
    check: Option<&StartupCheck<'_>>,
) -> Result<RabbitSink<ThreadLink>, Vec<Fault>> {
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
    let publisher = Publisher::new(settings.address(), random::seed());
    let port = LapinPort::new(settings.clone(), first);
    let driver = Driver::new(publisher, port, ordered, reporting);
    let shared = driver.shared();
    runtime::spawn("rabbitmq", move || {
        runtime.block_on(driver.run());
        runtime.shutdown_background();
    })?;
    let link = ThreadLink { orders, gathered: Vec::new(), reports, has_ended: false, shared };
    Ok(RabbitSink::new(link, random::seed()))
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
                    return Err(vec![late.unreachable(&settings.address())]);
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
                return Err(vec![loss.unreachable(&settings.address())]);
            }
            Err(_) => {}
        }
        sleep(RETRY_EVERY).await;
    }
}

impl ThreadLink {
    fn hand_over(&mut self) {
        if !self.gathered.is_empty() {
            // The next poll sees that the thread has ended.
            let _has_ended = self.orders.send(std::mem::take(&mut self.gathered)).is_err();
        }
    }
}

impl PublisherLink for ThreadLink {
    fn status<T>(&self, read: impl FnOnce(&PublisherStatus) -> T) -> T {
        self.shared.status(read)
    }

    fn order(&mut self, order: PublishOrder) {
        self.gathered.push(order);
        if self.gathered.len() >= GATHERED_MAX {
            self.hand_over();
        }
    }

    fn poll(&mut self, now: Instant, patience: Duration, reports: &mut Vec<SinkReport>) {
        self.hand_over();
        match self.reports.recv_timeout(patience) {
            Ok(first) => {
                reports.extend(first);
                self.collect(now, reports);
            }
            Err(RecvTimeoutError::Disconnected) if !self.has_ended => {
                self.has_ended = true;
                let text = "the connection's thread has ended".to_owned();
                reports.push(SinkReport::Broken(text));
            }
            Err(_) => {}
        }
    }

    fn collect(&mut self, _now: Instant, reports: &mut Vec<SinkReport>) {
        reports.extend(self.reports.try_iter().flatten());
    }

    fn publish_until(&mut self, limits: PublishLimits) {
        self.shared.deadline.set(limits);
    }
}

impl Drop for ThreadLink {
    /// Waits until the thread has closed the connection, at most [`CLOSE_WITHIN`].
    fn drop(&mut self) {
        (self.orders, _) = unbounded_channel();
        let deadline = Instant::now() + CLOSE_WITHIN;
        let left = || deadline.saturating_duration_since(Instant::now());
        while self.reports.recv_timeout(left()).is_ok() {}
    }
}
