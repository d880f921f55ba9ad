use walrelay_harness::collector::{self, Span, SpanKind, StatusCode, attribute};

use super::*;
use walrelay_base::lsn::Lsn;

const KAFKA: MessagingNames = MessagingNames {
    key: Some("messaging.kafka.message.key"),
    tombstone: Some("messaging.kafka.message.tombstone"),
    ..MessagingNames::NONE
};
const RABBITMQ: MessagingNames = MessagingNames {
    routing_key: Some("messaging.rabbitmq.destination.routing_key"),
    ..MessagingNames::NONE
};

fn source(system: &'static str) -> SpanSource {
    SpanSource {
        service_name: "shop-relay".into(),
        instance: "walrelay@host".into(),
        system,
        names: if system == "kafka" { KAFKA } else { RABBITMQ },
        has_commit_lsn: system == "kafka",
    }
}

fn finished() -> FinishedSpan {
    let context = TraceContext::sampled([1; 16], [2; 8]);
    FinishedSpan {
        span: PublishSpan {
            context,
            link: None,
            start_unix_us: 1_700_000_000_000_001,
            exchange: "".into(),
            topic: "orders".into(),
            key: Some("o-1".into()),
            event_id: "e-1".into(),
            body_bytes: Some(300),
            partition: Some(7),
            commit_lsn: Lsn::from_wire(0x16_B374_D848),
            commit_unix_us: 1_700_000_000_000_000,
        },
        end_unix_us: 1_700_000_000_000_900,
        retries: 3,
        dead_letter: None,
    }
}

/// The spans of a request, decoded with the published types.
#[track_caller]
fn decoded(source: &SpanSource, spans: &[FinishedSpan]) -> Vec<Span> {
    let resources = collector::decode(&source.encode(spans)).unwrap();
    let [resource] = &resources[..] else { panic!("{resources:?}") };
    let [scope] = &resource.scope_spans[..] else { panic!("{resource:?}") };
    scope.spans.clone()
}

