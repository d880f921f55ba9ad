//! RabbitMQ through lapin: confirmed, mandatory, persistent, in order per key.
//!
//! A thread of its own owns the connection ([`publish`]); the data thread hands events over and
//! takes receipts back, and waits for neither. An event is confirmed when the broker has acked it
//! *and* has not returned it ([`returns`] says why that is more than one bit). Until then it is
//! kept ([`crate::sink::key_lanes`]), so that a lost connection costs a new one and nothing else.
//! What the threads hand to each other is bounded by the relay's window.

mod bench_target;
pub(super) mod broker;
mod connection;
mod dead_letters;
mod doctor;
mod fault;
mod in_flight;
mod management;
mod mend_hints;
mod message;
mod probe;
mod publish;
mod returns;
pub mod settings;
mod tls;
mod topology;
mod uri;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use self::connection::AmqpConnection;
use self::fault::ConnectionLoss;
use self::message::AmqpMessage;
use self::publish::{PublishOrder, Publisher, SinkChannels};
use self::settings::RabbitSettings;
use super::{Failure, PublishError, Requirements, Sink, SinkReport, StartupCheck, UNREACHABLE};
use crate::base::error::Fault;
use crate::base::event::{Outbound, Sequence};
use crate::base::finding::faults;
use crate::base::runtime;
use crate::dead_letter::writer::{DeadLetterCause, DeadLetterWriter};
use crate::sink::key_lanes::KeyHasher;

/// Orders are handed over at the next poll, or when there are this many.
const GATHERED_MAX: usize = 256;
/// How long a broker may take to answer for the first time.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Between two attempts of the first connection.
const RETRY_EVERY: Duration = Duration::from_millis(250);
/// How long the thread may take to close the connection.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// The RabbitMQ sink.
#[derive(Debug)]
pub struct RabbitSink {
    orders: UnboundedSender<Vec<PublishOrder>>,
    gathered: Vec<PublishOrder>,
    /// Disconnected when the thread has ended.
    news: Receiver<Vec<SinkReport>>,
    ended: bool,
    /// The broker takes nothing for now.
    blocked: Arc<AtomicBool>,
    key_hasher: KeyHasher,
}

type FirstResult = Result<(), Vec<Fault>>;

impl RabbitSink {
    fn open(
        settings: &RabbitSettings,
        first: Option<&StartupCheck<'_>>,
    ) -> Result<RabbitSink, Vec<Fault>> {
        let ((orders, ordered), (news_sender, news)) = (unbounded_channel(), channel());
        let (first_sender, first_result) = sync_channel(1);
        let blocked = Arc::<AtomicBool>::default();
        let channels =
            SinkChannels { orders: ordered, news: news_sender, blocked: Arc::clone(&blocked) };
        let settings = settings.clone();
        let wanted = first.map(|first| first.required.clone());
        runtime::spawn("rabbitmq", move || run_thread(&settings, wanted, &first_sender, channels))
            .map_err(|fault| vec![fault])?;
        let (gathered, ended, key_hasher) = (Vec::new(), false, KeyHasher::default());
        let sink = RabbitSink { orders, gathered, news, ended, blocked, key_hasher };
        let Some(first) = first else { return Ok(sink) };
        loop {
            match first_result.recv_timeout(Duration::from_millis(20)) {
                Ok(result) => return result.map(|()| sink),
                Err(RecvTimeoutError::Timeout) if !first.stop.load(Ordering::Relaxed) => {}
                Err(_) => return Ok(sink),
            }
        }
    }

