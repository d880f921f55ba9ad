//! Without an endpoint there are no traces: no thread, no header.

use walrelay_harness::BrokerKind;

use super::fixture::{TraceFixture, threads};
use crate::support::{LIMIT, metric};

#[test]
fn nothing_is_traced_unless_it_is_configured() {
    let case = TraceFixture::on(BrokerKind::Kafka, "trace_off");
    let mut relay = case.site.relay();
    let id = case.insert("k", None);
    case.site.wait_confirmed(&mut relay, LIMIT);
    let threads = threads(relay.pid());
    assert!(!threads.is_empty() && !threads.contains(&"span-exporter".to_owned()), "{threads:?}");
    assert_eq!(case.traceparents()[&id], None);
    assert_eq!(metric(&relay, "outbox_spans_exported_total"), Some(0.0));
    assert!(case.collector.received().requests.is_empty());
}
