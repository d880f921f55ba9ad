//! Messages as no relay writes them.

use walrelay_harness::{RabbitMq, RabbitOptions};

use super::fixture::{Fixture, source};
use crate::support::{Calls, Running, shared_postgres};

#[test]
fn a_message_with_headers_as_large_as_a_frame_is_a_dead_letter_and_the_next_one_is_handled() {
    // GIVEN messages of one key, whose headers leave no room for those of a dead letter
    let fixture = Fixture::new("r_headers");
    let large = "x".repeat(130_000);
    let headers = [("key", "a"), ("id", "e-1"), ("x-first-failed-at", &*large)];
    fixture.send_with(&headers, "permanent");
    let half = &large[..60_000];
    let headers = [("lsn", half), ("commit_ts", half), ("dlq-replay-count", "1")];
    fixture.send_with(&[&[("key", "a"), ("id", "e-2")], &headers[..]].concat(), "permanent");
    fixture.send("a", "e-3", "ok");
    // WHEN they fail for good
    let inbox = fixture.start();
    // THEN they are dead letters, and the next of the key is handled
    fixture.database.wait_handled(1);
    let letters = fixture.wait_dead_letters(2);
    inbox.stop();
    assert_eq!(fixture.database.handled(), ["e-3"]);
    let [first, second] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!(first.header("dlq-first-failed-at"), first.header("dlq-failed-at"));
    assert_eq!((first.header("key"), &*first.value), ("a", "permanent"));
    assert_eq!((second.header("dlq-lsn"), second.header("dlq-commit-ts")), (&half[..32], ""));
    assert_eq!((second.header("lsn"), second.header("dlq-replay-count")), (half, ""));
    fixture.assert_all_acknowledged();
}

#[test]
fn a_dead_letter_fits_the_frame_that_was_agreed_on() {
    // GIVEN a message that fills its frame by a header of which a dead letter has a copy
    let fixture = Fixture::new("r_frame");
    let small_frames = source(&format!("{}?frame_max=8192", fixture.url), "r_frame");
    let large = "9".repeat(7_500);
    fixture.send_with(&[("key", "a"), ("id", "e-1"), ("lsn", &large)], "permanent");
    fixture.send("a", "e-2", "ok");
    // WHEN it is dead-lettered
    let inbox = Running::start(fixture.settings(), small_frames, &Calls::new());
    fixture.database.wait_handled(1);
    let letters = fixture.wait_dead_letters(1);
    inbox.stop();
    // THEN it says what it had no room for
    letters[0].assert_headers(&[
        ("dlq-lsn", &large[..32]),
        ("dlq-headers-dropped", "lsn"),
        ("lsn", ""),
        ("key", "a"),
        // The properties are those of the message.
        ("id", "e-1"),
        ("type", "OrderCreated"),
        ("content-type", "application/json"),
        ("delivery-mode", "2"),
    ]);
    fixture.assert_all_acknowledged();
}

#[test]
fn a_copy_leaves_room_in_its_frame_for_what_the_broker_adds() {
    // GIVEN a broker of small frames, and a message of which a copy would fill one
    let options =
        RabbitOptions { extra_conf: "frame_max = 8192\n".to_owned(), ..Default::default() };
    let rabbitmq = RabbitMq::start_with(&options).unwrap();
    let name = "r_small_frames_and_a_name_as_long_as_that_of_a_database_can_be";
    let mut fixture = Fixture::bare(name, shared_postgres(), &rabbitmq.amqp_url());
    fixture.init();
    fixture.broker.routing_key = format!("order.{}", "c".repeat(240));
    let (large, id) = ("9".repeat(7_000), "i".repeat(250));
    fixture.send_with(&[("key", "a"), ("id", &id), ("large", &large)], "fail 1");
    fixture.send("a", "e-2", "ok");
    // WHEN it fails THEN it is a dead letter, and the next of its key is handled
    let inbox = fixture.start();
    fixture.database.wait_handled(1);
    let letters = fixture.wait_dead_letters(1);
    inbox.stop();
    assert_eq!(letters[0].header("dlq-error-class"), "consumer.refused-copy");
    assert!(letters[0].header("dlq-error-msg").contains("8192"));
    assert_eq!(fixture.database.handled(), ["e-2"]);
    fixture.assert_all_acknowledged();
}
