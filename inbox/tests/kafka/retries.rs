//! Copies for retries, and dead letters that are refused.

use std::time::Duration;

use walrelay_harness::consumer::create_topic;

use super::fixture::{Fixture, shared_kafka};
use crate::support::{Calls, TestBroker as _, shared_postgres, until};

#[test]
fn a_dead_letter_that_is_refused_holds_its_lane_and_no_stop() {
    // GIVEN a topic of dead letters that takes none
    let brokers = shared_kafka().bootstrap();
    create_topic(&brokers, "refused.dlq", 1, &[("max.message.bytes", "50")]).unwrap();
    let fixture = Fixture::new("refused");
    fixture.send("a", "e-1", "permanent");
    let inbox = fixture.start();
    until("it has failed", || (inbox.calls.all().len() == 1).then_some(()));
    // THEN somebody can see that its lane stands
    inbox.wait_held("broker", 1.0);
    // WHEN the inbox stops THEN it does so at once, and the message comes again
    inbox.stop_soon();
    assert_eq!(fixture.committed(), 0);
}

#[test]
fn the_original_is_acknowledged_only_after_its_copy_is_confirmed() {
    // GIVEN a consumer whose retry topics do not exist
    let brokers = shared_kafka().bootstrap();
    let fixture = Fixture::bare("unconfirmed", shared_postgres(), &brokers);
    fixture.database.execute(include_str!("../../sql/inbox.sql"));
    fixture.send("a", "e-1", "fail 1");
    fixture.broker.flush();
    let inbox = fixture.start();
    until("the failure is noted", || (fixture.database.deferred() == 1).then_some(()));
    // WHEN the inbox stops before the copy is confirmed
    inbox.stop();
    // THEN the original is not acknowledged
    assert_eq!(fixture.committed(), 0);
    // and once there are topics, it is handled
    fixture.init();
    let inbox = fixture.start();
    fixture.database.wait_handled(1);
    fixture.wait_committed(1);
    inbox.stop();
}

#[test]
fn of_several_copies_the_newest_counts() {
    let fixture = Fixture::new("copies");
    let row = "INSERT INTO deferred_messages
        (consumer, message_id, message_key, level, attempts, copy) VALUES";
    // GIVEN a crash after the row was written, and one after the copy was confirmed
    fixture.database.execute(&format!("{row} ('copies', 'e-1', 'a', 1, 1, 0)"));
    fixture.database.execute(&format!("{row} ('copies', 'e-2', 'b', 2, 2, 2)"));
    // WHEN the originals come again, and with the second of them an old copy
    fixture.send("a", "e-1", "fail 1");
    fixture.send("b", "e-2", "ok");
    let copy = |number| {
        let retry = [("x-retry-copy", number), ("x-retry-count", number)];
        let headers = [[("key", "b"), ("id", "e-2")], retry].concat();
        fixture.broker.send("copies.retry.300ms", &headers, "ok");
    };
    copy("1");
    let inbox = fixture.start();
    // THEN the first is handled at once, as its second attempt, and the others are acknowledged
    fixture.database.wait_handled(1);
    inbox.wait_counted("consumer_duplicates_total", "", 2.0);
    assert_eq!(fixture.database.handled(), ["e-1"]);
    assert_eq!(inbox.calls.of("e-1").len(), 1);
    // and the confirmed copy is handled when it comes
    copy("2");
    fixture.database.wait_handled(2);
    until("nothing is deferred", || (fixture.database.deferred() == 0).then_some(()));
    inbox.stop();
}

#[test]
fn a_copy_waits_no_longer_than_its_level_whatever_clocks_say() {
    // GIVEN copies of one partition whose time a clock in error has set far ahead
    let fixture = Fixture::bare("clock", shared_postgres(), &shared_kafka().bootstrap());
    let settings = || fixture.settings().levels([Duration::from_secs(2)]);
    fixture.init_with(settings());
    let copies = 20;
    for number in 0..copies {
        let (id, due) = (format!("e-{number:02}"), u64::MAX.to_string());
        fixture.database.execute(&format!(
            "INSERT INTO deferred_messages (consumer, message_id, message_key, level, copy)
             VALUES ('clock', '{id}', 'a', 1, 1)"
        ));
        let headers = [("key", "a"), ("id", &*id), ("x-retry-copy", "1"), ("x-retry-due", &*due)];
        fixture.broker.send("clock.retry.2s", &headers, "ok");
    }
    fixture.broker.flush();
    // WHEN they are read THEN they wait together, and not one after another
    let inbox = fixture.start_with(settings(), &Calls::new());
    fixture.database.wait_handled(copies);
    inbox.stop();
}
