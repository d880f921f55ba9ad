//! Dead letters through a real RabbitMQ: as the event was, in its place, whatever AMQP can carry.

use walrelay::dead_letter::record::LogEntry;
use walrelay::dead_letter::writer::{self, DeadLetterAddress, DeadLetterWriter};
use walrelay::sink::log::ReadFrom;
use walrelay::sink::{Disposition, PublishError};
use walrelay_harness::rabbit::Rabbit;

use crate::sinks::reading::whole;
use crate::sinks::real::{self, arrange, event};
use crate::sinks::test_relay::{Event, TestRelay, dead_letter_cause, dead_letter_writer};

fn writer(name: &str) -> DeadLetterWriter {
    dead_letter_writer(&format!("{name}.dlx"), &format!("{name}.dlq"))
}

fn make(rabbit: &mut Rabbit, writer: &DeadLetterWriter) {
    let DeadLetterAddress { exchange, topic } = &writer.settings.address;
    rabbit.declare_exchange(exchange, "direct").unwrap();
    rabbit.declare_stream(topic).unwrap();
    rabbit.bind(topic, exchange, topic).unwrap();
}

fn letters(writer: &DeadLetterWriter) -> Vec<LogEntry> {
    let log = real::broker().log(&writer.settings.address, ReadFrom::Beginning);
    whole(&mut *log.unwrap_or_else(|fault| panic!("{fault}")))
}

fn text(entry: &LogEntry, name: &str) -> String {
    let found = entry.headers.iter().find(|(found, _)| found == name);
    let (_, value) = found.unwrap_or_else(|| panic!("no header {name}: {entry:?}"));
    String::from_utf8(value.clone()).unwrap()
}

fn ids(entries: &[LogEntry]) -> Vec<String> {
    entries.iter().map(|entry| text(entry, writer::EVENT_ID)).collect()
}

#[test]
fn a_buried_event_is_in_the_stream_byte_for_byte_and_settles_under_its_number() {
    let (mut relay, mut rabbit) = real::open();
    let writer = writer("buried");
    make(&mut rabbit, &writer);
    arrange(&mut rabbit, "buried", "here", &[]);
    // GIVEN an event that cannot be routed, with every byte there is, and one behind it
    let all: Vec<u8> = (0..=255).collect();
    let theirs = [("bytes", &all[..]), ("empty", b""), ("x-own", b"1"), ("id", b"e1")];
    let theirs = theirs.map(|(name, value)| (name.to_owned(), value.to_vec()));
    let poison = Event {
        value: Some(all.clone()),
        event_type: Some("Päid".to_owned()),
        content_type: Some("application/json".to_owned()),
        headers: theirs.to_vec(),
        ..event("buried", "nowhere", "e1").keyed(&all)
    };
    let buried = relay.publish(&poison);
    let behind = relay.publish(&event("buried", "here", "e2").keyed(&all));
    relay.until("a failure", |relay| !relay.failures.is_empty());
    assert_eq!(relay.failures[0].1.key.as_deref(), Some(&all[..]));
    // WHEN it is buried THEN it is confirmed under its number, and the next of its key goes
    relay.replace_with_dead_letter(buried, &writer, &dead_letter_cause("rabbitmq.no-route"));
    relay.settle();
    assert_eq!(relay.confirmed, [buried, behind]);
    // THEN its letter has key, value and headers as they were
    let entries = letters(&writer);
    let [entry] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!((entry.key.as_deref(), entry.value.as_deref()), (Some(&all[..]), Some(&all[..])));
    assert_eq!(entry.event_type.as_deref(), Some("Päid"));
    assert_eq!(entry.content_type.as_deref(), Some("application/json"));
    assert!(entry.written_unix_us > 1_700_000_002_000_000, "the time of its publish");
    for header in theirs {
        assert!(entry.headers.contains(&header), "{header:?}: {entry:?}");
    }
    let ours = [
        (writer::EVENT_ID, "e1"),
        (writer::ORIGINAL_TOPIC, "nowhere"),
        (writer::ORIGINAL_EXCHANGE, "buried"),
        (writer::ERROR_CLASS, "rabbitmq.no-route"),
        (writer::ATTEMPTS, "5"),
        (writer::LSN, "16/B374D848"),
        (writer::ORDINAL, "0"),
        (writer::RELAY, "walrelay@test"),
    ];
    for (name, value) in ours {
        assert_eq!(text(entry, name), value);
    }
    assert_eq!(entry.headers.len(), 4 + ours.len() + 4, "{entry:?}");
    assert!(relay.reachability.is_empty(), "{:?}", relay.reachability);
}

