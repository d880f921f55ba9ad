//! The thread that owns the consumer.
//!
//! Each assigned partition has a queue of its own, which is read as far as the lanes have room and
//! copies of retries are due. What is not read stays in librdkafka's bounded queue: nothing is
//! paused, fetched twice or sought back, and the thread polls the consumer all the time.
//!
//! When partitions are taken back, or at a stop: what has not begun in a lane is dropped, what
//! runs is waited for, for a shorter time than `max.poll.interval.ms`, and the offsets are committed
//! before the group is told.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::types::RDKafkaErrorCode as Code;
use rdkafka::{Offset, TopicPartitionList};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

use super::client_ffi::{headers_of, known_end};
use super::partition::{OffsetTracker, RecordMark, WaitBound};
use super::rebalance_events::{Rebalance, RebalanceEvents};
use super::{Kafka, client_error, config, retry_topic};
use crate::broker::Stop;
use crate::delivery::{Custody, Delivery};
use crate::lanes::Lanes;
use crate::message::{Message, Received, ReplayTrust};
use crate::time::{Reminder, backoff, unix_now};
use crate::{InboxError, Settings};

/// The longest time without a look at the consumer.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// The shortest time between two looks.
const SERVE_INTERVAL: Duration = Duration::from_millis(10);
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);
/// Records of one partition that are taken before the next has its turn.
const TURN_RECORDS: usize = 256;
/// A message that takes long holds back the offset to commit, and this much behind it.
const UNDER_WAY_MAX: usize = 10_000;
/// The time that closing may take beyond waiting for handlers, while the broker is away.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// Waits begin short again after a consumer that has run for so long.
const STEADY_AFTER: Duration = Duration::from_secs(60);
/// The reader does nothing else meanwhile.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);

/// Runs the thread, and makes another consumer where one is of no more use.
pub(super) async fn consume(
    kafka: &Kafka,
    settings: &Settings,
    lanes: Lanes<RecordMark>,
    mut stop: Stop,
) -> Result<(), InboxError> {
    let first = Reader::open(kafka, settings)?;
    let (done, mut is_done) = oneshot::channel();
    let (kafka, own_settings, stopped) = (kafka.clone(), settings.clone(), stop.clone());
    let read = move || {
        let (mut next, mut backoff) = (Ok(first), backoff());
        loop {
            match next {
                Ok(reader) => {
                    let began = Instant::now();
                    reader.run(&lanes, &stopped);
                    if began.elapsed() > STEADY_AFTER {
                        backoff.succeeded();
                    }
                }
                Err(error) => tracing::warn!(code = "inbox.kafka", %error, "no consumer"),
            }
            if stopped.is_requested() {
                break;
            }
            std::thread::sleep(backoff.next_delay());
            next = Reader::open(&kafka, &own_settings);
        }
        // Nobody waits any more if closing took too long.
        let _late = done.send(()).is_err();
    };
    std::thread::Builder::new()
        .name("inbox-kafka".to_owned())
        .spawn(read)
        .map_err(|error| InboxError::broker("starting a thread", error))?;
    tokio::select! {
        ended = &mut is_done => {
            return ended.map_err(|_| InboxError::Lane("the reader of Kafka panicked".to_owned()));
        }
        () = stop.requested() => {}
    }
    let _late = tokio::time::timeout(settings.stop_within + CLOSE_WITHIN, is_done).await.is_err();
    Ok(())
}

struct Reader {
    consumer: Arc<BaseConsumer<RebalanceEvents>>,
    settings: Settings,
    partitions: Vec<Partition>,
    served_at: Option<Instant>,
    committed_at: Instant,
    /// Limits the lines in the log: a commit that is refused is repeated every second.
    commit_reminder: Reminder,
    /// The consumer has met an error from which it does not recover.
    is_broken: bool,
}

