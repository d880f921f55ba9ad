//! A publisher, a port, and a clock that the test moves.

use super::patience::ANSWER_WITHIN;
use super::*;
use crate::sink::Disposition;
use crate::sink::rabbitmq::exchanges::Existence;
use crate::sink::rabbitmq::fault;
use crate::sink::rabbitmq::testing::{NotedPort, connected, empty_message};

mod refusals;

const SECOND: Duration = Duration::from_secs(1);
const CHANNEL: u16 = 1;
const TOO_LARGE: &str =
    "PRECONDITION_FAILED - message size 300 is larger than configured max size 200";

struct Fixture {
    publisher: Publisher,
    port: NotedPort,
    now: Instant,
}

impl Fixture {
    fn new() -> Fixture {
        let publisher = Publisher::new(AmqpAddress::default(), 7);
        let mut fixture = Fixture { publisher, port: NotedPort::default(), now: Instant::now() };
        fixture.advance();
        assert_eq!(fixture.port.connects, [0]);
        fixture
    }

    /// With one channel, and an exchange `e` that exists.
    fn connected() -> Fixture {
        let mut fixture = Fixture::new();
        fixture.connect(&[CHANNEL], 1);
        fixture.publish(&[0]);
        assert_eq!(fixture.port.asked, ["e"]);
        fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
        assert_eq!(fixture.sent(), ["0"]);
        assert_eq!(fixture.confirm(1), [SinkReport::Confirmed(0)]);
        fixture
    }

    fn connect(&mut self, channels: &[u16], channels_max: usize) {
        self.handle(connected(channels, channels_max));
    }

    /// As after a loss: with one channel, and `e` exists.
    fn connect_again(&mut self) {
        self.now = self.publisher.wake_at().unwrap();
        self.advance();
        self.connect(&[CHANNEL], 1);
        self.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
    }

    /// Events `e` to the same queue, each with a lane of its own.
    fn publish(&mut self, sequences: &[Sequence]) {
        for sequence in sequences {
            let message = empty_message("e", "k", &sequence.to_string());
            self.publisher.publish(*sequence, message);
        }
        self.advance();
    }

    fn advance(&mut self) {
        self.publisher.advance(self.now, &mut self.port);
        if !self.port.is_full && self.port.unwritten > 0 {
            let written = AmqpEvent::Written(std::mem::take(&mut self.port.unwritten));
            self.publisher.handle(written, self.now);
        }
    }

    fn handle(&mut self, event: AmqpEvent) {
        self.publisher.handle(event, self.now);
        self.advance();
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.advance();
    }

    fn confirm(&mut self, tag: u64) -> Vec<SinkReport> {
        let confirm = Answer::Confirm { tag, multiple: false, acked: true };
        self.handle(AmqpEvent::Answers(vec![(CHANNEL, confirm)]));
        self.publisher.reports()
    }

    fn lose(&mut self, text: &str) {
        self.handle(AmqpEvent::Closed(ConnectionLoss::of(text)));
    }

    fn close(&mut self, code: u16, text: &str) -> Vec<SinkReport> {
        self.handle(AmqpEvent::Closed(ConnectionLoss::refused(code, text)));
        self.publisher.reports()
    }

    /// The messages that were sent since the last look.
    fn sent(&mut self) -> Vec<String> {
        self.port.sent.drain(..).map(|(_, id)| id).collect()
    }
}

/// The events that have failed, with their classes.
fn failed(reports: &[SinkReport]) -> Vec<(Sequence, &str, Disposition)> {
    let failure = |report| match report {
        &SinkReport::Failed(sequence, ref failure) => {
            Some((sequence, failure.class.as_str(), failure.disposition))
        }
        _ => None,
    };
    reports.iter().filter_map(failure).collect()
}

