//! Tests with events that cannot be published, over a broker in the process.

#[path = "replication_fixture_tests.rs"]
mod fixture;
#[path = "replication_known_tests.rs"]
mod known;
#[path = "replication_sequence_tests.rs"]
mod sequence;

use std::sync::{Arc, Mutex};

use walrelay_core::relay::failure_policy::FailureOutcome;

use self::fixture::{Fixture, failure, header, held, open, pairs};
use crate::base::clock::unix_now_us;
use crate::base::event::{Outbound, Position, Sequence};
use crate::base::lsn::Lsn;
use crate::base::stop::{BREAKER_OPEN, Stop};
use crate::dead_letter::record::{StopBody, StopRecord, StopRecordKind};
use crate::dead_letter::tail_event::TailEvent;
use crate::dead_letter::writer::{self, DeadLetterWriter, KeyHash};
use crate::metrics::IntakeHold;
use crate::sink::{Disposition, Failure, PublishError, Sink, SinkReport};

/// A dead letter that was refused with [`failure`].
fn delayed() -> FailureOutcome {
    let reason =
        "no (dead-letter topic outbox.dlq); help: mend it; if something is missing: walrelay init";
    FailureOutcome::DeadLetterDelayed(reason.to_owned())
}

#[test]
fn poison_becomes_a_letter_at_once_and_its_key_goes_on() {
    let mut fixture = Fixture::new(&[]);
    fixture.broker.refuse("e2", failure(Disposition::Terminal, "poison"));
    fixture.commit(&[("e1", "t", "k"), ("e2", "t", "k"), ("e3", "t", "k")]).unwrap();
    fixture.settle().unwrap();
    assert_eq!(fixture.published(), ["e1", "e3"]);
    assert_eq!(fixture.fates(), pairs(&[("e2", "poison")]));
    let letter = &fixture.letters()[0];
    assert_eq!(letter.key.as_deref(), Some(&b"k"[..]));
    assert_eq!(letter.value.as_deref(), Some(&b"{\"n\": 1}"[..]));
    assert_eq!(header(letter, writer::LSN), "0/64");
    assert_eq!(header(letter, writer::ATTEMPTS), "1");
    assert_eq!(header(letter, writer::PARKS_KEY), "");
    // THEN the slot may move over it, and it counts as what it is
    assert_eq!(fixture.forgotten(), 1);
    fixture.down().meter.flush();
    let text = fixture.metrics.render().unwrap();
    assert!(text.contains("outbox_events_total{outcome=\"dead_lettered\"} 1"), "{text}");
    assert!(text.contains("outbox_events_total{outcome=\"published\"} 2"), "{text}");
    assert!(text.contains("outbox_publish_latency_seconds_count 2"), "{text}");
    assert_eq!(fixture.metrics.dlq_published.get(), 1);
}

#[test]
fn what_may_pass_is_tried_to_the_last_attempt_before_it_is_given_up() {
    let mut fixture = Fixture::new(&["delivery.attempts_max=4"]);
    fixture.broker.refuse("e1", failure(Disposition::Transient, "no-route"));
    fixture.broker.refuse("e2", Failure { known: false, ..failure(Disposition::Terminal, "new") });
    fixture.commit(&[("e1", "t", "k"), ("e2", "t", "l")]).unwrap();
    fixture.settle().unwrap();
    assert_eq!(fixture.fates(), pairs(&[("e2", "new")]), "the first waits");
    assert_eq!(fixture.metrics.unknown_errors.get(), 1);
    assert_eq!(fixture.forgotten(), 0);
    let first_failed = fixture.now.unix_us;
    fixture.wait_out().unwrap();
    assert_eq!(fixture.fates(), pairs(&[("e2", "new"), ("e1", "no-route")]));
    let letter = &fixture.letters()[1];
    assert_eq!(header(letter, writer::ATTEMPTS), "4");
    let first_failed = crate::base::time::rfc3339(first_failed);
    assert_eq!(header(letter, writer::FIRST_FAILED_AT), first_failed);
    assert_ne!(header(letter, writer::FAILED_AT), first_failed);
    assert_eq!(fixture.metrics.retry_exhaustions.get(), 1);
    assert_eq!(fixture.forgotten(), 1);
}

