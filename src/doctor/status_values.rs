//! Checks whether the status column accepts the configured values.
//!
//! Enums, short columns, domains and CHECKs of the status alone are evaluated with the values,
//! without any row. CHECKs of several columns or with a collation of their own, and triggers, only
//! show with rows. Nothing that calls a user's function or operator is evaluated: the role may be a
//! superuser, and the function would run with all of its rights.

use tokio_postgres::{Client, Error, Row};

use super::polled_columns::PolledTable;
use crate::base::error::{Exit, Fault};
use crate::base::finding::Finding;
use crate::polling::settings::OnPublished;
use crate::polling::table_facts::PolledColumn;
use crate::source::quote::{quote_ident, quote_literal};

const CHECKS_SQL: &str = "
    SELECT conname::pg_catalog.text, pg_catalog.pg_get_expr(conbin, conrelid) FROM pg_catalog.pg_constraint c
    JOIN pg_catalog.pg_attribute ON attrelid = conrelid AND attname = $2
    WHERE conrelid = $1 AND contype = 'c' AND conkey = ARRAY[attnum]
      AND coalesce(pg_catalog.to_jsonb(c)->>'conenforced', 'true') = 'true' AND attcollation IN (
        0, (SELECT oid FROM pg_catalog.pg_collation WHERE collname = 'default'))
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
        WHERE d.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass AND d.objid = c.oid
          AND (d.refclassid IN ('pg_catalog.pg_proc'::pg_catalog.regclass, 'pg_catalog.pg_operator'::pg_catalog.regclass)
            OR d.refclassid = 'pg_catalog.pg_type'::pg_catalog.regclass
              AND EXISTS (SELECT FROM pg_catalog.pg_type t WHERE t.oid = d.refobjid AND t.typtype = 'd')))";
/// Does a CHECK of the type, or of a domain below it, call a function or operator?
const OWN_CODE_SQL: &str = "
    WITH RECURSIVE kinds (oid) AS (
        SELECT $1::pg_catalog.oid
        UNION SELECT t.typbasetype FROM kinds k JOIN pg_catalog.pg_type t ON t.oid = k.oid WHERE t.typtype = 'd')
    SELECT EXISTS (SELECT FROM kinds k JOIN pg_catalog.pg_constraint c ON c.contypid = k.oid
        JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass AND d.objid = c.oid
        WHERE d.refclassid IN ('pg_catalog.pg_proc'::pg_catalog.regclass, 'pg_catalog.pg_operator'::pg_catalog.regclass))";

/// Finds values that the column will refuse.
pub(super) async fn inspect(
    client: &Client,
    table: &PolledTable<'_>,
) -> Result<Vec<Finding>, Error> {
    let PolledTable { facts, polling, .. } = table;
    let name = &polling.columns.status;
    let Some(status) = facts.column(name) else { return Ok(Vec::new()) };
    if client.query_one(OWN_CODE_SQL, &[&status.type_oid]).await?.try_get(0)? {
        return Ok(Vec::new());
    }
    let checks = client.query(CHECKS_SQL, &[&facts.oid, name]).await?;
    let check = |row: &Row| Ok((row.try_get(0)?, row.try_get(1)?));
    let checks = checks.iter().map(check).collect::<Result<Vec<_>, Error>>()?;
    let values = &polling.status_values;
    let mut written = vec![&values.pending, &values.in_progress, &values.failed];
    let names_published = polling.on_published == OnPublished::Update || polling.cleanup.enabled;
    written.extend(names_published.then_some(&values.published));
    let mut findings = Vec::new();
    for word in written {
        if let Some((why, change)) = refusal(client, table, status, &checks, word).await? {
            findings.push(Finding::fail(Fault::new(
                Exit::Source,
                "table.status-value",
                format!("{name} does not take {}: {why}", quote_literal(word)),
                "source.polling.status_values",
                format!(
                    "set the value of the table in [source.polling.status_values], or: {change}"
                ),
            )));
        }
    }
    Ok(findings)
}

/// Why a value is refused, and the SQL that changes that.
async fn refusal(
    client: &Client,
    table: &PolledTable<'_>,
    status: &PolledColumn,
    checks: &[(String, String)],
    word: &str,
) -> Result<Option<(String, String)>, Error> {
    let (column, literal) = (quote_ident(&status.name), quote_literal(word));
    let to_text = || table.alteration(&status.name, "TYPE text");
    let holds: String =
        checks.iter().map(|(_, condition)| format!(", ({condition}) IS NOT FALSE")).collect();
    let sql = format!(
        "SELECT {column}::pg_catalog.text = {literal}{holds} FROM (SELECT {literal}::{} AS {column}) t",
        status.type_sql
    );
    let row = match client.query_one(&sql, &[]).await {
        Ok(row) => row,
        Err(error) => {
            let Some(refusal) = error.as_db_error() else { return Err(error) };
            let change = match (refusal.code().code(), status.category.as_str()) {
                (state, _) if !is_of_the_value(state) => return Ok(None),
                (_, "E") => format!("ALTER TYPE {} ADD VALUE {literal};", status.type_sql),
                _ => to_text(),
            };
            return Ok(Some((refusal.message().to_owned(), change)));
        }
    };
    if status.category == "S" && !row.try_get::<_, bool>(0)? {
        return Ok(Some((format!("it is longer than {}", status.type_sql), to_text())));
    }
    for (at, (check, condition)) in checks.iter().enumerate() {
        if !row.try_get::<_, bool>(at + 1)? {
            let name = quote_ident(check);
            let change = format!("ALTER TABLE {} DROP CONSTRAINT {name};", table.quoted());
            return Ok(Some((format!("CHECK {check} says {condition}"), change)));
        }
    }
    Ok(None)
}

/// Classes 22 and 23: the value is not of the type. Other errors say nothing about the value.
fn is_of_the_value(state: &str) -> bool {
    state.starts_with("22") || state.starts_with("23")
}
