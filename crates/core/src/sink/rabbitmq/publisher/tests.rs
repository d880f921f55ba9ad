//! A publisher, a port that notes what it is asked for, and a clock that the test moves.

use super::patience::{ANSWER_WITHIN, UNANSWERED_AFTER};
use super::*;
use crate::sink::Disposition;
use crate::sink::rabbitmq::answer::ReturnedMessage;
use crate::sink::rabbitmq::exchanges::Existence;
use crate::sink::rabbitmq::fault;
use crate::sink::rabbitmq::testing::empty_message;

mod refusals;

const SECOND: Duration = Duration::from_secs(1);
const CHANNEL: u16 = 1;
const TOO_LARGE: &str =
    "PRECONDITION_FAILED - message size 300 is larger than configured max size 200";

#[derive(Debug, Default)]
struct NotedPort {
    connects: Vec<usize>,
    disconnects: usize,
    /// With their channels, the ids of messages.
    sent: Vec<(u16, String)>,
    asked: Vec<String>,
    opened: usize,
    /// The socket takes no message.
    is_full: bool,
    /// How many messages wait for the socket.
    unwritten: usize,
}

impl AmqpPort for NotedPort {
    fn connect(&mut self, from: usize) {
        self.connects.push(from);
    }

    fn disconnect(&mut self) {
        self.disconnects += 1;
        self.unwritten = 0;
    }

    fn send(&mut self, channel: u16, message: &AmqpMessage) {
        self.sent.push((channel, message.id().to_owned()));
        self.unwritten += 1;
    }

    fn ask_exchange(&mut self, name: &str) {
        self.asked.push(name.to_owned());
    }

    fn open_channel(&mut self) {
        self.opened += 1;
    }

    fn poll(&mut self, _now: Instant) -> Option<AmqpEvent> {
        None
    }

    fn publish_until(&mut self, _until: Instant) {}
}

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
        assert_eq!(fixture.confirm(1, false), [SinkReport::Confirmed(0)]);
        fixture
    }

    fn connect(&mut self, channels: &[u16], channels_max: usize) {
        let channels = channels.to_vec();
        let facts =
            ConnectionFacts { broker: 9, host: 0, frame_bytes: 32_768, channels, channels_max };
        self.handle(AmqpEvent::Connected(facts));
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

    fn confirm(&mut self, tag: u64, multiple: bool) -> Vec<SinkReport> {
        let confirm = Answer::Confirm { tag, multiple, acked: true };
        self.handle(AmqpEvent::Answers(vec![(CHANNEL, confirm)]));
        self.publisher.reports()
    }

    fn lose(&mut self, text: &str) {
        let closed = Answer::Closed(ConnectionLoss::of(text));
        self.handle(AmqpEvent::Answers(vec![(CHANNEL, closed)]));
    }

    fn close(&mut self, code: u16, text: &str) -> Vec<SinkReport> {
        let closed = Answer::Closed(ConnectionLoss::refused(code, text));
        self.handle(AmqpEvent::Answers(vec![(CHANNEL, closed)]));
        self.publisher.reports()
    }

    /// The messages that were sent since the last look.
    fn sent(&mut self) -> Vec<String> {
        self.port.sent.drain(..).map(|(_, id)| id).collect()
    }
}

fn confirmed(sequences: std::ops::RangeInclusive<Sequence>) -> Vec<SinkReport> {
    sequences.map(SinkReport::Confirmed).collect()
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
    assert_eq!(fixture.confirm(1, false), [SinkReport::Reachable, SinkReport::Confirmed(0)]);
    fixture.lose("gone");
    // AND the waits are short again
    assert!(fixture.publisher.wake_at().unwrap() <= fixture.now + RECONNECT_BASE);
    fixture.pass(RECONNECT_CAP);
    assert_eq!(fixture.port.connects.last(), Some(&1));
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
    assert_eq!(fixture.confirm(1, false), [SinkReport::Confirmed(1)]);
    assert_eq!(fixture.sent(), ["0"]);
    // WHEN a question fails THEN the connection is given up
    fixture.pass(3 * SECOND);
    assert_eq!(fixture.port.asked.last().map(String::as_str), Some(""));
    fixture.handle(AmqpEvent::ExchangeAnswered(Err(ConnectionLoss::of("gone"))));
    assert_eq!(fixture.port.disconnects, 1);
}

