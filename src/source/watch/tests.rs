//! The watcher against a real slot, and the age against a clock that is an argument.

use super::*;
use crate::source::testing;

#[tokio::test]
async fn the_slot_is_seen_as_it_moves() {
    let (client, settings) = testing::logical().database("watched").await;
    assert_eq!(sample(&client, "watched").await.unwrap(), None);
    testing::prepare(&client, &settings).await;
    let watcher = Watcher::prepare(&client, "watched").await.unwrap();
    let first = watcher.sample(&client).await.unwrap().unwrap();
    assert_eq!(
        (first.wal_status.as_str(), first.active, first.active_pid),
        ("reserved", false, None)
    );
    assert_eq!(first.safe_wal_size, None);
    assert!(!first.is_lost() && first.retained_bytes >= first.lag_bytes());

    // WHEN WAL is written THEN lag and retained WAL grow by it
    client
        .batch_execute("SELECT pg_logical_emit_message(true, 'x', repeat('x', 5000))")
        .await
        .unwrap();
    let second = watcher.sample(&client).await.unwrap().unwrap();
    assert_eq!(second.confirmed_flush, first.confirmed_flush);
    assert!(second.lag_bytes() >= first.lag_bytes() + 5000);
    assert!(second.retained_bytes >= first.retained_bytes + 5000);

    // WHEN it is confirmed THEN the slot follows
    let advance =
        format!("SELECT pg_replication_slot_advance('watched', '{}')", second.current_lsn);
    client.batch_execute(&advance).await.unwrap();
    let third = watcher.sample(&client).await.unwrap().unwrap();
    assert!(third.confirmed_flush > second.confirmed_flush);

    client.batch_execute("SELECT pg_drop_replication_slot('watched')").await.unwrap();
    assert_eq!(watcher.sample(&client).await.unwrap(), None);
}

#[test]
fn the_age_counts_from_the_last_move() {
    let (start, mut age) = (Instant::now(), RestartAge::default());
    let at = |seconds| start + Duration::from_secs(seconds);
    let (one, two) = (Lsn::from_wire(1), Lsn::from_wire(2));
    assert_eq!(age.observe(one, at(0)), Duration::ZERO);
    assert_eq!(age.observe(one, at(5)), Duration::from_secs(5));
    assert_eq!(age.observe(one, at(9)), Duration::from_secs(9));
    assert_eq!(age.observe(two, at(10)), Duration::ZERO);
    // A slot that was made anew stands further back: that is a move too.
    assert_eq!(age.observe(one, at(11)), Duration::ZERO);
    assert_eq!(age.observe(one, at(12)), Duration::from_secs(1));
}
