//! Creates, advances and drops the slot.
//!
//! The publication must be created first: a slot reads the catalog as it was at each change, so it
//! cannot see a publication that is younger than the change. A slot in use is never dropped.

use tokio_postgres::Client;
use tokio_postgres::types::{PgLsn, Type};

use super::facts;
use super::faults::{
    publication_missing, slot_active, slot_exists, slot_lost, slot_missing, slot_problem,
    slot_refused,
};
use super::quote::quote_literal;
use super::server::ServerStart;
use super::settings::SourceSettings;
use super::slot_state::{SlotFacts, slot_state};
use walrelay_base::error::{Exit, Fault};
use walrelay_base::lsn::Lsn;
use walrelay_core::source::publication::create_sql;
use walrelay_core::source::slot_state::HeldSlot;

/// The first version whose `pg_create_logical_replication_slot` takes `failover`.
const KNOWS_FAILOVER: i32 = 170_000;

/// Checks what [`create`] needs, as far as it can be known without creating the slot.
pub async fn check_create(
    client: &Client,
    settings: &SourceSettings,
    failover: bool,
) -> Result<(), Fault> {
    const SQL: &str = "SELECT pg_catalog.current_setting('server_version_num')::int,
        EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubname = $1),
        pg_catalog.pg_is_in_recovery()";
    let SourceSettings { slot: name, publication, .. } = settings;
    let row = client.query_typed_one(SQL, &[(publication, Type::TEXT)]).await;
    let row = row.map_err(|error| slot_refused(&error, name, &[]))?;
    let (version, is_published): (i32, bool) = (row.get(0), row.get(1));
    if row.get(2) {
        return Err(on_standby(
            "a slot that is made here keeps Postgres from copying that of the primary",
        ));
    }
    if !is_published {
        // The slot that `init` makes has no flag `failover`.
        let create = create_sql(settings);
        let mend = format!("walrelay init --no-slot, or as the owner of the tables: {create}");
        return Err(Fault { mend, ..publication_missing(settings, false) });
    }
    if failover && version < KNOWS_FAILOVER {
        return Err(Fault::new(
            Exit::Usage,
            "slot.failover",
            format!("failover slots need PostgreSQL 17, this is {}", version / 10_000),
            "--failover",
            "walrelay slot create",
        ));
    }
    let state = slot_state(client, name).await.map_err(|error| slot_refused(&error, name, &[]))?;
    let Some(slot) = &state.slot else { return Ok(()) };
    let lacks_failover = || {
        let is_other = failover && !slot.is_failover();
        let mend = format!(
            "while no relay reads it: psql \"dbname={} replication=database\" -c \"ALTER_REPLICATION_SLOT {name} (FAILOVER true)\"",
            state.database
        );
        is_other.then(|| Fault { mend, ..slot_exists(name) })
    };
    let fault = not_ours(slot, &state.database).or_else(|| being_made(slot)).or_else(|| lost(slot));
    Err(fault.or_else(lacks_failover).unwrap_or_else(|| slot_exists(name)))
}

/// A command that is for the primary.
fn on_standby(why: &str) -> Fault {
    let what = format!("this server is a standby: {why}");
    let mend = "the same command with the URL of the primary";
    Fault::new(Exit::Source, "source.standby", what, "source.url", mend)
}

/// Creates the slot and returns the position from which
/// it delivers. Waits for the transactions that are open.
pub async fn create(
    client: &Client,
    settings: &SourceSettings,
    failover: bool,
) -> Result<Lsn, Fault> {
    check_create(client, settings, failover).await?;
    let name = &settings.slot;
    let options = if failover { ", false, false, true" } else { "" };
    let sql = format!(
        "SELECT lsn FROM pg_catalog.pg_create_logical_replication_slot({}, 'pgoutput'{options})",
        quote_literal(name)
    );
    match client.query_typed_one(&sql, &[]).await {
        Ok(row) => Ok(Lsn::from_wire(row.get::<_, PgLsn>(0).into())),
        Err(error) => Err(slot_refused(&error, name, &names(client).await)),
    }
}

