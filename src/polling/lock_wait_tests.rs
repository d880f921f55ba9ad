use std::sync::Arc;

use super::*;
use crate::source::testing;

#[tokio::test]
#[ignore = "needs PostgreSQL: make test"]
async fn a_wait_for_a_table_is_told_until_a_statement_has_had_its_locks() {
    let (client, source) = testing::logical().database("polling_lock_wait").await;
    // GIVEN a table that another session has locked
    client.batch_execute("CREATE TABLE waited ()").await.unwrap();
    client.batch_execute("BEGIN; LOCK TABLE waited").await.unwrap();
    let holder = session_pid(&client).await.unwrap();
    let waiting = sql::connect(&source.connection).await.unwrap();
    let pid = session_pid(&waiting.client).await.unwrap();
    let told = Arc::<Mutex<Vec<String>>>::default();
    let lock_wait = LockWait::new(&source.connection, Duration::from_millis(10), {
        let told = Arc::clone(&told);
        move |sentence: &str| locked(&told).push(sentence.to_owned())
    });
    lock_wait.end();
    assert!(!lock_wait.is_told() && locked(&told).is_empty());
    // WHEN a session waits for it, until that was told
    let asking = waiting.client.batch_execute("SELECT FROM public.waited");
    let unlocking = async {
        while !lock_wait.is_told() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        client.batch_execute("COMMIT").await
    };
    lock_wait.explain_during(pid, async { tokio::try_join!(asking, unlocking) }).await.unwrap();
    lock_wait.end();
    // THEN the table is named, and what finds the other session; then the end
    let told = locked(&told).clone();
    let words = ["has locked public.waited", &format!("WHERE pid IN ({holder});")];
    assert!(words.iter().all(|word| told[0].contains(word)), "{told:?}");
    assert_eq!(told.last().map(String::as_str), Some(""));
    assert!(!lock_wait.is_told());
}