#[test]
fn a_return_fails_its_event_and_a_nack_too() {
    let mut fixture = Fixture::connected();
    fixture.publish(&[1, 2, 3]);
    let returned = ReturnedMessage { id: "2".to_owned(), code: 312, text: "NO_ROUTE".to_owned() };
    fixture.handle(AmqpEvent::Answers(vec![
        (CHANNEL, Answer::Confirm { tag: 4, multiple: false, acked: false }),
        (CHANNEL, Answer::Returned(returned)),
        (CHANNEL, Answer::Confirm { tag: 3, multiple: true, acked: true }),
    ]));
    let reports = fixture.publisher.reports();
    assert_eq!(
        failed(&reports),
        [
            (3, fault::NACK, Disposition::Transient),
            (2, "rabbitmq.no-route", Disposition::Transient)
        ]
    );
    assert!(reports.contains(&SinkReport::Confirmed(1)) && reports.len() == 3);
    assert!(!fixture.publisher.is_empty());
}

#[test]
fn a_blocked_broker_is_sent_nothing_and_heard() {
    let mut fixture = Fixture::connected();
    fixture.publish(&[1]);
    assert_eq!(fixture.sent(), ["1"]);
    fixture.handle(AmqpEvent::Blocked("low on memory".to_owned()));
    assert!(fixture.publisher.status().is_blocked);
    let reports = fixture.publisher.reports();
    assert!(
        matches!(&reports[..], [SinkReport::Unreachable(why)] if why.contains("low on memory"))
    );
    fixture.publish(&[2]);
    // WHEN it confirms what it has read THEN it is no more reachable than before
    assert_eq!(fixture.confirm(2, false), [SinkReport::Confirmed(1)]);
    // AND a question that is not answered for long is no fault of its own
    fixture.pass(2 * ANSWER_WITHIN);
    assert_eq!((fixture.sent().len(), fixture.publisher.reports()), (0, vec![]));
    fixture.handle(AmqpEvent::Unblocked);
    assert_eq!(fixture.sent(), ["2"]);
    // THEN the next look says so
    fixture.pass(SECOND);
    assert_eq!(fixture.publisher.reports(), [SinkReport::Reachable]);
    // WHEN the connection is lost meanwhile THEN the next one is not blocked
    fixture.handle(AmqpEvent::Blocked("low on disk".to_owned()));
    fixture.lose("gone");
    assert!(!fixture.publisher.status().is_blocked);
    fixture.connect_again();
    assert_eq!(fixture.sent(), ["2"]);
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
    assert_eq!(fixture.confirm(2, false), [SinkReport::Confirmed(1)]);
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
    assert_eq!(fixture.confirm(1, false), [SinkReport::Reachable, SinkReport::Confirmed(1)]);
}

