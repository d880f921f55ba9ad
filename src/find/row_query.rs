//! The query of one outbox table for the rows of an event or a key, and how they are read.
//!
//! Values are compared with the column's own type, so that an index can serve, and read in their
//! text form: no cast, policy or operator of another role runs with the rights of this role.

use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::{Error, SimpleQueryRow};

use super::event::{EventState, OutboxRow, PolledStatus};
use super::request::{FindRequest, Wanted};
use crate::base::encoding::push_unhexed;
use crate::base::template::Part;
use crate::base::time::{parse_rfc3339, rfc3339};
use crate::outbox::settings::OutboxTable;
use crate::polling::settings::{PollingSettings, WorkColumns};
use crate::polling::statements::member_sql;
use crate::polling::table_facts::{PolledColumn, PolledTableFacts};
use crate::source::faults::message_of;
use crate::source::quote::{quote_ident, quote_literal, quote_table};
use crate::source::sql::text;

/// Rows that are read of one table.
pub(super) const ROWS_MAX: usize = 100;
/// Runs before the query, in its transaction.
pub(super) const LIMITS: &str = "SET LOCAL statement_timeout = '5s'; SET LOCAL lock_timeout = '1s'; \
                                 SET LOCAL row_security = off";
const STATEMENT_LIMIT: Duration = Duration::from_secs(5);
/// A row may have been written long before its transaction was committed.
const MARGIN_US: i64 = 600_000_000;

const WITH_ZONE: &str = "with time zone";

/// The query of one table, and how its rows are read.
pub(super) struct RowQuery<'a> {
    pub(super) outbox: &'a OutboxTable,
    pub(super) polling: Option<&'a PollingSettings>,
    pub(super) facts: &'a PolledTableFacts,
}

