//! Tests with changes under a running relay.

use std::sync::{Arc, Mutex};

use tokio_postgres::Client;

use super::fingerprint::{
    Comparison, KeptPublication, KnownPublication, PublicationFingerprint, PublicationKeeper,
    PublicationLook,
};
use crate::publication::{create_sql, published, published_unless_locked};
use crate::quote::quote_literal;
use crate::settings::SourceSettings;
use crate::{init, testing};
use walrelay_base::error::{Doubt, Exit, Fault};
use walrelay_base::lsn::Lsn;
use walrelay_core::outbox::settings::OutboxTable;

async fn take(client: &Client, settings: &SourceSettings) -> PublicationFingerprint {
    let published = published_unless_locked(client, settings).await.unwrap().unwrap();
    PublicationFingerprint::new(published, 150_000)
}

async fn look(
    system_id: &str,
    end: u64,
    client: &Client,
    settings: &SourceSettings,
) -> PublicationLook {
    let (system_id, wal_end) = (system_id.to_owned(), Lsn::from_wire(end));
    PublicationLook { system_id, wal_end, found: take(client, settings).await }
}

/// The publication that a process leaves to the next one.
#[derive(Clone, Debug, Default)]
struct Left(Arc<Mutex<Option<KeptPublication>>>);

impl PublicationKeeper for Left {
    fn keep(&self, known: &KeptPublication) {
        let json = serde_json::to_string(known).unwrap();
        *self.0.lock().unwrap() = Some(serde_json::from_str(&json).unwrap());
    }

