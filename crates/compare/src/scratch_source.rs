//! Objects that a comparison creates in Postgres and removes again: a schema with the outbox table
//! of the mode that is measured, and for the slot a publication and the slot, all of the same name.
//!
//! The table for the slot has no status columns and no indexes for claims, because an outbox that
//! is read from the slot needs none; polling gets the table of `sql/polling.sql`. The load writes
//! the same columns of both. A comparison holds an advisory lock on its name while it runs: objects
//! whose name is not locked were left behind by a comparison that died.

use std::time::{Duration, Instant};

use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::plan::CaptureMode;
use walrelay_base::error::{Exit, Fault};
use walrelay_base::random;
use walrelay_postgres::connect::ConnectErrorKind;
use walrelay_postgres::doctor::source as source_doctor;
use walrelay_postgres::faults::query_fault;
use walrelay_postgres::quote::{quote_ident, quote_literal};
use walrelay_postgres::settings::{ConnInfo, SourceSettings};

/// The code of faults that leave something behind.
pub(super) const LEFT_OVER: &str = "compare.left-over";
const PREFIX: &str = "walrelay_compare_";
/// The time limit of a statement; creating a slot waits for the open transactions of others.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);
/// How long a slot may stay active after its relay has ended.
const RELEASED_WITHIN: Duration = Duration::from_secs(10);
/// How long a server that is away is waited for, to remove what was made.
const BACK_WITHIN: Duration = Duration::from_secs(60);

const POLLING_SQL: &str = include_str!("../../../sql/polling.sql");
const CDC_SQL: &str = "CREATE TABLE public.outbox (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_key   text        NOT NULL,
    payload     jsonb,
    traceparent text,
    created_at  timestamptz NOT NULL DEFAULT pg_catalog.now()
);";

pub(super) struct ScratchSource {
    pub(super) name: String,
    /// Its session holds the lock on the name.
    client: Client,
}

pub(super) fn fresh_name() -> String {
    format!("{PREFIX}{:08x}", random::seed() as u32)
}

pub(super) async fn connect(info: &ConnInfo, application_name: &str) -> Result<Client, Fault> {
    let own = info.options.as_deref().unwrap_or_default();
    let info = ConnInfo {
        application_name: application_name.to_owned(),
        // SET would be one more counted transaction. A later -c overrides an earlier one. The session that
        // holds the lock is idle during a run, and ends soon after the host of the command is gone.
        options: Some(format!(
            "{own} -c statement_timeout={} -c idle_session_timeout=0 -c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3",
            ANSWERED_WITHIN.as_millis()
        )),
        ..info.clone()
    };
    let connected = walrelay_postgres::sql::connect(&info).await;
    connected.map(walrelay_postgres::sql::Sql::into_client).map_err(|error| {
        let fault = error.fault(&info, "", "");
        if error.kind() == ConnectErrorKind::Fatal { fault } else { fault.passing() }
    })
}

