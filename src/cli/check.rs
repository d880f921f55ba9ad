//! `walrelay check`: everything that could keep the relay from working, found without changing
//! anything. One line per finding, how to mend it below, exit 1 when something must be mended.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use serde_json::json;
use tokio_postgres::Client;

use super::{sink, wait_for};
use crate::app::startup;
use crate::base::error::{Exit, Fault};
use crate::base::text::{escaped, escaped_lines, json_shown};
use crate::config::Config;
use crate::doctor::finding::{Finding, Level};
use crate::doctor::polled_table::{self, Report};
use crate::doctor::source as preflight;
use crate::polling::handover::standing;
use crate::polling::prepare::{self, Prepared};
use crate::polling::settings::PollingSettings;
use crate::relay;
use crate::source::connect;
use crate::source::publication::probe;
use crate::source::rows::{self, RowTopics};
use crate::source::settings::{Host, SourceSettings};
use crate::source::sql::{self, Sql};

/// SQLSTATE of a server that has no WAL sender left.
const TOO_MANY_CONNECTIONS: &str = "53300";

/// What was found in Postgres.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// A line each.
    pub(super) findings: Vec<Finding>,
    /// The topics that rows lead to, a table each.
    topics: Vec<RowTopics>,
}

/// Connects for SQL the way the relay does.
pub(crate) async fn connect(settings: &SourceSettings) -> Result<Client, Fault> {
    connect_sql(settings).await.map(|sql| sql.client)
}

async fn connect_sql(settings: &SourceSettings) -> Result<Sql, Fault> {
    let SourceSettings { connection, slot, publication, .. } = settings;
    let connected = sql::connect(connection).await;
    connected.map_err(|error| error.fault(connection, slot, publication))
}

/// What goes over the link can be read on the way.
fn exposed(sql: &Sql) -> Option<Finding> {
    let Host { name, port, .. } = &sql.server;
    sql.exposed.then(|| {
        Finding::warn(
            "source.no-tls",
            format!(
                "the link to {name}:{port} is not encrypted: events can be read on the way; let Postgres speak TLS (ssl = on) and write sslmode=verify-full in source.url"
            ),
        )
    })
}

/// Looks at the source, the broker and this machine, and prints what was found. What cannot be
/// reached is a finding too, so that the others are still seen.
pub(crate) fn run(config: &Config, json: bool) -> Result<Exit, Fault> {
    let Source { mut findings, topics } = wait_for(async { Ok(source(config).await) })?;
    findings.extend(sink::findings(config, &topics));
    findings.extend(startup::inspect(config));
    super::print(&match json {
        true => format!("{}\n", json_shown(&to_json(&findings).to_string())),
        false => to_text(&findings, colours()),
    })?;
    let failed = findings.iter().any(|finding| finding.level == Level::Fail);
    Ok(if failed { Exit::Failed } else { Exit::Done })
}

/// Looks at the source.
pub(super) async fn source(config: &Config) -> Source {
    let settings = &config.source;
    let looked = async {
        let sql = connect_sql(settings).await?;
        let client = &sql.client;
        let mut findings = match &config.polling {
            Some(polling) => inspect_polled(client, settings, polling).await?,
            None => inspect(client, settings).await?,
        };
        findings.extend(exposed(&sql));
        let mut found = Source { findings, topics: Vec::new() };
        if found.findings.iter().all(|finding| finding.level != Level::Fail) {
            for outbox in &settings.outboxes {
                found.topics.extend(rows::topics(client, outbox).await);
            }
        }
        Ok(found)
    };
    let failed = |fault| Source { findings: vec![Finding::fail(fault)], ..Source::default() };
    looked.await.unwrap_or_else(failed)
}

async fn inspect(client: &Client, settings: &SourceSettings) -> Result<Vec<Finding>, Fault> {
    let report = preflight::inspect(client, settings).await;
    let report = report.map_err(|error| preflight::query_fault(&error, "looking around"))?;
    let mut findings = report.findings;
    if findings.iter().all(|finding| finding.level != Level::Fail) {
        let unfit = relay::unfit_routes(settings, &report.facts.tables);
        findings.extend(unfit.into_iter().map(Finding::fail));
        findings.extend(unable_to_stream(settings).await.map(Finding::fail));
        findings.extend(probe::inspect(settings, &report.facts).await);
    }
    Ok(findings)
}

/// Why the server lets the relay log in, and not replicate: a connection pooler in between, say. That
/// all WAL senders are in use is the preflight's to judge: ours may be one of them.
async fn unable_to_stream(settings: &SourceSettings) -> Option<Fault> {
    let error = connect::open(&settings.connection).await.err()?;
    let fault = || error.fault(&settings.connection, &settings.slot, &settings.publication);
    (error.sqlstate() != Some(TOO_MANY_CONNECTIONS)).then(fault)
}

async fn inspect_polled(
    client: &Client,
    settings: &SourceSettings,
    polling: &PollingSettings,
) -> Result<Vec<Finding>, Fault> {
    let outbox = prepare::table(settings)?;
    let Report { facts, mut findings } = polled_table::inspect(client, outbox, polling).await?;
    let well = findings.iter().all(|finding| finding.level != Level::Fail);
    if let Some(facts) = facts.filter(|_| well) {
        let prepared = Prepared::of(&facts, settings, outbox, polling);
        let unfit = relay::unfit_route(outbox, &prepared.relation);
        findings.extend(unfit.map(Finding::fail));
        let standing = standing(client, &prepared).await?;
        // `run` ends only once nothing is left to it.
        let fault = || standing.fault(settings);
        findings.extend(match (standing.handed_over, standing.left) {
            (false, _) => None,
            (true, false) => Some(Finding::fail(fault())),
            (true, true) => Some(Finding::warn(
                "slot.exists",
                format!(
                    "{}; polling publishes the rows that are left to it, and ends",
                    fault().what
                ),
            )),
        });
    }
    Ok(findings)
}

pub(crate) fn colours() -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !unwanted && std::io::stdout().is_terminal()
}

fn to_json(findings: &[Finding]) -> serde_json::Value {
    let ok = findings.iter().all(|finding| finding.level != Level::Fail);
    json!({ "ok": ok, "findings": findings.iter().map(Finding::to_json).collect::<Vec<_>>() })
}

/// The lines, and what follows from them.
fn to_text(findings: &[Finding], colours: bool) -> String {
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    lines(findings, colours) + &summary(count(Level::Fail), count(Level::Warn))
}

/// A line for each finding, with what mends it below.
pub(super) fn lines(findings: &[Finding], colours: bool) -> String {
    let mut text = String::new();
    for finding in findings {
        let (mark, colour) = match finding.level {
            Level::Ok => ("✓", "32"),
            Level::Warn => ("!", "33"),
            Level::Fail => ("✗", "31"),
        };
        let mark = if colours { format!("\x1b[{colour}m{mark}\x1b[0m") } else { mark.to_owned() };
        put(&mut text, format_args!("{mark} {}\n", escaped(&finding.text)));
        if let Some(fault) = &finding.fault {
            let mend = escaped_lines(&fault.mend).replace('\n', "\n          ");
            put(&mut text, format_args!("    mend: {mend}  [{}]\n", fault.code));
        }
    }
    text
}

/// The last line.
pub(super) fn summary(failed: usize, warned: usize) -> String {
    match (failed, warned) {
        (0, 0) => "all is well\n".to_owned(),
        (0, _) => format!("ready; {warned} to look at (!)\n"),
        _ => format!("not ready: {failed} to mend (✗), {warned} to look at (!)\n"),
    }
}

/// Writing to a string cannot fail.
fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).unwrap_or_default();
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
