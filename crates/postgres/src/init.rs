//! Creates what is missing, and changes nothing that exists: `check` says how to mend that.
//!
//! Order: role, schema, table, function, publication, slot. The slot is last because it must not be older
//! than the publication. Every step can be repeated.

use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::{Client, Error};

use super::emit::EmitFunction;
use super::facts::{RoleFacts, ServerFacts, SourceFacts};
use super::faults::{
    publication_problem, query_fault, slot_refused, table_missing, table_problem, without_filters,
};
use super::publication::{TableFacts, add_order_sql, add_table_sql, create_sql};
use super::quote::quote_ident;
use super::settings::SourceSettings;
use super::slot;
use walrelay_base::error::{Exit, Fault};
use walrelay_core::outbox::settings::OutboxTable;
pub use walrelay_core::source::shipped_table::table_sql;

/// A placeholder for the role that writes events, which is not known here.
const APPLICATION_ROLE: &str = "APPLICATION_ROLE";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitStep {
    pub what: String,
    pub sql: String,
    /// It is shown, and another role must run it.
    pub hint: bool,
    /// The roles that may run it.
    who: &'static str,
}

impl InitStep {
    pub fn new(who: &'static str, what: impl Into<String>, sql: impl Into<String>) -> InitStep {
        InitStep { what: what.into(), sql: sql.into(), hint: false, who }
    }

    fn hint_if(self, hint: bool) -> InitStep {
        InitStep { hint, ..self }
    }

    pub fn makes_slot(&self) -> bool {
        self.who == SLOT_MAKER
    }

    /// Who must run it, where it is only shown.
    pub fn left_to(&self) -> Option<&'static str> {
        self.hint.then_some(self.who)
    }

    /// The statements as they are run by hand.
    fn shown_sql(&self) -> String {
        match self.who {
            PUBLISHER => format!("BEGIN; {} COMMIT;", self.sql),
            _ => self.sql.clone(),
        }
    }

    /// Whether the relay works without this step.
    pub fn is_optional(&self) -> bool {
        self.who == TABLE_OWNER
    }
}

const SUPERUSER: &str = "a superuser";
const TABLE_OWNER: &str = "the owner of the table, at a quiet time";
const SCHEMA_MAKER: &str =
    "a role that may CREATE in the database (GRANT CREATE ON DATABASE … TO …;)";
const TABLE_MAKER: &str = "a role that may CREATE in the schema (GRANT CREATE ON SCHEMA … TO …;)";
const FUNCTION_MAKER: &str = "the owner of schema outbox and of its functions; where there is no such schema, a role that \
     may CREATE in the database (GRANT CREATE ON DATABASE … TO …;)";
const PUBLISHER: &str = "the owner of the tables who may also CREATE in the database (GRANT CREATE ON \
     DATABASE … TO …;), or a superuser";
const SLOT_MAKER: &str = "a role with REPLICATION (ALTER ROLE … REPLICATION;, on RDS GRANT rds_replication TO …;) or a \
     superuser";

/// Plans the steps that make what is missing. `relay` is the role that `walrelay run` logs in as.
/// Fails when a missing table needs columns whose types are not known here.
pub fn plan(
    facts: &SourceFacts,
    settings: &SourceSettings,
    relay: &RoleFacts,
    emit: Option<&EmitFunction>,
) -> Result<Vec<InitStep>, Fault> {
    if let Some(fault) = without_filters(&settings.outboxes, facts.server.version) {
        return Err(fault);
    }
    if let Some(fault) = facts.slot.as_ref().and_then(slot::being_made) {
        return Err(fault);
    }
    let mut steps = Vec::new();
    if !relay.replication {
        let name = quote_ident(&relay.name);
        let (who, sql, may) = if relay.on_rds {
            let sql = format!("GRANT rds_replication TO {name};");
            ("a role with rds_superuser", sql, facts.role.grants_rds)
        } else {
            (SUPERUSER, format!("ALTER ROLE {name} REPLICATION;"), facts.role.superuser)
        };
        let what = format!("let role {} replicate", relay.name);
        steps.push(InitStep::new(who, what, sql).hint_if(!may));
    }
    if let Some(sql) = settings.messages.as_ref().and(close_messages_sql(&facts.server)) {
        let what = "let nobody but the application emit messages";
        steps.push(InitStep::new(SUPERUSER, what, sql).hint_if(true));
    }
    for (table, outbox) in facts.published.tables.iter().zip(&settings.outboxes) {
        if table.kind.is_some() {
            steps.extend(order_step(table, outbox));
            continue;
        }
        if !table.schema_exists {
            let sql = format!("CREATE SCHEMA IF NOT EXISTS {};", quote_ident(&table.schema));
            steps.push(InitStep::new(SCHEMA_MAKER, format!("make schema {}", table.schema), sql));
        }
        let what = format!("make outbox table {}", table.shown());
        steps.push(InitStep::new(
            TABLE_MAKER,
            what,
            missing_table_sql(table, outbox, &settings.outboxes)?,
        ));
    }
    if let Some(EmitFunction { table, sql }) = emit {
        let what = format!("make function outbox.emit for {table}");
        steps.push(InitStep::new(FUNCTION_MAKER, what, sql));
    }
    steps.extend(publication_steps(facts, settings)?);
    if facts.slot.is_none() {
        let what = format!("make slot {} (waits for open transactions to end)", settings.slot);
        steps.push(InitStep::new(
            SLOT_MAKER,
            what,
            slot::create_if_missing_sql(&settings.slot, &settings.publication),
        ));
    }
    Ok(steps)
}

