//! Judges the polled table: whether it has what polling needs, may be written, and has the indexes
//! that claims use.

use std::slice;

use tokio_postgres::Client;

use super::polled_columns::{PolledTable, absent_columns, unfit_columns, unreadable_key};
use super::polled_rows;
use super::status_values;
use super::tables::{self, ReadBy};
use crate::base::error::{Exit, Fault};
use crate::base::finding::{Finding, faults};
use crate::outbox::settings::OutboxTable;
use crate::polling::handover::BY_INSERT;
use crate::polling::settings::{OnPublished, PollingSettings};
use crate::polling::statements::Statements;
use crate::polling::table_facts::{self, PolledIndex, PolledTableFacts, polled_outbox};
use crate::polling::worker::{claim_name, process_name};
use crate::source::faults::{query_fault, table_missing, table_problem};
use crate::source::publication;
use crate::source::quote::{quote_ident, quote_literal};
use crate::source::settings::SourceSettings;

const TABLE: &str = "table";
/// The greatest length of a claim's name: host (64), process, start and number.
const CLAIM_CHARS: usize = 110;

/// Without a table there is only its fault.
#[derive(Clone, Debug)]
pub(crate) struct PolledTableReport {
    pub(crate) facts: Option<PolledTableFacts>,
    pub(crate) findings: Vec<Finding>,
}

pub(crate) async fn inspect(
    client: &Client,
    outbox: &OutboxTable,
    polling: &PollingSettings,
) -> Result<PolledTableReport, Fault> {
    let looked = tokio::try_join!(
        publication::tables(client, slice::from_ref(outbox)),
        table_facts::gather(client, outbox),
    );
    let (found, facts) =
        looked.map_err(|error| query_fault(&error, "looking at the outbox table"))?;
    let problems = found.iter().flat_map(|table| {
        let unread = tables::faults(table, outbox, ReadBy::Polling);
        unread.into_iter().chain(tables::absent_named(table, outbox))
    });
    let mut problems: Vec<Finding> = problems.map(Finding::fail).collect();
    let Some(facts) = facts else {
        return Ok(PolledTableReport { facts: None, findings: problems });
    };
    let table = PolledTable { facts: &facts, outbox, polling };
    let standby = facts.standby.then(|| Finding::fail(standby()));
    problems.splice(0..0, standby);
    problems.extend(lacking_rights(&table));
    problems.extend(hidden_rows(&table).filter(|found| !found.is_warning()));
    problems.extend(absent_columns(&table));
    problems.extend(unfit_columns(&table));
    problems.extend(unreadable_key(&table));
    if problems.is_empty() {
        let doubted = status_values::inspect(client, &table).await;
        problems = doubted.map_err(|error| query_fault(&error, "trying the status values"))?;
    }
    let mut findings = vec![Finding::ok("source.version", format!("PostgreSQL {}", facts.version))];
    if problems.is_empty() {
        let rows = polled_rows::counted(client, &table).await;
        let text = format!("table {outbox} can be polled; {rows}");
        findings.push(Finding::ok(TABLE, text));
        findings.extend(warnings(&table));
    }
    findings.extend(problems);
    Ok(PolledTableReport { facts: Some(facts), findings })
}

/// Inspects the table and prepares the statements; fails with the first fault.
pub(crate) async fn prepare(
    client: &Client,
    source: &SourceSettings,
    polling: &PollingSettings,
) -> Result<Statements, Fault> {
    let outbox = polled_outbox(source)?;
    let PolledTableReport { facts, findings } = inspect(client, outbox, polling).await?;
    match (faults(&findings).next(), facts) {
        (None, Some(facts)) => {
            for finding in &findings {
                match finding.is_warning() {
                    true => tracing::warn!(code = finding.topic, "{}", finding.text),
                    false if finding.topic == TABLE => tracing::info!("{}", finding.text),
                    false => {}
                }
            }
            Ok(Statements::of(&facts, source, outbox, polling))
        }
        (Some(fault), _) => Err(fault.clone()),
        // The table was dropped between the two queries of `inspect`.
        (None, None) => Err(table_missing(outbox, "sql/polling.sql makes the shipped one")),
    }
}

fn standby() -> Fault {
    Fault::new(
        Exit::Source,
        "source.standby",
        "this server is a standby: rows cannot be claimed there",
        "source.url",
        "name the primary, or several hosts and target_session_attrs=read-write",
    )
}

