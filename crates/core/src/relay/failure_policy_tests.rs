use std::sync::Mutex;
use std::time::Instant;

use super::*;
use crate::dead_letter::tail_event::{ReadRequests, TailEvent};
use crate::dead_letter::writer::DeadLetterWriter;
use crate::delivery::flight::Extras;
use crate::delivery::known::Fingerprint;
use crate::delivery::settings::OnDeadLetter;
use crate::relay::stops::tests::Site;
use crate::relay::surroundings::{Facts, take_counts};
use crate::sink::{PublishError, SinkReport};
use crate::testing::{self, lsn};
use crate::trace::span::FinishedSpan;

const KEY: &[u8] = b"k1";

/// Takes everything, unless it is told otherwise, and notes what it is told to do.
#[derive(Default)]
pub(in crate::relay) struct NotingSink {
    pub(in crate::relay) refusal: Option<PublishError>,
    pub(in crate::relay) letter_refusal: Option<PublishError>,
    /// The names of the headers of the last event.
    pub(in crate::relay) headers: Vec<String>,
    retried: Vec<Sequence>,
    replaced: Vec<Sequence>,
}

impl Sink for NotingSink {
    fn publish(&mut self, _: Sequence, event: &Outbound<'_>) -> Result<(), PublishError> {
        self.headers = event.headers.iter().map(|(name, _)| (*name).to_owned()).collect();
        self.refusal.clone().map_or(Ok(()), Err)
    }

    fn publish_dead_letter(&mut self, _: Sequence, _: &Outbound<'_>) -> Result<(), PublishError> {
        self.letter_refusal.clone().map_or(Ok(()), Err)
    }

    fn poll(&mut self, _: Instant, _: Duration, _: &mut Vec<SinkReport>) {}

    fn retry(&mut self, sequence: Sequence) {
        self.retried.push(sequence);
    }

    fn replace_with_dead_letter(
        &mut self,
        sequence: Sequence,
        _: &DeadLetterWriter,
        _: &DeadLetterCause,
    ) {
        self.replaced.push(sequence);
    }
}

/// A policy of one attempt; `is_read` says whether the dead-letter topic is to be read.
pub(in crate::relay) fn policy_with(
    on_dead_letter: OnDeadLetter,
    is_read: bool,
) -> (FailurePolicy, Arc<Mutex<Facts>>) {
    let delivery =
        DeliverySettings { on_dead_letter, attempts_max: 1, ..DeliverySettings::default() };
    let counted = Arc::<Mutex<Facts>>::default();
    let meters: Arc<dyn Meters> = Arc::clone(&counted) as Arc<dyn Meters>;
    let stops = Arc::new(Site::new().stops(false, true, true));
    let writer = testing::dead_letter_writer(1000);
    let requests = ReadRequests::default();
    let gate = DeadLetterGate::new(&delivery, writer, is_read, requests, &meters, stops);
    (FailurePolicy::new(&delivery, gate, EventSpans::default(), &meters, 1), counted)
}

/// An answer that this version does not know.
pub(in crate::relay) fn failure(disposition: Disposition, class: &str) -> Failure {
    Failure {
        disposition,
        known: false,
        key: Some(Box::from(KEY)),
        class: class.to_owned(),
        subject: "event 7".to_owned(),
        reason: "it is refused".to_owned(),
        mend: "change it".to_owned(),
    }
}

fn at(commit: u64) -> Position {
    Position { commit_lsn: lsn(commit), ordinal: 0 }
}

pub(in crate::relay) fn flight(state: FlightState) -> Flight {
    Flight {
        position: at(100),
        bytes: 1,
        commit_unix_us: 0,
        fingerprint: Fingerprint::NONE,
        state,
        extras: None,
    }
}

fn dead_letter() -> FlightState {
    FlightState::DeadLetter(Box::new(DeadLetterCause { attempts: 4, ..testing::cause("kafka.no") }))
}

fn now() -> Moment {
    Moment { instant: Instant::now(), unix_us: 9_000_000 }
}

