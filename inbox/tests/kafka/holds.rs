//! Failures that no message has caused: a lane is held, and nothing becomes a dead letter.

use std::time::Duration;

use walrelay_harness::consumer::{alter_topic, create_replicated_topic, create_topic, leaders};

use super::fixture::{Fixture, PARTITIONS, shared_kafka, start_kafka};
use crate::support::{Calls, Database, shared_postgres, until};

#[test]
fn a_forgotten_migration_holds_the_lanes_and_counts_for_no_message() {
    // GIVEN a handler whose table is missing
    let fixture = Fixture::new("migration");
    fixture.database.execute("ALTER TABLE handled RENAME TO handled_later");
    fixture.send("a", "a-1", "fail 1");
    fixture.send("a", "a-2", "ok");
    fixture.send("c", "c-1", "ok");
    fixture.broker.flush();
    // WHEN messages come
    let inbox = fixture.start();
    inbox.wait_held("handler", 2.0);
    until("it is tried again", || (inbox.calls.of("a-1").len() > 1).then_some(()));
    // THEN nothing is settled, and nothing counted
    assert_eq!(inbox.counted("consumer_messages_total", ""), 0.0);
    assert_eq!((fixture.database.deferred(), fixture.committed()), (0, 0));
    // WHEN the migration comes THEN all is handled, and what fails by itself fails for the first time
    fixture.database.execute("ALTER TABLE handled_later RENAME TO handled");
    fixture.database.wait_handled(3);
    assert_eq!(fixture.database.handled_of("a"), ["a-1", "a-2"]);
    inbox.wait_counted("consumer_retries_total", "300ms", 1.0);
    inbox.wait_held("handler", 0.0);
    inbox.stop();
    assert!(fixture.dead_letters().is_empty());
}

#[test]
fn a_dependency_that_is_away_makes_no_more_dead_letters_than_the_burst() {
    // GIVEN messages that all fail, and have no retry level left
    let fixture = Fixture::new("breaker");
    let (messages, burst) = (30, 5);
    for number in 0..messages {
        fixture.send(&format!("k{}", number % 6), &format!("e-{number:02}"), "down");
    }
    fixture.broker.flush();
    let calls = Calls::new();
    calls.set_dependency_away(true);
    let settings = fixture.settings().levels([]);
    let settings = settings.dead_letter_burst(burst, Duration::from_secs(60));
    // WHEN they are read
    let inbox = fixture.start_with(settings, &calls);
    inbox.wait_held("breaker", 3.0);
    // THEN the burst is dead, and all lanes are held
    assert_eq!(fixture.dead_letters().len(), burst);
    // WHEN the dependency is back THEN all others are handled
    calls.set_dependency_away(false);
    fixture.database.wait_handled(messages - burst);
    inbox.wait_held("breaker", 0.0);
    inbox.stop();
    assert_eq!(fixture.dead_letters().len(), burst);
    assert_eq!(fixture.database.handled().len(), messages - burst);
    fixture.wait_committed(messages as i64);
}

#[test]
fn a_refused_copy_counts_one_attempt_however_long_the_breaker_holds_it() {
    // GIVEN retry topics that take no copy, and a breaker that opens after one dead letter
    for level in ["300ms", "600ms", "1s"] {
        let (brokers, topic) = (shared_kafka().bootstrap(), format!("uncounted.retry.{level}"));
        create_topic(&brokers, &topic, PARTITIONS, &[("max.message.bytes", "50")]).unwrap();
    }
    let fixture = Fixture::new("uncounted");
    fixture.send("a", "a-1", "permanent");
    fixture.send("a", "a-2", "down");
    let calls = Calls::new();
    calls.set_dependency_away(true);
    let settings = fixture.settings().dead_letter_burst(1, Duration::from_secs(60));
    let inbox = fixture.start_with(settings, &calls);
    // WHEN the message is tried more often than there are levels
    until("it is tried again", || (calls.of("a-2").len() > 4).then_some(()));
    // THEN it has failed once
    let attempts = "SELECT attempts::bigint FROM deferred_messages WHERE message_id = 'a-2'";
    assert_eq!(fixture.database.number(attempts), 1);
    // WHEN it succeeds THEN nothing is left of it
    calls.set_dependency_away(false);
    fixture.database.wait_handled(1);
    until("nothing is deferred", || (fixture.database.deferred() == 0).then_some(()));
    inbox.stop();
    assert_eq!(fixture.dead_letters().len(), 1);
}