    fn saw(&self, _: Lsn) {}
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn what_an_earlier_process_knew_is_compared() {
    let (client, mut settings) = testing::logical().database("fp_left").await;
    testing::prepare(&client, &settings).await;
    let left = Left::default();
    let process = |settings: &SourceSettings| {
        let kept = left.0.lock().unwrap().clone();
        let keeper = Box::new(left.clone());
        KnownPublication::restored(kept, Lsn::from_wire(7), settings, Some(keeper))
    };
    let compared = async |settings: &SourceSettings, end| {
        process(settings).compare(look("1", end, &client, settings).await, settings, true)
    };
    assert_eq!(compared(&settings, 8).await, Comparison::First);
    assert_eq!(compared(&settings, 9).await, Comparison::InOrder);
    // GIVEN a second table, in the configuration and the publication THEN that is no gap
    client
        .batch_execute(
            "CREATE TABLE second (LIKE outbox); ALTER PUBLICATION fp_left ADD TABLE second",
        )
        .await
        .unwrap();
    let mut two = settings.clone();
    two.outboxes.insert(0, OutboxTable { table: "second".into(), ..two.outboxes[0].clone() });
    assert_eq!(compared(&two, 10).await, Comparison::InOrder);
    // WHEN it is taken out and put back while no process runs THEN it is one
    client
        .batch_execute(
            "ALTER PUBLICATION fp_left DROP TABLE second; ALTER PUBLICATION fp_left ADD TABLE second",
        )
        .await
        .unwrap();
    let Comparison::Fault(fault) = compared(&two, 11).await else { panic!("it is no gap") };
    assert_eq!(fault.code, "publication.recreated");
    let doubt = Doubt { from: Lsn::from_wire(7), to: Lsn::from_wire(11) };
    assert_eq!(fault.doubt.as_deref(), Some(&doubt));
    // AND another publication is another matter
    client.batch_execute("CREATE PUBLICATION p FOR TABLE outbox, second").await.unwrap();
    settings.publication = "p".into();
    assert_eq!(compared(&settings, 12).await, Comparison::First);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn harmless_changes_are_no_fault() {
    let (client, settings) = testing::logical().database("fp_harmless").await;
    testing::prepare(&client, &settings).await;
    let before = take(&client, &settings).await;
    assert_eq!(before, take(&client, &settings).await);
    client
        .batch_execute(
            "ALTER TABLE outbox ADD tenant text;
             CREATE TABLE other (); ALTER PUBLICATION fp_harmless ADD TABLE other;
             ALTER PUBLICATION fp_harmless DROP TABLE other;
             ALTER PUBLICATION fp_harmless SET TABLE outbox, other;
             ALTER PUBLICATION fp_harmless ADD TABLES IN SCHEMA public;
             ALTER TABLE outbox RENAME TO away; ALTER TABLE away RENAME TO outbox;
             COMMENT ON PUBLICATION fp_harmless IS 'x';",
        )
        .await
        .unwrap();
    client.batch_execute("VACUUM (FULL, FREEZE) pg_publication").await.unwrap();
    client.batch_execute("VACUUM (FULL, FREEZE) pg_publication_rel").await.unwrap();
    let after = take(&client, &settings).await;
    assert_ne!(before, after);
    assert_eq!(before.change(&after, &settings), None);
    // A column that the configuration names and an event can do without is for the preflight to judge.
    let mut named = settings.clone();
    named.outboxes[0].columns.traceparent = "trace".to_owned();
    assert_eq!(before.change(&after, &named), None);
    assert_eq!(after.withholding_fault(&named), None);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn whatever_could_hold_back_an_event_is_a_fault() {
    let (client, settings) = testing::logical().database("fp_harmful").await;
    testing::prepare(&client, &settings).await;
    for (change, undo, code) in [
        (
            "ALTER PUBLICATION fp_harmful SET (publish = 'delete')",
            "ALTER PUBLICATION fp_harmful SET (publish = 'insert')",
            "publication.insert",
        ),
        (
            "ALTER TABLE outbox RENAME payload TO body",
            "ALTER TABLE outbox RENAME body TO payload",
            "table.column-missing",
        ),
        (
            "ALTER PUBLICATION fp_harmful DROP TABLE outbox",
            "ALTER PUBLICATION fp_harmful ADD TABLE outbox",
            "publication.table-missing",
        ),
        // Between two looks all is as before, and yet rows may be missing.
        (
            "ALTER PUBLICATION fp_harmful DROP TABLE outbox;
             ALTER PUBLICATION fp_harmful ADD TABLE outbox",
            "",
            "publication.recreated",
        ),
        (
            "DROP PUBLICATION fp_harmful;
             CREATE PUBLICATION fp_harmful FOR TABLE outbox WITH (publish = 'insert')",
            "",
            "publication.recreated",
        ),
        ("DROP PUBLICATION fp_harmful", "", "publication.missing"),
    ] {
        let before = take(&client, &settings).await;
        client.batch_execute(change).await.unwrap();
        let fault = before.change(&take(&client, &settings).await, &settings).unwrap();
        assert_eq!((fault.code, fault.exit), (code, Exit::Source), "{change}");
        assert!(!fault.mend.is_empty());
        client.batch_execute(undo).await.unwrap();
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn an_unlogged_partition_is_a_gap_that_stays() {
    let (client, mut settings) = testing::logical().database("fp_unlogged").await;
    testing::prepare(&client, &settings).await;
    client
        .batch_execute(
            "CREATE TABLE parts (LIKE outbox) PARTITION BY RANGE (type);
             CREATE TABLE a PARTITION OF parts FOR VALUES FROM ('a') TO ('b');
             ALTER PUBLICATION fp_unlogged ADD TABLE parts",
        )
        .await
        .unwrap();
    settings.outboxes[0].table = "parts".into();
    let known = KnownPublication::default();
    let compared =
        async |end| known.compare(look("1", end, &client, &settings).await, &settings, true);
    assert_eq!(compared(1).await, Comparison::First);
    assert_eq!(compared(2).await, Comparison::InOrder);
    let add = "CREATE UNLOGGED TABLE b PARTITION OF parts FOR VALUES FROM ('b') TO ('c')";
    client.batch_execute(add).await.unwrap();
    let Comparison::Fault(fault) = compared(3).await else { panic!("it is no gap") };
    let doubt = Doubt { from: Lsn::from_wire(2), to: Lsn::from_wire(3) };
    assert_eq!((fault.code, fault.doubt.as_deref()), ("table.unlogged", Some(&doubt)));
    let sql = "ALTER TABLE \"public\".\"b\" SET LOGGED;";
    assert!(fault.mend.contains(sql) && fault.mend.contains("walrelay resume"), "{}", fault.mend);
}

/// The fault of a change between two looks.
async fn fault_of_a_hidden_change(
    client: &Client,
    settings: &SourceSettings,
    changed: &str,
) -> Fault {
    let known = KnownPublication::default();
    let compared = async |system, end, sound| {
        known.compare(look(system, end, client, settings).await, settings, sound)
    };
    // GIVEN three looks, by whoever has connected; what is not sound becomes known to nobody
    assert_eq!(compared("1", 1, false).await, Comparison::First);
    assert_eq!(compared("1", 2, true).await, Comparison::First);
    assert_eq!(compared("1", 3, true).await, Comparison::InOrder);
    // WHEN it is changed and put back with no look in between
    client.batch_execute(changed).await.unwrap();
    // THEN it is told, but not of another database system
    assert_eq!(compared("2", 4, true).await, Comparison::InOrder);
    let now = compared("1", 5, true).await;
    let Comparison::Fault(fault) = now else { panic!("{changed}: {now:?}") };
    assert_eq!((fault.code, fault.exit), ("publication.recreated", Exit::Source), "{changed}");
    // AND it stays, with the range in doubt
    let doubt = Doubt { from: Lsn::from_wire(3), to: Lsn::from_wire(5) };
    assert_eq!(fault.doubt.as_deref(), Some(&doubt));
    assert!(fault.mend.contains("walrelay resume"), "{}", fault.mend);
    fault
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn what_was_changed_and_put_back_is_a_fault() {
    let (client, mut settings) = testing::logical().database("fp_put_back").await;
    testing::prepare(&client, &settings).await;
    client.batch_execute("CREATE SCHEMA away; CREATE PUBLICATION p").await.unwrap();
    settings.publication = "p".into();
    let taken_out = "public.outbox was taken out of publication p and put back";
    let altered = "publication p was altered, once or more often";
    let dropped = "publication p was dropped and made again";
    // GIVEN a publication that covers the outbox by each of these
    for (made, changed, told) in [
        (
            "TABLE outbox",
            "ALTER PUBLICATION p DROP TABLE outbox; ALTER PUBLICATION p ADD TABLE outbox",
            taken_out,
        ),
        (
            "TABLE outbox",
            "ALTER PUBLICATION p SET TABLE outbox WHERE (type = 'x');
             ALTER PUBLICATION p SET TABLE outbox",
            taken_out,
        ),
        (
            "TABLE outbox",
            "ALTER PUBLICATION p SET (publish = 'delete');
             ALTER PUBLICATION p SET (publish = 'insert')",
            altered,
        ),
        (
            "ALL TABLES",
            "ALTER PUBLICATION p SET (publish_via_partition_root = true);
             ALTER PUBLICATION p SET (publish_via_partition_root = false)",
            altered,
        ),
        ("ALL TABLES", "ALTER PUBLICATION p RENAME TO q; ALTER PUBLICATION q RENAME TO p", altered),
        ("ALL TABLES", "DROP PUBLICATION p; CREATE PUBLICATION p FOR ALL TABLES", dropped),
        (
            "TABLES IN SCHEMA public",
            "ALTER PUBLICATION p DROP TABLES IN SCHEMA public;
             ALTER PUBLICATION p ADD TABLES IN SCHEMA public",
            "schema public was taken out of publication p and put back",
        ),
        (
            "TABLES IN SCHEMA public",
            "ALTER TABLE outbox SET SCHEMA away; ALTER TABLE away.outbox SET SCHEMA public",
            "outbox was moved to another schema",
        ),
        (
            "TABLE outbox",
            "ALTER PUBLICATION p DROP TABLE outbox; ALTER PUBLICATION p ADD TABLES IN SCHEMA public",
            "publication p covers public.outbox in another way",
        ),
        (
            "TABLES IN SCHEMA public",
            "ALTER PUBLICATION p DROP TABLES IN SCHEMA public; ALTER PUBLICATION p ADD TABLE outbox",
            "publication p covers public.outbox in another way",
        ),
        (
            "TABLE outbox",
            "ALTER TABLE outbox RENAME TO before; CREATE TABLE outbox (LIKE before);
             ALTER PUBLICATION p ADD TABLE outbox",
            "public.outbox is another table now",
        ),
    ] {
        let make = format!("DROP PUBLICATION p; CREATE PUBLICATION p FOR {made}");
        client.batch_execute(&make).await.unwrap();
        let fault = fault_of_a_hidden_change(&client, &settings, changed).await;
        assert!(fault.what.contains(told), "{changed}: {}", fault.what);
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn only_the_outboxes_are_looked_at_however_they_are_covered() {
    let (client, mut settings) = testing::logical().database("fp_covered").await;
    client
        .batch_execute(
            "CREATE SCHEMA other; CREATE TABLE other.noise (id int);
             CREATE TABLE top (id int) PARTITION BY RANGE (id);
             CREATE TABLE outbox PARTITION OF top DEFAULT PARTITION BY RANGE (id);
             CREATE TABLE other.leaf PARTITION OF outbox DEFAULT;",
        )
        .await
        .unwrap();
    settings.outboxes[0].columns.payload = "id".into();
    // What the server's own view says of the same tables is the truth.
    let truth = "SELECT coalesce(string_agg(tablename, ' ' ORDER BY tablename), '')
        FROM pg_publication_tables WHERE pubname = 'fp_covered' AND tablename IN ('outbox', 'leaf')";
    for made in ["FOR ALL TABLES", "FOR TABLE top", "FOR TABLE outbox", "FOR TABLE other.leaf"]
        .into_iter()
        .chain([
            "FOR TABLES IN SCHEMA public",
            "FOR TABLES IN SCHEMA other",
            "FOR TABLE other.noise",
        ])
    {
        for via_root in [true, false] {
            let sql = format!(
                "CREATE PUBLICATION fp_covered {made} WITH (publish_via_partition_root = {via_root})"
            );
            client.batch_execute(&sql).await.unwrap();
            let publication = published(&client, &settings).await.unwrap().publication.unwrap();
            let names: Vec<_> = publication.tables.iter().map(|it| it.name.as_str()).collect();
            let truth: String = client.query_one(truth, &[]).await.unwrap().get(0);
            assert_eq!(names.join(" "), truth, "{sql}");
            client.batch_execute("DROP PUBLICATION fp_covered").await.unwrap();
        }
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn hostile_names_stay_names() {
    let (client, mut settings) = testing::logical().database("fp_names").await;
    settings.publication = "p\"; DROP TABLE x; --'\\".into();
    settings.outboxes[0].schema = "S 1\"".into();
    settings.outboxes[0].table = "out'box".into();
    let table = init::table_sql(&settings.outboxes[0]).unwrap();
    client.batch_execute("CREATE SCHEMA \"S 1\"\"\"").await.unwrap();
    client.batch_execute(&table).await.unwrap();
    client.batch_execute(&create_sql(&settings)).await.unwrap();
    let now = take(&client, &settings).await;
    assert_eq!(now.change(&now, &settings), None);
    let literal = quote_literal(&settings.publication);
    for conforming in ["on", "off"] {
        let set = format!("SET standard_conforming_strings = {conforming}");
        client.batch_execute(&set).await.unwrap();
        let sql = format!("SELECT count(*) FROM pg_publication WHERE pubname={literal}");
        assert_eq!(client.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0), 1);
    }
}