#[test]
fn a_message_that_is_no_event_is_a_letter_of_what_can_be_told() {
    let mut fixture = Fixture::new(&[]);
    fixture.commit(&[("e1", "t", "k"), ("e2", "", "k"), ("e3", "outbox.dlq", "k")]).unwrap();
    fixture.settle().unwrap();
    let fates = [("e2", "null-in-template"), ("e3", "route.dead-letter-topic")];
    assert_eq!(fixture.fates(), pairs(&fates));
    assert_eq!(fixture.letters()[0].value.as_deref(), Some(&b"{\"n\": 1}"[..]));
    assert_eq!(header(&fixture.letters()[0], writer::ATTEMPTS), "0");
    assert_eq!(header(&fixture.letters()[1], writer::ORIGINAL_TOPIC), "outbox.dlq");
    // THEN each says where it stood, and whether it is whole
    assert_eq!(fixture.letter_headers(writer::ORDINAL), ["1", "2"]);
    assert_eq!(fixture.letter_headers(writer::INCOMPLETE), ["true", ""]);
    assert_eq!((fixture.published(), fixture.forgotten()), (vec!["e1".to_owned()], 1));
}

#[test]
fn what_no_setting_of_an_event_can_mend_stops_the_relay_without_a_letter() {
    let mut fixture = Fixture::new(&[]);
    fixture.broker.refuse("e2", failure(Disposition::Halt, "unsupported"));
    fixture.commit(&[("e1", "t", "k"), ("e2", "t", "l")]).unwrap();
    let fault = fixture.settle().unwrap_err();
    assert_eq!((fault.code, fault.exit), ("sink.unable", crate::base::error::Exit::Sink));
    assert!(fault.to_string().contains("unsupported"), "{fault}");
    assert_eq!((fixture.fates(), fixture.forgotten()), (pairs(&[]), 0));
    assert!(fixture.is_settled(), "nothing more is to come");
    // AND so does a letter that cannot be written for such a reason
    let mut fixture = Fixture::new(&[]);
    fixture.broker.refuse("e1", failure(Disposition::Terminal, "poison"));
    fixture.broker.refuse_letters(failure(Disposition::Halt, "unsupported"));
    fixture.commit(&[("e1", "t", "k")]).unwrap();
    assert_eq!(fixture.settle().unwrap_err().code, "sink.unable");
    assert_eq!(fixture.forgotten(), 0);
}

#[test]
fn a_parked_key_goes_to_the_dead_letter_topic_until_it_is_released() {
    let mut fixture = Fixture::new(&["delivery.on_dead_letter=park_key"]);
    fixture.broker.refuse("e1", failure(Disposition::Terminal, "poison"));
    // GIVEN events that wait behind the poison WHEN it is given up
    fixture.commit(&[("e1", "t", "k"), ("e2", "t", "k"), ("other", "t", "l")]).unwrap();
    let fates = fixture.settle().unwrap();
    assert_eq!(fates[0], FailureOutcome::KeyParked);
    // THEN they follow it, in order, and so do later ones, whatever their topic
    fixture.commit(&[("e3", "u", "k"), ("more", "t", "l")]).unwrap();
    fixture.settle().unwrap();
    assert_eq!(fixture.fates(), pairs(&[("e1", "poison"), ("e2", "parked"), ("e3", "parked")]));
    let parks = fixture.letter_headers(writer::PARKS_KEY);
    assert_eq!(parks, ["true", "", ""], "a follower parks nothing");
    assert_eq!(header(&fixture.letters()[2], writer::ATTEMPTS), "0");
    assert_eq!(fixture.published(), ["other", "more"]);
    assert_eq!(fixture.metrics.dlq_parked_keys.get(), 1);
    // WHEN it is released before its letter was read THEN that release is an old one
    fixture.hear(TailEvent::Released(KeyHash::of(b"k"))).unwrap();
    assert_eq!(fixture.metrics.dlq_parked_keys.get(), 1);
    // WHEN later THEN its followers that are still to be read do not stand against it
    let position = Position { commit_lsn: Lsn::from_wire(100), ordinal: 0 };
    fixture.hear(TailEvent::Parked(KeyHash::of(b"k"), position)).unwrap();
    fixture.hear(TailEvent::Released(KeyHash::of(b"k"))).unwrap();
    assert_eq!(fixture.metrics.dlq_parked_keys.get(), 0);
    fixture.commit(&[("e4", "t", "k")]).unwrap();
    fixture.settle().unwrap();
    assert_eq!(fixture.published(), ["other", "more", "e4"]);
}

