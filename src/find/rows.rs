//! Looks for rows in the outbox tables, and for where the slot stands.
//!
//! Statements are short and change nothing. Values are compared with the column's own type, so that
//! an index can serve, and read in their text form: no cast, policy or operator of another role runs
//! with the rights of this role.

use std::time::Duration;

use serde::Deserialize;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, SimpleQueryMessage, SimpleQueryRow};

use super::event::{EventState, OutboxRow, PolledRow, SlotPosition};
use super::request::{FindRequest, Wanted};
use crate::base::error::{Exit, Fault};
use crate::base::lsn::Lsn;
use crate::base::template::Part;
use crate::base::time::{parse_rfc3339, rfc3339};
use crate::outbox::settings::OutboxTable;
use crate::polling::settings::{PollingSettings, WorkColumns};
use crate::polling::table_facts::{self, PolledTableFacts};
use crate::source::faults::query_fault;
use crate::source::json_row::{document, lsn};
use crate::source::publication::{PublishedFacts, PublishedTable, published};
use crate::source::quote::{quote_ident, quote_literal, quote_table};
use crate::source::settings::SourceSettings;
use crate::source::slot_state::slot_state;
use crate::source::sql;

/// Rows that are read of one table.
pub(super) const ROWS_MAX: usize = 100;
const STATEMENT_LIMIT: Duration = Duration::from_secs(5);
const LIMITS: &str = "SET LOCAL statement_timeout = '5s'; SET LOCAL lock_timeout = '1s'; \
                      SET LOCAL row_security = off";
/// How long the slot is waited for: a relay that works confirms an idle database in less.
const SLOT_WITHIN: Duration = Duration::from_secs(1);
const SLOT_EVERY: Duration = Duration::from_millis(50);
/// A row may have been written long before its transaction was committed.
const MARGIN_US: i64 = 600_000_000;

/// What Postgres knows.
#[derive(Clone, Debug, Default)]
pub(super) struct SourceView {
    pub(super) rows: Vec<OutboxRow>,
    pub(super) slot: Option<SlotPosition>,
    pub(super) searched: Vec<String>,
    pub(super) not_searched: Vec<String>,
}

/// The configured source.
pub(super) struct RowLookup<'a> {
    pub(super) source: &'a SourceSettings,
    pub(super) polling: Option<&'a PollingSettings>,
    pub(super) request: &'a FindRequest,
}

/// Why rows of a table were not found.
enum Unread {
    /// The text is no value of the column's type.
    NoValue(String),
    Reason(String),
}

