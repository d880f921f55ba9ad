//! The polled table: is it there, has it the columns that polling needs, may we write them, and will
//! a claim find an index?

use tokio_postgres::Client;

use crate::base::error::{Exit, Fault};
use crate::doctor::finding::Finding;
use crate::doctor::polled_columns::{self, Found};
use crate::doctor::source::query_fault;
use crate::outbox::settings::OutboxTable;
use crate::pgoutput::relation::{Column, Relation};
use crate::polling::settings::{OnPublished, PollingSettings};
use crate::polling::status_values;
use crate::source::quote::{nearest, quote_ident, quote_literal, quote_table};
use crate::source::table::needed_columns;

const TABLE_SQL: &str = "
    SELECT c.oid, c.relkind::pg_catalog.text, pg_catalog.pg_is_in_recovery(), current_user::pg_catalog.text,
           pg_catalog.has_table_privilege(c.oid, 'SELECT'), pg_catalog.has_table_privilege(c.oid, 'UPDATE'),
           pg_catalog.has_table_privilege(c.oid, 'DELETE'), pg_catalog.current_setting('server_version')
    FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass($1)";
const COLUMNS_SQL: &str = "
    SELECT attname::pg_catalog.text, atttypid, pg_catalog.format_type(atttypid, atttypmod), typcategory::pg_catalog.text, attnotnull,
           pg_catalog.pg_get_expr(adbin, adrelid),
           (SELECT pg_catalog.format('OPERATOR(%I.%s)', n.nspname, o.oprname) FROM pg_catalog.pg_opclass k
            JOIN pg_catalog.pg_am m ON m.oid = k.opcmethod AND m.amname = 'btree'
            JOIN pg_catalog.pg_amop e ON e.amopfamily = k.opcfamily AND e.amopstrategy = 3
                AND e.amoplefttype = k.opcintype AND e.amoprighttype = k.opcintype
            JOIN pg_catalog.pg_operator o ON o.oid = e.amopopr
            JOIN pg_catalog.pg_namespace n ON n.oid = o.oprnamespace AND n.nspname <> 'pg_catalog'
            WHERE k.opcintype = coalesce(nullif(t.typbasetype, 0), t.oid) AND k.opcdefault),
           CASE WHEN atttypid IN ('varchar'::pg_catalog.regtype, 'bpchar'::pg_catalog.regtype) AND atttypmod > 4
                THEN atttypmod - 4 END
    FROM pg_catalog.pg_attribute JOIN pg_catalog.pg_type t ON t.oid = atttypid
         LEFT JOIN pg_catalog.pg_attrdef d ON adrelid = attrelid AND adnum = attnum
    WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum";
const INDEXES_SQL: &str = "
    SELECT pg_catalog.pg_get_expr(indpred, indrelid), attname::pg_catalog.text FROM pg_catalog.pg_index
    LEFT JOIN pg_catalog.pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
    WHERE indrelid = $1 AND indisvalid";

/// The table as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFacts {
    oid: u32,
    kind: String,
    standby: bool,
    role: String,
    may_select: bool,
    may_update: bool,
    may_delete: bool,
    version: String,
    columns: Vec<Found>,
    indexes: Vec<Index>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Index {
    /// Of a partial one.
    condition: Option<String>,
    /// Its first column, if that is one.
    leads: Option<String>,
}

/// What was found; without a table only the fault.
#[derive(Clone, Debug)]
pub struct Report {
    /// The facts, where there is a table.
    pub facts: Option<TableFacts>,
    /// All findings.
    pub findings: Vec<Finding>,
}

/// Looks at the table; changes nothing.
pub async fn inspect(
    client: &Client,
    outbox: &OutboxTable,
    polling: &PollingSettings,
) -> Result<Report, Fault> {
    let asked = gather(client, outbox).await;
    let facts = asked.map_err(|error| query_fault(&error, "looking at the outbox table"))?;
    let findings = match &facts {
        None => vec![Finding::fail(missing(outbox))],
        Some(facts) => {
            let mut findings = facts.judge(outbox, polling);
            if findings.is_empty() {
                let doubted =
                    status_values::doubt(client, facts.oid, &facts.columns, outbox, polling).await;
                findings =
                    doubted.map_err(|error| query_fault(&error, "trying the status words"))?;
            }
            facts.sum_up(findings, outbox, polling)
        }
    };
    Ok(Report { facts, findings })
}

