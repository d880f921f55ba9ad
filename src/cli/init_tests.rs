use super::*;
use crate::cli::args::SlotAction;
use crate::cli::slot;
use crate::config::AdminSettings;
use crate::dead_letter::writer::DeadLetterSettings;
use crate::delivery::settings::DeliverySettings;
use crate::sink::testing::MemoryBroker;
use crate::source::testing;

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
async fn from_nothing_to_ready_and_back() {
    let (_, settings) = testing::logical().database("cli_life").await;
    let config = config(settings);
    let failed = async || {
        let found = check::source(&config).await.findings;
        found.iter().filter(|finding| finding.level == Level::Fail).count()
    };
    assert!(failed().await > 0);
    // WHEN the SQL is only printed THEN nothing is made
    assert_eq!(script(&config, None).await, Ok(Exit::Done));
    assert!(failed().await > 0);
    let done = source(&config, None).await.unwrap();
    assert_eq!((done.made, done.left_to_superuser, done.failed), (4, 0, Vec::new()));
    assert_eq!(source(&config, None).await, Ok(InitReport::default()));
    assert_eq!(failed().await, 0);

    let show = SlotAction::Show { json: true };
    assert_eq!(slot::run(&config, &show).await, Ok(Exit::Done));
    let drop = SlotAction::Drop { yes: false, name: Some("cli_life".into()) };
    assert_eq!(slot::run(&config, &drop).await, Ok(Exit::Done));
    let gone = slot::run(&config, &show).await.unwrap_err();
    assert_eq!((gone.code, gone.exit), ("slot.missing", Exit::Slot));
    let create = SlotAction::Create { failover: false };
    assert_eq!(slot::run(&config, &create).await, Ok(Exit::Done));

    let unknown = source(&config, Some("no such role")).await.unwrap_err();
    assert_eq!(unknown.code, "source.role-missing");
}

#[tokio::test]
async fn an_unreachable_source_does_not_hide_the_sink() {
    let (_, mut settings) = testing::logical().database("cli_unreachable").await;
    settings.connection.hosts[0].name = "/nonexistent".into();
    let config = config(settings);
    let found = check::source(&config).await.findings;
    assert_eq!(found.iter().map(|finding| finding.level).collect::<Vec<_>>(), [Level::Fail]);
    assert_eq!(source(&config, None).await.unwrap_err().exit, Exit::Source);
}

#[tokio::test]
async fn init_is_refused_where_it_cannot_help() {
    let (_, settings) = testing::replica_level().database("cli_replica").await;
    let fault = source(&config(settings), None).await.unwrap_err();
    assert_eq!((fault.code, fault.exit), ("source.wal-level", Exit::Source));
}

#[test]
fn one_summary_is_about_both_sides() {
    let done = |made, left_to_superuser| InitReport { made, left_to_superuser, failed: Vec::new() };
    assert_eq!(summary(&done(0, 0), 0), "nothing is missing\n");
    assert_eq!(summary(&done(1, 0), 0), "1 thing was made; now nothing is missing\n");
    assert_eq!(summary(&done(4, 0), 0), "4 things were made; now nothing is missing\n");
    assert_eq!(summary(&done(4, 1), 0), "4 things were made; 1 left to a superuser (!)\n");
    assert_eq!(summary(&done(0, 1), 0), "1 left to a superuser (!)\n");
    // WHEN something is left to mend THEN nothing is said to be well
    let fault = Fault::new(Exit::Slot, "slot.plugin", "another plugin", "", "choose another");
    let left = InitReport { failed: vec![Finding::fail(fault)], ..done(2, 0) };
    assert_eq!(summary(&left, 1), "not ready: 2 problems (✗)\n");
    assert_eq!(summary(&done(2, 0), 1), "not ready: 1 problem (✗)\n");
}