#[test]
fn a_dead_letter_that_a_takeover_has_dropped_parks_its_key_when_it_is_written_at_last() {
    let mut fixture = Fixture::new(&["delivery.on_dead_letter=park_key"]);
    let poison = || failure(Disposition::Terminal, "poison");
    // GIVEN a dead letter that the sink has taken, and that is not stored
    fixture.broker.refuse("e1", poison());
    fixture.broker.refuse_letters(failure(Disposition::Transient, "not-enough-replicas"));
    fixture.commit(&[("e1", "t", "k")]).unwrap();
    fixture.settle().unwrap();
    assert_eq!((fixture.metrics.dlq_parked_keys.get(), fixture.letters().len()), (1, 0));
    // WHEN another relay has had the slot THEN nothing is parked
    fixture.rebuild();
    fixture.peers_confirmed(100);
    fixture.begin_session(100);
    assert_eq!(fixture.metrics.dlq_parked_keys.get(), 0);
    // AND the event is the one that parks its key once more
    fixture.broker.accept();
    fixture.broker.refuse("e1", poison());
    fixture.receive(1, &[("e1", "t", "k"), ("e2", "t", "k")]).unwrap();
    fixture.settle().unwrap();
    assert_eq!(fixture.fates(), pairs(&[("e1", "poison"), ("e2", "parked")]));
    assert_eq!(fixture.letter_headers(writer::PARKS_KEY), ["true", ""]);
}

#[test]
fn no_letter_is_written_before_the_dead_letter_topic_was_read() {
    let mut fixture = Fixture::unread(&["dead_letter.burst_max=2"]);
    fixture.broker.refuse("e1", failure(Disposition::Terminal, "poison"));
    fixture.commit(&[("e1", "t", "k"), ("e2", "t", "l")]).unwrap();
    fixture.settle().unwrap();
    // What is no event holds up those behind it.
    assert_eq!(fixture.commit(&[("e3", "", "k")]).unwrap(), held(IntakeHold::DeadLettersUnread));
    assert_eq!((fixture.published(), fixture.letters().len()), (vec!["e2".to_owned()], 0));
    // WHEN one was written by an earlier process THEN there is room for one more
    let failed_unix_us = fixture.now.unix_us;
    fixture.hear(TailEvent::DeadLetter { failed_unix_us, class: "old".to_owned() }).unwrap();
    fixture.hear(TailEvent::Unreadable("in the end".to_owned())).unwrap();
    fixture.settle().unwrap();
    assert_eq!(fixture.fates(), pairs(&[("e1", "poison")]));
    let fault = fixture.commit(&[("e3", "", "k")]).unwrap_err();
    assert_eq!(fault.code, "dead-letter.breaker-open");
}

/// A stop that an earlier process, or a person since, has left in the topic.
fn breaker(kind: StopRecordKind, unix_us: i64) -> TailEvent {
    let stop = Stop { code: BREAKER_OPEN.to_owned(), ..Stop::default() };
    let body = StopBody { stop, unix_us, ..StopBody::default() };
    TailEvent::Stop(Box::new(StopRecord::new(kind, body)))
}

#[test]
fn the_breaker_opens_after_exactly_the_burst_and_the_slot_is_held() {
    let mut fixture = Fixture::new(&["dead_letter.burst_max=3"]);
    for number in 0..6 {
        fixture.broker.refuse(&format!("e{number}"), failure(Disposition::Terminal, "poison"));
        fixture.commit(&[(&format!("e{number}"), "t", &number.to_string())]).unwrap();
    }
    let fault = fixture.settle().unwrap_err();
    assert_eq!(
        (fault.code, fault.exit),
        ("dead-letter.breaker-open", crate::base::error::Exit::Halted)
    );
    assert!(fault.what.contains("3 dead letters within 60 s, most of them poison"), "{fault}");
    let now_us = fixture.now.unix_us;
    fixture.down().policy.gate.update_breaker_gauge(now_us);
    assert_eq!(fixture.metrics.dlq_breaker_open.get(), 1);
    assert_eq!((fixture.letters().len(), fixture.forgotten()), (3, 3));
    assert!(fixture.is_settled(), "nothing more is to come");
    assert!(
        fixture.commit(&[("e", "", "k")]).is_err(),
        "one that is no event is one too many, too"
    );
}

