//! Tests with an object that is taken away while the relay runs: it stops rather than lose events.

use crate::support::faults::{CliFixture, Relay, read};
use crate::support::shared_postgres;

/// A relay that has carried one event.
fn carrying(name: &str) -> (CliFixture<'static>, Relay) {
    let scene = CliFixture::waiting(name);
    let mut relay = scene.spawn(&["run"]);
    scene.wait_confirmed(&mut relay);
    (scene, relay)
}

/// One row of those columns that every table here has; where its transaction ended.
fn insert_unseen(scene: &CliFixture<'_>) -> String {
    scene.commit(&format!(
        "INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES ('{}', '2', 'T')",
        scene.name
    ))
}

#[test]
fn a_table_that_is_published_and_not_configured_is_named_once_it_has_rows() {
    let (scene, mut relay) = carrying("run_second_table");
    scene.sql(
        "CREATE TABLE billing (LIKE outbox INCLUDING ALL);
         ALTER PUBLICATION walrelay ADD TABLE billing;
         INSERT INTO billing SELECT * FROM outbox",
    );
    relay.wait_to_say("outbox.table-not-configured");
    relay.wait_to_say("public.billing");
    scene.wait_confirmed(&mut relay);
    relay.stop();
}

#[test]
fn a_publication_that_is_dropped_stops_the_relay() {
    let (scene, relay) = carrying("run_pub_dropped");
    scene.sql("DROP PUBLICATION walrelay");
    let end = insert_unseen(&scene);
    let codes = ["publication.missing", "source.stream-refused"];
    relay.wait().assert_fault_of(
        4,
        &codes,
        &["publication", "walrelay", "does not exist", "walrelay slot drop"],
    );
    assert!(scene.held_before(&end));
    assert_eq!(read(&[&scene.topic()]).len(), 1);
}

#[test]
fn a_column_that_is_dropped_stops_the_relay() {
    let (scene, relay) = carrying("run_column_dropped");
    scene.sql("ALTER TABLE outbox DROP COLUMN payload");
    let end = insert_unseen(&scene);
    relay.wait().assert_fault(4, "table.column-missing", &["public.outbox", "no column payload"]);
    assert!(scene.held_before(&end));
    assert_eq!(read(&[&scene.topic()]).len(), 1);
}

#[test]
fn a_column_that_events_can_do_without_ends_no_relay_that_runs_and_none_starts_without_it() {
    let mut scene = CliFixture::ready("run_optional_dropped");
    scene.sql("ALTER TABLE outbox ADD trace text");
    scene.source = "[[source.outbox]]\ncolumns = { traceparent = \"trace\" }\n".into();
    scene.insert("1", "{}");
    let mut relay = scene.spawn(&["run"]);
    scene.wait_confirmed(&mut relay);
    // WHEN the column is dropped, and the relay has to connect again
    scene.sql("ALTER TABLE outbox DROP COLUMN trace");
    scene.end_walsender();
    relay.wait_to_say("outbox.column-gone");
    scene.insert("2", "{}");
    scene.wait_confirmed(&mut relay);
    relay.stop();
    assert_eq!(scene.records().len(), 2);
    // THEN the next start names it
    let refused = scene.walrelay(&["run"]);
    refused.assert_fault(4, "table.column-missing", &["no column trace"]);
}

#[test]
fn a_row_filter_that_is_put_on_stops_the_relay() {
    let (scene, relay) = carrying("run_row_filter");
    scene.sql("ALTER PUBLICATION walrelay SET TABLE outbox WHERE (type = 'never')");
    scene.insert("2", "{}");
    let codes = ["publication.row-filter", "publication.recreated"];
    relay.wait().assert_fault_of(4, &codes, &["publication walrelay"]);
    assert_eq!(read(&[&scene.topic()]).len(), 1);
    // THEN it does not start again either, and nobody can acknowledge that while rows are held back.
    let before = scene.slot_state();
    let resumed = scene.walrelay(&["resume", "--yes"]);
    resumed.assert_fault(4, "publication.row-filter", &["are lost silently"]);
    scene.walrelay(&["run"]).assert_fault_of(4, &codes, &["publication walrelay"]);
    assert_eq!(scene.slot_state(), before);
}

#[test]
fn a_database_that_takes_no_connections_for_a_while_does_not_end_the_relay() {
    let (scene, mut relay) = carrying("run_closed");
    let postgres = |sql: &str| shared_postgres().sql("postgres", sql).unwrap();
    // WHEN an administrator closes the database, and ends its sessions
    postgres("ALTER DATABASE run_closed ALLOW_CONNECTIONS false");
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = 'run_closed'";
    postgres(end);
    relay.wait_to_say("is not currently accepting connections");
    // THEN the relay goes on once it is open again
    postgres("ALTER DATABASE run_closed ALLOW_CONNECTIONS true");
    scene.insert("2", "{}");
    scene.wait_confirmed(&mut relay);
    relay.stop();
    assert_eq!(scene.records().len(), 2);
}