impl RowLookup<'_> {
    /// A fault only where the request itself is wrong.
    pub(super) async fn look(&self) -> Result<SourceView, Fault> {
        let mut view = SourceView::default();
        let SourceSettings { connection, slot, publication, .. } = self.source;
        let sql = match sql::connect(connection).await {
            Ok(sql) => sql,
            Err(error) => {
                let Fault { what, .. } = error.fault(connection, slot, publication);
                view.not_searched.push(format!("Postgres: {what}"));
                return Ok(view);
            }
        };
        let client = &sql.client;
        let facts = match self.polling {
            Some(_) => None,
            None => self.publication(client, &mut view).await,
        };
        let mut no_value = None;
        for (at, outbox) in self.source.outboxes.iter().enumerate() {
            match self.table(client, outbox).await {
                Ok(rows) => self.add(&mut view, outbox, rows, facts.as_ref(), at),
                Err(Unread::NoValue(what)) => no_value = Some(what),
                Err(Unread::Reason(why)) => {
                    let table = shown(outbox);
                    view.not_searched.push(format!("rows of {table}: {why}"));
                }
            }
        }
        let elsewhere = !view.searched.is_empty() || self.source.messages.is_some();
        if let Some(what) = no_value.filter(|_| !elsewhere) {
            let name = self.request.wanted.name();
            let mend = format!("write the {name} as the column has it");
            return Err(Fault::new(Exit::Usage, "find.no-value", what, name, mend));
        }
        if self.source.messages.is_some() {
            view.not_searched.push("logical messages in Postgres: they leave no row".to_owned());
        }
        if self.polling.is_none() {
            self.add_slot(client, &mut view).await;
        }
        Ok(view)
    }

    async fn publication(&self, client: &Client, view: &mut SourceView) -> Option<PublishedFacts> {
        let name = &self.source.publication;
        match published(client, self.source).await {
            Ok(facts) if facts.publication.is_some() => Some(facts),
            Ok(_) => {
                view.not_searched.push(format!("publication {name}: it does not exist"));
                None
            }
            Err(error) => {
                view.not_searched.push(format!("publication {name}: {}", said(&error)));
                None
            }
        }
    }

    fn add(
        &self,
        view: &mut SourceView,
        outbox: &OutboxTable,
        mut rows: Vec<OutboxRow>,
        facts: Option<&PublishedFacts>,
        at: usize,
    ) {
        let table = shown(outbox);
        if rows.len() > ROWS_MAX {
            rows.truncate(ROWS_MAX);
            view.not_searched.push(format!("more rows of {table}: the newest {ROWS_MAX} are read"));
        }
        view.searched.push(format!("{table}: {} rows", rows.len()));
        let entries = facts
            .and_then(|facts| Some(facts.publication.as_ref()?.entries(facts.tables.get(at)?)));
        let name = &self.source.publication;
        let is_filtered =
            |entries: &Vec<&PublishedTable>| entries.iter().any(|entry| entry.row_filter.is_some());
        match &entries {
            Some(entries) if entries.is_empty() => view.not_searched.push(format!(
                "publication {name} leaves {table} out: its rows are not delivered"
            )),
            Some(entries) if is_filtered(entries) => view.not_searched.push(format!(
                "publication {name} has a row filter for {table}: rows that it leaves out are not delivered"
            )),
            _ => {}
        }
        let is_published = entries.is_none_or(|entries| !entries.is_empty());
        view.rows.extend(rows.into_iter().map(|row| OutboxRow { is_published, ..row }));
    }

    async fn table(&self, client: &Client, outbox: &OutboxTable) -> Result<Vec<OutboxRow>, Unread> {
        let reason = |error: Error| Unread::Reason(said(&error));
        let facts = table_facts::gather(client, outbox).await.map_err(reason)?;
        let facts = facts.ok_or_else(|| Unread::Reason("the table does not exist".to_owned()))?;
        if !facts.may_select {
            let table = quote_table(&outbox.schema, &outbox.table);
            let role = quote_ident(&facts.role);
            return Err(Unread::Reason(format!(
                "this role may not read them: GRANT SELECT ON {table} TO {role};"
            )));
        }
        let query = RowQuery { outbox, polling: self.polling, facts: &facts };
        let sql = query.sql(self.request).map_err(Unread::Reason)?;
        client.batch_execute(&format!("BEGIN READ ONLY; {LIMITS}")).await.map_err(reason)?;
        let found = client.simple_query(&sql).await;
        let ended = client.batch_execute("ROLLBACK").await;
        let found = found.map_err(|error| query.unread(&error, self.request))?;
        ended.map_err(reason)?;
        let rows = found.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(query.row(row)),
            _ => None,
        });
        Ok(rows.collect())
    }

    /// Waits a moment for the slot to have everything, if there are rows to be judged by it.
    async fn add_slot(&self, client: &Client, view: &mut SourceView) {
        let began = std::time::Instant::now();
        let mut wal_end = None;
        loop {
            let position = match position(client, &self.source.slot, wal_end).await {
                Ok(position) => position,
                Err(error) => {
                    let Fault { what, .. } = query_fault(&error, "reading the slot");
                    return view.not_searched.push(format!("the slot: {what}"));
                }
            };
            let Some(position) = position else {
                let name = &self.source.slot;
                return view.not_searched.push(format!("slot {name}: it does not exist"));
            };
            let waits = !view.rows.is_empty() && position.sent.is_some() && !position.has_all();
            wal_end = Some(position.wal_end);
            view.slot = Some(position);
            if !waits || began.elapsed() >= SLOT_WITHIN {
                return;
            }
            tokio::time::sleep(SLOT_EVERY).await;
        }
    }
}