#[test]
fn a_letter_that_cannot_be_written_is_tried_for_ever_and_holds_the_slot() {
    let mut fixture = Fixture::new(&["delivery.attempts_max=2"]);
    fixture.broker.refuse("e1", failure(Disposition::Terminal, "poison"));
    fixture.broker.refuse_letters(failure(Disposition::Transient, "missing"));
    fixture.commit(&[("e1", "t", "k"), ("e2", "t", "l"), ("e3", "", "m")]).unwrap();
    let fates = fixture.settle().unwrap();
    assert!(fates.contains(&delayed()), "{fates:?}");
    for _ in 0..20 {
        fixture.now.instant += std::time::Duration::from_secs(60);
        while let Some(sequence) = fixture.take_due() {
            fixture.sink().retry(sequence);
        }
        fixture.settle().unwrap();
    }
    assert_eq!(fixture.metrics.dlq_publish_failed.get(), 2 + 2 * 20);
    assert_eq!((fixture.metrics.retry_exhaustions.get(), fixture.forgotten()), (0, 0));
    assert_eq!(fixture.published(), ["e2"]);
    // WHEN it can be THEN it is, as it was
    fixture.broker.accept();
    fixture.wait_out().unwrap();
    let mut fates = fixture.fates();
    fates.sort();
    assert_eq!(fates, pairs(&[("e1", "poison"), ("e3", "null-in-template")]));
    let poison = fixture.letters().into_iter().find(|letter| letter.id == "e1").unwrap();
    assert_eq!(header(&poison, writer::ATTEMPTS), "1");
    assert_eq!(fixture.forgotten(), 1);
    // WHEN the topic will never take one THEN that stops the relay
    fixture.broker.refuse("e4", failure(Disposition::Terminal, "poison"));
    fixture.broker.refuse_letters(failure(Disposition::Terminal, "too-large"));
    fixture.commit(&[("e4", "t", "k")]).unwrap();
    assert_eq!(fixture.settle().unwrap_err().code, "dead-letter.refused");
    assert_eq!(fixture.forgotten(), 1);
}

#[test]
fn what_was_given_up_stays_given_up_over_a_new_sink_and_counts_once() {
    let park = "delivery.on_dead_letter=park_key";
    let mut fixture = Fixture::new(&[park, "dead_letter.burst_max=2"]);
    fixture.broker.refuse("e2", failure(Disposition::Terminal, "poison"));
    fixture.broker.refuse_letters(failure(Disposition::Transient, "missing"));
    fixture.broker.set_silent(true);
    let events = [("e1", "t", "k"), ("e2", "t", "k"), ("e3", "t", "k"), ("e4", "", "l")];
    fixture.commit(&events).unwrap();
    let (sequence, failure) = (1, failure(Disposition::Terminal, "poison"));
    let failure = Failure { key: Some(b"k"[..].into()), ..failure };
    fixture.relay.failed(sequence, failure, fixture.now).unwrap();
    // GIVEN an event before the poison that is not confirmed WHEN the sink is lost
    fixture.rebuild();
    fixture.broker.accept();
    fixture.broker.set_silent(false);
    fixture.receive(1, &events).unwrap();
    fixture.settle().unwrap();
    // THEN it is no follower of its key's letter, and what was given up is not offered again
    assert_eq!(fixture.published(), ["e1"]);
    let fates = [("e2", "poison"), ("e3", "parked"), ("e4", "null-in-template")];
    assert_eq!(fixture.fates(), pairs(&fates));
    assert_eq!(fixture.forgotten(), 1);
}

/// Notes what is published alone.
struct Careful(Box<dyn Sink>, Arc<Mutex<Vec<Sequence>>>);

