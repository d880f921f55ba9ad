//! The sink against producers that answer what a test says.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::super::port::ProducerAnswers;
use super::*;

#[path = "publish_answers_tests.rs"]
mod answers;

const RULES: &str = "a record broke a rule of the broker";

/// The orders that the producers of a test have got, and the answers that they are to give.
#[derive(Default)]
struct Cluster {
    /// Which producers were opened, with their largest batch.
    opened: Vec<(ProducerKind, usize)>,
    /// The records that were handed over and not answered.
    taken: BTreeMap<Sequence, (ProducerKind, Record)>,
    normal: ProducerAnswers,
    isolated: ProducerAnswers,
    fatal: Option<(Code, String)>,
    /// Topics that no producer takes a record for.
    refused: BTreeMap<String, Code>,
    is_answering: bool,
    metadata_requests: usize,
    brokers_named: usize,
    limits_asked: Vec<String>,
    purged: Vec<ProducerKind>,
    /// The times until which producers were allowed to connect, and whether they were idle.
    connects: Vec<(ProducerKind, Instant, bool)>,
}

type Shared = Rc<RefCell<Cluster>>;

struct Factory(Shared);

struct Producer {
    cluster: Shared,
    kind: ProducerKind,
    batch_bytes_max: usize,
    topics: Vec<String>,
}

impl ProducerFactory for Factory {
    type Producer = Producer;

    fn open(&mut self, kind: ProducerKind, batch_bytes_max: usize) -> Result<Producer, Fault> {
        self.0.borrow_mut().opened.push((kind, batch_bytes_max));
        Ok(Producer { cluster: Rc::clone(&self.0), kind, batch_bytes_max, topics: Vec::new() })
    }
}

impl ProducerPort for Producer {
    fn topic(&mut self, name: &str) -> Result<TopicId, Code> {
        let known = self.topics.iter().position(|it| it == name);
        Ok(known.unwrap_or_else(|| {
            self.topics.push(name.to_owned());
            self.topics.len() - 1
        }))
    }

    fn topic_name(&self, topic: TopicId) -> Option<&str> {
        self.topics.get(topic).map(String::as_str)
    }

    fn batch_bytes_max(&self) -> usize {
        self.batch_bytes_max
    }

    fn produce(
        &mut self,
        _: TopicId,
        sequence: Sequence,
        event: &Outbound<'_>,
        partition: Option<i32>,
    ) -> Result<(), Code> {
        let mut cluster = self.cluster.borrow_mut();
        if let Some(code) = cluster.refused.get(event.topic) {
            return Err(*code);
        }
        let record = Record { partition, ..Record::copy(event, None) };
        assert!(cluster.taken.insert(sequence, (self.kind, record)).is_none(), "{sequence} twice");
        Ok(())
    }

    fn poll(&mut self, _: Duration) -> ProducerAnswers {
        let mut cluster = self.cluster.borrow_mut();
        std::mem::take(match self.kind {
            ProducerKind::Normal => &mut cluster.normal,
            ProducerKind::Isolated => &mut cluster.isolated,
        })
    }

    fn connect_until(&mut self, until: Instant, is_idle: bool) {
        self.cluster.borrow_mut().connects.push((self.kind, until, is_idle));
    }

    fn purge(&mut self) {
        self.cluster.borrow_mut().purged.push(self.kind);
    }

    fn partition_of(&mut self, key: &[u8], count: i32) -> i32 {
        i32::from(key[0]) % count
    }

    fn ask_partitions(&mut self, topics: &[TopicId]) {
        let described = |topic: &TopicId| TopicDescription { topic: *topic, partitions: 2, id: 7 };
        self.cluster.borrow_mut().normal.topics.extend(topics.iter().map(described));
    }

    fn ask_record_limit(&mut self, topic: &str) {
        self.cluster.borrow_mut().limits_asked.push(topic.to_owned());
    }

    fn renew_metadata(&mut self, _: Option<&str>) -> bool {
        let mut cluster = self.cluster.borrow_mut();
        cluster.metadata_requests += 1;
        cluster.is_answering
    }

    fn name_brokers(&mut self) {
        self.cluster.borrow_mut().brokers_named += 1;
    }

    fn fatal(&mut self) -> Option<(Code, String)> {
        self.cluster.borrow().fatal.clone().filter(|_| self.kind == ProducerKind::Normal)
    }

    fn cluster_id(&self) -> Option<String> {
        Some("cluster".to_owned())
    }
}

/// A sink that was built anew as often as a test says, and the time.
struct World {
    cluster: Shared,
    learned: Arc<Learned>,
    sink: KafkaSink<Factory>,
    now: Instant,
}

