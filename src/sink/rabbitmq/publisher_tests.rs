use std::sync::mpsc::channel;

use tokio::sync::mpsc::unbounded_channel;

use super::*;
use crate::sink::PublishLimits;
use crate::sink::rabbitmq::testing::empty_message;

const SECOND: Duration = Duration::from_secs(1);

fn message(number: Sequence) -> AmqpMessage {
    empty_message("e", &format!("topic.{}", number % 40), &number.to_string())
}

/// A publisher with 2,000 events for 40 destinations, of which as many are sent as may be.
fn publisher_with_all_sent(sent_at: Instant) -> (Publisher, PublishChannels) {
    let ((_, orders), (reports, _)) = (unbounded_channel(), channel());
    let (settings, shared) = (RabbitSettings::default(), PublisherState::default());
    let mut publisher = Publisher::new(settings, orders, reports, shared);
    let mut channels = PublishChannels::default();
    (1..=64).for_each(|number| channels.add(number));
    (0..2_000).for_each(|number| publisher.unconfirmed.add(number, message(number)));
    while let Some((sequence, message)) = publisher.unconfirmed.peek() {
        match channels.publish(sequence, &message, sent_at) {
            Some(_) => publisher.unconfirmed.sent(sequence, &message),
            None => publisher.unconfirmed.set_aside(sequence),
        }
    }
    (publisher, channels)
}

fn ago(seconds: u32) -> Instant {
    Instant::now().checked_sub(seconds * SECOND).unwrap()
}

#[test]
fn only_an_answer_to_a_later_question_lets_go_of_what_is_unanswered() {
    let (mut publisher, channels) = publisher_with_all_sent(ago(10));
    let in_flight = publisher.unconfirmed.in_flight().count();
    assert!(in_flight > 500, "{in_flight}");
    let flow = (false, ago(100));
    // WHEN the broker answers what was asked before the events were sent THEN it may stand since
    publisher.question_answered(&channels, ago(11), flow);
    assert!(!publisher.unconfirmed.has_unanswered());
    // WHEN it was blocked meanwhile THEN they say nothing of their destinations
    for flow in [(true, ago(100)), (false, ago(1))] {
        publisher.question_answered(&channels, ago(5), flow);
        assert!(!publisher.unconfirmed.has_unanswered());
    }
    // WHEN it answers what was asked later THEN others are not kept waiting for them
    publisher.question_answered(&channels, ago(5), flow);
    assert!(publisher.unconfirmed.has_unanswered());
    // WHEN they were sent shortly before THEN they are not late
    let (mut publisher, channels) = publisher_with_all_sent(ago(1));
    publisher.question_answered(&channels, Instant::now(), flow);
    assert!(!publisher.unconfirmed.has_unanswered());
}

#[test]
fn only_what_is_long_without_an_answer_is_noted() {
    let (publisher, channels) = publisher_with_all_sent(ago(0));
    let (_, _, sent_at) = channels.oldest().unwrap();
    let noted = |flows, after| {
        publisher.note_unanswered(&channels, flows, sent_at + after);
        publisher.shared.unanswered.lock().unwrap().clone()
    };
    let (early, late) = (UNANSWERED_AFTER - Duration::from_millis(1), UNANSWERED_AFTER);
    assert_eq!(noted(true, early), None);
    assert_eq!(noted(true, late), Some((0, "routing key topic.0 of exchange e".to_owned())));
    // WHEN the broker takes nothing for now THEN nothing is noted any more
    assert_eq!(noted(false, late), None);
}

#[test]
fn messages_flow_unless_the_broker_or_the_relay_forbids_it() {
    let (publisher, _) = publisher_with_all_sent(ago(0));
    let now = Instant::now();
    assert!(publisher.flows((false, ago(3)), now));
    assert!(!publisher.flows((true, ago(3)), now));
    assert!(!publisher.flows((false, ago(1)), now));
    // WHEN another relay may have taken over
    let (begin_until, finish_until) = (now, now + SECOND);
    publisher.shared.deadline.set(PublishLimits { begin_until, finish_until });
    assert!(!publisher.flows((false, ago(3)), now));
}
