//! `walrelay init`: makes what is missing on the Postgres side, or prints the SQL for it. What it
//! may not do itself it says, with who may.

use super::check;
use crate::config::Config;
use crate::error::{Exit, Fault};
use crate::polling::settings::PollingSettings;
use crate::polling::{prepare, table};
use crate::source::facts::{self, RoleFacts};
use crate::source::init;
use crate::source::preflight::{self, Level, Report, query_fault};
use crate::source::settings::SourceSettings;

/// The shipped table.
const POLLING_SQL: &str = include_str!("../../sql/polling.sql");

/// Makes what is missing, or with `sql` prints it. `role` is the role that `walrelay run` will log
/// in as, when that is not the one of `source.url`.
pub(crate) async fn run(config: &Config, sql: bool, role: Option<&str>) -> Result<Exit, Fault> {
    let settings = &config.source;
    let client = check::connect(settings).await?;
    if let Some(polling) = &config.polling {
        return polled(&client, settings, polling, sql).await;
    }
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
    init::run(&client, &steps, tell).await?;
    let mut left = inspect(&client, settings).await?.findings;
    left.retain(|finding| finding.level == Level::Fail);
    if left.is_empty() {
        return Ok(Exit::Done);
    }
    print!("{}", check::to_text(&left, check::colours()));
    Ok(Exit::Failed)
}

/// A step that is taken, or that somebody else must take.
pub(super) fn tell(step: &init::Step) {
    if step.hint {
        println!("! {}: run this as a superuser: {}", step.what, step.sql);
    } else {
        println!("+ {}", step.what);
    }
}

/// A polled table needs nothing but itself. One of other names has its own designer.
async fn polled(
    client: &tokio_postgres::Client,
    settings: &SourceSettings,
    polling: &PollingSettings,
    sql: bool,
) -> Result<Exit, Fault> {
    let outbox = prepare::table(settings)?;
    let report = table::inspect(client, outbox, polling).await?;
    let is_shipped = (outbox.schema.as_str(), outbox.table.as_str()) == ("public", "outbox");
    match report.findings.iter().find_map(|finding| finding.fault.as_ref()) {
        None if !sql => println!("nothing is missing"),
        None => {}
        Some(fault) if fault.code != "table.missing" || !is_shipped => return Err(fault.clone()),
        Some(_) if sql => print!("{POLLING_SQL}"),
        Some(_) => {
            println!("+ make outbox table public.outbox, to be polled");
            let made = client.batch_execute(POLLING_SQL).await;
            made.map_err(|error| query_fault(&error, "making the outbox table"))?;
            let report = table::inspect(client, outbox, polling).await?;
            let fault = report.findings.into_iter().find_map(|finding| finding.fault);
            return fault.map_or(Ok(Exit::Done), Err);
        }
    }
    Ok(Exit::Done)
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
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cli::slot;
    use crate::config::AdminSettings;
    use crate::delivery::settings::{DeliverySettings, OnDeadLetter};
    use crate::letter::DeadLetterSettings;
    use crate::sink::memory::MemorySettings;
    use crate::source::preflight::Finding;
    use crate::source::testing;

    fn config(source: SourceSettings) -> Config {
        Config {
            source,
            polling: None,
            sink: std::sync::Arc::new(MemorySettings::default()),
            delivery: DeliverySettings {
                window_events_max: 16,
                window_bytes_max: 1 << 20,
                attempts_max: 5,
                backoff_base: Duration::from_millis(200),
                backoff_cap: Duration::from_secs(30),
                on_dead_letter: OnDeadLetter::Continue,
                drain_timeout: Duration::from_secs(20),
                retry_budget_percent: 20,
                crash_file: None,
            },
            dead_letter: DeadLetterSettings::default(),
            admin: AdminSettings { listen: ([127, 0, 0, 1], 9464).into(), token: None },
        }
    }

    #[tokio::test]
    async fn from_nothing_to_ready_and_back() {
        let (_, settings) = testing::logical().database("cli_life").await;
        let config = config(settings);
        assert_eq!(check::run(&config, false, Vec::new()).await, Ok(Exit::Failed));
        // WHEN the SQL is only printed THEN nothing is made
        assert_eq!(run(&config, true, None).await, Ok(Exit::Done));
        assert_eq!(check::run(&config, true, Vec::new()).await, Ok(Exit::Failed));
        assert_eq!(run(&config, false, None).await, Ok(Exit::Done));
        assert_eq!(run(&config, false, None).await, Ok(Exit::Done));
        assert_eq!(check::run(&config, false, Vec::new()).await, Ok(Exit::Done));
        // THEN a fault of the sink is one of the check
        let fault = Fault::new(Exit::Sink, "sink.topic", "no topic", "", "make it");
        let sink = vec![Finding::fail(fault)];
        assert_eq!(check::run(&config, false, sink).await, Ok(Exit::Failed));

        let show = slot::Action::Show { json: true };
        assert_eq!(slot::run(&config, show.clone()).await, Ok(Exit::Done));
        let drop = slot::Action::Drop { yes: false, name: Some("cli_life".into()) };
        assert_eq!(slot::run(&config, drop).await, Ok(Exit::Done));
        let gone = slot::run(&config, show).await.unwrap_err();
        assert_eq!((gone.code, gone.exit), ("slot.missing", Exit::Slot));
        let create = slot::Action::Create { failover: false };
        assert_eq!(slot::run(&config, create).await, Ok(Exit::Done));

        let unknown = run(&config, false, Some("no such role")).await.unwrap_err();
        assert_eq!(unknown.code, "source.role-missing");
    }

    #[tokio::test]
    async fn an_unreachable_source_does_not_hide_the_sink() {
        let (_, mut settings) = testing::logical().database("cli_unreachable").await;
        settings.connection.hosts[0].name = "/nonexistent".into();
        let config = config(settings);
        assert_eq!(check::run(&config, true, Vec::new()).await, Ok(Exit::Failed));
        assert_eq!(run(&config, false, None).await.unwrap_err().exit, Exit::Source);
    }

    #[tokio::test]
    async fn init_is_refused_where_it_cannot_help() {
        let (_, settings) = testing::replica_level().database("cli_replica").await;
        let fault = run(&config(settings), false, None).await.unwrap_err();
        assert_eq!((fault.code, fault.exit), ("source.wal-level", Exit::Source));
    }
}
