//! `walrelay init`: makes what is missing in Postgres and at the broker, or prints the SQL for the
//! first. What it may not do itself it says, with who may.

use tokio_postgres::Client;

use super::check::{self, connect};
use super::output::{is_coloured, print, print_line};
use crate::app::sink_requirements;
use crate::base::error::{Exit, Fault};
use crate::base::finding::{Finding, Level, faults};
use crate::base::runtime;
use crate::config::Config;
use crate::doctor::{polled_table, source as source_doctor};
use crate::polling::prepare;
use crate::polling::settings::PollingSettings;
use crate::source::facts::{self, RoleFacts, SourceFacts};
use crate::source::faults::query_fault;
use crate::source::init::{self, InitStep};
use crate::source::quote::quote_ident;
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

/// Makes what is missing in Postgres, then at the broker, with a line for each thing, and says in the
/// end whether anything is still missing. With `sql` only the SQL is printed. `role` is the role that
/// `walrelay run` will log in as, when that is not the one of `source.url`.
pub(crate) fn run(config: &Config, sql: bool, role: Option<&str>) -> Result<Exit, Vec<Fault>> {
    if sql {
        return Ok(runtime::try_block_on(script(config, role))?);
    }
    let mut done = runtime::try_block_on(source(config, role))?;
    let made = config.sink.prepare(&sink_requirements(config));
    for thing in made.iter().flatten() {
        print_line(&format!("+ make {thing}"));
        done.made += 1;
    }
    let failed = made.as_ref().err().map_or(0, Vec::len);
    let lines = check::lines(&done.left, is_coloured(&std::io::stdout()));
    print(&(lines + &summary(&done, failed)))?;
    made?;
    Ok(if done.left.is_empty() { Exit::Done } else { Exit::Failed })
}

/// Of everything: faults at the broker end the command.
fn summary(done: &Done, failed_at_broker: usize) -> String {
    let failed = done.left.len() + failed_at_broker;
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
        Some(polling) if lacks_polled_table(&client, settings, polling).await? => {
            POLLING_SQL.to_owned()
        }
        Some(_) => String::new(),
        None => init::script(&planned(&client, settings, role).await?, settings),
    };
    print(&text)
}

/// Makes what is missing in Postgres.
async fn source(config: &Config, role: Option<&str>) -> Result<Done, Fault> {
    let settings = &config.source;
    let client = connect(settings).await?;
    if let Some(polling) = &config.polling {
        return make_polled_table(&client, settings, polling).await;
    }
    let steps = planned(&client, settings, role).await?;
    init::run(&client, &steps, print_step).await?;
    let mut left = source_doctor::report(&client, settings).await?.findings;
    left.retain(|finding| finding.level == Level::Fail);
    let told = steps.iter().filter(|step| step.hint).count();
    Ok(Done { made: steps.len() - told, told, left })
}

/// On a server that fails with one of these no step could succeed, or none would be of use.
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
    init::plan(&report.facts, settings, &relay)
}

/// A step that is taken, or that somebody else must take.
pub(super) fn print_step(step: &InitStep) {
    if step.hint {
        print_line(&format!("! {}: run this as a superuser: {}", step.what, step.sql));
    } else {
        print_line(&format!("+ {}", step.what));
    }
}

/// A polled table needs nothing but itself. Only the shipped one is made: one of other names has its
/// own designer.
async fn lacks_polled_table(
    client: &Client,
    settings: &SourceSettings,
    polling: &PollingSettings,
) -> Result<bool, Fault> {
    let outbox = prepare::table(settings)?;
    let report = polled_table::inspect(client, outbox, polling).await?;
    let is_shipped = (outbox.schema.as_str(), outbox.table.as_str()) == ("public", "outbox");
    match faults(&report.findings).next() {
        None => Ok(false),
        Some(fault) if fault.code == "table.missing" && is_shipped => Ok(true),
        Some(fault) => Err(fault.clone()),
    }
}

async fn make_polled_table(
    client: &Client,
    settings: &SourceSettings,
    polling: &PollingSettings,
) -> Result<Done, Fault> {
    if !lacks_polled_table(client, settings, polling).await? {
        return Ok(Done::default());
    }
    print_line("+ make outbox table public.outbox, to be polled");
    let made = client.batch_execute(POLLING_SQL).await;
    made.map_err(|error| query_fault(&error, "making the outbox table"))?;
    let report = polled_table::inspect(client, prepare::table(settings)?, polling).await?;
    match faults(&report.findings).next() {
        None => Ok(Done { made: 1, ..Done::default() }),
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
