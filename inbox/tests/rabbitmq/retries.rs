//! Retries, the order of a key through them, and dead letters.

use std::time::Duration;

use walrelay_inbox::Inbox;

use super::fixture::{Fixture, ROUTING_KEY, shared_rabbitmq, source};
use crate::support::{Calls, LEVELS, Running, runtime, shared_postgres, until};

#[test]
fn a_key_keeps_its_order_through_the_levels_and_other_keys_flow() {
    // GIVEN a message that fails twice, later ones of its key, and other keys
    let fixture = Fixture::new("r_order");
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
        let waited = pair[1].at - pair[0].at;
        assert!(waited >= level, "{waited:?} is less than {level:?}");
    }
    inbox.wait_counted("consumer_retries_total", "300ms", 2.0);
    inbox.wait_counted("consumer_retries_total", "600ms", 1.0);
    until("nothing is deferred", || (fixture.database.deferred() == 0).then_some(()));
    inbox.stop();
    fixture.assert_all_acknowledged();
}

#[test]
fn what_waits_for_its_key_is_due_with_the_message_before_it() {
    // GIVEN a message that has failed, and whose level lasts nine seconds
    let fixture = Fixture::bare("r_duewith", shared_postgres(), &shared_rabbitmq().amqp_url());
    let settings = || fixture.settings().levels([Duration::from_secs(9)]);
    let inbox = Inbox::new(settings(), source(&fixture.url, "r_duewith"));
    runtime(1).block_on(inbox.init()).unwrap();
    fixture.send("a", "a-1", "fail 1");
    let inbox = Running::start(settings(), source(&fixture.url, "r_duewith"), &Calls::new());
    inbox.assert_due_together(&fixture.database, || fixture.send("a", "a-2", "ok"));
}

#[test]
fn a_permanent_failure_is_dead_lettered_at_once_and_the_key_goes_on() {
    let fixture = Fixture::new("r_permanent");
    let headers =
        [("key", "a"), ("lsn", "0/10"), ("commit_ts", "2026-01-02T03:04:05Z"), ("mine", "kept")];
    fixture.send_with(&headers, Some("e-1"), "permanent");
    fixture.send("a", "e-2", "named");
    fixture.send("a", "e-3", "ok");
    let inbox = fixture.start();
    fixture.database.wait_handled(1);
    assert_eq!(fixture.database.handled(), ["e-3"]);

    let letters = fixture.wait_dead_letters(2);
    let letter = &letters[0];
    assert_eq!(letter.value, "permanent");
    for (name, value) in [
        ("key", "a"),
        ("mine", "kept"),
        ("dlq-event-id", "e-1"),
        ("dlq-original-topic", ROUTING_KEY),
        ("dlq-original-exchange", "r_permanent"),
        ("dlq-error-class", "consumer.permanent"),
        ("dlq-error-msg", "it never passes"),
        ("dlq-attempts", "1"),
        ("dlq-lsn", "0/10"),
        ("dlq-commit-ts", "2026-01-02T03:04:05Z"),
    ] {
        assert_eq!(letter.header(name), value, "{name}");
    }
    assert!(letter.header("dlq-relay").starts_with("r_permanent@"));
    let properties = &letter.properties;
    assert_eq!(properties.message_id().as_ref().unwrap().as_str(), "e-1");
    assert_eq!(properties.kind().as_ref().unwrap().as_str(), "OrderCreated");
    assert_eq!(properties.content_type().as_ref().unwrap().as_str(), "application/json");
    assert_eq!(*properties.delivery_mode(), Some(2));
    assert_eq!(letters[1].header("dlq-error-class"), "billing.closed");
    inbox.wait_counted("consumer_dlq_published_total", "", 2.0);
    assert_eq!(inbox.counted("consumer_retries_total", ""), 0.0);
    inbox.stop();
    fixture.assert_all_acknowledged();
}