fn lacking_rights(table: &PolledTable<'_>) -> Option<Finding> {
    let PolledTable { facts, outbox, polling } = table;
    let deletes = polling.on_published == OnPublished::Delete || polling.cleanup.enabled;
    let lacks: Vec<&str> = [
        ("SELECT", facts.may_select),
        ("UPDATE", facts.may_update),
        ("DELETE", facts.may_delete || !deletes),
    ]
    .into_iter()
    .filter_map(|(right, has)| (!has).then_some(right))
    .collect();
    let rights = lacks.join(", ");
    let (role, schema) = (quote_ident(&facts.role), quote_ident(&outbox.schema));
    let on_table = (
        format!("{rights} on {outbox}"),
        format!("GRANT {rights} ON {} TO {role};", table.quoted()),
    );
    let on_schema = (
        format!("use schema {}", outbox.schema),
        format!("GRANT USAGE ON SCHEMA {schema} TO {role};"),
    );
    let lacking = [(!facts.may_use_schema, on_schema), (!lacks.is_empty(), on_table)];
    let (what, mend): (Vec<_>, Vec<_>) =
        lacking.into_iter().filter_map(|(is_lacking, it)| is_lacking.then_some(it)).unzip();
    (!what.is_empty()).then(|| {
        let what = format!("role {} may not {}", facts.role, what.join(", nor "));
        Finding::fail(table_problem("table.rights", what, mend.join(" ")))
    })
}

/// Row-level security hides rows from every statement: they are neither published nor counted.
fn hidden_rows(table: &PolledTable<'_>) -> Option<Finding> {
    let PolledTable { facts, outbox, .. } = table;
    let policies = facts.row_policies?;
    let role = &facts.role;
    let mend = format!("ALTER ROLE {} BYPASSRLS;", quote_ident(role));
    if policies == 0 {
        let what = format!("row-level security hides all rows of {outbox} from role {role}");
        return Some(Finding::fail(table_problem("table.rights", what, mend)));
    }
    let what = format!(
        "row-level security of {outbox} applies to role {role}: rows that a policy hides are neither published nor counted"
    );
    Some(Finding::warn("table.rights", format!("{what}; {mend}")))
}

/// The table can be polled, but slowly, out of order, or not for long.
fn warnings(table: &PolledTable<'_>) -> Vec<Finding> {
    let mut findings = missing_indexes(table);
    findings.extend(unpolled_default(table));
    findings.extend(hidden_rows(table).filter(Finding::is_warning));
    findings.extend(short_claim(table));
    let PolledTable { facts, outbox, polling } = table;
    let id = &outbox.columns.id;
    findings.extend(nullable(table, id, "a row without it is never published"));
    if cleans(polling) {
        let created_at = &polling.columns.created_at;
        findings.extend(nullable(table, created_at, "a published row without it is never deleted"));
    }
    findings.extend(unreadable_id(table));
    let order = &polling.columns.order;
    if facts.type_of(order) == Some("uuid") {
        findings.push(Finding::warn(
            "table.order",
            format!(
                "{order} is a uuid: rows of a key keep their order only if it rises with time (version 7); name a column that does as source.polling.columns.order"
            ),
        ));
    }
    findings
}

/// A claim whose name does not fit its column is refused, and ends the relay: where names get longer, perhaps
/// after days.
fn short_claim(table: &PolledTable<'_>) -> Option<Finding> {
    let name = &table.polling.columns.locked_by;
    let length = usize::try_from(table.facts.column(name)?.length_max?).ok()?;
    // Those of relays on other machines may be shorter.
    let own = claim_name(&process_name(), 0).chars().count();
    let here =
        if length < own { format!(", and has {own} on this machine") } else { String::new() };
    (length < CLAIM_CHARS).then(|| {
        let mend = table.alteration(name, "TYPE text");
        let text = format!(
            "{name} takes {length} characters: the name of a claim (host, process, number) may have {CLAIM_CHARS}{here}; {mend}"
        );
        Finding::warn("table.column-type", text)
    })
}

/// A column that may be NULL, although rows without a value of it are left.
fn nullable(table: &PolledTable<'_>, name: &str, left: &str) -> Option<Finding> {
    let is_nullable = table.facts.column(name).is_some_and(|column| !column.not_null);
    is_nullable.then(|| {
        let mend = table.alteration(name, "SET NOT NULL");
        Finding::warn("table.column-type", format!("{name} may be NULL: {left}; {mend}"))
    })
}

/// Whether published rows are deleted when they are old.
fn cleans(polling: &PollingSettings) -> bool {
    polling.cleanup.enabled && polling.on_published == OnPublished::Update
}

/// An id is read as UTF-8. Where text may be any bytes, one row can end each claim.
fn unreadable_id(table: &PolledTable<'_>) -> Option<Finding> {
    let PolledTable { facts, outbox, .. } = table;
    let id = &outbox.columns.id;
    let is_text = facts.column(id).is_some_and(|column| column.category == "S");
    (is_text && facts.encoding == "SQL_ASCII").then(|| {
        Finding::warn(
            "source.encoding",
            format!(
                "the database is SQL_ASCII: a row whose {id} is not UTF-8 stops polling; if all are ASCII: ALTER TABLE {} ADD CHECK ({} ~ '^[ -~]*$');",
                table.quoted(),
                quote_ident(id)
            ),
        )
    })
}