#[test]
fn the_message_over_which_the_broker_closes_is_found_by_sending_one_at_a_time() {
    let mut fixture = Fixture::connected();
    fixture.publish(&[1, 2, 3]);
    assert_eq!(fixture.sent(), ["1", "2", "3"]);
    let reports = fixture.close(406, "PRECONDITION_FAILED - invalid expiration");
    assert_eq!(failed(&reports), []);
    assert!(matches!(&reports[..], [SinkReport::Unreachable(_)]));
    fixture.connect_again();
    assert_eq!(fixture.sent(), ["1"]);
    assert_eq!(fixture.confirm(1, false), [SinkReport::Reachable, SinkReport::Confirmed(1)]);
    assert_eq!(fixture.sent(), ["2"]);
    // WHEN it closes over the one that is alone THEN that has failed, and no outage is reported
    let reports = fixture.close(406, "PRECONDITION_FAILED - invalid expiration");
    let class = "rabbitmq.precondition-failed";
    assert_eq!((failed(&reports), reports.len()), (vec![(2, class, Disposition::Terminal)], 1));
    fixture.connect_again();
    assert_eq!(fixture.sent(), ["3"]);
    assert_eq!(fixture.confirm(1, false), [SinkReport::Confirmed(3)]);
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
fn what_has_no_answer_at_a_loss_is_sent_again_in_order() {
    let mut fixture = Fixture::connected();
    let lane = |sequence: Sequence| {
        let event = empty_message("e", "k", &sequence.to_string());
        event.with_outbound(|event| {
            let event = Outbound { key: Some(b"a"), ..*event };
            AmqpMessage::event(&event, &Limits::default(), Some(5)).unwrap()
        })
    };
    (1..=3).for_each(|it| fixture.publisher.publish(it, lane(it)));
    fixture.publish(&[4, 5]);
    // GIVEN that the first of a key and two without one are sent
    assert_eq!(fixture.sent(), ["1", "4", "5"]);
    // WHEN the connection is lost, and some answers have arrived before
    let ack = |tag| (CHANNEL, Answer::Confirm { tag, multiple: false, acked: true });
    let lost = (0, Answer::Closed(ConnectionLoss::of("reset")));
    fixture.handle(AmqpEvent::Answers(vec![ack(3), lost]));
    let reports = fixture.publisher.reports();
    assert!(matches!(
        &reports[..],
        [SinkReport::Confirmed(4), SinkReport::Unreachable(why)] if why.contains("reset")
    ));
    // AND one comes later THEN that says nothing
    fixture.handle(AmqpEvent::Answers(vec![ack(2)]));
    assert_eq!(fixture.publisher.reports(), []);
    fixture.connect_again();
    assert_eq!(fixture.sent(), ["1", "5"]);
    assert_eq!(fixture.confirm(1, false), [SinkReport::Reachable, SinkReport::Confirmed(1)]);
    assert_eq!(fixture.sent(), ["2"]);
    assert_eq!(fixture.confirm(3, true), [SinkReport::Confirmed(5), SinkReport::Confirmed(2)]);
    assert_eq!(fixture.sent(), ["3"]);
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
    let answers = losses.map(|loss| (0, Answer::Closed(loss)));
    fixture.handle(AmqpEvent::Answers(answers.to_vec()));
    let reports = fixture.publisher.reports();
    assert_eq!(reports, [SinkReport::Unreachable("CONNECTION_FORCED".to_owned())]);
}

#[test]
fn an_answer_to_nothing_ends_the_connection() {
    let mut fixture = Fixture::connected();
    fixture.publish(&[1]);
    let reports = fixture.confirm(7, false);
    assert!(matches!(&reports[..], [SinkReport::Unreachable(why)] if why.contains("tag 7")));
    assert_eq!(fixture.port.disconnects, 1);
}

#[test]
fn nothing_is_begun_after_the_time_for_it() {
    let mut fixture = Fixture::connected();
    fixture.publisher.publish_until(fixture.now + SECOND);
    fixture.publish(&[1]);
    assert_eq!(fixture.sent(), ["1"]);
    fixture.pass(SECOND);
    fixture.publish(&[2]);
    assert_eq!(fixture.sent(), Vec::<String>::new());
    // WHEN it gets more time THEN it goes on
    fixture.publisher.publish_until(fixture.now + SECOND);
    fixture.advance();
    assert_eq!(fixture.sent(), ["2"]);
    assert_eq!(fixture.confirm(3, true), confirmed(1..=2));
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
    fixture.handle(AmqpEvent::ChannelOpened(2));
    let other = empty_message("e", "other", "1");
    fixture.publisher.publish(1, other);
    fixture.advance();
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
    let in_flight = fixture.publisher.unconfirmed.in_flight().count();
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
    let reports = fixture.confirm(3, false);
    assert!(matches!(&reports[..], [SinkReport::Unreachable(_)]), "{reports:?}");
    assert_eq!(fixture.port.disconnects, 1);
}

#[test]
fn only_what_is_long_without_an_answer_is_noted() {
    let mut fixture = fixture_with_all_sent();
    let publisher = &mut fixture.publisher;
    let (_, _, sent_at) = publisher.channels.oldest().unwrap();
    let mut noted = |flows, after| {
        publisher.note_unanswered(flows, sent_at + after);
        publisher.status.unanswered.clone()
    };
    let (early, late) = (UNANSWERED_AFTER - Duration::from_millis(1), UNANSWERED_AFTER);
    assert_eq!(noted(true, early), None);
    assert_eq!(noted(true, late), Some((0, "routing key topic.0 of exchange e".to_owned())));
    // WHEN the broker takes nothing for now THEN nothing is noted any more
    assert_eq!(noted(false, late), None);
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
