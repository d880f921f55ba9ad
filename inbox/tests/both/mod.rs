//! Claims that hold on each kind of broker.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::{Calls, Fixture, LEVELS, TestBroker, shared_postgres, until};

/// One test on each kind of broker.
macro_rules! on_both_brokers {
    ($($test:ident)*) => { $(
        mod $test {
            #[test]
            fn kafka() {
                super::$test::<crate::kafka::fixture::KafkaBroker>();
            }

            #[test]
            fn rabbitmq() {
                super::$test::<crate::rabbitmq::fixture::RabbitBroker>();
            }
        }
    )* };
}

on_both_brokers! {
    a_message_is_handled_once_however_often_it_comes
    a_message_without_an_id_is_a_dead_letter_and_its_key_goes_on
    a_key_keeps_its_order_through_the_levels_and_other_keys_flow
    what_waits_for_its_key_is_due_with_the_message_before_it
    a_permanent_failure_is_dead_lettered_at_once_and_the_key_goes_on
    an_exhausted_message_is_dead_lettered_after_the_last_level_and_a_replay_is_handled
    headers_of_retries_are_not_believed_of_others
    a_handler_holds_its_lane_and_other_lanes_go_on
}

/// On the shared services.
fn fixture<B: TestBroker>(name: &str) -> Fixture<B> {
    Fixture::new(&format!("{}_{name}", B::LETTER))
}

fn a_message_is_handled_once_however_often_it_comes<B: TestBroker>() {
    let fixture = fixture::<B>("once");
    // GIVEN messages, one of them twice, and one without a key
    for id in ["e-1", "e-2", "e-1", "e-3"] {
        fixture.send("a", id, "ok");
    }
    fixture.send_with(&[("id", "e-4")], "ok");
    // WHEN they are handled
    let inbox = fixture.start();
    fixture.database.wait_handled(4);
    inbox.wait_counted("consumer_duplicates_total", "", 1.0);
    inbox.wait_counted("consumer_messages_total", "processed", 4.0);
    inbox.stop();
    // THEN each is once, in the order of its key, and all are acknowledged
    assert_eq!(fixture.database.handled_of("a"), ["e-1", "e-2", "e-3"]);
    assert_eq!(fixture.database.number("SELECT count(*) FROM processed_messages"), 4);
    fixture.assert_acknowledged(5);
    // WHEN they come again later THEN another inbox knows them, and no handler is called
    let inbox = fixture.start();
    for id in ["e-1", "e-2", "e-1"] {
        fixture.send("a", id, "ok");
    }
    inbox.wait_counted("consumer_duplicates_total", "", 3.0);
    assert_eq!(inbox.counted("consumer_messages_total", "duplicate"), 3.0);
    assert!(inbox.calls.all().is_empty());
    inbox.stop();
    assert_eq!(fixture.database.handled().len(), 4);
    fixture.assert_acknowledged(8);
}

fn a_message_without_an_id_is_a_dead_letter_and_its_key_goes_on<B: TestBroker>() {
    let fixture = fixture::<B>("noid");
    fixture.send_with(&[("key", "a")], "ok");
    fixture.send("a", "e-2", "ok");
    let inbox = fixture.start();
    fixture.database.wait_handled(1);
    let letter = &fixture.wait_dead_letters(1)[0];
    letter.assert_headers(&[
        ("key", "a"),
        ("dlq-error-class", "consumer.no-id"),
        ("dlq-event-id", ""),
        ("dlq-original-topic", B::origin(&fixture.name).0),
    ]);
    assert_eq!(letter.value, "ok");
    inbox.stop();
    assert_eq!(fixture.database.handled(), ["e-2"]);
    fixture.assert_acknowledged(2);
}

fn a_key_keeps_its_order_through_the_levels_and_other_keys_flow<B: TestBroker>() {
    // GIVEN a message that fails twice, later ones of its key, and other keys
    let fixture = fixture::<B>("order");
    fixture.send("a", "a-1", "fail 2");
    for id in ["a-2", "a-3", "a-4"] {
        fixture.send("a", id, if id == "a-3" { "fail 1" } else { "ok" });
    }
    for id in 1..=20 {
        fixture.send(&format!("b{}", id % 5), &format!("b-{id}"), "ok");
    }
    // WHEN all is handled, and more of the key comes while it waits
    let inbox = fixture.start();
    fixture.database.wait_handled(20);
    assert!(!fixture.database.handled().iter().any(|id| id.starts_with('a')), "they wait");
    fixture.send("a", "a-5", "ok");
    fixture.database.wait_handled(25);

    // THEN the key is in order, and only what failed was tried again, in its time
    assert_eq!(fixture.database.handled_of("a"), ["a-1", "a-2", "a-3", "a-4", "a-5"]);
    let calls = |id| inbox.calls.of(id);
    assert_eq!([calls("a-1").len(), calls("a-2").len(), calls("a-3").len()], [3, 1, 2]);
    for (pair, level) in calls("a-1").windows(2).zip(LEVELS) {
        let waited = pair[1].at - pair[0].at + B::DUE_EARLIER_MAX;
        assert!(waited >= level, "{waited:?} is less than {level:?}");
    }
    inbox.wait_counted("consumer_retries_total", "300ms", 2.0);
    inbox.wait_counted("consumer_retries_total", "600ms", 1.0);
    until("nothing is deferred", || (fixture.database.deferred() == 0).then_some(()));
    inbox.stop();
    fixture.assert_acknowledged(25);
}

