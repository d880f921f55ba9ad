//! Row filters that are declared with `where`, as a real server prints, plans and refuses them.

use super::*;
use crate::publication::{create_sql, published_unless_locked};

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_declared_row_filter_is_accepted_as_postgres_prints_it_and_no_other() {
    let (client, mut settings) = prepared(testing::logical(), "declared").await;
    client
        .batch_execute(
            "ALTER TABLE outbox ADD kind varchar(9), ADD n int, ADD flag bool, ADD at timestamptz",
        )
        .await
        .unwrap();
    if report(&client, &settings).await.facts.server.version < 150_000 {
        settings.outboxes[0].filter = Some("n = 1".to_owned());
        let found = report(&client, &settings).await;
        assert!(codes(&found).contains(&"source.row-filters"), "{:#?}", found.findings);
        return;
    }
    let mut last = None;
    for filter in [
        "n IS NULL",
        "kind = 'E'",
        "kind <> 'E' AND n > -3 AND NOT flag",
        "n = 1 OR n = 2 AND flag",
        "(n = 1 OR n = 2) AND flag IS NOT TRUE",
        "type IN ('a', 'b') OR kind::text NOT IN ('c', 'd') OR n IN (1, 2)",
        "type LIKE 'order-%' AND kind NOT LIKE '_x'",
        "headers ->> 'tenant' = 'it''s'",
        "at < '2026-01-01 00:00:00+00'",
        "at BETWEEN '2026-01-01' AND timestamptz '2026-07-01 12:00' OR at = 'infinity'",
        "\"type\" = 'a' AND aggregateid = type",
        "n * 2 + 1 = 3 OR n % 2 <> 0",
        "CASE WHEN flag THEN n BETWEEN 1 AND 2 ELSE \"kind\" IS NULL END",
        "outbox.n = 1 AND length(type) > 3",
        "true",
    ] {
        // WHEN init has made the publication with it
        settings.outboxes[0].filter = Some(filter.to_owned());
        client.batch_execute("DROP PUBLICATION declared").await.unwrap();
        client.batch_execute(&create_sql(&settings)).await.unwrap();
        let found = report(&client, &settings).await;
        assert_eq!(codes(&found), [""; 0], "{filter}: {:#?}", found.findings);
        // THEN another declaration does not fit it
        if let Some(last) = last.replace(filter.to_owned()) {
            settings.outboxes[0].filter = Some(last);
            let other = report(&client, &settings).await;
            assert_eq!(codes(&other), ["publication.row-filter"], "{filter}");
        }
    }
    settings.outboxes[0].filter = Some("n = 1".to_owned());
    client.batch_execute("ALTER PUBLICATION declared SET TABLE outbox").await.unwrap();
    let found = report(&client, &settings).await;
    expect(&found, Exit::Source, "table.unfiltered", "has no row filter", "WHERE (n = 1)");
    client.batch_execute(sql_of(&found)).await.unwrap();
    assert_eq!(codes(&report(&client, &settings).await), [""; 0]);
    // A publication of all tables has no filter to set.
    client
        .batch_execute("DROP PUBLICATION declared; CREATE PUBLICATION declared FOR ALL TABLES")
        .await
        .unwrap();
    let found = report(&client, &settings).await;
    expect(&found, Exit::Source, "table.unfiltered", "has no row filter", "or remove where");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_look_at_the_publication_does_not_wait_for_a_locked_table() {
    let server = testing::logical();
    let (client, mut settings) = prepared(server, "filter_locked").await;
    let other = server.connect("postgres", "filter_locked").await;
    let version = "SELECT current_setting('server_version_num')::integer";
    let version: i32 = other.query_one(version, &[]).await.unwrap().get(0);
    if version < 150_000 {
        return;
    }
    settings.outboxes[0].filter = Some("type = 'a'".to_owned());
    client.batch_execute("DROP PUBLICATION filter_locked").await.unwrap();
    client.batch_execute(&create_sql(&settings)).await.unwrap();
    other.batch_execute("BEGIN; LOCK TABLE outbox").await.unwrap();
    let look = async || published_unless_locked(&client, &settings).await.unwrap();
    assert!(look().await.is_none());
    other.batch_execute("ROLLBACK").await.unwrap();
    assert!(look().await.is_some());
    let limit = client.query_one("SHOW lock_timeout", &[]).await.unwrap();
    assert_eq!(limit.get::<_, String>(0), "0");
}

/// Pairs that differ in one thing each.
const OTHER_FILTERS: [(&str, &str); 10] = [
    ("n IS NULL", "n IS NOT NULL"),
    ("n = 1", "n = 2"),
    ("type = 'X'", "type = 'x'"),
    ("type = 'a'", "\"Type\" = 'a'"),
    ("(flag OR n = 1) AND n < 3", "flag OR (n = 1 AND n < 3)"),
    ("n < 10", "n < 10.0"),
    ("type IN ('a', 'b')", "type IN ('a', 'c')"),
    ("n BETWEEN 1 AND 2", "n BETWEEN 1 AND 3"),
    ("type < 'a'", "type COLLATE \"C\" < 'a'"),
    ("at < '2026-01-01 00:00:00+00'", "at < '2026-01-01 00:00:00+01'"),
];

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_row_filter_that_differs_in_one_thing_is_refused() {
    let (client, mut settings) = prepared(testing::logical(), "differs").await;
    if report(&client, &settings).await.facts.server.version < 150_000 {
        return;
    }
    let more = "ALTER TABLE outbox ADD n int, ADD flag bool, ADD at timestamptz, ADD \"Type\" text";
    client.batch_execute(more).await.unwrap();
    for (one, other) in OTHER_FILTERS {
        for (published, declared) in [(one, other), (other, one)] {
            let sql = format!("ALTER PUBLICATION differs SET TABLE outbox WHERE ({published})");
            client.batch_execute(&sql).await.unwrap();
            settings.outboxes[0].filter = Some(declared.to_owned());
            let found = report(&client, &settings).await;
            assert_eq!(codes(&found), ["publication.row-filter"], "{published}, {declared}");
            // THEN it is accepted as Postgres prints it.
            let mend = &found.first_fault().unwrap().mend;
            let printed = mend.rsplit_once("where = ").unwrap().1;
            settings.outboxes[0].filter = Some(serde_json::from_str(printed).unwrap());
            assert_eq!(codes(&report(&client, &settings).await), [""; 0], "{printed}");
        }
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_row_filter_that_postgres_refuses_is_reported_with_its_reason() {
    let (client, mut settings) = prepared(testing::logical(), "refused").await;
    if report(&client, &settings).await.facts.server.version < 150_000 {
        return;
    }
    client
        .batch_execute(
            "CREATE TYPE kind AS ENUM ('event', 'heartbeat'); ALTER TABLE outbox ADD kind kind;
             ALTER PUBLICATION refused SET TABLE outbox WHERE (true)",
        )
        .await
        .unwrap();
    let deep = format!("{}true{}", "(".repeat(100_000), ")".repeat(100_000));
    for (filter, why) in [
        ("no_column = 1", "column \"no_column\" does not exist"),
        ("kind <> 'heartbeat'", "column kind has a user-defined type"),
        ("outbox.\"kind\" <> 'heartbeat'", "column kind has a user-defined type"),
        ("type =", "syntax error"),
        ("type = 'a' --", "syntax error"),
        (&*deep, "memory exhausted"),
    ] {
        settings.outboxes[0].filter = Some(filter.to_owned());
        let found = report(&client, &settings).await;
        let what = "Postgres refuses the row filter that where declares for public.outbox: ";
        expect(&found, Exit::Source, "publication.row-filter", what, "over the columns");
        assert!(found.first_fault().unwrap().what.contains(why), "{:#?}", found.findings);
    }
    // WHEN the publication does not have the table, or is not there THEN the filter is told first
    settings.outboxes[0].filter = Some("kind <> 'heartbeat'".to_owned());
    for (change, then) in [
        ("ALTER PUBLICATION refused DROP TABLE outbox", "publication.table-missing"),
        ("DROP PUBLICATION refused", "publication.missing"),
    ] {
        client.batch_execute(change).await.unwrap();
        let found = report(&client, &settings).await;
        assert_eq!(codes(&found), ["publication.row-filter", then]);
        // THEN no statement is printed that has the filter
        let mend = &faults(&found.findings).nth(1).unwrap().mend;
        assert_eq!(mend, "write a row filter that Postgres allows, then: walrelay check");
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_declared_time_is_the_same_in_sessions_of_all_time_zones() {
    const FILTER: &str = "at >= '2026-07-01' AND at < '2026-12-01 12:00:00+03'";
    let server = testing::logical();
    let (client, mut settings) = prepared(server, "zones").await;
    if report(&client, &settings).await.facts.server.version < 150_000 {
        return;
    }
    settings.outboxes[0].filter = Some(FILTER.to_owned());
    client
        .batch_execute("ALTER TABLE outbox ADD at timestamptz; DROP PUBLICATION zones")
        .await
        .unwrap();
    // GIVEN a database whose TimeZone is not UTC, and the publication that `init` makes there
    let zone = "ALTER DATABASE zones SET TimeZone = 'Asia/Tokyo';
                ALTER DATABASE zones SET DateStyle = 'SQL, DMY'";
    client.batch_execute(zone).await.unwrap();
    let client = server.connect("postgres", "zones").await;
    client.batch_execute(&create_sql(&settings)).await.unwrap();
    // THEN it is accepted in sessions of all zones
    for zone in ["Asia/Tokyo", "UTC", "America/New_York"] {
        let client = server.connect("postgres", "zones").await;
        client.batch_execute(&format!("SET TimeZone = '{zone}'")).await.unwrap();
        assert_eq!(codes(&report(&client, &settings).await), [""; 0], "{zone}");
    }
    // THEN what a session of the database means by the same text is another time, and refused
    let sql = format!("ALTER PUBLICATION zones SET TABLE outbox WHERE ({FILTER})");
    server.connect("postgres", "zones").await.batch_execute(&sql).await.unwrap();
    let client = server.connect("postgres", "zones").await;
    let found = report(&client, &settings).await;
    let mend = "SET TimeZone = 'UTC'; SET LOCAL";
    expect(&found, Exit::Source, "publication.row-filter", "where declares", mend);
    client.batch_execute(sql_of(&found)).await.unwrap();
    assert_eq!(codes(&report(&client, &settings).await), [""; 0]);
}
