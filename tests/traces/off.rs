//! Without an endpoint there are no traces: no thread, no header.

use walrelay_harness::BrokerKind;

use super::fixture::{TraceFixture, threads};
use crate::support::faults::CliFixture;
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

#[test]
fn an_endpoint_that_is_none_is_told_before_the_first_event() {
    let mut scene = CliFixture::waiting("trace_config");
    scene.extra =
        "[tracing]\nendpoint = \"http://u:c4n4ry@collector:4318\"\nheaders = \"c4n4ry\"\n\
                   sample_ratio = 1.5\n"
            .into();
    let words = ["tracing.endpoint", "tracing.headers", "tracing.sample_ratio", "1.5"];
    let ended = scene.assert_refused(2, "config.bad-value", &words);
    assert!(!ended.err.contains("c4n4ry"), "{ended}");
}

#[test]
fn a_file_of_authorities_that_is_none_is_found_by_check_and_run() {
    let mut scene = CliFixture::waiting("trace_ca");
    scene.extra =
        "[tracing]\nendpoint = \"https://localhost:4318\"\nca_file = \"/nowhere/ca.pem\"\n".into();
    scene.assert_refused(1, "tracing.tls-settings", &["/nowhere/ca.pem"]);
}
