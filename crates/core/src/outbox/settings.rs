//! The sections `[[source.outbox]]`, `[source.messages]` and `[route]`.

use std::collections::BTreeMap;
use std::fmt;

use crate::base::event::CloudEventsBinding;
use crate::base::settings::kind::{FILLED, IDENTIFIER, TextRule};
use crate::base::settings::{
    Choice, SettingType, choice, flattened, map, section, section_over, settings, template, text,
    word,
};
use crate::base::template::Template;
use crate::outbox::libraries::library_names;

const TABLE: TextRule = TextRule {
    pattern: "^[^.\"]{1,63}(\\.[^.\"]{1,63})?$",
    wanted: "schema.table, without quotes; a name that contains a dot cannot be configured",
    holds: |text| match text.split_once('.') {
        Some((schema, table)) => {
            (IDENTIFIER.holds)(schema) && (IDENTIFIER.holds)(table) && !table.contains('.')
        }
        None => (IDENTIFIER.holds)(text),
    },
};

const CONDITION: TextRule =
    TextRule { pattern: "", wanted: "a condition, or an empty text", holds: |_| true };

/// The key that says whether the table is polled, and its value then.
const POLLED: (&[&str], &str) = (&["source", "mode"], "polling");
/// The default of `columns.key` where the table is polled, and of the topic.
pub const POLLED_KEY: &str = "event_key";
pub const POLLED_TOPIC: &str = "${event_key}";

settings! {
    /// `[[source.outbox]]`.
    pub struct OutboxSection {
        /// Library that writes the table. Its columns, route, order and row filter are the defaults
        /// of the keys below, and replace `[route]`.
        pub library: Option<String> = word(library_names()).or_none("no library"),
        /// Table as `schema.table`, spelled as Postgres stores it; without a schema it is in
        /// `public`. A schema or table whose name contains a dot cannot be configured.
        pub table: TableName = text(TABLE).default("public.outbox"),
        /// Row filter of the table in the publication, as in `kind = 'event'`: only rows for which it
        /// is true are events. `walrelay init` makes the publication with it, and any other filter
        /// is refused. Needs PostgreSQL 15 and the slot. An empty text takes away the filter of the
        /// library.
        pub filter ["where"]: DeclaredFilter = text(CONDITION).or_none("every row is an event"),
        pub columns: TableColumns = section(),
        pub route: Route = section_over("route"),
    }
}

pub struct TableName {
    schema: String,
    table: String,
}

impl SettingType<String> for TableName {
    fn of(name: Option<String>) -> TableName {
        let name = name.unwrap_or_default();
        let (schema, table) = name.split_once('.').unwrap_or(("public", &name));
        TableName { schema: schema.to_owned(), table: table.to_owned() }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.table)
    }
}

/// A declared row filter; none for an empty text.
pub struct DeclaredFilter(pub Option<String>);

impl SettingType<String> for DeclaredFilter {
    fn of(condition: Option<String>) -> DeclaredFilter {
        DeclaredFilter(condition.filter(|condition| !condition.trim().is_empty()))
    }
}

#[derive(Clone, Debug)]
pub struct OutboxTable {
    pub schema: String,
    pub table: String,
    /// The library that writes the table.
    pub library: Option<String>,
    /// Row filter of the table in the publication.
    pub filter: Option<String>,
    pub columns: Columns,
    /// Column that rises in the order in which the rows of one key were written.
    pub order: Option<String>,
    /// The table's own `route` keys, and those of `[route]` for the rest.
    pub route: Route,
}

/// Prints `schema.table`.
impl fmt::Display for OutboxTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.table)
    }
}

impl From<OutboxSection> for OutboxTable {
    fn from(section: OutboxSection) -> OutboxTable {
        let OutboxSection { library, table, filter, columns, mut route } = section;
        let TableName { schema, table } = table;
        let TableColumns { parts: columns, order } = columns;
        let DeclaredFilter(filter) = filter;
        route.name_table(&table);
        OutboxTable { schema, table, library, filter, columns, order, route }
    }
}

