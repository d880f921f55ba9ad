//! RabbitMQ is short of memory, away for a while, or sends what cannot be read.

use walrelay_harness::RabbitMq;

use super::fixture::{Fixture, shared_rabbitmq};
use crate::support::{shared_postgres, until};

/// A header's name that is not UTF-8, in a message to the exchange `r_unreadable.events`. The second
/// way is that of RabbitMQ 4.
const PUBLISH_UNREADABLE: &str = r#"
    Exchange = rabbit_misc:r(<<"/">>, exchange, <<"r_unreadable.events">>),
    Properties = [{headers, [{<<255>>, longstr, <<"x">>}]}],
    case erlang:function_exported(rabbit_basic, publish, 4) of
        true -> rabbit_basic:publish(Exchange, <<"order.created">>, Properties, <<"body">>);
        false ->
            Content = rabbit_basic:build_content(rabbit_basic:properties(Properties), <<"body">>),
            {ok, Message} = mc_amqpl:message(Exchange, <<"order.created">>, Content),
            ok = rabbit_queue_type:publish_at_most_once(Exchange, Message)
    end"#;

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
    inbox.wait_held("broker", 1.0);
    assert_eq!(inbox.counted("consumer_retries_total", ""), 0.0);
    // WHEN it takes messages again THEN the copy goes its way
    rabbitmq.clear_alarms().unwrap();
    inbox.wait_counted("consumer_retries_total", "", 1.0);
    fixture.database.wait_handled(2);

    // WHEN the broker is killed while a handler runs, and is back
    rabbitmq.kill9().unwrap();
    inbox.calls.open_gate();
    rabbitmq.start_again().unwrap();
    fixture.broker.connect();
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
    // RabbitMQ 4 reads the term, and earlier versions the setting.
    let limit = "application:set_env(rabbit, max_message_size, 5), persistent_term:put(max_message_size, 5)";
    rabbitmq.eval(limit).unwrap();
    // WHEN it fails THEN its copy is refused, and its dead letter has no value
    let inbox = fixture.start();
    fixture.database.wait_handled(1);
    let letters = fixture.wait_dead_letters(1);
    inbox.stop();
    assert_eq!(letters[0].header("dlq-error-class"), "consumer.refused-copy");
    assert_eq!((&*letters[0].value, letters[0].header("dlq-value-size")), ("", "6"));
    assert_eq!((fixture.database.handled(), fixture.database.deferred()), (vec!["a-2".into()], 0));
    fixture.assert_all_acknowledged();
}

#[test]
fn a_message_that_cannot_be_read_ends_the_inbox_with_what_to_do() {
    // GIVEN a message with a header whose name is not UTF-8, between others
    let fixture = Fixture::new("r_unreadable");
    fixture.send("a", "e-1", "ok");
    fixture.send("a", "e-2", "ok");
    shared_rabbitmq().eval(PUBLISH_UNREADABLE).unwrap();
    until("it is there", || (fixture.ready() == 3).then_some(()));
    fixture.send("a", "e-3", "ok");
    // WHEN the queue is read
    let error = fixture.run_error();
    // THEN what is before it is handled and acknowledged, and the error says how to go on
    assert!(error.contains("-q r_unreadable -p 1 -c 1 cat"), "{error}");
    let handled = fixture.database.handled();
    assert_eq!(handled[..2], ["e-1", "e-2"]);
    // The broker may send what was sent ahead before, and stood behind it, first.
    let left = u32::try_from(4 - handled.len()).unwrap();
    until("the others are left", || (fixture.ready() == left).then_some(()));
}