/// It waits, in order, but not for the whole time of the level.
fn what_waits_for_its_key_is_due_with_the_message_before_it<B: TestBroker>() {
    // GIVEN a message that has failed, and whose level lasts nine seconds
    let name = format!("{}_duewith", B::LETTER);
    let fixture = Fixture::<B>::bare(&name, shared_postgres(), &B::shared_url());
    let settings = || fixture.settings().levels([Duration::from_secs(9)]);
    fixture.init_with(settings());
    fixture.send("a", "a-1", "fail 1");
    let inbox = fixture.start_with(settings(), &Calls::new());
    // WHEN another one of its key comes when the first is nearly due
    let is_due = "SELECT count(*) FROM deferred_messages WHERE due_at < now() + interval '3 s'";
    until("it is due soon", || (fixture.database.number(is_due) == 1).then_some(()));
    fixture.send("a", "a-2", "ok");
    fixture.database.wait_handled(2);
    // THEN they are handled together
    assert_eq!(fixture.database.handled(), ["a-1", "a-2"]);
    assert!(inbox.counted("consumer_messages_total", "deferred") >= 1.0);
    let handled_at = |id| inbox.calls.of(id).last().unwrap().at;
    let behind = handled_at("a-2") - handled_at("a-1");
    assert!(behind < Duration::from_secs(5), "{behind:?}");
    inbox.stop();
}

fn a_permanent_failure_is_dead_lettered_at_once_and_the_key_goes_on<B: TestBroker>() {
    let fixture = fixture::<B>("permanent");
    let headers = [
        ("key", "a"),
        ("id", "e-1"),
        ("lsn", "0/10"),
        ("commit_ts", "2026-01-02T03:04:05Z"),
        ("mine", "kept"),
    ];
    fixture.send_with(&headers, "permanent");
    fixture.send("a", "e-2", "named");
    fixture.send("a", "e-3", "ok");
    let inbox = fixture.start();
    fixture.database.wait_handled(1);
    assert_eq!(fixture.database.handled(), ["e-3"]);

    let letters = fixture.wait_dead_letters(2);
    assert_eq!(letters[0].value, "permanent");
    letters[0].assert_headers(&headers);
    let (topic, exchange) = B::origin(&fixture.name);
    letters[0].assert_headers(&[
        ("dlq-event-id", "e-1"),
        ("dlq-original-topic", topic),
        ("dlq-original-exchange", exchange),
        ("dlq-error-class", "consumer.permanent"),
        ("dlq-error-msg", "it never passes"),
        ("dlq-attempts", "1"),
        ("dlq-lsn", "0/10"),
        ("dlq-commit-ts", "2026-01-02T03:04:05Z"),
    ]);
    assert!(letters[0].header("dlq-relay").starts_with(&format!("{}@", fixture.name)));
    assert_eq!(letters[1].header("dlq-error-class"), "billing.closed");
    inbox.wait_counted("consumer_dlq_published_total", "", 2.0);
    assert_eq!(inbox.counted("consumer_retries_total", ""), 0.0);
    inbox.stop();
    fixture.assert_acknowledged(3);
}

fn an_exhausted_message_is_dead_lettered_after_the_last_level_and_a_replay_is_handled<
    B: TestBroker,
