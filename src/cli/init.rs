//! `walrelay init`: makes what is missing in Postgres and at the broker, or prints the SQL for
//! Postgres. What only a superuser may do it prints instead.

use tokio_postgres::Client;

use super::check::{self, connect};
use super::output::{is_coloured, print, print_line};
use super::slow;
use crate::app::sink_requirements;
use crate::base::error::{Exit, Fault};
use crate::base::finding::{Finding, Level, faults};
use crate::base::runtime;
use crate::config::Config;
use crate::doctor::{polled_table, source as source_doctor};
use crate::polling::settings::PollingSettings;
use crate::polling::table_facts::polled_outbox;
use crate::source::emit;
use crate::source::facts::{self, RoleFacts, SourceFacts};
use crate::source::faults::query_fault;
use crate::source::init::{self, InitStep};
use crate::source::quote::quote_ident;
use crate::source::settings::SourceSettings;

/// The shipped table.
const POLLING_SQL: &str = include_str!("../../sql/polling.sql");

/// What was done, and what was not.
#[derive(Debug, Default, PartialEq)]
struct InitReport {
    /// How many things were made.
    made: usize,
    /// How many things are left to a superuser.
    left_to_superuser: usize,
    /// What is wrong, or still missing.
    failed: Vec<Finding>,
}

/// Makes what is missing in Postgres, then at the broker, with a line
/// for each thing, and says in the end whether anything is still
/// missing. With `sql` only the SQL is printed. `role` is the role that
/// `walrelay run` will log in as, when that is not the one of `source.url`.
pub(crate) fn run(config: &Config, sql: bool, role: Option<&str>) -> Result<Exit, Vec<Fault>> {
    if sql {
        return Ok(runtime::try_block_on(script(config, role))?);
    }
    let mut report = runtime::try_block_on(source(config, role))?;
    let made = config.sink.prepare(&sink_requirements(config));
    for thing in made.iter().flatten() {
        print_line(&format!("+ make {thing}"));
        report.made += 1;
    }
    let failed = made.as_ref().err().map_or(0, Vec::len);
    let lines = check::lines(&report.failed, is_coloured(&std::io::stdout()));
    print(&(lines + &summary(&report, failed)))?;
    made?;
    Ok(if report.failed.is_empty() { Exit::Done } else { Exit::Failed })
}

fn summary(report: &InitReport, failed_at_broker: usize) -> String {
    let failed = report.failed.len() + failed_at_broker;
    if failed > 0 {
        return check::summary(failed, 0);
    }
    let made = match report.made {
        0 => String::new(),
        1 => "1 thing was made; ".to_owned(),
        made => format!("{made} things were made; "),
    };
    match (report.left_to_superuser, report.made) {
        (0, 0) => "nothing is missing\n".to_owned(),
        (0, _) => format!("{made}now nothing is missing\n"),
        (left, _) => format!("{made}{left} left to a superuser (!)\n"),
    }
}

/// Prints the SQL that [`source`] would run.
async fn script(config: &Config, role: Option<&str>) -> Result<Exit, Fault> {
    let settings = &config.source;
    let client = connect(settings).await?;
    let text = match &config.polling {
        Some(polling) if lacks_polled_table(&client, settings, polling).await? => {
            POLLING_SQL.to_owned()
        }
        Some(_) => String::new(),
        None => init::script(&planned(&client, settings, role).await?, settings),
    };
    print(&text)
}

/// Makes what is missing in Postgres.
async fn source(config: &Config, role: Option<&str>) -> Result<InitReport, Fault> {
    let settings = &config.source;
    let client = connect(settings).await?;
    if let Some(polling) = &config.polling {
        return make_polled_table(&client, settings, polling).await;
    }
    let mut steps = planned(&client, settings, role).await?;
    steps.retain(|step| !step.left_out);
    // The slot is last. It alone may take longer than the time limits of the role.
    let slot_at = steps.iter().position(InitStep::makes_slot).unwrap_or(steps.len());
    let (others, slot) = steps.split_at(slot_at);
    init::run(&client, others, print_step).await?;
    if !slot.is_empty() {
        slow::without_limit(settings, &client, init::run(&client, slot, print_step)).await?;
    }
    let mut failed = source_doctor::report(&client, settings).await?.findings;
    failed.retain(|finding| finding.level == Level::Fail);
    let hints = steps.iter().filter(|step| step.hint);
    let left_to_superuser = hints.clone().filter(|step| !step.is_optional()).count();
    Ok(InitReport { made: steps.len() - hints.count(), left_to_superuser, failed })
}

/// Faults with which every step would fail or be of no use.
const HOPELESS: [&str; 4] =
    ["source.version", "source.standby", "source.wal-level", "source.output-plugins"];

async fn planned(
    client: &Client,
    settings: &SourceSettings,
    role: Option<&str>,
) -> Result<Vec<InitStep>, Fault> {
    let report = source_doctor::report(client, settings).await?;
    if let Some(fault) = faults(&report.findings).find(|fault| HOPELESS.contains(&fault.code)) {
        return Err(fault.clone());
    }
    let relay = relay_role(client, &report.facts, role).await?;
    let emit = emit::missing(client, settings).await;
    let emit = emit.map_err(|error| query_fault(&error, "looking for outbox.emit"))?;
    init::plan(&report.facts, settings, &relay, emit.as_ref())
}

/// Prints a step that is taken, or that somebody else must take.
pub(super) fn print_step(step: &InitStep) {
    match step.left_to() {
        Some(who) => print_line(&format!("! {}: run this as {who}: {}", step.what, step.sql)),
        None => print_line(&format!("+ {}", step.what)),
    }
}

/// Only the shipped table is made; a table of another name is not ours to design.
async fn lacks_polled_table(
    client: &Client,
    settings: &SourceSettings,
    polling: &PollingSettings,
) -> Result<bool, Fault> {
    let outbox = polled_outbox(settings)?;
    let report = polled_table::inspect(client, outbox, polling).await?;
    match faults(&report.findings).next() {
        None => Ok(false),
        Some(fault) if fault.code == "table.missing" && outbox.is_shipped() => Ok(true),
        Some(fault) => Err(fault.clone()),
    }
}

async fn make_polled_table(
    client: &Client,
    settings: &SourceSettings,
    polling: &PollingSettings,
) -> Result<InitReport, Fault> {
    if !lacks_polled_table(client, settings, polling).await? {
        return Ok(InitReport::default());
    }
    print_line("+ make outbox table public.outbox, to be polled");
    let made = client.batch_execute(POLLING_SQL).await;
    made.map_err(|error| query_fault(&error, "making the outbox table"))?;
    let report = polled_table::inspect(client, polled_outbox(settings)?, polling).await?;
    match faults(&report.findings).next() {
        None => Ok(InitReport { made: 1, ..InitReport::default() }),
        Some(fault) => Err(fault.clone()),
    }
}

async fn relay_role(
    client: &Client,
    facts: &SourceFacts,
    role: Option<&str>,
) -> Result<RoleFacts, Fault> {
    let Some(name) = role else { return Ok(facts.role.clone()) };
    let found = facts::role(client, name).await;
    found.map_err(|error| query_fault(&error, "looking for the role"))?.ok_or_else(|| {
        Fault::new(
            Exit::Source,
            "source.role-missing",
            format!("role {name} does not exist"),
            "--role",
            format!(
                "as a superuser: CREATE ROLE {} LOGIN REPLICATION NOINHERIT; (see sql/roles.sql)",
                quote_ident(name)
            ),
        )
    })
}

#[cfg(test)]
#[path = "init_tests.rs"]
mod tests;