async fn gather(
    client: &Client,
    outbox: &OutboxTable,
) -> Result<Option<TableFacts>, tokio_postgres::Error> {
    let name = quote_table(&outbox.schema, &outbox.table);
    let Some(row) = client.query_opt(TABLE_SQL, &[&name]).await? else { return Ok(None) };
    let oid: u32 = row.try_get(0)?;
    let columns = client.query(COLUMNS_SQL, &[&oid]).await?;
    let indexes = client.query(INDEXES_SQL, &[&oid]).await?;
    let column = |row: &tokio_postgres::Row| {
        Ok(Found {
            name: row.try_get(0)?,
            type_oid: row.try_get(1)?,
            type_sql: row.try_get(2)?,
            category: row.try_get(3)?,
            not_null: row.try_get(4)?,
            default: row.try_get(5)?,
            own_equality: row.try_get(6)?,
            length_max: row.try_get(7)?,
        })
    };
    Ok(Some(TableFacts {
        oid,
        kind: row.try_get(1)?,
        standby: row.try_get(2)?,
        role: row.try_get(3)?,
        may_select: row.try_get(4)?,
        may_update: row.try_get(5)?,
        may_delete: row.try_get(6)?,
        version: row.try_get(7)?,
        columns: columns.iter().map(column).collect::<Result<_, tokio_postgres::Error>>()?,
        indexes: indexes
            .iter()
            .map(|row| Ok(Index { condition: row.try_get(0)?, leads: row.try_get(1)? }))
            .collect::<Result<_, tokio_postgres::Error>>()?,
    }))
}

impl TableFacts {
    /// The type of a column, as SQL.
    #[must_use]
    pub fn type_of(&self, column: &str) -> Option<&str> {
        polled_columns::find(&self.columns, column).map(|found| found.type_sql.as_str())
    }

    /// The operator that compares values of a column: that of its type, wherever it is.
    #[must_use]
    pub fn equality_of(&self, column: &str) -> &str {
        let found = polled_columns::find(&self.columns, column);
        found.and_then(|found| found.own_equality.as_deref()).unwrap_or("=")
    }

    /// The columns that an event may use and that are there, as the stream would describe them.
    #[must_use]
    pub fn relation(&self, outbox: &OutboxTable) -> Relation {
        let names = &outbox.columns;
        let mut wanted = needed_columns(outbox);
        wanted.extend([&*names.event_type, &*names.traceparent, &*names.headers]);
        let used = self.columns.iter().filter(|found| wanted.contains(&&*found.name));
        Relation {
            oid: self.oid,
            namespace: outbox.schema.clone(),
            name: outbox.table.clone(),
            columns: used
                .map(|found| Column { name: found.name.clone(), type_oid: found.type_oid })
                .collect(),
        }
    }

    fn judge(&self, outbox: &OutboxTable, polling: &PollingSettings) -> Vec<Finding> {
        let shown = format!("{}.{}", outbox.schema, outbox.table);
        let mut findings = Vec::new();
        if self.standby {
            findings.push(Finding::fail(Fault::new(
                Exit::Source,
                "source.standby",
                "this server is a standby: rows cannot be claimed there",
                "source.url",
                "name the primary, or several hosts and target_session_attrs=read-write",
            )));
        }
        if !matches!(self.kind.as_str(), "r" | "p") {
            findings.push(Finding::fail(Fault::new(
                Exit::Source,
                "table.kind",
                format!("{shown} is not a table"),
                "source.outbox",
                "name the table that is written to as table = \"schema.table\" in [[source.outbox]]",
            )));
        }
        findings.extend(self.rights(outbox, polling));
        findings.extend(self.absent(outbox, polling));
        findings.extend(polled_columns::misfits(&self.columns, outbox, polling));
        findings
    }

    /// After what speaks against polling the table.
    fn sum_up(
        &self,
        faults: Vec<Finding>,
        outbox: &OutboxTable,
        polling: &PollingSettings,
    ) -> Vec<Finding> {
        let version = Finding::ok("source.version", format!("PostgreSQL {}", self.version));
        let mut findings = vec![version];
        if faults.is_empty() {
            let shown = format!("{}.{}", outbox.schema, outbox.table);
            findings.push(Finding::ok("table", format!("table {shown} can be polled")));
            findings.extend(self.doubts(outbox, polling));
        }
        findings.extend(faults);
        findings
    }

