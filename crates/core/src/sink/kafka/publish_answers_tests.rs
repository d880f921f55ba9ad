//! Answers of producers that schedules seldom bring about.

use super::*;
use crate::testing::{dead_letter_cause, dead_letter_writer};

const ISOLATED: ProducerKind = ProducerKind::Isolated;
const NORMAL: ProducerKind = ProducerKind::Normal;

impl World {
    fn replace(&mut self, sequence: Sequence) {
        let (writer, cause) = (dead_letter_writer(1000), dead_letter_cause());
        self.sink.replace_with_dead_letter(sequence, &writer, &cause);
    }

    /// Polls, and returns the failures that were reported.
    fn failures(&mut self) -> Vec<(Sequence, Disposition)> {
        self.poll().iter().filter_map(failed).collect()
    }

    fn refuse(&self, topic: &str, code: Code) {
        self.cluster.borrow_mut().refused.insert(topic.to_owned(), code);
    }

    fn take_again(&self) {
        self.cluster.borrow_mut().refused.clear();
    }

    fn requests(&self) -> usize {
        self.cluster.borrow().metadata_requests
    }
}

#[test]
fn events_that_are_held_behind_a_dead_letter_are_refused_and_later_ones_do_not_wait_for_them() {
    let mut world = World::warm();
    world.publish(3, "others", "b");
    // GIVEN events of a key under way, and others that wait for the partition and for the topic
    world.publish(4, "orders", "a");
    world.now += CLOSE_INTERVAL;
    world.poll();
    world.poll();
    world.publish(5, "orders", "a");
    world.publish(6, "orders", "a");
    world.publish(7, "others", "a");
    assert_eq!(world.taken(NORMAL), [3, 4]);
    assert!(world.sink.holds_back());
    // WHEN the first fails and its dead letter parks the key
    world.answer(4, Some(Code::Unknown));
    assert_eq!(world.failures(), [(4, Disposition::Transient)]);
    world.replace(4);
    assert!(!world.sink.holds_back());
    // THEN those that wait are refused, and become dead letters one after the other
    assert_eq!(world.failures(), [5, 6, 7].map(|sequence| (sequence, Disposition::Terminal)));
    assert_eq!(world.taken(ISOLATED), [4]);
    world.confirm(4);
    world.poll();
    for sequence in [5, 6, 7] {
        world.replace(sequence);
        world.poll();
        assert_eq!(world.taken(ISOLATED), [sequence]);
        world.confirm(sequence);
        world.poll();
    }
    // AND the next event of the key waits for none of them
    world.publish(8, "others", "a");
    assert_eq!(world.taken(NORMAL), [3, 8]);
}

#[test]
fn an_event_follows_the_older_one_that_it_has_waited_for_whatever_the_answer() {
    let waiting = || {
        let mut world = World::warm();
        world.publish(3, "orders", "b");
        world.publish(4, "orders", "b");
        world.publish(5, "others", "a");
        world.publish(6, "others", "b");
        world.poll();
        world.poll();
        assert_eq!(world.taken(NORMAL), [3, 4, 5]);
        assert!(world.sink.holds_back());
        world.confirm(4);
        assert_eq!(world.poll(), [SinkReport::Confirmed(4)]);
        world
    };
    // WHEN the older one is stored, although the client does not know that THEN the other is sent
    let mut world = waiting();
    world.answer(3, Some(Code::NetworkException));
    assert_eq!(world.poll(), [SinkReport::Confirmed(3)]);
    assert_eq!(world.taken(NORMAL), [5, 6]);
    // WHEN it fails THEN the other joins it
    let mut world = waiting();
    world.answer(3, Some(Code::Unknown));
    assert_eq!(world.failures(), [(3, Disposition::Transient)]);
    assert!(!world.sink.holds_back());
}

#[test]
fn an_event_that_fails_in_an_outage_is_reported_and_its_partitions_stay_open() {
    let mut world = World::warm();
    world.publish(3, "orders", "a");
    world.answer(3, Some(Code::NetworkException));
    assert_eq!(world.failures(), [(3, Disposition::Outage)]);
    world.publish(4, "orders", "b");
    world.publish(5, "orders", "d");
    assert_eq!(world.taken(NORMAL), [4, 5]);
}

#[test]
fn a_partition_whose_first_event_fails_takes_the_next_one() {
    let mut world = World::new();
    world.publish(0, "orders", "a");
    world.poll();
    world.poll();
    world.publish(1, "orders", "c");
    assert_eq!(world.taken(NORMAL), [0]);
    world.answer(0, Some(Code::Unknown));
    world.poll();
    assert_eq!(world.taken(NORMAL), [1]);
}

#[test]
fn an_event_for_a_partition_that_is_gone_is_sent_alone_and_its_topic_is_warmed_up_again() {
    let mut world = World::warm();
    world.refuse("orders", Code::UnknownPartition);
    world.publish(3, "orders", "a");
    world.take_again();
    world.publish(4, "orders", "b");
    world.publish(5, "orders", "d");
    world.poll();
    assert_eq!((world.taken(ISOLATED), world.taken(NORMAL)), (vec![3], vec![4]));
}

#[test]
fn an_event_under_way_to_a_topic_with_fewer_partitions_holds_its_partition() {
    let mut world = World::warm();
    world.publish(3, "orders", "b");
    let fewer = TopicDescription { topic: 0, partitions: 1, id: 7 };
    world.cluster.borrow_mut().normal.topics.push(fewer);
    world.poll();
    world.publish(4, "orders", "d");
    assert_eq!(world.taken(NORMAL), [3]);
    world.confirm(3);
    world.poll();
    assert_eq!(world.taken(NORMAL), [4]);
}

