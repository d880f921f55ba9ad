//! `walrelay config detect`: prints the `[[source.outbox]]` sections for the tables of a database that
//! are recognised as those of outbox libraries. It reads the catalog and changes nothing.

use serde_json::{Value, json};

use super::args::OutputFormat;
use super::output::{print, print_values};
use crate::base::error::{Exit, Fault};
use crate::base::settings::kind::IDENTIFIER;
use crate::base::text::escaped;
use crate::config::library_signature;
use crate::outbox::libraries::{LIBRARIES, Library, UNFIT_TABLES};
use crate::source::detect::{FoundTable, WantedColumns, tables};
use crate::source::faults::query_fault;
use crate::source::settings::ConnInfo;
use crate::source::sql;

/// The name in the statement of the table that needs no library: walrelay's and Debezium's.
const DEFAULT: &str = "";
const DEFAULT_COLUMNS: [&str; 5] = ["id", "aggregatetype", "aggregateid", "type", "payload"];

/// The name in the statement of Eventuate's table with ids of the database, whose column `id` is empty.
const DATABASE_IDS: &str = "eventuate with dbid";
const DATABASE_IDS_COLUMNS: [&str; 7] =
    ["dbid", "id", "destination", "headers", "payload", "published", "creation_time"];

/// The name in the statement of a table that may be an outbox of one's own, by the columns beside its id.
const LIKELY: &str = "likely";
const LIKELY_COLUMNS: [&str; 4] = ["payload", "topic", "event_type", "aggregate_id"];

pub(crate) async fn run(connection: &ConnInfo, format: OutputFormat) -> Result<Exit, Fault> {
    let connected = sql::connect(connection).await;
    let sql = connected.map_err(|error| error.fault(connection, "", ""))?;
    let found = tables(&sql.client, &wanted()).await;
    let found = found.map_err(|error| query_fault(&error, "looking for outbox tables"))?;
    match format {
        OutputFormat::Text => print(&sections(&found, &connection.dbname)),
        _ => {
            let known = found.iter().filter(|table| table.name != LIKELY);
            print_values(format, &known.map(value).collect::<Vec<_>>())
        }
    }
}

fn wanted() -> Vec<WantedColumns> {
    let named = |name: &str, columns: &[&str]| WantedColumns {
        name: name.to_owned(),
        columns: columns.iter().map(|column| (*column).to_owned()).collect(),
    };
    let unnamed = [named(DEFAULT, &DEFAULT_COLUMNS), named(DATABASE_IDS, &DATABASE_IDS_COLUMNS)];
    let known = LIBRARIES.iter().map(|library| WantedColumns {
        name: library.name.to_owned(),
        columns: library_signature(library).columns,
    });
    let unfit = UNFIT_TABLES.iter().map(|table| named(table.library, table.recognised_by));
    let likely = LIKELY_COLUMNS.iter().map(|column| named(LIKELY, &["id", column]));
    unnamed.into_iter().chain(known).chain(unfit).chain(likely).collect()
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

/// The library of a kind of table, and the line that its section needs.
fn library_and_columns(kind: &str) -> (&str, &'static str) {
    match kind {
        DATABASE_IDS => ("eventuate", "columns = { id = \"dbid\", order = \"dbid\" }\n"),
        library => (library, ""),
    }
}

/// How a configuration can name a table.
enum Verdict {
    /// The name of the table cannot be written.
    BadName,
    /// It is a table of a library and cannot be relayed, for this reason.
    Unfit(&'static str),
    Fit {
        library: Option<&'static Library>,
        note: Option<String>,
    },
}

fn verdict(FoundTable { schema, table, name }: &FoundTable) -> Verdict {
    let is_plain = |part: &str| {
        (IDENTIFIER.holds)(part) && !part.contains('.') && !part.contains(char::is_control)
    };
    if !is_plain(schema) || !is_plain(table) {
        return Verdict::BadName;
    }
    let (name, _) = library_and_columns(name);
    if let Some(unfit) = UNFIT_TABLES.iter().find(|unfit| unfit.library == name) {
        return Verdict::Unfit(unfit.why);
    }
    let library = LIBRARIES.iter().find(|library| library.name == name);
    Verdict::Fit { library, note: library.and_then(|library| library_signature(library).note) }
}

fn section(found: &FoundTable) -> String {
    let FoundTable { schema, table, name } = found;
    let (name, columns) = library_and_columns(name);
    let shown = format!("{schema}.{table}");
    let (library, note) = match verdict(found) {
        Verdict::BadName => {
            return format!("# {shown:?} has a name that no configuration can write.\n");
        }
        Verdict::Unfit(why) => {
            return format!("# {shown} is a table of {name} and cannot be relayed: {why}.\n");
        }
        Verdict::Fit { library, note } => (library, note),
    };
    let (whose, key) = match library {
        Some(library) => (library.name, format!("library = \"{}\"\n", library.name)),
        None => ("Debezium's outbox table", String::new()),
    };
    let note = note.map_or_else(String::new, |note| format!("# {note}\n"));
    let table = toml::Value::String(shown.clone());
    format!(
        "# {shown} has the columns of {whose}.\n{note}[[source.outbox]]\n{key}table = {table}\n{columns}"
    )
}

fn value(found: &FoundTable) -> Value {
    let FoundTable { schema, table, name } = found;
    let (why, note) = match verdict(found) {
        Verdict::BadName => (Some("its name cannot be written into a configuration"), None),
        Verdict::Unfit(why) => (Some(why), None),
        Verdict::Fit { note, .. } => (None, note),
    };
    let library = Some(library_and_columns(name).0).filter(|name| *name != DEFAULT);
    json!({ "schema": schema, "table": table, "library": library, "unfit": why, "note": note })
}

#[cfg(test)]
#[path = "detect_tests.rs"]
mod tests;
