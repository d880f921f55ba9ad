use std::rc::Rc;

use super::*;
use crate::sink::rabbitmq::answer::Answer;
use crate::sink::rabbitmq::connection_loss::{AmqpAddress, ConnectionLoss};
use crate::sink::rabbitmq::exchanges::Existence;
use crate::sink::rabbitmq::port::AmqpEvent;
use crate::sink::rabbitmq::testing::{NotedPort, connected};

fn sink(port: NotedPort) -> RabbitSink<NotedPort> {
    RabbitSink::new(Publisher::new(AmqpAddress::default(), 1), port, 1)
}

#[test]
fn the_sink_says_what_its_publisher_knows() {
    let (mut sink, began) = (sink(NotedPort::default()), Instant::now());
    let at = |seconds| began + Duration::from_secs(seconds);
    let poll = |sink: &mut RabbitSink<NotedPort>, seconds| {
        let mut reports = Vec::new();
        sink.poll(at(seconds), Duration::ZERO, &mut reports);
        reports
    };
    let publish = |sink: &mut RabbitSink<NotedPort>, sequence: Sequence| {
        let id = &sequence.to_string();
        let key = Some(&b"a"[..]);
        sink.publish(
            sequence,
            &Outbound { exchange: "e", topic: "k", key, id, ..Outbound::default() },
        )
    };
    poll(&mut sink, 0);
    assert_eq!(sink.broker(), 0);
    sink.port().events.push_back(connected(&[1], 1));
    publish(&mut sink, 1).unwrap();
    publish(&mut sink, 5).unwrap();
    poll(&mut sink, 0);
    assert_eq!(sink.broker(), 9);
    sink.port().events.push_back(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
    poll(&mut sink, 1);
    sink.port().events.push_back(AmqpEvent::Written(1));
    for seconds in 2..5 {
        poll(&mut sink, seconds);
    }
    // THEN the first of the key is sent, and where it went is known after a while
    assert_eq!(sink.port().sent, [(1, "1".to_owned())]);
    assert_eq!(sink.destination(1).as_deref(), Some("routing key k of exchange e"));
    assert_eq!(sink.destination(5), None);
    // WHEN the broker is blocked THEN nothing is taken
    sink.port().events.push_back(AmqpEvent::Blocked("low on disk".to_owned()));
    assert!(matches!(&poll(&mut sink, 5)[..], [SinkReport::Unreachable(_)]));
    assert_eq!(publish(&mut sink, 2), Err(PublishError::QueueFull));
    // WHEN it is withdrawn THEN what is confirmed by now is known, and nothing is sent any more
    let confirm = (1, Answer::Confirm { tag: 1, multiple: false, acked: true });
    sink.port().events.extend([AmqpEvent::Answers(vec![confirm]), AmqpEvent::Unblocked]);
    let mut known = Vec::new();
    sink.withdraw(at(5), &mut known);
    assert_eq!(known, [SinkReport::Confirmed(1)]);
    assert_eq!(poll(&mut sink, 6), [SinkReport::Reachable]);
    assert_eq!((sink.port().until, sink.port().sent.len()), (Some(at(5)), 1));
}

#[test]
fn a_poll_waits_until_there_is_a_report_or_something_to_do() {
    let now = Instant::now();
    let refused = AmqpEvent::ConnectFailed(ConnectionLoss::of("refused"));
    let awaited = [refused].into();
    let mut sink = sink(NotedPort { now: Some(now), awaited, ..NotedPort::default() });
    // WHEN a connection is awaited THEN the whole patience is spent at once
    let mut reports = Vec::new();
    sink.poll(now, Duration::from_secs(1), &mut reports);
    assert_eq!(sink.port().waited, [Duration::from_secs(1)]);
    assert!(matches!(&reports[..], [SinkReport::Unreachable(_)]), "{reports:?}");
    // WHEN the next attempt is due sooner THEN the wait ends then, and the next poll makes it
    let later = now + Duration::from_secs(1);
    sink.port().waited.clear();
    sink.poll(later, Duration::from_secs(60), &mut Vec::new());
    let waited = sink.port().waited.clone();
    assert!(waited.len() == 1 && waited[0] < Duration::from_secs(5), "{waited:?}");
    assert_eq!(sink.port().connects.len(), 1);
    sink.poll(later + waited[0], Duration::ZERO, &mut Vec::new());
    assert_eq!(sink.port().connects.len(), 2);
    // WHEN there is no patience THEN it does not wait
    sink.port().waited.clear();
    sink.poll(later, Duration::ZERO, &mut Vec::new());
    assert_eq!(sink.port().waited, []);
}

#[test]
fn the_frame_of_a_connection_bounds_what_is_carried() {
    let (mut sink, now) = (sink(NotedPort::default()), Instant::now());
    let value = vec![b'h'; 20_000];
    let headers: &[(&str, &[u8])] = &[("large", &value)];
    let small = Outbound { id: "1", ..Outbound::default() };
    let large = Outbound { headers, ..small };
    assert!(sink.has_room_for(&large));
    sink.poll(now, Duration::ZERO, &mut Vec::new());
    sink.port().events.push_back(connected(&[1], 1));
    sink.poll(now, Duration::ZERO, &mut Vec::new());
    assert!(sink.has_room_for(&small) && !sink.has_room_for(&large));
    // AND each poll writes
    assert_eq!(sink.port().flushes, 2);
}

#[test]
fn only_a_connection_with_nothing_unconfirmed_is_closed_in_good_order() {
    for has_event in [false, true] {
        let mut sink = sink(NotedPort::default());
        let is_closed = Rc::clone(&sink.port().is_closed);
        if has_event {
            sink.publish(1, &Outbound { id: "1", ..Outbound::default() }).unwrap();
        }
        drop(sink);
        assert_eq!(is_closed.get(), !has_event);
    }
}
