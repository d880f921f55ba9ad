use std::sync::Mutex;

use super::*;
use crate::base::lsn::Lsn;
use crate::base::stop::{BREAKER_OPEN, Stop};
use crate::dead_letter::record::{StopBody, StopRecord};
use crate::dead_letter::writer::{DeadLetterSettings, KeyHash};
use crate::relay::stops::tests::Site;
use crate::relay::surroundings::Facts;
use crate::testing;

const KEY: &[u8] = b"k1";

struct Scene {
    on_dead_letter: OnDeadLetter,
    /// Where a stop over a gap would be kept.
    place: Place,
    waits_for_topic: bool,
    is_read: bool,
    burst_max: usize,
}

const SCENE: Scene = Scene {
    on_dead_letter: OnDeadLetter::Continue,
    place: Place::Topic,
    waits_for_topic: false,
    is_read: true,
    burst_max: 100,
};

impl Scene {
    fn gate(&self) -> (DeadLetterGate, Arc<StandingStops>) {
        self.gate_with(&Arc::default())
    }

    fn gate_with(&self, shown: &Arc<Mutex<Facts>>) -> (DeadLetterGate, Arc<StandingStops>) {
        let delivery =
            DeliverySettings { on_dead_letter: self.on_dead_letter, ..DeliverySettings::default() };
        let settings = DeadLetterSettings { burst_max: self.burst_max, ..Default::default() };
        let writer = DeadLetterWriter { settings, ..testing::dead_letter_writer(0) };
        let Scene { place, waits_for_topic, is_read, .. } = *self;
        let (has_file, has_topic) = (place == Place::StateFile, place == Place::Topic);
        let stops = Arc::new(Site::new().stops(has_file, has_topic, !waits_for_topic));
        let meters: Arc<dyn Meters> = Arc::clone(shown) as Arc<dyn Meters>;
        let requests = ReadRequests::default();
        let keeper = Arc::clone(&stops);
        (DeadLetterGate::new(&delivery, writer, is_read, requests, &meters, keeper), stops)
    }
}

fn cause(failed_unix_us: i64) -> DeadLetterCause {
    DeadLetterCause { failed_unix_us, ..testing::cause("kafka.invalid-record") }
}

/// A dead letter of an earlier process.
fn letter(failed_unix_us: i64) -> TailEvent {
    TailEvent::DeadLetter { failed_unix_us, class: "kafka.invalid-record".to_owned() }
}

fn stop(kind: StopRecordKind, code: &str, unix_us: i64) -> TailEvent {
    let stop = Stop { code: code.to_owned(), since_unix_us: 5, ..Stop::default() };
    TailEvent::Stop(Box::new(StopRecord::new(
        kind,
        StopBody { stop, unix_us, ..Default::default() },
    )))
}

/// The topic cannot be read.
fn forbidden() -> TailEvent {
    TailEvent::Unreadable("not authorized".to_owned())
}

fn silent() -> TailEvent {
    TailEvent::Silent("it has no leader".to_owned())
}

fn event() -> Outbound<'static> {
    Outbound { topic: "orders", key: Some(KEY), id: "e1", ..Outbound::default() }
}

fn code(outcome: Result<bool, Fault>) -> Result<bool, &'static str> {
    outcome.map_err(|fault| fault.code)
}

#[test]
fn events_wait_for_the_topic_only_where_it_has_what_they_must_know() {
    use OnDeadLetter::{Continue, Halt, ParkKey};
    for (on_dead_letter, waits_for_topic, is_read, admits) in [
        (Continue, false, true, true),
        (Continue, true, true, false),
        (Continue, true, false, true),
        (ParkKey, false, true, false),
        (ParkKey, false, false, true),
        (Halt, true, true, true),
    ] {
        let scene = Scene { on_dead_letter, waits_for_topic, is_read, ..SCENE };
        let (mut gate, _) = scene.gate();
        let case = (on_dead_letter, waits_for_topic, is_read);
        assert_eq!(gate.admits(), admits, "{case:?}");
        gate.on_tail_event(TailEvent::CaughtUp, 0).unwrap();
        assert!(gate.admits(), "{case:?}: it was read");
        assert!(!gate.awaits_history());
    }
}

