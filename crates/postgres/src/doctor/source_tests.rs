//! Each finding, provoked in a real server, or in the facts where a server will not produce it.

use std::time::Duration;

use super::*;
use crate::slot_state::SlotFacts;
use crate::testing::{self, Server};
use walrelay_base::error::Exit;
use walrelay_base::finding::Level;
use walrelay_base::template::Template;

/// Tests of outboxes that are partitions.
#[path = "partition_tests.rs"]
mod partitions;
/// Tests of row filters.
#[path = "row_filter_tests.rs"]
mod row_filters;
/// Tests of findings about the server alone.
#[path = "server_tests.rs"]
mod servers;

async fn report(client: &Client, settings: &SourceSettings) -> SourceReport {
    inspect(client, settings).await.unwrap()
}

fn codes(report: &SourceReport) -> Vec<&'static str> {
    report.findings.iter().filter_map(|f| f.fault.as_ref().map(|fault| fault.code)).collect()
}

/// The one fault there is, checked for what it says and how to mend it.
#[track_caller]
fn expect(report: &SourceReport, exit: Exit, code: &str, says: &str, mends: &str) {
    assert_eq!(codes(report), [code], "{:#?}", report.findings);
    let fault = report.first_fault().unwrap();
    assert_eq!(fault.exit, exit);
    assert!(fault.what.contains(says), "{says:?} is not in {:?}", fault.what);
    assert!(fault.mend.contains(mends), "{mends:?} is not in {:?}", fault.mend);
}

#[track_caller]
fn expect_warning(report: &SourceReport, topic: &str, says: &str) {
    assert_eq!(codes(report), [""; 0], "{:#?}", report.findings);
    let warning = report.findings.iter().find(|finding| finding.topic == topic).unwrap();
    assert_eq!(warning.level, Level::Warn);
    assert!(warning.text.contains(says), "{says:?} is not in {:?}", warning.text);
}

