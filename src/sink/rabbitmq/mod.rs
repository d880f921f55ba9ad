//! RabbitMQ through lapin: confirmed, mandatory, persistent, in order per key.
//!
//! A thread of its own owns the connection ([`worker`]); the data thread hands events over and
//! takes receipts back, and waits for neither. An event is confirmed when the broker has acked it
//! *and* has not returned it ([`returns`] says why that is more than one bit). Until then it is
//! kept ([`crate::sink::key_lanes`]), so that a lost connection costs a new one and nothing else.

mod bench_target;
mod bindings;
mod confirms;
mod connection;
mod dead_letter_fit;
mod dead_letters;
mod doctor;
mod entry;
mod exchanges;
mod fault;
mod http;
mod log;
mod management;
mod mend_hints;
mod message;
mod probe;
mod replies;
mod returns;
pub mod settings;
mod shared;
mod tls;
mod transport;
mod url;
mod worker;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use self::connection::Connection;
use self::fault::Loss;
use self::message::Message;
pub(super) use self::replies::rows as errors;
use self::settings::RabbitSettings;
pub(super) use self::settings::configure;
use self::shared::{Order, Shared};
use self::worker::Worker;
use super::log::{DeadLetterLog, ReadFrom};
use super::{Broker, Failure, First, Inspection, News, Refused, Sink, UNREACHABLE, Wanted};
use crate::base::error::Fault;
use crate::base::event::{Outbound, Sequence};
use crate::base::runtime;
use crate::dead_letter::writer::{DeadLetterAddress, DeadLetterCause, DeadLetterWriter};
use crate::sink::bench_target::Scratch;
use crate::sink::key_lanes::Lanes;

/// Orders are handed over at the next poll, or when there are this many.
const GATHERED_MAX: usize = 256;
/// How long a broker may take to answer for the first time.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Between two attempts of the first connection.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// How long the thread may take to say goodbye to the broker.
const END_WITHIN: Duration = Duration::from_secs(1);

/// The RabbitMQ sink.
#[derive(Debug)]
pub struct RabbitSink {
    shared: Arc<Shared>,
    lanes: Lanes,
    gathered: Vec<Order>,
    /// Hangs up when the thread has ended.
    ended: Receiver<()>,
    broken: bool,
}

impl Broker for RabbitSettings {
    fn open(&self, first: Option<&First<'_>>) -> Result<Box<dyn Sink>, Vec<Fault>> {
        Ok(Box::new(RabbitSink::open(self, first)?))
    }

    fn inspect(&self, wanted: &Wanted) -> Inspection {
        doctor::inspect(self, wanted)
    }

    fn prepare(&self, wanted: &Wanted) -> Result<Vec<String>, Vec<Fault>> {
        doctor::prepare(self, wanted)
    }

    fn log(
        &self,
        dead_letters: &DeadLetterAddress,
        from: ReadFrom,
    ) -> Result<Box<dyn DeadLetterLog>, Fault> {
        Ok(Box::new(log::open(self, dead_letters, &from)?))
    }

    fn toward_scratch(&self, name: &str) -> Result<Arc<dyn Broker>, Fault> {
        Ok(Arc::new(bench_target::toward(self, name)))
    }

    fn make_scratch(&self, name: &str) -> Result<Box<dyn Scratch>, Fault> {
        Ok(Box::new(bench_target::make(self, name)?))
    }

    fn scratch_by_hand(&self, name: &str) -> String {
        bench_target::by_hand(self, name)
    }

    fn remove_scratch(&self, name: &str) -> Result<(), Fault> {
        bench_target::remove(self, name)
    }

    /// Ours and lapin's are busy at once: over a shared arena they cost a quarter more, and with
    /// arenas of their own the memory stays the same.
    fn shares_malloc_arena(&self) -> bool {
        false
    }
}

impl RabbitSink {
    fn open(
        settings: &RabbitSettings,
        first: Option<&First<'_>>,
    ) -> Result<RabbitSink, Vec<Fault>> {
        let shared = Arc::new(Shared::default());
        let (alive, ended) = sync_channel(0);
        let (tell, told) = sync_channel(1);
        let (own, settings) = (Arc::clone(&shared), settings.clone());
        let wanted = first.map(|first| first.wanted.clone());
        runtime::spawn("rabbitmq", move || live(settings, own, wanted, tell, alive))
            .map_err(|fault| vec![fault])?;
        let sink = RabbitSink {
            shared,
            lanes: Lanes::default(),
            gathered: Vec::new(),
            ended,
            broken: false,
        };
        let Some(first) = first else { return Ok(sink) };
        loop {
            match told.recv_timeout(Duration::from_millis(20)) {
                Ok(Ok(())) => return Ok(sink),
                Ok(Err(faults)) => return Err(faults),
                Err(RecvTimeoutError::Timeout) if !first.stop.load(Ordering::Relaxed) => {}
                Err(_) => return Ok(sink),
            }
        }
    }

