//! The SQL statements of polling, written once for a table.
//!
//! Status values stand in the text and not in parameters, so that the planner can use the partial
//! indexes of sql/polling.sql.
//!
//! # Order per key, and what it costs
//!
//! Claims are made one at a time for each table, over all processes: [`Statements::turn`] takes an
//! advisory lock that ends with the transaction, and the claim is a separate statement after it, so
//! that its snapshot shows what the claim before has taken. A claim skips every key of which a row
//! is claimed or waits for its retry, and takes the rows of other keys from the oldest on. So the
//! rows of a key are in one claim at a time, in order, and publishing them needs no further lock.
//! The cost: claims do not run in parallel (publishing does), and a key progresses by one batch at
//! a time. A row that another transaction has locked is skipped, and its key with it.

use super::settings::{OnPublished, PollingSettings, StatusValues, WorkColumns};
use super::table_facts::PolledTableFacts;
use crate::base::template::Part;
use crate::outbox::settings::OutboxTable;
use crate::pgoutput::relation::{Column, Relation};
use crate::source::quote::{quote_ident, quote_literal, quote_table};
use crate::source::settings::SourceSettings;

/// First half of the key of the advisory lock: "walr".
pub(crate) const TURN_CLASS: i32 = 0x7761_6C72;

/// Columns of a fetched row: id as text, time of creation in microseconds since the Unix epoch,
/// failed attempts, and the first of the event's columns.
pub(crate) const ID: usize = 0;
pub(crate) const CREATED: usize = 1;
pub(crate) const ATTEMPTS: usize = 2;
pub(crate) const EVENT: usize = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statements {
    /// The columns of the event, in the order in which `fetch` returns them.
    pub(crate) event: Relation,
    /// Takes the lock for claiming, within a transaction; returns the server's position.
    pub(crate) turn: String,
    /// Claims, and counts the rows that were ready and those of keys that were
    /// free. Parameters: claim, most rows to examine, most
    /// bytes. The size of a batch stands in the text: it tells the planner
    /// that few rows are looked up, so that it uses the index on the id.
    pub(crate) claim: String,
    /// The rows of a claim. Parameter: claim. Not part of the claim, because a slow reader would
    /// keep the lock from everybody else.
    pub(crate) fetch: String,
    /// Whether the slot exists, whether rows are left for polling, and whether the publication
    /// carries the table.
    pub(crate) left: String,
    /// Marks rows as published. Parameters: claim, ids.
    pub(crate) published: String,
    /// Marks rows as failed. Parameters: claim, ids, attempts, reasons, waits in ms (not used).
    pub(crate) failed: String,
    /// Records a failure before a retry. Parameters: claim, ids, attempts, reasons, waits in ms.
    pub(crate) noted: String,
    /// Takes back rows that were freed and that no other claim has taken. Parameters: claim, ids.
    pub(crate) retaken: String,
    /// Frees rows. Parameters: claim, ids.
    pub(crate) given_back: String,
    /// Frees all rows of a claim. Parameter: claim.
    pub(crate) abandoned: String,
    /// Renews claims whose last renewal is too long ago. Parameters: claims, milliseconds.
    pub(crate) renew: String,
    /// By claim how many rows it has, and how many of them whose last renewal is too long ago. Parameters
    /// as for the renewal.
    pub(crate) held: String,
    /// Frees the rows of claims that were not renewed. Parameter: the lease in ms.
    pub(crate) expire: String,
    /// Deletes old published rows. Parameters: age in ms, most rows.
    pub(crate) clean: String,
    /// Marks the rows of polling for a handover, except
    /// those that carry the name of a claim already.
    pub(crate) mark: String,
    /// The number of rows whose status polling does not know, and one such status as SQL.
    pub(crate) others: String,
    /// The number of unpublished rows, and the age of the oldest, NaN if none has a time. Parameter: most rows
    /// to count; of more, the age is that of the oldest among them and the first in the order.
    pub(crate) backlog: String,
    /// Whether a text parameter may have any character: the encoding of the database may lack some.
    pub(crate) any_character: bool,
}

