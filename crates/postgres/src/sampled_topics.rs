//! The topics to which rows of an outbox are routed, from a sample of its rows: a topic may come
//! from a column, and then not all topics are known beforehand.
//!
//! The query is short, changes nothing, and runs nothing that belongs to the table: no cast, policy
//! or type of another role runs with the rights of this role.

use std::collections::BTreeSet;

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, SimpleQueryRow};

use super::faults::message_of;
use super::quote::{quote_ident, quote_literal, quote_table};
use super::sql::{read_only, text, text_rows};
use walrelay_core::outbox::settings::OutboxTable;

const ROWS_MAX: usize = 1000;
/// The rows are taken from the last pages of the table.
const PAGES: u64 = 64;
/// Longer than any part of a topic's name.
const VALUE_BYTES_MAX: usize = 1000;
const LIMITS: &str = "SET LOCAL statement_timeout = '3s'; SET LOCAL lock_timeout = '1s'; \
                      SET LOCAL row_security = off";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampledTopics {
    pub topics: BTreeSet<String>,
    /// Why no row could be read.
    pub unread: Option<String>,
}

/// `None` where the topic does not come from columns.
pub async fn topics(client: &Client, outbox: &OutboxTable) -> Option<SampledTopics> {
    outbox.route.topic.columns().next()?;
    Some(match sample(client, outbox).await {
        Ok(topics) => SampledTopics { topics, unread: None },
        Err(error) => {
            let why = match error.code() {
                Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                    "another session has locked the table".to_owned()
                }
                _ => message_of(&error),
            };
            let unread = format!(
                "the topics that rows of {outbox} lead to are not checked, because the rows cannot be read: {why}"
            );
            SampledTopics { topics: BTreeSet::new(), unread: Some(unread) }
        }
    })
}

async fn sample(client: &Client, outbox: &OutboxTable) -> Result<BTreeSet<String>, Error> {
    let looked = async {
        let size = text_rows(client, &pages_sql(outbox)).await?;
        let number = |at| size.first().and_then(|row| text(row, at)?.parse::<u64>().ok());
        // Of a partitioned table no page is the last.
        let from = number(0)
            .zip(number(1))
            .map(|(bytes, page)| (bytes / page.max(1)).saturating_sub(PAGES));
        text_rows(client, &rows_sql(outbox, from)).await
    };
    let found = read_only(client, LIMITS, looked).await?;
    let columns: Vec<&str> = outbox.route.topic.columns().collect();
    let topic = |row: &SimpleQueryRow| {
        let value = |name: &str| text(row, columns.iter().position(|known| *known == name)?);
        outbox.route.topic.render(value)
    };
    Ok(found.iter().filter_map(topic).collect())
}

/// The size of an ordinary table, and of a page.
fn pages_sql(outbox: &OutboxTable) -> String {
    let table = quote_literal(&quote_table(&outbox.schema, &outbox.table));
    format!(
        "SELECT CASE WHEN c.relkind OPERATOR(pg_catalog.=) 'r' THEN pg_catalog.pg_relation_size(c.oid) END, \
         pg_catalog.current_setting('block_size') \
         FROM pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) {table}::pg_catalog.regclass"
    )
}

/// Values are sent in their text form, so that the statement needs no cast.
fn rows_sql(outbox: &OutboxTable, from_page: Option<u64>) -> String {
    let columns: Vec<String> = outbox.route.topic.columns().map(quote_ident).collect();
    let mut conditions: Vec<String> = columns
        .iter()
        .map(|column| {
            format!("pg_catalog.pg_column_size({column}) OPERATOR(pg_catalog.<) {VALUE_BYTES_MAX}")
        })
        .collect();
    conditions.extend(
        from_page.map(|page| format!("ctid OPERATOR(pg_catalog.>=) '({page},0)'::pg_catalog.tid")),
    );
    // Other rows are no events. Postgres allows only built-in functions in the filter of a publication.
    conditions.extend(outbox.filter.as_ref().map(|filter| format!("({filter})")));
    format!(
        "SELECT {} FROM {} WHERE {} LIMIT {ROWS_MAX}",
        columns.join(", "),
        quote_table(&outbox.schema, &outbox.table),
        conditions.join(" AND ")
    )
}

#[cfg(test)]
#[path = "sampled_topics_tests.rs"]
mod tests;
