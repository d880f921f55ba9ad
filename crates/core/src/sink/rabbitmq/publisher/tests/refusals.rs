//! Where the login may not publish.

use super::*;

#[test]
fn a_doubtful_event_fails_without_being_sent_while_something_is_unanswered() {
    let mut fixture = Fixture::connected();
    fixture.publish(&[1]);
    assert_eq!(fixture.sent(), ["1"]);
    fixture.publisher.refusals.add_missing("x", fixture.now);
    fixture.now += 5 * SECOND;
    // GIVEN an event for a place that was refused a while ago, and one whose queue is silent
    fixture.publisher.unconfirmed.unanswered(1);
    fixture.publisher.take(PublishOrder::Publish(2, empty_message("x", "k", "2")));
    fixture.advance();
    let reports = fixture.publisher.reports();
    assert_eq!(failed(&reports), [(2, fault::NO_EXCHANGE, Disposition::Transient)]);
    assert!(fixture.sent().is_empty());
}

#[test]
fn a_place_that_is_refused_fails_at_once_and_is_tried_alone_later() {
    let mut fixture = Fixture::connected();
    fixture.publish(&[1]);
    assert_eq!(fixture.sent(), ["1"]);
    let text = "ACCESS_REFUSED - write access to exchange 'e' in vhost '/' refused for user 'u'";
    let reports = fixture.close(403, text);
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
    fixture.confirm(1, false);
    assert_eq!(fixture.sent(), ["4"]);
    assert!(!fixture.publisher.unconfirmed.is_suspect(4));
}

#[test]
fn on_a_new_connection_others_are_sent_before_what_may_end_it() {
    let mut fixture = Fixture::connected();
    fixture.publish(&[1]);
    let text = "ACCESS_REFUSED - write access to exchange 'e' in vhost '/' refused for user 'u'";
    fixture.close(403, text);
    // WHEN the connection comes later than the refusal holds
    fixture.pass(3 * SECOND);
    fixture.connect(&[CHANNEL], 1);
    fixture.publish(&[2]);
    let other = PublishOrder::Publish(3, empty_message("f", "k", "3"));
    fixture.publisher.take(other);
    fixture.advance();
    // THEN only what was not refused is sent
    assert_eq!(fixture.port.asked.last().map(String::as_str), Some("f"));
    fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
    assert_eq!(fixture.sent().last().map(String::as_str), Some("3"));
    assert_eq!(fixture.confirm(1, false).last(), Some(&SinkReport::Confirmed(3)));
    // WHEN that has had a while THEN one that may be refused is sent, alone
    fixture.pass(SECOND);
    fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
    assert_eq!(fixture.sent(), ["2"]);
    assert!(fixture.publisher.unconfirmed.is_suspect(2));
}

#[test]
fn what_may_end_the_connection_does_not_wait_for_one_that_lives_for_ever() {
    let mut fixture = Fixture::connected();
    fixture.publish(&[1]);
    let refused = |exchange: &str| {
        format!(
            "ACCESS_REFUSED - write access to exchange '{exchange}' in vhost '/' refused for user 'u'"
        )
    };
    fixture.close(403, &refused("e"));
    fixture.sent();
    fixture.now += 2 * SECOND;
    fixture.publisher.take(PublishOrder::Retry(1));
    let began = fixture.now;
    let mut tried = false;
    // WHEN each connection is ended over another exchange before it has had a while
    for number in 2..100 {
        fixture.now = fixture.publisher.wake_at().unwrap().max(fixture.now);
        fixture.advance();
        fixture.connect(&[CHANNEL], 1);
        let exchange = format!("x{number}");
        let message = empty_message(&exchange, "k", &number.to_string());
        fixture.publisher.take(PublishOrder::Publish(number, message));
        fixture.advance();
        fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
        tried = fixture.sent().contains(&"1".to_owned());
        if tried {
            break;
        }
        fixture.close(403, &refused(&exchange));
    }
    // THEN the event that was refused has its turn
    assert!(tried);
    assert!(fixture.now - began >= DOUBTFUL_WAITS, "{:?}", fixture.now - began);
}