impl Statements {
    /// For a table that can be polled.
    pub(crate) fn of(
        facts: &PolledTableFacts,
        source: &SourceSettings,
        outbox: &OutboxTable,
        polling: &PollingSettings,
    ) -> Statements {
        let type_of = |column| facts.type_of(column).unwrap_or("text");
        let writer = StatementWriter {
            facts,
            outbox,
            polling,
            publication: &source.publication,
            table: quote_table(&outbox.schema, &outbox.table),
            id: quote_ident(&outbox.columns.id),
            id_type: type_of(&outbox.columns.id),
            is: facts.equality_of(&outbox.columns.id),
            reason_type: type_of(&polling.columns.failure_reason),
            names: polling.columns.quoted(),
            values: polling.status_values.quoted(),
            slot_exists: format!(
                "EXISTS (SELECT FROM pg_catalog.pg_replication_slots WHERE slot_name = {} AND database = pg_catalog.current_database())",
                quote_literal(&source.slot)
            ),
        };
        let event = facts.relation(outbox);
        Statements {
            turn: writer.turn(),
            claim: writer.claim(&event),
            fetch: writer.fetch(&event),
            event,
            left: writer.left(),
            published: writer.published(),
            failed: writer.failed(),
            noted: writer.noted(),
            retaken: writer.retaken(),
            given_back: writer.free(&format!("FROM {}", writer.mine_among(&writer.named()))),
            abandoned: writer.free(&format!("WHERE {}", writer.mine())),
            renew: writer.renew(),
            held: writer.held(),
            expire: writer.expire(),
            clean: writer.clean(),
            mark: writer.mark(),
            others: writer.others(),
            backlog: writer.backlog(),
            // Without an encoding the server takes all bytes as they are.
            any_character: ["UTF8", "SQL_ASCII"].contains(&facts.encoding.as_str()),
        }
    }
}

/// The key within which order is kept: that of the route, as SQL over `t`.
pub(super) fn key(outbox: &OutboxTable, facts: &PolledTableFacts) -> String {
    let key = outbox.route.key(&outbox.columns);
    let parts = key.parts().iter().map(|part| match part {
        Part::Column(name) => format!("t.{}::pg_catalog.text", quote_ident(name)),
        Part::Member { column, path } => compared_member_sql(facts, column, path),
        // The configuration has put the name in.
        Part::Table => quote_literal(&outbox.table),
        Part::Literal(text) => quote_literal(text),
    });
    parts.collect::<Vec<_>>().join(" || ")
}

/// The first version with `pg_input_is_valid`.
pub(crate) const TESTS_INPUT: u32 = 16;
/// Arguments of `regexp_replace` that replace the escapes that no `jsonb` can hold: `\u0000`, and halves of a surrogate
/// pair without the other half. Equal keys must stay equal, whatever else their documents have.
const REPLACE_ESCAPES: &str = r"'\\u(0000|d[89ab][0-9a-f]{2}(?!\\ud[c-f][0-9a-f]{2}))|(?<!\\ud[89ab][0-9a-f]{2})\\ud[c-f][0-9a-f]{2}', '\\u0020', 'gi'";

/// A member of the JSON in a column of `t`, as text. NULL where the column holds no `jsonb`, so that such a row
/// fails alone, when its event is made.
pub(crate) fn member_sql(facts: &PolledTableFacts, column: &str, path: &[String]) -> String {
    let text = format!("t.{}::pg_catalog.text", quote_ident(column));
    member_of(&jsonb_sql(facts, column, &[text]), path)
}

/// Like [`member_sql`], for comparisons: it is not NULL for a document that the relay can read, and the same text for
/// equal keys.
fn compared_member_sql(facts: &PolledTableFacts, column: &str, path: &[String]) -> String {
    let text = format!("t.{}::pg_catalog.text", quote_ident(column));
    let replaced = format!("pg_catalog.regexp_replace({text}, {REPLACE_ESCAPES})");
    member_of(&jsonb_sql(facts, column, &[text, replaced]), path)
}

/// The first of the texts that is a `jsonb`, or the column itself if it is one.
fn jsonb_sql(facts: &PolledTableFacts, column: &str, texts: &[String]) -> String {
    let jsonb = |text: &String| format!("{text}::pg_catalog.jsonb");
    if facts.type_of(column) == Some("jsonb") {
        return format!("t.{}", quote_ident(column));
    }
    if facts.major_version() < TESTS_INPUT {
        return texts.last().map(jsonb).unwrap_or_default();
    }
    let case = |text: &String| {
        let is_valid = format!("pg_catalog.pg_input_is_valid({text}, 'pg_catalog.jsonb')");
        format!("WHEN {is_valid} THEN {}", jsonb(text))
    };
    format!("CASE {} END", texts.iter().map(case).collect::<Vec<_>>().join(" "))
}

