//! Tests of the outcome of one delivery.

use super::fixture::{Fixture, shared_kafka};
use crate::support::{Calls, Database, HANDLED, settings, shared_postgres, until};

#[test]
fn two_consumers_of_one_topic_and_one_database_do_not_mix() {
    let fixture = Fixture::new("pair");
    let other = settings("pair-two", &fixture.database.url).levels([]);
    fixture.send("a", "e-1", "ok");
    let (one, two) = (fixture.start(), fixture.start_with(other, &Calls::new()));
    fixture.database.wait_handled(2);
    assert_eq!((one.calls.all().len(), two.calls.all().len()), (1, 1));
    one.stop();
    two.stop();
}

#[test]
fn what_a_failed_handler_wrote_is_gone_also_when_it_hides_the_error() {
    // GIVEN handlers that fail, panic, or go on after a failed statement, each after its row, and
    // some that panic outside of it
    let fixture = Fixture::new("failing");
    for (key, id, value) in [
        ("a", "e-1", "fail 1"),
        ("b", "e-2", "panic 1"),
        ("c", "e-3", "swallow 1"),
        ("d", "e-4", "judge 1"),
        ("e", "e-5", "early 1"),
    ] {
        fixture.send(key, id, value);
    }
    // WHEN they have run, and once more after their retry level
    let inbox = fixture.start();
    fixture.database.wait_handled(5);
    // THEN each message has one row, and two calls
    let mut handled = fixture.database.handled();
    handled.sort();
    assert_eq!(handled, ["e-1", "e-2", "e-3", "e-4", "e-5"]);
    for id in ["e-1", "e-2", "e-3", "e-4"] {
        assert_eq!(inbox.calls.of(id).len(), 2, "{id}");
    }
    inbox.wait_counted("consumer_retries_total", "", 5.0);
    until("nothing is deferred", || (fixture.database.deferred() == 0).then_some(()));
    fixture.wait_committed(5);
    inbox.stop();
}

#[test]
fn an_id_that_the_database_cannot_store_is_dead_lettered() {
    // GIVEN a database whose encoding does not know all characters
    let postgres = shared_postgres();
    let mut fixture = Fixture::bare("latin", postgres, &shared_kafka().bootstrap());
    let latin = "CREATE DATABASE latin_1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0";
    postgres.sql("postgres", latin).unwrap();
    fixture.database = Database::open(&postgres.url("latin_1"));
    fixture.database.execute(HANDLED);
    fixture.init();
    // WHEN an id has one of the others THEN it is a dead letter, and its key goes on
    fixture.send("a", "e-\u{20ac}", "ok");
    fixture.send("a", "e-2", "ok");
    let inbox = fixture.start();
    fixture.database.wait_handled(1);
    let letters = fixture.wait_dead_letters(1);
    assert_eq!(letters[0].header("dlq-error-class"), "consumer.no-id");
    assert!(letters[0].header("dlq-error-msg").contains("LATIN1"), "{letters:?}");
    fixture.wait_committed(2);
    inbox.stop();
}

#[test]
fn a_backlog_of_one_partition_does_not_hold_up_the_others() {
    // GIVEN one lane, a backlog of one partition, and later a message of each key
    let fixture = Fixture::new("fair");
    let (backlog, keys) = (300, 12);
    (0..backlog).for_each(|number| fixture.send("a", &format!("a-{number:03}"), "slow 2"));
    (0..keys).for_each(|key| fixture.send(&format!("k{key}"), &format!("k-{key}"), "ok"));
    fixture.broker.flush();
    // WHEN they are handled
    let settings = fixture.settings().lanes(1).lane_messages_max(1);
    let inbox = fixture.start_with(settings, &Calls::new());
    fixture.database.wait_handled(backlog + keys);
    inbox.stop();
    // THEN those of other partitions come before the backlog is done
    let handled = fixture.database.handled();
    let early = handled[..backlog / 2].iter().filter(|id| id.starts_with('k')).count();
    assert!(early >= keys / 2, "{early} of {keys}: {handled:?}");
}

#[test]
fn an_inbox_without_its_tables_says_so() {
    let fixture = Fixture::bare("bare", shared_postgres(), &shared_kafka().bootstrap());
    let error = fixture.run_error();
    assert!(error.contains("call Inbox::init") && error.contains("_messages"), "{error}");
}
