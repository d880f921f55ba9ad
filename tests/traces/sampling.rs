//! A part of the events is traced, and always the same part.

use std::collections::BTreeSet;

use walrelay_harness::BrokerKind;

use super::fixture::{TraceFixture, context};

#[test]
fn about_a_tenth_is_traced_and_a_trace_is_traced_or_not_as_a_whole() {
    let case = TraceFixture::on(BrokerKind::Kafka, "trace_ratio");
    let relay = case.site.relay_with(case.config("sample_ratio = 0.1"));
    // GIVEN many rows without a context, and two traces with ten rows each: the lower half of a
    // trace id decides
    case.site.execute(
        "insert into outbox select gen_random_uuid(), 'order', 'k' || i % 10, 'created', '{}', now(),
         null from generate_series(1, 2000) i",
    );
    let trace = |half: &str| format!("00-0000000000000001{half}-00f067aa0ba902b7-01");
    let (in_it, out_of_it) = (trace("0000000000000001"), trace("ffffffffffffffff"));
    let insert =
        |row: &str| -> BTreeSet<String> { (0..10).map(|_| case.insert("k", Some(row))).collect() };
    let (traced, untraced) = (insert(&in_it), insert(&out_of_it));
    let spans = case.spans(relay);
    // THEN a tenth of the rows has a span, and the record of no other has a context of ours
    let of_rows = spans.len() - traced.len();
    assert!((140..=260).contains(&of_rows), "{of_rows} of 2000");
    let sent = case.traceparents();
    let with_context = sent.iter().filter_map(|(id, text)| Some((id, text.as_ref()?)));
    let ours: Vec<_> =
        with_context.filter(|(_, text)| ![&in_it, &out_of_it].contains(text)).collect();
    assert_eq!(ours.len(), of_rows);
    assert!(ours.iter().all(|(id, text)| **text == context(&spans[*id])));
    // THEN of a trace all events have one, or none
    assert!(traced.iter().all(|id| spans.contains_key(id)));
    assert!(!untraced.iter().any(|id| spans.contains_key(id)));
}
