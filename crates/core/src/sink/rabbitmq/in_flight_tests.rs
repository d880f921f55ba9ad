use super::*;
use crate::sink::rabbitmq::testing::empty_message;

fn message(id: &str) -> Arc<AmqpMessage> {
    Arc::new(empty_message("e", "t", id))
}

fn in_flight(sequences: std::ops::Range<Sequence>) -> PublishesInFlight {
    let mut in_flight = PublishesInFlight::default();
    for sequence in sequences {
        add(&mut in_flight, sequence, Instant::now());
    }
    in_flight
}

/// Adds a message, which is written at once.
fn add(in_flight: &mut PublishesInFlight, sequence: Sequence, now: Instant) {
    in_flight.add(sequence, 0, message(&sequence.to_string()), now);
    in_flight.note_written(now);
}

/// Until the first answer that is wrong, or the last of all.
fn settle(
    in_flight: &mut PublishesInFlight,
    answers: Vec<Answer>,
) -> (Vec<(Sequence, PublishOutcome)>, AmqpResult<()>) {
    let mut answered = Vec::new();
    let mut answers = answers.into_iter();
    let end = answers.try_for_each(|answer| in_flight.take_answer(answer, &mut answered));
    (answered.into_iter().map(|publish| (publish.sequence, publish.outcome)).collect(), end)
}

fn ack(tag: u64, multiple: bool) -> Answer {
    Answer::Confirm { tag, multiple, acked: true }
}

fn returned(id: impl ToString) -> ReturnedMessage {
    ReturnedMessage { id: id.to_string(), code: 312, text: "NO_ROUTE".to_owned() }
}

#[test]
fn an_answer_to_nothing_that_was_sent_ends_the_connection() {
    let cases = [
        ack(4, false),
        ack(4, true),
        Answer::Returned(returned("never sent")),
        // Confirmed before.
        Answer::Returned(returned(10)),
    ];
    for wrong in cases {
        let mut in_flight = in_flight(10..13);
        let (outcomes, end) = settle(&mut in_flight, vec![ack(1, false), wrong, ack(2, false)]);
        assert_eq!(outcomes, [(10, PublishOutcome::Confirmed)]);
        assert_eq!(end.unwrap_err().code, None);
    }
}

#[test]
fn tag_0_is_all_in_flight() {
    let mut in_flight = in_flight(10..12);
    assert_eq!(settle(&mut in_flight, vec![ack(0, false)]), (vec![], Ok(())));
    let (outcomes, end) = settle(&mut in_flight, vec![ack(0, true)]);
    assert_eq!(outcomes, [(10, PublishOutcome::Confirmed), (11, PublishOutcome::Confirmed)]);
    assert_eq!(end, Ok(()));
    assert_eq!(settle(&mut in_flight, vec![ack(0, true)]), (vec![], Ok(())));
    assert_eq!(settle(&mut PublishesInFlight::default(), vec![ack(0, true)]), (vec![], Ok(())));
}

#[test]
fn a_second_confirm_changes_nothing() {
    let mut in_flight = in_flight(10..13);
    let (outcomes, end) =
        settle(&mut in_flight, vec![ack(2, false), ack(2, false), ack(1, true), ack(1, false)]);
    assert_eq!(outcomes, [(11, PublishOutcome::Confirmed), (10, PublishOutcome::Confirmed)]);
    assert_eq!(end, Ok(()));
    assert_eq!(in_flight.publishes.len(), 1);
}

#[test]
fn the_oldest_is_the_first_without_an_answer() {
    let mut in_flight = PublishesInFlight::default();
    assert_eq!(in_flight.oldest().map(|(.., at)| at), None);
    let first = Instant::now();
    let second = first + std::time::Duration::from_secs(1);
    add(&mut in_flight, 0, first);
    add(&mut in_flight, 1, second);
    assert_eq!(in_flight.oldest().map(|(.., at)| at), Some(first));
    settle(&mut in_flight, vec![ack(1, false)]).1.unwrap();
    assert_eq!(in_flight.oldest().map(|(.., at)| at), Some(second));
    settle(&mut in_flight, vec![ack(2, false)]).1.unwrap();
    assert_eq!(in_flight.oldest().map(|(.., at)| at), None);
}

#[test]
fn publishes_that_were_written_long_ago_are_known() {
    let (mut in_flight, began) = (PublishesInFlight::default(), Instant::now());
    let second = Duration::from_secs(1);
    for (sequence, written_at) in [(10, began), (11, began + second), (12, began + 2 * second)] {
        add(&mut in_flight, sequence, written_at);
    }
    in_flight.add(13, 0, message("13"), began);
    let written_for = |length| in_flight.written_for(length, began + 2 * second);
    assert_eq!(written_for(second).collect::<Vec<_>>(), [10, 11]);
    assert_eq!(written_for(3 * second).count(), 0);
    assert_eq!(written_for(Duration::ZERO).count(), 3);
}

#[test]
fn a_message_that_is_not_written_has_no_answer() {
    for answer in [ack(2, false), ack(2, true), Answer::Returned(returned(11))] {
        let mut in_flight = in_flight(10..11);
        in_flight.add(11, 0, message("11"), Instant::now());
        assert!(settle(&mut in_flight, vec![answer]).1.is_err());
    }
    // WHEN all are confirmed THEN it is not among them
    let mut in_flight = in_flight(10..11);
    in_flight.add(11, 0, message("11"), Instant::now());
    let (outcomes, _) = settle(&mut in_flight, vec![ack(0, true)]);
    assert_eq!(outcomes, [(10, PublishOutcome::Confirmed)]);
}