struct Partition {
    consumer: Arc<BaseConsumer<RebalanceEvents>>,
    service: String,
    topic: String,
    id: i32,
    queue: PartitionQueue<RebalanceEvents>,
    /// Read, and not handed out: not due, or its lane is full.
    head: Option<Delivery<RecordMark>>,
    /// How long a copy of this retry level waits; none for the user's topics.
    delay: Option<Duration>,
    wait_bound: WaitBound,
    tracker: OffsetTracker,
    /// In its last turn it handed out a record.
    is_served: bool,
    /// Limits the lines in the log: a batch that the client cannot read is fetched again and again.
    reminder: Reminder,
    custody: Arc<Custody<RecordMark>>,
    settled: UnboundedReceiver<RecordMark>,
}

/// Why a partition is not read on.
enum Turn {
    /// There is nothing, or no room: the reader is woken.
    Idle,
    NotDueFor(Duration),
    /// It was its last record for this turn.
    Over,
}

impl Reader {
    fn open(kafka: &Kafka, settings: &Settings) -> Result<Reader, InboxError> {
        let consumer: BaseConsumer<RebalanceEvents> = config::consumer(kafka, settings)
            .create_with_context(RebalanceEvents::new(&kafka.brokers))
            .map_err(|error| client_error("the consumer", error))?;
        let retries = settings.levels.iter().map(|level| retry_topic(&settings.service, *level));
        let topics: Vec<String> = kafka.topics.iter().cloned().chain(retries).collect();
        let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics).map_err(|error| InboxError::broker("subscribing", error))?;
        Ok(Reader {
            consumer: Arc::new(consumer),
            settings: settings.clone(),
            partitions: Vec::new(),
            served_at: None,
            committed_at: Instant::now(),
            commit_reminder: Reminder::default(),
            is_broken: false,
        })
    }

    fn run(mut self, lanes: &Lanes<RecordMark>, stop: &Stop) {
        while !stop.is_requested() && !self.is_broken {
            if self.served_at.is_none_or(|at| at.elapsed() >= SERVE_INTERVAL) {
                self.serve_consumer();
                self.serve_rebalances();
                self.served_at = Some(Instant::now());
            }
            let pause = self.hand_out(lanes);
            self.commit_if_due();
            if !pause.is_zero() {
                std::thread::park_timeout(pause);
            }
        }
        self.release();
        self.consumer.context().close();
        self.consumer.unsubscribe();
        // Dropping the consumer leaves the group.
    }

    /// Serves callbacks, heartbeats of the poll interval, and errors.
    fn serve_consumer(&mut self) {
        let consumer = Arc::clone(&self.consumer);
        let lost_brokers = &consumer.context().lost_brokers;
        lost_brokers.name_again_if_lost(consumer.client());
        match consumer.poll(Duration::ZERO) {
            None => {}
            // All partitions are split off. Another consumer reads it again, so it is not passed over.
            Some(Ok(record)) => {
                let (topic, partition) = (record.topic(), record.partition());
                tracing::warn!(code = "inbox.kafka", topic, partition, "it is not split off");
                self.is_broken = true;
            }
            Some(Err(error)) => {
                lost_brokers.reported(&error);
                self.is_broken |= matches!(error, KafkaError::MessageConsumptionFatal(_));
                tell_error(&self.settings.service, &error);
            }
        }
    }

    fn serve_rebalances(&mut self) {
        while let Some(rebalance) = self.consumer.context().next() {
            // An assignment may follow another one: a rebalance that begins before the last one is answered
            // revokes nothing.
            self.release();
            let answered = match rebalance {
                Rebalance::Assign(list) => {
                    self.split_off(&list);
                    self.consumer.assign(&list)
                }
                Rebalance::Revoke => self.consumer.unassign(),
            };
            if let Err(error) = answered {
                let consumer = &self.settings.service;
                tracing::warn!(code = "inbox.rebalance", consumer, %error, "not answered");
            }
        }
    }

    /// Before the assignment: then no record comes by the consumer's own queue.
    fn split_off(&mut self, list: &TopicPartitionList) {
        for found in list.elements() {
            let (topic, id) = (found.topic(), found.partition());
            let Some(mut queue) = self.consumer.split_partition_queue(topic, id) else { continue };
            let (reader, same) = (std::thread::current(), std::thread::current());
            queue.set_nonempty_callback(move || reader.unpark());
            let (custody, settled) = Custody::new(move || same.unpark());
            let is_of = |level: &Duration| retry_topic(&self.settings.service, *level) == topic;
            let delay = self.settings.levels.iter().copied().find(is_of);
            self.partitions.push(Partition {
                consumer: Arc::clone(&self.consumer),
                service: self.settings.service.clone(),
                topic: topic.to_owned(),
                id,
                queue,
                head: None,
                delay,
                wait_bound: WaitBound::default(),
                tracker: OffsetTracker::default(),
                is_served: false,
                reminder: Reminder::default(),
                custody,
                settled,
            });
        }
        tracing::debug!(
            consumer = self.settings.service,
            count = self.partitions.len(),
            "assigned"
        );
    }

    /// Lets go of all partitions: nothing more begins, what runs is waited for, and what is
    /// settled is committed.
    fn release(&mut self) {
        self.partitions.iter().for_each(|partition| partition.custody.revoke());
        let deadline = Instant::now() + self.settings.stop_within;
        while self.partitions.iter().any(|partition| partition.custody.is_running()) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let consumer = &self.settings.service;
                tracing::warn!(code = "inbox.handler-late", consumer, "it is not waited for");
                break;
            }
            std::thread::park_timeout(left.min(LOOK_INTERVAL));
        }
        self.commit(CommitMode::Sync);
        self.partitions.clear();
    }

    /// Hands out what there is, and returns for how long there is nothing to do. Who was served is
    /// behind the others next time: a partition that always has messages would keep the lanes full.
    fn hand_out(&mut self, lanes: &Lanes<RecordMark>) -> Duration {
        let mut pause = LOOK_INTERVAL;
        for partition in &mut self.partitions {
            match partition.take_turn(lanes) {
                Turn::Idle => {}
                Turn::NotDueFor(left) => pause = pause.min(left),
                Turn::Over => pause = Duration::ZERO,
            }
        }
        self.partitions.sort_by_key(|partition| partition.is_served);
        pause
    }

    fn commit_if_due(&mut self) {
        if self.committed_at.elapsed() >= COMMIT_INTERVAL {
            self.committed_at = Instant::now();
            self.commit(CommitMode::Async);
        }
    }

    /// Commits every offset that is not known to be committed; at the end all.
    fn commit(&mut self, mode: CommitMode) {
        let is_sync = matches!(mode, CommitMode::Sync);
        let failed = self.consumer.context().take_failed_commit();
        let is_repeated = failed.is_some() || is_sync;
        if let Some(error) = failed.filter(|_| self.commit_reminder.is_due(Instant::now())) {
            let consumer = &self.settings.service;
            tracing::warn!(code = "inbox.commit", consumer, %error, "messages may be repeated");
        }
        let mut offsets = TopicPartitionList::new();
        for partition in &mut self.partitions {
            partition.count_settled();
            if is_repeated {
                partition.tracker.forget_committed();
            }
            let Some(next) = partition.tracker.committable() else { continue };
            let (topic, id) = (&partition.topic, partition.id);
            if let Err(error) = offsets.add_partition_offset(topic, id, Offset::Offset(next)) {
                tracing::warn!(code = "inbox.commit", topic, id, next, %error, "not committed");
            }
        }
        if offsets.count() == 0 {
            return;
        }
        if let Err(error) = self.consumer.commit(&offsets, mode) {
            let consumer = &self.settings.service;
            tracing::warn!(code = "inbox.commit", consumer, %error, "messages will be repeated");
            self.partitions.iter_mut().for_each(|partition| partition.tracker.forget_committed());
        } else if is_sync {
            self.consumer.context().lost_brokers.answered();
        }
    }
}

