//! A fixture whose relay sends its spans to a collector of the test.

use std::collections::HashMap;

use walrelay_harness::BrokerKind;
use walrelay_harness::collector::{Collector, Span, attribute};
use walrelay_harness::rabbit::Rabbit;
use walrelay_harness::relay::{RelayConfig, RelayProcess};

use crate::support::faults::read;
use crate::support::{Fixture, LIMIT, shared_rabbitmq, stop};

/// The example of the W3C's specification.
pub(crate) const ROW: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

pub(crate) struct TraceFixture {
    pub(crate) site: Fixture,
    pub(crate) collector: Collector,
}

impl TraceFixture {
    /// On the shared services, with a table that has a column for the trace context.
    pub(crate) fn on(kind: BrokerKind, name: &str) -> TraceFixture {
        let site = Fixture::on(kind, name);
        site.execute("alter table outbox add traceparent text");
        TraceFixture { site, collector: Collector::start().unwrap() }
    }

    pub(crate) fn config(&self, more: &str) -> RelayConfig {
        let extra = traced(&self.collector.url(), more);
        RelayConfig { extra, ..self.site.config() }
    }

    /// Inserts one event with this trace context; returns its id.
    pub(crate) fn insert(&self, key: &str, traceparent: Option<&str>) -> String {
        let traceparent = traceparent.map_or("null".to_owned(), |text| format!("'{text}'"));
        self.site.value(&format!(
            "insert into outbox values (gen_random_uuid(), 'order', '{key}', 'created',
             '{{\"seq\": 1}}', default, {traceparent}) returning id"
        ))
    }

    /// Settles everything, stops the relay, and returns the spans by event: the last ones are sent
    /// at the end.
    #[track_caller]
    pub(crate) fn spans(&self, mut relay: RelayProcess) -> HashMap<String, Span> {
        self.site.wait_confirmed(&mut relay, LIMIT);
        stop(&mut relay);
        by_event(&self.collector)
    }

    /// The trace contexts that the broker holds, by event.
    pub(crate) fn traceparents(&self) -> HashMap<String, Option<String>> {
        let name = &self.site.name;
        if self.site.kind() == BrokerKind::Kafka {
            let records = read(&[name]);
            let of = |record: &crate::support::faults::TopicRecord, header: &str| {
                record.header(header).map(str::to_owned)
            };
            return records
                .iter()
                .map(|it| (of(it, "id").unwrap(), of(it, "traceparent")))
                .collect();
        }
        let mut rabbit = Rabbit::open(&shared_rabbitmq().amqp_url()).unwrap();
        let messages = rabbit.take(name).unwrap().into_iter().map(|message| {
            let header = message.properties.header("traceparent");
            let header = header.map(|text| String::from_utf8(text.to_vec()).unwrap());
            (message.properties.message_id.unwrap(), header)
        });
        messages.collect()
    }
}

/// The section `[tracing]`.
pub(crate) fn traced(url: &str, more: &str) -> String {
    format!("[tracing]\nendpoint = \"{url}\"\n{more}\n")
}

/// One span for each event.
#[track_caller]
pub(crate) fn by_event(collector: &Collector) -> HashMap<String, Span> {
    let spans = collector.spans();
    let count = spans.len();
    let spans: HashMap<String, Span> =
        spans.into_iter().map(|span| (of(&span, "messaging.message.id"), span)).collect();
    assert_eq!(spans.len(), count, "an event has two spans");
    spans
}

/// The value of an attribute that must be there.
#[track_caller]
pub(crate) fn of(span: &Span, name: &str) -> String {
    attribute(&span.attributes, name).unwrap_or_else(|| panic!("no {name}: {span:?}"))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The context of a span as a header.
pub(crate) fn context(span: &Span) -> String {
    format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id))
}

/// Names of the threads of a process.
pub(crate) fn threads(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    // A thread may have ended by now.
    let names = tasks.flat_map(|task| std::fs::read_to_string(task.path().join("comm")));
    names.map(|name| name.trim().to_owned()).collect()
}