impl RowQuery<'_> {
    fn work(&self) -> WorkColumns {
        self.polling.map(|polling| polling.columns.clone()).unwrap_or_default()
    }

    /// The column of the time when a row was written, if the table has one.
    fn created(&self) -> Option<String> {
        let name = self.work().created_at;
        let is_time = self.facts.type_of(&name).is_some_and(|it| it.starts_with("timestamp"));
        is_time.then_some(name)
    }

    /// Columns whose values are read, those that the table has.
    fn columns(&self) -> Vec<String> {
        let OutboxTable { columns, route, .. } = self.outbox;
        let own = [columns.id.as_str(), columns.traceparent.as_str()].into_iter();
        let routed = route.topic.columns().chain(route.partition.as_deref());
        let mut names: Vec<String> = own.chain(routed).map(str::to_owned).collect();
        if self.polling.is_some() {
            let work = self.work();
            names.extend([work.status, work.retry_count, work.failure_reason]);
        }
        names.sort();
        names.dedup();
        names.retain(|name| self.facts.column(name).is_some());
        names
    }

    /// The statements that give the rights that this role lacks to read the rows, if it lacks any.
    pub(super) fn missing_grants(&self) -> Option<String> {
        let (OutboxTable { schema, table, .. }, facts) = (self.outbox, self.facts);
        let role = quote_ident(&facts.role);
        let on_schema = format!("GRANT USAGE ON SCHEMA {} TO {role};", quote_ident(schema));
        let on_table = format!("GRANT SELECT ON {} TO {role};", quote_table(schema, table));
        let rights = [(facts.may_use_schema, on_schema), (facts.may_select, on_table)];
        let missing: Vec<String> =
            rights.into_iter().filter_map(|(has, grant)| (!has).then_some(grant)).collect();
        (!missing.is_empty()).then(|| missing.join(" "))
    }

    pub(super) fn sql(&self, request: &FindRequest) -> Result<String, String> {
        let utc = |time: &str| {
            format!(
                "pg_catalog.to_char({time} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
            )
        };
        let created = self.created().map(|name| format!("t.{}", quote_ident(&name)));
        // A time without a zone may be of any: the search must not begin behind it.
        let has_zone =
            self.facts.type_of(&self.work().created_at).is_some_and(|it| it.ends_with(WITH_ZONE));
        let created_utc = created.as_ref().filter(|_| has_zone).map(|it| utc(it));
        let committed = utc(
            "(CASE WHEN pg_catalog.current_setting('track_commit_timestamp') OPERATOR(pg_catalog.=) 'on' \
             THEN pg_catalog.pg_xact_commit_timestamp(t.xmin) END)",
        );
        let values = self.columns().into_iter().map(|name| format!("t.{}", quote_ident(&name)));
        let null = || "NULL".to_owned();
        let key = self.key_sql().map_or_else(|_| null(), |key| hex_sql(&key));
        let selected: Vec<String> =
            ["t.xmin".to_owned(), committed, created_utc.unwrap_or_else(null), key]
                .into_iter()
                .chain(values)
                .collect();
        let mut condition = self.condition(&request.wanted)?;
        if let (Wanted::Key(_), Some(created)) = (&request.wanted, created) {
            let from = quote_literal(&rfc3339(request.since_unix_us.saturating_sub(MARGIN_US)));
            // A row whose time is not known may be of any.
            condition += &format!(
                " AND (({created})::pg_catalog.timestamptz OPERATOR(pg_catalog.>=) {from}::pg_catalog.timestamptz \
                 OR {created} IS NULL) ORDER BY {created} DESC NULLS LAST"
            );
        }
        Ok(format!(
            "SELECT {} FROM {} t WHERE {condition} LIMIT {}",
            selected.join(", "),
            quote_table(&self.outbox.schema, &self.outbox.table),
            ROWS_MAX + 1,
        ))
    }

    /// The column with which the text is compared; none for a key of several parts.
    fn compared_column(&self, wanted: &Wanted) -> Option<String> {
        let OutboxTable { columns, route, .. } = self.outbox;
        match (wanted, route.key(columns).parts()) {
            (Wanted::Id(_), _) => Some(columns.id.clone()),
            (Wanted::Key(_), [Part::Column(name)]) => Some(name.clone()),
            (Wanted::Key(_), _) => None,
        }
    }

    /// The literal gets the type of the column.
    fn condition(&self, wanted: &Wanted) -> Result<String, String> {
        let text = quote_literal(wanted.text());
        let (value, text) = match self.compared_column(wanted) {
            Some(name) => {
                self.column(&name)?;
                (format!("t.{}", quote_ident(&name)), text)
            }
            None => (self.key_sql()?, text_bytes_sql(&text)),
        };
        Ok(format!("{value} OPERATOR(pg_catalog.=) {text}"))
    }

    fn column(&self, name: &str) -> Result<&PolledColumn, String> {
        self.facts.column(name).ok_or_else(|| format!("the table has no column {name}"))
    }

    /// The bytes of the ordering key of `t`, from which the partition follows; NULL if they are not known.
    fn key_sql(&self) -> Result<String, String> {
        let OutboxTable { columns, route, .. } = self.outbox;
        let key = route.key(columns);
        let parts = key.parts().iter().map(|part| {
            Ok(match part {
                Part::Column(name) => {
                    bytes_sql(self.column(name)?, &format!("t.{}", quote_ident(name)))
                }
                Part::Member { column, path } => match self.column(column)?.type_oid {
                    BYTEA => return Err(format!("{part} is a member of a column of type bytea")),
                    _ => text_bytes_sql(&member_sql(self.facts, column, path)),
                },
                // The configuration has put the name in.
                Part::Table => text_bytes_sql(&quote_literal(&self.outbox.table)),
                Part::Literal(text) => text_bytes_sql(&quote_literal(text)),
            })
        });
        let parts: Vec<String> = parts.collect::<Result<_, String>>()?;
        Ok(format!("({})", parts.join(" OPERATOR(pg_catalog.||) ")))
    }

    /// The query for the bytes of the wanted id or key in a record, if its text determines them.
    pub(super) fn wanted_bytes_sql(&self, wanted: &Wanted) -> Option<String> {
        let text = quote_literal(wanted.text());
        let bytes = match self.compared_column(wanted) {
            Some(name) => {
                let column = self.facts.column(&name)?;
                bytes_sql(column, &format!("{text}::{}", column.type_sql))
            }
            None => {
                let OutboxTable { columns, route, .. } = self.outbox;
                let is_text = |part: &Part| match part {
                    Part::Column(name) => {
                        self.facts.column(name).is_some_and(|column| column.type_oid != BYTEA)
                    }
                    _ => true,
                };
                route.key(columns).parts().iter().all(is_text).then(|| text_bytes_sql(&text))?
            }
        };
        Some(format!("SELECT {}", hex_sql(&bytes)))
    }

    /// Says that the wanted text is no value of the column's type, if that is what the error means.
    pub(super) fn no_value(&self, error: &Error, wanted: &Wanted) -> Option<String> {
        error.code().filter(|code| code.code().starts_with("22"))?;
        let column = self.compared_column(wanted)?;
        Some(format!(
            "{:?} is not a value of column {column} of {}, which has the type {}",
            wanted.text(),
            self.outbox,
            self.facts.type_of(&column).unwrap_or("text"),
        ))
    }

    /// Why rows were not found.
    pub(super) fn unread(&self, error: &Error, wanted: &Wanted) -> String {
        if error.code() != Some(&SqlState::QUERY_CANCELED) {
            return message_of(error);
        }
        let seconds = STATEMENT_LIMIT.as_secs();
        let column = self.compared_column(wanted);
        let of = column.map(|name| format!(" of {}", quote_ident(&name))).unwrap_or_default();
        format!("they were not found within {seconds} s: Postgres is busy, or lacks an index{of}")
    }

    pub(super) fn row(&self, row: &SimpleQueryRow) -> OutboxRow {
        let OutboxTable { columns, route, .. } = self.outbox;
        let names = self.columns();
        let value = |name: &str| {
            let at = names.iter().position(|known| known == name)?;
            text(row, 4 + at)
        };
        let owned = |name: &str| value(name).map(str::to_owned);
        OutboxRow {
            table: self.outbox.to_string(),
            id: owned(&columns.id).unwrap_or_default(),
            key: text(row, 3).and_then(unhexed),
            xmin: text(row, 0).and_then(|text| text.parse().ok()),
            committed_unix_us: text(row, 1).and_then(parse_rfc3339),
            created_unix_us: text(row, 2).and_then(parse_rfc3339),
            traceparent: owned(&columns.traceparent),
            topic: route.topic.render(value),
            partition: route.partition.as_deref().and_then(value).and_then(|it| it.parse().ok()),
            is_published: true,
            is_filtered: false,
            polled: self.polling.and_then(|polling| {
                let work = &polling.columns;
                let status = owned(&work.status)?;
                Some(PolledStatus {
                    state: polled_state(polling, &status),
                    status,
                    retry_count: value(&work.retry_count).and_then(|text| text.parse().ok()),
                    failure_reason: owned(&work.failure_reason),
                })
            }),
        }
    }
}