pub(super) async fn ask(
    client: &Client,
    doing: &str,
    sql: &str,
    parameters: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Vec<Row>, Fault> {
    client.query_typed(sql, parameters).await.map_err(|error| query_fault(&error, doing))
}

pub(super) async fn ask_one(client: &Client, doing: &str, sql: &str) -> Result<Row, Fault> {
    client.query_typed_one(sql, &[]).await.map_err(|error| query_fault(&error, doing))
}

impl ScratchSource {
    /// Connects, and checks that everything can be created. Creates nothing itself.
    pub(super) async fn open(source: &SourceSettings, name: &str) -> Result<ScratchSource, Fault> {
        let client = connect(&source.connection, name).await?;
        check_server(&client, source, name).await?;
        check_database(&client).await?;
        let lock = "SELECT pg_catalog.pg_advisory_lock(pg_catalog.hashtextextended($1, 0))";
        ask(&client, "locking the comparison's name", lock, &[(&name, Type::TEXT)]).await?;
        Ok(ScratchSource { name: name.to_owned(), client })
    }

    pub(super) async fn server_version(&self) -> Result<String, Fault> {
        let sql = "SELECT pg_catalog.current_setting('server_version')";
        Ok(ask_one(&self.client, "asking for its version", sql).await?.get(0))
    }

    /// Names of comparisons that died and left something in this database.
    pub(super) async fn abandoned(&self) -> Result<Vec<String>, Fault> {
        let sql = format!(
            "WITH found (name) AS (
                SELECT nspname::pg_catalog.text FROM pg_catalog.pg_namespace
                UNION SELECT pubname::pg_catalog.text FROM pg_catalog.pg_publication
                UNION SELECT slot_name::pg_catalog.text FROM pg_catalog.pg_replication_slots
                    WHERE database = pg_catalog.current_database() AND NOT active)
             SELECT name FROM found
             WHERE name ~ '^{PREFIX}[0-9a-f]{{8}}$' AND name <> $1
               AND CASE WHEN pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended(name, 0))
                   THEN pg_catalog.pg_advisory_unlock(pg_catalog.hashtextextended(name, 0)) ELSE false END
             ORDER BY name"
        );
        let name = [(&self.name as &(dyn ToSql + Sync), Type::TEXT)];
        let rows = ask(&self.client, "looking for left-overs", &sql, &name).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Creates the table of a mode, and publication and slot if it is read from the slot.
    pub(super) async fn make(&self, mode: CaptureMode) -> Result<(), Fault> {
        let schema = quote_ident(&self.name);
        let is_cdc = mode == CaptureMode::Cdc;
        let table = if is_cdc { CDC_SQL } else { POLLING_SQL };
        let table = table.replace("public.outbox", &format!("{schema}.outbox"));
        let mut sql = format!("CREATE SCHEMA {schema}; {table}\n");
        if is_cdc {
            sql += &format!("CREATE PUBLICATION {schema} FOR TABLE {schema}.outbox");
        }
        let made = self.client.batch_execute(&sql).await;
        made.map_err(|error| query_fault(&error, "making the scratch table"))?;
        if is_cdc { self.make_slot().await } else { Ok(()) }
    }

    /// Postgres creates a slot only when all transactions that were open have ended.
    async fn make_slot(&self) -> Result<(), Fault> {
        let slot = format!(
            "SELECT pg_catalog.pg_create_logical_replication_slot({}, 'pgoutput')",
            quote_literal(&self.name)
        );
        self.client.batch_execute(&slot).await.map_err(|error| {
            if error.code() != Some(&SqlState::QUERY_CANCELED) {
                return query_fault(&error, "making the scratch slot");
            }
            let waited = ANSWERED_WITHIN.as_secs();
            let what = format!("the scratch slot waited {waited} s for transactions that do not end");
            let mend = "SELECT pid, xact_start, query FROM pg_catalog.pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY xact_start;";
            Fault::new(Exit::Source, "compare.open-transactions", what, "source.url", mend)
        })
    }
}

