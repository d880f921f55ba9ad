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

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::report::Mode;
use super::{ANSWERED_WITHIN, connect, failed};
use crate::base::error::{Exit, Fault};
use crate::config::Config;
use crate::doctor::finding::Level;
use crate::doctor::source as preflight;
use crate::source::quote::{quote_ident, quote_literal};
use crate::source::settings::{ConnInfo, SourceSettings};

/// Something could not be removed.
pub(super) const LEFT_OVER: &str = "compare.left-over";
/// Before the random part of a name.
pub(super) const PREFIX: &str = "walrelay_compare_";
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

/// A comparison's own corner of the database.
pub(super) struct Site {
    pub(super) name: String,
    /// Its session holds the lock on the name.
    pub(super) client: Client,
}

/// A name that nobody else has.
pub(super) fn fresh_name() -> String {
    use std::hash::{BuildHasher as _, Hasher as _};
    let random = std::hash::RandomState::new().build_hasher().finish();
    format!("{PREFIX}{:08x}", random as u32)
}

impl Site {
    /// Connects and looks whether everything that will be made may be. Makes nothing.
    pub(super) async fn open(config: &Config, name: &str) -> Result<Site, Fault> {
        let client = connect(&config.source.connection, name).await?;
        look(&client, &config.source, name).await?;
        let lock = "SELECT pg_catalog.pg_advisory_lock(pg_catalog.hashtextextended($1, 0))";
        let locked = client.query_typed(lock, &[(&name, Type::TEXT)]).await;
        locked.map_err(|error| failed(&error, "locking the comparison's name"))?;
        Ok(Site { name: name.to_owned(), client })
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
        let rows = self.client.query_typed(&sql, &[(&self.name, Type::TEXT)]).await;
        let rows = rows.map_err(|error| failed(&error, "looking for left-overs"))?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Makes the table of a mode, and what its relay reads from.
    pub(super) async fn make(&self, mode: Mode) -> Result<(), Fault> {
        let schema = quote_ident(&self.name);
        let table = match mode {
            Mode::Cdc => CDC_SQL,
            Mode::Polling { .. } => POLLING_SQL,
        };
        let table = table.replace("public.outbox", &format!("{schema}.outbox"));
        self.run(&format!("CREATE SCHEMA {schema}; {table}"), "making the scratch table").await?;
        if mode == Mode::Cdc {
            let publication = format!("CREATE PUBLICATION {schema} FOR TABLE {schema}.outbox");
            self.run(&publication, "making the scratch publication").await?;
            self.make_slot().await?;
        }
        Ok(())
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
            _ => failed(&error, "making the scratch slot"),
        })
    }

    async fn run(&self, sql: &str, doing: &str) -> Result<(), Fault> {
        self.client.batch_execute(sql).await.map_err(|error| failed(&error, doing))
    }
}

/// Removes whatever a comparison of this name has made. The slot goes first: it pins WAL.
pub(super) async fn remove(info: &ConnInfo, name: &str) -> Result<(), Fault> {
    let kept = |fault: Fault| Fault { code: LEFT_OVER, mend: left_over_sql(name), ..fault };
    let left = |error| kept(failed(&error, "removing what the comparison made"));
    let client = connect(info, name).await.map_err(kept)?;
    let deadline = Instant::now() + RELEASED_WITHIN;
    loop {
        match drop_slot(&client, name).await {
            Ok(true) => break,
            Ok(false) if Instant::now() < deadline => {}
            Ok(false) => {
                let what = format!("replication slot {name} is still in use");
                let mend = left_over_sql(name);
                return Err(Fault::new(Exit::Slot, LEFT_OVER, what, "", mend));
            }
            // Somebody was faster, or its reader has not let go yet.
            Err(error) if Instant::now() > deadline => return Err(left(error)),
            Err(_) => {}
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
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

/// Whether the server and the role will do.
async fn look(client: &Client, source: &SourceSettings, name: &str) -> Result<(), Fault> {
    let scratch = SourceSettings {
        slot: name.to_owned(),
        publication: name.to_owned(),
        outboxes: Vec::new(),
        messages: None,
        ..source.clone()
    };
    let report = preflight::inspect(client, &scratch).await;
    let report = report.map_err(|error| failed(&error, "looking around"))?;
    // What is missing will be made; what is left is the server, the role, and room for a slot.
    let matters = |topic: &str| topic.starts_with("source.") || topic == "slot.none-free";
    for finding in report.findings {
        if let (Level::Fail, Some(fault)) = (finding.level, finding.fault)
            && matters(fault.code)
        {
            return Err(fault);
        }
    }
    // It would carry the load to whoever reads it, and stop a subscriber that has no such table.
    const ALL: &str =
        "SELECT pubname::pg_catalog.text FROM pg_catalog.pg_publication WHERE puballtables LIMIT 1";
    let all = client.query_typed(ALL, &[]).await;
    if let Some(row) = all.map_err(|error| failed(&error, "looking at publications"))?.first() {
        let publication: &str = row.get(0);
        return Err(Fault::new(
            Exit::Source,
            "compare.all-tables",
            format!(
                "publication {publication} is FOR ALL TABLES: it would carry the load to its readers"
            ),
            "source.url",
            "compare on a database without such a publication: a copy of this one, say",
        ));
    }
    const MAY: &str = "SELECT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'), pg_catalog.current_database()::pg_catalog.text, current_user::pg_catalog.text";
    let row = client.query_typed_one(MAY, &[]).await;
    let row = row.map_err(|error| failed(&error, "looking at the role's rights"))?;
    let (may, database, role): (bool, String, String) = (row.get(0), row.get(1), row.get(2));
    if may {
        return Ok(());
    }
    Err(Fault::new(
        Exit::Source,
        "compare.permission",
        format!("role {role} may not make a schema and a publication in database {database}"),
        "source.url",
        format!("GRANT CREATE ON DATABASE {} TO {};", quote_ident(&database), quote_ident(&role)),
    ))
}

#[cfg(test)]
#[path = "site_tests.rs"]
mod tests;
