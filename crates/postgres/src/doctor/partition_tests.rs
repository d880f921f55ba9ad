//! Outboxes that are partitions of other tables, as real publications send them, and other tables in a publication.

use super::*;

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_partition_whose_rows_are_sent_under_the_name_of_another_table() {
    let (client, mut settings) = testing::logical().database("leaf").await;
    client
        .batch_execute(
            "CREATE TABLE top (id uuid, aggregatetype text, aggregateid text, type text,
                 payload jsonb, created_at timestamptz) PARTITION BY RANGE (created_at);
             CREATE TABLE middle PARTITION OF top DEFAULT PARTITION BY LIST (type);
             CREATE TABLE p1 PARTITION OF middle DEFAULT;",
        )
        .await
        .unwrap();
    let via_root = "WITH (publish = 'insert', publish_via_partition_root = true)";
    for (table, publishes, parent) in [
        ("p1", "FOR TABLE top", "public.top"),
        ("p1", "FOR TABLE middle, p1", "public.middle"),
        ("p1", "FOR ALL TABLES", "public.top"),
        ("middle", "FOR ALL TABLES", "public.top"),
    ] {
        settings.outboxes[0].table = table.into();
        let publish = format!("CREATE PUBLICATION leaf {publishes} {via_root}");
        client.batch_execute(&publish).await.unwrap();
        crate::slot::create(&client, &settings, false).await.unwrap();
        let found = report(&client, &settings).await;
        let mend = format!("table = \"{parent}\"");
        expect(&found, Exit::Source, "publication.leaf", parent, &mend);
        // THEN init adds nothing, as that would change nothing
        let steps = crate::init::plan(&found.facts, &settings, &found.facts.role, None).unwrap();
        assert!(steps.iter().all(|step| step.hint), "{steps:?}");
        // AND the table that is named is published
        settings.outboxes[0].table = parent.strip_prefix("public.").unwrap().into();
        assert_eq!(codes(&report(&client, &settings).await), [""; 0]);
        let sql = "DROP PUBLICATION leaf; SELECT pg_drop_replication_slot('leaf')";
        client.batch_execute(sql).await.unwrap();
    }
    // GIVEN a publication of the partition alone THEN its rows have its own name
    settings.outboxes[0].table = "p1".into();
    let publish = format!("CREATE PUBLICATION leaf FOR TABLE p1 {via_root}");
    client.batch_execute(&publish).await.unwrap();
    crate::slot::create(&client, &settings, false).await.unwrap();
    let found = report(&client, &settings).await;
    assert_eq!(codes(&found), [""; 0]);
    assert!(found.findings.iter().all(|finding| finding.topic != "publication.leaf"));
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn tables_of_the_publication_that_are_not_configured_are_named() {
    let (client, settings) = prepared(testing::logical(), "others").await;
    let sql = "CREATE TABLE billed (id int); ALTER PUBLICATION others ADD TABLE billed;";
    client.batch_execute(sql).await.unwrap();
    expect_warning(
        &report(&client, &settings).await,
        "publication.other-tables",
        "also has public.billed",
    );
    client.batch_execute("ALTER PUBLICATION others DROP TABLE billed").await.unwrap();
    let found = report(&client, &settings).await.findings;
    assert!(found.iter().all(|it| it.topic != "publication.other-tables"), "{found:#?}");
}