/// The slot has the configured name, but cannot be that of a relay in this database.
pub(super) fn not_ours(slot: &SlotFacts, database: &str) -> Option<Fault> {
    let name = &slot.name;
    let mend = |place: &str| {
        format!(
            "choose another name in source.slot, then walrelay init; if nobody needs this slot{place}: walrelay slot drop {name}"
        )
    };
    let (code, what) = match &slot.plugin {
        None => ("slot.physical", format!("slot {name} is physical, not logical")),
        // A new slot has no plugin yet while PostgreSQL 19 raises effective_wal_level.
        Some(plugin) if !plugin.is_empty() && plugin != "pgoutput" => {
            ("slot.plugin", format!("slot {name} uses plugin {plugin}, not pgoutput"))
        }
        Some(_) => {
            let elsewhere = of_other_database(slot, database)?;
            return Some(Fault { mend: mend(", with the URL of that database"), ..elsewhere });
        }
    };
    Some(slot_problem(code, what, mend("")))
}

/// The slot can never be read again.
pub(super) fn lost(slot: &SlotFacts) -> Option<Fault> {
    slot.is_lost().then(|| slot_lost(&slot.name, slot.loss_reason(), &slot.confirmed_flush))
}

/// The names of slots are those of the whole server, and Postgres lets a role drop the slot of another
/// database.
fn of_other_database(slot: &SlotFacts, database: &str) -> Option<Fault> {
    let (name, theirs) = (&slot.name, slot.database.as_deref()?);
    (theirs != database).then(|| {
        slot_problem(
            "slot.database",
            format!(
                "slot {name} belongs to database {theirs}, not to {database}: another relay may read it"
            ),
            format!(
                "if nobody needs it, run the command with the URL of database {theirs} in source.url"
            ),
        )
    })
}

/// A slot is seen as soon as its creation begins, and is gone if that fails: it waits for the transactions that
/// are open, and delivers none that commits before they have ended.
pub(super) fn being_made(slot: &SlotFacts) -> Option<Fault> {
    let pid = slot.active_pid.filter(|_| slot.is_being_made())?;
    let name = &slot.name;
    let what =
        format!("slot {name} is being made by pid {pid}, which waits for open transactions to end");
    let mend = format!(
        "when it is there (walrelay slot show): walrelay init; to give it up: SELECT pg_catalog.pg_cancel_backend({pid});"
    );
    Some(slot_problem("slot.being-made", what, mend))
}

/// Creates no slot where the statement before has failed, and there is no publication.
pub(super) fn create_if_missing_sql(name: &str, publication: &str) -> String {
    let (slot, publication) = (quote_literal(name), quote_literal(publication));
    format!(
        "SELECT pg_catalog.pg_create_logical_replication_slot({slot}, 'pgoutput')\n  WHERE NOT EXISTS \
         (SELECT FROM pg_catalog.pg_replication_slots WHERE slot_name = {slot})\n  AND EXISTS \
         (SELECT FROM pg_catalog.pg_publication WHERE pubname = {publication});"
    )
}

/// Checks that there is a slot that can be dropped: it is of this database, and nobody uses it.
pub async fn check_drop(client: &Client, name: &str) -> Result<(), Fault> {
    let state = slot_state(client, name).await.map_err(|error| slot_refused(&error, name, &[]))?;
    let Some(slot) = &state.slot else {
        let mend = "there is nothing to drop; to list the slots: SELECT slot_name FROM pg_catalog.pg_replication_slots;";
        return Err(Fault { mend: mend.to_owned(), ..slot_missing(name) });
    };
    if let Some(fault) = of_other_database(slot, &state.database) {
        return Err(fault);
    }
    if slot.is_copy_on_standby() {
        return Err(on_standby(
            "its slot is a copy, which goes when that of the primary is dropped",
        ));
    }
    slot.active_pid.map_or(Ok(()), |pid| Err(slot_active(name, Some(pid))))
}