    fn rights(&self, outbox: &OutboxTable, polling: &PollingSettings) -> Option<Finding> {
        let deletes = polling.on_published == OnPublished::Delete || polling.cleanup.enabled;
        let needed =
            [("SELECT", self.may_select), ("UPDATE", self.may_update), ("DELETE", self.may_delete)];
        let lacks: Vec<&str> = needed
            .into_iter()
            .filter(|(right, has)| !has && (*right != "DELETE" || deletes))
            .map(|(right, _)| right)
            .collect();
        if lacks.is_empty() {
            return None;
        }
        let (table, rights) = (quote_table(&outbox.schema, &outbox.table), lacks.join(", "));
        Some(Finding::fail(Fault::new(
            Exit::Source,
            "table.rights",
            format!("role {} may not {rights} on {}.{}", self.role, outbox.schema, outbox.table),
            "source.outbox",
            format!("GRANT {rights} ON {table} TO {};", quote_ident(&self.role)),
        )))
    }

    /// Columns that are not there: an event's are to be mapped, those of polling may be added.
    fn absent(&self, outbox: &OutboxTable, polling: &PollingSettings) -> Vec<Finding> {
        let shown = format!("{}.{}", outbox.schema, outbox.table);
        let is_there = |name: &str| polled_columns::find(&self.columns, name).is_some();
        let names = || self.columns.iter().map(|found| found.name.as_str());
        let mut findings = Vec::new();
        for name in needed_columns(outbox).into_iter().filter(|name| !is_there(name)) {
            let near = nearest(name, names());
            let near = near.map_or(String::new(), |near| format!("; is {near:?} meant?"));
            findings.push(Finding::fail(Fault::new(
                Exit::Source,
                "table.column-missing",
                format!("{shown} has no column {name}{near}"),
                "source.outbox",
                "map the part to a column that exists: columns = { … } or route = { … } of [[source.outbox]]",
            )));
        }
        findings.extend(polled_columns::absent(&self.columns, outbox, polling));
        findings
    }

    /// What works, and will be slow or out of order.
    fn doubts(&self, outbox: &OutboxTable, polling: &PollingSettings) -> Vec<Finding> {
        let mut findings = Vec::new();
        let (columns, words) = (&polling.columns, &polling.words);
        let table = quote_table(&outbox.schema, &outbox.table);
        let indexed = |word: &str| {
            let word = quote_literal(word);
            self.indexes.iter().filter_map(|index| index.condition.as_ref()).any(|text| {
                text.contains(&columns.status) && text.contains(&word) && !text.contains(" AND ")
            })
        };
        let status = quote_ident(&columns.status);
        // The indexes of a partitioned table cannot be made beside its writers.
        let create = if self.kind == "p" { "CREATE INDEX" } else { "CREATE INDEX CONCURRENTLY" };
        let cleans = polling.cleanup.enabled && polling.on_published == OnPublished::Update;
        let mut served = vec![
            ("claim", &words.pending, &columns.order),
            ("claim", &words.in_progress, &columns.locked_by),
        ];
        served.extend(cleans.then_some(("clean-up", &words.published, &columns.created_at)));
        for (what, word, by) in served.into_iter().filter(|(_, word, _)| !indexed(word)) {
            findings.push(Finding::warn(
                "table.index",
                format!(
                    "no partial index for {status} = {0}: every {what} reads the whole table; {create} ON {table} ({1}) WHERE {status} = {0};",
                    quote_literal(word),
                    quote_ident(by)
                ),
            ));
        }
        let id = &outbox.columns.id;
        let finds = |it: &Index| it.condition.is_none() && it.leads.as_ref() == Some(id);
        if !self.indexes.iter().any(finds) {
            findings.push(Finding::warn(
                "table.index",
                format!(
                    "no index begins with {0}: rows are settled and claims renewed by it, each time with a look at the whole table; {create} ON {table} ({0});",
                    quote_ident(id)
                ),
            ));
        }
        findings.extend(polled_columns::unborn(&self.columns, outbox, polling));
        findings.extend(polled_columns::short(&self.columns, outbox, polling));
        if self.type_of(&columns.order) == Some("uuid") {
            findings.push(Finding::warn(
                "table.order",
                format!(
                    "{} is a uuid: rows of a key keep their order only if it rises with time (version 7); name a column that does as source.polling.columns.order",
                    columns.order
                ),
            ));
        }
        findings
    }
}

/// There is no such table.
pub(crate) fn missing(outbox: &OutboxTable) -> Fault {
    Fault::new(
        Exit::Source,
        "table.missing",
        format!("outbox table {}.{} does not exist", outbox.schema, outbox.table),
        "source.outbox",
        "name the table as table = \"schema.table\" in [[source.outbox]]; sql/polling.sql makes the shipped one",
    )
}