>() {
    // GIVEN a message that fails four times, and one behind it
    let fixture = fixture::<B>("exhausted");
    let own = [("key", "a"), ("id", "e-1"), ("x-delivery-date", "monday")];
    fixture.send_with(&[&own, B::BROKER_HEADERS].concat(), "fail 4");
    fixture.send("a", "e-2", "ok");
    let inbox = fixture.start();
    fixture.database.wait_handled(1);
    // THEN it went through all levels, and what waited is handled
    assert_eq!(fixture.database.handled(), ["e-2"]);
    assert_eq!(inbox.calls.of("e-1").len(), 4);
    let letter = &fixture.wait_dead_letters(1)[0];
    letter.assert_headers(&[
        ("dlq-error-class", "consumer.exhausted"),
        ("dlq-attempts", "4"),
        // Its way through the levels has left no trace.
        ("dlq-original-topic", B::origin(&fixture.name).0),
        ("x-retry-count", ""),
        ("x-original-topic", ""),
        ("x-death", ""),
        ("x-first-death-queue", ""),
        ("x-last-death-queue", ""),
        ("x-delivery-count", ""),
        ("x-acquired-count", ""),
        // A name that only looks like one of the broker.
        ("x-delivery-date", "monday"),
    ]);
    assert!(letter.header("dlq-first-failed-at") < letter.header("dlq-failed-at"));
    assert_eq!(fixture.database.deferred(), 0);
    // WHEN it is replayed THEN it is handled
    fixture.broker.replay(&fixture.name, "e-1", "ok");
    fixture.database.wait_handled(2);
    inbox.stop();
    fixture.assert_acknowledged(3);
}

fn headers_of_retries_are_not_believed_of_others<B: TestBroker>() {
    // GIVEN messages that somebody else has marked as retried
    let fixture = fixture::<B>("forged");
    let retry = [("x-retry-copy", "-1"), ("x-retry-count", "9"), ("x-original-topic", "payments")];
    let forged = [&retry, B::FORGED_REPLAY].concat();
    let send = |key, id, value| {
        fixture.send_with(&[&[("key", key), ("id", id)], &*forged].concat(), value);
    };
    send("a", "e-1", "fail 1");
    send("b", "e-2", "permanent");
    // WHEN they fail THEN they are tried as often as others, and come from where they came
    let inbox = fixture.start();
    fixture.database.wait_handled(1);
    assert_eq!(inbox.calls.of("e-1").len(), 2);
    inbox.wait_counted("consumer_retries_total", "300ms", 1.0);
    fixture.wait_dead_letters(1)[0].assert_headers(&[
        ("dlq-event-id", "e-2"),
        ("dlq-original-topic", B::origin(&fixture.name).0),
        ("dlq-replay-count", ""),
    ]);
    inbox.stop();
}

fn a_handler_holds_its_lane_and_other_lanes_go_on<B: TestBroker>() {
    // GIVEN a dependency that is away, and a message of another lane that does not need it
    let fixture = fixture::<B>("hold");
    let calls = Calls::new();
    calls.set_dependency_away(true);
    fixture.send("a", "a-1", "hold");
    fixture.send("a", "a-2", "ok");
    fixture.send("c", "c-1", "ok");
    let inbox = fixture.start_with(fixture.settings(), &calls);
    fixture.database.wait_handled(1);
    inbox.wait_held("handler", 1.0);
    // WHEN the inbox stops meanwhile THEN it does so at once, and the message comes again
    inbox.stop_soon();
    assert_eq!(fixture.database.handled(), ["c-1"]);
    // WHEN the dependency is back THEN the lane goes on, in order
    let inbox = fixture.start_with(fixture.settings(), &calls);
    inbox.wait_held("handler", 1.0);
    calls.set_dependency_away(false);
    fixture.database.wait_handled(3);
    assert_eq!(fixture.database.handled_of("a"), ["a-1", "a-2"]);
    assert_eq!(inbox.counted("consumer_retries_total", ""), 0.0);
    inbox.stop();
    fixture.assert_acknowledged(3);
}

/// A consumer that is killed again and again while it works; what it has not committed is repeated
/// harmlessly.
pub(crate) fn survive_kills<B: TestBroker>(test: &str) {
    use crate::support::killed::{KilledConsumer, end, send_load};
    // GIVEN a load of which a part fails once or twice, or for good
    let fixture = fixture::<B>("crash");
    let load = send_load(|key, id, value| fixture.send(key, id, value));
    // WHEN the consumer is killed
    let Fixture { name, database, url, .. } = &fixture;
    let child = KilledConsumer { test, service: name, database, broker: url }.kill_under(&load);
    // THEN each message is handled once or a dead letter, and each key is in order
    let mut letters = load.permanent;
    loop {
        // A kill between a confirmed letter and its row in `processed_messages` leaves a second letter.
        let read = fixture.wait_dead_letters(letters);
        let dead: BTreeSet<&str> = read.iter().map(|letter| letter.header("id")).collect();
        assert!(dead.iter().all(|id| id.parse::<usize>().unwrap() % 40 == 29), "{dead:?}");
        if dead.len() == load.permanent {
            break;
        }
        letters += 1;
    }
    until("nothing is deferred", || (fixture.database.deferred() == 0).then_some(()));
    end(child);
    load.assert_handled(database);
    fixture.assert_acknowledged(load.messages);
}
