//! Tests of deliveries: how often one counts, and to whom it goes.

use super::fixture::{Fixture, shared_rabbitmq, source};
use crate::support::{Calls, LIMIT, Running, Script, runtime, shared_postgres, until};

#[test]
fn a_message_is_handled_once_however_often_it_comes() {
    let fixture = Fixture::new("r_once");
    // GIVEN messages, one of them twice, one whose id is a header, and one without a key
    for id in ["e-1", "e-2", "e-1", "e-3"] {
        fixture.send("a", id, "ok");
    }
    fixture.send_with(&[("key", "a"), ("id", "e-4")], None, "ok");
    fixture.send_with(&[], Some("e-5"), "ok");
    // WHEN they are handled
    let inbox = fixture.start();
    fixture.database.wait_handled(5);
    inbox.wait_counted("consumer_duplicates_total", "", 1.0);
    inbox.wait_counted("consumer_messages_total", "processed", 5.0);
    inbox.stop();
    // THEN each is once, in the order of its key, and all are acknowledged
    assert_eq!(fixture.database.handled_of("a"), ["e-1", "e-2", "e-3", "e-4"]);
    assert_eq!(fixture.database.number("SELECT count(*) FROM processed_messages"), 5);
    fixture.assert_all_acknowledged();
    // WHEN one comes again later THEN another inbox knows it, too
    fixture.send("a", "e-2", "ok");
    let inbox = fixture.start();
    inbox.wait_counted("consumer_duplicates_total", "", 1.0);
    inbox.stop();
    assert_eq!(fixture.database.handled().len(), 5);
    fixture.assert_all_acknowledged();
}

#[test]
fn a_message_without_an_id_is_dead_lettered() {
    let fixture = Fixture::new("r_noid");
    fixture.send_with(&[("key", "a")], None, "ok");
    fixture.send("a", "e-2", "ok");
    let inbox = fixture.start();
    fixture.database.wait_handled(1);
    let letters = fixture.wait_dead_letters(1);
    assert_eq!(letters[0].header("dlq-error-class"), "consumer.no-id");
    assert_eq!((letters[0].header("key"), &*letters[0].value), ("a".to_owned(), "ok"));
    inbox.stop();
    assert_eq!(fixture.database.handled(), ["e-2"]);
    fixture.assert_all_acknowledged();
}

#[test]
fn no_more_than_the_prefetch_is_taken_from_the_queue() {
    // GIVEN a handler that does not end
    let fixture = Fixture::new("r_prefetch");
    for number in 1..=20 {
        fixture.send("a", &format!("e-{number:02}"), if number == 1 { "gate" } else { "ok" });
    }
    let calls = Calls::new();
    let prefetched = source(&fixture.url, &fixture.name).prefetch(6);
    let inbox = fixture.start_with(prefetched, &calls);
    until("the handler runs", || (calls.all().len() == 1).then_some(()));
    // THEN the others stay in the queue
    until("the prefetch is taken", || (fixture.ready(&fixture.name) <= 14).then_some(()));
    assert_eq!(fixture.ready(&fixture.name), 14);
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
    let first = fixture.start_with(few_ahead(), &first_calls);
    fixture.send("a", "e-01", "ok");
    fixture.database.wait_handled(1);
    let second = fixture.start_with(few_ahead(), &second_calls);
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
    let inbox = || walrelay_inbox::Inbox::new(fixture.settings(), source(&url, "r_bare"));
    // GIVEN tables, and nothing at the broker
    fixture.database.execute(include_str!("../../sql/inbox.sql"));
    let running = inbox();
    let ended = async {
        tokio::time::timeout(LIMIT, running.run(Script(Calls::new()), std::future::pending())).await
    };
    let error = runtime(1).block_on(ended).unwrap().unwrap_err().to_string();
    assert!(error.contains("Inbox::init") && error.contains("r_bare"), "{error}");
    // WHEN it is made twice THEN it is there
    fixture.init();
    fixture.init();
    fixture.send("a", "e-1", "ok");
    assert_eq!(fixture.ready("r_bare"), 1);
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
        fixture.take_and_leave();
    }
    // WHEN the inbox reads THEN it is handled
    let inbox = fixture.start();
    fixture.database.wait_handled(1);
    inbox.stop();
    assert_eq!(fixture.database.handled(), ["e-1"]);
    fixture.assert_all_acknowledged();
}