impl Partition {
    fn take_turn(&mut self, lanes: &Lanes<RecordMark>) -> Turn {
        self.count_settled();
        self.is_served = false;
        for _ in 0..TURN_RECORDS {
            if self.head.is_none() {
                match self.queue.poll(Duration::ZERO) {
                    None => return Turn::Idle,
                    Some(Ok(record)) => self.head = Some(self.delivery(&record)),
                    Some(Err(error)) => self.tell_unreadable(&error),
                }
            }
            if let Some(left) = self.not_due_for() {
                return Turn::NotDueFor(left);
            }
            if self.tracker.count() >= UNDER_WAY_MAX {
                return Turn::Idle;
            }
            let Some(head) = self.head.take() else { continue };
            let offset = head.mark.offset;
            self.head = lanes.offer(head);
            if self.head.is_some() {
                return Turn::Idle;
            }
            self.tracker.begin(offset);
            self.is_served = true;
        }
        Turn::Over
    }

    /// A clock in error does not hold a copy for longer than [`WaitBound`] says.
    fn not_due_for(&mut self) -> Option<Duration> {
        let (delay, head) = (self.delay?, self.head.as_ref()?);
        let due = Duration::from_millis(head.message.retry.due_unix_ms?);
        let left = due.checked_sub(unix_now())?;
        let end = || known_end(self.consumer.client(), &self.topic, self.id).unwrap_or_default();
        let bound = self.wait_bound.left(head.mark.offset, delay, Instant::now(), end);
        let left = left.min(bound);
        (!left.is_zero()).then_some(left)
    }

