//! The statements of polling, written once for a table.
//!
//! Names are quoted and status words stand in the text, so that the planner sees that the partial
//! indexes of sql/polling.sql fit.
//!
//! # Order per key, and what it costs
//!
//! Claims are made one at a time for each table, over all processes: [`Statements::turn`] takes an
//! advisory lock that ends with the transaction, and the claim is a statement of its own behind it,
//! so that its snapshot shows what the claim before has taken. A claim passes over every key of
//! which a row is in somebody's hands, or waits for its retry, and takes the others' rows from the
//! oldest on. So the rows of a key are in one pair of hands at a time, in order, and publishing them
//! needs no further lock. It costs: claims do not run beside each other (publishing does), and a key
//! is as fast as one batch after another. A row that somebody outside holds locked is skipped, and
//! its key with it.

use crate::base::template::Part;
use crate::outbox::settings::OutboxTable;
use crate::source::quote::{quote_ident, quote_literal, quote_table};

use super::settings::{OnPublished, PollingSettings};

/// First half of the advisory lock that claims take turns by: "walr".
pub const TURN_CLASS: i32 = 0x7761_6C72;

/// Columns of a fetched row: id as text.
pub const ID: usize = 0;
/// When the row was written, in microseconds since the Unix epoch.
pub const CREATED: usize = 1;
/// Attempts that have failed.
pub const ATTEMPTS: usize = 2;
/// The first of the event's own columns.
pub const EVENT: usize = 3;

/// What the statements are made from.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The table, and the names of the event's columns.
    pub outbox: &'a OutboxTable,
    /// `[source.polling]`.
    pub polling: &'a PollingSettings,
    /// The slot to which the table may have been handed over.
    pub slot: &'a str,
    /// And its publication.
    pub publication: &'a str,
    /// Type of the id column, as SQL.
    pub id_type: &'a str,
    /// The operator that compares ids, as SQL: no schema is searched for it but that of Postgres.
    pub id_equality: &'a str,
    /// Type of the column of failure reasons, as SQL.
    pub reason_type: &'a str,
    /// Columns of the event, in the order in which they are read.
    pub event_columns: &'a [String],
}

/// One table's statements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statements {
    /// Waits for the turn to claim, within a transaction; tells where the log stands.
    pub turn: String,
    /// Claims, and counts: rows that were ready, those of keys that were free, those claimed.
    /// Parameters: whose they are, how far to look, most bytes. The most rows stand in the text: from
    /// them the planner learns that the way to each is its index.
    pub claim: String,
    /// The rows of a claim. Parameter: whose. Not within the claim: a reader that is slow, or frozen,
    /// would keep everybody from the turn.
    pub fetch: String,
    /// Has the table been handed over? Are there rows that polling still has to publish? Does the
    /// publication carry the table?
    pub left: String,
    /// Published. Parameters: whose, ids.
    pub published: String,
    /// Given up. Parameters: whose, ids, attempts, reasons.
    pub failed: String,
    /// Has failed and will be tried again. Parameters: whose, ids, attempts, reasons, waits in ms.
    pub noted: String,
    /// Free again. Parameters: whose, ids.
    pub given_back: String,
    /// Everything of a claim is free again. Parameter: whose.
    pub abandoned: String,
    /// Claims live on that were not renewed for so long. Parameters: whose, milliseconds.
    pub renew: String,
    /// Claims that were not renewed are void. Parameter: the lease in ms.
    pub expire: String,
    /// Old published rows go. Parameters: age in ms, most rows.
    pub clean: String,
    /// Rows that wait, at most so many as the parameter says, and the age of the oldest.
    pub backlog: String,
}

impl Statements {
    /// Writes them.
    #[must_use]
    pub fn of(subject: &Subject<'_>) -> Statements {
        let writer = Writer::new(subject);
        Statements {
            turn: writer.turn(),
            claim: writer.claim(),
            fetch: writer.fetch(),
            left: writer.left(),
            published: writer.published(),
            failed: writer.failed(),
            noted: writer.noted(),
            given_back: writer.free(&format!("FROM {}", writer.mine_among(&writer.named()))),
            abandoned: writer.free(&format!("WHERE {}", writer.mine())),
            renew: writer.renew(),
            expire: writer.expire(),
            clean: writer.clean(),
            backlog: writer.backlog(),
        }
    }
}

