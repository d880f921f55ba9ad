//! Tests that only a real RabbitMQ can confirm: that the relay's view and the queue's are one.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use walrelay::sink::{Broker, Disposition};
use walrelay_harness::kit::volume;
use walrelay_harness::rabbit::{Delivery, Queue, Rabbit, Value};

use crate::sinks::section;
use crate::sinks::test_relay::{Event, TestRelay};
use crate::support::shared_rabbitmq;

pub(crate) fn broker() -> Arc<dyn Broker> {
    section::rabbitmq(shared_rabbitmq().port(), Duration::from_secs(10))
}

pub(crate) fn admin() -> Rabbit {
    Rabbit::open(&shared_rabbitmq().amqp_url()).unwrap()
}

/// A test relay on it, and an administrator.
pub(crate) fn open() -> (TestRelay, Rabbit) {
    (TestRelay::open(broker()), admin())
}

/// An exchange and a queue of one name, bound by `key`.
pub(crate) fn arrange(rabbit: &mut Rabbit, name: &str, key: &str, arguments: &[(&str, Value)]) {
    rabbit.declare_exchange(name, "topic").unwrap();
    rabbit.declare_queue_with(name, Queue::Classic, arguments).unwrap();
    rabbit.bind(name, name, key).unwrap();
}

pub(crate) fn event(name: &str, topic: &str, id: impl Into<String>) -> Event {
    Event { exchange: name.to_owned(), ..Event::new(topic, id) }
}

fn id(delivery: &Delivery) -> &str {
    delivery.properties.message_id.as_deref().expect("a message id")
}

fn take_ids(rabbit: &mut Rabbit, queue: &str) -> Vec<String> {
    rabbit.take(queue).unwrap().iter().map(|held| id(held).to_owned()).collect()
}

#[test]
fn events_with_every_seventh_unroutable_are_settled_as_they_are_queued() {
    let events = volume(7_000, 100_000);
    // GIVEN a queue for some routing keys
    let (mut relay, mut rabbit) = open();
    arrange(&mut rabbit, "seventh", "here.#", &[]);
    // WHEN every seventh event has another
    for number in 0..events {
        let topic = if number % 7 == 0 { "nowhere.at.all" } else { "here.it.is" };
        relay.publish(&event("seventh", topic, number.to_string()));
        relay.poll(Duration::ZERO);
        if number % 7 == 0 && relay.refused.len() > 1000 {
            relay.forget_refused();
        }
    }
    relay.settle();
    // THEN exactly these failed, each once
    let mut failed: Vec<u64> = relay.failures.iter().map(|(sequence, _)| *sequence).collect();
    failed.sort_unstable();
    assert_eq!(failed, (0..events).step_by(7).collect::<Vec<u64>>());
    for (_, failure) in &relay.failures {
        assert_eq!(failure.class, "rabbitmq.no-route");
        assert_eq!(failure.disposition, Disposition::Transient);
    }
    // AND exactly the others are confirmed, and in the queue, each once
    let held = rabbit.take("seventh").unwrap();
    let queued: HashSet<u64> = held.iter().map(|held| id(held).parse().unwrap()).collect();
    let confirmed: HashSet<u64> = relay.confirmed.iter().copied().collect();
    assert_eq!(held.len(), queued.len(), "an event is there twice");
    assert_eq!(confirmed.len(), relay.confirmed.len());
    assert!(queued == confirmed, "{:?}", queued.symmetric_difference(&confirmed).next());
    assert!(relay.reachability.is_empty(), "the connection was lost: {:?}", relay.reachability);
    for held in &held {
        assert_eq!(held.body, id(held).as_bytes());
        assert_eq!(held.properties.delivery_mode, Some(2));
    }
}

#[test]
fn an_exchange_that_is_made_later_takes_its_events_in_order() {
    // GIVEN events of one key for an exchange that is not there
    let (mut relay, mut rabbit) = open();
    for id in ["0", "1", "2", "3", "4"] {
        relay.publish(&event("made-later", "k", id).keyed("a"));
    }
    // WHEN they are published THEN the first fails, and the others wait for it
    relay.until("a failure", |relay| !relay.failures.is_empty());
    assert_eq!(relay.refused.keys().collect::<Vec<_>>(), [&0]);
    let failure = &relay.failures[0].1;
    assert_eq!(failure.class, "rabbitmq.not-found");
    assert_eq!(failure.disposition, Disposition::Transient);
    assert!(failure.mend.contains("made-later"), "{}", failure.mend);
    // WHEN it is retried too early THEN it fails again
    relay.retry(0);
    relay.until("another failure", |relay| relay.failures.len() == 2);
    // WHEN the exchange is made THEN a retry brings all of them, in order
    arrange(&mut rabbit, "made-later", "k", &[]);
    relay.retry(0);
    relay.settle();
    assert_eq!(relay.confirmed, [0, 1, 2, 3, 4]);
    assert_eq!(take_ids(&mut rabbit, "made-later"), ["0", "1", "2", "3", "4"]);
    assert!(relay.reachability.is_empty(), "asking cost the connection: {:?}", relay.reachability);
}

#[test]
fn a_full_queue_refuses_an_event_until_there_is_room() {
    // GIVEN a queue with room for three
    let (mut relay, mut rabbit) = open();
    let limits = [("x-max-length", Value::from(3)), ("x-overflow", Value::from("reject-publish"))];
    arrange(&mut rabbit, "full", "k", &limits);
    // WHEN six events of one key come THEN the fourth fails, and the others wait for it
    for number in 0..6 {
        relay.publish(&event("full", "k", number.to_string()).keyed("a"));
    }
    relay.until("a failure", |relay| !relay.failures.is_empty());
    assert_eq!(relay.confirmed, [0, 1, 2]);
    let (sequence, failure) = relay.failures[0].clone();
    assert_eq!((sequence, failure.class.as_str()), (3, "rabbitmq.nack"));
    assert_eq!(failure.disposition, Disposition::Transient);
    // WHEN there is room THEN a retry brings the rest, in order
    assert_eq!(take_ids(&mut rabbit, "full"), ["0", "1", "2"]);
    relay.retry(3);
    relay.settle();
    assert_eq!(relay.confirmed, [0, 1, 2, 3, 4, 5]);
    assert_eq!(take_ids(&mut rabbit, "full"), ["3", "4", "5"]);
}

#[test]
fn a_login_with_few_channels_publishes_over_those() {
    // GIVEN a user who may have three channels
    let mut rabbit = admin();
    arrange(&mut rabbit, "few", "#", &[]);
    shared_rabbitmq().add_user("few", "few").unwrap();
    let limits = "<<\"{\\\"max-channels\\\": 3}\">>";
    let limit = format!(
        "ok = rabbit_auth_backend_internal:set_user_limits(<<\"few\">>, {limits}, <<\"test\">>)"
    );
    shared_rabbitmq().eval(&limit).unwrap();
    let broker = section::rabbitmq_as("few", shared_rabbitmq().port(), Duration::from_secs(10));
    let mut relay = TestRelay::open(broker);
    // WHEN events for more destinations come
    for number in 0..500 {
        relay.publish(&event("few", &format!("topic.{}", number % 10), number.to_string()));
    }
    relay.settle();
    // THEN the broker refuses one channel too many once or twice, and no more
    assert_eq!(relay.confirmed.len(), 500);
    assert!(relay.reachability.len() <= 4, "{:?}", relay.reachability);
    // AND all are there in the end
    assert!(rabbit.take("few").unwrap().len() >= 500);
}