/// Removes everything of this name. The server may be what has ended the comparison: then it is waited for.
pub(super) async fn remove(info: &ConnInfo, name: &str) -> Result<(), Fault> {
    let given_up = Instant::now() + BACK_WITHIN;
    loop {
        match remove_once(info, name).await {
            Err(fault) if fault.may_pass && Instant::now() < given_up => {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            removed => {
                let kept = |fault| Fault { code: LEFT_OVER, mend: left_over_sql(name), ..fault };
                return removed.map_err(kept);
            }
        }
    }
}

/// The slot is dropped first, because it retains WAL.
async fn remove_once(info: &ConnInfo, name: &str) -> Result<(), Fault> {
    let client = connect(info, name).await?;
    let left = |error| {
        let fault = query_fault(&error, "removing what the comparison made");
        // A server that shuts down says so before the connection is closed.
        let shutdowns = [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN];
        let shuts_down = error.code().is_some_and(|code| shutdowns.contains(code));
        if shuts_down || client.is_closed() { fault.passing() } else { fault }
    };
    let deadline = Instant::now() + RELEASED_WITHIN;
    loop {
        match drop_slot(&client, name).await {
            Ok(true) => break,
            Ok(false) if Instant::now() > deadline => {
                let what = format!("replication slot {name} is still in use");
                return Err(Fault::new(Exit::Slot, LEFT_OVER, what, "", ""));
            }
            // Another session dropped it, or its walsender has not released it yet.
            Err(error) if client.is_closed() || Instant::now() > deadline => {
                return Err(left(error));
            }
            Ok(false) | Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    let name = quote_ident(name);
    let sql = format!(
        "SET client_min_messages = warning; SET lock_timeout = '10s';
         DROP PUBLICATION IF EXISTS {name}; DROP SCHEMA IF EXISTS {name} CASCADE"
    );
    client.batch_execute(&sql).await.map_err(left)
}

/// True when the slot no longer exists.
async fn drop_slot(client: &Client, name: &str) -> Result<bool, tokio_postgres::Error> {
    const FOUND: &str =
        "SELECT active_pid FROM pg_catalog.pg_replication_slots WHERE slot_name = $1";
    const END: &str = "SELECT pg_catalog.pg_terminate_backend($1)";
    const DROP: &str = "SELECT pg_catalog.pg_drop_replication_slot($1)";
    match client.query_typed_opt(FOUND, &[(&name, Type::TEXT)]).await? {
        None => Ok(true),
        Some(row) => match row.get::<_, Option<i32>>(0) {
            // The relay has ended, but its walsender has not noticed that yet.
            Some(pid) => client.query_typed(END, &[(&pid, Type::INT4)]).await.map(|_| false),
            None => client.query_typed(DROP, &[(&name, Type::NAME)]).await.map(|_| true),
        },
    }
}

/// The statements that remove everything of this name by hand.
pub(super) fn left_over_sql(name: &str) -> String {
    let (literal, ident) = (quote_literal(name), quote_ident(name));
    format!(
        "SELECT pg_catalog.pg_drop_replication_slot(slot_name) FROM pg_catalog.pg_replication_slots WHERE slot_name = {literal};\n\
         DROP PUBLICATION IF EXISTS {ident}; DROP SCHEMA IF EXISTS {ident} CASCADE;"
    )
}

/// Checks that the server and the role allow one more replication slot.
async fn check_server(client: &Client, source: &SourceSettings, name: &str) -> Result<(), Fault> {
    let scratch = SourceSettings {
        slot: name.to_owned(),
        publication: name.to_owned(),
        outboxes: Vec::new(),
        messages: None,
        ..source.clone()
    };
    let report = source_doctor::report(client, &scratch).await?;
    // Slot, publication and table are missing by design: only the server, the role and the number
    // of free slots matter.
    let mut faults = report.findings.into_iter().filter_map(|finding| finding.fault);
    let hinders =
        |fault: &Fault| fault.code.starts_with("source.") || fault.code == "slot.none-free";
    faults.find(hinders).map_or(Ok(()), Err)
}

/// Checks that the role may create a schema, and that no publication would publish the load.
async fn check_database(client: &Client) -> Result<(), Fault> {
    const SQL: &str = "SELECT
        (SELECT pubname::pg_catalog.text FROM pg_catalog.pg_publication WHERE puballtables LIMIT 1),
        (SELECT slot_name || ' (' || plugin || ')' FROM pg_catalog.pg_replication_slots
         WHERE database = pg_catalog.current_database() AND plugin <> 'pgoutput' LIMIT 1),
        pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'),
        pg_catalog.current_database()::pg_catalog.text, current_user::pg_catalog.text";
    let row = ask_one(client, "looking at publications and the role's rights", SQL).await?;
    let (publication, slot): (Option<String>, Option<String>) = (row.get(0), row.get(1));
    let (may, database, role): (bool, String, String) = (row.get(2), row.get(3), row.get(4));
    let (code, what, mend) = match (publication, slot) {
        // Its subscribers would receive the load, and stop because they have no such table.
        (Some(publication), _) => (
            "compare.all-tables",
            format!("publication {publication} is FOR ALL TABLES: its readers would get the load"),
            "compare on a database without such a publication, for example a copy of this one"
                .to_owned(),
        ),
        (None, Some(slot)) => (
            "compare.other-plugin",
            format!(
                "slot {slot} has all tables of database {database}: its reader would get the load"
            ),
            "compare on a database without such a slot, for example a copy of this one".to_owned(),
        ),
        (None, None) if !may => (
            "compare.permission",
            format!("role {role} may not make a schema and a publication in database {database}"),
            format!(
                "GRANT CREATE ON DATABASE {} TO {};",
                quote_ident(&database),
                quote_ident(&role)
            ),
        ),
        (None, None) => return Ok(()),
    };
    Err(Fault::new(Exit::Source, code, what, "source.url", mend))
}

#[cfg(test)]
#[path = "scratch_source_tests.rs"]
mod tests;