impl World {
    fn new() -> World {
        let cluster = Shared::default();
        let (learned, now) = (Arc::<Learned>::default(), Instant::now());
        let sink =
            KafkaSink::new(Factory(Rc::clone(&cluster)), Arc::clone(&learned), 7, now).unwrap();
        World { cluster, learned, sink, now }
    }

    /// A world in which the partitions of `orders` are warmed up.
    fn warm() -> World {
        let mut world = World::new();
        for (sequence, key) in [(0, "a"), (1, "b"), (2, "b")] {
            world.publish(sequence, "orders", key);
        }
        for sequence in [0, 1, 2] {
            world.poll();
            world.confirm(sequence);
        }
        assert_eq!(world.poll(), [SinkReport::Confirmed(2)]);
        world
    }

    fn rebuild(&mut self) {
        let cluster = Rc::clone(&self.cluster);
        (cluster.borrow_mut().fatal, cluster.borrow_mut().taken) = (None, BTreeMap::new());
        self.sink =
            KafkaSink::new(Factory(cluster), Arc::clone(&self.learned), 7, self.now).unwrap();
    }

    fn publish(&mut self, sequence: Sequence, topic: &str, key: &str) {
        publish(&mut self.sink, sequence, topic, key).unwrap();
    }

    fn publish_alone(&mut self, sequence: Sequence, key: &str) {
        event("orders", key, |event| self.sink.publish_alone(sequence, event)).unwrap();
    }

    fn poll(&mut self) -> Vec<SinkReport> {
        let mut reports = Vec::new();
        self.sink.poll(self.now, Duration::ZERO, &mut reports);
        reports
    }

    fn taken(&self, kind: ProducerKind) -> Vec<Sequence> {
        let cluster = self.cluster.borrow();
        let of_kind = cluster.taken.iter().filter(|(_, (by, _))| *by == kind);
        of_kind.map(|(sequence, _)| *sequence).collect()
    }

    fn answer(&self, sequence: Sequence, code: Option<Code>) {
        let mut cluster = self.cluster.borrow_mut();
        let (kind, record) = cluster.taken.remove(&sequence).expect("it was handed over");
        let partition = record.partition.unwrap_or(0);
        let answers = match kind {
            ProducerKind::Normal => &mut cluster.normal,
            ProducerKind::Isolated => &mut cluster.isolated,
        };
        match code {
            None => answers.confirmed.push((sequence, partition)),
            Some(code) => {
                let record = Record { partition: None, commit_unix_us: 0, ..record };
                answers.failed.push((sequence, code, record));
            }
        }
    }

    fn confirm(&self, sequence: Sequence) {
        self.answer(sequence, None);
    }

    /// The broker refuses a batch of these, and the normal producer is given up.
    fn refuse_batch(&self, sequences: &[Sequence], code: Code) {
        sequences.iter().for_each(|sequence| self.answer(*sequence, Some(code)));
        self.cluster.borrow_mut().fatal = Some((code, RULES.to_owned()));
    }
}

fn publish(
    sink: &mut KafkaSink<Factory>,
    sequence: Sequence,
    topic: &str,
    key: &str,
) -> Result<(), PublishError> {
    event(topic, key, |event| sink.publish(sequence, event))
}

