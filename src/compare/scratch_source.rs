//! What a comparison makes in Postgres, and takes away again: a schema with the outbox table of the
//! mode that is measured, and for the slot a publication and the slot, all of one name.
//!
//! An outbox for the slot needs no more than the event, so its table has no status columns and no
//! indexes for claims; polling gets the table of `sql/polling.sql`. Both have the columns that the
//! load writes.
//!
//! A comparison holds a lock on its name for as long as it lives. What bears such a name and is not
//! locked was left behind by one that died.

use std::time::{Duration, Instant};

use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::plan::CaptureMode;
use crate::base::error::{Exit, Fault};
use crate::config::Config;
use crate::doctor::source as source_doctor;
use crate::source::faults::query_fault;
use crate::source::quote::{quote_ident, quote_literal};
use crate::source::settings::{ConnInfo, SourceSettings};

/// Something could not be removed.
pub(super) const LEFT_OVER: &str = "compare.left-over";
/// Before the random part of a name.
const PREFIX: &str = "walrelay_compare_";
/// How long Postgres may take for a statement; a new slot waits for transactions of others in it.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);
/// How long a slot may be in use by a relay that is gone.
const RELEASED_WITHIN: Duration = Duration::from_secs(10);

const POLLING_SQL: &str = include_str!("../../sql/polling.sql");
const CDC_SQL: &str = "CREATE TABLE public.outbox (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_key   text        NOT NULL,
    payload     jsonb,
    traceparent text,
    created_at  timestamptz NOT NULL DEFAULT pg_catalog.now()
);";

/// The schema, publication and slot of one comparison.
pub(super) struct ScratchSource {
    pub(super) name: String,
    /// Its session holds the lock on the name.
    client: Client,
}

/// A name that nobody else has.
pub(super) fn fresh_name() -> String {
    use std::hash::{BuildHasher as _, Hasher as _};
    let random = std::hash::RandomState::new().build_hasher().finish();
    format!("{PREFIX}{:08x}", random as u32)
}

/// Connects for SQL under this name.
pub(super) async fn connect(info: &ConnInfo, application_name: &str) -> Result<Client, Fault> {
    let own = info.options.as_deref().unwrap_or_default();
    let info = ConnInfo {
        application_name: application_name.to_owned(),
        // Not by SET, whose transaction would be counted; of two, the last one holds.
        options: Some(format!("{own} -c statement_timeout={}", ANSWERED_WITHIN.as_millis())),
        ..info.clone()
    };
    let connected = crate::source::sql::connect(&info).await;
    connected.map(|sql| sql.client).map_err(|error| error.fault(&info, "", ""))
}