#[test]
fn unknown_answers_and_used_up_attempts_and_dead_letters_are_counted() {
    use Disposition::{Halt, Terminal, Transient};
    let (mut policy, counted) = policy_with(OnDeadLetter::Continue, false);
    let (mut sink, mut flight, now) = (NotingSink::default(), flight(FlightState::Sent), now());
    // An event whose last attempt has failed becomes a dead letter.
    let unknown = failure(Transient, "kafka.no");
    policy.failed(0, &mut flight, unknown.clone(), &mut sink, now).unwrap();
    assert_eq!(sink.replaced, [0]);
    assert_eq!(take_counts(&counted), [(Counter::UnknownAnswer, 1), (Counter::RetryExhausted, 1)]);
    // The dead letter is tried again, after longer and longer waits.
    for attempts in [1, 2] {
        let known = Failure { known: true, ..unknown.clone() };
        let outcome = policy.failed(0, &mut flight, known, &mut sink, now).unwrap();
        assert!(matches!(outcome, FailureOutcome::DeadLetterDelayed(_)), "{outcome:?}");
        assert_eq!(flight.attempts().map(|it| it.count), Some(attempts));
        assert_eq!(take_counts(&counted), [(Counter::DeadLetterRefused, 1)]);
    }
    assert!(policy.settled(flight, now).is_some());
    assert_eq!(take_counts(&counted), [(Counter::DeadLettered, 1)]);
    // One that no topic will ever take stops the relay.
    for (disposition, code) in [(Terminal, "dead-letter.refused"), (Halt, "sink.unable")] {
        let fault = policy.dead_letter_refused(&failure(disposition, "kafka.no"));
        assert_eq!(fault.code, code);
        let refused = [(Counter::UnknownAnswer, 1), (Counter::DeadLetterRefused, 1)];
        assert_eq!(take_counts(&counted), refused);
    }
}

#[test]
fn a_dead_letter_that_has_waited_behind_one_of_its_key_is_published_at_once() {
    let (mut policy, counted) = policy_with(OnDeadLetter::ParkKey, false);
    let (mut sink, mut letter) = (NotingSink::default(), flight(dead_letter()));
    let parked = Failure { known: true, ..failure(Disposition::Terminal, CLASS_PARKED) };
    let outcome = policy.failed(7, &mut letter, parked, &mut sink, now());
    assert_eq!(outcome, Ok(FailureOutcome::Handled));
    assert_eq!(sink.retried, [7]);
    assert!(take_counts(&counted).is_empty());
}

#[test]
fn an_event_that_is_given_up_becomes_a_dead_letter_once_the_topic_was_read() {
    let (mut policy, _) = policy_with(OnDeadLetter::Continue, true);
    let (mut sink, mut flight) = (NotingSink::default(), flight(FlightState::Sent));
    let refused = failure(Disposition::Terminal, "kafka.no");
    let outcome = policy.failed(3, &mut flight, refused, &mut sink, now());
    assert_eq!(outcome, Ok(FailureOutcome::Handled));
    assert!(matches!(flight.state, FlightState::GivenUp(_)));
    assert!(sink.replaced.is_empty());
    policy.gate.on_tail_event(TailEvent::CaughtUp, 0).unwrap();
    policy.write_awaited(3, &mut flight, &mut sink, now()).unwrap();
    assert_eq!(sink.replaced, [3]);
    assert_eq!(flight.dead_letter().map(|cause| cause.attempts), Some(1));
}

