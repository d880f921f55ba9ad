use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::*;
use crate::base::clock::Moment;
use crate::base::event::TRACEPARENT;
use crate::base::template::Template;
use crate::delivery::settings::OnDeadLetter;
use crate::outbox::settings::{Columns, Messages};
use crate::relay::failure_policy::tests::{NotingSink, failure, policy_with};
use crate::relay::ports::Counter;
use crate::relay::read_back::tests::{answer, started};
use crate::relay::surroundings::{Facts, take_counts};
use crate::relay::testing::MemoryFile;
use crate::testing::lsn;
use crate::trace::event_spans::EventSpans;

const EVENT: &str = r#"{"id": "e1", "aggregateid": "k1", "payload": {}}"#;
const RESERVED: &str =
    r#"{"id": "e1", "aggregateid": "k1", "payload": {}, "headers": {"dlq-id": "1"}}"#;
const POSITION: Position = Position { commit_lsn: Lsn::from_wire(150), ordinal: 0 };
const DAY_US: i64 = 24 * 3600 * 1_000_000;

struct Still;

impl Clock for Still {
    fn now(&self) -> Moment {
        Moment { instant: Instant::now(), unix_us: DAY_US }
    }

    fn sleep(&self, _length: Duration) {}
}

/// A process that receives the first event of a transaction.
struct Scene {
    plan: MessagePlan,
    admitter: Admitter,
    policy: FailurePolicy,
    counted: Arc<Mutex<Facts>>,
    sink: NotingSink,
}

fn scene(state_file: StateFile, on_dead_letter: OnDeadLetter, preset: Preset) -> Scene {
    let topic = Template::parse("orders").unwrap();
    let route = Route { topic, preset, ..Route::default() };
    let messages = Messages { prefix: "outbox".to_owned(), columns: Columns::default(), route };
    let plan = MessagePlan::compile(&messages).unwrap();
    let source = SourceSettings { messages: Some(messages), ..SourceSettings::default() };
    let (policy, counted) = policy_with(on_dead_letter, false);
    let read_back = ReadBack::default();
    let mut admitter = Admitter::new(state_file, read_back, &source, "slot walrelay".to_owned());
    let session =
        SlotSession { confirmed: lsn(50), run: Some(1), peer_seen: true, unix_us: DAY_US };
    admitter.take_over(("1", 1), "slot", 0, session);
    admitter.transaction.begin(POSITION.commit_lsn, 50_000_000);
    admitter.begin(POSITION.commit_lsn);
    Scene { plan, admitter, policy, counted, sink: NotingSink::default() }
}

/// A process without a state file.
fn plain() -> Scene {
    scene(StateFile::default(), OnDeadLetter::Continue, Preset::Walrelay)
}

/// The next process of a machine.
fn next(file: &MemoryFile, on_dead_letter: OnDeadLetter) -> Scene {
    scene(file.open(), on_dead_letter, Preset::Walrelay)
}

impl Scene {
    fn offer(&mut self, content: &str) -> Result<Offered, Fault> {
        let candidate = Candidate::Message(&self.plan, Lsn::ZERO, content.as_bytes());
        let number =
            EventNumber { sequence: 0, position: POSITION, crash_ordinal: 0, earlier: None };
        self.admitter.offer(&candidate, number, &mut self.policy, &mut self.sink, &Still)
    }

    fn taken(&mut self, content: &str) -> Flight {
        match self.offer(content) {
            Ok(Offered::Taken(flight)) => flight,
            other => panic!("{other:?}"),
        }
    }

    /// Whether the event is known from the state file.
    fn is_known(&mut self) -> bool {
        matches!(self.offer(EVENT), Ok(Offered::Known(KnownFrom::StateFile, _)))
    }
}

/// A process publishes the event, which is confirmed and marked.
fn publish_first(file: &MemoryFile) {
    let mut first = next(file, OnDeadLetter::Continue);
    let flight = first.taken(EVENT);
    let marks = &mut first.admitter.state_file.marks;
    marks.push(flight.mark().expect("it is identified"));
    marks.write();
}

#[test]
fn events_are_identified_while_there_is_a_state_file_or_an_earlier_process_has_left_marks() {
    assert_eq!(plain().taken(EVENT).mark(), None);
    let file = MemoryFile::default();
    publish_first(&file);
    let mut second = next(&file, OnDeadLetter::Continue);
    assert!(second.is_known());
    // The marks have no later transaction.
    second.admitter.begin(lsn(151));
    assert!(!second.admitter.earlier.is_active());
}

#[test]
fn marks_that_are_forgotten_count_neither_in_this_process_nor_in_the_next_one() {
    let forgets: [fn(&mut Admitter); 2] =
        [Admitter::forget, |it| it.forget_marks_beside_peer(DAY_US)];
    for forget in forgets {
        let file = MemoryFile::default();
        publish_first(&file);
        let mut second = next(&file, OnDeadLetter::Continue);
        forget(&mut second.admitter);
        assert!(!second.is_known());
        drop(second);
        assert!(!next(&file, OnDeadLetter::Continue).is_known());
    }
}

