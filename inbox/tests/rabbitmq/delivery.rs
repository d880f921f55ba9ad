//! Tests of deliveries: how often one counts, and to whom it goes.

use super::fixture::{Fixture, shared_rabbitmq, source};
use crate::support::{Calls, Running, runtime, shared_postgres, until};

#[test]
fn no_more_than_the_prefetch_is_taken_from_the_queue() {
    // GIVEN a handler that does not end
    let fixture = Fixture::new("r_prefetch");
    for number in 1..=20 {
        fixture.send("a", &format!("e-{number:02}"), if number == 1 { "gate" } else { "ok" });
    }
    let calls = Calls::new();
    let prefetched = source(&fixture.url, &fixture.name).prefetch(6);
    let inbox = Running::start(fixture.settings(), prefetched, &calls);
    until("the handler runs", || (calls.all().len() == 1).then_some(()));
    // THEN the others stay in the queue
    until("the prefetch is taken", || (fixture.ready() <= 14).then_some(()));
    assert_eq!(fixture.ready(), 14);
    // WHEN it ends THEN all are handled
    calls.open_gate();
    fixture.database.wait_handled(20);
    inbox.stop();
    assert!(fixture.database.handled().is_sorted());
    fixture.assert_all_acknowledged();
}

#[test]
fn a_second_instance_waits_and_takes_over_in_order() {
    let (fixture, calls) = taken_over("r_takeover", |first| {
        first.stop();
        None
    });
    // THEN it goes on behind the message of that handler, and repeats nothing
    assert_eq!(calls, (10, 20));
    fixture.assert_all_acknowledged();
}

#[test]
fn a_second_instance_takes_over_in_order_from_one_whose_future_is_dropped() {
    let (fixture, calls) = taken_over("r_dropped", |first| {
        first.abort();
        Some(first)
    });
    // THEN it begins with the message of that handler, which was rolled back
    assert_eq!(calls, (10, 21));
    fixture.assert_all_acknowledged();
}

/// Lets the first of two instances leave while its handler runs. Returns how often each has called
/// its handler, when the second has handled all that the first was sent ahead, and the rest.
fn taken_over(
    name: &str,
    leave: impl FnOnce(Running) -> Option<Running>,
) -> (Fixture, (usize, usize)) {
    // GIVEN two instances, and many more messages of a key than are sent ahead
    let fixture = Fixture::new(name);
    let (first_calls, second_calls) = (Calls::new(), Calls::new());
    let few_ahead = || source(&fixture.url, &fixture.name).prefetch(4);
    let first = Running::start(fixture.settings(), few_ahead(), &first_calls);
    fixture.send("a", "e-01", "ok");
    fixture.database.wait_handled(1);
    let second = Running::start(fixture.settings(), few_ahead(), &second_calls);
    until("both are there", || (fixture.consumers() == "2").then_some(()));
    for number in 2..=30 {
        let value = if number == 10 { "slow 500" } else { "ok" };
        fixture.send("a", &format!("e-{number:02}"), value);
    }
    until("the first is at the slow one", || (first_calls.all().len() == 10).then_some(()));
    assert!(second_calls.all().is_empty(), "the second waits");
    // WHEN the first leaves
    let _left = leave(first);
    // THEN the second handles the others, in order
    fixture.database.wait_handled(30);
    second.stop();
    let handled = fixture.database.handled();
    assert!(handled.is_sorted() && handled.len() == 30, "{handled:?}");
    let calls = (first_calls.all().len(), second_calls.all().len());
    (fixture, calls)
}

#[test]
fn what_init_makes_is_told_when_it_is_missing_and_may_be_there_already() {
    let url = shared_rabbitmq().amqp_url();
    let fixture = Fixture::bare("r_bare", shared_postgres(), &url);
    // GIVEN tables, and nothing at the broker
    fixture.database.execute(include_str!("../../sql/inbox.sql"));
    let error = fixture.run_error();
    assert!(error.contains("Inbox::init") && error.contains("r_bare"), "{error}");
    // WHEN it is made twice THEN it is there
    fixture.init();
    fixture.init();
    fixture.send("a", "e-1", "ok");
    assert_eq!(fixture.ready(), 1);
    // WHEN the relay's exchange is missing THEN that is told
    let astray = source(&url, "r_bare").exchange("r_nobody.events");
    let inbox = walrelay_inbox::Inbox::new(fixture.settings(), astray);
    let error = runtime(1).block_on(inbox.init()).unwrap_err().to_string();
    assert!(error.contains("r_nobody.events") && error.contains("walrelay init"), "{error}");
}

#[test]
fn a_message_survives_more_lost_readers_than_a_queue_of_rabbitmq_4_allows() {
    // GIVEN a message with which a reader was lost again and again; the limit would be 20
    let fixture = Fixture::new("r_losses");
    fixture.send("a", "e-1", "ok");
    for _ in 0..25 {
        fixture.broker.take_and_leave("r_losses");
    }
    // WHEN the inbox reads THEN it is handled
    let inbox = fixture.start();
    fixture.database.wait_handled(1);
    inbox.stop();
    assert_eq!(fixture.database.handled(), ["e-1"]);
    fixture.assert_all_acknowledged();
}

#[test]
fn the_original_is_acknowledged_only_after_its_copy_is_confirmed() {
    // GIVEN a consumer whose retry exchanges lead to no queue: a copy is acknowledged, and returned
    let fixture = Fixture::new("r_unconfirmed");
    fixture.broker.bind_level("r_unconfirmed", "300ms", false);
    fixture.send("a", "e-1", "fail 1");
    let inbox = fixture.start();
    until("the failure is noted", || (fixture.database.deferred() == 1).then_some(()));
    inbox.wait_held("broker", 1.0);
    // WHEN the inbox stops before the copy is confirmed
    inbox.stop();
    // THEN the original is not acknowledged
    until("it is in the queue", || (fixture.ready() == 1).then_some(()));
    assert_eq!(fixture.database.handled().len(), 0);
    // WHEN there is a queue THEN it is handled
    fixture.broker.bind_level("r_unconfirmed", "300ms", true);
    let inbox = fixture.start();
    fixture.database.wait_handled(1);
    inbox.stop();
    fixture.assert_all_acknowledged();
}
