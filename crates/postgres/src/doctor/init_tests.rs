//! `init` makes what is missing, twice is once, and `check` has no fault afterwards.

use crate::init::*;
use crate::slot;
use tokio_postgres::Client;

use super::source::inspect;
use crate::settings::SourceSettings;
use crate::{emit, testing};
use walrelay_base::error::Exit;
use walrelay_base::finding::Level;
use walrelay_base::template::Template;
use walrelay_core::outbox::settings::OutboxTable;

const REST: &str = "then run the command again";

async fn planned(client: &Client, settings: &SourceSettings) -> Vec<InitStep> {
    let report = inspect(client, settings).await.unwrap();
    let relay = report.facts.role.clone();
    let emit = emit::missing(client, settings, false).await.unwrap();
    plan(&report.facts, settings, &relay, emit.as_ref()).unwrap()
}

fn whats(steps: &[InitStep]) -> Vec<&str> {
    steps.iter().map(|step| step.what.as_str()).collect()
}

async fn faults(client: &Client, settings: &SourceSettings) -> Vec<String> {
    let findings = inspect(client, settings).await.unwrap().findings;
    let failed = findings.into_iter().filter(|finding| finding.level == Level::Fail);
    failed.map(|finding| finding.text).collect()
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn an_empty_database_is_made_ready_once() {
    let (client, settings) = testing::logical().database("init_empty").await;
    let steps = planned(&client, &settings).await;
    assert_eq!(
        whats(&steps),
        [
            "make outbox table public.outbox",
            "make function outbox.emit for public.outbox",
            "make publication init_empty: inserts only",
            "make slot init_empty (waits for open transactions to end)",
        ]
    );
    let mut told = Vec::new();
    run(&client, &steps, |step| told.push(step.clone()), REST).await.unwrap();
    assert_eq!(told, steps);
    assert_eq!(faults(&client, &settings).await, [""; 0]);
    // WHEN asked again THEN nothing is left to make, and the old steps do no harm
    assert_eq!(planned(&client, &settings).await, []);
    run(&client, &steps, |_| {}, REST).await.unwrap();
    assert_eq!(faults(&client, &settings).await, [""; 0]);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_table_is_added_behind_the_transactions_that_have_written_to_it() {
    let server = testing::logical();
    let (client, mut settings) = server.database("init_added").await;
    testing::prepare(&client, &settings).await;
    client.batch_execute("CREATE TABLE second (LIKE outbox INCLUDING ALL)").await.unwrap();
    let outbox = settings.outboxes[0].clone();
    settings.outboxes.push(OutboxTable { table: "second".into(), ..outbox });
    let steps = planned(&client, &settings).await;
    assert_eq!(whats(&steps), ["add public.second to publication init_added"]);
    let writer = server.connect("postgres", "init_added").await;
    writer.batch_execute("BEGIN; DELETE FROM second").await.unwrap();
    let write = async {
        let waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted
            AND relation = 'second'::regclass AND mode = 'ShareRowExclusiveLock')";
        while !writer.query_one(waits, &[]).await.unwrap().get::<_, bool>(0) {
            tokio::task::yield_now().await;
        }
        assert_eq!(planned(&writer, &settings).await, steps);
        writer.batch_execute("COMMIT").await.unwrap();
    };
    let (added, ()) = tokio::join!(run(&client, &steps, |_| {}, REST), write);
    added.unwrap();
    assert_eq!(planned(&client, &settings).await, []);
    // THEN the script does the same, and does no harm where the table was added meanwhile
    client.batch_execute(&script(&steps, &settings)).await.unwrap();
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_slot_that_is_being_made_is_not_there() {
    let server = testing::logical();
    let (client, settings) = server.database("init_being_made").await;
    testing::prepare(&client, &settings).await;
    slot::drop(&client, "init_being_made").await.unwrap();
    // GIVEN a creation that waits for a transaction
    let writer = server.connect("postgres", "init_being_made").await;
    writer.batch_execute("BEGIN; CREATE TABLE written ()").await.unwrap();
    let maker = server.connect("postgres", "init_being_made").await;
    let look = async {
        let is_seen =
            "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = 'init_being_made')";
        while !client.query_one(is_seen, &[]).await.unwrap().get::<_, bool>(0) {
            tokio::task::yield_now().await;
        }
        // THEN init does not take it for made, and a relay waits for it
        let report = inspect(&client, &settings).await.unwrap();
        let warning = report.findings.iter().find(|finding| finding.topic == "slot.being-made");
        assert_eq!(warning.map(|finding| finding.level), Some(Level::Warn));
        let (facts, relay) = (&report.facts, &report.facts.role);
        let fault = plan(facts, &settings, relay, None).unwrap_err();
        let mend = "SELECT pg_catalog.pg_cancel_backend(";
        assert!(fault.code == "slot.being-made" && fault.mend.contains(mend), "{fault}");
        writer.batch_execute("ROLLBACK").await.unwrap();
    };
    let (made, ()) = tokio::join!(slot::create(&maker, &settings, false), look);
    made.unwrap();
    // WHEN it is made THEN nothing is missing
    assert_eq!(faults(&client, &settings).await, [""; 0]);
    assert!(!planned(&client, &settings).await.iter().any(InitStep::makes_slot));
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn what_exists_is_kept() {
    let (client, mut settings) = testing::logical().database("init_partly").await;
    testing::prepare(&client, &settings).await;
    client.batch_execute("INSERT INTO outbox VALUES (DEFAULT, 'a', '1', 't')").await.unwrap();
    let mut second = testing::outbox();
    (second.schema, second.table) = ("sales".into(), "events".into());
    second.columns.id = "event_id".into();
    second.columns.key = "event_key".into();
    second.columns.payload = "Body".into();
    second.route.key = Some(Template::column("event_key"));
    settings.outboxes.push(second);
    let steps = planned(&client, &settings).await;
    assert_eq!(
        whats(&steps),
        [
            "make schema sales",
            "make outbox table sales.events",
            "add sales.events to publication init_partly",
        ]
    );
    run(&client, &steps, |_| {}, REST).await.unwrap();
    assert_eq!(faults(&client, &settings).await, [""; 0]);
    assert_eq!(planned(&client, &settings).await, []);
    let kept = client.query_one("SELECT count(*) FROM outbox", &[]).await.unwrap();
    assert_eq!(kept.get::<_, i64>(0), 1);
    let sql = "SELECT string_agg(column_name, ' ' ORDER BY ordinal_position)
               FROM information_schema.columns WHERE table_name = 'events'";
    assert_eq!(
        client.query_one(sql, &[]).await.unwrap().get::<_, &str>(0),
        "event_id aggregatetype event_key type Body headers traceparent created_at seq"
    );
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn columns_only_their_designer_knows_are_not_guessed() {
    let (client, mut settings) = testing::logical().database("init_custom").await;
    settings.outboxes[0].route.topic = Template::parse("${tenant}.events").unwrap();
    let report = inspect(&client, &settings).await.unwrap();
    let fault = plan(&report.facts, &settings, &report.facts.role, None).unwrap_err();
    assert_eq!((fault.code, fault.exit), ("table.missing", Exit::Source));
    assert!(fault.what.ends_with("tenant"), "{}", fault.what);
    // THEN a column that plays two parts is made once
    let mut outbox = testing::outbox();
    outbox.columns.key = "id".into();
    outbox.route.key = Some(Template::column("id"));
    assert_eq!(table_sql(&outbox).unwrap().matches("\"id\"").count(), 1);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_table_whose_name_differs_in_case_only_is_not_made_a_second_time() {
    let (client, mut settings) = testing::logical().database("init_case").await;
    client.batch_execute("CREATE TABLE public.\"OutboxMessages\" ()").await.unwrap();
    settings.outboxes[0].table = "outboxmessages".into();
    let facts = inspect(&client, &settings).await.unwrap().facts;
    let fault = plan(&facts, &settings, &facts.role, None).unwrap_err();
    assert_eq!((fault.code, fault.exit), ("table.missing", Exit::Source));
    let meant = "if public.OutboxMessages is meant: table = \"public.OutboxMessages\" in ";
    assert!(fault.mend.starts_with(meant), "{fault}");
    assert!(fault.mend.contains(&table_sql(&settings.outboxes[0]).unwrap()), "{fault}");
    // WHEN the name differs in more than case THEN the table is made
    settings.outboxes[0].table = "outbox_messages".into();
    let what = "make outbox table public.outbox_messages";
    assert_eq!(whats(&planned(&client, &settings).await)[0], what);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_statement_that_postgres_refuses_is_told_with_its_reason() {
    let (client, mut settings) = testing::logical().database("init_statement").await;
    if inspect(&client, &settings).await.unwrap().facts.server.version < 150_000 {
        return;
    }
    let refused = async |settings: &SourceSettings| {
        let steps = planned(&client, settings).await;
        run(&client, &steps, |_| {}, REST).await.unwrap_err()
    };
    settings.outboxes[0].filter = Some("created_at > pg_catalog.now()".into());
    let fault = refused(&settings).await;
    let detail = "(SQLSTATE 0A000); User-defined or built-in mutable functions are not allowed.";
    assert!(fault.what.ends_with(detail), "{fault}");
    assert_eq!((fault.code, fault.place.as_str()), ("publication.row-filter", "source.outbox"));
    assert!(fault.mend.contains("immutable functions"), "{fault}");
    // WHEN the table is a view
    client.batch_execute("CREATE VIEW v AS SELECT 1 AS id, '' AS payload").await.unwrap();
    settings.outboxes[0] = OutboxTable { table: "v".into(), ..testing::outbox() };
    let fault = refused(&settings).await;
    assert!(fault.what.ends_with("This operation is not supported for views."), "{fault}");
    assert_eq!((fault.code, fault.place.as_str()), ("source.query", "source.url"));
    assert!(fault.mend.contains("\nBEGIN; CREATE PUBLICATION \"init_statement\""), "{fault}");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn the_script_does_what_the_command_does() {
    let (client, settings) = testing::logical().database("init_script").await;
    let steps = planned(&client, &settings).await;
    let text = script(&steps, &settings);
    assert!(text.starts_with("-- What walrelay needs in database init_script"));
    for step in &steps {
        assert!(text.contains(&step.sql) && text.contains(&format!("-- {}", step.what)));
    }
    // psql sends statements one by one; so does this
    for statement in text.split("\n\n-- ").skip(1).map(|step| step.split_once('\n').unwrap().1) {
        client.batch_execute(statement).await.unwrap();
    }
    assert_eq!(faults(&client, &settings).await, [""; 0]);
    let done = script(&planned(&client, &settings).await, &settings);
    assert!(done.contains("-- Nothing is missing."));
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn who_may_not_is_told_who_may() {
    let server = testing::logical();
    let (client, settings) = server.database("init_denied").await;
    client.batch_execute("CREATE ROLE nobody_much LOGIN").await.unwrap();
    client.batch_execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC").await.unwrap();
    let denied = server.connect("nobody_much", "init_denied").await;
    let mut steps = planned(&denied, &settings).await;
    steps.retain(|step| !step.what.contains("outbox.emit"));
    // THEN the right to replicate is only hinted at
    assert!(steps[0].hint && steps[0].sql == "ALTER ROLE \"nobody_much\" REPLICATION;");
    let text = script(&steps, &settings);
    assert!(text.contains("-- let role nobody_much replicate (as a superuser)"), "{text}");
    for (number, who) in [(1, "CREATE ON SCHEMA"), (2, "owner of the tables"), (3, "REPLICATION")] {
        if number == 2 {
            let table = table_sql(&settings.outboxes[0]).unwrap();
            client.batch_execute(&table).await.unwrap();
        }
        if number == 3 {
            // THEN a script that goes on after an error makes no slot without the publication
            denied.batch_execute(&steps[number].sql).await.unwrap();
            client.batch_execute(&steps[2].sql).await.unwrap();
        }
        let fault = run(&denied, &steps[number..=number], |_| {}, REST).await.unwrap_err();
        assert_eq!((fault.code, fault.exit), ("init.permission", Exit::Source));
        assert!(fault.mend.contains(who), "{}", fault.mend);
        assert!(fault.mend.contains(&steps[number].sql));
        assert_eq!(fault.mend.ends_with(REST), number < 3, "{}", fault.mend);
    }
    // THEN a superuser gives the role its right and makes the rest
    let report = inspect(&client, &settings).await.unwrap();
    let relay = crate::facts::role(&client, "nobody_much").await.unwrap().unwrap();
    let steps = plan(&report.facts, &settings, &relay, None).unwrap();
    assert!(!steps[0].hint);
    run(&client, &steps, |_| {}, REST).await.unwrap();
    assert_eq!(faults(&denied, &settings).await, [""; 0]);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn the_shipped_files_can_be_run_twice_and_pass_the_check() {
    let (client, mut settings) = testing::logical().database("init_files").await;
    (settings.publication, settings.slot) = ("walrelay".into(), "init_files".into());
    for _ in 0..2 {
        for file in [
            include_str!("../../../../sql/roles.sql"),
            include_str!("../../../../sql/outbox.sql"),
            include_str!("../../../../sql/emit.sql"),
            include_str!("../../../../sql/publication.sql"),
            include_str!("../../../../sql/retention.sql"),
        ] {
            client.batch_execute(file).await.unwrap();
        }
    }
    slot::create(&client, &settings, false).await.unwrap();
    assert_eq!(faults(&client, &settings).await, [""; 0]);
    // THEN the shipped table is the one that init makes
    let made = "SELECT string_agg(format('%s %s %s %s', attname, atttypid::regtype, attnotnull,
                    pg_get_expr(adbin, adrelid)), ', ' ORDER BY attnum)
                FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
                WHERE attrelid = 'public.outbox'::regclass AND attnum > 0";
    let shipped: String = client.query_one(made, &[]).await.unwrap().get(0);
    client
        .batch_execute(
            "ALTER PUBLICATION walrelay DROP TABLE public.outbox; DROP TABLE public.outbox",
        )
        .await
        .unwrap();
    client.batch_execute(&table_sql(&settings.outboxes[0]).unwrap()).await.unwrap();
    assert_eq!(client.query_one(made, &[]).await.unwrap().get::<_, String>(0), shipped);
    let relay = testing::logical().connect("walrelay", "init_files").await;
    let role = inspect(&relay, &settings).await.unwrap().facts.role;
    assert!(role.replication && !role.superuser);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn retention_deletes_only_what_the_slot_has_confirmed() {
    let server = testing::quiet();
    let (client, mut settings) = server.database("init_trim").await;
    settings.publication = "walrelay".into();
    for file in [
        include_str!("../../../../sql/outbox.sql"),
        include_str!("../../../../sql/publication.sql"),
        include_str!("../../../../sql/retention.sql"),
    ] {
        client.batch_execute(file).await.unwrap();
    }
    slot::create(&client, &settings, false).await.unwrap();
    let insert = "INSERT INTO public.outbox (aggregatetype, aggregateid, type, created_at)
                  VALUES ('a', '1', 't', now() - interval '2 hours')";
    let trim = async || -> i64 {
        let sql = "SELECT public.outbox_trim('init_trim', '1 hour', 1)";
        client.query_one(sql, &[]).await.unwrap().get(0)
    };
    let confirm = async || {
        let sql = "SELECT pg_replication_slot_advance('init_trim', pg_current_wal_insert_lsn())";
        client.batch_execute(sql).await.unwrap();
    };
    // GIVEN two committed rows and one whose transaction is open when the mark is made
    let slow = server.connect("postgres", "init_trim").await;
    client.batch_execute(insert).await.unwrap();
    client.batch_execute(insert).await.unwrap();
    slow.batch_execute(&format!("BEGIN; {insert}")).await.unwrap();
    assert_eq!(trim().await, 0, "the first visit only notes the mark");
    slow.batch_execute("COMMIT").await.unwrap();
    client.batch_execute(insert).await.unwrap();
    assert_eq!(trim().await, 0, "the slot has not confirmed the mark");
    // WHEN the slot confirms THEN the two go, in batches, and the two later ones wait for a new
    // mark
    confirm().await;
    assert_eq!((trim().await, trim().await, trim().await), (1, 1, 0));
    assert_eq!(trim().await, 0);
    confirm().await;
    assert_eq!((trim().await, trim().await, trim().await), (1, 1, 0));
    // THEN rows that are too young stay, and without a slot nothing goes
    client
        .batch_execute(
            "INSERT INTO public.outbox (aggregatetype, aggregateid, type) VALUES ('a', '1', 't')",
        )
        .await
        .unwrap();
    confirm().await;
    trim().await;
    confirm().await;
    assert_eq!(trim().await, 0);
    client.batch_execute(insert).await.unwrap();
    slot::drop(&client, "init_trim").await.unwrap();
    assert_eq!((trim().await, trim().await), (0, 0));
}

#[test]
fn a_table_of_a_library_is_left_to_the_library() {
    let outbox = OutboxTable { library: Some("marten".to_owned()), ..testing::outbox() };
    let fault = table_sql(&outbox).unwrap_err();
    assert_eq!((fault.code, fault.exit), ("table.missing", Exit::Source));
    assert_eq!(fault.what, "outbox table public.outbox does not exist, and marten makes it");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn no_table_is_added_whose_updates_would_be_refused() {
    let (client, settings) = testing::logical().database("init_refused").await;
    testing::prepare(&client, &settings).await;
    // GIVEN a publication of all operations without the outbox, which has no primary key
    let publication = &settings.publication;
    let sql = format!(
        "DROP PUBLICATION {publication}; CREATE PUBLICATION {publication};
         ALTER TABLE outbox DROP CONSTRAINT outbox_pkey"
    );
    client.batch_execute(&sql).await.unwrap();
    let refused = async |settings: &SourceSettings| {
        let facts = inspect(&client, settings).await.unwrap().facts;
        let fault = plan(&facts, settings, &facts.role, None).unwrap_err();
        assert_eq!(fault.code, "publication.operations");
        assert!(fault.mend.contains("SET (publish = 'insert')"), "{fault}");
        assert!(fault.mend.ends_with("walrelay resume"), "{fault}");
    };
    refused(&settings).await;
    // WHEN it says which rows its updates are of THEN it is added, unless it has a row filter
    client.batch_execute("ALTER TABLE outbox REPLICA IDENTITY FULL").await.unwrap();
    let added = format!("add public.outbox to publication {publication}");
    assert_eq!(whats(&planned(&client, &settings).await), [added.as_str()]);
    let mut filtered = settings.clone();
    filtered.outboxes[0].filter = Some("type <> 'x'".into());
    refused(&filtered).await;
    // WHEN the publication has inserts only THEN it is added with its filter
    let mended = format!("ALTER PUBLICATION {publication} SET (publish = 'insert')");
    client.batch_execute(&mended).await.unwrap();
    assert_eq!(whats(&planned(&client, &filtered).await), [added.as_str()]);
    // AND a table that inherits is pointed out
    let told = async || {
        let findings = inspect(&client, &settings).await.unwrap().findings;
        findings.into_iter().find(|finding| finding.topic == "table.inherited")
    };
    assert_eq!(told().await, None);
    client.batch_execute("CREATE TABLE outbox_2026 () INHERITS (outbox)").await.unwrap();
    assert!(told().await.unwrap().text.contains("public.outbox_2026"));
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_relay_that_may_not_use_the_schema_is_told_what_is_missing() {
    let server = testing::logical();
    let (client, settings) = server.database("init_closed").await;
    let closed = "REVOKE ALL ON SCHEMA public FROM PUBLIC;
                  CREATE ROLE closed_relay LOGIN REPLICATION NOINHERIT";
    client.batch_execute(closed).await.unwrap();
    let relay = server.connect("closed_relay", "init_closed").await;
    let missing = whats(&planned(&relay, &settings).await).len();
    assert_eq!(missing, 4, "table, function, publication and slot");
    testing::prepare(&client, &settings).await;
    assert_eq!(planned(&relay, &settings).await, []);
    assert_eq!(faults(&relay, &settings).await, [""; 0]);
}