fn missing_indexes(table: &PolledTable<'_>) -> Vec<Finding> {
    let PolledTable { facts, outbox, polling } = table;
    let (columns, values) = (&polling.columns, &polling.status_values);
    let quoted = table.quoted();
    let indexed = |word: &str, first: Option<&String>| {
        let word = quote_literal(word);
        // Among rows of one status, an index that begins with the status has them in the order of its next column.
        let begins = |it: &&PolledIndex| {
            first.is_none()
                || it.leads.as_ref() == first
                || it.leads.as_ref() == Some(&columns.status)
        };
        facts.indexes.iter().filter(begins).filter_map(|it| it.condition.as_ref()).any(|text| {
            text.contains(&columns.status) && text.contains(&word) && !text.contains(" AND ")
        })
    };
    let status = quote_ident(&columns.status);
    // Postgres cannot create an index on a partitioned table concurrently.
    let create = if facts.kind == "p" { "CREATE INDEX" } else { "CREATE INDEX CONCURRENTLY" };
    // The last says whether some of the rows are read in order: then only an index with that order serves.
    let mut served = vec![
        ("claim", &values.pending, &columns.order, true),
        ("claim", &values.in_progress, &columns.locked_by, false),
        ("walrelay outbox retry", &values.failed, &columns.failed_at, false),
    ];
    if cleans(polling) {
        served.push(("clean-up", &values.published, &columns.created_at, true));
    }
    let missing = served
        .into_iter()
        .filter(|(_, word, by, in_order)| !indexed(word, in_order.then_some(*by)));
    let mut texts: Vec<String> = missing
        .map(|(what, word, by, _)| {
            format!(
                "no partial index on {1} for {status} = {0}: every {what} reads the whole table, or all rows with this status; {create} ON {quoted} ({1}) WHERE {status} = {0};",
                quote_literal(word),
                quote_ident(by)
            )
        })
        .collect();
    let id = &outbox.columns.id;
    let finds = |it: &PolledIndex| it.condition.is_none() && it.leads.as_ref() == Some(id);
    if !facts.indexes.iter().any(finds) {
        texts.push(format!(
            "no index begins with {0}: rows are settled and claims renewed by it, each time with a look at the whole table; {create} ON {quoted} ({0});",
            quote_ident(id)
        ));
    }
    let waits = &columns.next_retry_at;
    if !facts.indexes.iter().any(|it| it.leads.as_ref() == Some(waits)) {
        texts.push(format!(
            "no index begins with {0}: every claim looks at all pending rows for those that wait for a retry; {create} ON {quoted} ({0}) WHERE {status} = {1} AND {0} IS NOT NULL;",
            quote_ident(waits),
            quote_literal(&values.pending)
        ));
    }
    texts.into_iter().map(|text| Finding::warn("table.index", text)).collect()
}

/// Rows with the default status would never be polled.
fn unpolled_default(table: &PolledTable<'_>) -> Option<Finding> {
    let (name, set) = (&table.polling.columns.status, pending_default(table));
    let default = table.facts.column(name)?.default.as_deref();
    if default.is_some_and(|default| is_pending(table, default)) {
        return None;
    }
    let is = default.map_or("no default".to_owned(), |default| format!("the default {default}"));
    let word = quote_literal(&table.polling.status_values.pending);
    Some(Finding::warn(
        "table.status-default",
        format!("{name} has {is}: a row is published only if who writes it says {word}; {set}"),
    ))
}

fn is_pending(table: &PolledTable<'_>, default: &str) -> bool {
    let pending = &table.polling.status_values.pending;
    default == pending || default.starts_with(&quote_literal(pending))
}

/// The SQL that makes new rows pending.
fn pending_default(table: &PolledTable<'_>) -> String {
    let PolledTable { polling, .. } = table;
    let pending = quote_literal(&polling.status_values.pending);
    table.alteration(&polling.columns.status, &format!("SET DEFAULT {pending}"))
}

/// Refuses to move a table to a slot if polling does not publish a new row before its status is changed: the slot
/// would.
pub(crate) async fn refuse_other_default(
    client: &Client,
    source: &SourceSettings,
    polling: &PollingSettings,
) -> Result<(), Fault> {
    let outbox = polled_outbox(source)?;
    let facts = &table_facts::require(client, outbox).await?;
    other_default(&PolledTable { facts, outbox, polling }).map_or(Ok(()), Err)
}

fn other_default(table: &PolledTable<'_>) -> Option<Fault> {
    let name = &table.polling.columns.status;
    let default = table.facts.column(name)?.default.as_deref()?;
    (!is_pending(table, default)).then(|| {
        let what = format!(
            "{name} has the default {default}: the slot would publish a row with it at once, and not when it becomes {}",
            quote_literal(&table.polling.status_values.pending)
        );
        let mend = format!("{BY_INSERT}\nthen: {}", pending_default(table));
        table_problem("table.status-default", what, mend)
    })
}

#[cfg(test)]
#[path = "polled_table_tests.rs"]
mod tests;
