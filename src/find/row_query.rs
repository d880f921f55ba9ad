//! The query of one outbox table for the rows of an event or a key, and how they are read.
//!
//! Values are compared with the column's own type, so that an index can serve, and read in their
//! text form: no cast, policy or operator of another role runs with the rights of this role.

use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::{Error, SimpleQueryRow};

use super::event::{EventState, OutboxRow, PolledStatus};
use super::request::{FindRequest, Wanted};
use crate::base::template::Part;
use crate::base::time::{parse_rfc3339, rfc3339};
use crate::outbox::settings::OutboxTable;
use crate::polling::settings::{PollingSettings, WorkColumns};
use crate::polling::statements::member_sql;
use crate::polling::table_facts::PolledTableFacts;
use crate::source::quote::{quote_ident, quote_literal, quote_table};

/// Rows that are read of one table.
pub(super) const ROWS_MAX: usize = 100;
/// Runs before the query, in its transaction.
pub(super) const LIMITS: &str = "SET LOCAL statement_timeout = '5s'; SET LOCAL lock_timeout = '1s'; \
                                 SET LOCAL row_security = off";
const STATEMENT_LIMIT: Duration = Duration::from_secs(5);
/// A row may have been written long before its transaction was committed.
const MARGIN_US: i64 = 600_000_000;

const WITH_ZONE: &str = "with time zone";

/// Why rows of a table were not found.
pub(super) enum Unread {
    /// The text is no value of the column's type.
    NoValue(String),
    Reason(String),
}

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
        let key = route.key(columns);
        let routed = route.topic.columns().chain(key.columns());
        let own = [columns.id.as_str(), columns.traceparent.as_str()].into_iter();
        let mut names: Vec<String> =
            own.chain(routed).chain(route.partition.as_deref()).map(str::to_owned).collect();
        if self.polling.is_some() {
            let work = self.work();
            names.extend([work.status, work.retry_count, work.failure_reason]);
        }
        names.sort();
        names.dedup();
        names.retain(|name| self.facts.column(name).is_some());
        names
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
        let selected: Vec<String> =
            ["t.xmin".to_owned(), committed, created_utc.unwrap_or_else(|| "NULL".to_owned())]
                .into_iter()
                .chain(values)
                .collect();
        let mut condition = self.condition(&request.wanted)?;
        if let (Wanted::Key(_), Some(created)) = (&request.wanted, created) {
            let from = quote_literal(&rfc3339(request.since_unix_us.saturating_sub(MARGIN_US)));
            condition += &format!(
                " AND ({created})::pg_catalog.timestamptz OPERATOR(pg_catalog.>=) {from}::pg_catalog.timestamptz \
                 ORDER BY {created} DESC NULLS LAST"
            );
        }
        Ok(format!(
            "SELECT {} FROM {} t WHERE {condition} LIMIT {}",
            selected.join(", "),
            quote_table(&self.outbox.schema, &self.outbox.table),
            ROWS_MAX + 1,
        ))
    }

    /// The literal gets the type of the column.
    fn condition(&self, wanted: &Wanted) -> Result<String, String> {
        let OutboxTable { columns, route, .. } = self.outbox;
        let text = quote_literal(wanted.text());
        let is = |left: String| format!("{left} OPERATOR(pg_catalog.=) {text}");
        let column = |name: &str| match self.facts.column(name) {
            Some(_) => Ok(format!("t.{}", quote_ident(name))),
            None => Err(format!("the table has no column {name}")),
        };
        if matches!(wanted, Wanted::Id(_)) {
            return column(&columns.id).map(is);
        }
        let key = route.key(columns);
        if let [Part::Column(name)] = key.parts() {
            return column(name).map(is);
        }
        let parts = key.parts().iter().map(|part| match part {
            Part::Column(name) => column(name),
            Part::Member { column: name, path } => column(name).map(|_| member_sql(name, path)),
            // The configuration has put the name in.
            Part::Table => Ok(quote_literal(&self.outbox.table)),
            Part::Literal(text) => Ok(quote_literal(text)),
        });
        let parts: Vec<String> = parts.collect::<Result<_, _>>()?;
        Ok(is(format!("pg_catalog.concat({})", parts.join(", "))))
    }

    pub(super) fn unread(&self, error: &Error, request: &FindRequest) -> Unread {
        let wanted = &request.wanted;
        let key = self.outbox.route.key(&self.outbox.columns);
        let column = match (wanted, key.parts()) {
            (Wanted::Id(_), _) => Some(self.outbox.columns.id.as_str()),
            (Wanted::Key(_), [Part::Column(name)]) => Some(name.as_str()),
            (Wanted::Key(_), _) => None,
        };
        let table = shown(self.outbox);
        match error.code() {
            Some(code) if code.code().starts_with("22") => Unread::NoValue(format!(
                "{:?} is not a value of column {} of {table}, which has the type {}",
                wanted.text(),
                column.unwrap_or_default(),
                column.and_then(|name| self.facts.type_of(name)).unwrap_or("text"),
            )),
            Some(code) if *code == SqlState::QUERY_CANCELED => {
                let seconds = STATEMENT_LIMIT.as_secs();
                let of = column.map(|name| format!(" of {}", quote_ident(name)));
                Unread::Reason(format!(
                    "they were not found within {seconds} s: Postgres is busy, or lacks an index{}",
                    of.unwrap_or_default()
                ))
            }
            _ => Unread::Reason(said(error)),
        }
    }

    pub(super) fn row(&self, row: &SimpleQueryRow) -> OutboxRow {
        let OutboxTable { columns, route, .. } = self.outbox;
        let names = self.columns();
        let value = |name: &str| {
            let at = names.iter().position(|known| known == name)?;
            row.get(3 + at)
        };
        let owned = |name: &str| value(name).map(str::to_owned);
        OutboxRow {
            table: shown(self.outbox),
            id: owned(&columns.id).unwrap_or_default(),
            key: route.key(columns).render(value),
            xmin: row.get(0).and_then(|text| text.parse().ok()),
            committed_unix_us: row.get(1).and_then(parse_rfc3339),
            created_unix_us: row.get(2).and_then(parse_rfc3339),
            traceparent: owned(&columns.traceparent),
            topic: route.topic.render(value),
            partition: route.partition.as_deref().and_then(value).and_then(|it| it.parse().ok()),
            is_published: true,
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

/// `schema.table`.
pub(super) fn shown(outbox: &OutboxTable) -> String {
    format!("{}.{}", outbox.schema, outbox.table)
}

/// Returns the message of Postgres.
pub(super) fn said(error: &Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
}

#[cfg(test)]
#[path = "row_query_tests.rs"]
mod tests;
