//! `walrelay check`: everything that could keep the relay from working, found without changing
//! anything. One line per finding, how to mend it below, exit 1 when something must be mended.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use serde_json::json;
use tokio_postgres::Client;

use crate::config::Config;
use crate::error::{Exit, Fault};
use crate::polling::handover::standing;
use crate::polling::prepare::{self, Prepared};
use crate::polling::settings::PollingSettings;
use crate::polling::table::{self, Report};
use crate::source::preflight::{self, Finding, Level};
use crate::source::settings::{Host, SourceSettings};
use crate::source::sql::{self, Sql};

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

/// Looks at the source, appends what was found at the sink, and prints all of it. A source that
/// cannot be reached is a finding too, so that the sink's are still seen.
pub(crate) async fn run(config: &Config, json: bool, sink: Vec<Finding>) -> Result<Exit, Fault> {
    let mut findings = match &config.polling {
        Some(polling) => inspect_polled(&config.source, polling).await,
        None => inspect(&config.source).await,
    };
    findings.extend(sink);
    if json {
        println!("{}", to_json(&findings));
    } else {
        print!("{}", to_text(&findings, colours()));
    }
    let failed = findings.iter().any(|finding| finding.level == Level::Fail);
    Ok(if failed { Exit::Failed } else { Exit::Done })
}

async fn inspect(settings: &SourceSettings) -> Vec<Finding> {
    let sql = match connect_sql(settings).await {
        Ok(sql) => sql,
        Err(fault) => return vec![Finding::fail(fault)],
    };
    match preflight::inspect(&sql.client, settings).await {
        Ok(report) => report.findings.into_iter().chain(exposed(&sql)).collect(),
        Err(error) => vec![Finding::fail(preflight::query_fault(&error, "looking around"))],
    }
}

async fn inspect_polled(settings: &SourceSettings, polling: &PollingSettings) -> Vec<Finding> {
    let looked = async {
        let sql = connect_sql(settings).await?;
        let (client, outbox) = (&sql.client, prepare::table(settings)?);
        let Report { facts, mut findings } = table::inspect(client, outbox, polling).await?;
        findings.extend(exposed(&sql));
        let well = findings.iter().all(|finding| finding.level != Level::Fail);
        if let Some(facts) = facts.filter(|_| well) {
            let prepared = Prepared::of(&facts, settings, outbox, polling);
            let standing = standing(client, &prepared).await?;
            if standing.handed_over {
                findings.push(Finding::fail(standing.fault(settings)));
            }
        }
        Ok::<_, Fault>(findings)
    };
    looked.await.unwrap_or_else(|fault| vec![Finding::fail(fault)])
}

pub(crate) fn colours() -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !unwanted && std::io::stdout().is_terminal()
}

fn to_json(findings: &[Finding]) -> serde_json::Value {
    let ok = findings.iter().all(|finding| finding.level != Level::Fail);
    json!({ "ok": ok, "findings": findings.iter().map(Finding::to_json).collect::<Vec<_>>() })
}

pub(crate) fn to_text(findings: &[Finding], colours: bool) -> String {
    let mut text = String::new();
    for finding in findings {
        let (mark, colour) = match finding.level {
            Level::Ok => ("✓", "32"),
            Level::Warn => ("!", "33"),
            Level::Fail => ("✗", "31"),
        };
        let mark = if colours { format!("\x1b[{colour}m{mark}\x1b[0m") } else { mark.to_owned() };
        put(&mut text, format_args!("{mark} {}\n", finding.text));
        if let Some(fault) = &finding.fault {
            let mend = fault.mend.replace('\n', "\n          ");
            put(&mut text, format_args!("    mend: {mend}  [{}]\n", fault.code));
        }
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (failed, warned) = (count(Level::Fail), count(Level::Warn));
    let summary = match (failed, warned) {
        (0, 0) => "all is well".to_owned(),
        (0, _) => format!("ready; {warned} to look at (!)"),
        _ => format!("not ready: {failed} to mend (✗), {warned} to look at (!)"),
    };
    put(&mut text, format_args!("{summary}\n"));
    text
}

/// Writing to a string cannot fail.
fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Vec<Finding> {
        let fault =
            Fault::new(Exit::Slot, "slot.missing", "no slot", "source.slot", "walrelay\ninit");
        vec![Finding::ok("a", "fine"), Finding::warn("b", "so so"), Finding::fail(fault)]
    }

    #[test]
    fn each_finding_is_a_line_with_its_mending_below() {
        assert_eq!(
            to_text(&findings(), false),
            "✓ fine\n! so so\n✗ no slot (source.slot)\n    mend: walrelay\n          init  \
             [slot.missing]\nnot ready: 1 to mend (✗), 1 to look at (!)\n"
        );
        assert!(to_text(&findings()[..2], false).ends_with("ready; 1 to look at (!)\n"));
        assert!(to_text(&findings()[..1], false).ends_with("all is well\n"));
        assert!(to_text(&findings(), true).contains("\x1b[31m✗\x1b[0m no slot"));
    }

    #[test]
    fn scripts_get_the_same_as_people() {
        let value = to_json(&findings());
        assert_eq!(value["ok"], false);
        assert_eq!(value["findings"][2]["topic"], "slot.missing");
        assert_eq!(value["findings"][2]["mend"], "walrelay\ninit");
        assert_eq!(value["findings"][2]["exit"], 3);
        assert_eq!(value["findings"][0]["level"], "ok");
    }
}
