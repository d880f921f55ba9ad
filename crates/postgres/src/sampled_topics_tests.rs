use super::*;
use crate::testing;
use walrelay_base::template::Template;

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn topics_come_from_rows_and_nothing_of_the_table_is_obeyed() {
    let (client, mut settings) = testing::logical().database("row_topics").await;
    let run = async |sql: &str| client.batch_execute(sql).await.unwrap();
    run("CREATE TYPE kind AS ENUM ('order', 'refund'); CREATE TABLE outbox (kind kind, \"a b\" json)").await;
    let outbox = &mut settings.outboxes[0];
    // GIVEN a constant topic THEN no row is asked
    outbox.route.topic = Template::parse("all").unwrap();
    assert_eq!(topics(&client, outbox).await, None);
    outbox.route.topic = Template::parse("x.${kind}.${a b}.${kind}").unwrap();
    assert_eq!(topics(&client, outbox).await, Some(SampledTopics::default()));
    run("INSERT INTO outbox SELECT 'order', '1' FROM generate_series(1, 5)").await;
    run("INSERT INTO outbox VALUES ('refund', '2'), (NULL, '3')").await;
    run(&format!("INSERT INTO outbox VALUES ('refund', '\"{}\"')", "y".repeat(1000))).await;
    let found = topics(&client, outbox).await.unwrap();
    let topics_found: Vec<&str> = found.topics.iter().map(String::as_str).collect();
    assert_eq!(
        (topics_found, &found.unread),
        (vec!["x.order.1.order", "x.refund.2.refund"], &None)
    );
    // GIVEN a table that is larger than what is looked at THEN the last rows are seen
    run("INSERT INTO outbox SELECT 'refund', '\"filler\"' FROM generate_series(1, 20000)").await;
    run("INSERT INTO outbox VALUES ('order', '\"last\"')").await;
    let found = topics(&client, outbox).await.unwrap();
    assert!(!found.topics.contains("x.order.1.order"), "{found:?}");
    // GIVEN a table that another session has locked
    let other = testing::logical().connect("postgres", "row_topics").await;
    other.batch_execute("BEGIN; LOCK TABLE outbox").await.unwrap();
    let found = topics(&client, outbox).await.unwrap();
    assert!(found.unread.unwrap().ends_with("another session has locked the table"));
    other.batch_execute("ROLLBACK").await.unwrap();
    // GIVEN a role that may not look
    run("CREATE ROLE row_topics_nobody; SET ROLE row_topics_nobody").await;
    let found = topics(&client, outbox).await.unwrap();
    assert!(found.unread.unwrap().contains("permission denied for table outbox"));
}