#[test]
fn a_dead_letter_that_can_never_be_replayed_is_not_recommended_for_a_replay() {
    let refused = cause(10);
    let incomplete = DeadLetterCause { incomplete: true, ..cause(10) };
    let class = CLASS_DEAD_LETTER_TOPIC.to_owned();
    let misrouted = DeadLetterCause { class, ..cause(10) };
    for (cause, is_replayed) in [(refused, true), (incomplete, false), (misrouted, false)] {
        let told = help(&cause);
        assert_eq!(told.contains("dlq replay ID"), is_replayed, "{told}");
        assert_eq!(told.contains("dlq discard ID"), !is_replayed, "{told}");
    }
}

#[test]
fn a_topic_of_which_nothing_comes_holds_dead_letters_and_parked_keys_and_nothing_else() {
    for (on_dead_letter, admits) in [(OnDeadLetter::Continue, true), (OnDeadLetter::ParkKey, false)]
    {
        let (mut gate, _) = Scene { on_dead_letter, waits_for_topic: true, ..SCENE }.gate();
        gate.on_tail_event(silent(), 0).unwrap();
        assert_eq!(gate.admits(), admits);
        assert_eq!(code(gate.allow(&cause(10), true)), Ok(false));
        gate.on_tail_event(TailEvent::CaughtUp, 0).unwrap();
        assert!(gate.admits());
        assert_eq!(code(gate.allow(&cause(10), true)), Ok(true));
    }
}

#[test]
fn after_a_takeover_the_topic_is_read_again_and_only_parked_keys_hold_events() {
    for (on_dead_letter, admits) in [(OnDeadLetter::Continue, true), (OnDeadLetter::ParkKey, false)]
    {
        // GIVEN a relay that has read the topic
        let (mut gate, _) = Scene { on_dead_letter, waits_for_topic: true, ..SCENE }.gate();
        gate.on_tail_event(TailEvent::CaughtUp, 0).unwrap();
        // WHEN a peer has had the slot
        gate.read_again();
        // THEN the end of the earlier reading does not count
        gate.on_tail_event(TailEvent::CaughtUp, 0).unwrap();
        assert_eq!(gate.admits(), admits);
        assert_eq!(code(gate.allow(&cause(10), true)), Ok(false));
        gate.on_tail_event(TailEvent::ReadsAgain(0), 0).unwrap();
        gate.on_tail_event(TailEvent::CaughtUp, 0).unwrap();
        assert_eq!(
            code(gate.allow(&cause(10), true)),
            Ok(false),
            "not the request of this session"
        );
        gate.on_tail_event(TailEvent::ReadsAgain(1), 0).unwrap();
        gate.on_tail_event(TailEvent::CaughtUp, 0).unwrap();
        assert!(gate.admits());
        assert_eq!(code(gate.allow(&cause(10), true)), Ok(true));
    }
}

#[test]
fn dead_letters_of_earlier_processes_count_until_somebody_has_acknowledged_them() {
    use StopRecordKind::{Resumed, Stopped};
    let open = Err(BREAKER_OPEN);
    for (kind, of, unix_us, allowed) in [
        (None, BREAKER_OPEN, 0, open),
        // Those that failed later by a clock that is ahead are acknowledged as well.
        (Some(Resumed), BREAKER_OPEN, 10, Ok(true)),
        (Some(Resumed), BREAKER_OPEN, 60, Ok(true)),
        (Some(Resumed), "slot.moved", 60, open),
    ] {
        let (mut gate, _) = Scene { burst_max: 2, ..SCENE }.gate();
        gate.on_tail_event(letter(20), 100).unwrap();
        gate.on_tail_event(letter(30), 100).unwrap();
        kind.into_iter().for_each(|kind| gate.on_tail_event(stop(kind, of, unix_us), 100).unwrap());
        gate.on_tail_event(TailEvent::CaughtUp, 100).unwrap();
        assert_eq!(code(gate.allow(&cause(40), true)), allowed, "{kind:?} {of} {unix_us}");
    }
    // Earlier ones that are read later, out of another partition, are acknowledged as well.
    let (mut gate, _) = Scene { burst_max: 2, ..SCENE }.gate();
    for event in [stop(Resumed, BREAKER_OPEN, 60), letter(20), letter(30), TailEvent::CaughtUp] {
        gate.on_tail_event(event, 100).unwrap();
    }
    assert_eq!(code(gate.allow(&cause(40), true)), Ok(true));
    // A stop that stands keeps what has led to it.
    let (mut gate, _) = Scene { burst_max: 2, ..SCENE }.gate();
    gate.on_tail_event(letter(20), 100).unwrap();
    gate.on_tail_event(letter(30), 100).unwrap();
    gate.on_tail_event(stop(Stopped, BREAKER_OPEN, 40), 100).unwrap();
    assert!(gate.on_tail_event(TailEvent::CaughtUp, 100).is_err());
    assert_eq!(code(gate.allow(&cause(50), true)), open);
}