/// What the order holds for: the route's key, as SQL over `t`.
pub(super) fn key(outbox: &OutboxTable) -> String {
    let key = outbox.route.key(&outbox.columns);
    let parts = key.parts().iter().map(|part| match part {
        Part::Column(name) => format!("t.{}::pg_catalog.text", quote_ident(name)),
        Part::Literal(text) => quote_literal(text),
    });
    parts.collect::<Vec<_>>().join(" || ")
}

/// A condition on rows that are found by their ids. As a plain one it would tempt the planner to
/// look them up by status instead: statistics of a quiet hour know no row but published ones, and
/// what is believed to be one row is then read once for each id.
fn checked(condition: &str) -> String {
    format!("CASE WHEN {condition} THEN true END")
}

/// Quoted names and words.
struct Writer<'a> {
    subject: &'a Subject<'a>,
    table: String,
    id: String,
    is: &'a str,
    order: String,
    status: String,
    pending: String,
    in_progress: String,
    slot_exists: String,
}

impl<'a> Writer<'a> {
    fn new(subject: &'a Subject<'a>) -> Writer<'a> {
        let Subject { outbox, polling, slot, .. } = subject;
        Writer {
            subject,
            table: quote_table(&outbox.schema, &outbox.table),
            id: quote_ident(&outbox.columns.id),
            is: subject.id_equality,
            order: quote_ident(&polling.columns.order),
            status: quote_ident(&polling.columns.status),
            pending: quote_literal(&polling.words.pending),
            in_progress: quote_literal(&polling.words.in_progress),
            slot_exists: format!(
                "EXISTS (SELECT FROM pg_catalog.pg_replication_slots WHERE slot_name = {} AND database = pg_catalog.current_database())",
                quote_literal(slot)
            ),
        }
    }

    fn column(&self, pick: impl Fn(&super::settings::WorkColumns) -> &String) -> String {
        quote_ident(pick(&self.subject.polling.columns))
    }

    /// Where the log may not be looked at (some hosts), another number that rises does: positions only
    /// say what was claimed before what. The table's own number is what claims of different tables differ by.
    fn turn(&self) -> String {
        let table = quote_literal(&self.table);
        format!(
            "SELECT pg_catalog.pg_advisory_xact_lock({TURN_CLASS}, ({table}::pg_catalog.regclass::pg_catalog.oid::bigint - 2147483648)::integer), \
             CASE WHEN pg_catalog.current_setting('wal_level') = 'logical' \
             THEN (pg_catalog.pg_current_wal_insert_lsn() - '0/0'::pg_catalog.pg_lsn)::bigint \
             ELSE pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::pg_catalog.text::bigint END"
        )
    }

    /// Rows that no slot carries: written before there was one, or claimed before.
    fn ours(&self) -> String {
        let locked_by = self.column(|names| &names.locked_by);
        format!("(t.{locked_by} IS NOT NULL OR NOT {})", self.slot_exists)
    }

    /// What is stored is small (compressed, or elsewhere) and known without being read: only what may
    /// fit is read and weighed. Busy keys are looked up by hash, whatever the planner believes of a
    /// table whose statistics are from a quiet hour.
    fn claim(&self) -> String {
        let Writer { table, id, is, order, status, pending, in_progress, .. } = self;
        let key = key(self.subject.outbox);
        let batch_max = self.subject.polling.batch_max;
        let payload = quote_ident(&self.subject.outbox.columns.payload);
        let next_retry_at = self.column(|names| &names.next_retry_at);
        let locked_at = self.column(|names| &names.locked_at);
        let locked_by = self.column(|names| &names.locked_by);
        let ours = self.ours();
        let still_pending = checked(&format!("t.{status} = {pending}"));
        format!(
            "WITH busy AS MATERIALIZED (
                SELECT {key} AS key FROM {table} t WHERE t.{status} = {in_progress}
                UNION
                SELECT {key} FROM {table} t WHERE t.{status} = {pending} AND t.{next_retry_at} > pg_catalog.now()
            ), ready AS MATERIALIZED (
                SELECT t.{id} AS id, {key} AS key, t.{order} AS place FROM {table} t
                WHERE t.{status} = {pending} AND (t.{next_retry_at} IS NULL OR t.{next_retry_at} <= pg_catalog.now())
                  AND {ours}
                ORDER BY t.{order} LIMIT $2::bigint
            ), free AS MATERIALIZED (
                SELECT r.id, r.key, pg_catalog.row_number() OVER (ORDER BY r.place) AS rank FROM ready r
                WHERE (r.key IN (SELECT b.key FROM busy b WHERE b.key IS NOT NULL)) IS NOT TRUE
                ORDER BY r.place LIMIT {batch_max}
            ), stored AS MATERIALIZED (
                SELECT f.id, f.key, f.rank, t.{payload} AS payload,
                       pg_catalog.sum(coalesce(pg_catalog.pg_column_size(t.{payload}), 0)) OVER (ORDER BY f.rank) AS bytes
                FROM free f JOIN {table} t ON t.{id} {is} f.id
            ), weighed AS MATERIALIZED (
                SELECT s.id, s.key, s.rank,
                       pg_catalog.sum(coalesce(pg_catalog.octet_length(s.payload::pg_catalog.text), 0)) OVER (ORDER BY s.rank) AS bytes
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
                UPDATE {table} t SET {status} = {in_progress}, {locked_at} = pg_catalog.clock_timestamp(), {locked_by} = $1
                FROM locked l
                WHERE t.{id} {is} l.id AND NOT EXISTS (SELECT FROM held h WHERE h.key = l.key AND h.rank < l.rank)
                RETURNING 1
            )
            SELECT (SELECT pg_catalog.count(*) FROM ready), (SELECT pg_catalog.count(*) FROM free), (SELECT pg_catalog.count(*) FROM claimed)"
        )
    }

    /// In the order of the claim. Text as the stream would bring it: `::text` differs for some types.
    fn fetch(&self) -> String {
        let Writer { table, id, order, .. } = self;
        let created_at = self.column(|names| &names.created_at);
        let retry_count = self.column(|names| &names.retry_count);
        let mine = self.mine();
        let event: String = (self.subject.event_columns.iter())
            .map(|name| quote_ident(name))
            .map(|name| {
                format!(", CASE WHEN t.{name} IS NOT NULL THEN pg_catalog.concat(t.{name}) END")
            })
            .collect();
        format!(
            "SELECT t.{id}::pg_catalog.text, CASE WHEN pg_catalog.isfinite(t.{created_at}) \
             THEN (extract(epoch FROM t.{created_at}::pg_catalog.timestamptz) * 1000000)::bigint END, t.{retry_count}::integer{event} \
             FROM {table} t WHERE {mine} ORDER BY t.{order}"
        )
    }

    fn left(&self) -> String {
        let Writer { table, status, pending, in_progress, slot_exists, .. } = self;
        let locked_by = self.column(|names| &names.locked_by);
        format!(
            "SELECT {slot_exists}, CASE WHEN {slot_exists} THEN \
             EXISTS (SELECT FROM {table} WHERE {status} = {in_progress}) \
             OR EXISTS (SELECT FROM {table} WHERE {status} = {pending} AND {locked_by} IS NOT NULL) \
             ELSE true END, CASE WHEN {slot_exists} THEN \
             EXISTS (SELECT FROM pg_catalog.pg_publication_tables WHERE pubname = {} AND schemaname = {} AND tablename = {}) \
             ELSE false END",
            quote_literal(self.subject.publication),
            quote_literal(&self.subject.outbox.schema),
            quote_literal(&self.subject.outbox.table)
        )
    }

    /// Of a claim, and not taken over by somebody else since.
    fn mine(&self) -> String {
        let Writer { status, in_progress, .. } = self;
        let locked_by = self.column(|names| &names.locked_by);
        format!("t.{status} = {in_progress} AND t.{locked_by} = $1")
    }

    /// The rows that are named.
    fn named(&self) -> String {
        format!("pg_catalog.unnest($2::pg_catalog.text[]::{}[]) AS f (id)", self.subject.id_type)
    }

    /// Of the rows that a list names, those of a claim.
    fn mine_among(&self, list: &str) -> String {
        format!("{list} WHERE {} AND t.{} {} f.id", checked(&self.mine()), self.id, self.is)
    }

    fn published(&self) -> String {
        let Writer { table, status, .. } = self;
        let mine = self.mine_among(&self.named());
        if self.subject.polling.on_published == OnPublished::Delete {
            return format!("DELETE FROM {table} t USING {mine}");
        }
        let word = quote_literal(&self.subject.polling.words.published);
        let locked_at = self.column(|names| &names.locked_at);
        let next_retry_at = self.column(|names| &names.next_retry_at);
        format!(
            "UPDATE {table} t SET {status} = {word}, {locked_at} = NULL, {next_retry_at} = NULL \
             FROM {mine}"
        )
    }

    fn failed(&self) -> String {
        let word = quote_literal(&self.subject.polling.words.failed);
        let status = &self.status;
        let failed_at = self.column(|names| &names.failed_at);
        let locked_at = self.column(|names| &names.locked_at);
        let next_retry_at = self.column(|names| &names.next_retry_at);
        self.with_reasons(&format!(
            "{status} = {word}, {failed_at} = pg_catalog.now(), {locked_at} = NULL, {next_retry_at} = NULL"
        ))
    }

    fn noted(&self) -> String {
        let next_retry_at = self.column(|names| &names.next_retry_at);
        self.with_reasons(&format!(
            "{next_retry_at} = pg_catalog.now() + f.wait_ms * interval '1 ms'"
        ))
    }

    fn with_reasons(&self, set: &str) -> String {
        let table = &self.table;
        let retry_count = self.column(|names| &names.retry_count);
        let failure_reason = self.column(|names| &names.failure_reason);
        let mine = self.mine_among(&format!(
            "ROWS FROM (pg_catalog.unnest($2::pg_catalog.text[]::{}[]), pg_catalog.unnest($3::integer[]), pg_catalog.unnest($4::pg_catalog.text[]), pg_catalog.unnest($5::bigint[])) AS f (id, attempts, reason, wait_ms)",
            self.subject.id_type
        ));
        format!(
            "UPDATE {table} t SET {retry_count} = greatest(t.{retry_count}, f.attempts), {failure_reason} = f.reason::{}, {set} \
             FROM {mine}",
            // A cast that is written out cuts what is too long.
            self.subject.reason_type
        )
    }

    /// A row that was claimed once keeps the name of who did: no slot carries it.
    fn free(&self, which: &str) -> String {
        let Writer { table, status, pending, .. } = self;
        let locked_at = self.column(|names| &names.locked_at);
        format!("UPDATE {table} t SET {status} = {pending}, {locked_at} = NULL {which}")
    }

    /// What somebody else holds locked is left for the next time, and holds up nothing.
    fn renew(&self) -> String {
        let Writer { table, id, is, status, in_progress, .. } = self;
        let locked_at = self.column(|names| &names.locked_at);
        let locked_by = self.column(|names| &names.locked_by);
        format!(
            "UPDATE {table} SET {locked_at} = pg_catalog.clock_timestamp() WHERE {id} {is} ANY (ARRAY(\
             SELECT {id} FROM {table} WHERE {status} = {in_progress} AND {locked_by} = ANY ($1::pg_catalog.text[]) \
             AND {locked_at} < pg_catalog.now() - $2::bigint * interval '1 ms' FOR UPDATE SKIP LOCKED)) AND {}",
            checked(&format!(
                "{status} = {in_progress} AND {locked_by} = ANY ($1::pg_catalog.text[])"
            ))
        )
    }

    /// Not before everybody has had the time to renew since the database came up.
    fn expire(&self) -> String {
        let Writer { table, id, is, status, in_progress, .. } = self;
        let locked_at = self.column(|names| &names.locked_at);
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
        let Writer { table, id, is, status, .. } = self;
        let word = quote_literal(&self.subject.polling.words.published);
        let created_at = self.column(|names| &names.created_at);
        format!(
            "DELETE FROM {table} WHERE {id} {is} ANY (ARRAY(SELECT {id} FROM {table} WHERE {status} = {word} \
             AND {created_at} < pg_catalog.now() - $1::bigint * interval '1 ms' \
             ORDER BY {created_at} LIMIT $2::bigint FOR UPDATE SKIP LOCKED)) AND {}",
            checked(&format!("{status} = {word}"))
        )
    }

    fn backlog(&self) -> String {
        let Writer { table, order, status, pending, in_progress, .. } = self;
        let created_at = self.column(|names| &names.created_at);
        format!(
            "SELECT (SELECT pg_catalog.count(*) FROM (SELECT FROM {table} WHERE {status} = {pending} LIMIT $1::bigint) w) \
             + (SELECT pg_catalog.count(*) FROM {table} WHERE {status} = {in_progress}), \
             coalesce(greatest(extract(epoch FROM pg_catalog.clock_timestamp() - least(\
             (SELECT CASE WHEN pg_catalog.isfinite({created_at}) THEN {created_at} END FROM {table} \
             WHERE {status} = {pending} ORDER BY {order} LIMIT 1), \
             (SELECT pg_catalog.min(h.at) FROM (SELECT {created_at} AS at FROM {table} \
             WHERE {status} = {in_progress} OFFSET 0) h WHERE pg_catalog.isfinite(h.at)))), 0), 0)::double precision"
        )
    }
}
