//! Tests of the span of a published event, and of the trace context that its record carries.

use walrelay_harness::BrokerKind;
use walrelay_harness::collector::{Span, SpanKind, attribute};

use super::fixture::{ROW, TraceFixture, context, hex, of, threads};
use crate::polling::rows::{poll, shipped};
use crate::support::on_both_brokers;

on_both_brokers!(a_span_tells_of_its_event_and_is_linked_to_that_of_its_row);

fn a_span_tells_of_its_event_and_is_linked_to_that_of_its_row(kind: BrokerKind) {
    let case = TraceFixture::on(kind, "trace_row");
    let more = "service_name = \"shop\"\nheaders = \"authorization=Bearer%20c4n4ry\"";
    let relay = case.site.relay_with(case.config(more));
    assert!(threads(relay.pid()).contains(&"span-exporter".to_owned()));
    // GIVEN a row with a trace context, one without, and one with something else there
    let linked = case.insert("k1", Some(ROW));
    let own = case.insert("k2", None);
    let broken = case.insert("k3", Some("tp"));
    let spans = case.spans(relay);
    assert_eq!(spans.len(), 3);

    // THEN a span is a root of its own, and linked to the context of the row, if that is one
    let span = &spans[&linked];
    assert_eq!((span.name.as_str(), span.kind()), ("outbox.publish", SpanKind::Producer));
    assert!(span.parent_span_id.is_empty() && span.status.is_none());
    let [link] = &span.links[..] else { panic!("{:?}", span.links) };
    assert_eq!(format!("00-{}-{}-01", hex(&link.trace_id), hex(&link.span_id)), ROW);
    assert_ne!(span.trace_id, link.trace_id);
    assert!(spans[&own].links.is_empty() && spans[&broken].links.is_empty());

    // THEN a record has the context of its row as it is there, or else that of its span
    let sent = case.traceparents();
    assert_eq!(sent[&linked].as_deref(), Some(ROW));
    assert_eq!(sent[&broken].as_deref(), Some("tp"));
    assert_eq!(sent[&own], Some(context(&spans[&own])));

    assert_span(&case, span, &linked);

    // THEN the collector knows who sent it, with the headers of the configuration
    let received = case.collector.received();
    let resource = received.resources[0].resource.as_ref().unwrap();
    assert_eq!(attribute(&resource.attributes, "service.name").as_deref(), Some("shop"));
    assert!(
        received.requests.iter().all(
            |it| it.path == "/v1/traces" && it.header("authorization") == Some("Bearer c4n4ry")
        )
    );
}

/// Asserts that the span names the destination, the time of the commit and the outcome.
#[track_caller]
fn assert_span(case: &TraceFixture, span: &Span, id: &str) {
    let name = &case.site.name;
    let row = |what: &str| case.site.value(&format!("select {what} from outbox where id = '{id}'"));
    let (system, destination) = match case.site.kind() {
        BrokerKind::Kafka => ("kafka", name.clone()),
        BrokerKind::RabbitMq => ("rabbitmq", format!("{name}:{name}")),
    };
    assert_eq!(
        (of(span, "messaging.system").as_str(), of(span, "messaging.destination.name")),
        (system, destination)
    );
    assert_eq!(of(span, "messaging.operation.type"), "send");
    assert_eq!(of(span, "messaging.message.body.size"), row("octet_length(payload::text)"));
    let (key, routing_key) =
        ("messaging.kafka.message.key", "messaging.rabbitmq.destination.routing_key");
    let found = [key, routing_key].map(|name| attribute(&span.attributes, name));
    assert_eq!(
        found,
        match case.site.kind() {
            BrokerKind::Kafka => [Some("k1".to_owned()), None],
            BrokerKind::RabbitMq => [None, Some(name.clone())],
        }
    );
    assert_eq!(
        (of(span, "outbox.outcome").as_str(), of(span, "event.retry_count").as_str()),
        ("published", "0")
    );
    let (commit, lsn) = (of(span, "outbox.commit_timestamp"), of(span, "outbox.commit_lsn"));
    assert_eq!(row(&format!("pg_xact_commit_timestamp(xmin) = timestamptz '{commit}'")), "t");
    assert_eq!(row(&format!("pg_lsn '{lsn}' <= pg_current_wal_lsn()")), "t");
    let seconds = |ns: u64| format!("to_timestamp({ns} / 1e9)");
    let (start, end) = (span.start_time_unix_nano, span.end_time_unix_nano);
    assert!(start <= end);
    // To a millisecond: it is computed with floating-point numbers.
    let began = format!("{} - timestamptz '{commit}' between '-1 ms' and '1 min'", seconds(start));
    assert_eq!(row(&began), "t");
}

#[test]
fn with_debeziums_preset_a_record_has_no_context_and_its_event_a_span() {
    let case = TraceFixture::on(BrokerKind::Kafka, "trace_debezium");
    let mut config = case.config("");
    config.env.push(("WALRELAY_ROUTE__PRESET".into(), "debezium".into()));
    let relay = case.site.relay_with(config);
    let id = case.insert("k", Some(ROW));
    let spans = case.spans(relay);
    assert!(spans[&id].links.is_empty());
    assert_eq!(case.traceparents()[&id], None);
}

#[test]
fn a_polled_row_has_a_span_without_a_position() {
    let collector = walrelay_harness::collector::Collector::start().unwrap();
    let mut scene = shipped("trace_polled");
    scene.extra = super::fixture::traced(&collector.url(), "");
    scene.sql(&format!(
        "INSERT INTO outbox (event_key, payload, traceparent) VALUES ('k', '{{}}', '{ROW}')"
    ));
    poll(&scene);
    let spans = collector.spans();
    let [span] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!(span.links.len(), 1);
    assert_eq!(attribute(&span.attributes, "outbox.commit_lsn"), None);
    let created = of(span, "outbox.commit_timestamp");
    assert_eq!(scene.sql(&format!("SELECT created_at = '{created}' FROM outbox")), "t");
}
