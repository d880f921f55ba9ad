//! `walrelay init`: makes what is missing in Postgres and at the broker, or prints the SQL for the
//! first. What it may not do itself it says, with who may.

use super::check::{self, connect};
use super::{say, sink, wait_for};
use crate::base::error::{Exit, Fault};
use crate::config::Config;
use crate::doctor::finding::{Finding, Level};
use crate::doctor::polled_table as table;
use crate::doctor::source as preflight;
use crate::doctor::source::{Report, query_fault};
use crate::polling::prepare;
use crate::polling::settings::PollingSettings;
use crate::source::facts::{self, RoleFacts};
use crate::source::init;
use crate::source::settings::SourceSettings;

/// The shipped table.
const POLLING_SQL: &str = include_str!("../../sql/polling.sql");

/// What was done, and what was not.
#[derive(Debug, Default, PartialEq)]
struct Done {
    /// Things that were made, each told as it was.
    made: usize,
    /// Things that only a superuser may make.
    told: usize,
    /// What is there and wrong, or still missing.
    left: Vec<Finding>,
}

/// Makes what is missing in Postgres, then at the broker, each told in a line of one list; in the
/// end, whether anything is missing still. With `sql` only the SQL is printed. `role` is the role that
/// `walrelay run` will log in as, when that is not the one of `source.url`.
pub(crate) fn run(config: &Config, sql: bool, role: Option<&str>) -> Result<Exit, Vec<Fault>> {
    let one = |fault| vec![fault];
    if sql {
        return wait_for(script(config, role)).map_err(one);
    }
    let mut done = wait_for(source(config, role)).map_err(one)?;
    let made = sink::init(config);
    let faults = made.as_ref().err().map_or(0, Vec::len);
    done.made += made.as_ref().copied().unwrap_or_default();
    let text = check::lines(&done.left, check::colours()) + &summary(&done, faults);
    super::print(&text).map_err(one)?;
    made?;
    Ok(if done.left.is_empty() { Exit::Done } else { Exit::Failed })
}

/// Of everything: `faults` are those of the broker, which end the command.
fn summary(done: &Done, faults: usize) -> String {
    let failed = done.left.len() + faults;
    if failed > 0 {
        return check::summary(failed, 0);
    }
    let made = match done.made {
        0 => String::new(),
        1 => "1 thing was made; ".to_owned(),
        made => format!("{made} things were made; "),
    };
    match (done.told, done.made) {
        (0, 0) => "nothing is missing\n".to_owned(),
        (0, _) => format!("{made}now nothing is missing\n"),
        (told, _) => format!("{made}{told} left to a superuser (!)\n"),
    }
}

/// The SQL that `source` would run.
async fn script(config: &Config, role: Option<&str>) -> Result<Exit, Fault> {
    let settings = &config.source;
    let client = connect(settings).await?;
    let text = match &config.polling {
        Some(polling) => match polled(&client, settings, polling).await? {
            Table::Missing => POLLING_SQL.to_owned(),
            Table::There => String::new(),
        },
        None => init::script(&planned(&client, settings, role).await?, settings),
    };
    super::print(&text)
}

/// Makes what is missing in Postgres.
async fn source(config: &Config, role: Option<&str>) -> Result<Done, Fault> {
    let settings = &config.source;
    let client = connect(settings).await?;
    if let Some(polling) = &config.polling {
        return make_polled(&client, settings, polling).await;
    }
    let steps = planned(&client, settings, role).await?;
    init::run(&client, &steps, tell).await?;
    let mut left = inspect(&client, settings).await?.findings;
    left.retain(|finding| finding.level == Level::Fail);
    let told = steps.iter().filter(|step| step.hint).count();
    Ok(Done { made: steps.len() - told, told, left })
}

async fn planned(
    client: &tokio_postgres::Client,
    settings: &SourceSettings,
    role: Option<&str>,
) -> Result<Vec<init::Step>, Fault> {
    let report = inspect(client, settings).await?;
    refuse_server(&report)?;
    let relay = relay_role(client, &report, role).await?;
    init::plan(&report, settings, &relay)
}

/// A step that is taken, or that somebody else must take.
pub(super) fn tell(step: &init::Step) {
    if step.hint {
        say(&format!("! {}: run this as a superuser: {}", step.what, step.sql));
    } else {
        say(&format!("+ {}", step.what));
    }
}

/// The polled table.
enum Table {
    There,
    Missing,
}

/// A polled table needs nothing but itself. One of other names has its own designer.
async fn polled(
    client: &tokio_postgres::Client,
    settings: &SourceSettings,
    polling: &PollingSettings,
) -> Result<Table, Fault> {
    let outbox = prepare::table(settings)?;
    let report = table::inspect(client, outbox, polling).await?;
    let is_shipped = (outbox.schema.as_str(), outbox.table.as_str()) == ("public", "outbox");
    match report.findings.into_iter().find_map(|finding| finding.fault) {
        None => Ok(Table::There),
        Some(fault) if fault.code == "table.missing" && is_shipped => Ok(Table::Missing),
        Some(fault) => Err(fault),
    }
}

async fn make_polled(
    client: &tokio_postgres::Client,
    settings: &SourceSettings,
    polling: &PollingSettings,
) -> Result<Done, Fault> {
    match polled(client, settings, polling).await? {
        Table::There => return Ok(Done::default()),
        Table::Missing => say("+ make outbox table public.outbox, to be polled"),
    }
    let made = client.batch_execute(POLLING_SQL).await;
    made.map_err(|error| query_fault(&error, "making the outbox table"))?;
    let report = table::inspect(client, prepare::table(settings)?, polling).await?;
    let fault = report.findings.into_iter().find_map(|finding| finding.fault);
    fault.map_or(Ok(Done { made: 1, ..Done::default() }), Err)
}

async fn inspect(
    client: &tokio_postgres::Client,
    settings: &SourceSettings,
) -> Result<Report, Fault> {
    let report = preflight::inspect(client, settings).await;
    report.map_err(|error| query_fault(&error, "looking for what is missing"))
}

/// On such a server no step could succeed, or none would be of use.
fn refuse_server(report: &Report) -> Result<(), Fault> {
    const HOPELESS: [&str; 4] =
        ["source.version", "source.standby", "source.wal-level", "source.output-plugins"];
    let faults = report.findings.iter().filter_map(|finding| finding.fault.as_ref());
    match faults.into_iter().find(|fault| HOPELESS.contains(&fault.code)) {
        Some(fault) => Err(fault.clone()),
        None => Ok(()),
    }
}

async fn relay_role(
    client: &tokio_postgres::Client,
    report: &Report,
    role: Option<&str>,
) -> Result<RoleFacts, Fault> {
    let Some(name) = role else {
        return Ok(report.facts.server.role.clone());
    };
    let found = facts::role(client, name).await;
    found.map_err(|error| query_fault(&error, "looking for the role"))?.ok_or_else(|| {
        Fault::new(
            Exit::Source,
            "source.role-missing",
            format!("role {name} does not exist"),
            "--role",
            format!(
                "as a superuser: CREATE ROLE {} LOGIN REPLICATION NOINHERIT; (see sql/roles.sql)",
                crate::source::quote::quote_ident(name)
            ),
        )
    })
}

#[cfg(test)]
#[path = "init_tests.rs"]
mod tests;