const BOOL: u32 = 16;
const BYTEA: u32 = 17;

/// The bytes that the relay reads from a value of the column.
fn bytes_sql(column: &PolledColumn, value: &str) -> String {
    match column.type_oid {
        BYTEA => value.to_owned(),
        BOOL => text_bytes_sql(&format!("{value}::pg_catalog.text")),
        _ => text_bytes_sql(&format!(
            "CASE WHEN {value} IS NOT NULL THEN pg_catalog.concat({value}) END"
        )),
    }
}

/// The session has the encoding in which the relay gets text, too.
fn text_bytes_sql(text: &str) -> String {
    let encoding = "pg_catalog.current_setting('client_encoding')::pg_catalog.name";
    format!("pg_catalog.convert_to({text}, {encoding})")
}

fn hex_sql(bytes: &str) -> String {
    format!("pg_catalog.encode({bytes}, 'hex')")
}

pub(super) fn unhexed(hex: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(hex.len() / 2);
    push_unhexed(hex.as_bytes(), &mut bytes)?;
    Some(bytes)
}

fn polled_state(polling: &PollingSettings, status: &str) -> EventState {
    let values = &polling.status_values;
    match status {
        it if it == values.pending => EventState::Waiting,
        it if it == values.in_progress => EventState::InFlight,
        it if it == values.published => EventState::Published,
        it if it == values.failed => EventState::DeadLettered,
        _ => EventState::Unknown,
    }
}

#[cfg(test)]
#[path = "row_query_tests.rs"]
mod tests;
