//! Compares the row filters of the publication with the declared ones.
//!
//! Postgres prints a filter in a form of its own: `kind LIKE 'a%'` is printed as `(kind ~~ 'a%'::text)`. So
//! it plans both texts as conditions on the same columns, and the plans are compared. The columns are those of
//! a function, so that no right to the table is needed, and what is known of its rows leaves nothing out.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};
use walrelay_core::source::publication::{ColumnFacts, PublishedFacts, TableFacts};

use super::quote::quote_ident;
use walrelay_core::outbox::settings::OutboxTable;

/// Classes of SQLSTATE of a statement that cannot be: other errors are of the server or the connection.
const REFUSED: [&str; 8] = ["0A", "21", "22", "2B", "3F", "42", "54", "P0"];

/// Writes into the facts which row filters are the declared ones, and why Postgres refuses a declared one.
pub(super) async fn compare(
    client: &Client,
    outboxes: &[OutboxTable],
    facts: &mut PublishedFacts,
) -> Result<(), Error> {
    for (table, outbox) in facts.tables.iter_mut().zip(outboxes) {
        let Some(declared) = outbox.filter.as_deref().filter(|_| table.kind.is_some()) else {
            continue;
        };
        let wanted = match plan(client, table, declared).await? {
            Ok(wanted) => wanted,
            Err(why) => {
                table.filter_refused = Some(why);
                continue;
            }
        };
        let entries = facts.publication.iter_mut().flat_map(|it| it.entries_mut(table));
        for entry in entries {
            let Some(printed) = entry.row_filter.as_deref() else { continue };
            let is_planned_alike = plan(client, table, printed).await?.as_ref() == Ok(&wanted);
            // A plan does not show every collation.
            let has_collation = [declared, printed].iter().any(|it| names_collation(it));
            entry.has_declared_filter =
                is_planned_alike && (!has_collation || declared.trim() == printed.trim());
        }
    }
    Ok(())
}

/// Whether a filter has the word COLLATE outside of its constants.
fn names_collation(filter: &str) -> bool {
    let mut outside = filter.split('\'').step_by(2);
    outside.any(|part| part.to_ascii_lowercase().contains("collate"))
}

/// The plan of the rows for which `filter` is true, or why Postgres refuses the filter.
async fn plan(
    client: &Client,
    table: &TableFacts,
    filter: &str,
) -> Result<Result<Vec<String>, String>, Error> {
    let typed = table.columns.iter().filter_map(|column| {
        let sql = column.builtin_type.as_ref()?;
        Some(format!("{} {sql}", quote_ident(&column.name)))
    });
    let sql = format!(
        "EXPLAIN (COSTS OFF) SELECT FROM pg_catalog.jsonb_to_recordset('[]') AS {} ({}) WHERE ({filter})",
        quote_ident(&table.name),
        typed.collect::<Vec<_>>().join(", "),
    );
    match client.query_typed(&sql, &[]).await {
        Ok(rows) => Ok(Ok(rows.iter().map(|row| row.get(0)).collect())),
        Err(error) => match error.as_db_error() {
            Some(said) if *said.code() == SqlState::UNDEFINED_COLUMN => {
                Ok(Err(absence(said.message(), &table.columns)))
            }
            Some(said) if REFUSED.contains(&&said.code().code()[..2]) => {
                Ok(Err(said.message().to_owned()))
            }
            _ => Err(error),
        },
    }
}

/// Why a column is not among those that are planned with: no filter may have one of a user-defined type.
fn absence(message: &str, columns: &[ColumnFacts]) -> String {
    let words = || message.split(|c: char| !c.is_alphanumeric() && c != '_');
    let mut others = columns.iter().filter(|column| column.builtin_type.is_none());
    match others.find(|column| words().any(|word| word == column.name)) {
        Some(ColumnFacts { name, .. }) => format!(
            "column {name} has a user-defined type (an enum, a domain, a type of an extension), which a row filter may not use"
        ),
        None => message.to_owned(),
    }
}

#[cfg(test)]
#[path = "row_filter_tests.rs"]
mod tests;