#[test]
fn what_was_read_once_acknowledges_nothing_that_this_process_has_written_since() {
    // GIVEN as many dead letters as may be written, and a peer that has had the slot
    let (mut gate, _) = Scene { burst_max: 2, ..SCENE }.gate();
    gate.on_tail_event(TailEvent::CaughtUp, 100).unwrap();
    for failed_unix_us in [40, 50] {
        let cause = cause(failed_unix_us);
        assert_eq!(code(gate.allow(&cause, true)), Ok(true));
        gate.note_dead_letter(Some(KEY), "orders", &cause, None);
    }
    gate.read_again();
    // WHEN a record of the earlier reading comes THEN they count further
    gate.on_tail_event(stop(StopRecordKind::Resumed, BREAKER_OPEN, 70), 100).unwrap();
    gate.on_tail_event(forbidden(), 100).unwrap();
    assert_eq!(code(gate.allow(&cause(60), true)), Err(BREAKER_OPEN));
}

#[test]
fn what_was_read_counts_once_and_only_as_long_as_the_topic_has_it() {
    // GIVEN a topic that is read for the second time, and of which not all is there any more
    let (mut gate, _) = Scene { burst_max: 3, ..SCENE }.gate();
    let read = |gate: &mut DeadLetterGate, event| gate.on_tail_event(event, 100).unwrap();
    [letter(40), letter(50)].into_iter().for_each(|it| read(&mut gate, it));
    read(&mut gate, stop(StopRecordKind::Stopped, "slot.moved", 60));
    gate.read_again();
    read(&mut gate, TailEvent::ReadsAgain(1));
    [letter(40), letter(50)].into_iter().for_each(|it| read(&mut gate, it));
    // THEN no stop is found, and there is room for one more dead letter
    read(&mut gate, TailEvent::CaughtUp);
    assert_eq!(code(gate.allow(&cause(60), true)), Ok(true));
}

#[test]
fn a_stop_that_belongs_to_the_state_file_is_kept_before_the_relay_has_ended() {
    let (gate, stops) = Scene { place: Place::StateFile, ..SCENE }.gate();
    let fault = Fault::new(Exit::Slot, "slot.moved", "somebody has moved it", "", "");
    gate.keep_stop_early(&fault.standing(Lsn::ZERO, Lsn::ZERO));
    assert_eq!(stops.standing().map(|(_, place)| place), Some(Place::StateFile));
}

#[test]
fn a_stop_in_the_topic_stops_this_process_and_an_open_breaker_stays_open() {
    for (of, allowed) in [(BREAKER_OPEN, Err(BREAKER_OPEN)), ("slot.moved", Ok(true))] {
        let (mut gate, stops) = SCENE.gate();
        gate.on_tail_event(stop(StopRecordKind::Stopped, of, 10), 100).unwrap();
        let fault = gate.on_tail_event(TailEvent::CaughtUp, 100).unwrap_err();
        assert_eq!(fault.code, of);
        assert_eq!(stops.standing().map(|(stop, _)| stop.code).as_deref(), Some(of));
        assert_eq!(code(gate.allow(&cause(50), true)), allowed);
    }
}