#[test]
fn a_broker_that_is_away_is_tried_again_and_reported_once() {
    let mut fixture = Fixture::new();
    let away = || AmqpEvent::ConnectFailed(ConnectionLoss::of("nobody is there"));
    fixture.handle(away());
    let reports = fixture.publisher.reports();
    assert!(matches!(&reports[..], [SinkReport::Unreachable(why)] if why.contains("nobody")));
    for attempt in 2..10 {
        let connect_at = fixture.publisher.wake_at().unwrap();
        assert!(connect_at <= fixture.now + RECONNECT_CAP);
        fixture.now = connect_at;
        fixture.advance();
        assert_eq!(fixture.port.connects.len(), attempt);
        // WHEN time passes meanwhile THEN one attempt is made at a time
        fixture.pass(SECOND);
        assert_eq!(fixture.publisher.wake_at(), None);
        fixture.handle(away());
        assert_eq!(fixture.publisher.reports(), []);
    }
    fixture.pass(RECONNECT_CAP);
    let refused = ConnectionLoss::refused(403, "ACCESS_REFUSED");
    fixture.handle(AmqpEvent::ConnectFailed(refused));
    assert!(matches!(&fixture.publisher.reports()[..], [SinkReport::LoginRefused(_)]));
    // WHEN it is there THEN the next attempt begins with the next host, and the first confirm says so
    fixture.pass(RECONNECT_CAP);
    fixture.connect(&[CHANNEL], 1);
    fixture.publish(&[0]);
    fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
    assert_eq!(fixture.publisher.reports(), []);
    assert_eq!(fixture.confirm(1), [SinkReport::Reachable, SinkReport::Confirmed(0)]);
    fixture.lose("gone");
    // AND the waits are short again
    assert!(fixture.publisher.wake_at().unwrap() <= fixture.now + RECONNECT_BASE);
    fixture.pass(RECONNECT_CAP);
    assert_eq!(fixture.port.connects.last(), Some(&1));
    fixture.handle(away());
    assert!(fixture.publisher.wake_at().unwrap() <= fixture.now + RECONNECT_BASE);
}

#[test]
fn all_that_was_in_flight_on_a_lost_connection_is_sent_again_at_once() {
    let mut fixture = Fixture::connected();
    for sequence in (1..20).step_by(2) {
        fixture.publish(&[sequence, sequence + 1]);
        fixture.sent();
        fixture.lose("reset");
        assert!(fixture.publisher.wake_at().unwrap() <= fixture.now + RECONNECT_BASE);
        fixture.connect_again();
        assert_eq!(fixture.sent(), [sequence, sequence + 1].map(|it| it.to_string()));
        fixture.confirm(1);
        fixture.confirm(2);
    }
    assert_eq!(fixture.publisher.channels_max, CHANNELS_MAX);
}

#[test]
fn answers_behind_a_close_count_no_more() {
    let confirm = |tag| {
        let confirm = Answer::Confirm { tag, multiple: false, acked: true };
        AmqpEvent::Answers(vec![(CHANNEL, confirm)])
    };
    // GIVEN a close, or an answer that makes no sense, while one of two events is written
    for end in [AmqpEvent::Closed(ConnectionLoss::of("reset")), confirm(9)] {
        let mut fixture = Fixture::connected();
        fixture.publish(&[1]);
        fixture.port.is_full = true;
        fixture.publish(&[2]);
        fixture.sent();
        for event in [end, confirm(2), AmqpEvent::Written(1)] {
            fixture.publisher.handle(event, fixture.now);
        }
        assert_eq!(fixture.publisher.reports(), []);
        fixture.advance();
        fixture.port.is_full = false;
        fixture.connect_again();
        assert_eq!(fixture.sent(), ["1", "2"]);
    }
}

#[test]
fn a_broker_that_can_never_take_a_message_stops_the_relay() {
    let loss = ConnectionLoss::refused(540, "NOT_IMPLEMENTED");
    let mut fixture = Fixture::connected();
    fixture.handle(AmqpEvent::Closed(loss.clone()));
    assert!(matches!(&fixture.publisher.reports()[..], [SinkReport::Unable(_), ..]));
    fixture.pass(RECONNECT_CAP);
    fixture.handle(AmqpEvent::ConnectFailed(loss));
    assert!(matches!(&fixture.publisher.reports()[..], [SinkReport::Unable(_), ..]));
}

