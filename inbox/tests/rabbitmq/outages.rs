//! RabbitMQ is short of memory, or away for a while.

use walrelay_harness::RabbitMq;

use super::fixture::Fixture;
use crate::support::{shared_postgres, until};

#[test]
fn a_copy_waits_while_the_broker_is_short_of_memory_and_everything_for_its_return() {
    let mut rabbitmq = RabbitMq::start().unwrap();
    let mut fixture = Fixture::bare("r_away", shared_postgres(), &rabbitmq.amqp_url());
    fixture.init();
    rabbitmq.sync_declarations().unwrap();
    // GIVEN messages of three lanes of which one fails, while the broker takes no messages
    fixture.send("a", "a-1", "gate");
    fixture.send("a", "a-2", "ok");
    fixture.send("c", "c-1", "fail 1");
    fixture.send("g", "g-1", "ok");
    rabbitmq.raise_memory_alarm().unwrap();
    let inbox = fixture.start();
    until("the failure is noted", || (fixture.database.deferred() == 1).then_some(()));
    // THEN what needs no copy is handled meanwhile
    fixture.database.wait_handled(1);
    assert_eq!(fixture.database.handled(), ["g-1"]);
    assert_eq!(inbox.counted("consumer_retries_total", ""), 0.0);
    // WHEN it takes messages again THEN the copy goes its way
    rabbitmq.clear_alarms().unwrap();
    inbox.wait_counted("consumer_retries_total", "", 1.0);
    fixture.database.wait_handled(2);

    // WHEN the broker is killed while a handler runs, and is back
    rabbitmq.kill9().unwrap();
    inbox.calls.open_gate();
    rabbitmq.start_again().unwrap();
    fixture.connect();
    fixture.send("c", "c-2", "fail 1");
    // THEN all is handled once, in order
    fixture.database.wait_handled(5);
    until("nothing is deferred", || (fixture.database.deferred() == 0).then_some(()));
    inbox.stop();
    assert_eq!(fixture.database.handled_of("a"), ["a-1", "a-2"]);
    assert_eq!(fixture.database.handled_of("c"), ["c-1", "c-2"]);
    assert_eq!(fixture.database.handled().len(), 5);
    fixture.assert_all_acknowledged();
}

#[test]
fn what_the_broker_finds_too_large_is_a_dead_letter_without_its_value() {
    let rabbitmq = RabbitMq::start().unwrap();
    let fixture = Fixture::bare("r_large", shared_postgres(), &rabbitmq.amqp_url());
    fixture.init();
    // GIVEN a limit that was lowered after the message had come
    fixture.send("a", "a-1", "fail 1");
    fixture.send("a", "a-2", "ok");
    rabbitmq.eval("application:set_env(rabbit, max_message_size, 5)").unwrap();
    // WHEN it fails THEN its copy is refused, and its dead letter has no value
    let inbox = fixture.start();
    fixture.database.wait_handled(1);
    let letters = fixture.wait_dead_letters(1);
    inbox.stop();
    assert_eq!(letters[0].header("dlq-error-class"), "consumer.refused-copy");
    assert_eq!((&*letters[0].value, &*letters[0].header("dlq-value-size")), ("", "6"));
    assert_eq!((fixture.database.handled(), fixture.database.deferred()), (vec!["a-2".into()], 0));
    fixture.assert_all_acknowledged();
}
