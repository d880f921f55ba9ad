//! Where the login may not publish.

use super::*;

fn write_refused(exchange: &str) -> String {
    format!(
        "ACCESS_REFUSED - write access to exchange '{exchange}' in vhost '/' refused for user 'u'"
    )
}

/// Gives the same answer to each question, until no other one is asked.
fn answer_questions(fixture: &mut Fixture, existence: Existence) {
    while fixture.publisher.exchanges.asked_at().is_some() {
        fixture.handle(AmqpEvent::ExchangeAnswered(Ok(existence)));
    }
}

/// Confirms a message on channel 2.
fn confirm_on_second(fixture: &mut Fixture, tag: u64) {
    let confirm = Answer::Confirm { tag, multiple: false, acked: true };
    fixture.handle(AmqpEvent::Answers(vec![(2, confirm)]));
}

/// Sends a message to another queue on channel 2, and confirms it as the first there.
fn send_other(fixture: &mut Fixture, sequence: Sequence) {
    fixture.publisher.publish(sequence, empty_message("e", "other", &sequence.to_string()));
    fixture.advance();
    assert_eq!(fixture.sent(), [sequence.to_string()]);
    confirm_on_second(fixture, 1);
}

#[test]
fn a_doubtful_event_is_sent_now_and_then_while_something_is_unanswered() {
    let mut fixture = Fixture::new();
    fixture.connect(&[CHANNEL, 2], 2);
    fixture.publish(&[1]);
    fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
    assert_eq!(fixture.sent(), ["1"]);
    fixture.publisher.refusals.add_missing("x", fixture.now);
    fixture.now += 5 * SECOND;
    // GIVEN an event for a place that was refused a while ago, and one whose queue is silent
    fixture.publisher.unconfirmed.unanswered(1);
    send_other(&mut fixture, 8);
    fixture.publisher.publish(2, empty_message("x", "k", "2"));
    fixture.advance();
    assert!(fixture.sent().is_empty());
    // WHEN the broker is asked for nothing else any more THEN it is sent, alone
    fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
    fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::Hidden)));
    assert_eq!(fixture.sent(), ["2"]);
    assert!(fixture.publisher.unconfirmed.is_suspect(2));
    let reports = fixture.close(404, "NOT_FOUND - no exchange 'x' in vhost '/'");
    assert_eq!(failed(&reports), [(2, fault::NO_EXCHANGE, Disposition::Transient)]);
    fixture.pass(SECOND);
    fixture.connect(&[CHANNEL, 2], 2);
    fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
    assert_eq!(fixture.sent(), ["1"]);
    // WHEN another follows within a while THEN it fails without being sent, and without an attempt
    let tried_at = fixture.now;
    fixture.pass(5 * SECOND);
    fixture.publisher.unconfirmed.unanswered(1);
    send_other(&mut fixture, 9);
    fixture.publisher.publish(3, empty_message("x", "k", "3"));
    fixture.advance();
    answer_questions(&mut fixture, Existence::Hidden);
    let reports = fixture.publisher.reports();
    assert_eq!(failed(&reports), [(3, fault::NO_EXCHANGE, Disposition::Delayed)]);
    assert!(fixture.sent().is_empty());
    // WHEN that is over THEN the next is sent
    fixture.now = tried_at + DOUBTFUL_BESIDE_UNANSWERED_EVERY;
    fixture.publisher.retry(3);
    fixture.advance();
    answer_questions(&mut fixture, Existence::Hidden);
    assert_eq!(fixture.sent(), ["3"]);
    // WHEN it is taken THEN the next need not wait for so long
    confirm_on_second(&mut fixture, 2);
    fixture.publisher.refusals.add_missing("y", tried_at);
    fixture.publisher.publish(4, empty_message("y", "k", "4"));
    fixture.advance();
    answer_questions(&mut fixture, Existence::Hidden);
    assert_eq!(fixture.sent(), ["4"]);
}

#[test]
fn a_place_that_is_refused_fails_at_once_and_is_tried_alone_later() {
    let mut fixture = Fixture::connected();
    fixture.publish(&[1]);
    assert_eq!(fixture.sent(), ["1"]);
    let reports = fixture.close(403, &write_refused("e"));
    let class = "rabbitmq.access-refused";
    assert_eq!((failed(&reports), reports.len()), (vec![(1, class, Disposition::Transient)], 1));
    fixture.now = fixture.publisher.wake_at().unwrap();
    fixture.advance();
    fixture.connect(&[CHANNEL], 1);
    fixture.publish(&[2]);
    assert_eq!(failed(&fixture.publisher.reports()), [(2, class, Disposition::Transient)]);
    // WHEN a while has passed THEN one is sent, alone
    fixture.pass(SECOND);
    fixture.publish(&[3, 4]);
    fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
    assert_eq!(fixture.sent(), ["3"]);
    // WHEN it is taken THEN the place is good again
    fixture.confirm(1);
    assert_eq!(fixture.sent(), ["4"]);
    assert!(!fixture.publisher.unconfirmed.is_suspect(4));
}

