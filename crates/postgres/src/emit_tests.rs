//! The function on real servers: what it writes, what it refuses, and for which tables it is made.

use super::*;
use crate::{init, testing};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

async fn text(client: &Client, sql: &str) -> Option<String> {
    client.query_one(sql, &[]).await.unwrap_or_else(|error| panic!("{error:?}: {sql}")).get(0)
}

/// Message and hint of what must fail.
async fn refused(client: &Client, sql: &str) -> (String, String) {
    let error = client.batch_execute(sql).await.expect_err(sql);
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "22023", "{error:?}");
    (error.message().to_owned(), error.hint().unwrap_or_default().to_owned())
}

#[test]
fn every_name_of_the_shipped_table_is_put_in() {
    let mut outbox = testing::outbox();
    assert_eq!(EMIT_SQL.matches(SHIPPED_TARGET).count(), 1);
    assert_eq!(EMIT_SQL.matches(SHIPPED_COMMENT).count(), 1);
    assert_eq!(SHIPPED_COMMENT, format!("'{}'", about(&outbox)));
    (outbox.schema, outbox.table) = ("sales".into(), "it's \"new\"".into());
    outbox.columns.payload = "Body".into();
    let sql = emit_sql(&outbox);
    assert!(
        sql.starts_with("DO ") && sql.ends_with(';') && !sql.contains("public.outbox"),
        "{sql}"
    );
    assert!(sql.contains("INSERT INTO \"sales\".\"it's \"\"new\"\"\" (\"id\", "), "{sql}");
    assert!(sql.contains("\"type\", \"Body\", ") && sql.contains("sales.it''s \"new\","), "{sql}");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_writer_needs_insert_and_nothing_else() {
    // GIVEN table and function of the shipped files, twice, and a role that may only INSERT
    let server = testing::logical();
    let (owner, _) = server.database("emit_rights").await;
    owner.batch_execute(include_str!("../../../sql/outbox.sql")).await.unwrap();
    for _ in 0..2 {
        owner.batch_execute(EMIT_SQL).await.unwrap();
    }
    let roles = "CREATE ROLE emit_writer LOGIN; CREATE ROLE emit_stranger LOGIN;
                 GRANT INSERT ON public.outbox TO emit_writer;";
    owner.batch_execute(roles).await.unwrap();
    let writer = server.connect("emit_writer", "emit_rights").await;
    // WHEN it emits, whatever its search_path says, THEN the row has every argument in its column
    writer.batch_execute("SET search_path = nowhere").await.unwrap();
    let id = text(
        &writer,
        &format!(
            "SELECT outbox.emit('order', '7', 'Placed', '{{\"n\": 1.50}}', '{{\"t\": \"b\"}}', '{TRACE}',
                '11111111-2222-4333-8444-555555555555')::text"
        ),
    )
    .await;
    assert_eq!(id.as_deref(), Some("11111111-2222-4333-8444-555555555555"));
    let row = "SELECT concat_ws('|', id, aggregatetype, aggregateid, type, payload, headers, traceparent) FROM outbox";
    let wanted = format!("{}|order|7|Placed|{{\"n\": 1.50}}|{{\"t\": \"b\"}}|{TRACE}", id.unwrap());
    assert_eq!(text(&owner, row).await, Some(wanted));
    // THEN whoever may not INSERT may not emit
    let stranger = server.connect("emit_stranger", "emit_rights").await;
    let error =
        stranger.batch_execute("SELECT outbox.emit('a', '1', 't', NULL)").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "42501");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn types_of_a_session_do_not_replace_those_of_the_function() {
    // GIVEN a session whose temporary schema has types of the names that the function uses
    let (client, _) = testing::logical().database("emit_types").await;
    client.batch_execute(include_str!("../../../sql/outbox.sql")).await.unwrap();
    client.batch_execute(EMIT_SQL).await.unwrap();
    for base in ["uuid", "text"] {
        let domain = format!(
            "CREATE DOMAIN pg_temp.{base} AS pg_catalog.{base}
                 CONSTRAINT forged CHECK (VALUE IS NULL OR VALUE::pg_catalog.text = 'forged')"
        );
        client.batch_execute(&domain).await.unwrap();
    }
    // WHEN it emits THEN they are not used
    let emit = format!("SELECT outbox.emit('a', '1', 't', NULL, traceparent => '{TRACE}')");
    client.batch_execute(&emit).await.unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(
        text(&client, "SELECT traceparent FROM public.outbox").await.as_deref(),
        Some(TRACE)
    );
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn the_trace_of_the_transaction_is_taken_where_none_is_passed() {
    let (client, _) = testing::logical().database("emit_trace").await;
    client.batch_execute(include_str!("../../../sql/outbox.sql")).await.unwrap();
    client.batch_execute(EMIT_SQL).await.unwrap();
    let other = "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-later";
    for transaction in [
        &format!(
            "BEGIN; SET LOCAL outbox.traceparent = '{TRACE}';
             SELECT outbox.emit('a', '1', 'inherited', NULL);
             SELECT outbox.emit('a', '1', 'passed', 'null', NULL, '{other}'); COMMIT"
        ),
        "SELECT outbox.emit('a', '1', 'none', '{}')",
        "BEGIN; SELECT outbox.emit('a', '1', 'rolled back', '{}'); ROLLBACK",
    ] {
        client.batch_execute(transaction).await.unwrap();
    }
    let rows = "SELECT string_agg(concat_ws(' ', type, payload, traceparent), ', ' ORDER BY ctid) FROM outbox";
    let wanted = format!("inherited {TRACE}, passed null {other}, none {{}}");
    assert_eq!(text(&client, rows).await, Some(wanted));
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn what_cannot_become_an_event_is_refused_with_a_hint() {
    let (client, _) = testing::logical().database("emit_refused").await;
    client.batch_execute(include_str!("../../../sql/outbox.sql")).await.unwrap();
    client.batch_execute(EMIT_SQL).await.unwrap();
    for (arguments, message, hint) in [
        ("NULL, '1', 't', NULL", "aggregate_type is NULL or empty", "'order'"),
        ("'', '1', 't', NULL", "aggregate_type is NULL or empty", "'order'"),
        ("'a', NULL, 't', NULL", "aggregate_id is NULL or empty", "order_id::text"),
        ("'a', '', 't', NULL", "aggregate_id is NULL or empty", "order_id::text"),
        ("'a', '1', NULL, NULL", "event_type is NULL or empty", "'OrderPlaced'"),
        ("'a', '1', '', NULL", "event_type is NULL or empty", "'OrderPlaced'"),
        ("'a', '1', 't', NULL, '[1]'", "of type array", "'{\"tenant\": \"blue\"}'"),
        ("'a', '1', 't', NULL, 'null'", "of type null", "or NULL (SQL's"),
    ] {
        let (said, mend) = refused(&client, &format!("SELECT outbox.emit({arguments})")).await;
        assert!(said.contains(message) && mend.contains(hint), "{arguments}: {said} / {mend}");
    }
    let (ids, zeros) = ("4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7", "0".repeat(32));
    for trace in [
        String::new(),
        "abc".into(),
        format!("00-{ids}"),
        format!("00-{ids}-01-more"),
        format!("ff-{ids}-01"),
        format!("01-{ids}-01more"),
        format!("00-{ids}-0G"),
        format!("00-{}-01", ids.to_uppercase()),
        format!("00-{zeros}-00f067aa0ba902b7-01"),
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01".into(),
        format!("00-{ids}-01\n"),
    ] {
        let sql = format!("SELECT outbox.emit('a', '1', 't', NULL, traceparent => '{trace}')");
        let (said, mend) = refused(&client, &sql).await;
        assert!(said.contains("no W3C trace context"), "{trace}: {said}");
        assert!(mend.contains(TRACE) && mend.ends_with("or NULL."), "{mend}");
    }
    let sql = "SET outbox.traceparent = 'abc'; SELECT outbox.emit('a', '1', 't', NULL)";
    let (_, mend) = refused(&client, sql).await;
    assert!(mend.contains("the setting outbox.traceparent"), "{mend}");
    assert_eq!(text(&client, "SELECT count(*)::text FROM outbox").await.as_deref(), Some("0"));
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_mapped_table_has_a_function_of_its_own_when_it_is_asked_for() {
    let (client, mut settings) = testing::logical().database("emit_mapped").await;
    let outbox = &mut settings.outboxes[0];
    (outbox.schema, outbox.table) = ("outbox".into(), "Events".into());
    outbox.columns.id = "event_id".into();
    outbox.columns.key = "customer".into();
    outbox.columns.event_type = "id".into();
    assert_eq!(missing(&client, &settings, false).await.unwrap(), None);
    // GIVEN no table THEN it is made with the table, in whose schema it may be
    let found = missing(&client, &settings, true).await.unwrap().unwrap();
    client.batch_execute("CREATE SCHEMA outbox").await.unwrap();
    client.batch_execute(&init::table_sql(&settings.outboxes[0]).unwrap()).await.unwrap();
    assert_eq!(missing(&client, &settings, true).await.unwrap(), Some(found.clone()));
    client.batch_execute(&found.sql).await.unwrap();
    client.batch_execute("SELECT outbox.emit('order', '7', 'Placed', '{}')").await.unwrap();
    let row = "SELECT concat_ws('|', aggregatetype, customer, id, payload) FROM outbox.\"Events\"";
    assert_eq!(text(&client, row).await.as_deref(), Some("order|7|Placed|{}"));
    // THEN one that exists is kept, whatever its arguments
    assert_eq!(missing(&client, &settings, true).await.unwrap(), None);
    // WHEN another table is configured THEN it is not taken for the function of that one
    settings.outboxes[0].table = "other".into();
    assert_eq!(missing(&client, &settings, false).await.unwrap(), None);
    let refused = async || {
        let fault = missing(&client, &settings, true).await.unwrap_err();
        assert_eq!((fault.code, fault.exit), ("init.emit-unfit", Exit::Usage));
        assert!(fault.mend.contains("DROP FUNCTION outbox.emit;"), "{fault}");
        fault.what
    };
    let what = refused().await;
    assert!(what.contains("is not that of outbox.other: "), "{what}");
    assert!(what.contains("Writes an event into outbox.Events, "), "{what}");
    client.batch_execute("COMMENT ON FUNCTION outbox.emit IS NULL").await.unwrap();
    assert!(refused().await.ends_with("it has no comment"));
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_table_that_exists_has_one_only_when_asked_and_only_where_its_insert_fits() {
    let (client, mut settings) = testing::logical().database("emit_fits").await;
    // GIVEN no table THEN the function comes with the shipped one, and with no mapped one
    assert!(missing(&client, &settings, false).await.unwrap().is_some());
    settings.outboxes[0].columns.key = "customer".into();
    assert_eq!(missing(&client, &settings, false).await.unwrap(), None);
    settings.outboxes[0].columns.key = "id".into();
    let fault = missing(&client, &settings, true).await.unwrap_err();
    assert_eq!((fault.code, fault.exit), ("init.emit-unfit", Exit::Usage));
    settings.outboxes = vec![testing::outbox()];
    client.batch_execute(include_str!("../../../sql/outbox.sql")).await.unwrap();
    assert_eq!(missing(&client, &settings, false).await.unwrap(), None);
    for (change, undo, why) in [
        (
            "ALTER COLUMN payload TYPE bytea USING NULL",
            "ALTER COLUMN payload TYPE json USING NULL",
            "\"payload\" is of type bytea",
        ),
        ("ADD COLUMN tenant text NOT NULL", "DROP COLUMN tenant", "column tenant must not be NULL"),
        ("RENAME COLUMN headers TO h", "RENAME COLUMN h TO headers", "\"headers\" of relation"),
    ] {
        client.batch_execute(&format!("ALTER TABLE outbox {change}")).await.unwrap();
        let fault = missing(&client, &settings, true).await.unwrap_err();
        assert!(fault.what.contains(why), "{fault}");
        client.batch_execute(&format!("ALTER TABLE outbox {undo}")).await.unwrap();
        assert!(missing(&client, &settings, true).await.unwrap().is_some(), "{undo}");
    }
    // THEN of several tables it is for the shipped one, and for none where that is not among them
    let mut second = testing::outbox();
    second.table = "other".into();
    settings.outboxes.insert(0, second.clone());
    assert_eq!(missing(&client, &settings, true).await.unwrap().unwrap().table, "public.outbox");
    settings.outboxes[1] = second;
    assert!(missing(&client, &settings, true).await.unwrap_err().what.contains("several tables"));
    // WHEN events are messages only THEN it is said how those are written
    settings.outboxes.clear();
    assert_eq!(missing(&client, &settings, false).await.unwrap(), None);
    let fault = missing(&client, &settings, true).await.unwrap_err();
    assert!(fault.what.ends_with("only [source.messages]"), "{fault}");
    assert!(fault.mend.contains("pg_logical_emit_message"), "{fault}");
}