/// The column of the shipped table by whose order rows are published again.
pub const SHIPPED_ORDER: &str = "seq";

impl OutboxTable {
    /// The table that walrelay ships, by its name.
    pub fn is_shipped(&self) -> bool {
        self.library.is_none()
            && (self.schema.as_str(), self.table.as_str()) == ("public", "outbox")
    }

    pub fn is_named(&self, schema: &str, table: &str) -> bool {
        self.schema == schema && self.table == table
    }

    /// The column that rises in the order in which the rows of one key were written, if it is known.
    pub fn order_column(&self) -> Option<&str> {
        let shipped = self.is_shipped().then_some(SHIPPED_ORDER);
        self.order.as_deref().or(shipped)
    }

    /// Columns without which no event can be made, each once: id, payload and what the route names.
    pub fn needed_columns(&self) -> Vec<&str> {
        let Route { key, partition, .. } = &self.route;
        let key_column = if key.is_none() { Some(self.columns.key.as_str()) } else { None };
        let routed = self.route.templates().flat_map(Template::columns).chain(key_column);
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

/// A column that an event can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedColumn<'a> {
    /// The key that names it.
    pub key: &'static str,
    pub name: &'a str,
}

impl OutboxTable {
    /// The columns that an event can do without and that the configuration names: each is in the table, or its
    /// name is misspelled. The settings do not tell a name that was written from the default, so the default
    /// name counts as not written. The tables of a library may lack what the library names.
    pub fn named_columns(&self) -> Vec<NamedColumn<'_>> {
        let Route { preset, headers, exchange, .. } = &self.route;
        let (named, default) = (&self.columns, Columns::default());
        let has_standard = *preset == Preset::Walrelay;
        let is_standard = |header: &str| has_standard && !headers.contains_key(header);
        let is_used = [
            is_standard("event_type") || exchange.is_some(),
            is_standard("traceparent"),
            has_standard,
        ];
        let columns = [
            ("columns.type", &named.event_type, &default.event_type),
            ("columns.traceparent", &named.traceparent, &default.traceparent),
            ("columns.headers", &named.headers, &default.headers),
        ];
        let columns = columns.into_iter().zip(is_used).filter(|_| self.library.is_none());
        columns
            .filter(|((_, name, default), is_used)| *is_used && name != default)
            .map(|((key, name, _), _)| NamedColumn { key, name })
            .collect()
    }
}

impl Default for OutboxTable {
    fn default() -> OutboxTable {
        OutboxTable::from(OutboxSection::default())
    }
}

settings! {
    /// The columns that hold the parts of an event.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Columns {
        /// Column of the event id. Required in the table.
        pub id: String = text(IDENTIFIER).default("id"),
        /// Column of the ordering key; the default `route.key`. `event_key` where the table is
        /// polled.
        pub key: String = text(IDENTIFIER)
            .default("aggregateid")
            .default_when(POLLED.0, POLLED.1, POLLED_KEY),
        /// Column of the event type; the header `event_type`. Under its default name it may be
        /// absent from the table.
        pub event_type ["type"]: String = text(IDENTIFIER).default("type"),
        /// Column of the payload. Required in the table.
        pub payload: String = text(IDENTIFIER).default("payload"),
        /// Column of the W3C trace context. Under its default name it may be absent from the table.
        pub traceparent: String = text(IDENTIFIER).default("traceparent"),
        /// Column of a JSON object of extra headers. Under its default name it may be absent from
        /// the table.
        pub headers: String = text(IDENTIFIER).default("headers"),
    }
}

settings! {
    /// The columns of a table.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct TableColumns {
        pub parts: Columns = flattened(),
        /// Column that increases in the order in which the rows of one key were written. The SQL
        /// that publishes rows again sorts by it, and is not printed without it. May be absent from
        /// the table. With polling, `source.polling.columns.order` is used instead.
        pub order: Option<String> =
            text(IDENTIFIER).or_none("`seq` for `public.outbox`, else none"),
    }
}