fn event<T>(topic: &str, key: &str, then: impl FnOnce(&Outbound<'_>) -> T) -> T {
    let key = Some(key.as_bytes().to_vec());
    let record = Record { topic: topic.to_owned(), key, id: "e".to_owned(), ..Record::default() };
    record.with_outbound(then)
}

fn broken() -> SinkReport {
    SinkReport::Broken(RULES.to_owned())
}

fn failed(report: &SinkReport) -> Option<(Sequence, Disposition)> {
    match report {
        SinkReport::Failed(sequence, failure) => Some((*sequence, failure.disposition)),
        _ => None,
    }
}

#[test]
fn a_producer_that_the_broker_may_have_forgotten_sends_one_event_alone_again() {
    let mut world = World::warm();
    world.publish(3, "orders", "a");
    world.confirm(3);
    world.poll();
    for sequence in [4, 5] {
        world.publish(sequence, "orders", "a");
    }
    assert_eq!(world.taken(ProducerKind::Normal), [4, 5]);
    // WHEN time has passed THEN one event goes, and the next ones of its partition once it is confirmed
    world.now += CLOSE_INTERVAL;
    world.poll();
    for (sequence, key) in [(6, "a"), (7, "b"), (8, "a")] {
        world.publish(sequence, "orders", key);
    }
    assert_eq!(world.taken(ProducerKind::Normal), [4, 5, 6, 7]);
    // AND the events that were sent before it say nothing of that
    world.confirm(4);
    world.confirm(5);
    world.poll();
    assert_eq!(world.taken(ProducerKind::Normal), [6, 7]);
    world.confirm(6);
    world.poll();
    assert_eq!(world.taken(ProducerKind::Normal), [7, 8]);
    world.publish(9, "orders", "a");
    assert_eq!(world.taken(ProducerKind::Normal), [7, 8, 9]);
}

#[test]
fn a_batch_that_is_too_large_blames_no_event_and_the_next_batches_are_smaller() {
    let mut world = World::warm();
    world.publish(3, "orders", "a");
    world.refuse_batch(&[3], Code::MessageSizeTooLarge);
    assert_eq!(world.poll(), [broken()]);
    let before = world.cluster.borrow().opened[0].1;
    world.rebuild();
    let cluster = world.cluster.borrow();
    assert!(cluster.opened[1].1 < before, "{:?}", cluster.opened);
    assert_eq!(cluster.limits_asked, ["orders"]);
    drop(cluster);
    // WHEN the cluster names the limit THEN that holds
    world.cluster.borrow_mut().normal.record_limits.push(("orders".to_owned(), 100));
    world.poll();
    world.rebuild();
    assert_eq!(world.cluster.borrow().opened[2].1, 100);
    let has_room = |topic| event(topic, "a", |event| world.sink.has_room_for(event));
    assert_eq!(["orders", "others"].map(has_room), [false, true]);
}

#[test]
fn a_sink_that_has_broken_waits_for_the_last_answers_and_not_for_ever() {
    let mut world = World::warm();
    world.publish(3, "orders", "a");
    world.publish(4, "orders", "b");
    world.refuse_batch(&[3], Code::InvalidRecord);
    assert_eq!(world.poll(), [SinkReport::Suspect(3)]);
    world.now += LAST_ANSWERS_WITHIN;
    assert_eq!(world.poll(), []);
    world.now += Duration::from_millis(1);
    assert_eq!(world.poll(), [broken()]);
}

#[test]
fn a_sink_that_has_broken_waits_for_the_isolated_producer_too() {
    let mut world = World::warm();
    world.publish_alone(3, "b");
    world.publish(4, "orders", "a");
    world.poll();
    world.refuse_batch(&[4], Code::InvalidRecord);
    assert_eq!(world.poll(), [SinkReport::Suspect(4)]);
    world.confirm(3);
    assert_eq!(world.poll(), [SinkReport::Confirmed(3), broken()]);
}

#[test]
fn an_event_before_a_confirmed_one_of_its_key_is_stored_although_its_answer_is_outstanding() {
    let sent = || {
        let mut world = World::warm();
        for (sequence, key) in [(3, "b"), (4, "b"), (5, "a")] {
            world.publish(sequence, "orders", key);
        }
        world.poll();
        // The client sends the first once more, because the broker was not sure that it is kept.
        world.confirm(4);
        assert_eq!(world.poll(), [SinkReport::Confirmed(4)]);
        world
    };
    // WHEN the client is given up THEN the first is not left to the next sink
    let mut world = sent();
    world.refuse_batch(&[5], Code::InvalidRecord);
    assert_eq!(world.poll(), [SinkReport::Suspect(5)]);
    world.now += LAST_ANSWERS_WITHIN + Duration::from_millis(1);
    assert_eq!(world.poll(), [SinkReport::Confirmed(3), broken()]);
    // WHEN the client gives it up, and does not know whether it is stored THEN neither
    let mut world = sent();
    world.refuse_batch(&[5], Code::InvalidRecord);
    world.answer(3, Some(Code::PurgeInflight));
    assert_eq!(world.poll()[..2], [SinkReport::Suspect(5), SinkReport::Confirmed(3)]);
    // WHEN the client has dropped its partition, as the topic was missing THEN nothing shows that it is stored
    let mut world = sent();
    world.refuse_batch(&[5], Code::InvalidRecord);
    world.answer(3, Some(Code::BrokerDestroy));
    assert_eq!(world.poll(), [SinkReport::Suspect(5), broken()]);
    // WHEN the broker refuses it THEN it is not stored
    let mut world = sent();
    world.refuse_batch(&[3], Code::InvalidRecord);
    assert_eq!(world.poll(), [SinkReport::Suspect(3)]);
    // WHEN it is withdrawn THEN neither
    let (mut world, mut reports) = (sent(), Vec::new());
    world.sink.withdraw(world.now, &mut reports);
    assert_eq!(reports, [SinkReport::Confirmed(3)]);
    assert_eq!(world.cluster.borrow().purged, [ProducerKind::Normal]);
}

#[test]
fn a_key_of_a_topic_with_other_partitions_waits_for_its_older_events() {
    let mut world = World::warm();
    world.publish(3, "orders", "a");
    // WHEN the partitions change, and the answer for the older event has not come
    let fewer = TopicDescription { topic: 0, partitions: 1, id: 7 };
    world.cluster.borrow_mut().normal.topics.push(fewer);
    world.poll();
    world.publish(4, "orders", "a");
    world.publish(5, "orders", "c");
    world.poll();
    assert_eq!(world.taken(ProducerKind::Normal), [3, 5]);
    // THEN the later one follows it, wherever that goes
    world.answer(3, Some(Code::UnknownPartition));
    world.poll();
    assert_eq!(world.taken(ProducerKind::Normal), [5]);
    assert_eq!(world.taken(ProducerKind::Isolated), [3]);
    world.confirm(3);
    world.poll();
    // AND it waits until its partition has confirmed an event
    world.confirm(5);
    world.poll();
    assert_eq!(world.taken(ProducerKind::Normal), [4]);
}

#[test]
fn a_forbidden_topic_goes_through_the_isolated_producer_until_it_is_allowed() {
    let mut world = World::warm();
    world.publish(3, "orders", "a");
    world.refuse_batch(&[3], Code::TopicAuthorizationFailed);
    assert_eq!(world.poll(), [broken()]);
    world.rebuild();
    world.publish(3, "orders", "a");
    world.publish(4, "others", "b");
    world.poll();
    assert_eq!(world.taken(ProducerKind::Isolated), [3]);
    assert_eq!(world.taken(ProducerKind::Normal), [4]);
    // WHEN one is confirmed THEN the next goes as all do
    world.confirm(3);
    assert_eq!(world.poll(), [SinkReport::Confirmed(3)]);
    world.publish(5, "orders", "a");
    world.poll();
    assert!(world.taken(ProducerKind::Isolated).is_empty());
}

#[test]
fn a_topic_that_was_made_anew_is_warmed_up_again_or_ends_the_sink() {
    // GIVEN a topic that was missing for a while, as the client has noticed
    let mut world = World::warm();
    world.publish(3, "orders", "a");
    world.answer(3, Some(Code::UnknownTopic));
    world.poll();
    // WHEN it is there again THEN one event at a time goes to a partition of it
    world.publish(4, "orders", "b");
    world.publish(5, "orders", "d");
    world.poll();
    assert_eq!(world.taken(ProducerKind::Normal), [4]);
    // GIVEN one that was missing while an event for a partition of it waited in the client
    let mut world = World::warm();
    event("orders", "a", |event| world.sink.publish(3, &Outbound { partition: Some(1), ..*event }))
        .unwrap();
    let (_, record) = world.cluster.borrow_mut().taken.remove(&3).unwrap();
    world.cluster.borrow_mut().normal.failed.push((3, Code::UnknownPartition, record));
    world.poll();
    // THEN one event at a time goes to a partition of it, too
    world.publish(4, "orders", "b");
    world.publish(5, "orders", "d");
    world.poll();
    assert_eq!(world.taken(ProducerKind::Normal), [4]);
    // GIVEN one that the client finds missing when it gets an event, and which is there once it is asked for
    let mut world = World::warm();
    world.cluster.borrow_mut().refused.insert("orders".to_owned(), Code::UnknownTopic);
    world.cluster.borrow_mut().is_answering = true;
    let refused = event("orders", "b", |event| world.sink.publish(3, event));
    assert_eq!(refused, Err(PublishError::QueueFull));
    world.cluster.borrow_mut().refused.clear();
    // THEN one event at a time goes to a partition of it, too
    world.publish(3, "orders", "b");
    world.publish(4, "orders", "d");
    world.poll();
    assert_eq!(world.taken(ProducerKind::Normal), [3]);
    // GIVEN one that was made anew, and nothing has told it to the client
    let mut world = World::warm();
    let anew = TopicDescription { topic: 0, partitions: 2, id: 8 };
    world.cluster.borrow_mut().normal.topics.push(anew);
    // THEN a new client is needed
    let reports = world.poll();
    assert!(
        matches!(&reports[..], [SinkReport::Broken(text)] if text.contains("created again")),
        "{reports:?}"
    );
}

#[test]
fn a_missing_topic_is_asked_for_now_and_then_and_its_key_waits() {
    let mut world = World::warm();
    let refused = ("gone".to_owned(), Code::UnknownTopic);
    world.cluster.borrow_mut().refused.extend([refused]);
    world.publish(3, "gone", "a");
    world.publish(4, "gone", "b");
    assert_eq!(world.cluster.borrow().metadata_requests, 1);
    let reports = world.poll();
    let failures: Vec<_> = reports.iter().filter_map(failed).collect();
    assert_eq!(failures, [(3, Disposition::Transient), (4, Disposition::Transient)]);
    world.publish(5, "orders", "a");
    world.poll();
    assert!(world.taken(ProducerKind::Normal).is_empty());
    // AND other keys do not
    world.publish(6, "orders", "c");
    assert_eq!(world.taken(ProducerKind::Normal), [6]);
    // WHEN it exists THEN the retry is sent
    world.cluster.borrow_mut().refused.clear();
    world.sink.retry(3);
    world.poll();
    assert_eq!(world.taken(ProducerKind::Isolated), [3]);
}

#[test]
fn an_event_for_a_missing_topic_or_partition_is_held_while_an_answer_may_come() {
    for (code, partition) in [(Code::UnknownTopic, None), (Code::UnknownPartition, Some(6))] {
        let mut world = World::warm();
        let publish = |world: &mut World, sequence| {
            world.now += Duration::from_millis(10);
            world.poll();
            let publish = |event: &Outbound<'_>| {
                world.sink.publish(sequence, &Outbound { partition, ..*event })
            };
            event("gone", "a", publish)
        };
        world.cluster.borrow_mut().refused.insert("gone".to_owned(), code);
        world.cluster.borrow_mut().is_answering = true;
        // WHEN it is found THEN the event is taken
        assert_eq!(publish(&mut world, 3), Err(PublishError::QueueFull));
        assert_eq!(publish(&mut world, 3), Err(PublishError::QueueFull));
        assert_eq!(world.cluster.borrow().metadata_requests, 1);
        world.cluster.borrow_mut().refused.clear();
        assert_eq!(publish(&mut world, 3), Ok(()));
        assert_eq!(world.taken(ProducerKind::Normal), [3]);
        world.confirm(3);
        world.poll();
        // WHEN it is still missing then THEN the event has failed
        world.now += Duration::from_secs(1);
        world.cluster.borrow_mut().refused.insert("gone".to_owned(), code);
        assert_eq!(publish(&mut world, 4), Err(PublishError::QueueFull));
        assert_eq!(publish(&mut world, 4), Err(PublishError::QueueFull));
        assert_eq!(publish(&mut world, 4), Ok(()));
        let failures: Vec<_> = world.poll().iter().filter_map(failed).collect();
        assert_eq!(failures, [(4, Disposition::Transient)]);
        assert_eq!(world.cluster.borrow().metadata_requests, 2);
    }
}