#[test]
fn a_topic_that_cannot_be_read_stops_only_a_relay_that_parks_keys() {
    let (mut gate, _) = Scene { on_dead_letter: OnDeadLetter::ParkKey, ..SCENE }.gate();
    let fault = gate.on_tail_event(forbidden(), 0).unwrap_err();
    assert_eq!(fault.code, "dead-letter.unreadable");
    let (mut gate, stops) = Scene { waits_for_topic: true, ..SCENE }.gate();
    gate.on_tail_event(forbidden(), 0).unwrap();
    assert!(gate.admits());
    assert_eq!(code(gate.allow(&cause(10), true)), Ok(true));
    // A stop is kept in it only while it can be read.
    assert_eq!(stops.place_of_gaps(), Place::Nowhere);
    gate.on_tail_event(TailEvent::CaughtUp, 0).unwrap();
    assert_eq!(stops.place_of_gaps(), Place::Topic);
}

#[test]
fn a_parked_key_is_closed_until_its_release_is_read() {
    let event = event();
    let position = |commit| Position { commit_lsn: Lsn::from_wire(commit), ordinal: 0 };
    let class = |gate: &DeadLetterGate, commit| {
        gate.divert(&event, position(commit)).map(|(class, _)| class)
    };
    let (mut gate, _) = Scene { on_dead_letter: OnDeadLetter::ParkKey, ..SCENE }.gate();
    assert!(gate.is_open_to(&event));
    gate.on_tail_event(TailEvent::Parked(KeyHash::of(KEY), position(8)), 0).unwrap();
    assert!(!gate.is_open_to(&event));
    assert_eq!([class(&gate, 7), class(&gate, 8)], [None, Some(CLASS_PARKED)]);
    gate.on_tail_event(TailEvent::Released(KeyHash::of(KEY)), 0).unwrap();
    assert!(gate.is_open_to(&event));
    assert_eq!(class(&gate, 9), None);
    // An event whose route leads into the topic itself is never published there.
    let topic = gate.writer().settings.address.topic.clone();
    let event = Outbound { topic: &topic, ..event };
    assert!(!gate.is_open_to(&event));
    let diverted = gate.divert(&event, position(9)).map(|(class, _)| class);
    assert_eq!(diverted, Some(CLASS_DEAD_LETTER_TOPIC));
}

#[test]
fn too_many_dead_letters_open_the_breaker_but_none_that_follows_from_another_one() {
    let shown = Arc::<Mutex<Facts>>::default();
    let (mut gate, _) = Scene { burst_max: 1, ..SCENE }.gate_with(&shown);
    gate.on_tail_event(TailEvent::CaughtUp, 0).unwrap();
    let is_shown = |gate: &DeadLetterGate| {
        gate.update_breaker_gauge(20);
        shown.lock().unwrap().gauge(Gauge::BreakerOpen)
    };
    assert_eq!(is_shown(&gate), Some(0));
    let parked = DeadLetterCause { class: CLASS_PARKED.to_owned(), ..cause(9) };
    gate.note_dead_letter(Some(KEY), "orders", &parked, None);
    assert_eq!(code(gate.allow(&cause(10), true)), Ok(true));
    gate.note_dead_letter(Some(KEY), "orders", &cause(10), None);
    assert_eq!(code(gate.allow(&cause(11), true)), Err(BREAKER_OPEN));
    assert_eq!(is_shown(&gate), Some(1));
    // What was allowed before is written again, and what waits behind a parked key is.
    assert_eq!(code(gate.allow(&cause(11), false)), Ok(true));
    assert_eq!(code(gate.allow(&parked, true)), Ok(true));
}

#[test]
fn a_relay_that_halts_reads_nothing_and_publishes_also_to_the_topic() {
    let (mut gate, stops) = Scene { on_dead_letter: OnDeadLetter::Halt, ..SCENE }.gate();
    assert!(gate.halts());
    gate.on_tail_event(stop(StopRecordKind::Stopped, "slot.moved", 10), 0).unwrap();
    gate.on_tail_event(forbidden(), 0).unwrap();
    gate.on_tail_event(TailEvent::CaughtUp, 0).unwrap();
    assert_eq!(stops.standing(), None);
    let topic = gate.writer().settings.address.topic.clone();
    let event = Outbound { topic: &topic, ..event() };
    assert!(gate.is_open_to(&event));
    assert_eq!(gate.divert(&event, Position::default()), None);
}

