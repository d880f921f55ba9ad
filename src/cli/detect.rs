//! `walrelay config detect`: prints the `[[source.outbox]]` sections for the tables of a database that
//! are recognised as those of outbox libraries. It reads the catalog and changes nothing.

use tokio_postgres::Client;

use super::output::print;
use crate::base::error::{Exit, Fault};
use crate::base::settings::kind::IDENTIFIER;
use crate::base::text::escaped;
use crate::config::library_signature;
use crate::outbox::libraries::{LIBRARIES, UNFIT_TABLES};
use crate::source::detect::{FoundTable, WantedColumns, tables};
use crate::source::faults::query_fault;
use crate::source::settings::ConnInfo;
use crate::source::sql;

/// The name in the statement of the table that needs no library: walrelay's and Debezium's.
const DEFAULT: &str = "";
const DEFAULT_COLUMNS: [&str; 5] = ["id", "aggregatetype", "aggregateid", "type", "payload"];

/// The name in the statement of a table that may be an outbox of one's own, by the columns beside its id.
const LIKELY: &str = "likely";
const LIKELY_COLUMNS: [&str; 4] = ["payload", "topic", "event_type", "aggregate_id"];

pub(crate) async fn run(connection: &ConnInfo) -> Result<Exit, Fault> {
    let connected = sql::connect(connection).await;
    let sql = connected.map_err(|error| error.fault(connection, "", ""))?;
    print(&detect(&sql.client, &connection.dbname).await?)
}

async fn detect(client: &Client, database: &str) -> Result<String, Fault> {
    let found = tables(client, &wanted()).await;
    let found = found.map_err(|error| query_fault(&error, "looking for outbox tables"))?;
    Ok(sections(&found, database))
}

fn wanted() -> Vec<WantedColumns> {
    let owned = |columns: &[&str]| columns.iter().map(|name| (*name).to_owned()).collect();
    let default = WantedColumns { name: DEFAULT.to_owned(), columns: owned(&DEFAULT_COLUMNS) };
    let known = LIBRARIES.iter().map(|library| WantedColumns {
        name: library.name.to_owned(),
        columns: library_signature(library).columns,
    });
    let unfit = UNFIT_TABLES.iter().map(|table| WantedColumns {
        name: table.library.to_owned(),
        columns: owned(table.recognised_by),
    });
    let likely = LIKELY_COLUMNS
        .iter()
        .map(|column| WantedColumns { name: LIKELY.to_owned(), columns: owned(&["id", column]) });
    [default].into_iter().chain(known).chain(unfit).chain(likely).collect()
}

fn sections(found: &[FoundTable], database: &str) -> String {
    let (likely, known): (Vec<_>, Vec<_>) = found.iter().partition(|table| table.name == LIKELY);
    if !known.is_empty() {
        return known.into_iter().map(section).collect::<Vec<_>>().join("\n");
    }
    let mut text = format!(
        "# No table of database {database} has the columns of an outbox that is known here. Any table can be mapped:\n\
         # docs/existing-outbox.md, section \"1. Map the columns\".\n"
    );
    if !likely.is_empty() {
        let names = likely.iter().map(|table| format!("\"{}.{}\"", table.schema, table.table));
        let names = names.collect::<Vec<_>>().join(", ");
        text += &format!("# Tables with some columns of an outbox: {}\n", escaped(&names));
    }
    text
}

fn section(FoundTable { schema, table, name }: &FoundTable) -> String {
    let shown = format!("{schema}.{table}");
    let is_plain = |part: &str| {
        (IDENTIFIER.holds)(part) && !part.contains('.') && !part.contains(char::is_control)
    };
    if !is_plain(schema) || !is_plain(table) {
        return format!("# {shown:?} has a name that no configuration can write.\n");
    }
    if let Some(unfit) = UNFIT_TABLES.iter().find(|unfit| unfit.library == name) {
        return format!("# {shown} is a table of {name} and cannot be relayed: {}.\n", unfit.why);
    }
    let library = LIBRARIES.iter().find(|library| library.name == name);
    let (about, key) = match library {
        Some(library) => {
            let note = library_signature(library).note;
            let note = note.map_or_else(String::new, |note| format!("# {note}\n"));
            let about = format!("# {shown} has the columns of {name}.\n{note}");
            (about, format!("library = \"{name}\"\n"))
        }
        None => (format!("# {shown} has the columns of Debezium's outbox table.\n"), String::new()),
    };
    format!("{about}[[source.outbox]]\n{key}table = {}\n", toml::Value::String(shown))
}

#[cfg(test)]
#[path = "detect_tests.rs"]
mod tests;
