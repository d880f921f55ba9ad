use super::*;
use crate::testing;

#[test]
fn the_number_is_read_from_the_message() {
    let message = "replication slot \"walrelay2\" is active for PID 4711";
    assert_eq!(last_number(message), Some(4711));
    assert_eq!(last_number::<i32>("no number"), None);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_statement_that_takes_too_long_is_not_the_fault_of_a_pooler() {
    let client = testing::logical().connect("postgres", "postgres").await;
    let sql = "SET statement_timeout = '10ms'; SELECT pg_sleep(60)";
    let error = client.batch_execute(sql).await.unwrap_err();
    let fault = query_fault(&error, "claiming rows");
    assert!(fault.mend.contains("ALTER ROLE … SET statement_timeout = 0;"), "{fault}");
    let error = client.batch_execute("SELECT no_such_column").await.unwrap_err();
    let fault = query_fault(&error, "claiming rows");
    assert!(fault.mend.contains("not as configured: walrelay check"), "{fault}");
    let error = client.batch_execute("SELECT * FROM no_such_table").await.unwrap_err();
    let fault = query_fault(&error, "claiming rows");
    assert!(fault.mend.contains("not as configured: walrelay check"), "{fault}");
    let error = client.batch_execute("SELECT 1 / 0").await.unwrap_err();
    let fault = query_fault(&error, "claiming rows");
    assert!(fault.mend.starts_with("try the statement with psql"), "{fault}");
}
