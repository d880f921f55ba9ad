//! Instances that join and leave under load.

use super::fixture::Fixture;
use crate::support::Calls;

#[test]
fn instances_join_and_leave_without_loss_and_without_handling_twice() {
    // GIVEN a load that one instance has begun
    const MESSAGES: usize = 600;
    let fixture = Fixture::new("rebalance");
    for number in 0..MESSAGES {
        let value = if number % 50 == 7 { "fail 1" } else { "slow 2" };
        fixture.send(&format!("k{}", number % 20), &format!("{number:04}"), value);
    }
    let calls = Calls::new();
    let one = fixture.start_with(fixture.settings(), &calls);
    fixture.database.wait_handled(60);
    // WHEN another one joins, the first leaves, and a third one joins
    let two = fixture.start_with(fixture.settings(), &calls);
    fixture.database.wait_handled(200);
    one.stop();
    fixture.database.wait_handled(300);
    let three = fixture.start_with(fixture.settings(), &calls);
    fixture.database.wait_handled(MESSAGES);
    two.stop();
    three.stop();
    // THEN no handler was called twice but for its retry, and the keys are in order
    let retried = (0..MESSAGES).filter(|number| number % 50 == 7).count();
    assert_eq!(calls.all().len(), MESSAGES + retried);
    assert_eq!(fixture.database.number("SELECT count(DISTINCT message_id) FROM handled"), 600);
    for key in 0..20 {
        let handled = fixture.database.handled_of(&format!("k{key}"));
        assert!(handled.is_sorted(), "{key}: {handled:?}");
    }
    assert_eq!(fixture.committed(), MESSAGES as i64);
}
