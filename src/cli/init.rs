//! `walrelay init`: makes what is missing on the Postgres side, or prints the SQL for it. What it
//! may not do itself it says, with who may.

use super::check;
use crate::config::Config;
use crate::error::{Exit, Fault};
use crate::source::facts::{self, RoleFacts};
use crate::source::init;
use crate::source::preflight::{self, Level, Report, query_fault};
use crate::source::settings::SourceSettings;

/// Makes what is missing, or with `sql` prints it. `role` is the role that `walrelay run` will log
/// in as, when that is not the one of `source.url`.
pub(crate) async fn run(config: &Config, sql: bool, role: Option<&str>) -> Result<Exit, Fault> {
    let settings = &config.source;
    let client = check::connect(settings).await?;
    let report = inspect(&client, settings).await?;
    refuse_server(&report)?;
    let relay = relay_role(&client, &report, role).await?;
    let steps = init::plan(&report, settings, &relay)?;
    if sql {
        print!("{}", init::script(&steps, settings));
        return Ok(Exit::Done);
    }
    if steps.is_empty() {
        println!("nothing is missing");
    }
    init::run(&client, &steps, |step| {
        if step.hint {
            println!("! {}: run this as a superuser: {}", step.what, step.sql);
        } else {
            println!("+ {}", step.what);
        }
    })
    .await?;
    let mut left = inspect(&client, settings).await?.findings;
    left.retain(|finding| finding.level == Level::Fail);
    if left.is_empty() {
        return Ok(Exit::Done);
    }
    print!("{}", check::to_text(&left, check::colours()));
    Ok(Exit::Failed)
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