/// The statement that makes the table, unless one exists whose name differs in case only: Postgres folds
/// the case of a name without quotes, and so it may be the one that is meant.
fn missing_table_sql(
    table: &TableFacts,
    outbox: &OutboxTable,
    outboxes: &[OutboxTable],
) -> Result<String, Fault> {
    let (shown, sql) = (table.shown(), table_sql(outbox));
    let is_configured = |name: &str| outboxes.iter().any(|it| it.to_string() == name);
    let is_meant = |name: &&String| name.eq_ignore_ascii_case(&shown) && !is_configured(name);
    let Some(name) = table.similar.iter().find(is_meant) else { return sql };
    let schema = match table.schema_exists {
        true => String::new(),
        false => format!("CREATE SCHEMA IF NOT EXISTS {}; ", quote_ident(&table.schema)),
    };
    let make = sql.map_or_else(|fault| fault.mend, |sql| schema + &sql);
    let mend = format!(
        "if {name} is meant: table = \"{name}\" in [[source.outbox]], then walrelay init; to make {shown} beside it: {make}"
    );
    Err(table_missing(shown, mend))
}

/// The statement that adds the order to a table that exists. It is never run: it rewrites the
/// table.
fn order_step(table: &TableFacts, outbox: &OutboxTable) -> Option<InitStep> {
    let sql = add_order_sql(table, outbox)?;
    let what = format!(
        "number the rows of {}, so that they can be published again in order; it rewrites the table and locks it meanwhile (ACCESS EXCLUSIVE: no reads, no writes)",
        table.shown()
    );
    Some(InitStep::new(TABLE_OWNER, what, sql).hint_if(true))
}

/// Takes the right to emit messages from PUBLIC; `None` when PUBLIC does not have it.
pub fn close_messages_sql(server: &ServerFacts) -> Option<String> {
    let name = |types| format!("pg_catalog.pg_logical_emit_message({types})");
    let functions: Vec<String> = server.messages_for_all.iter().map(name).collect();
    let functions = functions.join(", ");
    (!functions.is_empty()).then(|| {
        format!(
            "BEGIN; GRANT EXECUTE ON FUNCTION {functions} TO {APPLICATION_ROLE}; REVOKE EXECUTE ON FUNCTION {functions} FROM PUBLIC; COMMIT;"
        )
    })
}

fn publication_steps(
    facts: &SourceFacts,
    settings: &SourceSettings,
) -> Result<Vec<InitStep>, Fault> {
    let name = &settings.publication;
    let Some(publication) = &facts.published.publication else {
        let what = format!("make publication {name}: inserts only");
        return Ok(vec![InitStep::new(PUBLISHER, what, create_sql(settings))]);
    };
    // To a publication of all tables none can be added, and to add a partition whose parent is published changes
    // nothing: the doctor reports both.
    let absent = |(table, _): &(&TableFacts, &OutboxTable)| {
        let is_member = table.member_oid.is_some();
        let can_add = !publication.all_tables && publication.other_name(table).is_none();
        can_add && !is_member && !publication.covers(table)
    };
    let add = |(table, outbox): (&TableFacts, &OutboxTable)| {
        let what = format!("add {} to publication {name}", table.shown());
        InitStep::new(PUBLISHER, what, add_table_sql(name, outbox))
    };
    let tables = facts.published.tables.iter().zip(&settings.outboxes);
    let absent: Vec<_> = tables.filter(absent).collect();
    if publication.update || publication.delete {
        let is_refused = |(table, outbox): &&(&TableFacts, &OutboxTable)| {
            outbox.filter.is_some() || table.identifies_rows == Some(false)
        };
        if let Some((table, outbox)) = absent.iter().find(is_refused) {
            return Err(changes_refused(name, table, outbox));
        }
    }
    Ok(absent.into_iter().map(add).collect())
}