#[test]
fn what_may_end_the_connection_does_not_wait_for_others_for_ever() {
    // GIVEN on a new connection an event for a place that was refused a while ago, and one for another
    let mut fixture = Fixture::connected();
    fixture.publish(&[1]);
    fixture.close(403, &write_refused("e"));
    fixture.publisher.refusals.add_missing("g", fixture.now);
    fixture.sent();
    fixture.pass(3 * SECOND);
    let message = |exchange, id: &str| empty_message(exchange, "k", id);
    fixture.publisher.publish(2, message("e", "2"));
    fixture.publisher.publish(3, message("f", "3"));
    fixture.publisher.publish(4, message("g", "4"));
    fixture.connect(&[CHANNEL], 1);
    assert_eq!(fixture.port.asked.last().map(String::as_str), Some("f"));
    fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
    // THEN the other goes first
    assert_eq!(fixture.sent(), ["3"]);
    fixture.pass(DOUBTFUL_WAITS);
    // WHEN it has waited for long THEN no others are sent before it
    fixture.publisher.publish(5, message("f", "5"));
    assert_eq!(fixture.confirm(1).last(), Some(&SinkReport::Confirmed(3)));
    answer_questions(&mut fixture, Existence::There);
    assert_eq!(fixture.sent(), ["2"]);
    // AND the next of its kind waits for as long, and no longer
    fixture.confirm(2);
    assert_eq!(fixture.sent(), ["5"]);
    fixture.pass(DOUBTFUL_WAITS);
    fixture.publisher.publish(6, message("f", "6"));
    fixture.confirm(3);
    answer_questions(&mut fixture, Existence::There);
    assert_eq!(fixture.sent(), ["4"]);
}

#[test]
fn of_several_channels_that_are_closed_at_once_each_reason_counts() {
    let mut fixture = Fixture::connected();
    fixture.publisher.publish(1, empty_message("e", "a", "1"));
    fixture.publisher.publish(2, empty_message("e", "b", "2"));
    fixture.publish(&[3]);
    let refused = |key: &str| {
        let text = format!(
            "ACCESS_REFUSED - access to topic '{key}' in exchange 'e' in vhost '/' refused for user 'u'"
        );
        ConnectionLoss::refused(403, &text)
    };
    let channels = "NOT_ALLOWED - number of channels opened for user 'u' has reached the maximum allowed user limit of (2)";
    let channels = ConnectionLoss::refused(530, channels);
    let (closes, now) = ([refused("a"), channels, refused("b"), refused("a")], fixture.now);
    for loss in closes {
        fixture.publisher.handle(AmqpEvent::Closed(loss), now);
    }
    fixture.advance();
    let class = "rabbitmq.access-refused";
    let reports = fixture.publisher.reports();
    let transient = Disposition::Transient;
    assert_eq!(failed(&reports), [(2, class, transient), (1, class, transient)]);
    assert_eq!(fixture.publisher.channels_max, 1);
    // The third is sent again.
    fixture.connect_again();
    fixture.sent();
    fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
    assert_eq!(fixture.publisher.unconfirmed.in_flight().len(), 1);
}

#[test]
fn others_go_first_on_the_connection_behind_one_that_ended_over_a_refused_place() {
    let mut fixture = Fixture::connected();
    fixture.publish(&[1, 2]);
    fixture.close(403, &write_refused("e"));
    fixture.sent();
    let connect_after = |fixture: &mut Fixture, time| {
        fixture.pass(time);
        [1, 2].into_iter().for_each(|sequence| fixture.publisher.retry(sequence));
        fixture.connect(&[CHANNEL], 1);
        answer_questions(fixture, Existence::There);
        fixture.sent()
    };
    // GIVEN a connection that has ended over the first of two events for a refused place
    assert_eq!(connect_after(&mut fixture, 2 * SECOND), ["1"]);
    fixture.advance();
    fixture.close(403, &write_refused("e"));
    // WHEN the next connection takes long to make
    fixture.publisher.publish(3, empty_message("f", "k", "3"));
    // THEN an event for another place is sent before one that may end it
    assert_eq!(connect_after(&mut fixture, 2 * DOUBTFUL_WAITS), ["3"]);
}

