//! AMQP counts the bytes of a name in one byte, and sends all headers in one frame: what does not
//! fit is refused before it is sent, with the name of what is too long.

use walrelay::sink::{Disposition, PublishError};

use crate::sinks::real::{arrange, event, open};
use crate::sinks::test_relay::Event;

/// Everything that has a name, `bytes` long.
fn named(bytes: usize) -> Vec<(&'static str, Event)> {
    let long = |letter: char| letter.to_string().repeat(bytes);
    let plain = || event("names", "k", "plain");
    vec![
        ("routing key", Event { topic: long('r'), ..plain() }),
        ("event id", Event { id: long('i'), ..plain() }),
        ("event type", Event { event_type: Some(long('t')), ..plain() }),
        ("content type", Event { content_type: Some(long('c')), ..plain() }),
        ("header name", Event { headers: vec![(long('h'), b"v".to_vec())], ..plain() }),
        ("exchange", Event { exchange: long('e'), ..plain() }),
    ]
}

#[test]
fn names_of_255_bytes_pass_and_longer_ones_are_refused_by_name() {
    let (mut relay, mut rabbit) = open();
    arrange(&mut rabbit, "names", "#", &[]);
    let longest = "e".repeat(255);
    arrange(&mut rabbit, &longest, "#", &[]);
    // GIVEN names of 255 bytes THEN all pass as they are
    let fitting = named(255);
    for (_, event) in &fitting {
        relay.publish(event);
    }
    relay.settle();
    assert_eq!(relay.failures, []);
    let mut taken = rabbit.take("names").unwrap();
    taken.extend(rabbit.take(&longest).unwrap());
    assert_eq!(taken.len(), fitting.len());
    let exists = |test: &dyn Fn(&walrelay_harness::rabbit::Delivery) -> bool| {
        taken.iter().filter(|held| test(held)).count()
    };
    assert_eq!(exists(&|held| held.exchange == longest), 1);
    assert_eq!(exists(&|held| held.routing_key == "r".repeat(255)), 1);
    assert_eq!(exists(&|held| held.properties.message_id == Some("i".repeat(255))), 1);
    assert_eq!(exists(&|held| held.properties.kind == Some("t".repeat(255))), 1);
    assert_eq!(exists(&|held| held.properties.content_type == Some("c".repeat(255))), 1);
    let header = |held: &walrelay_harness::rabbit::Delivery| {
        held.properties.headers.iter().any(|(name, _)| *name == "h".repeat(255))
    };
    assert_eq!(exists(&header), 1);
    // WHEN they are one byte longer THEN each is refused, for good, and the sink goes on
    for (what, event) in named(256) {
        let Err(PublishError::Failed(failure)) = relay.offer(&event) else {
            panic!("{what} passes")
        };
        assert_eq!(failure.disposition, Disposition::Terminal);
        assert_eq!(failure.class, "rabbitmq.name-too-long");
        assert!(failure.reason.contains(what), "{what}: {}", failure.reason);
        assert!(failure.reason.contains("256"), "{what}: {}", failure.reason);
    }
    relay.publish(&event("names", "k", "after"));
    relay.settle();
    assert!(relay.reachability.is_empty(), "{:?}", relay.reachability);
}

#[test]
fn headers_that_fill_a_frame_pass_and_larger_ones_are_refused_before_they_cost_the_connection() {
    let (mut relay, mut rabbit) = open();
    arrange(&mut rabbit, "frames", "#", &[]);
    let with = |bytes: usize| {
        let headers = vec![("long".to_owned(), vec![b'h'; bytes])];
        // The longest names take from the same frame.
        let (id, kind) = ("i".repeat(255), Some("t".repeat(255)));
        let content_type = Some("c".repeat(255));
        Event { headers, id, event_type: kind, content_type, ..event("frames", "k", "x") }
    };
    // GIVEN the largest headers that the sink takes THEN the broker takes them as well
    let fits = (31_000..40_000).rev().find(|bytes| match relay.offer(&with(*bytes)) {
        Ok(_) => true,
        Err(PublishError::Failed(failure)) => {
            assert_eq!(failure.disposition, Disposition::Terminal);
            assert_eq!(failure.class, "rabbitmq.headers-too-large");
            false
        }
        Err(PublishError::QueueFull) => panic!("there is room"),
    });
    assert!(fits.is_some_and(|bytes| bytes > 31_000), "{fits:?}");
    relay.publish(&event("frames", "k", "small"));
    relay.settle();
    assert!(relay.reachability.is_empty(), "it cost the connection: {:?}", relay.failures);
    assert_eq!(rabbit.message_count("frames").unwrap(), 2);
}