#[test]
fn nothing_is_sent_to_an_exchange_before_the_broker_has_it() {
    let mut fixture = Fixture::new();
    fixture.connect(&[CHANNEL], 1);
    fixture.publish(&[0]);
    // GIVEN that its question is outstanding THEN nothing else is asked or sent
    let other = empty_message("other", "k", "1");
    fixture.publisher.publish(1, other);
    fixture.pass(SECOND);
    assert_eq!((fixture.sent().len(), &fixture.port.asked[..]), (0, &["e".to_owned()][..]));
    fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::Missing)));
    let reports = fixture.publisher.reports();
    assert_eq!(failed(&reports), [(0, fault::NO_EXCHANGE, Disposition::Transient)]);
    assert_eq!(fixture.port.asked, ["e", "other"]);
    fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
    assert_eq!(fixture.sent(), ["1"]);
    // WHEN the event is tried again THEN the broker is asked again
    fixture.publisher.retry(0);
    fixture.advance();
    assert_eq!(fixture.port.asked, ["e", "other", "e"]);
    fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::Hidden)));
    // THEN it is sent once the message for the other destination has left the channel
    assert!(fixture.sent().is_empty());
    assert_eq!(fixture.confirm(1), [SinkReport::Confirmed(1)]);
    assert_eq!(fixture.sent(), ["0"]);
    // WHEN a question fails THEN the connection is given up
    fixture.pass(3 * SECOND);
    assert_eq!(fixture.port.asked.last().map(String::as_str), Some(""));
    fixture.handle(AmqpEvent::ExchangeAnswered(Err(ConnectionLoss::of("gone"))));
    assert_eq!(fixture.port.disconnects, 1);
}

#[test]
fn a_broker_that_answers_neither_publish_nor_question_is_reported() {
    let mut fixture = Fixture::connected();
    fixture.publish(&[1]);
    let asked = fixture.port.asked.len();
    (0..3).for_each(|_| fixture.pass(SECOND));
    // GIVEN a publish without an answer THEN something is asked, once
    assert_eq!(&fixture.port.asked[asked..], [""]);
    let destination = "routing key k of exchange e".to_owned();
    assert_eq!(fixture.publisher.status().unanswered, Some((1, destination)));
    fixture.pass(ANSWER_WITHIN);
    assert_eq!(fixture.publisher.reports(), []);
    (0..3).for_each(|_| fixture.pass(SECOND));
    let reports = fixture.publisher.reports();
    assert!(matches!(&reports[..], [SinkReport::Unreachable(why)] if why.contains("over 30 s")));
    assert_eq!(fixture.port.asked.len(), asked + 1);
    // WHEN a confirm comes THEN that is no answer to the question, and the next look sees it
    assert_eq!(fixture.confirm(2), [SinkReport::Confirmed(1)]);
    fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
    fixture.pass(SECOND);
    assert_eq!(fixture.publisher.reports(), [SinkReport::Reachable]);
    assert_eq!(fixture.publisher.status().unanswered, None);
}

#[test]
fn a_question_is_not_overdue_for_the_time_in_which_the_broker_was_blocked() {
    let mut fixture = Fixture::connected();
    fixture.publish(&[1]);
    (0..3).for_each(|_| fixture.pass(SECOND));
    assert_eq!(fixture.port.asked.last().map(String::as_str), Some(""));
    fixture.handle(AmqpEvent::Blocked("low on memory".to_owned()));
    assert_eq!(fixture.publisher.reports().len(), 1);
    fixture.pass(2 * ANSWER_WITHIN);
    assert_eq!(fixture.publisher.reports(), []);
    fixture.handle(AmqpEvent::Unblocked);
    fixture.pass(SECOND);
    assert_eq!(fixture.publisher.reports(), [SinkReport::Reachable]);
    // WHEN it takes messages again and is silent THEN it is reported
    fixture.pass(ANSWER_WITHIN);
    assert!(matches!(&fixture.publisher.reports()[..], [SinkReport::Unreachable(_)]));
    // WHEN the connection is lost THEN nothing of that is true of the next one
    fixture.lose("gone");
    assert_eq!(fixture.publisher.status().unanswered, None);
    fixture.connect_again();
    assert_eq!(fixture.publisher.reports().len(), 1);
    assert_eq!(fixture.confirm(1), [SinkReport::Reachable, SinkReport::Confirmed(1)]);
}

#[test]
fn a_limit_that_the_broker_names_is_kept_and_the_others_are_sent_again() {
    let mut fixture = Fixture::connected();
    let value = [7; 300];
    let message = empty_message("e", "k", "1");
    let large = message.with_outbound(|event| {
        AmqpMessage::event(&Outbound { value: Some(&value), ..*event }, &Limits::default(), None)
    });
    fixture.publisher.publish(1, large.unwrap());
    fixture.publish(&[2, 3]);
    assert_eq!(fixture.sent(), ["1", "2", "3"]);
    assert_eq!(fixture.close(406, TOO_LARGE), []);
    assert_eq!(fixture.publisher.status().limits.body_bytes, 200);
    fixture.connect_again();
    let reports = fixture.publisher.reports();
    assert_eq!(failed(&reports), [(1, fault::MESSAGE_TOO_LARGE, Disposition::Terminal)]);
    // THEN they are no suspects
    assert_eq!(fixture.sent(), ["2", "3"]);
}