    fn take(
        &mut self,
        sequence: Sequence,
        event: &Outbound<'_>,
        copy: impl FnOnce(&Outbound<'_>, Option<u64>) -> Result<Message, Failure>,
    ) -> Result<(), Refused> {
        if self.shared.is_blocked() {
            return Err(Refused::Full);
        }
        let lane = event.key.map(|key| self.lanes.of(key));
        let message = copy(event, lane).map_err(Refused::Failed)?;
        self.gathered.push(Order::Publish(sequence, message));
        if self.gathered.len() >= GATHERED_MAX {
            self.hand_over();
        }
        Ok(())
    }

    fn hand_over(&mut self) {
        if !self.gathered.is_empty() {
            self.shared.order(&mut self.gathered);
        }
    }
}

/// The life of the connection's thread.
fn live(
    settings: RabbitSettings,
    shared: Arc<Shared>,
    wanted: Option<Wanted>,
    tell: SyncSender<Result<(), Vec<Fault>>>,
    alive: SyncSender<()>,
) {
    let runtime = match runtime::current_thread() {
        Ok(runtime) => runtime,
        Err(fault) => {
            let _nobody_waits = tell.try_send(Err(vec![fault])).is_err();
            return;
        }
    };
    runtime.block_on(async {
        let mut connection = None;
        if let Some(wanted) = wanted {
            match begin(&settings, &shared, &wanted).await {
                Ok(opened) => connection = opened,
                Err(faults) => {
                    let _nobody_waits = tell.try_send(Err(faults)).is_err();
                    return;
                }
            }
        }
        let _nobody_waits = tell.try_send(Ok(())).is_err();
        Worker::new(settings, shared).run(connection).await;
    });
    // Not waited for: a name that is being resolved would hold it up.
    runtime.shutdown_background();
    drop(alive);
}

/// The first connection, with a look at what must be there.
async fn begin(
    settings: &RabbitSettings,
    shared: &Shared,
    wanted: &Wanted,
) -> Result<Option<Connection>, Vec<Fault>> {
    let deadline = Instant::now() + ANSWER_WITHIN;
    loop {
        match connection::open(settings, 0).await {
            Ok(connection) => {
                let looking = doctor::look(settings, wanted, &connection);
                let Ok(found) = tokio::time::timeout(ANSWER_WITHIN, looking).await else {
                    let late = Loss::of("it let us in and answers no question");
                    return Err(vec![fault::unreachable(settings, &late)]);
                };
                // A node that has just started lets us in before all of it is there.
                let starts = found.faults.iter().any(|fault| fault.code == UNREACHABLE);
                if starts && Instant::now() < deadline && !shared.is_stopping() {
                    tokio::time::sleep(ASK_EVERY).await;
                    continue;
                }
                for text in found.doubtful {
                    tracing::warn!("{text}");
                }
                let faults = found.faults;
                return if faults.is_empty() { Ok(Some(connection)) } else { Err(faults) };
            }
            Err(loss) if loss.is_final() || Instant::now() > deadline => {
                return Err(vec![fault::unreachable(settings, &loss)]);
            }
            Err(_) if shared.is_stopping() => return Ok(None),
            Err(_) => tokio::time::sleep(ASK_EVERY).await,
        }
    }
}

impl Sink for RabbitSink {
    fn publish(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), Refused> {
        self.take(sequence, event, Message::copy)
    }

    fn publish_letter(&mut self, sequence: Sequence, letter: &Outbound<'_>) -> Result<(), Refused> {
        self.take(sequence, letter, Message::letter)
    }

    fn poll(&mut self, patience: Duration, news: &mut Vec<News>) {
        self.hand_over();
        self.shared.take_news(patience, news);
        if !self.broken && self.ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected)
        {
            self.broken = true;
            news.push(News::Broken("the connection's thread has ended".to_owned()));
        }
    }

    fn retry(&mut self, sequence: Sequence) {
        self.gathered.push(Order::Retry(sequence));
    }

    fn bury(&mut self, sequence: Sequence, mailbox: &DeadLetterWriter, cause: &DeadLetterCause) {
        self.gathered.push(Order::Bury(sequence, Box::new((mailbox.clone(), cause.clone()))));
    }
}

impl Drop for RabbitSink {
    /// Nothing more is sent once this returns, or the connection is closed soon after.
    fn drop(&mut self) {
        self.shared.stop();
        let _hung_up = self.ended.recv_timeout(END_WITHIN).is_err();
    }
}
