//! Looks for rows in the outbox tables, and for where the slot stands. Statements are short and
//! change nothing.

use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::event::{OutboxRow, SlotPosition, SlotReader};
use super::request::{FindRequest, Spelling};
use super::row_query::{LIMITS, ROWS_MAX, RowQuery, unhexed};
use crate::base::error::{Exit, Fault};
use crate::base::figures::counted;
use crate::base::lsn::Lsn;
use crate::outbox::settings::OutboxTable;
use crate::polling::settings::PollingSettings;
use crate::polling::table_facts;
use crate::source::faults::{message_of, query_fault};
use crate::source::json_row::{document, lsn};
use crate::source::publication::{PublishedFacts, PublishedTable, published};
use crate::source::settings::SourceSettings;
use crate::source::slot_state::slot_state;
use crate::source::sql::{self, read_only, text, text_rows};

/// How long the slot is waited for: a relay that works confirms an idle database in less.
const SLOT_WITHIN: Duration = Duration::from_secs(1);
const SLOT_EVERY: Duration = Duration::from_millis(50);

/// The answer of Postgres.
#[derive(Clone, Debug, Default)]
pub(super) struct SourceView {
    pub(super) rows: Vec<OutboxRow>,
    /// The wanted id or key as the records of each table have it; empty if Postgres was not asked.
    pub(super) spellings: Vec<Spelling>,
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
        for (at, outbox) in self.source.outboxes.iter().enumerate() {
            let (spelling, found) = self.search(client, outbox).await;
            match (&spelling, found) {
                (Spelling::NoValue(_), _) => {}
                (_, Ok(rows)) => self.add(&mut view, outbox, rows, facts.as_ref(), at),
                (_, Err(why)) => view.not_searched.push(format!("rows of {outbox}: {why}")),
            }
            view.spellings.push(spelling);
        }
        // Another table may have the value.
        let no_values: Option<Vec<&str>> = view.spellings.iter().map(Spelling::no_value).collect();
        if let (Some([.., what]), None) = (no_values.as_deref(), &self.source.messages) {
            let name = self.request.wanted.name();
            let mend = format!("write the {name} as the column has it");
            return Err(Fault::new(Exit::Usage, "find.no-value", *what, name, mend));
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
        let why = match published(client, self.source).await {
            Ok(facts) if facts.publication.is_some() => return Some(facts),
            Ok(_) => "it does not exist".to_owned(),
            Err(error) => message_of(&error),
        };
        view.not_searched.push(format!("publication {}: {why}", self.source.publication));
        None
    }

    fn add(
        &self,
        view: &mut SourceView,
        outbox: &OutboxTable,
        mut rows: Vec<OutboxRow>,
        facts: Option<&PublishedFacts>,
        at: usize,
    ) {
        if rows.len() > ROWS_MAX {
            rows.truncate(ROWS_MAX);
            view.not_searched.push(format!("more rows of {outbox}: {ROWS_MAX} are read"));
        }
        view.searched.push(format!("{outbox}: {}", counted(rows.len(), "row")));
        let entries = facts
            .and_then(|facts| Some(facts.publication.as_ref()?.entries(facts.tables.get(at)?)));
        let name = &self.source.publication;
        let has_filter =
            |entries: &Vec<&PublishedTable>| entries.iter().any(|entry| entry.row_filter.is_some());
        let is_filtered = entries.as_ref().map_or(outbox.filter.is_some(), has_filter);
        match &entries {
            Some(entries) if entries.is_empty() => view.not_searched.push(format!(
                "publication {name} leaves {outbox} out: its rows are not delivered"
            )),
            Some(_) if is_filtered => view.not_searched.push(format!(
                "publication {name} has a row filter for {outbox}: rows that it leaves out are not delivered"
            )),
            _ => {}
        }
        let is_published = entries.is_none_or(|entries| !entries.is_empty());
        let rows = rows.into_iter();
        view.rows.extend(rows.map(|row| OutboxRow { is_published, is_filtered, ..row }));
    }

    /// Looks for rows of a table, and for how its records have the wanted id or key.
    async fn search(
        &self,
        client: &Client,
        outbox: &OutboxTable,
    ) -> (Spelling, Result<Vec<OutboxRow>, String>) {
        let facts = match table_facts::gather(client, outbox).await {
            Ok(Some(facts)) => facts,
            Ok(None) => return (Spelling::Unknown, Err("the table does not exist".to_owned())),
            Err(error) => return (Spelling::Unknown, Err(message_of(&error))),
        };
        let query = RowQuery { outbox, polling: self.polling, facts: &facts };
        match self.spelling(client, &query).await {
            no_value @ Spelling::NoValue(_) => (no_value, Ok(Vec::new())),
            spelling => (spelling, self.table(client, &query).await),
        }
    }

    async fn spelling(&self, client: &Client, query: &RowQuery<'_>) -> Spelling {
        let wanted = &self.request.wanted;
        let Some(sql) = query.wanted_bytes_sql(wanted) else { return Spelling::Unknown };
        match text_rows(client, &sql).await {
            Ok(found) => {
                let bytes = found.first().and_then(|row| text(row, 0)).and_then(unhexed);
                bytes.map_or(Spelling::Unknown, Spelling::Bytes)
            }
            Err(error) => {
                query.no_value(&error, wanted).map_or(Spelling::Unknown, Spelling::NoValue)
            }
        }
    }

    async fn table(&self, client: &Client, query: &RowQuery<'_>) -> Result<Vec<OutboxRow>, String> {
        if let Some(grants) = query.missing_grants() {
            return Err(format!("this role may not read them: {grants}"));
        }
        let sql = query.sql(self.request)?;
        let found = read_only(client, LIMITS, text_rows(client, &sql)).await;
        let found = found.map_err(|error| query.unread(&error, &self.request.wanted))?;
        Ok(found.iter().map(|row| query.row(row)).collect())
    }

    /// Waits a moment for the slot to have everything, if there are rows to be judged by it.
    async fn add_slot(&self, client: &Client, view: &mut SourceView) {
        let began = Instant::now();
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
            let is_read = position.reader != SlotReader::Nobody;
            let waits = !view.rows.is_empty() && is_read && !position.has_all();
            wal_end = Some(position.wal_end);
            view.slot = Some(position);
            if !waits || began.elapsed() >= SLOT_WITHIN {
                return;
            }
            tokio::time::sleep(SLOT_EVERY).await;
        }
    }
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
    /// `0/0` without a reader, and for a role that may not see it.
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
        reader: match pid {
            None => SlotReader::Nobody,
            Some(_) if wal.sent.is_zero() => SlotReader::Hidden,
            Some(_) => SlotReader::Sent(wal.sent),
        },
        catalog_xmin: facts.catalog_xmin,
    }))
}