#[test]
fn only_a_dead_letter_with_a_key_parks_it_and_only_where_keys_are_parked() {
    use OnDeadLetter::{Continue, ParkKey};
    for (on_dead_letter, key, parks_key) in
        [(Continue, Some(KEY), false), (ParkKey, None, false), (ParkKey, Some(KEY), true)]
    {
        let (mut policy, _) = policy_with(on_dead_letter, false);
        let attempts = Some(Attempts { count: 3, uncounted: 0, first_failed_unix_us: 5 });
        let earlier = Flight { extras: Extras::of(attempts, None), ..flight(FlightState::Sent) };
        let reason = Reason { class: "kafka.no", text: "it is refused", attempts: 2 };
        let cause = policy.cause(Some(&earlier), key, reason, earlier.position, now());
        assert_eq!((cause.attempts, cause.first_failed_unix_us), (5, 5));
        assert_eq!(cause.parks_key, parks_key, "{on_dead_letter:?} {key:?}");
        // WHEN the sink has taken it THEN later events of its key follow it, or do not
        let event = Outbound { topic: "orders", key, id: "e1", ..Outbound::default() };
        policy.dead_lettered(Some(&earlier), &event, cause, None);
        assert_eq!(policy.gate.is_open_to(&event), !parks_key);
    }
}

#[test]
fn an_event_that_stops_the_relay_is_counted_as_one_that_is_never_confirmed() {
    let (mut policy, _) = policy_with(OnDeadLetter::Halt, false);
    let (mut sink, mut flight) = (NotingSink::default(), flight(FlightState::Sent));
    let refused = failure(Disposition::Terminal, "kafka.no");
    let outcome = policy.failed(0, &mut flight, refused.clone(), &mut sink, now());
    assert_eq!(outcome.unwrap_err().code, "event.refused");
    assert_eq!(policy.unpublishable, 1);
    assert_eq!(policy.unable(&refused).code, "sink.unable");
    assert_eq!(policy.unpublishable, usize::MAX);
}

#[test]
fn suspects_are_forgotten_once_they_cannot_come_again() {
    let (mut policy, _) = policy_with(OnDeadLetter::Continue, false);
    policy.suspects.extend([7, 8, 9].map(at));
    policy.forget_suspects(lsn(8));
    assert!(policy.suspects.iter().eq(&[8, 9].map(at)));
}

#[test]
fn a_retry_that_is_confirmed_makes_room_for_another_one() {
    let (mut policy, _) = policy_with(OnDeadLetter::Continue, false);
    let (now, failed) = (now(), Attempts::none(0).failed());
    // GIVEN more events whose wait is over than may be retried at once
    for sequence in 0..200 {
        policy.retries.wait(sequence, failed, now.instant);
    }
    let later = now.instant + Duration::from_secs(60);
    while policy.retries.take_due(later, 0, true).is_some() {}
    // WHEN an event is confirmed that was never refused THEN that changes nothing
    policy.settled(flight(FlightState::Sent), now);
    assert_eq!(policy.retries.take_due(later, 0, true), None);
    let retried = Flight { extras: Extras::of(Some(failed), None), ..flight(FlightState::Sent) };
    policy.settled(retried, now);
    assert!(policy.retries.take_due(later, 0, true).is_some());
}

#[test]
fn a_span_ends_with_its_event_and_says_how_often_that_was_tried_again() {
    let ended = Arc::<Mutex<Vec<FinishedSpan>>>::default();
    let export = Arc::clone(&ended);
    let (mut policy, _) = policy_with(OnDeadLetter::Continue, false);
    let export = move |span| export.lock().unwrap().push(span);
    policy.spans = EventSpans::new(1.0, Box::new(export), 1);
    let attempts = Some(Attempts::none(0).failed());
    for (state, attempts) in [(FlightState::Sent, attempts), (dead_letter(), None)] {
        let event = Outbound { topic: "orders", id: "e1", ..Outbound::default() };
        let span = policy.spans.begin(None, at(100), &event, 2_000).unwrap().span;
        policy.settled(Flight { extras: Extras::of(attempts, span), ..flight(state) }, now());
    }
    let ended = ended.lock().unwrap();
    let ends = ended.iter().map(|it| (it.retries, it.dead_letter.as_deref(), it.end_unix_us));
    assert!(ends.eq([(1, None, 9_000_000), (3, Some("kafka.no"), 9_000_000)]));
}
