use std::sync::{Arc, Mutex};

use super::*;
use crate::base::lsn::Lsn;

const ROW: &[u8] = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

type Ended = Arc<Mutex<Vec<FinishedSpan>>>;

fn spans(ratio: f64) -> (EventSpans, Ended) {
    process(ratio, 1)
}

/// Another process has another seed.
fn process(ratio: f64, seed: u64) -> (EventSpans, Ended) {
    let ended = Ended::default();
    let to = Arc::clone(&ended);
    (EventSpans::new(ratio, Box::new(move |span| to.lock().unwrap().push(span)), seed), ended)
}

fn event<'a>(id: &'a str, headers: &'a [(&'a str, &'a [u8])]) -> Outbound<'a> {
    Outbound {
        topic: "orders",
        key: Some(b"o-1"),
        value: Some(b"{}"),
        id,
        headers,
        commit_unix_us: 1_000,
        ..Outbound::default()
    }
}

fn begin(spans: &mut EventSpans, event: &Outbound<'_>) -> Option<SpanStart> {
    let position = Position { commit_lsn: Lsn::from_wire(7), ordinal: 0 };
    spans.begin(None, position, event, 2_000)
}

/// The span of an event that is handed over for the first time.
fn span(spans: &mut EventSpans, event: &Outbound<'_>) -> PublishSpan {
    *begin(spans, event).and_then(|start| start.span).expect("it is sampled")
}

fn only(ended: &Ended) -> FinishedSpan {
    let [span] = &ended.lock().unwrap()[..] else { panic!("not one span") };
    span.clone()
}

/// The headers of the record that carries the context of this span.
fn sent(start: &SpanStart, event: &Outbound<'_>) -> Vec<(String, Vec<u8>)> {
    let mut headers = HeaderSlots::new();
    let sent = start.add_to(event, &mut headers);
    sent.headers.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect()
}

#[test]
fn nothing_is_traced_while_traces_are_off() {
    let mut spans = EventSpans::default();
    assert!(!spans.is_on());
    assert!(begin(&mut spans, &event("a", &[])).is_none());
}

#[test]
fn a_span_lasts_from_the_hand_over_until_the_event_is_settled() {
    let (mut spans, ended) = spans(1.0);
    let begun = span(&mut spans, &event("a", &[("id", b"a")]));
    let trace_id = begun.trace_id();
    spans.end(begun, 2, Some("kafka.no"), 9_000);
    let FinishedSpan { span, end_unix_us, retries, dead_letter } = only(&ended);
    assert_eq!((span.start_unix_us, end_unix_us, retries), (2_000, 9_000, 2));
    assert_eq!(dead_letter.as_deref(), Some("kafka.no"));
    assert_eq!((span.trace_id(), span.link), (trace_id, None));
    assert_eq!((&*span.topic, span.key.as_deref(), &*span.event_id), ("orders", Some("o-1"), "a"));
}

#[test]
fn a_clock_that_was_set_back_makes_no_negative_span() {
    let (mut spans, ended) = spans(1.0);
    let begun = span(&mut spans, &event("a", &[]));
    spans.end(begun, 0, None, 1);
    assert_eq!(only(&ended).end_unix_us, 2_000);
}

#[test]
fn a_record_without_a_context_gets_that_of_its_span() {
    let (mut spans, ended) = spans(1.0);
    let event = event("a", &[("id", b"a"), ("lsn", b"0/7")]);
    let mut start = begin(&mut spans, &event).unwrap();
    let headers = sent(&start, &event);
    spans.end(*start.span.take().unwrap(), 0, None, 3_000);
    let context = only(&ended).span.context;
    assert!(context.is_sampled());
    let own = ("traceparent".to_owned(), context.header().to_vec());
    assert_eq!(headers[2..], [own]);
    assert_eq!(headers[0], ("id".to_owned(), b"a".to_vec()));
}