fn shown(outbox: &OutboxTable) -> String {
    format!("{}.{}", outbox.schema, outbox.table)
}

fn said(error: &Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
}

/// `$1` is the process that reads the slot. What an asynchronous commit has made visible may not
/// have been written yet: it is before the end of what was inserted.
const POSITION_SQL: &str = "
SELECT pg_catalog.json_build_object(
  'wal_end', CASE WHEN pg_catalog.pg_is_in_recovery()
      THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_insert_lsn() END,
  'sent', (SELECT s.sent_lsn FROM pg_catalog.pg_stat_replication s WHERE s.pid = $1))::pg_catalog.text";

#[derive(Deserialize)]
struct WalPosition {
    #[serde(deserialize_with = "lsn")]
    wal_end: Lsn,
    /// `0/0` without a reader.
    #[serde(deserialize_with = "lsn")]
    sent: Lsn,
}

/// None without a slot that a relay could use. `wal_end` is that of an earlier question.
async fn position(
    client: &Client,
    slot: &str,
    wal_end: Option<Lsn>,
) -> Result<Option<SlotPosition>, Error> {
    let state = slot_state(client, slot).await?;
    let Some(facts) = state.own_slot() else { return Ok(None) };
    let pid = facts.active_pid;
    let wal: WalPosition = document(client, POSITION_SQL, &[(&pid, Type::INT4)]).await?;
    Ok(Some(SlotPosition {
        name: facts.name.clone(),
        confirmed: facts.confirmed_flush,
        wal_end: wal_end.unwrap_or(wal.wal_end),
        sent: (!wal.sent.is_zero()).then_some(wal.sent),
        catalog_xmin: facts.catalog_xmin,
    }))
}

/// The query of one table, and how its rows are read.
struct RowQuery<'a> {
    outbox: &'a OutboxTable,
    polling: Option<&'a PollingSettings>,
    facts: &'a PolledTableFacts,
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
        let exchange = route.exchange.iter().flat_map(|template| template.columns());
        let routed = route.topic.columns().chain(key.columns()).chain(exchange);
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

    fn sql(&self, request: &FindRequest) -> Result<String, String> {
        let utc = |time: &str| {
            format!(
                "pg_catalog.to_char({time} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
            )
        };
        let created = self.created().map(|name| format!("t.{}", quote_ident(&name)));
        let created_utc =
            created.as_ref().map(|it| utc(&format!("({it})::pg_catalog.timestamptz")));
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
            Part::Literal(text) => Ok(quote_literal(text)),
        });
        let parts: Vec<String> = parts.collect::<Result<_, _>>()?;
        Ok(is(format!("pg_catalog.concat({})", parts.join(", "))))
    }

    fn unread(&self, error: &Error, request: &FindRequest) -> Unread {
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
                let is_indexed = |name: &str| {
                    self.facts.indexes.iter().any(|index| index.leads.as_deref() == Some(name))
                };
                let why = match column.filter(|name| !is_indexed(name)) {
                    Some(name) => {
                        let table = quote_table(&self.outbox.schema, &self.outbox.table);
                        let name = quote_ident(name);
                        format!(
                            "no index begins with the column: CREATE INDEX ON {table} ({name});"
                        )
                    }
                    None => "Postgres is busy, or no index can serve".to_owned(),
                };
                Unread::Reason(format!("they were not found within {seconds} s; {why}"))
            }
            _ => Unread::Reason(said(error)),
        }
    }

    fn row(&self, row: &SimpleQueryRow) -> OutboxRow {
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
            exchange: route.exchange.as_ref().and_then(|exchange| exchange.render(value)),
            partition: route.partition.as_deref().and_then(value).and_then(|it| it.parse().ok()),
            is_published: true,
            polled: self.polling.and_then(|polling| {
                let work = &polling.columns;
                let status = owned(&work.status)?;
                Some(PolledRow {
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
    let words = &polling.words;
    match status {
        it if it == words.pending => EventState::Waiting,
        it if it == words.in_progress => EventState::InFlight,
        it if it == words.published => EventState::Published,
        it if it == words.failed => EventState::DeadLettered,
        _ => EventState::Unknown,
    }
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