#[test]
fn what_may_end_the_connection_does_not_wait_for_one_that_lives_for_ever() {
    let mut fixture = Fixture::connected();
    fixture.publish(&[1]);
    fixture.close(403, &write_refused("e"));
    fixture.sent();
    fixture.now += 2 * SECOND;
    fixture.publisher.retry(1);
    let began = fixture.now;
    let mut tried = false;
    // WHEN each connection is ended over another exchange before it has had a while
    for number in 2..100 {
        fixture.now = fixture.publisher.wake_at().unwrap().max(fixture.now);
        fixture.advance();
        let exchange = format!("x{number}");
        let message = empty_message(&exchange, "k", &number.to_string());
        fixture.publisher.publish(number, message);
        fixture.connect(&[CHANNEL], 1);
        fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
        tried = fixture.sent().contains(&"1".to_owned());
        if tried {
            break;
        }
        fixture.close(403, &write_refused(&exchange));
    }
    // THEN the event that was refused has its turn
    assert!(tried);
    assert!(fixture.now - began >= DOUBTFUL_WAITS, "{:?}", fixture.now - began);
}

#[test]
fn of_two_places_the_one_that_was_refused_longer_ago_is_tried_first() {
    let mut fixture = Fixture::connected();
    // GIVEN two events, of which that with the higher sequence was refused first
    for (sequence, exchange) in [(2, "y"), (1, "x")] {
        let message = empty_message(exchange, "k", &sequence.to_string());
        fixture.publisher.publish(sequence, message);
        fixture.advance();
        fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::Hidden)));
        assert_eq!(fixture.sent(), [sequence.to_string()]);
        fixture.close(403, &write_refused(exchange));
        fixture.pass(SECOND / 2);
        fixture.connect(&[CHANNEL], 1);
    }
    // WHEN both are tried again
    fixture.pass(2 * SECOND);
    fixture.publisher.retry(1);
    fixture.publisher.retry(2);
    fixture.advance();
    answer_questions(&mut fixture, Existence::Hidden);
    // THEN the place that may be well again since does not wait for the other
    assert_eq!(fixture.sent(), ["2"]);
    assert_eq!(fixture.confirm(1).last(), Some(&SinkReport::Confirmed(2)));
    answer_questions(&mut fixture, Existence::Hidden);
    assert_eq!(fixture.sent(), ["1"]);
}

#[test]
fn a_place_that_answers_in_any_way_ends_no_connection_any_more() {
    let mut fixture = Fixture::connected();
    fixture.publish(&[1]);
    fixture.close(403, &write_refused("e"));
    fixture.sent();
    fixture.pass(3 * SECOND);
    fixture.connect(&[CHANNEL], 1);
    fixture.publish(&[2, 3]);
    fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
    assert_eq!(fixture.sent(), ["2"]);
    fixture.publisher.publish(4, empty_message("f", "k", "4"));
    // WHEN the broker nacks the one that was sent alone THEN the other is sent as usual
    let nack = Answer::Confirm { tag: 1, multiple: false, acked: false };
    fixture.handle(AmqpEvent::Answers(vec![(CHANNEL, nack)]));
    assert_eq!(fixture.sent(), ["3"]);
    assert!(!fixture.publisher.unconfirmed.is_suspect(3));
}

#[test]
fn a_refusal_that_names_no_place_is_that_of_the_event_that_was_sent_alone() {
    let mut fixture = Fixture::connected();
    fixture.publish(&[1, 2]);
    fixture.sent();
    assert_eq!(failed(&fixture.close(403, "ACCESS_REFUSED")), []);
    fixture.connect_again();
    assert_eq!(fixture.sent(), ["1"]);
    let reports = fixture.close(403, "ACCESS_REFUSED");
    assert_eq!(failed(&reports), [(1, "rabbitmq.access-refused", Disposition::Transient)]);
    fixture.connect_again();
    assert_eq!(fixture.sent(), ["2"]);
}

#[test]
fn behind_another_refusal_of_a_place_its_events_wait_for_those_of_others() {
    let second = (2, fault::NO_EXCHANGE, Disposition::Transient);
    for (pause, expected) in [(RECONNECT_BASE, vec![second]), (2 * SECOND, vec![])] {
        let mut fixture = Fixture::connected();
        fixture.publisher.refusals.add_missing("x", fixture.now);
        fixture.publisher.refusals.add_missing("y", fixture.now + SECOND);
        for (sequence, exchange) in [(1, "x"), (2, "x"), (3, "y")] {
            let message = empty_message(exchange, "k", &sequence.to_string());
            fixture.publisher.publish(sequence, message);
        }
        // GIVEN two events for the place that was refused first, and a close over one of them
        fixture.pass(3 * SECOND);
        answer_questions(&mut fixture, Existence::Hidden);
        assert_eq!(fixture.sent(), ["1"]);
        fixture.close(404, "NOT_FOUND - no exchange 'x' in vhost '/'");
        // THEN the other fails as long as the refusal holds, and the next place is tried
        fixture.pass(pause);
        fixture.connect(&[CHANNEL], 1);
        answer_questions(&mut fixture, Existence::Hidden);
        assert_eq!(failed(&fixture.publisher.reports()), expected, "{pause:?}");
        assert_eq!(fixture.sent(), ["3"]);
    }
}