/// Drops the slot. Changes that it has not delivered can no longer be read. True if the server has no
/// usable logical slot any more and therefore lowers `effective_wal_level` (19 and later).
pub async fn drop(client: &Client, name: &str) -> Result<bool, Fault> {
    const LOWERS_SQL: &str =
        "SELECT pg_catalog.current_setting('effective_wal_level', true) IS NOT NULL
        AND pg_catalog.current_setting('wal_level') = 'replica' AND NOT EXISTS (
            SELECT FROM pg_catalog.pg_replication_slots
            WHERE slot_type = 'logical' AND wal_status IS DISTINCT FROM 'lost')";
    check_drop(client, name).await?;
    let sql = format!("SELECT pg_catalog.pg_drop_replication_slot({})", quote_literal(name));
    client.batch_execute(&sql).await.map_err(|error| slot_refused(&error, name, &[]))?;
    // The slot is gone, whatever becomes of the question.
    let lowers = client.query_typed_one(LOWERS_SQL, &[]).await;
    Ok(lowers.is_ok_and(|row| row.get(0)))
}

/// The names of the server's slots, for a fault; empty when they cannot be read.
pub(super) async fn names(client: &Client) -> Vec<String> {
    const SQL: &str = "SELECT slot_name::pg_catalog.text FROM pg_catalog.pg_replication_slots ORDER BY 1 LIMIT 100";
    let rows = client.query_typed(SQL, &[]).await.unwrap_or_default();
    rows.iter().map(|row| row.get(0)).collect()
}

/// The outcome of [`advance`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advance {
    /// The slot stands at the position or beyond it.
    Done,
    /// The slot is in use, and may be free soon. Holds the pid of its user, where that is known.
    Active(Option<i32>),
    /// The position does not apply to this server; holds the reason.
    NotOurs(String),
}

/// Advances the slot to `to`, a position on the given system and timeline, over a connection to the server that
/// was `started` then. A slot that stands beyond it, or that the relay refuses to advance, is left alone, and no
/// slot is advanced beyond the end of the WAL.
///
/// After a stream has ended, no status update can report what the broker confirms, and the next
/// process would publish that again. `pg_replication_slot_advance` reads the WAL without the output
/// plugin, so it also gets past a change at which the plugin fails.
pub async fn advance(
    client: &Client,
    name: &str,
    started: &ServerStart,
    to: Lsn,
    (system_id, timeline): (&str, u32),
    refusal: impl Fn(&HeldSlot) -> Option<&'static str>,
) -> Result<Advance, Fault> {
    const SQL: &str = "SELECT FROM pg_catalog.pg_replication_slot_advance($1, $2)";
    let looked = tokio::try_join!(facts::server(client), slot_state(client, name));
    let (server, state) = looked.map_err(|error| slot_refused(&error, name, &[]))?;
    let (Some(slot), Some(held)) = (state.own_slot(), state.held(started)) else {
        return Ok(Advance::NotOurs(format!("there is no slot {name}")));
    };
    if (server.system_id.as_str(), server.timeline) != (system_id, timeline) {
        return Ok(Advance::NotOurs(format!(
            "this is system {}, timeline {}, and not {system_id}, {timeline}",
            server.system_id, server.timeline
        )));
    }
    if let Some(why) = refusal(&held) {
        return Ok(Advance::NotOurs(why.to_owned()));
    }
    if slot.confirmed_flush >= to {
        return Ok(Advance::Done);
    }
    if to > server.current_lsn {
        return Ok(Advance::NotOurs(format!("the WAL ends at {}", server.current_lsn)));
    }
    if slot.active_pid.is_some() {
        return Ok(Advance::Active(slot.active_pid));
    }
    let to = PgLsn::from(to.to_wire());
    match client.query_typed(SQL, &[(&name, Type::NAME), (&to, Type::PG_LSN)]).await {
        Ok(_) => Ok(Advance::Done),
        Err(error) => match slot_refused(&error, name, &[]) {
            fault if fault.code == "slot.active" => Ok(Advance::Active(None)),
            fault => Err(fault),
        },
    }
}

#[cfg(test)]
#[path = "slot_tests.rs"]
mod tests;
