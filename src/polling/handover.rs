//! Moves a table from polling to the slot, so that exactly one of the two publishes each row.
//!
//! A slot carries what is committed after its consistent point, and CREATE_REPLICATION_SLOT can
//! export a snapshot of that point: rows that are visible in it belong to polling, all others to
//! the slot. While no claim is made:
//!
//! 1. A temporary slot is created, and its snapshot exported.
//! 2. Under that snapshot, the rows that wait are marked as polling's (`locked_by`).
//! 3. The slot is copied to its permanent name: the copy begins at the same point.
//!
//! From then on pollers claim only rows that are marked or were claimed before: they publish these
//! and stop by themselves. Applications can write all the time. A crash before the third step
//! leaves marks that change nothing; after it everything is done.

use tokio_postgres::Client;

use super::settings::{PollingSettings, StatusValues};
use super::statements::Statements;
use super::table_facts::polled_outbox;
use crate::base::clock::unix_now_us;
use crate::base::error::{Exit, Fault};
use crate::base::figures::counted;
use crate::outbox::settings::OutboxTable;
use crate::source::connect;
use crate::source::faults::{no_logical_wal, query_fault};
use crate::source::quote::{quote_ident, quote_literal};
use crate::source::settings::SourceSettings;
use crate::source::slot_wait::NO_TIMEOUTS_SQL;

/// Postgres notices within 30 s that this program has vanished, while it waits for the next statement: no row is
/// claimed as long as the session holds the turn.
const NOTICE_LOST_CLIENT_SQL: &str = "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; \
     SET tcp_keepalives_count = 3; SET tcp_user_timeout = 30000";

/// The rule that a table must follow before it moves.
pub(crate) const BY_INSERT: &str = "with a slot every INSERT is an event, whatever the status, and an UPDATE is none: let the \
     writers insert a row only when it is to be published";

pub(crate) struct TableHandover<'a> {
    pub(crate) source: &'a SourceSettings,
    pub(crate) polling: &'a PollingSettings,
    pub(crate) statements: &'a Statements,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HandoverState {
    /// The slot exists.
    pub(crate) handed_over: bool,
    /// Rows are left that polling must publish.
    pub(crate) left: bool,
    /// The publication carries the table. If not, the slot belongs to something else.
    pub(crate) published: bool,
}

impl HandoverState {
    pub(crate) async fn read(
        client: &Client,
        statements: &Statements,
    ) -> Result<HandoverState, tokio_postgres::Error> {
        let row = client.query_one(&statements.left, &[]).await?;
        Ok(HandoverState {
            handed_over: row.try_get(0)?,
            left: row.try_get(1)?,
            published: row.try_get(2)?,
        })
    }

    /// Why the table must not be polled beside this slot.
    pub(crate) fn fault(&self, source: &SourceSettings) -> Fault {
        let SourceSettings { slot, publication, .. } = source;
        let (code, what, mend) = if self.published {
            (
                "slot.exists",
                format!(
                    "slot {slot} exists: it carries the rows of this table, and polling would publish them twice"
                ),
                format!(
                    "source.mode = \"cdc\" goes on from the slot. Before it is dropped (walrelay slot drop {slot}), what it has carried must be marked, or polling publishes all of it again: docs/polling.md, Moving back"
                ),
            )
        } else {
            // The slot has the same name by accident.
            (
                "slot.foreign",
                format!(
                    "slot {slot} exists, and publication {publication} does not carry this table: nothing would publish its rows"
                ),
                "give source.slot a name of its own, the same for all relays that poll this table"
                    .to_owned(),
            )
        };
        Fault::new(Exit::Slot, code, what, "source.slot", mend)
    }
}

/// [`HandoverState::read`] with a fault for its error.
pub(crate) async fn state(
    client: &Client,
    statements: &Statements,
) -> Result<HandoverState, Fault> {
    let state = HandoverState::read(client, statements).await;
    state.map_err(|error| query_fault(&error, "looking for the slot"))
}

/// Whether the server can decode its WAL: from PostgreSQL 19 on, the first logical slot raises the level.
const DECODES_SQL: &str = "SELECT level = 'logical' OR level = 'replica' AND \
    pg_catalog.current_setting('effective_wal_level', true) IS NOT NULL, level \
    FROM pg_catalog.current_setting('wal_level') AS level";