#[test]
fn of_a_dead_letter_that_is_too_large_less_is_sent() {
    const UNKNOWN: &str = "PRECONDITION_FAILED - the message is larger than allowed";
    let known = TOO_LARGE.replace("200", "10000");
    let value = vec![7_u8; 20_000];
    let letter = empty_message("e", "k", "1").with_outbound(|event| {
        let letter = Outbound { value: Some(&value), ..*event };
        AmqpMessage::dead_letter(&letter, &Limits::default(), None)
    });
    let mut fixture = Fixture::connected();
    fixture.publisher.publish(1, letter.unwrap());
    fixture.publish(&[2]);
    fixture.sent();
    let body_bytes = |it: &Fixture| it.publisher.unconfirmed.item(1).unwrap().body().len();
    // WHEN the broker names its limit THEN the letter is cut to it
    assert_eq!(failed(&fixture.close(406, &known)), []);
    fixture.connect_again();
    assert_eq!((fixture.sent().len(), body_bytes(&fixture)), (2, 10_000));
    // WHEN it names none THEN half of the one over which it has closed is sent
    assert_eq!(failed(&fixture.close(406, UNKNOWN)), []);
    fixture.connect_again();
    assert_eq!(fixture.sent(), ["1"]);
    assert_eq!(failed(&fixture.close(406, UNKNOWN)), []);
    fixture.connect_again();
    assert_eq!((fixture.sent(), body_bytes(&fixture)), (vec!["2".to_owned()], 5_000));
    fixture.confirm(1);
    assert_eq!(fixture.sent(), ["1"]);
}

#[test]
fn of_several_reasons_of_a_loss_that_with_a_code_counts() {
    let mut fixture = Fixture::connected();
    fixture.publish(&[1]);
    let losses = [
        ConnectionLoss::of("reset"),
        ConnectionLoss::refused(320, "CONNECTION_FORCED"),
        ConnectionLoss::of("the broker closed the connection"),
    ];
    let now = fixture.now;
    for loss in losses {
        fixture.publisher.handle(AmqpEvent::Closed(loss), now);
    }
    fixture.advance();
    let reports = fixture.publisher.reports();
    assert_eq!(reports, [SinkReport::Unreachable("CONNECTION_FORCED".to_owned())]);
}

#[test]
fn channels_are_opened_while_all_are_busy_and_the_broker_allows_it() {
    let mut fixture = Fixture::new();
    fixture.connect(&[CHANNEL], 3);
    fixture.publish(&[0]);
    fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
    assert_eq!(fixture.port.opened, 1);
    fixture.advance();
    assert_eq!(fixture.port.opened, 1);
    // GIVEN an event that waits for a channel
    fixture.publisher.publish(1, empty_message("e", "other", "1"));
    fixture.advance();
    assert_eq!(fixture.port.sent.len(), 1);
    fixture.handle(AmqpEvent::ChannelOpened(2));
    assert_eq!(fixture.port.sent.last(), Some(&(2, "1".to_owned())));
    // WHEN the broker refuses a channel THEN none is asked for any more
    assert_eq!(fixture.port.opened, 2);
    fixture.handle(AmqpEvent::ChannelRefused);
    fixture.pass(SECOND);
    assert_eq!(fixture.port.opened, 2);
    // WHEN it closes because of their number THEN half of them is enough
    fixture.close(530, "NOT_ALLOWED - number of channels opened for user 'u' has reached 2");
    assert_eq!(fixture.publisher.channels_max, 1);
    fixture.now = fixture.publisher.wake_at().unwrap();
    fixture.advance();
    fixture.connect(&[CHANNEL], 3);
    fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
    assert!(fixture.publisher.channels.are_all_busy());
    assert_eq!(fixture.port.opened, 2);
    // AND after a while twice as many are tried
    fixture.pass(CHANNELS_LIMITED_FOR);
    assert_eq!((fixture.publisher.channels_max, fixture.port.opened), (2, 3));
    fixture.pass(SECOND);
    assert_eq!(fixture.publisher.channels_max, 2);
}