async fn prepared(server: &Server, name: &str) -> (Client, SourceSettings) {
    let (client, settings) = server.database(name).await;
    testing::prepare(&client, &settings).await;
    (client, settings)
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_sound_environment_has_no_fault() {
    let (client, settings) = prepared(testing::logical(), "sound").await;
    let report = report(&client, &settings).await;
    assert_eq!(codes(&report), [""; 0], "{:#?}", report.findings);
    assert_eq!(report.first_fault(), None);
    let facts = &report.facts;
    let row = client.query_one("SELECT system_identifier::text FROM pg_control_system()", &[]);
    assert_eq!(facts.server.system_id, row.await.unwrap().get::<_, String>(0));
    assert_eq!(facts.server.timeline, 1);
    assert!(facts.server.version >= 140_000);
    assert_eq!(facts.server.wal_sender_timeout(), Some(Duration::from_secs(60)));
    let slot = facts.slot.as_ref().unwrap();
    assert_eq!(slot.plugin.as_deref(), Some("pgoutput"));
    assert_eq!(slot.database.as_deref(), Some("sound"));
    assert!(!slot.confirmed_flush.is_zero() && !slot.restart_lsn.is_zero());
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn all_faults_are_collected() {
    // GIVEN an empty database WHEN inspected THEN everything that is missing is named, the table
    // first
    let (client, settings) = testing::logical().database("empty").await;
    let report = report(&client, &settings).await;
    assert_eq!(codes(&report), ["table.missing", "publication.missing", "slot.missing"]);
    let first = report.first_fault().unwrap();
    assert_eq!((first.code, first.exit), ("table.missing", Exit::Source));
    let slot = report.findings.last().unwrap().fault.as_ref().unwrap();
    assert_eq!(slot.exit, Exit::Slot);
    assert!(slot.mend.starts_with("walrelay init"), "{}", slot.mend);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn wal_level_and_slots_are_looked_at() {
    let server = testing::replica_level();
    let (client, settings) = server.database("no_logical").await;
    let table = crate::init::table_sql(&settings.outboxes[0]).unwrap();
    client.batch_execute(&table).await.unwrap();
    let sql = crate::publication::create_sql(&settings);
    client.batch_execute(&sql).await.unwrap();
    client.batch_execute("SELECT pg_create_physical_replication_slot('taken')").await.unwrap();
    let report = report(&client, &settings).await;
    assert_eq!(codes(&report), ["source.wal-level", "slot.none-free", "slot.missing"]);
    let faults: Vec<_> = report.findings.iter().filter_map(|it| it.fault.as_ref()).collect();
    assert!(faults[0].mend.starts_with("ALTER SYSTEM SET wal_level = 'logical';"), "{faults:#?}");
    assert!(faults[1].to_string().contains("taken"), "{faults:#?}");
    assert!(faults[1].mend.contains("max_replication_slots = 6"));
    assert!(faults[2].mend.contains("correct source.slot: taken"), "{faults:#?}");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn partitions_that_are_listed_do_not_make_their_table_published() {
    let (client, settings) = testing::logical().database("some_partitions").await;
    client
        .batch_execute(
            "CREATE TABLE outbox (id uuid, aggregatetype text, aggregateid text, type text,
                 payload jsonb, created_at timestamptz) PARTITION BY RANGE (created_at);
             CREATE TABLE p1 PARTITION OF outbox FOR VALUES FROM ('2031-01-01') TO ('2032-01-01');
             CREATE PUBLICATION some_partitions FOR TABLE p1
                 WITH (publish = 'insert', publish_via_partition_root = true);",
        )
        .await
        .unwrap();
    crate::slot::create(&client, &settings, false).await.unwrap();
    let mend = "ALTER PUBLICATION \"some_partitions\" ADD TABLE \"public\".\"outbox\";";
    // GIVEN all partitions are listed, and one later is not
    for partition in ["", "CREATE TABLE p2 PARTITION OF outbox DEFAULT"] {
        client.batch_execute(partition).await.unwrap();
        let found = report(&client, &settings).await;
        expect(&found, Exit::Source, "publication.table-missing", "other partitions", mend);
    }
    // WHEN the table itself is added, as init does
    let facts = crate::facts::gather(&client, &settings).await.unwrap();
    let steps = crate::init::plan(&facts, &settings, &facts.role, None).unwrap();
    assert!(steps.iter().any(|step| step.sql.ends_with(mend)), "{steps:?}");
    client.batch_execute(mend).await.unwrap();
    assert_eq!(codes(&report(&client, &settings).await), [""; 0]);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_plain_role_cannot_replicate() {
    let server = testing::logical();
    let (client, settings) = prepared(server, "plain_role").await;
    client
        .batch_execute("CREATE ROLE plain LOGIN; CREATE ROLE relay LOGIN REPLICATION NOINHERIT")
        .await
        .unwrap();
    let plain = server.connect("plain", "plain_role").await;
    expect(
        &report(&plain, &settings).await,
        Exit::Source,
        "source.role",
        "role plain may not replicate",
        "ALTER ROLE \"plain\" REPLICATION;",
    );
    // THEN a role with REPLICATION and no other right is enough to look at everything
    let relay = server.connect("relay", "plain_role").await;
    assert_eq!(codes(&report(&relay, &settings).await), [""; 0]);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_missing_publication_is_told_with_the_statement_that_makes_it() {
    let (client, settings) = prepared(testing::logical(), "no_publication").await;
    client.batch_execute("DROP PUBLICATION no_publication").await.unwrap();
    let report = report(&client, &settings).await;
    expect(
        &report,
        Exit::Source,
        "publication.missing",
        "publication no_publication does not exist",
        "CREATE PUBLICATION \"no_publication\" FOR TABLE \"public\".\"outbox\" WITH (publish = \
         'insert', publish_via_partition_root = true);",
    );
    // THEN it says what an older slot means
    assert!(report.first_fault().unwrap().mend.contains("walrelay slot drop"));
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_publication_without_the_table() {
    let (client, settings) = prepared(testing::logical(), "no_member").await;
    client.batch_execute("ALTER PUBLICATION no_member DROP TABLE outbox").await.unwrap();
    let report = report(&client, &settings).await;
    expect(
        &report,
        Exit::Source,
        "publication.table-missing",
        "does not contain public.outbox",
        "ALTER PUBLICATION \"no_member\" ADD TABLE \"public\".\"outbox\";",
    );
    let mend = &report.first_fault().unwrap().mend;
    let (sql, _) = mend.split_at(mend.find("COMMIT;").unwrap());
    client.batch_execute(&format!("{sql} COMMIT;")).await.unwrap();
    assert_eq!(codes(&inspect(&client, &settings).await.unwrap()), [""; 0]);
}

/// The SQL that mends the first fault.
fn sql_of(report: &SourceReport) -> &str {
    report.first_fault().unwrap().mend.lines().next().unwrap()
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn row_filters_and_column_lists_are_refused_and_mended_by_their_hint() {
    let (client, settings) = prepared(testing::logical(), "filtered").await;
    if report(&client, &settings).await.facts.server.version < 150_000 {
        return;
    }
    client
        .batch_execute("ALTER PUBLICATION filtered SET TABLE outbox WHERE (type <> 'x')")
        .await
        .unwrap();
    let found = report(&client, &settings).await;
    let mend = "BEGIN; ALTER PUBLICATION \"filtered\" DROP TABLE";
    expect(&found, Exit::Source, "publication.row-filter", "type <> 'x'", mend);
    client.batch_execute(sql_of(&found)).await.unwrap();
    assert_eq!(codes(&report(&client, &settings).await), [""; 0]);

    client
        .batch_execute("ALTER PUBLICATION filtered SET TABLE outbox (id, aggregateid)")
        .await
        .unwrap();
    let found = report(&client, &settings).await;
    expect(&found, Exit::Source, "publication.column-list", "payload, aggregatetype", mend);
    client.batch_execute(&found.first_fault().unwrap().mend).await.unwrap();
    assert_eq!(codes(&report(&client, &settings).await), [""; 0]);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn published_operations() {
    let (client, settings) = prepared(testing::logical(), "operations").await;
    client
        .batch_execute("ALTER PUBLICATION operations SET (publish = 'insert, update, delete')")
        .await
        .unwrap();
    let mend = "ALTER PUBLICATION \"operations\" SET (publish = 'insert');";
    let found = report(&client, &settings).await;
    expect_warning(&found, "publication.operations", "UPDATE, DELETE");
    expect_warning(&found, "publication.operations", mend);
    client.batch_execute("ALTER PUBLICATION operations SET (publish = 'delete')").await.unwrap();
    let found = report(&client, &settings).await;
    expect(&found, Exit::Source, "publication.insert", "does not publish INSERT", mend);
    // THEN without an outbox table it does not matter what is published
    let messages_only = SourceSettings { outboxes: Vec::new(), ..settings };
    assert_eq!(codes(&report(&client, &messages_only).await), [""; 0]);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn all_tables_is_a_warning() {
    let (client, settings) = prepared(testing::logical(), "everything").await;
    client
        .batch_execute("DROP PUBLICATION everything; CREATE PUBLICATION everything FOR ALL TABLES")
        .await
        .unwrap();
    expect_warning(&report(&client, &settings).await, "publication.all-tables", "FOR ALL TABLES");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_partitioned_outbox_needs_its_root() {
    let (client, settings) = testing::logical().database("partitioned").await;
    client
        .batch_execute(
            "CREATE TABLE outbox (id uuid, aggregatetype text, aggregateid text, type text,
                 payload jsonb, created_at timestamptz) PARTITION BY RANGE (created_at);
             CREATE PUBLICATION partitioned FOR TABLE outbox WITH (publish = 'insert');",
        )
        .await
        .unwrap();
    crate::slot::create(&client, &settings, false).await.unwrap();
    let mend = "ALTER PUBLICATION \"partitioned\" SET (publish_via_partition_root = true);";
    for partition in ["", "CREATE TABLE p1 PARTITION OF outbox DEFAULT"] {
        client.batch_execute(partition).await.unwrap();
        let found = report(&client, &settings).await;
        expect(&found, Exit::Source, "publication.via-root", "partitions' names", mend);
    }
    client.batch_execute(mend).await.unwrap();
    // AND nothing keeps a row from being moved between partitions, until a trigger does
    expect_warning(&report(&client, &settings).await, "table.updatable", "moves a row");
    let trigger = "CREATE FUNCTION never() RETURNS trigger LANGUAGE plpgsql
            AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;
        CREATE TRIGGER append_only BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION never();";
    client.batch_execute(trigger).await.unwrap();
    let found = report(&client, &settings).await;
    assert_eq!(codes(&found), [""; 0]);
    assert!(found.findings.iter().all(|finding| finding.topic != "table.updatable"));
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn tables_that_are_not_what_was_meant() {
    let (client, settings) = prepared(testing::logical(), "tables").await;
    let find = async |table: &str| {
        let mut settings = settings.clone();
        settings.outboxes[0].table = table.into();
        let report = report(&client, &settings).await;
        report.first_fault().unwrap().clone()
    };
    let typo = find("outbx").await;
    assert_eq!(typo.code, "table.missing");
    assert!(typo.mend.contains("table = \"public.outbox\""), "{}", typo.mend);
    client
        .batch_execute(
            "CREATE VIEW v AS SELECT * FROM outbox;
             CREATE UNLOGGED TABLE u (LIKE outbox);",
        )
        .await
        .unwrap();
    assert_eq!(find("v").await.code, "table.kind");
    let unlogged = find("u").await;
    assert_eq!(unlogged.code, "table.unlogged");
    assert_eq!(unlogged.mend, "ALTER TABLE \"public\".\"u\" SET LOGGED;");
    // A table may be logged, and a partition of it not.
    client
        .batch_execute(
            "CREATE TABLE parts (LIKE outbox) PARTITION BY RANGE (type);
             CREATE TABLE most PARTITION OF parts FOR VALUES FROM ('a') TO ('x') PARTITION BY RANGE (type);
             CREATE TABLE first PARTITION OF most FOR VALUES FROM ('a') TO ('b');
             CREATE UNLOGGED TABLE fast PARTITION OF most FOR VALUES FROM ('b') TO ('x');",
        )
        .await
        .unwrap();
    let partition = find("parts").await;
    assert_eq!(partition.code, "table.unlogged");
    assert!(partition.what.contains("public.fast, a partition of public.parts,"), "{partition:?}");
    assert_eq!(partition.mend, "ALTER TABLE \"public\".\"fast\" SET LOGGED;");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn columns_that_are_missing_or_computed() {
    let (client, mut settings) = prepared(testing::logical(), "columns").await;
    client.batch_execute("ALTER TABLE outbox RENAME aggregateid TO aggregate_id").await.unwrap();
    let found = report(&client, &settings).await;
    expect(
        &found,
        Exit::Source,
        "table.column-missing",
        "has no column aggregateid, which columns.key needs; it has id, aggregatetype, aggregate_id",
        "name column \"aggregate_id\" instead",
    );
    client
        .batch_execute("ALTER TABLE outbox ADD aggregateid text GENERATED ALWAYS AS (type) STORED")
        .await
        .unwrap();
    let found = report(&client, &settings).await;
    let (code, what) = ("publication.generated-column", "public.outbox.aggregateid is generated");
    expect(&found, Exit::Source, code, what, "map an ordinary column");
    // THEN optional columns and those no route names may be absent
    settings.outboxes[0].route.key = Some(Template::column("aggregate_id"));
    client
        .batch_execute("ALTER TABLE outbox DROP headers, DROP traceparent, DROP aggregateid")
        .await
        .unwrap();
    assert_eq!(codes(&report(&client, &settings).await), [""; 0]);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn slots_that_are_not_ours() {
    let (client, settings) = prepared(testing::logical(), "not_ours").await;
    let drop = "SELECT pg_drop_replication_slot('not_ours')";
    let make = async |sql: &str| {
        client.batch_execute(drop).await.unwrap();
        client.batch_execute(sql).await.unwrap();
        report(&client, &settings).await
    };
    let found = make("SELECT pg_create_physical_replication_slot('not_ours')").await;
    expect(&found, Exit::Slot, "slot.physical", "is physical", "source.slot");
    let found =
        make("SELECT pg_create_logical_replication_slot('not_ours', 'test_decoding')").await;
    expect(&found, Exit::Slot, "slot.plugin", "test_decoding", "source.slot");
    let found =
        make("SELECT pg_create_logical_replication_slot('not_ours', 'pgoutput', true)").await;
    expect(&found, Exit::Slot, "slot.temporary", "is temporary", "walrelay slot create");
    let found =
        make("SELECT pg_create_logical_replication_slot('not_ours', 'pgoutput', false, true)")
            .await;
    expect(&found, Exit::Slot, "slot.two-phase", "prepared", "walrelay slot drop");
    client.batch_execute(drop).await.unwrap();
    expect(
        &report(&client, &settings).await,
        Exit::Slot,
        "slot.missing",
        "slot not_ours does not exist",
        "walrelay init",
    );
    let other = testing::logical().connect("postgres", "postgres").await;
    other
        .batch_execute("SELECT pg_create_logical_replication_slot('not_ours', 'pgoutput')")
        .await
        .unwrap();
    let found = report(&client, &settings).await;
    expect(&found, Exit::Slot, "slot.database", "belongs to database postgres", "source.slot");
}

/// The report on facts that differ from those of a sound server.
fn judged_with(
    sound: &SourceFacts,
    settings: &SourceSettings,
    change: &dyn Fn(&mut SourceFacts),
) -> SourceReport {
    let mut facts = sound.clone();
    change(&mut facts);
    let findings = judge(&facts, settings);
    SourceReport { facts, findings }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn what_a_server_will_not_do_on_demand_is_judged_from_facts() {
    let (client, settings) = prepared(testing::logical(), "judged").await;
    let sound = report(&client, &settings).await.facts;
    let judged = |change: &dyn Fn(&mut SourceFacts)| judged_with(&sound, &settings, change);
    // PostgreSQL 19 shows a slot without a plugin while it raises effective_wal_level.
    let found = judged(&|facts| {
        let slot = facts.slot.as_mut().unwrap();
        (slot.plugin, slot.wal_status, slot.active_pid) = (Some(String::new()), None, Some(7));
        (slot.confirmed_flush, slot.restart_lsn) = Default::default();
    });
    expect_warning(&found, "slot.being-made", "by pid 7");
    let found = judged(&|facts| facts.server.standby = true);
    expect(&found, Exit::Source, "source.standby", "standby", "target_session_attrs=primary");
    let found = judged(&|facts| facts.server.output_plugins = Some("wal2json".into()));
    expect(&found, Exit::Source, "source.output-plugins", "wal2json", "ALTER SYSTEM");
    // THEN the plugins of others stay allowed
    let mend = "SET output_plugin_libraries = 'wal2json', 'pgoutput';";
    let found = judged(&|facts| facts.server.output_plugins = Some("\"wal2json\"".into()));
    expect(&found, Exit::Source, "source.output-plugins", "wal2json", mend);
    let found = judged(&|facts| facts.server.output_plugins = None);
    expect_warning(&found, "source.minor", "newest minor");
    let found = judged(&|facts| {
        facts.server.output_plugins = None;
        facts.server.sees_all_settings = false;
    });
    assert!(found.findings.iter().all(|finding| finding.topic != "source.minor"));
    let full =
        |facts: &mut SourceFacts| facts.server.wal_senders_used = facts.server.max_wal_senders;
    let found = judged(&full);
    expect(&found, Exit::Source, "source.wal-senders", "all 10", "max_wal_senders = 15");
    let found = judged(&|facts| {
        full(facts);
        facts.slot.as_mut().unwrap().active_pid = Some(4711);
    });
    expect_warning(&found, "source.wal-senders", "nobody could take over");
    let text = &found.findings.iter().find(|finding| finding.topic == "slot").unwrap().text;
    assert!(text.contains("read by pid 4711"), "{text}");
    let found = judged(&|facts| facts.server.wal_sender_timeout_ms = 0);
    expect_warning(&found, "source.wal-sender-timeout", "no other relay can take over");
    let timeout = |ms| judged(&move |facts| facts.server.wal_sender_timeout_ms = ms);
    expect_warning(&timeout(900), "source.wal-sender-timeout", "0.9 s");
    expect_warning(&timeout(3_600_000), "source.wal-sender-timeout", "3600 s");
    assert!(timeout(60_000).findings.iter().any(|it| it.text == "wal_sender_timeout is 60 s"));
    let found = judged(&|facts| facts.server.encoding = "SQL_ASCII".into());
    expect_warning(&found, "source.encoding", "SQL_ASCII");
    let slot =
        |change: &dyn Fn(&mut SlotFacts)| judged(&|facts| change(facts.slot.as_mut().unwrap()));
    let found = slot(&|slot| slot.wal_status = Some("lost".into()));
    expect(&found, Exit::Slot, "slot.lost", "wal_removed", "by hand");
    let found = slot(&|slot| slot.invalidation_reason = Some("idle_timeout".into()));
    let setting = "SET idle_replication_slot_timeout = 0";
    expect(&found, Exit::Slot, "slot.lost", "longer than idle_replication_slot_timeout", setting);
    let found = slot(&|slot| slot.wal_status = Some("unreserved".into()));
    expect_warning(&found, "slot.unreserved", "next checkpoint");
    let found = slot(&|slot| slot.confirmed_flush = walrelay_base::lsn::Lsn::from_wire(u64::MAX));
    expect(&found, Exit::Slot, "slot.ahead", "beyond the end of WAL", "walrelay slot drop");
    // THEN a lost slot is told before anything else
    let found = judged(&|facts| {
        facts.published.publication = None;
        facts.slot.as_mut().unwrap().wal_status = Some("lost".into());
    });
    assert_eq!(codes(&found), ["publication.missing", "slot.lost"]);
    assert_eq!(found.first_fault().unwrap().code, "slot.lost");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn what_is_missing_is_not_taken_for_what_is_there() {
    let (client, settings) = prepared(testing::logical(), "judged_missing").await;
    let sound = report(&client, &settings).await.facts;
    let judged = |change: &dyn Fn(&mut SourceFacts)| judged_with(&sound, &settings, change);
    // THEN a table that does not exist is in no list of those that are let through
    let found = judged(&|facts| facts.published.tables[0].kind = None);
    assert_eq!(codes(&found), ["table.missing"]);
    assert!(found.findings.iter().all(|it| it.topic != "publication"), "{:#?}", found.findings);
    // THEN a publication that is missing needs no new slot where the slot is that of another database
    let found = judged(&|facts| {
        facts.published.publication = None;
        facts.slot.as_mut().unwrap().database = Some("other".into());
    });
    let mend = &found.first_fault().unwrap().mend;
    assert!(mend.starts_with("walrelay init") && !mend.contains("walrelay slot drop"), "{mend}");
    assert_eq!(codes(&found), ["publication.missing", "slot.database"]);
}

/// PostgreSQL 19 answers for FOR ALL TABLES EXCEPT with no entry for the outbox.
#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_table_that_all_tables_leave_out_is_a_fault() {
    let (client, settings) = prepared(testing::logical(), "all_but").await;
    let sound = report(&client, &settings).await.facts;
    let of = |excepted: &str, entries: bool| {
        let mut facts = sound.clone();
        facts.server.version = 190_000;
        let publication = facts.published.publication.as_mut().unwrap();
        publication.all_tables = true;
        publication.excepted = serde_json::from_str(excepted).unwrap();
        if !entries {
            publication.tables.clear();
        }
        let findings = judge(&facts, &settings);
        SourceReport { facts, findings }
    };
    let outbox = r#"{"schema": "public", "name": "outbox", "is_outbox": true}"#;
    let other = r#"{"schema": "public", "name": "Other", "is_outbox": false}"#;
    let (code, says) = ("publication.table-missing", "EXCEPT, and Postgres sends none of its rows");
    let mend = "ALTER PUBLICATION \"all_but\" SET ALL TABLES;";
    expect(&of(&format!("[{outbox}]"), false), Exit::Source, code, says, mend);
    let mend = "SET ALL TABLES EXCEPT (TABLE \"public\".\"Other\");";
    let left_out = of(&format!("[{outbox}, {other}]"), false);
    expect(&left_out, Exit::Source, code, says, mend);
    // THEN init does not try what Postgres refuses
    let steps = crate::init::plan(&left_out.facts, &settings, &sound.role, None).unwrap();
    assert_eq!(steps, []);
    // GIVEN an exception that is another table THEN the outbox is published
    let found = of(&format!("[{other}]"), true);
    assert_eq!(codes(&found), [""; 0]);
    expect_warning(&found, "publication.all-tables", "nobody can see later");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn what_a_slot_without_a_reader_has_to_expect() {
    let (client, settings) = prepared(testing::logical(), "unread").await;
    let sound = report(&client, &settings).await.facts;
    let topics = ["slot.idle-timeout", "slot.not-synchronized"];
    let of = |more: &str| {
        let mut row = serde_json::json!({
            "slot_name": "unread", "plugin": "pgoutput", "database": "unread", "temporary": false,
            "active": false, "confirmed_flush_lsn": "0/1", "restart_lsn": "0/1", "wal_status": "reserved",
        });
        let more: serde_json::Value = serde_json::from_str(more).unwrap();
        row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let facts =
            SourceFacts { slot: Some(serde_json::from_value(row).unwrap()), ..sound.clone() };
        let found = judge(&facts, &settings).into_iter();
        let found = found.filter(|finding| topics.contains(&finding.topic));
        found.map(|finding| (finding.level, finding.text)).collect::<Vec<_>>()
    };
    // GIVEN a server that has no such setting or sets no limit THEN nothing is said
    assert_eq!(of("{}"), []);
    assert_eq!(of(r#"{"idle_timeout_ms": 0, "idle_ms": 90000, "slotsync_skip_reason": null}"#), []);
    // GIVEN a limit THEN it is named, and warned of when more than half of the time is over
    let read = of(r#"{"idle_timeout_ms": 3600000}"#);
    assert_eq!((read.len(), read[0].0), (1, Level::Ok), "{read:?}");
    let idle = of(r#"{"idle_timeout_ms": 3600000, "idle_ms": 600000}"#);
    assert_eq!(idle[0].0, Level::Ok);
    assert!(idle[0].1.contains("from 50 min on"), "{idle:?}");
    let late = of(r#"{"idle_timeout_ms": 3600000, "idle_ms": 2400000}"#);
    assert_eq!(late[0].0, Level::Warn);
    assert!(late[0].1.contains("start the relay, or ALTER SYSTEM"), "{late:?}");
    // GIVEN a standby that does not keep the slot THEN the reason of the server
    let reason = r#""synced": true, "slotsync_skip_reason": "wal_or_rows_removed""#;
    let skipped = of(&format!(r#"{{{reason}, "in_recovery": true}}"#));
    assert_eq!(skipped[0].0, Level::Warn);
    assert!(skipped[0].1.contains("(wal_or_rows_removed)"), "{skipped:?}");
    // WHEN it is promoted THEN that is of no meaning
    assert_eq!(of(&format!(r#"{{{reason}, "in_recovery": false}}"#)), []);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn the_effect_of_the_limit_of_the_wal_is_stated() {
    let (client, settings) = prepared(testing::logical(), "limited").await;
    let mut facts = report(&client, &settings).await.facts;
    for (limit, says) in [("-1", "without limit"), ("20GB", "at most 20GB, then the slot is lost")]
    {
        facts.server.max_slot_wal_keep_size = limit.to_owned();
        let found = super::slot::judge(&facts, &settings);
        let position = found.iter().find(|finding| finding.topic == "slot").unwrap();
        assert!(position.text.contains(says), "{}", position.text);
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_clock_that_is_wrong_is_warned_of() {
    let (client, settings) = prepared(testing::logical(), "clocks").await;
    let mut facts = report(&client, &settings).await.facts;
    let found = |facts: &SourceFacts| {
        let found = super::server::judge(facts, &settings).into_iter();
        found.filter(|finding| finding.topic == "source.clock").map(|it| it.text).next()
    };
    assert_eq!(found(&facts), None, "{}", facts.server.host_ahead_us);
    facts.server.host_ahead_us = 61_000_000;
    assert!(found(&facts).unwrap().contains("is 61 s ahead of"));
    facts.server.host_ahead_us = -7_000_000;
    assert!(found(&facts).unwrap().contains("is 7 s behind"));
}