fn member_of(jsonb: &str, path: &[String]) -> String {
    let path: Vec<String> = path.iter().map(|name| quote_literal(name)).collect();
    format!("({jsonb} OPERATOR(pg_catalog.#>>) ARRAY[{}]::pg_catalog.text[])", path.join(", "))
}

/// A condition on rows that are looked up by id, hidden from the planner. Statistics from a quiet
/// hour know only published rows, so the planner would expect one row of another status, look rows
/// up by status, and read all of that status once for each id.
fn checked(condition: &str) -> String {
    format!("CASE WHEN {condition} THEN true END")
}

/// Quoted names and values of one table. Types and operators are SQL.
struct StatementWriter<'a> {
    facts: &'a PolledTableFacts,
    outbox: &'a OutboxTable,
    polling: &'a PollingSettings,
    publication: &'a str,
    table: String,
    id: String,
    id_type: &'a str,
    /// The operator that compares ids, with its schema unless that is pg_catalog.
    is: &'a str,
    reason_type: &'a str,
    names: WorkColumns,
    values: StatusValues,
    slot_exists: String,
}

impl StatementWriter<'_> {
    /// The position only orders claims, so where WAL functions may not
    /// be called (on some hosts), the rising transaction id serves as
    /// well. The table's object id is the second half of the lock's key.
    fn turn(&self) -> String {
        let table = quote_literal(&self.table);
        format!(
            "SELECT pg_catalog.pg_advisory_xact_lock({TURN_CLASS}, ({table}::pg_catalog.regclass::pg_catalog.oid::bigint - 2147483648)::integer), \
             CASE WHEN pg_catalog.current_setting('wal_level') = 'logical' \
             THEN (pg_catalog.pg_current_wal_insert_lsn() - '0/0'::pg_catalog.pg_lsn)::bigint \
             ELSE pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::pg_catalog.text::bigint END"
        )
    }

    /// The stored size of a value (compressed or TOASTed) is known without reading it, so only
    /// rows that may fit are read to learn their real size. `IN` makes the planner look busy
    /// keys up by hash, whatever its statistics say.
    fn claim(&self, event: &Relation) -> String {
        let StatementWriter { table, id, is, .. } = self;
        let WorkColumns { order, status, next_retry_at, locked_at, locked_by, .. } = &self.names;
        let StatusValues { pending, in_progress, .. } = &self.values;
        let key = key(self.outbox, self.facts);
        let batch_max = self.polling.batch_max;
        let names = event.columns.iter().map(|column| quote_ident(&column.name)).enumerate();
        let values: String =
            names.clone().map(|(at, name)| format!(", t.{name} AS value{at}")).collect();
        let stored = names
            .clone()
            .map(|(_, name)| format!("coalesce(pg_catalog.pg_column_size(t.{name}), 0)"));
        let stored = stored.collect::<Vec<_>>().join(" + ");
        let weight = names.map(|(at, _)| {
            format!("coalesce(pg_catalog.octet_length(s.value{at}::pg_catalog.text), 0)")
        });
        let weight = weight.collect::<Vec<_>>().join(" + ");
        // Rows that no slot carries: there is no slot, or they were marked or claimed before it.
        let ours = format!("(t.{locked_by} IS NOT NULL OR NOT {})", self.slot_exists);
        let still_pending = checked(&format!("t.{status} = {pending}"));
        format!(
            "WITH busy AS MATERIALIZED (
                SELECT {key} AS key FROM {table} t WHERE t.{status} = {in_progress}
                UNION
                SELECT {key} FROM {table} t WHERE t.{status} = {pending} AND t.{next_retry_at} > pg_catalog.now()
            ), ready AS MATERIALIZED (
                SELECT t.{id} AS id, {key} AS key, t.{order} AS place FROM {table} t
                WHERE t.{status} = {pending} AND (t.{next_retry_at} IS NULL OR t.{next_retry_at} <= pg_catalog.now())
                  AND {ours} AND t.{id} IS NOT NULL
                ORDER BY t.{order} LIMIT $2::bigint
            ), free AS MATERIALIZED (
                SELECT r.id, r.key, pg_catalog.row_number() OVER (ORDER BY r.place) AS rank FROM ready r
                WHERE (r.key IN (SELECT b.key FROM busy b WHERE b.key IS NOT NULL)) IS NOT TRUE
                ORDER BY r.place LIMIT {batch_max}
            ), stored AS MATERIALIZED (
                SELECT f.id, f.key, f.rank{values}, pg_catalog.sum({stored}) OVER (ORDER BY f.rank) AS bytes
                FROM free f JOIN {table} t ON t.{id} {is} f.id
            ), weighed AS MATERIALIZED (
                SELECT s.id, s.key, s.rank, pg_catalog.sum({weight}) OVER (ORDER BY s.rank) AS bytes
                FROM stored s WHERE s.rank = 1 OR s.bytes <= $3::bigint
            ), chosen AS MATERIALIZED (
                SELECT id, key, rank FROM weighed WHERE rank = 1 OR bytes <= $3::bigint
            ), locked AS MATERIALIZED (
                SELECT t.{id} AS id, c.key, c.rank FROM {table} t JOIN chosen c ON c.id {is} t.{id}
                WHERE {still_pending} FOR UPDATE OF t SKIP LOCKED
            ), held AS MATERIALIZED (
                SELECT c.key, pg_catalog.min(c.rank) AS rank FROM chosen c
                WHERE (c.id {is} ANY (SELECT l.id FROM locked l)) IS NOT TRUE GROUP BY c.key
            ), claimed AS (
                UPDATE {table} t SET {status} = {in_progress}, {locked_at} = pg_catalog.clock_timestamp(), {locked_by} = $1::pg_catalog.text
                FROM locked l
                WHERE t.{id} {is} l.id AND NOT EXISTS (SELECT FROM held h WHERE h.key = l.key AND h.rank < l.rank)
            )
            SELECT (SELECT pg_catalog.count(*) FROM ready), (SELECT pg_catalog.count(*) FROM free)"
        )
    }

    /// In the order of the claim. `concat` gives the text that pgoutput would send; for some types `::text`
    /// does not. The last columns have no values, and the types of arrays of the event's columns: Postgres refuses a
    /// prepared statement whose types have changed, and the values would be read as those of other types. (Of an array,
    /// unlike of some types, there is a binary form.)
    fn fetch(&self, event: &Relation) -> String {
        let StatementWriter { table, id, .. } = self;
        let WorkColumns { order, created_at, retry_count, .. } = &self.names;
        let mine = self.mine();
        let text = |column: &Column| {
            let name = quote_ident(&column.name);
            // IS NOT NULL is also false for a composite value of which one field is NULL.
            format!(
                ", CASE WHEN pg_catalog.num_nulls(t.{name}) = 0 THEN pg_catalog.concat(t.{name}) END"
            )
        };
        let typed = |column: &Column| {
            format!(", CASE WHEN false THEN ARRAY[t.{}] END", quote_ident(&column.name))
        };
        let columns = event.columns.iter();
        let event: String = columns.clone().map(text).chain(columns.map(typed)).collect();
        format!(
            "SELECT t.{id}::pg_catalog.text, CASE WHEN pg_catalog.isfinite(t.{created_at}) \
             THEN (extract(epoch FROM t.{created_at}::pg_catalog.timestamptz) * 1000000)::bigint END, t.{retry_count}::integer{event} \
             FROM {table} t WHERE {mine} ORDER BY t.{order}"
        )
    }

    fn left(&self) -> String {
        let StatementWriter { table, slot_exists, .. } = self;
        let WorkColumns { status, locked_by, .. } = &self.names;
        let StatusValues { pending, in_progress, .. } = &self.values;
        format!(
            "SELECT {slot_exists}, CASE WHEN {slot_exists} THEN \
             EXISTS (SELECT FROM {table} WHERE {status} = {in_progress}) \
             OR EXISTS (SELECT FROM {table} WHERE {status} = {pending} AND {locked_by} IS NOT NULL) \
             ELSE true END, CASE WHEN {slot_exists} THEN \
             EXISTS (SELECT FROM pg_catalog.pg_publication_tables WHERE pubname = {} AND schemaname = {} AND tablename = {}) \
             ELSE false END",
            quote_literal(self.publication),
            quote_literal(&self.outbox.schema),
            quote_literal(&self.outbox.table)
        )
    }

    /// Rows that still belong to the claim.
    fn mine(&self) -> String {
        let WorkColumns { status, locked_by, .. } = &self.names;
        let in_progress = &self.values.in_progress;
        format!("t.{status} = {in_progress} AND t.{locked_by} = $1")
    }

    fn named(&self) -> String {
        format!("pg_catalog.unnest($2::pg_catalog.text[]::{}[]) AS f (id)", self.id_type)
    }

    /// The rows of a list that still belong to the claim.
    fn mine_among(&self, list: &str) -> String {
        format!("{list} WHERE {} AND t.{} {} f.id", checked(&self.mine()), self.id, self.is)
    }

    fn published(&self) -> String {
        let table = &self.table;
        let WorkColumns { status, locked_at, next_retry_at, .. } = &self.names;
        let mine = self.mine_among(&self.named());
        if self.polling.on_published == OnPublished::Delete {
            return format!("DELETE FROM {table} t USING {mine}");
        }
        let published = &self.values.published;
        format!(
            "UPDATE {table} t SET {status} = {published}, {locked_at} = NULL, {next_retry_at} = NULL \
             FROM {mine}"
        )
    }

    fn failed(&self) -> String {
        let WorkColumns { status, failed_at, locked_at, next_retry_at, .. } = &self.names;
        let failed = &self.values.failed;
        self.with_reasons(&format!(
            "{status} = {failed}, {failed_at} = pg_catalog.now(), {locked_at} = NULL, {next_retry_at} = NULL"
        ))
    }

    fn noted(&self) -> String {
        let next_retry_at = &self.names.next_retry_at;
        self.with_reasons(&format!(
            "{next_retry_at} = pg_catalog.now() + f.wait_ms * interval '1 ms'"
        ))
    }

    /// None of a key of which another claim has taken a row, or of which a row may be gone: then that row is
    /// published again, and those behind it must be published again, too. The rows are locked before they
    /// are compared.
    fn retaken(&self) -> String {
        let StatementWriter { table, id, is, .. } = self;
        let WorkColumns { status, locked_by, .. } = &self.names;
        let StatusValues { pending, in_progress, .. } = &self.values;
        let (key, list) = (key(self.outbox, self.facts), self.named());
        format!(
            "WITH held AS MATERIALIZED (
                SELECT t.{id} AS id, {key} AS key, t.{status} AS status, t.{locked_by} AS claim
                FROM {table} t JOIN {list} ON t.{id} {is} f.id FOR UPDATE OF t
            )
            UPDATE {table} t SET {status} = {in_progress} FROM held h
            WHERE t.{id} {is} h.id AND h.status = {pending} AND h.claim = $1
              AND NOT EXISTS (SELECT FROM held o WHERE o.key = h.key AND (o.claim = $1) IS NOT TRUE)
              AND (SELECT pg_catalog.count(*) FROM held) = pg_catalog.cardinality($2)"
        )
    }

    fn with_reasons(&self, set: &str) -> String {
        let WorkColumns { retry_count, failure_reason, .. } = &self.names;
        let table = &self.table;
        let mine = self.mine_among(&format!(
            "ROWS FROM (pg_catalog.unnest($2::pg_catalog.text[]::{}[]), pg_catalog.unnest($3::integer[]), pg_catalog.unnest($4::pg_catalog.text[]), pg_catalog.unnest($5::bigint[])) AS f (id, attempts, reason, wait_ms)",
            self.id_type
        ));
        format!(
            "UPDATE {table} t SET {retry_count} = greatest(t.{retry_count}, f.attempts), {failure_reason} = f.reason::{}, {set} \
             FROM {mine}",
            // A cast that is written out cuts what is too long.
            self.reason_type
        )
    }

    /// A row that was claimed once keeps the claim's name, because no slot carries it.
    fn free(&self, which: &str) -> String {
        let table = &self.table;
        let WorkColumns { status, locked_at, .. } = &self.names;
        let pending = &self.values.pending;
        format!("UPDATE {table} t SET {status} = {pending}, {locked_at} = NULL {which}")
    }

    /// Rows that another transaction has locked are skipped until the next renewal.
    fn renew(&self) -> String {
        let StatementWriter { table, id, is, .. } = self;
        let WorkColumns { status, locked_at, locked_by, .. } = &self.names;
        let in_progress = &self.values.in_progress;
        format!(
            "UPDATE {table} SET {locked_at} = pg_catalog.clock_timestamp() WHERE {id} {is} ANY (ARRAY(\
             SELECT {id} FROM {table} WHERE {status} = {in_progress} AND {locked_by} = ANY ($1::pg_catalog.text[]) \
             AND {locked_at} < pg_catalog.now() - $2::bigint * interval '1 ms' FOR UPDATE SKIP LOCKED)) AND {}",
            checked(&format!(
                "{status} = {in_progress} AND {locked_by} = ANY ($1::pg_catalog.text[])"
            ))
        )
    }

    fn held(&self) -> String {
        let table = &self.table;
        let WorkColumns { status, locked_at, locked_by, .. } = &self.names;
        let in_progress = &self.values.in_progress;
        format!(
            "SELECT {locked_by}::pg_catalog.text, pg_catalog.count(*), pg_catalog.count(*) \
             FILTER (WHERE {locked_at} < pg_catalog.now() - $2::bigint * interval '1 ms') \
             FROM {table} WHERE {status} = {in_progress} AND {locked_by} = ANY ($1::pg_catalog.text[]) GROUP BY 1"
        )
    }

    /// Not before every process has had a lease's time to renew since the database was started.
    fn expire(&self) -> String {
        let StatementWriter { table, id, is, .. } = self;
        let WorkColumns { status, locked_at, .. } = &self.names;
        let in_progress = &self.values.in_progress;
        let void = format!(
            "t.{status} = {in_progress} AND (t.{locked_at} IS NULL \
             OR t.{locked_at} < pg_catalog.now() - $1::bigint * interval '1 ms') \
             AND pg_catalog.pg_postmaster_start_time() < pg_catalog.now() - $1::bigint * interval '1 ms'"
        );
        self.free(&format!(
            "WHERE t.{id} {is} ANY (ARRAY(SELECT t.{id} FROM {table} t WHERE {void} FOR UPDATE SKIP LOCKED)) AND {}",
            checked(&void)
        ))
    }

    fn clean(&self) -> String {
        let StatementWriter { table, id, is, .. } = self;
        let WorkColumns { status, created_at, .. } = &self.names;
        let published = &self.values.published;
        format!(
            "DELETE FROM {table} WHERE {id} {is} ANY (ARRAY(SELECT {id} FROM {table} WHERE {status} = {published} \
             AND {created_at} < pg_catalog.now() - $1::bigint * interval '1 ms' \
             ORDER BY {created_at} LIMIT $2::bigint FOR UPDATE SKIP LOCKED)) AND {}",
            checked(&format!("{status} = {published}"))
        )
    }

    fn mark(&self) -> String {
        let table = &self.table;
        let WorkColumns { status, locked_by, .. } = &self.names;
        let StatusValues { pending, in_progress, failed, .. } = &self.values;
        format!(
            "UPDATE {table} SET {locked_by} = 'handover' WHERE {status} IN ({pending}, {in_progress}, {failed}) AND {locked_by} IS NULL"
        )
    }

    /// Compared as texts, because an enum may lack a value that is never written.
    fn others(&self) -> String {
        let (table, status) = (&self.table, &self.names.status);
        let StatusValues { pending, in_progress, published, failed } = &self.values;
        format!(
            "SELECT pg_catalog.count(*), pg_catalog.quote_nullable(pg_catalog.left(pg_catalog.min({status}::pg_catalog.text), 60)) \
             FROM {table} WHERE ({status}::pg_catalog.text IN ({pending}, {in_progress}, {published}, {failed})) IS NOT TRUE"
        )
    }

    fn backlog(&self) -> String {
        let table = &self.table;
        let WorkColumns { order, status, created_at, .. } = &self.names;
        let StatusValues { pending, in_progress, .. } = &self.values;
        format!(
            "SELECT w.rows + h.rows, CASE WHEN coalesce(w.at, h.at, f.at) IS NOT NULL \
             THEN greatest(extract(epoch FROM pg_catalog.clock_timestamp() - least(w.at, h.at, f.at))::double precision, 0) \
             WHEN w.rows + h.rows > 0 THEN double precision 'NaN' ELSE 0 END \
             FROM (SELECT pg_catalog.count(*) AS rows, pg_catalog.min(p.at) FILTER (WHERE pg_catalog.isfinite(p.at)) AS at \
             FROM (SELECT {created_at} AS at FROM {table} WHERE {status} = {pending} LIMIT $1::bigint) p) w, \
             (SELECT pg_catalog.count(*) AS rows, pg_catalog.min(i.at) FILTER (WHERE pg_catalog.isfinite(i.at)) AS at \
             FROM (SELECT {created_at} AS at FROM {table} WHERE {status} = {in_progress} OFFSET 0) i) h, \
             (SELECT (SELECT CASE WHEN pg_catalog.isfinite({created_at}) THEN {created_at} END FROM {table} \
             WHERE {status} = {pending} ORDER BY {order} LIMIT 1) AS at) f"
        )
    }
}

#[cfg(test)]
#[path = "statements_tests.rs"]
pub(super) mod tests;