#[test]
fn an_exhausted_message_is_dead_lettered_after_the_last_level_and_a_replay_is_handled() {
    // GIVEN a message that fails four times, and one behind it
    let fixture = Fixture::new("r_exhausted");
    // The broker writes the latter two when a message is delivered again.
    let headers = [("key", "a"), ("x-delivery-count", "1"), ("x-acquired-count", "1")];
    fixture.send_with(&headers, Some("e-1"), "fail 4");
    fixture.send("a", "e-2", "ok");
    let inbox = fixture.start();
    fixture.database.wait_handled(1);
    // THEN it went through all levels, and what waited is handled
    assert_eq!(fixture.database.handled(), ["e-2"]);
    assert_eq!(inbox.calls.of("e-1").len(), 4);
    let letters = fixture.wait_dead_letters(1);
    let letter = &letters[0];
    for (name, value) in [
        ("dlq-error-class", "consumer.exhausted"),
        ("dlq-attempts", "4"),
        // Its way through the retry queues has left no trace.
        ("dlq-original-topic", ROUTING_KEY),
        ("x-retry-count", ""),
        ("x-death", ""),
        ("x-first-death-queue", ""),
        ("x-last-death-queue", ""),
        ("x-delivery-count", ""),
        ("x-acquired-count", ""),
    ] {
        assert_eq!(letter.header(name), value, "{name}");
    }
    assert!(letter.header("dlq-first-failed-at") < letter.header("dlq-failed-at"));
    assert_eq!(fixture.database.deferred(), 0);
    // WHEN it is replayed, as `walrelay dlq replay --from` does
    let headers = [("key", "a"), ("dlq-replay-count", "1")];
    fixture.publish("r_exhausted", &headers, Some("e-1"), "ok");
    // THEN it is handled
    fixture.database.wait_handled(2);
    inbox.stop();
    fixture.assert_all_acknowledged();
}

#[test]
fn the_original_is_acknowledged_only_after_its_copy_is_confirmed() {
    // GIVEN a consumer whose retry exchanges lead to no queue: a copy is acknowledged, and returned
    let fixture = Fixture::new("r_unconfirmed");
    fixture.bind_level("300ms", false);
    fixture.send("a", "e-1", "fail 1");
    let inbox = fixture.start();
    until("the failure is noted", || (fixture.database.deferred() == 1).then_some(()));
    inbox.wait_held("broker", 1.0);
    // WHEN the inbox stops before the copy is confirmed
    inbox.stop();
    // THEN the original is not acknowledged
    until("it is in the queue", || (fixture.ready("r_unconfirmed") == 1).then_some(()));
    assert_eq!(fixture.database.handled().len(), 0);
    // WHEN there is a queue THEN it is handled
    fixture.bind_level("300ms", true);
    let inbox = fixture.start();
    fixture.database.wait_handled(1);
    inbox.stop();
    fixture.assert_all_acknowledged();
}

#[test]
fn headers_of_retries_and_replays_are_not_believed_of_others() {
    // GIVEN messages that somebody else has marked as retried, and replayed for another consumer
    let fixture = Fixture::new("r_forged");
    let forged = [
        ("x-retry-copy", "-1"),
        ("x-retry-count", "9"),
        ("x-original-topic", "payments"),
        ("dlq-replay-for", "another"),
        ("dlq-replay-count", "2147483647"),
    ];
    fixture.send_with(&[&[("key", "a")][..], &forged].concat(), Some("e-1"), "fail 1");
    fixture.send_with(&[&[("key", "b")][..], &forged].concat(), Some("e-2"), "permanent");
    // WHEN they fail THEN they are tried as often as others, and come from where they came
    let inbox = fixture.start();
    fixture.database.wait_handled(1);
    assert_eq!(inbox.calls.of("e-1").len(), 2);
    inbox.wait_counted("consumer_retries_total", "300ms", 1.0);
    let letter = &fixture.wait_dead_letters(1)[0];
    assert_eq!(letter.header("dlq-event-id"), "e-2");
    assert_eq!(letter.header("dlq-original-topic"), ROUTING_KEY);
    assert_eq!(letter.header("dlq-replay-count"), "");
    inbox.stop();
}