#[test]
fn a_mark_that_its_topic_overrules_does_not_count_in_the_next_process_either() {
    let file = MemoryFile::default();
    publish_first(&file);
    // GIVEN a process that reads the topic, which was made anew
    let mut second = next(&file, OnDeadLetter::Continue);
    let (topics, end) = started();
    second.admitter.earlier.topics = topics;
    assert!(matches!(second.offer(EVENT), Ok(Offered::Held(IntakeHold::TopicUnread))));
    answer(&mut second.admitter.earlier.topics, &end, &[]);
    // WHEN it publishes the event, and dies before that is confirmed
    second.taken(EVENT);
    drop(second);
    // THEN the next one publishes it, although it does not read the topic
    assert!(!next(&file, OnDeadLetter::Continue).is_known());
}

#[test]
fn an_event_that_was_admitted_before_is_recalled_once_its_topic_was_read() {
    let mut scene = plain();
    let (topics, end) = started();
    scene.admitter.earlier.topics = topics;
    let recalls = |scene: &mut Scene, commit: u64| {
        let candidate = Candidate::Message(&scene.plan, Lsn::ZERO, EVENT.as_bytes());
        let position = Position { commit_lsn: lsn(commit), ordinal: 0 };
        scene.admitter.recalls(&candidate, position).unwrap()
    };
    assert!(recalls(&mut scene, 99), "it is of a transaction that is not looked for");
    assert!(!recalls(&mut scene, 150));
    answer(&mut scene.admitter.earlier.topics, &end, &[]);
    assert!(recalls(&mut scene, 150));
}

#[test]
fn an_event_on_which_three_processes_have_died_becomes_a_dead_letter_or_stops_the_relay() {
    use OnDeadLetter::{Continue, Halt};
    let file = MemoryFile::default();
    // A process that is killed after the sink has taken the event blames none.
    for _ in 0..4 {
        assert!(next(&file, Continue).taken(EVENT).dead_letter().is_none());
    }
    let die = |file: &MemoryFile| {
        for _ in 0..3 {
            next(file, Halt).admitter.state_file.crash.take_in_hand(0);
        }
    };
    die(&file);
    let flight = next(&file, Continue).taken(EVENT);
    let cause = flight.dead_letter().expect("it is given up");
    assert_eq!((cause.class.as_str(), cause.attempts), (CLASS_CRASH, 3));
    // WHEN a relay stops over it THEN the next process tries once more
    let file = MemoryFile::default();
    die(&file);
    assert_eq!(next(&file, Halt).offer(EVENT).unwrap_err().code, "event.unpublishable");
    assert!(next(&file, Halt).taken(EVENT).dead_letter().is_none());
}

#[test]
fn headers_of_reserved_names_are_counted_once_and_only_if_there_are_any() {
    let mut scene = plain();
    scene.taken(EVENT);
    scene.sink.refusal = Some(PublishError::QueueFull);
    assert!(matches!(scene.offer(RESERVED), Ok(Offered::Held(IntakeHold::SinkFull))));
    assert!(take_counts(&scene.counted).is_empty());
    scene.sink.refusal = None;
    scene.taken(RESERVED);
    assert_eq!(take_counts(&scene.counted), [(Counter::HeaderDropped, 1)]);
}

#[test]
fn an_event_that_the_sink_refuses_becomes_a_dead_letter_and_is_counted_once() {
    let mut scene = plain();
    let refusal = failure(Disposition::Terminal, "kafka.no");
    scene.sink.refusal = Some(PublishError::Failed(refusal));
    scene.sink.letter_refusal = Some(PublishError::QueueFull);
    assert!(matches!(scene.offer(EVENT), Ok(Offered::Held(IntakeHold::SinkFull))));
    assert!(take_counts(&scene.counted).is_empty());
    scene.sink.letter_refusal = None;
    let flight = scene.taken(EVENT);
    assert_eq!(flight.dead_letter().map(|cause| cause.attempts), Some(1));
    assert_eq!(take_counts(&scene.counted), [(Counter::UnknownAnswer, 1)]);
}

#[test]
fn a_sampled_event_keeps_its_span_and_gets_its_context_where_it_has_standard_headers() {
    for (preset, has_context) in [(Preset::Walrelay, true), (Preset::Debezium, false)] {
        let mut scene = scene(StateFile::default(), OnDeadLetter::Continue, preset);
        scene.policy.spans = EventSpans::new(1.0, Box::new(|_| {}), 1);
        assert!(scene.taken(EVENT).span().is_some());
        assert_eq!(scene.sink.headers.iter().any(|name| name == TRACEPARENT), has_context);
    }
}