impl TableHandover<'_> {
    /// Refuses a table with rows that nobody would publish, and a server without logical decoding. Changes nothing.
    pub(crate) async fn check(&self, client: &Client) -> Result<(), Fault> {
        let row = client.query_one(DECODES_SQL, &[]).await.map_err(query_failed)?;
        if !row.get::<_, bool>(0) {
            return Err(no_logical_wal(&format!("wal_level is {}", row.get::<_, &str>(1))));
        }
        // Looking at each row takes longer than a role's settings may allow.
        client.batch_execute(NO_TIMEOUTS_SQL).await.map_err(query_failed)?;
        self.refuse_other_rows(client).await
    }

    /// Refuses rows that nobody would publish: the slot does not carry what is visible here, and polling publishes
    /// what it knows to be pending.
    async fn refuse_other_rows(&self, client: &Client) -> Result<(), Fault> {
        let row = client.query_one(&self.statements.others, &[]).await.map_err(query_failed)?;
        match row.get(0) {
            0 => Ok(()),
            rows => Err(other_rows(polled_outbox(self.source)?, self.polling, rows, row.get(1))),
        }
    }

    /// Creates the slot and marks the rows of polling; returns how many. `client` must be outside a
    /// transaction. A claim that is being made is waited for, and none is made in the meantime.
    pub(crate) async fn run(&self, client: &Client) -> Result<u64, Fault> {
        // The lock of a claim, held by the session instead of a transaction.
        let turn = |function| self.statements.turn.replace("pg_advisory_xact_lock", function);
        // Marking a million rows takes longer than a role's settings may allow.
        let settings = format!("{NO_TIMEOUTS_SQL}; {NOTICE_LOST_CLIENT_SQL}");
        client.batch_execute(&settings).await.map_err(query_failed)?;
        self.await_open_transactions().await?;
        client.batch_execute(&turn("pg_advisory_lock")).await.map_err(query_failed)?;
        // Another handover may have been first.
        let marked = match state(client, self.statements).await {
            Ok(HandoverState { handed_over: false, .. }) => self.make(client).await,
            Ok(state) => Err(state.fault(self.source)),
            Err(fault) => Err(fault),
        };
        let unlocked = client.batch_execute(&turn("pg_advisory_unlock")).await;
        let marked = marked?;
        unlocked.map_err(query_failed)?;
        Ok(marked)
    }

    /// Creating a slot waits for every open transaction. Creating one first, before claims are held
    /// up, waits for the long ones.
    async fn await_open_transactions(&self) -> Result<(), Fault> {
        let mut control = self.control().await?;
        let waited = format!("{} NOEXPORT_SNAPSHOT", create(&temporary_name()));
        control.query(&waited).await.map(drop).map_err(|error| self.refused(&error))
    }

    async fn control(&self) -> Result<connect::ReplicationClient, Fault> {
        connect::open(&self.source.connection).await.map_err(|error| self.refused(&error))
    }

    fn refused(&self, error: &connect::ConnectError) -> Fault {
        let source = self.source;
        error.fault(&source.connection, &source.slot, &source.publication)
    }

    async fn make(&self, client: &Client) -> Result<u64, Fault> {
        let mut control = self.control().await?;
        let temporary = temporary_name();
        let exported = format!("{} EXPORT_SNAPSHOT", create(&temporary));
        let rows = control.query(&exported).await.map_err(|error| self.refused(&error))?;
        let snapshot = rows.first().and_then(|row| row.get(2)).cloned().flatten();
        let snapshot = snapshot.ok_or_else(no_snapshot)?;
        let begin = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT {}",
            quote_literal(&snapshot)
        );
        let marked = async {
            client.batch_execute(&begin).await.map_err(query_failed)?;
            // Some may be younger than the first check.
            self.refuse_other_rows(client).await?;
            let marked = client.execute(&self.statements.mark, &[]).await.map_err(query_failed)?;
            client.batch_execute("COMMIT").await.map_err(query_failed)?;
            Ok(marked)
        };
        let marked = match marked.await {
            Ok(marked) => marked,
            Err(fault) => {
                client.batch_execute("ROLLBACK").await.map_err(query_failed)?;
                return Err(fault);
            }
        };
        let copy = "SELECT pg_catalog.pg_copy_logical_replication_slot($1, $2, false)";
        let names: [&(dyn tokio_postgres::types::ToSql + Sync); 2] =
            [&temporary, &self.source.slot];
        client.execute(copy, &names).await.map_err(query_failed)?;
        // The temporary slot ends with its connection.
        drop(control);
        Ok(marked)
    }
}

/// The fault of rows with a status that polling does not know, one of which is `status`.
fn other_rows(outbox: &OutboxTable, polling: &PollingSettings, rows: i64, status: &str) -> Fault {
    let StatusValues { pending, published, .. } = polling.status_values.quoted();
    let (column, rows) = (&polling.columns.status, counted(rows as usize, "row"));
    Fault::new(
        Exit::Source,
        "outbox.other-status",
        format!(
            "{column} of {rows} in {outbox} is no value that polling knows, for example {status}: no such row would be published"
        ),
        "source.polling.status_values",
        format!(
            "{BY_INSERT}\nthen set {column} of such a row to {pending} if it is to be published, and to {published} or delete it if not; and run walrelay outbox handover again"
        ),
    )
}

fn query_failed(error: tokio_postgres::Error) -> Fault {
    query_fault(&error, "handing the table over")
}

/// Unique, because a temporary slot may outlive its connection for a moment.
fn temporary_name() -> String {
    format!("walrelay_handover_{:x}_{:x}", std::process::id(), unix_now_us())
}

fn create(name: &str) -> String {
    format!("CREATE_REPLICATION_SLOT {} TEMPORARY LOGICAL pgoutput", quote_ident(name))
}

fn no_snapshot() -> Fault {
    Fault::new(
        Exit::Source,
        "source.protocol",
        "postgres made a slot and returned no snapshot",
        "",
        "report it with the server's version; nothing was changed",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_nobody_would_publish_are_told_with_what_mends_them() {
        let (outbox, mut polling) = (OutboxTable::default(), PollingSettings::default());
        polling.columns.status = "state".to_owned();
        polling.status_values.pending = "NEW".to_owned();
        let fault = other_rows(&outbox, &polling, 2, "'DRAFT'");
        assert_eq!(fault.code, "outbox.other-status");
        for words in ["state of 2 rows in ", "for example 'DRAFT'"] {
            assert!(fault.what.contains(words), "{fault}");
        }
        for words in ["an UPDATE is none", "set state of such a row to 'NEW'"] {
            assert!(fault.mend.contains(words), "{fault}");
        }
    }
}
