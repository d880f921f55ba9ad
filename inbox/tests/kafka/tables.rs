//! Tests of rows in the consumer's tables that came late or are gone.

use std::time::Duration;

use super::fixture::{Fixture, shared_kafka};
use crate::support::{Calls, Database, runtime, settings, shared_postgres, until};

#[test]
fn a_row_that_comes_too_late_holds_no_key() {
    // GIVEN an instance that has claimed a message, and another that gets it again and waits
    let fixture = Fixture::new("lost");
    let other = Database::open(&fixture.database.url);
    other.execute(
        "BEGIN; INSERT INTO processed_messages (consumer, message_id) VALUES ('lost', 'e-1')",
    );
    fixture.send("a", "e-1", "gate");
    let inbox = fixture.start();
    let waits = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    until("the second waits", || (fixture.database.number(waits) > 0).then_some(()));
    // WHEN the first fails, and writes that the message is deferred while the second handles it
    other.execute("ROLLBACK");
    until("the second handles it", || (inbox.calls.all().len() == 1).then_some(()));
    other.execute(
        "INSERT INTO deferred_messages (consumer, message_id, message_key, level, attempts)
         VALUES ('lost', 'e-1', 'a', 1, 1)",
    );
    inbox.calls.open_gate();
    fixture.database.wait_handled(1);
    // THEN later messages of the key are handled
    fixture.send("a", "e-2", "ok");
    fixture.database.wait_handled(2);
    inbox.stop();
    assert_eq!(fixture.database.handled_of("a"), ["e-1", "e-2"]);
    // WHEN the message is forgotten THEN so is the late row
    let settings = fixture.settings().retention(Duration::ZERO);
    let settings = settings.retention_batches(Duration::from_millis(50), 1_000);
    let inbox = fixture.start_with(settings, &Calls::new());
    until("it is gone", || (fixture.database.deferred() == 0).then_some(()));
    inbox.stop();
}

#[test]
fn tables_that_exist_are_not_waited_for() {
    // GIVEN a handler that runs
    let fixture = Fixture::new("busy");
    let other = Database::open(&fixture.database.url);
    other.execute("BEGIN; INSERT INTO processed_messages (consumer, message_id) VALUES ('x', 'y')");
    // WHEN another instance starts THEN it needs no lock that the handler keeps from it
    let url = format!("{}?options=-c%20lock_timeout%3D500ms", fixture.database.url);
    fixture.init_with(settings("busy", &url));
}

#[test]
fn instances_that_start_first_at_once_make_the_tables_together() {
    let fixture = Fixture::bare("firsts", shared_postgres(), &shared_kafka().bootstrap());
    let runtime = runtime(2);
    let inits = (0..8).map(|_| {
        let inbox = fixture.inbox(fixture.settings());
        runtime.spawn(async move { inbox.init().await })
    });
    let inits: Vec<_> = inits.collect();
    for init in inits {
        runtime.block_on(init).unwrap().unwrap();
    }
}

#[test]
fn a_dead_letter_is_handled_again_only_when_it_is_replayed() {
    // GIVEN a dead letter, and what its key went on with
    let fixture = Fixture::new("dead");
    fixture.send("a", "e-1", "permanent");
    fixture.send("a", "e-2", "ok");
    let inbox = fixture.start();
    fixture.database.wait_handled(1);
    fixture.wait_dead_letters(1);
    // WHEN the original comes again, as after a lost offset
    fixture.send("a", "e-1", "permanent");
    fixture.send("a", "e-3", "ok");
    fixture.database.wait_handled(2);
    // THEN it is acknowledged
    assert_eq!(inbox.counted("consumer_messages_total", "duplicate"), 1.0);
    assert_eq!(inbox.calls.of("e-1").len(), 1);
    // WHEN it is replayed, and fails once more and for good THEN there is a second letter
    let replay = |count, value| {
        let own = [("dlq-replay-count", count), ("dlq-replay-for", "dead")];
        fixture.send_with(&[[("key", "a"), ("id", "e-1")], own].concat(), value);
    };
    replay("1", "permanent");
    assert_eq!(fixture.wait_dead_letters(2).len(), 2);
    replay("1", "ok");
    inbox.wait_counted("consumer_messages_total", "duplicate", 2.0);
    assert_eq!(inbox.calls.of("e-1").len(), 2);
    // WHEN that is replayed, and has to wait for a retry THEN it is handled, once
    replay("2", "fail 1");
    fixture.database.wait_handled(3);
    replay("2", "ok");
    inbox.wait_counted("consumer_messages_total", "duplicate", 3.0);
    assert_eq!(inbox.calls.of("e-1").len(), 4);
    assert_eq!(fixture.database.handled(), ["e-2", "e-3", "e-1"]);
    assert_eq!(fixture.database.deferred(), 0);
    inbox.stop();
}

#[test]
fn a_replay_for_another_consumer_is_acknowledged_and_what_looks_like_one_is_handled() {
    // GIVEN a replay for another consumer, and events that look like replays, and are none
    let fixture = Fixture::new("k_unplayed");
    let send = |id, value, forged: &[(&str, &str)]| {
        fixture.send_with(&[&[("key", "a"), ("id", id)], forged].concat(), value);
    };
    send("e-0", "ok", &[("dlq-replay-for", "another"), ("dlq-replay-count", "1")]);
    send("e-1", "ok", &[("dlq-replay-for", "another")]);
    send("e-2", "ok", &[("dlq-replay-for", "another"), ("dlq-replay-count", "0")]);
    send("e-3", "ok", &[("dlq-replay-for", "an other"), ("dlq-replay-count", "1")]);
    send("e-4", "permanent", &[("dlq-replay-count", "2147483647")]);
    // WHEN they are read THEN all but the replay are handled
    let inbox = fixture.start();
    fixture.database.wait_handled(3);
    assert_eq!(fixture.database.handled(), ["e-1", "e-2", "e-3"]);
    assert_eq!(inbox.counted("consumer_messages_total", "duplicate"), 1.0);
    // and what is a dead letter can be replayed
    assert_eq!(fixture.wait_dead_letters(1)[0].header("dlq-replay-count"), "");
    send("e-4", "ok", &[("dlq-replay-count", "1"), ("dlq-replay-for", "k_unplayed")]);
    fixture.database.wait_handled(4);
    inbox.stop();
}