#[test]
fn a_user_whose_channels_are_too_few_to_publish_at_all_is_told_so() {
    let over = "NOT_ALLOWED - number of channels opened for user 'u' has reached the maximum allowed user limit of (2)";
    let told = |reports: &[SinkReport]| match reports {
        [SinkReport::Unreachable(why)] => why.clone(),
        other => panic!("{other:?}"),
    };
    let command = "rabbitmqctl clear_user_limits 'USER' max-channels";
    let mut fixture = Fixture::new();
    fixture.connect(&[CHANNEL], 3);
    // GIVEN one channel to publish on WHEN the question for the exchange gets none
    fixture.publish(&[0]);
    assert_eq!((fixture.port.asked.len(), fixture.port.opened), (1, 0));
    let why = told(&fixture.close(530, over));
    assert!(why.starts_with("nothing can be published") && why.contains(command), "{why}");
    // WHEN an event was sent meanwhile THEN it is not said of the next close
    fixture.connect_again();
    assert_eq!(fixture.sent(), ["0"]);
    let why = told(&fixture.close(530, over));
    assert!(why.starts_with("NOT_ALLOWED") && why.contains(command), "{why}");
}

#[test]
fn a_stream_that_has_failed_holds_back_its_own_events_only() {
    const FAILED: &str = "RESOURCE_ERROR - Stream not found for queue 'q' in vhost '/'";
    let mut fixture = Fixture::connected();
    fixture.publisher.publish(1, empty_message("e", "stream", "1"));
    fixture.publish(&[2]);
    assert_eq!(fixture.sent(), ["1", "2"]);
    // WHEN the broker closes over one of two THEN they are sent alone
    assert_eq!(failed(&fixture.close(506, FAILED)), []);
    fixture.connect_again();
    assert_eq!(fixture.sent(), ["1"]);
    let reports = fixture.close(506, FAILED);
    assert_eq!(failed(&reports), [(1, "rabbitmq.resource-error", Disposition::Delayed)]);
    fixture.connect_again();
    assert_eq!(fixture.sent(), ["2"]);
    assert_eq!(fixture.confirm(1).last(), Some(&SinkReport::Confirmed(2)));
    // AND a further one for the stream fails without being sent
    fixture.publisher.publish(3, empty_message("e", "stream", "3"));
    fixture.publish(&[4]);
    let reports = fixture.publisher.reports();
    assert_eq!(failed(&reports), [(3, "rabbitmq.resource-error", Disposition::Delayed)]);
    assert_eq!(fixture.sent(), ["4"]);
}

/// A publisher with 2,000 events for 40 destinations, of which as many are sent as may be.
fn fixture_with_all_sent() -> Fixture {
    let mut fixture = Fixture::new();
    let channels: Vec<u16> = (1..=64).collect();
    fixture.connect(&channels, 64);
    for number in 0..2_000 {
        let message = empty_message("e", &format!("topic.{}", number % 40), &number.to_string());
        fixture.publisher.publish(number, message);
    }
    fixture.advance();
    fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
    let in_flight = fixture.publisher.unconfirmed.in_flight().len();
    assert!(in_flight > 500, "{in_flight}");
    fixture
}

#[test]
fn only_an_answer_to_a_later_question_lets_go_of_what_is_unanswered() {
    // GIVEN a question, and when it is asked after the events are sent
    for (asked_after, blocked_before_answer, is_let_go) in [
        (Some(0), None, true),
        // It was asked before them: the broker may stand since.
        (None, None, false),
        // WHEN the broker was blocked meanwhile THEN they say nothing of their destinations
        (Some(0), Some(1), false),
        (Some(0), Some(3), true),
    ] {
        let mut fixture = fixture_with_all_sent();
        let sent_at = fixture.now;
        let asked_at = asked_after.map_or(sent_at - SECOND, |after| sent_at + after * SECOND);
        assert!(fixture.publisher.exchanges.ask("", asked_at));
        fixture.now += 5 * SECOND;
        if let Some(before) = blocked_before_answer {
            let now = fixture.now;
            fixture.publisher.set_blocked(true, now - (before + 1) * SECOND);
            fixture.publisher.set_blocked(false, now - before * SECOND);
        }
        fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
        let let_go = fixture.publisher.unconfirmed.has_unanswered();
        assert_eq!(let_go, is_let_go, "{asked_after:?}, {blocked_before_answer:?}");
    }
    // WHEN they were sent shortly before THEN they are not late
    let mut fixture = fixture_with_all_sent();
    assert!(fixture.publisher.exchanges.ask("", fixture.now));
    fixture.now += SECOND;
    fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
    assert!(!fixture.publisher.unconfirmed.has_unanswered());
}

