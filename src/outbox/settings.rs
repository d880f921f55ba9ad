//! What the outbox stage obeys: `[[source.outbox]]`, `[source.messages]` and `[route]`, typed.

use super::template::Template;
use crate::base::event::CloudEventsBinding;

/// One outbox table.
#[derive(Clone, Debug)]
pub struct OutboxTable {
    /// Schema, default `public`.
    pub schema: String,
    /// Table.
    pub table: String,
    /// Which column plays which part.
    pub columns: Columns,
    /// How its events are routed: its own `route` keys over those of `[route]`.
    pub route: Route,
}

impl OutboxTable {
    /// Columns without which no event can be made, each once: id, payload and what the route names.
    pub(crate) fn needed_columns(&self) -> Vec<&str> {
        let Route { topic, exchange, key, headers, partition, .. } = &self.route;
        let templates = [topic, key].into_iter().chain(headers.iter().map(|(_, header)| header));
        let routed = templates.chain(exchange).flat_map(Template::columns);
        let own = [self.columns.id.as_str(), self.columns.payload.as_str()].into_iter();
        let mut needed: Vec<&str> = Vec::new();
        for column in own.chain(routed).chain(partition.as_deref()) {
            if !needed.contains(&column) {
                needed.push(column);
            }
        }
        needed
    }
}

/// Column names by part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Event id, default `id`. Required in the table.
    pub id: String,
    /// Ordering key, default `aggregateid`; used by the default `route.key`.
    pub key: String,
    /// Event type, default `type`; used by the default `event_type` header.
    pub event_type: String,
    /// Payload, default `payload`. Required in the table.
    pub payload: String,
    /// W3C trace context, default `traceparent`; may be absent from the table.
    pub traceparent: String,
    /// JSON object of extra headers, default `headers`; may be absent from the table.
    pub headers: String,
}

/// Transactional `pg_logical_emit_message(true, prefix, content)` as an outbox: the content is a
/// JSON object whose fields play the columns.
#[derive(Clone, Debug)]
pub struct Messages {
    /// Only messages of exactly this prefix.
    pub prefix: String,
    /// Field names by part.
    pub columns: Columns,
    /// How they are routed.
    pub route: Route,
}

/// The `[route]` section.
#[derive(Clone, Debug)]
pub struct Route {
    /// Kafka topic / RabbitMQ routing key. Default `outbox.event.${aggregatetype}`.
    pub topic: Template,
    /// RabbitMQ exchange (`sink.rabbitmq.exchange`); none for other sinks. Where there is one, the
    /// topic is a routing key and need not be a Kafka topic name.
    pub exchange: Option<Template>,
    /// How the sink spells the attributes of CloudEvents.
    pub binding: CloudEventsBinding,
    /// Ordering key, Kafka record key. Default `${<columns.key>}`. A template that is exactly one
    /// column and finds NULL gives a null key.
    pub key: Template,
    /// Further headers: name and template. NULL leaves the header out.
    pub headers: Vec<(String, Template)>,
    /// Which standard headers are added besides `id`.
    pub preset: Preset,
    /// Payload format, default `raw`.
    pub format: String,
    /// Column that holds an explicit Kafka partition (int), if any (`route.partition`).
    pub partition: Option<String>,
}

/// Which headers accompany an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// `id`, `event_type`, `traceparent` (when the row has one), `commit_ts`, `lsn`.
    Walrelay,
    /// Exactly the record of Debezium's Outbox Event Router: header `id` only.
    Debezium,
}