#[test]
fn a_fatal_error_of_the_isolated_producer_ends_the_sink() {
    let mut world = World::warm();
    world.publish_alone(3, "a");
    // Also while the relay waits.
    let mut reports = Vec::new();
    world.sink.poll(world.now, SHORT_WAIT, &mut reports);
    world.confirm(3);
    world.cluster.borrow_mut().isolated.errors.push((Code::Fatal, RULES.to_owned()));
    assert_eq!(world.poll(), [SinkReport::Confirmed(3), broken()]);
}

#[test]
fn both_producers_hear_until_when_they_may_connect_also_one_that_is_opened_later() {
    let mut world = World::warm();
    assert_eq!(world.sink.broker(), fingerprint("kafka/cluster"));
    let until = [1, 2, 3].map(|seconds| world.now + Duration::from_secs(seconds));
    let heard = |world: &World| std::mem::take(&mut world.cluster.borrow_mut().connects);
    world.sink.publish_until(until[0]);
    assert_eq!(heard(&world), [(NORMAL, until[0], true)]);
    world.publish_alone(3, "a");
    world.publish(4, "orders", "b");
    world.poll();
    assert_eq!(heard(&world), [(ISOLATED, until[0], false)]);
    assert_eq!(world.sink.destination(3).as_deref(), Some("topic orders"));
    world.sink.publish_until(until[1]);
    assert_eq!(heard(&world), [NORMAL, ISOLATED].map(|kind| (kind, until[1], false)));
    [3, 4].into_iter().for_each(|sequence| world.confirm(sequence));
    world.poll();
    world.sink.publish_until(until[2]);
    assert_eq!(heard(&world), [NORMAL, ISOLATED].map(|kind| (kind, until[2], true)));
}

#[test]
fn a_topic_that_is_found_missing_is_asked_for_once_the_answers_of_before_are_read() {
    // GIVEN an event under way, which may have failed because the topic is missing
    let mut world = World::warm();
    world.publish(3, "orders", "a");
    world.refuse("gone", Code::UnknownTopic);
    assert_eq!(publish(&mut world.sink, 4, "gone", "b"), Err(PublishError::QueueFull));
    assert_eq!(world.requests(), 0);
    world.poll();
    world.publish(4, "gone", "b");
    assert_eq!(world.requests(), 1);
    // WHEN it was there meanwhile THEN that holds again
    world.take_again();
    world.publish(5, "gone", "c");
    world.poll();
    world.poll();
    world.refuse("gone", Code::UnknownTopic);
    assert_eq!(publish(&mut world.sink, 6, "gone", "d"), Err(PublishError::QueueFull));
}

#[test]
fn a_topic_that_refuses_the_time_of_a_record_gets_the_next_ones_one_at_a_time() {
    let mut world = World::warm();
    world.publish(3, "orders", "a");
    world.refuse_batch(&[3], Code::InvalidTimestamp);
    assert_eq!(world.poll(), [broken()]);
    world.rebuild();
    world.publish(3, "orders", "a");
    world.poll();
    assert_eq!(world.taken(ISOLATED), [3]);
}

#[test]
fn a_dead_letter_that_is_too_large_is_cut_and_sent_again() {
    let (mut world, value) = (World::warm(), vec![b'x'; 20_000]);
    event("letters", "a", |letter| {
        world.sink.publish_dead_letter(3, &Outbound { value: Some(&value), ..*letter })
    })
    .unwrap();
    world.poll();
    let bytes = |world: &World| {
        let cluster = world.cluster.borrow();
        cluster.taken[&3].1.with_outbound(record_limit::framed_bytes)
    };
    let before = bytes(&world);
    world.answer(3, Some(Code::MessageSizeTooLarge));
    assert_eq!(world.poll(), []);
    assert_eq!(world.taken(ISOLATED), [3]);
    assert!(bytes(&world) < before);
    assert_eq!(world.cluster.borrow().limits_asked, ["letters"]);
}

#[test]
fn an_event_is_handed_over_once_and_keeps_the_time_of_its_commit_when_it_fails() {
    let mut world = World::warm();
    world.cluster.borrow_mut().is_answering = true;
    let publish = |event: &Outbound<'_>| {
        world.sink.publish(3, &Outbound { partition: Some(1), commit_unix_us: 9, ..*event })
    };
    assert_eq!(event("orders", "a", publish), Ok(()));
    assert_eq!(world.requests(), 0);
    world.answer(3, Some(Code::Unknown));
    world.poll();
    world.sink.retry(3);
    world.poll();
    assert_eq!(world.taken(ISOLATED), [3]);
    assert_eq!(world.cluster.borrow().taken[&3].1.commit_unix_us, 9);
}

#[test]
fn an_event_that_the_client_does_not_take_by_itself_is_told_with_the_limit_of_the_client() {
    let mut world = World::warm();
    world.refuse("orders", Code::MessageSizeTooLarge);
    world.publish_alone(3, "a");
    let reports = world.poll();
    let [SinkReport::Failed(3, failure)] = &reports[..] else { panic!("{reports:?}") };
    assert!(failure.reason.contains("no broker has seen it"), "{failure:?}");
}