#[test]
fn a_lane_whose_copy_the_broker_does_not_confirm_is_held() {
    // GIVEN a retry topic that must have two replicas and has lost one
    let kafka = start_kafka();
    let (brokers, topic) = (kafka.bootstrap(), "unsynced.retry.300ms");
    let second = kafka.start_second().unwrap();
    create_replicated_topic(&brokers, topic, (1, 2), &[("min.insync.replicas", "2")]).unwrap();
    drop(second);
    until("the loss", || (leaders(&brokers, topic).unwrap()[0].1 == 1).then_some(()));
    let fixture = Fixture::bare("unsynced", shared_postgres(), &brokers);
    fixture.init();
    fixture.send("a", "a-1", "fail 1");
    fixture.send("c", "c-1", "ok");
    // WHEN a message fails THEN its lane is held, and others go on
    let inbox = fixture.start();
    fixture.database.wait_handled(1);
    inbox.wait_held("broker", 1.0);
    assert_eq!(inbox.counted("consumer_retries_total", ""), 0.0);
    // WHEN the copy can be confirmed THEN the message is handled
    alter_topic(&brokers, topic, "min.insync.replicas", "1").unwrap();
    fixture.database.wait_handled(2);
    inbox.wait_held("broker", 0.0);
    inbox.stop();
}

#[test]
fn a_conflict_of_transactions_is_repeated_at_once_and_three_times() {
    // GIVEN handlers that lose against other transactions, one of them at the commit
    let fixture = Fixture::new("conflict");
    fixture.database.execute(
        "CREATE SEQUENCE conflicts;
         CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF nextval('conflicts') <= 3 THEN
                 RAISE EXCEPTION 'at the commit' USING ERRCODE = '40001';
             END IF;
             RETURN NULL;
         END $$;
         CREATE CONSTRAINT TRIGGER conflict AFTER INSERT ON handled
             DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW WHEN (new.message_id = 'c-1') EXECUTE FUNCTION conflict()",
    );
    fixture.send("a", "a-1", "conflict 3");
    fixture.send("b", "b-1", "conflict 4");
    fixture.send("c", "c-1", "ok");
    // WHEN they are handled
    let inbox = fixture.start();
    fixture.database.wait_handled(3);
    // THEN those that lose three times need no retry level, and the other one needs one
    let calls = ["a-1", "b-1", "c-1"].map(|id| inbox.calls.of(id).len());
    assert_eq!(calls, [4, 5, 4]);
    inbox.wait_counted("consumer_retries_total", "", 1.0);
    until("nothing is deferred", || (fixture.database.deferred() == 0).then_some(()));
    inbox.stop();
}

#[test]
fn a_lane_that_waits_for_another_session_is_held_and_holds_up_no_stop() {
    // GIVEN a message that another session has claimed, and does not finish
    let fixture = Fixture::new("k_claimed");
    let other = Database::open(&fixture.database.url);
    let claim = "INSERT INTO processed_messages (consumer, message_id) VALUES ('k_claimed', 'a-1')";
    other.execute(&format!("BEGIN; {claim}"));
    fixture.send("a", "a-1", "ok");
    fixture.send("c", "c-1", "ok");
    let inbox = fixture.start();
    fixture.database.wait_handled(1);
    // THEN somebody can see that the lane stands
    inbox.wait_held("postgres", 1.0);
    // WHEN the inbox stops meanwhile THEN it does so soon
    inbox.stop_soon();
    // WHEN the other session fails THEN the message is handled, once
    other.execute("ROLLBACK");
    let inbox = fixture.start();
    fixture.database.wait_handled(2);
    assert_eq!(fixture.database.handled(), ["c-1", "a-1"]);
    inbox.stop();
}

#[test]
fn a_lane_whose_commit_takes_long_is_held_until_its_outcome_is_known() {
    // GIVEN a commit that waits for somebody
    let fixture = Fixture::new("k_commit");
    fixture.database.execute(
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             PERFORM pg_advisory_xact_lock(1);
             RETURN NULL;
         END $$;
         CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON handled
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait()",
    );
    let other = Database::open(&fixture.database.url);
    other.execute("BEGIN; SELECT pg_advisory_xact_lock(1)");
    fixture.send("a", "a-1", "ok");
    // WHEN a message is handled THEN somebody can see that its lane stands
    let inbox = fixture.start();
    inbox.wait_held("postgres", 1.0);
    assert_eq!(inbox.counted("consumer_messages_total", ""), 0.0);
    // WHEN the inbox stops, and the commit ends meanwhile THEN the message is acknowledged
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(500));
            other.execute("COMMIT");
        });
        inbox.stop();
    });
    assert_eq!((fixture.database.handled().len(), fixture.committed()), (1, 1));
}