#[test]
fn an_unreachable_cluster_is_asked_now_and_then_and_an_unused_producer_is_closed() {
    let mut world = World::warm();
    world.publish_alone(3, "a");
    world.poll();
    world.confirm(3);
    world.poll();
    let opened = world.cluster.borrow().opened.len();
    let down = (Code::AllBrokersDown, "down".to_owned());
    world.cluster.borrow_mut().normal.errors.push(down);
    assert_eq!(world.poll(), [SinkReport::Unreachable("down".to_owned())]);
    for _ in 0..40 {
        world.now += Duration::from_secs(1);
        assert_eq!((world.poll(), world.poll()), (Vec::new(), Vec::new()));
    }
    assert_eq!(world.cluster.borrow().metadata_requests, 40);
    assert_eq!(world.cluster.borrow().brokers_named, 1);
    world.cluster.borrow_mut().is_answering = true;
    world.now += Duration::from_secs(1);
    assert_eq!(world.poll(), [SinkReport::Reachable]);
    // WHEN an event is in flight, perhaps to a partition that does not answer THEN it is asked as well
    world.publish(5, "orders", "b");
    world.cluster.borrow_mut().normal.errors.push((Code::Resolve, "no address".to_owned()));
    assert_eq!(world.poll(), [SinkReport::Unreachable("no address".to_owned())]);
    world.now += Duration::from_secs(1);
    assert_eq!(world.poll(), [SinkReport::Reachable]);
    world.confirm(5);
    world.poll();
    // THEN the isolated producer is opened anew for the next
    world.publish_alone(4, "a");
    world.poll();
    assert_eq!(world.cluster.borrow().opened.len(), opened + 1);
    // AND kept for the one after that
    world.confirm(4);
    world.poll();
    world.publish_alone(6, "a");
    world.poll();
    assert_eq!(world.cluster.borrow().opened.len(), opened + 1);
}
