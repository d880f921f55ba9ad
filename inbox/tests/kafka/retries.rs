//! Retries, the order of a key through them, and dead letters.

use std::time::{Duration, Instant};

use walrelay_harness::consumer::create_topic;
use walrelay_inbox::Inbox;

use super::fixture::{Fixture, shared_kafka, source};
use crate::support::{Calls, LEVELS, runtime, shared_postgres, until};

#[test]
fn a_key_keeps_its_order_through_the_levels_and_other_keys_flow() {
    // GIVEN a message that fails twice, later ones of its key, and other keys
    let fixture = Fixture::new("order");
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

    // THEN the key is in order, and only what failed was tried again
    assert_eq!(fixture.database.handled_of("a"), ["a-1", "a-2", "a-3", "a-4", "a-5"]);
    let calls = |id| inbox.calls.of(id);
    assert_eq!([calls("a-1").len(), calls("a-2").len(), calls("a-3").len()], [3, 1, 2]);
    for (pair, level) in calls("a-1").windows(2).zip(LEVELS) {
        // The due time has whole milliseconds.
        let waited = pair[1].at - pair[0].at + Duration::from_millis(2);
        assert!(waited >= level, "{waited:?} is less than {level:?}");
    }
    inbox.wait_counted("consumer_retries_total", "300ms", 2.0);
    inbox.wait_counted("consumer_retries_total", "600ms", 1.0);
    until("nothing is deferred", || (fixture.database.deferred() == 0).then_some(()));
    fixture.wait_committed(25);
    inbox.stop();
}

#[test]
fn what_waits_for_its_key_is_due_with_the_message_before_it() {
    // GIVEN a message that has failed, and whose level lasts nine seconds
    let fixture = Fixture::bare("duewith", shared_postgres(), &shared_kafka().bootstrap());
    let settings = || fixture.settings().levels([Duration::from_secs(9)]);
    let inbox = Inbox::new(settings(), source(&fixture.brokers, "duewith"));
    runtime(1).block_on(inbox.init()).unwrap();
    fixture.send("a", "a-1", "fail 1");
    let inbox = fixture.start_with(settings(), &Calls::new());
    inbox.assert_due_together(&fixture.database, || fixture.send("a", "a-2", "ok"));
}

#[test]
fn a_permanent_failure_is_dead_lettered_at_once_and_the_key_goes_on() {
    let fixture = Fixture::new("permanent");
    let headers =
        [("id", "e-1"), ("lsn", "0/10"), ("commit_ts", "2026-01-02T03:04:05Z"), ("mine", "kept")];
    fixture.send_to("permanent", Some("a"), "permanent", &headers);
    fixture.send("a", "e-2", "named");
    fixture.send("a", "e-3", "ok");
    let inbox = fixture.start();
    fixture.database.wait_handled(1);
    assert_eq!(fixture.database.handled(), ["e-3"]);

    let letters = fixture.wait_dead_letters(2);
    let letter = &letters[0];
    assert_eq!((letter.key.as_deref(), letter.value.as_deref()), (Some("a"), Some("permanent")));
    for (name, value) in [
        ("id", "e-1"),
        ("mine", "kept"),
        ("dlq-event-id", "e-1"),
        ("dlq-original-topic", "permanent"),
        ("dlq-error-class", "consumer.permanent"),
        ("dlq-error-msg", "it never passes"),
        ("dlq-attempts", "1"),
        ("dlq-lsn", "0/10"),
        ("dlq-commit-ts", "2026-01-02T03:04:05Z"),
    ] {
        assert_eq!(letter.header(name), value, "{name}");
    }
    assert!(letter.header("dlq-relay").starts_with("permanent@"));
    assert_eq!(letters[1].header("dlq-error-class"), "billing.closed");
    inbox.wait_counted("consumer_dlq_published_total", "", 2.0);
    assert_eq!(inbox.counted("consumer_retries_total", ""), 0.0);
    fixture.wait_committed(3);
    inbox.stop();
}

#[test]
fn an_exhausted_message_is_dead_lettered_after_the_last_level_and_a_replay_is_handled() {
    // GIVEN a message that fails four times, and one behind it
    let fixture = Fixture::new("exhausted");
    fixture.send("a", "e-1", "fail 4");
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
        ("dlq-original-topic", "exhausted"),
        ("x-retry-count", ""),
        ("x-original-topic", ""),
    ] {
        assert_eq!(letter.header(name), value, "{name}");
    }
    assert!(letter.header("dlq-first-failed-at") < letter.header("dlq-failed-at"));
    assert_eq!(fixture.database.deferred(), 0);
    // WHEN it is replayed, as `walrelay dlq replay` does
    let headers = [("id", "e-1"), ("dlq-replay-count", "1"), ("dlq-replay-for", "exhausted")];
    fixture.send_to("exhausted", Some("a"), "ok", &headers);
    // THEN it is handled
    fixture.database.wait_handled(2);
    inbox.stop();
}

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
    let began = Instant::now();
    inbox.stop();
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert_eq!(fixture.committed(), 0);
}

#[test]
fn the_original_is_acknowledged_only_after_its_copy_is_confirmed() {
    // GIVEN a consumer whose retry topics do not exist
    let brokers = shared_kafka().bootstrap();
    let fixture = Fixture::bare("unconfirmed", shared_postgres(), &brokers);
    fixture.database.execute(include_str!("../../sql/inbox.sql"));
    fixture.send("a", "e-1", "fail 1");
    fixture.flush();
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
        let headers = [("id", "e-2"), ("x-retry-copy", number), ("x-retry-count", number)];
        fixture.send_to("copies.retry.300ms", Some("b"), "ok", &headers);
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
    let inbox = Inbox::new(settings(), source(&fixture.brokers, "clock"));
    runtime(1).block_on(inbox.init()).unwrap();
    let copies = 20;
    for number in 0..copies {
        let (id, due) = (format!("e-{number:02}"), u64::MAX.to_string());
        fixture.database.execute(&format!(
            "INSERT INTO deferred_messages (consumer, message_id, message_key, level, copy)
             VALUES ('clock', '{id}', 'a', 1, 1)"
        ));
        let headers = [("id", id.as_str()), ("x-retry-copy", "1"), ("x-retry-due", due.as_str())];
        fixture.send_to("clock.retry.2s", Some("a"), "ok", &headers);
    }
    fixture.flush();
    // WHEN they are read THEN they wait together, and not one after another
    let inbox = fixture.start_with(settings(), &Calls::new());
    fixture.database.wait_handled(copies);
    inbox.stop();
}

#[test]
fn retry_headers_of_others_are_not_believed() {
    // GIVEN messages that somebody else has marked as retried
    let fixture = Fixture::new("k_forged");
    let forged = [("x-retry-copy", "-1"), ("x-retry-count", "9"), ("x-original-topic", "payments")];
    fixture.send_to("k_forged", Some("a"), "fail 1", &[&[("id", "e-1")][..], &forged].concat());
    fixture.send_to("k_forged", Some("b"), "permanent", &[&[("id", "e-2")][..], &forged].concat());
    fixture.flush();
    // WHEN they fail THEN they are tried as often as others, and come from where they came
    let inbox = fixture.start();
    fixture.database.wait_handled(1);
    assert_eq!(inbox.calls.of("e-1").len(), 2);
    inbox.wait_counted("consumer_retries_total", "300ms", 1.0);
    let letter = &fixture.wait_dead_letters(1)[0];
    assert_eq!(letter.header("dlq-event-id"), "e-2");
    assert_eq!(letter.header("dlq-original-topic"), "k_forged");
    inbox.stop();
}