settings! {
    /// Transactional `pg_logical_emit_message(true, prefix, content)` as an outbox: the content is
    /// a JSON object whose fields take the place of columns.
    #[derive(Clone, Debug)]
    pub struct Messages {
        /// Only messages of exactly this prefix, the second argument of `pg_logical_emit_message`.
        pub prefix: String = text(FILLED).default("outbox"),
        /// The fields that hold the parts of an event.
        pub columns: Columns = section(),
        /// How they are routed.
        pub route: Route = section_over("route"),
    }
}

settings! {
    /// The `[route]` section.
    #[derive(Clone, Debug)]
    pub struct Route {
        /// Kafka topic or RabbitMQ routing key. `${event_key}` where the table is polled.
        pub topic: Template = template()
            .default("outbox.event.${aggregatetype}")
            .default_when(POLLED.0, POLLED.1, POLLED_TOPIC),
        /// Ordering key and Kafka record key.
        pub key: Option<Template> = template().or_none("the key column"),
        /// Further headers: name and template. A NULL leaves the header out.
        pub headers: BTreeMap<String, Template> = map(template().or_none("no further headers")),
        /// Members of the value in addition to the payload: name and template. The value is then a
        /// JSON object with the member `payload` and these.
        pub envelope: BTreeMap<String, Template> =
            map(template().or_none("the value is the payload")),
        /// Payload format. `debezium` is the payload as with `raw`, and sets `preset = "debezium"`
        /// unless the same section has a preset.
        pub format: PayloadFormat = choice().default("raw"),
        /// Standard headers: `walrelay` adds `id`, `event_type`, `traceparent`, `commit_ts`, `lsn`;
        /// `debezium` adds `id` only.
        pub preset: Preset = choice().default("walrelay"),
        /// Column that holds an explicit Kafka partition.
        pub partition: Option<String> = text(IDENTIFIER).or_none("the partitioner decides"),
        /// The exchange of the sink, where its kind has exchanges. Then the topic is a routing key
        /// and need not be a Kafka topic name.
        pub exchange: Option<Template>,
        /// The key that the exchange comes from, as errors name it.
        pub exchange_key: String,
        /// How the attributes of CloudEvents are spelled.
        pub binding: CloudEventsBinding,
    }
}

impl Route {
    pub fn templates(&self) -> impl Iterator<Item = &Template> + Clone {
        let Route { topic, key, headers, envelope, exchange, .. } = self;
        let templates = [topic].into_iter().chain(key).chain(exchange);
        templates.chain(headers.values()).chain(envelope.values())
    }

    /// Puts the name of the table into its templates.
    fn name_table(&mut self, table: &str) {
        let Route { topic, key, headers, envelope, exchange, .. } = self;
        let templates = [topic].into_iter().chain(key).chain(exchange);
        for template in templates.chain(headers.values_mut()).chain(envelope.values_mut()) {
            *template = template.for_table(table);
        }
    }

    /// The template of the ordering key. If it is exactly
    /// one column, which is NULL, the key is null.
    pub fn key(&self, columns: &Columns) -> Template {
        self.key.clone().unwrap_or_else(|| Template::column(&columns.key))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadFormat {
    Raw,
    CloudEvents,
    CloudEventsStructured,
    /// As Debezium's Outbox Event Router publishes a payload, which is as [`PayloadFormat::Raw`].
    Debezium,
}

impl Choice for PayloadFormat {
    const WORDS: &'static [(&'static str, PayloadFormat)] = &[
        ("raw", PayloadFormat::Raw),
        ("cloudevents", PayloadFormat::CloudEvents),
        ("cloudevents-structured", PayloadFormat::CloudEventsStructured),
        ("debezium", PayloadFormat::Debezium),
    ];
}

/// The standard headers of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// `id`, `event_type`, `traceparent` (when the row has one), `commit_ts`, `lsn`.
    Walrelay,
    /// `id` only, as in the records of Debezium's Outbox Event Router.
    Debezium,
}

impl Choice for Preset {
    const WORDS: &'static [(&'static str, Preset)] =
        &[("walrelay", Preset::Walrelay), ("debezium", Preset::Debezium)];
}