impl Sink for Careful {
    fn publish(&mut self, sequence: Sequence, event: &Outbound<'_>) -> Result<(), PublishError> {
        self.0.publish(sequence, event)
    }
    fn publish_alone(&mut self, at: Sequence, event: &Outbound<'_>) -> Result<(), PublishError> {
        self.1.lock().unwrap().push(at);
        self.0.publish(at, event)
    }
    fn poll(
        &mut self,
        now: std::time::Instant,
        patience: std::time::Duration,
        reports: &mut Vec<SinkReport>,
    ) {
        self.0.poll(now, patience, reports);
    }
    fn retry(&mut self, sequence: Sequence) {
        self.0.retry(sequence);
    }
    fn replace_with_dead_letter(
        &mut self,
        sequence: Sequence,
        writer: &DeadLetterWriter,
        cause: &writer::DeadLetterCause,
    ) {
        self.0.replace_with_dead_letter(sequence, writer, cause);
    }
}

#[test]
fn a_letter_is_published_alone_and_the_broker_may_refuse_it_for_any_reason() {
    let mut fixture = Fixture::new(&[]);
    let alone = Arc::default();
    fixture.set_sink(Box::new(Careful(open(&fixture.broker), Arc::clone(&alone))));
    fixture.broker.refuse_letters(failure(Disposition::Outage, "forbidden"));
    fixture.commit(&[("e1", "t", "k"), ("e2", "", "l")]).unwrap();
    assert_eq!(*alone.lock().unwrap(), [1]);
    // THEN the rest goes on, and the sink is as good as it was
    let fates = fixture.settle().unwrap();
    assert_eq!(fates, [delayed()]);
    fixture.broker.accept();
    fixture.wait_out().unwrap();
    assert_eq!((fixture.published(), fixture.letters().len()), (vec!["e1".to_owned()], 1));
}

#[test]
fn a_suspect_is_published_alone_whenever_it_is_received() {
    let mut fixture = Fixture::new(&[]);
    let events = [("e1", "t", "k"), ("e2", "t", "l"), ("e3", "t", "m")];
    fixture.commit(&events).unwrap();
    let suspect = Position { commit_lsn: Lsn::from_wire(100), ordinal: 1 };
    fixture.down().policy.suspects.insert(suspect);
    for _ in 0..2 {
        fixture.rebuild();
        let alone = Arc::default();
        fixture.set_sink(Box::new(Careful(open(&fixture.broker), Arc::clone(&alone))));
        fixture.receive(1, &events).unwrap();
        assert_eq!(*alone.lock().unwrap(), [1]);
    }
}

#[test]
fn an_acknowledgement_by_a_clock_that_is_ahead_does_not_turn_the_breaker_off() {
    let mut fixture = Fixture::unread(&["dead_letter.burst_max=1"]);
    let failed_unix_us = unix_now_us() + 60_000_000;
    let letter = || TailEvent::DeadLetter { failed_unix_us, class: "old".to_owned() };
    // GIVEN a letter, an acknowledgement by a machine whose clock is ahead, and a letter behind it
    fixture.hear(letter()).unwrap();
    fixture.hear(breaker(StopRecordKind::Resumed, i64::MAX)).unwrap();
    fixture.down().policy.gate.update_breaker_gauge(failed_unix_us);
    assert_eq!(fixture.metrics.dlq_breaker_open.get(), 0, "what stands before it is acknowledged");
    fixture.hear(letter()).unwrap();
    fixture.down().policy.gate.update_breaker_gauge(failed_unix_us);
    assert_eq!(fixture.metrics.dlq_breaker_open.get(), 1, "what stands behind it counts");
}

#[test]
fn a_topic_that_can_be_read_in_the_end_has_a_stop_after_all() {
    let mut fixture = Fixture::unread(&[]);
    fixture.hear(TailEvent::Unreadable("not now".to_owned())).unwrap();
    fixture.hear(breaker(StopRecordKind::Stopped, 0)).unwrap();
    let fault = fixture.hear(TailEvent::CaughtUp).unwrap_err();
    assert_eq!(fault.code, "dead-letter.breaker-open");
}