/// Asks Postgres something; the fault says what for.
pub(super) async fn ask(
    client: &Client,
    doing: &str,
    sql: &str,
    parameters: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Vec<Row>, Fault> {
    client.query_typed(sql, parameters).await.map_err(|error| query_fault(&error, doing))
}

/// The same where there is one row.
pub(super) async fn ask_one(client: &Client, doing: &str, sql: &str) -> Result<Row, Fault> {
    client.query_typed_one(sql, &[]).await.map_err(|error| query_fault(&error, doing))
}

impl ScratchSource {
    /// Connects and checks that everything may be made. Makes nothing.
    pub(super) async fn open(config: &Config, name: &str) -> Result<ScratchSource, Fault> {
        let client = connect(&config.source.connection, name).await?;
        check_server(&client, &config.source, name).await?;
        check_database(&client).await?;
        let lock = "SELECT pg_catalog.pg_advisory_lock(pg_catalog.hashtextextended($1, 0))";
        ask(&client, "locking the comparison's name", lock, &[(&name, Type::TEXT)]).await?;
        Ok(ScratchSource { name: name.to_owned(), client })
    }

    pub(super) async fn server_version(&self) -> Result<String, Fault> {
        let sql = "SELECT pg_catalog.current_setting('server_version')";
        Ok(ask_one(&self.client, "asking for its version", sql).await?.get(0))
    }

    /// Names of comparisons that died and left something here.
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

    /// Makes the table of a mode, and what its relay reads from.
    pub(super) async fn make(&self, mode: CaptureMode) -> Result<(), Fault> {
        let schema = quote_ident(&self.name);
        let (table, publication) = match mode {
            CaptureMode::Cdc => {
                (CDC_SQL, format!("CREATE PUBLICATION {schema} FOR TABLE {schema}.outbox"))
            }
            CaptureMode::Polling { .. } => (POLLING_SQL, String::new()),
        };
        let table = table.replace("public.outbox", &format!("{schema}.outbox"));
        let sql = format!("CREATE SCHEMA {schema}; {table}\n{publication}");
        let made = self.client.batch_execute(&sql).await;
        made.map_err(|error| query_fault(&error, "making the scratch table"))?;
        if mode == CaptureMode::Cdc { self.make_slot().await } else { Ok(()) }
    }

    /// A slot begins when all transactions that are open have ended; some never do.
    async fn make_slot(&self) -> Result<(), Fault> {
        let slot = format!(
            "SELECT pg_catalog.pg_create_logical_replication_slot({}, 'pgoutput')",
            quote_literal(&self.name)
        );
        self.client.batch_execute(&slot).await.map_err(|error| match error.code() {
            Some(&SqlState::QUERY_CANCELED) => Fault::new(
                Exit::Source,
                "compare.open-transactions",
                format!(
                    "the scratch slot waited {} s for transactions that do not end",
                    ANSWERED_WITHIN.as_secs()
                ),
                "source.url",
                "SELECT pid, xact_start, query FROM pg_catalog.pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY xact_start;",
            ),
            _ => query_fault(&error, "making the scratch slot"),
        })
    }
}

/// Removes whatever a comparison of this name has made. The slot goes first: it pins WAL.
pub(super) async fn remove(info: &ConnInfo, name: &str) -> Result<(), Fault> {
    let kept = |fault: Fault| Fault { code: LEFT_OVER, mend: left_over_sql(name), ..fault };
    let left = |error| kept(query_fault(&error, "removing what the comparison made"));
    let client = connect(info, name).await.map_err(kept)?;
    let deadline = Instant::now() + RELEASED_WITHIN;
    loop {
        match drop_slot(&client, name).await {
            Ok(true) => break,
            Ok(false) if Instant::now() > deadline => {
                let what = format!("replication slot {name} is still in use");
                return Err(Fault::new(Exit::Slot, LEFT_OVER, what, "", left_over_sql(name)));
            }
            // Somebody else dropped it, or its reader has not let go yet.
            Err(error) if Instant::now() > deadline => return Err(left(error)),
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

/// True when there is none any more.
async fn drop_slot(client: &Client, name: &str) -> Result<bool, tokio_postgres::Error> {
    const FOUND: &str =
        "SELECT active_pid FROM pg_catalog.pg_replication_slots WHERE slot_name = $1";
    const END: &str = "SELECT pg_catalog.pg_terminate_backend($1)";
    const DROP: &str = "SELECT pg_catalog.pg_drop_replication_slot($1)";
    match client.query_typed_opt(FOUND, &[(&name, Type::TEXT)]).await? {
        None => Ok(true),
        Some(row) => match row.get::<_, Option<i32>>(0) {
            // The relay is gone; its walsender has not noticed yet.
            Some(pid) => client.query_typed(END, &[(&pid, Type::INT4)]).await.map(|_| false),
            None => client.query_typed(DROP, &[(&name, Type::NAME)]).await.map(|_| true),
        },
    }
}

/// What removes a comparison's left-overs by hand.
pub(super) fn left_over_sql(name: &str) -> String {
    let (literal, ident) = (quote_literal(name), quote_ident(name));
    format!(
        "SELECT pg_catalog.pg_drop_replication_slot(slot_name) FROM pg_catalog.pg_replication_slots WHERE slot_name = {literal};\n\
         DROP PUBLICATION IF EXISTS {ident}; DROP SCHEMA IF EXISTS {ident} CASCADE;"
    )
}

/// Whether server and role can carry a slot.
async fn check_server(client: &Client, source: &SourceSettings, name: &str) -> Result<(), Fault> {
    let scratch = SourceSettings {
        slot: name.to_owned(),
        publication: name.to_owned(),
        outboxes: Vec::new(),
        messages: None,
        ..source.clone()
    };
    let report = source_doctor::report(client, &scratch).await?;
    // What is missing will be made; what is left is the server, the role, and room for a slot.
    let mut faults = report.findings.into_iter().filter_map(|finding| finding.fault);
    let hinders =
        |fault: &Fault| fault.code.starts_with("source.") || fault.code == "slot.none-free";
    faults.find(hinders).map_or(Ok(()), Err)
}

/// Whether the role may make a schema, and no publication would carry the load to others.
async fn check_database(client: &Client) -> Result<(), Fault> {
    const SQL: &str = "SELECT
        (SELECT pubname::pg_catalog.text FROM pg_catalog.pg_publication WHERE puballtables LIMIT 1),
        pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'),
        pg_catalog.current_database()::pg_catalog.text, current_user::pg_catalog.text";
    let row = ask_one(client, "looking at publications and the role's rights", SQL).await?;
    let (publication, may): (Option<String>, bool) = (row.get(0), row.get(1));
    let (database, role): (String, String) = (row.get(2), row.get(3));
    let (code, what, mend) = match publication {
        // It would carry the load to whoever reads it, and stop a subscriber that has no such table.
        Some(publication) => (
            "compare.all-tables",
            format!(
                "publication {publication} is FOR ALL TABLES: it would carry the load to its readers"
            ),
            "compare on a database without such a publication: a copy of this one, say".to_owned(),
        ),
        None if !may => (
            "compare.permission",
            format!("role {role} may not make a schema and a publication in database {database}"),
            format!(
                "GRANT CREATE ON DATABASE {} TO {};",
                quote_ident(&database),
                quote_ident(&role)
            ),
        ),
        None => return Ok(()),
    };
    Err(Fault::new(Exit::Source, code, what, "source.url", mend))
}

#[cfg(test)]
#[path = "scratch_source_tests.rs"]
mod tests;
