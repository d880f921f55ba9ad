use super::super::statements::tests::{POLLING_SQL, shipped_statements};
use super::*;
use crate::source::testing;

#[test]
fn an_answer_that_did_not_come_is_told_with_the_time_that_it_had() {
    for (limit, told) in [
        (Duration::from_secs(30), "no answer within 30 s"),
        (Duration::from_secs(10) / 3, "no answer within 3.333 s"),
    ] {
        let text = unanswered(limit).to_string();
        assert!(text.ends_with(told), "{text}");
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_reason_is_written_whatever_characters_the_database_has() {
    const REASON: &str = "caf\u{e9}: cut\u{2026}\0";
    let (admin, mut source) = testing::logical().database("polling_reasons").await;
    let lease = Duration::from_secs(30);
    for (encoding, written) in [
        ("UTF8", "caf\u{e9}: cut\u{2026}"),
        ("SQL_ASCII", "caf\u{e9}: cut\u{2026}"),
        ("LATIN1", "caf?: cut?"),
        ("EUC_JP", "caf?: cut?"),
    ] {
        // GIVEN a database of this encoding, with a row in hand and another one behind it
        let name = format!("polling_reasons_{}", encoding.to_lowercase());
        let create =
            format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'");
        admin.batch_execute(&create).await.unwrap();
        source.connection.dbname.clone_from(&name);
        let client = testing::logical().connect("postgres", &name).await;
        client.batch_execute(POLLING_SQL).await.unwrap();
        let rows = "INSERT INTO outbox (event_key, payload, status, locked_by)
            VALUES ('k', '{}', 'in_progress', 'c'), ('l', '{}', 'in_progress', 'c')";
        client.batch_execute(rows).await.unwrap();
        let statements = shipped_statements(&client, &source).await;
        let lock_wait = LockWait::new(&source.connection, lease, |_| {});
        let opened = PollingSession::open(&source.connection, &statements, lease, &lock_wait).await;
        let failed = |id: &str| FailedRow {
            id: id.to_owned(),
            attempts: 1,
            reason: REASON.to_owned(),
            wait: Duration::from_secs(60),
        };
        let (failed, noted) = (vec![failed("1")], vec![failed("2")]);
        let verdicts = Verdicts { failed, noted, ..Verdicts::of("c".to_owned()) };
        // WHEN it is refused, and the other one is tried again
        let settled = opened.unwrap().settle(&verdicts, Attempt::First).await;
        // THEN both have the reason
        assert_eq!(settled.unwrap(), Settled::Written { lost: 0 }, "{encoding}");
        let reasons = "SELECT array_agg(failure_reason) FROM outbox";
        let reasons: Vec<String> = client.query_one(reasons, &[]).await.unwrap().get(0);
        assert_eq!(reasons, [written; 2], "{encoding}");
    }
}