#[test]
fn a_letter_that_has_nowhere_to_go_fails_again_and_again_and_its_key_alone_waits() {
    let (mut relay, mut rabbit) = real::open();
    let writer = writer("nowhere");
    arrange(&mut rabbit, "nowhere", "here", &[]);
    let poison = relay.publish(&event("nowhere", "gone", "a0").keyed("a"));
    let behind = relay.publish(&event("nowhere", "here", "a1").keyed("a"));
    relay.until("a failure", |relay| relay.failures.len() == 1);
    // GIVEN no exchange WHEN it is buried THEN that fails, under its number
    relay.replace_with_dead_letter(poison, &writer, &dead_letter_cause("rabbitmq.no-route"));
    relay.until("another failure", |relay| relay.failures.len() == 2);
    let (sequence, failure) = relay.failures[1].clone();
    assert_eq!((sequence, failure.class.as_str()), (poison, "rabbitmq.not-found"));
    assert_eq!(failure.disposition, Disposition::Transient);
    // GIVEN no binding WHEN it is tried again THEN it comes back; others flow
    let DeadLetterAddress { exchange, topic } = &writer.settings.address;
    rabbit.declare_exchange(exchange, "direct").unwrap();
    rabbit.declare_stream(topic).unwrap();
    relay.retry(poison);
    relay.publish(&event("nowhere", "here", "b0").keyed("b"));
    relay.until("one more failure", |relay| relay.failures.len() == 3);
    relay.until("the other key", |relay| relay.confirmed.len() == 1);
    assert_eq!(relay.failures[2].1.class, "rabbitmq.no-route");
    assert!(letters(&writer).is_empty());
    // WHEN it is bound THEN letter and key follow
    rabbit.bind(topic, exchange, topic).unwrap();
    relay.retry(poison);
    relay.settle();
    assert_eq!(relay.confirmed[1..], [poison, behind]);
    assert_eq!(ids(&letters(&writer)), ["a0"]);
}

/// As the relay does with what never reached the sink.
fn publish_dead_letter(relay: &mut TestRelay, writer: &DeadLetterWriter, event: &Event) {
    let letter = event.with_outbound(|event| {
        writer.compose(event, &dead_letter_cause("rabbitmq.name-too-long"), |letter| Event {
            exchange: letter.exchange.to_owned(),
            topic: letter.topic.to_owned(),
            key: letter.key.map(<[u8]>::to_vec),
            value: letter.value.map(<[u8]>::to_vec),
            id: letter.id.to_owned(),
            event_type: letter.event_type.map(str::to_owned),
            content_type: letter.content_type.map(str::to_owned),
            headers: letter.headers.iter().map(|(n, v)| ((*n).to_owned(), v.to_vec())).collect(),
            is_letter: true,
        })
    });
    relay.publish(&letter);
}

#[test]
fn what_amqp_cannot_carry_is_carried_as_a_letter() {
    let (mut relay, mut rabbit) = real::open();
    let writer = writer("uncarried");
    make(&mut rabbit, &writer);
    let long = "ü".repeat(400);
    let large = vec![("large".to_owned(), vec![b'h'; 40_000]), ("kept".to_owned(), b"v".to_vec())];
    let plain = || event("uncarried", "here", "plain").keyed("a");
    let events = [
        Event { id: long.clone(), ..plain() },
        Event { event_type: Some(long.clone()), ..plain() },
        Event { topic: long.clone(), ..plain() },
        Event { headers: large, ..plain() },
    ];
    for event in &events {
        let Err(PublishError::Failed(failure)) = relay.offer(event) else {
            panic!("{event:?} passes")
        };
        assert_eq!(failure.key.as_deref(), Some(&b"a"[..]));
        publish_dead_letter(&mut relay, &writer, event);
    }
    relay.settle();
    assert_eq!((relay.failures.len(), relay.reachability.len()), (0, 0));
    let entries = letters(&writer);
    assert_eq!(ids(&entries), [long.as_str(), "plain", "plain", "plain"]);
    assert_eq!(entries[1].event_type.as_deref(), Some(long.as_str()));
    assert_eq!(text(&entries[2], writer::ORIGINAL_TOPIC), long);
    assert_eq!(text(&entries[3], "dlq-headers-dropped"), "large");
    assert_eq!(text(&entries[3], "kept"), "v");
}

#[test]
fn a_header_that_the_broker_refuses_does_not_make_the_letter_impossible() {
    let (mut relay, mut rabbit) = real::open();
    let writer = writer("refused");
    make(&mut rabbit, &writer);
    arrange(&mut rabbit, "refused", "here", &[]);
    // GIVEN a header that the broker takes for routing, and closes over
    let headers = vec![("CC".to_owned(), b"elsewhere".to_vec())];
    let poison = relay.publish(&Event { headers, ..event("refused", "here", "a0").keyed("a") });
    relay.publish(&event("refused", "here", "b0").keyed("b"));
    relay.until("a failure", |relay| relay.failures.len() == 1);
    let (sequence, failure) = relay.failures[0].clone();
    assert_eq!((sequence, failure.class.as_str()), (poison, "rabbitmq.precondition-failed"));
    assert!(failure.known && failure.disposition == Disposition::Terminal);
    // WHEN it is buried THEN the letter is taken, and says what it is without
    relay.replace_with_dead_letter(
        poison,
        &writer,
        &dead_letter_cause("rabbitmq.precondition-failed"),
    );
    relay.settle();
    let entries = letters(&writer);
    assert_eq!(ids(&entries), ["a0"]);
    assert_eq!(text(&entries[0], "dlq-headers-dropped"), "CC");
    assert_eq!(relay.confirmed.len(), 2);
}