#[test]
fn only_a_letter_that_follows_from_no_other_parks_its_key_where_keys_are_parked() {
    for (on_dead_letter, parks) in [
        (OnDeadLetter::Continue, false),
        (OnDeadLetter::ParkKey, true),
        (OnDeadLetter::Halt, false),
    ] {
        let (gate, _) = Scene { on_dead_letter, ..SCENE }.gate();
        assert_eq!(gate.parks("kafka.invalid-record"), parks);
        assert!(!gate.parks(CLASS_PARKED));
        assert_eq!(gate.halts(), on_dead_letter == OnDeadLetter::Halt);
    }
}

#[test]
fn a_publication_in_doubt_stops_unless_somebody_has_acknowledged_its_state() {
    let doubt = |digest: &str| PublicationInDoubt {
        fault: Fault::new(Exit::Source, "publication.gap", "rows may be missing", "", ""),
        digest: digest.to_owned(),
    };
    let outcome = |outcome: Result<(), Fault>| outcome.map_err(|fault| fault.code);
    let stops = Err("publication.gap");
    // A state file would have what was acknowledged, and it is asked elsewhere.
    let (mut gate, _) = Scene { place: Place::StateFile, ..SCENE }.gate();
    assert_eq!(outcome(gate.publication_in_doubt(doubt("d1"))), stops);
    let (mut gate, _) = Scene { place: Place::Nowhere, ..SCENE }.gate();
    assert_eq!(outcome(gate.publication_in_doubt(doubt("d1"))), Ok(()), "nobody could");
    for (digest, last, expected) in [
        ("d1", TailEvent::CaughtUp, Ok(())),
        ("d2", TailEvent::CaughtUp, stops),
        ("d2", forbidden(), Ok(())),
    ] {
        // GIVEN a topic in which the first state is acknowledged
        let (mut gate, _) = SCENE.gate();
        assert_eq!(outcome(gate.publication_in_doubt(doubt(digest))), Ok(()), "it is not read");
        let publication = Some("d1".to_owned());
        let body = StopBody { publication, ..Default::default() };
        let record = Box::new(StopRecord::new(StopRecordKind::Resumed, body));
        gate.on_tail_event(TailEvent::Stop(record), 0).unwrap();
        // WHEN it is read to its end, or cannot be
        let is_read = last == TailEvent::CaughtUp;
        assert_eq!(outcome(gate.on_tail_event(last, 0)), expected, "{digest}");
        // THEN a later session is judged at once
        if is_read {
            assert_eq!(outcome(gate.publication_in_doubt(doubt(digest))), expected, "{digest}");
        }
    }
}

#[test]
fn a_dead_letter_that_comes_again_parks_no_key_and_each_says_which_database_it_is_from() {
    let shown = Arc::<Mutex<Facts>>::default();
    let scene = Scene { on_dead_letter: OnDeadLetter::ParkKey, ..SCENE };
    let (mut gate, _) = scene.gate_with(&shown);
    let parked = || shown.lock().unwrap().gauge(Gauge::ParkedKeys);
    let cause = DeadLetterCause { parks_key: true, ..cause(10) };
    assert!(gate.note_dead_letter(Some(KEY), "orders", &cause, None));
    assert!(!gate.is_open_to(&event()));
    assert_eq!(parked(), Some(1));
    gate.forget_letters(&[cause.position]);
    assert!(gate.is_open_to(&event()));
    assert_eq!(parked(), Some(0));
    gate.on_tail_event(TailEvent::Parked(KeyHash::of(KEY), cause.position), 0).unwrap();
    assert_eq!(parked(), Some(1));
    gate.learn_system("7000");
    assert_eq!(gate.writer().system.get().as_deref(), Some("7000"));
}