#[test]
fn a_record_with_any_context_stays_as_it_is() {
    for (row, is_linked) in [(ROW, true), (b"tp", false), (b"", false)] {
        let (mut spans, ended) = spans(1.0);
        let headers = [("traceparent", row)];
        let event = event("a", &headers);
        let mut start = begin(&mut spans, &event).unwrap();
        assert_eq!(sent(&start, &event), [("traceparent".to_owned(), row.to_vec())]);
        spans.end(*start.span.take().unwrap(), 0, None, 3_000);
        // THEN the span is in a trace of its own, and linked to a valid one of the row
        let span = only(&ended).span;
        assert_eq!(span.link, TraceContext::parse(row));
        assert_eq!(span.link.is_some(), is_linked);
        assert_ne!(Some(span.context.trace_id), span.link.map(|link| link.trace_id));
    }
}

#[test]
fn a_record_with_as_many_headers_as_may_be_stays_as_it_is() {
    let (mut spans, _) = spans(1.0);
    let headers = [("h", &b"v"[..]); crate::base::event::HEADERS_MAX];
    let event = event("a", &headers);
    let start = begin(&mut spans, &event).unwrap();
    assert_eq!(sent(&start, &event).len(), headers.len());
}

#[test]
fn a_span_goes_on_when_its_event_is_handed_to_a_new_sink() {
    let (mut spans, ended) = spans(1.0);
    let event = event("a", &[]);
    let mut first = begin(&mut spans, &event).unwrap();
    let begun = first.span.take().unwrap();
    let again = spans.begin(Some(&begun), Position::default(), &event, 5_000).unwrap();
    assert!(again.span.is_none());
    assert_eq!(first.traceparent, again.traceparent);
    spans.end(*begun, 1, None, 6_000);
    assert_eq!(only(&ended).span.start_unix_us, 2_000);
}

#[test]
fn one_event_has_one_trace_id_in_every_process_and_other_span_ids() {
    let trace = |(seed, id): (u64, &str)| {
        let (mut spans, _) = process(1.0, seed);
        span(&mut spans, &event(id, &[])).context
    };
    let [first, second, other] = [(1, "a"), (2, "a"), (1, "b")].map(trace);
    assert_eq!(first.trace_id, second.trace_id);
    assert_ne!(first.span_id, second.span_id);
    assert_ne!(first.trace_id, other.trace_id);
}

#[test]
fn the_trace_id_is_the_same_in_every_version() {
    let (mut spans, _) = spans(1.0);
    let begun = span(&mut spans, &event("a", &[]));
    assert_eq!(begun.trace_id(), "66729a6b9026d4baaed21a13d2a316ba");
}

#[test]
fn a_tenth_is_sampled_and_always_the_same() {
    let sampled = || -> Vec<bool> {
        let (mut spans, _) = spans(0.1);
        let ids = (0..10_000_u64).map(|n| n.to_string());
        ids.map(|id| begin(&mut spans, &event(&id, &[])).is_some()).collect()
    };
    let first = sampled();
    let count = first.iter().filter(|sampled| **sampled).count();
    assert!((880..=1120).contains(&count), "{count} of 10,000");
    assert_eq!(first, sampled());
}

#[test]
fn the_trace_of_a_recorded_row_decides() {
    // The lower half of a trace id decides: this one is in the smallest hundredth.
    let low = b"00-ffffffffffffffff0000000000000001-00f067aa0ba902b7-01";
    let high = b"00-0000000000000000ffffffffffffffff-00f067aa0ba902b7-01";
    let sampled = |row: &[u8]| {
        let (mut spans, _) = spans(0.5);
        let headers = [("traceparent", row)];
        (0..100).filter(|n| begin(&mut spans, &event(&n.to_string(), &headers)).is_some()).count()
    };
    assert_eq!((sampled(low), sampled(high)), (100, 0));
    // One that the application has not recorded does not.
    let unrecorded = [&low[..53], b"00"].concat();
    assert!((20..=80).contains(&sampled(&unrecorded)));
}

#[test]
fn long_texts_of_a_row_are_cut() {
    let (mut spans, _) = spans(1.0);
    let long = "x".repeat(100_000);
    let event = Outbound { key: Some(long.as_bytes()), ..event(&long, &[]) };
    let span = span(&mut spans, &event);
    assert!(span.event_id.len() < 300 && span.key.unwrap().len() < 300);
}