    fn gather(
        &mut self,
        sequence: Sequence,
        event: &Outbound<'_>,
        copy: impl FnOnce(&Outbound<'_>, Option<u64>) -> Result<AmqpMessage, Failure>,
    ) -> Result<(), PublishError> {
        if self.blocked.load(Ordering::Relaxed) {
            return Err(PublishError::QueueFull);
        }
        let lane = event.key.map(|key| self.key_hasher.lane(key));
        let message = copy(event, lane).map_err(PublishError::Failed)?;
        self.gathered.push(PublishOrder::Publish(sequence, message));
        if self.gathered.len() >= GATHERED_MAX {
            self.hand_over();
        }
        Ok(())
    }

    fn hand_over(&mut self) {
        if !self.gathered.is_empty() {
            // A thread that has ended is seen by the next poll.
            let _ended = self.orders.send(std::mem::take(&mut self.gathered)).is_err();
        }
    }
}

/// The life of the connection's thread.
fn run_thread(
    settings: &RabbitSettings,
    wanted: Option<Requirements>,
    first_sender: &SyncSender<FirstResult>,
    mut sink: SinkChannels,
) {
    let report = |result| {
        let _nobody_waits = first_sender.try_send(result).is_err();
    };
    let runtime = match runtime::current_thread() {
        Ok(runtime) => runtime,
        Err(fault) => return report(Err(vec![fault])),
    };
    runtime.block_on(async {
        let first = match &wanted {
            Some(wanted) => first_connection(settings, wanted, &sink).await,
            None => Ok(None),
        };
        match first {
            Ok(first) => {
                report(Ok(()));
                Publisher::new(settings, &mut sink).run(first).await;
            }
            Err(faults) => report(Err(faults)),
        }
    });
    // Not waited for: a name that is being resolved would hold it up.
    runtime.shutdown_background();
}

/// The first connection, with a look at what must be there; none when the sink is gone.
async fn first_connection(
    settings: &RabbitSettings,
    wanted: &Requirements,
    sink: &SinkChannels,
) -> Result<Option<AmqpConnection>, Vec<Fault>> {
    let deadline = Instant::now() + ANSWER_WITHIN;
    loop {
        match AmqpConnection::open(settings, 0).await {
            Ok(connection) => {
                let looking = doctor::look(settings, wanted, &connection, false);
                let Ok(found) = tokio::time::timeout(ANSWER_WITHIN, looking).await else {
                    let late = ConnectionLoss::of("it let us in and answers no question");
                    return Err(vec![late.unreachable(settings)]);
                };
                // A node that has just started lets us in before all of it is there.
                let starts = faults(&found).any(|fault| fault.code == UNREACHABLE);
                if !starts || Instant::now() >= deadline || sink.orders.is_closed() {
                    let warnings = found.iter().filter(|finding| finding.is_warning());
                    warnings.for_each(|finding| tracing::warn!("{}", finding.text));
                    let faults: Vec<Fault> = faults(&found).cloned().collect();
                    return if faults.is_empty() { Ok(Some(connection)) } else { Err(faults) };
                }
            }
            Err(loss) if loss.is_final() || Instant::now() > deadline => {
                return Err(vec![loss.unreachable(settings)]);
            }
            Err(_) if sink.orders.is_closed() => return Ok(None),
            Err(_) => {}
        }
        tokio::time::sleep(RETRY_EVERY).await;
    }
}

impl Sink for RabbitSink {
    fn publish(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), PublishError> {
        self.gather(sequence, event, AmqpMessage::event)
    }

    fn publish_dead_letter(
        &mut self,
        sequence: Sequence,
        letter: &Outbound<'_>,
    ) -> Result<(), PublishError> {
        self.gather(sequence, letter, AmqpMessage::dead_letter)
    }

    fn poll(&mut self, patience: Duration, news: &mut Vec<SinkReport>) {
        self.hand_over();
        match self.news.recv_timeout(patience) {
            Ok(first) => news.extend(first.into_iter().chain(self.news.try_iter().flatten())),
            Err(RecvTimeoutError::Disconnected) if !self.ended => {
                self.ended = true;
                news.push(SinkReport::Broken("the connection's thread has ended".to_owned()));
            }
            Err(_) => {}
        }
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
    /// Nothing more is sent once this returns, or the connection is closed soon after.
    fn drop(&mut self) {
        (self.orders, _) = unbounded_channel();
        let deadline = Instant::now() + CLOSE_WITHIN;
        let left = || deadline.saturating_duration_since(Instant::now());
        while self.news.recv_timeout(left()).is_ok() {}
    }
}