fn attributes(span: &Span) -> Vec<(String, String)> {
    let names = span.attributes.iter().map(|it| it.key.clone());
    names.map(|name| (name.clone(), attribute(&span.attributes, &name).unwrap())).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_request_says_who_sends_it() {
    let resources = collector::decode(&source("kafka").encode(&[finished()])).unwrap();
    let resource = resources[0].resource.as_ref().unwrap();
    let of = |name| attribute(&resource.attributes, name).unwrap();
    assert_eq!(of("service.name"), "shop-relay");
    assert_eq!(of("service.version"), env!("CARGO_PKG_VERSION"));
    assert_eq!(of("service.instance.id"), "walrelay@host");
    let scope = resources[0].scope_spans[0].scope.as_ref().unwrap();
    assert_eq!(
        (scope.name.as_str(), scope.version.as_str()),
        ("walrelay", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn a_published_event_of_kafka() {
    let spans = decoded(&source("kafka"), &[finished()]);
    let [span] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((span.trace_id.as_slice(), span.span_id.as_slice()), (&[1; 16][..], &[2; 8][..]));
    assert!(span.parent_span_id.is_empty() && span.links.is_empty() && span.status.is_none());
    assert_eq!((span.name.as_str(), span.kind()), ("outbox.publish", SpanKind::Producer));
    assert_eq!(span.start_time_unix_nano, 1_700_000_000_000_001_000);
    assert_eq!(span.end_time_unix_nano, 1_700_000_000_000_900_000);
    assert_eq!(span.flags, 0x101);
    let expected = [
        ("messaging.system", "kafka"),
        ("messaging.operation.type", "send"),
        ("messaging.operation.name", "publish"),
        ("messaging.message.id", "e-1"),
        ("messaging.destination.name", "orders"),
        ("messaging.kafka.message.key", "o-1"),
        ("messaging.destination.partition.id", "7"),
        ("outbox.outcome", "published"),
        ("outbox.commit_timestamp", "2023-11-14T22:13:20.000000Z"),
        ("outbox.commit_lsn", "16/B374D848"),
        ("messaging.message.body.size", "300"),
        ("event.retry_count", "3"),
    ];
    assert_eq!(attributes(span), pairs(&expected));
}

#[test]
fn a_dead_letter_of_rabbitmq() {
    let mut finished = finished();
    finished.dead_letter = Some("rabbitmq.no-route".into());
    finished.retries = 0;
    finished.span.exchange = "outbox.events".into();
    finished.span.partition = None;
    let row = TraceContext { trace_id: [3; 16], span_id: [4; 8], flags: 1 };
    finished.span.link = Some(row);
    let span = decoded(&source("rabbitmq"), &[finished]).remove(0);
    let [link] = &span.links[..] else { panic!("{:?}", span.links) };
    assert_eq!((link.trace_id.as_slice(), link.span_id.as_slice()), (&[3; 16][..], &[4; 8][..]));
    assert_eq!(link.flags, 0x301);
    let status = span.status.as_ref().unwrap();
    assert_eq!((status.code(), status.message.as_str()), (StatusCode::Error, "rabbitmq.no-route"));
    let expected = [
        ("messaging.system", "rabbitmq"),
        ("messaging.operation.type", "send"),
        ("messaging.operation.name", "publish"),
        ("messaging.message.id", "e-1"),
        ("messaging.destination.name", "outbox.events:orders"),
        ("messaging.rabbitmq.destination.routing_key", "orders"),
        ("outbox.outcome", "dead_lettered"),
        ("outbox.commit_timestamp", "2023-11-14T22:13:20.000000Z"),
        ("error.type", "rabbitmq.no-route"),
        ("messaging.message.body.size", "300"),
        ("event.retry_count", "0"),
    ];
    assert_eq!(attributes(&span), pairs(&expected));
}

#[test]
fn a_tombstone_has_no_size() {
    let mut finished = finished();
    finished.span.body_bytes = None;
    let span = decoded(&source("kafka"), &[finished]).remove(0);
    let of = |name| attribute(&span.attributes, name);
    assert_eq!(of("messaging.kafka.message.tombstone").as_deref(), Some("true"));
    assert_eq!(of("messaging.message.body.size"), None);
}

#[test]
fn numbers_and_lengths_of_every_width_are_read_back() {
    let mut spans: Vec<FinishedSpan> = (0..300).map(|_| finished()).collect();
    for (n, finished) in (0_u32..).zip(&mut spans) {
        finished.retries = u32::MAX >> (n % 32);
        finished.span.event_id = "x".repeat(n as usize).into();
        finished.span.body_bytes = Some(usize::MAX >> (n % 64) >> 1);
    }
    let read = decoded(&source("kafka"), &spans);
    assert_eq!(read.len(), spans.len());
    for (read, finished) in read.iter().zip(&spans) {
        let of = |name| attribute(&read.attributes, name).unwrap();
        assert_eq!(of("event.retry_count"), finished.retries.to_string());
        assert_eq!(of("messaging.message.id"), &*finished.span.event_id);
        assert_eq!(
            of("messaging.message.body.size"),
            finished.span.body_bytes.unwrap().to_string()
        );
    }
}

#[test]
fn what_a_collector_has_rejected_is_read_and_nothing_else() {
    // partial_success { rejected_spans: 300, error_message: "no" }, behind a field that is unknown
    let partial = [0x3d, 1, 2, 3, 4, 0x0a, 7, 0x08, 0xac, 0x02, 0x12, 2, b'n', b'o'];
    assert_eq!(rejected_spans(&partial), 300);
    assert_eq!(rejected_spans(&[]), 0);
    assert_eq!(rejected_spans(b"<html>"), 0);
    // Cut anywhere, it says nothing or the same.
    assert!((0..partial.len()).all(|end| [0, 300].contains(&rejected_spans(&partial[..end]))));
    // A negative number.
    let negative = [&[0x0a, 11, 0x08][..], &[0xff; 9], &[1]].concat();
    assert_eq!(rejected_spans(&negative), 0);
}