#[test]
fn what_is_sent_alone_waits_behind_a_message_of_its_queue_that_has_no_answer() {
    // GIVEN events that are sent alone because the channel was closed over one of them
    let mut fixture = Fixture::connected();
    fixture.publish(&[1, 2, 3]);
    fixture.publisher.publish(4, empty_message("e", "other", "4"));
    fixture.advance();
    fixture.sent();
    fixture.close(406, "PRECONDITION_FAILED - invalid expiration");
    fixture.now = fixture.publisher.wake_at().unwrap();
    fixture.advance();
    fixture.connect(&[CHANNEL, 2], 2);
    fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
    assert_eq!(fixture.sent(), ["1"]);
    // WHEN the first has no answer THEN the next goes to another queue
    fixture.publisher.unconfirmed.unanswered(1);
    fixture.advance();
    assert_eq!(fixture.sent(), ["4"]);
    let confirm = Answer::Confirm { tag: 1, multiple: false, acked: true };
    fixture.handle(AmqpEvent::Answers(vec![(2, confirm)]));
    assert!(fixture.publisher.reports().contains(&SinkReport::Confirmed(4)));
    assert!(fixture.sent().is_empty());
    // WHEN the queue answers THEN those that have waited for it are sent, each of them alone
    assert_eq!(fixture.confirm(1), [SinkReport::Confirmed(1)]);
    assert_eq!(fixture.sent(), ["2"]);
    // WHEN the connection is lost meanwhile THEN they are sent again, and still alone
    fixture.publisher.unconfirmed.unanswered(2);
    fixture.advance();
    assert!(fixture.sent().is_empty());
    fixture.lose("reset");
    fixture.connect_again();
    assert_eq!(fixture.sent(), ["3"]);
    fixture.confirm(1);
    assert_eq!(fixture.sent(), ["2"]);
}

#[test]
fn what_waits_for_the_socket_is_not_unanswered() {
    let mut fixture = Fixture::connected();
    fixture.port.is_full = true;
    fixture.publish(&[1]);
    assert_eq!(fixture.sent(), ["1"]);
    let ask = |fixture: &mut Fixture| {
        fixture.port.asked.clear();
        fixture.pass(5 * SECOND);
        fixture.pass(5 * SECOND);
        assert_eq!(fixture.port.asked, [""]);
        fixture.pass(5 * SECOND);
        fixture.handle(AmqpEvent::ExchangeAnswered(Ok(Existence::There)));
        let is_noted = fixture.publisher.status().unanswered.is_some();
        (fixture.publisher.unconfirmed.has_unanswered(), is_noted)
    };
    assert_eq!(ask(&mut fixture), (false, false));
    // WHEN the socket takes it THEN the broker can answer it
    fixture.port.is_full = false;
    fixture.advance();
    assert_eq!(ask(&mut fixture), (true, true));
    // WHEN one is confirmed that waits THEN the connection is given up
    fixture.port.is_full = true;
    fixture.publish(&[2]);
    let reports = fixture.confirm(3);
    assert!(matches!(&reports[..], [SinkReport::Unreachable(_)]), "{reports:?}");
    assert_eq!(fixture.port.disconnects, 1);
}

#[test]
fn messages_flow_unless_the_broker_or_the_relay_forbids_it() {
    let mut fixture = fixture_with_all_sent();
    let began = fixture.now;
    let publisher = &mut fixture.publisher;
    assert!(!publisher.flows(began + SECOND));
    assert!(publisher.flows(began + 3 * SECOND));
    // WHEN another relay may have taken over
    let until = began + 3 * SECOND;
    publisher.publish_until(until);
    assert!(!publisher.flows(until));
    publisher.publish_until = None;
    publisher.set_blocked(true, until);
    assert!(!publisher.flows(began + 10 * SECOND));
}

#[test]
fn an_event_is_not_unanswered_before_it_has_waited_for_long() {
    let mut fixture = Fixture::connected();
    fixture.pass(3 * SECOND);
    fixture.publish(&[1]);
    fixture.pass(SECOND);
    assert_eq!(fixture.publisher.status().unanswered, None);
    // WHEN nothing may be sent THEN the reason need not be its destination
    fixture.publisher.publish_until(fixture.now);
    fixture.pass(5 * SECOND);
    assert_eq!(fixture.publisher.status().unanswered, None);
}
