//! Spans of events that the broker has refused, and a collector that is away.

use std::collections::HashMap;
use std::time::Duration;

use walrelay_harness::BrokerKind;
use walrelay_harness::collector::{Collector, StatusCode};
use walrelay_harness::proc;
use walrelay_measure::numbers;

use super::fixture::{by_event, hex, of, traced};
use crate::dead_letters::fixture::DeadLetterFixture;
use crate::support::faults::read;
use crate::support::{Fixture, LIMIT, metric, stop};

/// The queue of spans, and one batch.
const SPANS_KEPT_MAX: f64 = 8192.0 + 512.0;

fn traced_case(kind: BrokerKind, name: &str, delivery: &str) -> (DeadLetterFixture, Collector) {
    let collector = Collector::start().unwrap();
    let mut case = DeadLetterFixture::on(kind, name, delivery, "");
    case.config.extra += &traced(&collector.url(), "");
    (case, collector)
}

#[test]
fn the_span_of_a_dead_letter_is_an_error_with_its_class() {
    let (case, collector) = traced_case(BrokerKind::Kafka, "trace_dead", "attempts_max = 3\n");
    // GIVEN an event that fails in all its attempts, and one that cannot be made of its row
    case.site.execute("alter table outbox alter aggregatetype drop not null");
    let mut relay = case.relay();
    let lost = case.insert_one(&case.lost(), "lost", 1);
    let broken = case.site.value(
        "insert into outbox values (gen_random_uuid(), null, 'k', 'created', '{}') returning id",
    );
    case.site.wait_confirmed(&mut relay, LIMIT);
    stop(&mut relay);
    let spans = by_event(&collector);
    let letters = case.list(&["--state", "all"]);
    let classes: HashMap<&str, &str> = letters
        .iter()
        .map(|it| (it["event_id"].as_str().unwrap(), it["error_class"].as_str().unwrap()))
        .collect();
    assert_eq!(spans.len(), 2);
    for (id, retries) in [(&lost, "2"), (&broken, "0")] {
        // THEN the span is an error of the class that the dead letter has
        let (span, class) = (&spans[id], classes[id.as_str()]);
        let status = span.status.as_ref().unwrap();
        assert_eq!((status.code(), status.message.as_str()), (StatusCode::Error, class));
        assert_eq!(of(span, "error.type"), class);
        assert_eq!(of(span, "outbox.outcome"), "dead_lettered");
        assert_eq!(of(span, "event.retry_count"), retries);
        // THEN the log line of the dead letter names the trace
        assert!(relay.said(&hex(&span.trace_id)), "{}", relay.tail(30));
    }
}

#[test]
fn a_collector_that_is_away_stops_no_event_and_grows_no_memory() {
    const EVENTS: u64 = 30_000;
    // GIVEN an endpoint where nobody listens
    let site = Fixture::on(BrokerKind::Kafka, "trace_away");
    let url = format!("http://127.0.0.1:{}", walrelay_harness::free_port().unwrap());
    let mut config = site.config();
    config.extra = traced(&url, "");
    let (mut relay, reader) = (site.relay_with(config), site.reader());
    let load = |first: u64| {
        site.execute(&format!(
            "insert into outbox select gen_random_uuid(), 'order', 'key-' || i % 100, 'created',
             jsonb_build_object('seq', i) from generate_series({first}, {first} + {EVENTS} / 2 - 1) i
             order by i"
        ));
    };
    load(0);
    site.wait_confirmed(&mut relay, LIMIT);
    let before = proc::memory(relay.pid()).unwrap().rss_bytes;
    // WHEN as many events come again
    load(EVENTS / 2);
    // THEN all of them flow, and the spans for which there is no room are dropped
    let (verdict, _) = site.judge(&mut relay, reader);
    verdict.assert_exact(0);
    let dropped = metric(&relay, "outbox_spans_dropped_total").unwrap();
    let events = EVENTS as f64;
    assert!((events - SPANS_KEPT_MAX..=events).contains(&dropped), "{dropped}");
    assert_eq!(metric(&relay, "outbox_spans_exported_total"), Some(0.0));
    let after = proc::memory(relay.pid()).unwrap().rss_bytes;
    println!("memory: {} before, {} after", numbers::bytes(before), numbers::bytes(after));
    assert!(after < before + (8 << 20), "{} to {}", numbers::bytes(before), numbers::bytes(after));
    // THEN the end does not wait for the collector
    relay.sigterm().unwrap();
    assert_eq!(relay.wait_exit(Duration::from_secs(5)).unwrap(), 0, "{}", relay.tail(20));
}

/// Bytes of a batch that a topic takes.
const SMALL_BATCH_BYTES: u64 = 2_000;

/// Relays events of sizes around [`SMALL_BATCH_BYTES`] to a topic that takes no more. Returns the
/// sizes of those that became dead letters, and of those that arrived with a trace context.
fn around_the_limit(mut case: DeadLetterFixture) -> (Vec<String>, Vec<String>) {
    let topic = case.site.name.clone();
    case.config.topic.clone_from(&topic);
    case.site.limit_route(&topic, SMALL_BATCH_BYTES);
    let mut relay = case.relay();
    case.site.execute(&format!(
        "insert into outbox select gen_random_uuid(), '{topic}', n, 'created',
         jsonb_build_object('seq', 1, 'size', repeat('x', n)) from generate_series(1400, 2000, 10) n"
    ));
    case.site.wait_confirmed(&mut relay, LIMIT);
    stop(&mut relay);
    let letters = case.list(&["--limit", "1000"]);
    let letters = letters.iter().map(|letter| letter["key"].as_str().unwrap().to_owned());
    let mut letters: Vec<String> = letters.collect();
    letters.sort();
    let traced = read(&[&topic]).into_iter().filter(|it| it.header("traceparent").is_some());
    let traced = traced.map(|record| String::from_utf8(record.key.unwrap()).unwrap());
    (letters, traced.collect())
}

#[test]
fn the_context_of_a_span_makes_no_event_too_large_for_its_topic() {
    // GIVEN the same events, traced and not
    let untraced = DeadLetterFixture::on(BrokerKind::Kafka, "trace_edge_off", "", "");
    let (plain, _) = around_the_limit(untraced);
    let (case, _collector) = traced_case(BrokerKind::Kafka, "trace_edge_on", "");
    // WHEN they are relayed THEN the same ones are dead letters, and only small ones carry a context
    let (letters, carrying) = around_the_limit(case);
    assert!((3..58).contains(&plain.len()), "{plain:?}");
    assert_eq!(letters, plain);
    assert!(carrying.contains(&"1400".to_owned()), "{carrying:?}");
    assert!(carrying.len() < 61 - letters.len(), "{carrying:?}");
}