/// The application's own UPDATE and DELETE would fail as soon as the table is added.
fn changes_refused(publication: &str, table: &TableFacts, outbox: &OutboxTable) -> Fault {
    let shown = table.shown();
    let why = match outbox.filter {
        Some(_) => "its row filter may have columns outside of the replica identity",
        None => "it has no primary key or other replica identity",
    };
    publication_problem(
        "publication.operations",
        format!(
            "publication {publication} also publishes UPDATE or DELETE: with table {shown} in it, Postgres would refuse both to the \
             application, because {why}"
        ),
        format!(
            "ALTER PUBLICATION {} SET (publish = 'insert');\nthis stops a running relay once: walrelay resume",
            quote_ident(publication)
        ),
    )
}

/// The steps as a script for a role that may run it.
pub fn script(steps: &[InitStep], settings: &SourceSettings) -> String {
    let mut text = format!(
        "-- What walrelay needs in database {} and does not find there.\n\
         -- Run it with psql as a role that owns the outbox table, may CREATE in this database\n\
         -- and has REPLICATION (or as a superuser). The slot comes last on purpose: it must not\n\
         -- be older than the publication. Do not wrap it in a transaction.\n",
        settings.connection.dbname
    );
    if steps.is_empty() {
        text.push_str("\n-- Nothing is missing.\n");
    }
    for step in steps {
        let note = step.left_to().map(|who| format!(" (as {who})")).unwrap_or_default();
        let mut sql = step.sql.clone();
        if step.who == PUBLISHER {
            // A script that failed is run again from its beginning, and CREATE PUBLICATION has no
            // IF NOT EXISTS.
            sql = format!(
                "DO $walrelay$ BEGIN {sql} EXCEPTION WHEN duplicate_object THEN NULL; END $walrelay$;"
            );
        }
        // A statement with a placeholder must not run as it is, nor one that locks the table unasked.
        if sql.contains(APPLICATION_ROLE) || step.is_optional() {
            sql.insert_str(0, "-- ");
        }
        text.push_str(&format!("\n-- {}{note}\n{sql}\n", step.what.replace('\n', " ")));
    }
    text
}

/// Runs the steps in order and reports each before it starts. Hints are reported and not run. `rest` says what
/// to do once another role has run a step that this one may not.
pub async fn run(
    client: &Client,
    steps: &[InitStep],
    mut report: impl FnMut(&InitStep),
    rest: &str,
) -> Result<(), Fault> {
    const THERE: [SqlState; 3] =
        [SqlState::DUPLICATE_OBJECT, SqlState::DUPLICATE_TABLE, SqlState::UNIQUE_VIOLATION];
    for step in steps {
        report(step);
        if step.hint {
            continue;
        }
        match client.batch_execute(&step.sql).await {
            Ok(()) => {}
            // Another session has created it in the meantime.
            Err(error) if error.code().is_some_and(|code| THERE.contains(code)) => {}
            Err(error) => return Err(refused(&error, step, &slot::names(client).await, rest)),
        }
    }
    Ok(())
}

/// Why a step failed, and which role may run it.
fn refused(error: &Error, step: &InitStep, slots: &[String], rest: &str) -> Fault {
    if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) {
        let what = format!(
            "trying to {}: the table is locked, or was written to by a transaction that is still open",
            step.what
        );
        let mend = "end that transaction, then run the command again; to find it: SELECT * FROM pg_catalog.pg_stat_activity WHERE xact_start IS NOT NULL; SELECT * FROM pg_catalog.pg_prepared_xacts;";
        return Fault::new(Exit::Source, "init.locked", what, "source.url", mend);
    }
    if error.code() != Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
        return match step.makes_slot() {
            true => slot_refused(error, &step.what, slots),
            false => statement_refused(error, step),
        };
    }
    let message = error.as_db_error().map_or("permission denied", |e| e.message());
    // The role that owns the tables need not be the one that creates the slot.
    let rest = match step.makes_slot() {
        true => {
            "or run walrelay init again, with that role in source.url: what is made already stays"
        }
        false => rest,
    };
    Fault::new(
        Exit::Source,
        "init.permission",
        format!("this role may not {}: {message}", step.what),
        "source.url",
        format!("let {} run it:\n{}\n{rest}", step.who, step.shown_sql()),
    )
}

/// The fault of a statement that Postgres does not run. The detail quotes no row, because a step has none.
fn statement_refused(error: &Error, step: &InitStep) -> Fault {
    let fault = query_fault(error, &format!("trying to {}", step.what));
    let detail = error.as_db_error().and_then(DbError::detail);
    let detail = detail.map(|detail| format!("; {detail}")).unwrap_or_default();
    let what = format!("{}{detail}", fault.what);
    // `check` can plan such a row filter: only a publication does not allow it.
    if step.sql.contains(" WHERE (") && error.code() == Some(&SqlState::FEATURE_NOT_SUPPORTED) {
        let mend = "write a condition as where that has only columns of built-in types and immutable functions (docs/outbox.md, \"Rows that are no events\")";
        return table_problem("publication.row-filter", what, mend);
    }
    Fault { what, mend: format!("{}\n{}", fault.mend, step.shown_sql()), ..fault }
}
