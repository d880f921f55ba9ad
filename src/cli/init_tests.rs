use super::*;
use clap::Parser as _;

use crate::cli::args::{Args, Command, SlotAction};
use crate::cli::slot;
use crate::config::AdminSettings;
use crate::dead_letter::writer::DeadLetterSettings;
use crate::delivery::settings::DeliverySettings;
use crate::sink::testing::MemoryBroker;
use crate::source::testing;

const SILENT: Mode = Mode { dry_run: false, prints: false };
const PLAIN: Wanted<'_> = Wanted { role: None, emit: false };
const DRY_RUN: Mode = Mode { dry_run: true, ..SILENT };

fn slot_action(line: &str) -> SlotAction {
    match Args::try_parse_from(line.split(' ')).map(|args| args.command) {
        Ok(Command::Slot { action }) => action,
        _ => panic!("{line}"),
    }
}

fn config(source: SourceSettings) -> Config {
    Config {
        source,
        polling: None,
        sink: std::sync::Arc::new(MemoryBroker::default()),
        delivery: DeliverySettings::default(),
        dead_letter: DeadLetterSettings::default(),
        admin: AdminSettings::default(),
        tracing: crate::trace::TracingSettings::default(),
        log: crate::config::LogSettings::default(),
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn from_nothing_to_ready_and_back() {
    let (_, settings) = testing::logical().database("cli_life").await;
    let config = config(settings);
    let failed = async || {
        let found = check::source(&config).await.findings;
        found.iter().filter(|finding| finding.level == Level::Fail).count()
    };
    assert!(failed().await > 0);
    // WHEN the SQL is only printed THEN nothing is made
    assert_eq!(script(&config, PLAIN).await, Ok(Exit::Done));
    assert!(failed().await > 0);
    // WHEN it is a dry run THEN the same things are named, and nothing is made
    let would = source(&config, PLAIN, DRY_RUN).await.unwrap();
    assert!(failed().await > 0);
    let done = source(&config, PLAIN, SILENT).await.unwrap();
    assert_eq!((would.made.len(), &would), (4, &done));
    assert_eq!(source(&config, PLAIN, SILENT).await, Ok(InitReport::default()));
    assert_eq!(failed().await, 0);

    let show = slot_action("walrelay slot show --json");
    assert_eq!(slot::run(&config, &show).await, Ok(Exit::Done));
    let drop = slot_action("walrelay slot drop --yes");
    assert_eq!(slot::run(&config, &drop).await, Ok(Exit::Done));
    let gone = slot::run(&config, &show).await.unwrap_err();
    assert_eq!((gone.code, gone.exit), ("slot.missing", Exit::Slot));
    let create = slot_action("walrelay slot create");
    assert_eq!(slot::run(&config, &create).await, Ok(Exit::Done));

    let unknown =
        source(&config, Wanted { role: Some("no such role"), ..PLAIN }, SILENT).await.unwrap_err();
    assert_eq!(unknown.code, "source.role-missing");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn an_unreachable_source_does_not_hide_the_sink() {
    let (_, mut settings) = testing::logical().database("cli_unreachable").await;
    settings.connection.hosts[0].name = "/nonexistent".into();
    let config = config(settings);
    let found = check::source(&config).await.findings;
    assert_eq!(found.iter().map(|finding| finding.level).collect::<Vec<_>>(), [Level::Fail]);
    assert_eq!(source(&config, PLAIN, SILENT).await.unwrap_err().exit, Exit::Source);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn init_is_refused_where_it_cannot_help() {
    let (_, settings) = testing::replica_level().database("cli_replica").await;
    let fault = source(&config(settings), PLAIN, SILENT).await.unwrap_err();
    assert_eq!((fault.code, fault.exit), ("source.wal-level", Exit::Source));
}

#[test]
fn one_summary_is_about_both_sides() {
    let left = || LeftStep {
        what: "let role r replicate".to_owned(),
        who: "a superuser",
        sql: "ALTER ROLE r REPLICATION;".to_owned(),
        is_optional: false,
    };
    let done = |made, left_to_superuser| InitReport {
        made: (0..made).map(|it: usize| format!("make {it}")).collect(),
        left: (0..left_to_superuser).map(|_: usize| left()).collect(),
        failed: Vec::new(),
    };
    let after = |report: &InitReport| summary(report, 0, false);
    assert_eq!(after(&done(0, 0)), "nothing is missing\n");
    assert_eq!(after(&done(1, 0)), "1 thing was made; now nothing is missing\n");
    assert_eq!(after(&done(4, 0)), "4 things were made; now nothing is missing\n");
    assert_eq!(after(&done(4, 1)), "4 things were made; 1 left to a superuser (!)\n");
    assert_eq!(after(&done(0, 1)), "1 left to a superuser (!)\n");
    // WHEN it is a dry run THEN nothing is said to be made
    let dry = "dry run, nothing was made; 4 things are missing";
    assert_eq!(summary(&done(4, 0), 0, true), format!("{dry}\n"));
    assert_eq!(summary(&done(4, 1), 0, true), format!("{dry}; 1 left to a superuser (!)\n"));
    assert_eq!(summary(&done(0, 0), 0, true), "nothing is missing\n");
    // WHEN something is wrong THEN nothing is said to be well
    let fault = Fault::new(Exit::Slot, "slot.plugin", "another plugin", "", "choose another");
    let left = InitReport { failed: vec![Finding::fail(fault)], ..done(2, 0) };
    assert_eq!(summary(&left, 1, false), "not ready: 2 problems (✗)\n");
    assert_eq!(summary(&done(2, 0), 1, false), "not ready: 1 problem (✗)\n");
    let value = left.to_json(true, &[]);
    assert_eq!((&value["dry_run"], &value["made"][1]), (&true.into(), &"make 1".into()));
    assert_eq!(value["failed"][0]["topic"], "slot.plugin");
}
