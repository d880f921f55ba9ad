//! Looks for published events in stream queues. Reading a queue of another type takes its messages
//! away, so such a queue is only named.
//!
//! Which queues an exchange leads to is known from `sink.rabbitmq.queues`: AMQP cannot list bindings.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::timeout;

use super::connection::AmqpConnection;
use super::connection_loss::AmqpResult;
use super::dead_letters;
use super::exchanges::Existence;
use super::probe::DeadLetterQueue;
use super::settings::RabbitSettings;
use crate::base::error::Fault;
use crate::base::runtime;
use crate::dead_letter::writer::DeadLetterAddress;
use crate::sink::log::{DeadLetterLog as _, LogRead, ReadFrom};
use crate::sink::search::{SearchReport, SearchRoute, SearchScope, StoredRecord, TakeRecord};

/// Queues that are looked at.
const QUEUES_MAX: usize = 32;
const PATIENCE: Duration = Duration::from_millis(200);

pub(super) fn search(
    settings: &RabbitSettings,
    scope: &SearchScope<'_>,
    take: &mut TakeRecord<'_>,
) -> SearchReport {
    let looked = runtime::try_block_on(async {
        let looking = look(settings, scope.routes);
        let late = || Ok((Vec::new(), SearchReport::not_possible(LATE)));
        timeout(scope.limits.left(), looking).await.unwrap_or_else(|_| late())
    });
    let (streams, mut report) = match looked {
        Ok(looked) => looked,
        Err(fault) => return SearchReport::not_possible(format!("queues: {}", fault.what)),
    };
    for queue in streams {
        let mut records = 0;
        let read = read(settings, &queue, scope, take, &mut records);
        let rest =
            |why: &str| format!("the rest of queue {queue}, behind {records} records: {why}");
        match read {
            Ok(None) => report.searched.push(format!("stream queue {queue}: {records} records")),
            Ok(Some(limit)) => report.not_searched.push(rest(limit)),
            Err(fault) => report.not_searched.push(rest(&fault.what)),
        }
    }
    report
}

const LATE: &str = "queues: RabbitMQ did not say in time which there are";

/// The stream queues to which the routes lead, and what is known of the others.
async fn look(
    settings: &RabbitSettings,
    routes: &[SearchRoute],
) -> Result<(Vec<String>, SearchReport), Fault> {
    let connection = AmqpConnection::open_once(settings).await?;
    let mut report = SearchReport::default();
    let mut queues = BTreeSet::new();
    for route in routes {
        queues.extend(queues_of(settings, route, &mut report));
    }
    let mut streams = Vec::new();
    for queue in queues.iter().take(QUEUES_MAX) {
        match stream(&connection, queue).await {
            Ok(Ok(forgets)) => {
                streams.push(queue.clone());
                report.not_searched.extend(forgets);
            }
            Ok(Err(why)) => report.not_searched.push(why),
            Err(loss) => report.not_searched.push(format!("queue {queue}: {}", loss.text)),
        }
    }
    if let Some(left) = queues.len().checked_sub(QUEUES_MAX).filter(|left| *left > 0) {
        report.not_searched.push(format!("{left} more queues: {QUEUES_MAX} are looked at"));
    }
    connection.close().await;
    report.not_searched.sort();
    report.not_searched.dedup();
    Ok((streams, report))
}

/// Whether the queue can be read, with a sentence if it forgets messages; else why it cannot.
async fn stream(
    connection: &AmqpConnection,
    queue: &str,
) -> AmqpResult<Result<Option<String>, String>> {
    let probe = &connection.probe;
    if probe.queue_exists(queue).await? == Existence::Missing {
        return Ok(Err(format!("queue {queue}: it does not exist")));
    }
    Ok(match probe.queue_kind(queue).await? {
        DeadLetterQueue::Stream | DeadLetterQueue::Unknown => Ok(None),
        DeadLetterQueue::TruncatedStream(limit) => {
            Ok(Some(format!("older messages of queue {queue}: the stream forgets them ({limit})")))
        }
        DeadLetterQueue::NotAStream => Err(format!(
            "queue {queue}: it is no stream, and reading it would take its messages away; ask its consumers"
        )),
    })
}

/// The queues to which a route leads, as far as that is known.
fn queues_of(
    settings: &RabbitSettings,
    route: &SearchRoute,
    report: &mut SearchReport,
) -> Vec<String> {
    let key = route.topic.constant();
    let Some(exchange) = route.exchange.as_ref().and_then(|exchange| exchange.constant()) else {
        let what = "queues: the exchange comes from the row, and the row is not known";
        report.not_searched.push(what.to_owned());
        return Vec::new();
    };
    if exchange.is_empty() {
        // The default exchange leads to the queue whose name is the routing key.
        let names = settings.queues.keys().filter(|name| route.topic.could_become(name));
        return names.cloned().chain(key.map(str::to_owned)).collect();
    }
    report.not_searched.push(format!("other queues of exchange {exchange}: AMQP cannot list them"));
    settings.queues.keys().cloned().collect()
}

/// What has ended the reading early, if anything has.
fn read(
    settings: &RabbitSettings,
    queue: &str,
    scope: &SearchScope<'_>,
    take: &mut TakeRecord<'_>,
    records: &mut u64,
) -> Result<Option<&'static str>, Fault> {
    let address = DeadLetterAddress { topic: queue.to_owned(), exchange: String::new() };
    let mut log = dead_letters::open(settings, &address, ReadFrom::Time(scope.from_unix_us))?;
    loop {
        if let Some(limit) = scope.limits.reached(*records) {
            return Ok(Some(limit));
        }
        match log.next(PATIENCE)? {
            LogRead::End => return Ok(None),
            LogRead::Nothing => {}
            LogRead::Entry(entry) => {
                *records += 1;
                take(&StoredRecord {
                    topic: queue,
                    partition: entry.position.partition,
                    offset: entry.position.offset,
                    written_unix_us: entry.written_unix_us,
                    key: entry.key.as_deref(),
                    headers: &entry.headers,
                });
            }
        }
    }
}