    fn delivery(&self, record: &BorrowedMessage<'_>) -> Delivery<RecordMark> {
        let received = Received {
            topic: record.topic().to_owned(),
            key: record.key().map(Bytes::copy_from_slice),
            value: record.payload().map(Bytes::copy_from_slice),
            headers: headers_of(record),
            ..Received::default()
        };
        let is_copy = self.delay.is_some();
        let message = match is_copy {
            true => Message::copy(received),
            false => Message::original(received, ReplayTrust::Both),
        };
        let offset = record.offset();
        let mark = RecordMark { turn: self.tracker.turn_of(offset), offset };
        Delivery::new(message, mark, &self.custody)
    }

    /// librdkafka may mend it itself, as after a change of the leader. It does not mend a batch that
    /// it cannot read.
    fn tell_unreadable(&mut self, error: &KafkaError) {
        if !self.reminder.is_due(Instant::now()) {
            return;
        }
        // The error itself does not have it.
        let offset = self.tracker.end().or_else(|| self.committed());
        tracing::warn!(
            code = "inbox.kafka",
            consumer = self.service,
            topic = self.topic,
            partition = self.id,
            offset,
            %error,
            "a partition cannot be read"
        );
    }

    fn count_settled(&mut self) {
        while let Ok(mark) = self.settled.try_recv() {
            self.tracker.settle(mark.turn, mark.offset);
        }
    }

    fn committed(&self) -> Option<i64> {
        let mut list = TopicPartitionList::new();
        list.add_partition(&self.topic, self.id);
        let list = self.consumer.committed_offsets(list, ANSWER_WITHIN).ok()?;
        match list.find_partition(&self.topic, self.id)?.offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        }
    }
}

/// librdkafka mends all of them itself, sooner or later. Those of one partition are told by
/// [`Partition::tell_unreadable`].
fn tell_error(consumer: &str, error: &KafkaError) {
    match error.rdkafka_error_code() {
        Some(
            Code::UnknownTopic
            | Code::UnknownTopicOrPartition
            | Code::TopicAuthorizationFailed
            | Code::GroupAuthorizationFailed
            | Code::Authentication
            | Code::SaslAuthenticationFailed
            | Code::Fatal,
        ) => tracing::warn!(code = "inbox.kafka", consumer, %error, "Kafka refuses the consumer"),
        _ => tracing::debug!(consumer, %error, "reading from Kafka"),
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::consumer::ConsumerContext as _;
    use rdkafka::types::RDKafkaRespErr;

    use super::*;

    #[test]
    fn an_assignment_without_a_revocation_before_it_replaces_the_last_one() {
        let kafka = Kafka::new("127.0.0.1:9", ["orders"]);
        let mut reader = Reader::open(&kafka, &Settings::new("billing", "")).unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition("orders", 0);
        list.add_partition("orders", 1);
        for _ in 0..2 {
            let assign = RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
            reader.consumer.context().rebalance(&reader.consumer, assign, &mut list);
        }
        reader.serve_rebalances();
        let of = |id| reader.partitions.iter().filter(|partition| partition.id == id).count();
        assert_eq!((of(0), of(1)), (1, 1));
    }
}
