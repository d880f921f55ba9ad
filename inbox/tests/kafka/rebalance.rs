//! Instances that join and leave under load.

use super::fixture::Fixture;
use crate::support::{Calls, Running};

const KEYS: usize = 20;

#[test]
fn instances_join_and_leave_without_loss_and_without_handling_twice() {
    let (two, three) = change_hands("rebalance", 3, 600);
    two.stop();
    three.stop();
}

/// With several lanes, what is done behind a message that has not begun is delivered again. One lane
/// leaves nothing behind.
#[test]
fn what_runs_is_committed_before_others_take_over() {
    let (two, three) = change_hands("onelane", 1, 300);
    let repeated = [&two, &three].map(|inbox| inbox.counted("consumer_duplicates_total", ""));
    assert_eq!(repeated, [0.0, 0.0]);
    two.stop();
    three.stop();
}

/// Handles a load while a second instance joins, the first leaves, and a third joins.
fn change_hands(name: &str, lanes: usize, messages: usize) -> (Running, Running) {
    // GIVEN a load that one instance has begun
    let fixture = Fixture::new(name);
    for number in 0..messages {
        let value = if number % 50 == 7 { "fail 1" } else { "slow 2" };
        fixture.send(&format!("k{}", number % KEYS), &format!("{number:04}"), value);
    }
    let calls = Calls::new();
    let start = || fixture.start_with(fixture.settings().lanes(lanes), &calls);
    let one = start();
    fixture.database.wait_handled(messages / 10);
    // WHEN instances come and go
    let two = start();
    fixture.database.wait_handled(messages / 3);
    one.stop();
    fixture.database.wait_handled(messages / 2);
    let three = start();
    fixture.database.wait_handled(messages);
    fixture.wait_committed(messages as i64);
    // THEN no handler was called twice but for its retry, and the keys are in order
    let retried = (0..messages).filter(|number| number % 50 == 7).count();
    assert_eq!(calls.all().len(), messages + retried);
    assert_eq!(fixture.database.handled().len(), messages);
    for key in 0..KEYS {
        let handled = fixture.database.handled_of(&format!("k{key}"));
        assert!(handled.is_sorted(), "{key}: {handled:?}");
    }
    (two, three)
}
