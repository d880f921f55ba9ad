//! Opens the RabbitMQ sink, and checks the broker before the first event.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use walrelay_core::sink::rabbitmq::publish::RabbitSink;

use super::connection::AmqpConnection;
use super::connection_loss::{AmqpResult, ConnectionLoss};
use super::doctor;
use super::port::AmqpEvent;
use super::publish_connection::PublishConnection;
use super::publish_login;
use super::publish_port::PublishPort;
use super::publisher::Publisher;
use super::settings::RabbitSettings;
use walrelay_base::error::Fault;
use walrelay_base::finding::{self, Finding};
use walrelay_base::{random, runtime};
use walrelay_sink::{StartupCheck, UNREACHABLE};

/// How long the first connection may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Between two attempts of the first connection.
const RETRY_EVERY: Duration = Duration::from_millis(250);
pub(super) fn open(
    settings: &RabbitSettings,
    check: Option<&StartupCheck<'_>>,
) -> Result<RabbitSink<PublishPort>, Vec<Fault>> {
    let first = match check {
        None => None,
        Some(check) => {
            let runtime = runtime::current_thread()?;
            let first = runtime.block_on(first_connection(settings, check));
            // Does not wait for a name that is being resolved.
            runtime.shutdown_background();
            first?
        }
    };
    let mut publisher = Publisher::new(settings.address(), random::seed());
    if let Some(connection) = &first {
        let facts = connection.facts(&settings.vhost);
        publisher.handle(AmqpEvent::Connected(facts), Instant::now());
    }
    let port = PublishPort::new(settings.clone(), first);
    Ok(RabbitSink::new(publisher, port, random::seed()))
}

/// Checks what must exist, and opens the first connection. Returns none when the process is stopped.
async fn first_connection(
    settings: &RabbitSettings,
    check: &StartupCheck<'_>,
) -> Result<Option<PublishConnection>, Vec<Fault>> {
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
) -> Result<PublishConnection, Vec<Fault>> {
    let deadline = Instant::now() + ANSWER_WITHIN;
    loop {
        let lost = match inspected(settings, check).await {
            Ok(findings) => {
                let faults: Vec<Fault> = finding::faults(&findings).cloned().collect();
                // A node that has just started accepts logins before its queues answer.
                let is_starting = faults.iter().any(|fault| fault.code == UNREACHABLE);
                if faults.is_empty() {
                    match publish_login::connect(settings, 0).await {
                        Ok(connection) => {
                            log_warnings(&findings);
                            return Ok(connection);
                        }
                        Err(loss) => Some(loss),
                    }
                } else if is_starting && Instant::now() < deadline {
                    None
                } else {
                    return Err(faults);
                }
            }
            Err(loss) => Some(loss),
        };
        if let Some(loss) = lost.filter(|loss| loss.is_final() || Instant::now() > deadline) {
            return Err(vec![loss.unreachable(&settings.address())]);
        }
        sleep(RETRY_EVERY).await;
    }
}

/// Inspects the broker, over a connection of its own if there is anything to ask for.
async fn inspected(
    settings: &RabbitSettings,
    check: &StartupCheck<'_>,
) -> AmqpResult<Vec<Finding>> {
    let asks = doctor::asks(settings, check.required);
    let connection = if asks { Some(AmqpConnection::open(settings).await?) } else { None };
    let checks = doctor::check(settings, check.required, connection.as_ref(), false);
    let late = |_| ConnectionLoss::of("it let us in and answers no question");
    let findings = timeout(ANSWER_WITHIN, checks).await.map_err(late)?;
    if let Some(connection) = connection {
        connection.close().await;
    }
    Ok(findings)
}

fn log_warnings(findings: &[Finding]) {
    for finding in findings.iter().filter(|finding| finding.is_warning()) {
        tracing::warn!(code = finding.topic, "{}", finding.text);
    }
}
