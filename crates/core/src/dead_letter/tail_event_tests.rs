use super::*;
use crate::base::lsn::Lsn;
use crate::base::stop::{BREAKER_OPEN, Stop};
use crate::dead_letter::record::{
    PartitionOffset, RecordKey, Resolution, StopBody, StopRecordKind,
};

/// Later than everything that has failed.
const NOW: i64 = 1_000_000_000_000;

/// A log that is read record by record.
struct TailFixture {
    state: TailState,
    events: Vec<TailEvent>,
}

fn fixture(since_unix_us: i64) -> TailFixture {
    let mut state = TailState::new(LetterOwner::new("slot", Some("7")), since_unix_us);
    state.begin();
    TailFixture { state, events: Vec::new() }
}

impl TailFixture {
    fn letter(&mut self, letter: &DeadLetter) {
        let record = LogRecord::DeadLetter(Box::new(letter.clone()));
        self.state.read(&record, NOW, &mut self.events);
    }

    fn resolution(&mut self, letter: &DeadLetter, kind: ResolutionKind, offset: i64) {
        let position = PartitionOffset { offset, ..letter.position };
        let resolution = letter.resolution(kind, 0, "me", letter.failed_unix_us + 1);
        let record = LogRecord::Resolution(Resolution { position, ..resolution });
        self.state.read(&record, NOW, &mut self.events);
    }

    fn end(&mut self) -> bool {
        self.state.end(&mut self.events)
    }

    fn reported(&mut self) -> Vec<TailEvent> {
        std::mem::take(&mut self.events)
    }
}

fn stop(slot: &str, offset: i64) -> LogRecord {
    let stop = Stop { code: BREAKER_OPEN.to_owned(), ..Stop::default() };
    let body = StopBody { slot: slot.to_owned(), stop, ..StopBody::default() };
    let position = PartitionOffset { partition: 0, offset };
    LogRecord::Stop(Box::new(StopRecord { position, kind: StopRecordKind::Stopped, body }))
}

fn letter(id: &str, offset: i64, failed_unix_us: i64) -> DeadLetter {
    DeadLetter {
        position: PartitionOffset { partition: 0, offset },
        event_id: id.to_owned(),
        error_class: "unroutable".to_owned(),
        key: Some(RecordKey { bytes: b"k".to_vec(), uncut: None }),
        relay: "slot@host".to_owned(),
        lsn: "0/64".to_owned(),
        ordinal: offset as u64,
        failed_unix_us,
        ..DeadLetter::default()
    }
}

fn parks(id: &str, offset: i64, failed_unix_us: i64) -> DeadLetter {
    DeadLetter { parks_key: true, ..letter(id, offset, failed_unix_us) }
}

fn key() -> KeyHash {
    KeyHash::of(b"k")
}

/// The dead letter at this offset parks its key.
fn parked(offset: u64) -> TailEvent {
    TailEvent::Parked(key(), Position { commit_lsn: Lsn::from_wire(0x64), ordinal: offset })
}

#[test]
fn what_is_open_is_known_once_all_was_read() {
    let mut fixture = fixture(0);
    let (a, b) = (letter("a", 1, 10_000), letter("b", 2, 20_000));
    fixture.letter(&b);
    fixture.letter(&a);
    assert_eq!(fixture.state.open(), None);
    assert!(!fixture.end());
    assert_eq!(fixture.reported().last(), Some(&TailEvent::CaughtUp));
    assert_eq!(fixture.state.open(), Some((2, Some(10_000))));
    // WHEN the oldest is resolved THEN the next one is the oldest
    fixture.resolution(&a, ResolutionKind::Discarded, 3);
    assert_eq!(fixture.state.open(), Some((1, Some(20_000))));
    fixture.resolution(&b, ResolutionKind::Replayed, 4);
    assert_eq!(fixture.state.open(), Some((0, None)));
    fixture.letter(&letter("c", 5, 5_000));
    assert_eq!(fixture.state.open(), Some((1, Some(5_000))));
}

#[test]
fn recent_letters_of_an_earlier_process_are_told_once_each() {
    let mut fixture = fixture(100);
    fixture.letter(&letter("old", 1, 99));
    fixture.letter(&letter("a", 2, 100));
    // A kill repeats the letter, and what was parked is no sign of anything new.
    fixture.letter(&DeadLetter { ordinal: 2, ..letter("a", 3, 130) });
    fixture.letter(&DeadLetter { error_class: CLASS_PARKED.to_owned(), ..letter("p", 4, 140) });
    let told = TailEvent::DeadLetter { failed_unix_us: 100, class: "unroutable".to_owned() };
    assert_eq!(fixture.reported(), [told]);
    // WHEN it has caught up THEN the letters are our own
    assert!(!fixture.end());
    fixture.letter(&letter("b", 5, 200));
    assert_eq!(fixture.reported(), [TailEvent::CaughtUp]);
    assert!(fixture.state.caught_up());
    // WHEN a peer has had the slot THEN they are told anew, from a later time on
    fixture.state.count_again(150);
    assert!(!fixture.state.caught_up());
    fixture.letter(&letter("a", 2, 100));
    fixture.letter(&letter("b", 5, 200));
    let told = TailEvent::DeadLetter { failed_unix_us: 200, class: "unroutable".to_owned() };
    assert_eq!(fixture.reported(), [told]);
}

#[test]
fn the_end_of_the_reader_is_told_once_and_behind_what_it_has_read() {
    let (reader, events) = channel();
    reader.send(TailEvent::CaughtUp).unwrap();
    drop(reader);
    let told: Vec<_> = waiting(&events).collect();
    let ended = TailEvent::Unreadable("its reader has ended".to_owned());
    assert_eq!(told, [TailEvent::CaughtUp, ended]);
}

#[test]
fn keys_are_parked_by_each_letter_and_released() {
    let mut fixture = fixture(1_000);
    let a = parks("a", 1, 10);
    fixture.letter(&a);
    fixture.letter(&parks("b", 2, 20));
    fixture.letter(&DeadLetter { key: None, ..parks("c", 3, 30) });
    fixture.resolution(&a, ResolutionKind::Replayed, 4);
    fixture.resolution(&a, ResolutionKind::Released, 5);
    assert_eq!(fixture.reported(), [parked(1), parked(2), TailEvent::Released(key())]);
    // WHEN one does not say where it stood THEN it stands before all
    fixture.letter(&DeadLetter { lsn: String::new(), ordinal: 0, ..parks("d", 6, 40) });
    assert_eq!(fixture.reported(), [TailEvent::Parked(key(), Position::default())]);
}

#[test]
fn a_release_frees_no_key_that_was_parked_since_in_another_partition() {
    // GIVEN a key that was parked and released, and parked again when the topic had more partitions
    let a = parks("a", 1, 10);
    let position = PartitionOffset { partition: 3, offset: 0 };
    let b = DeadLetter { position, ..parks("b", 2, 30) };
    let released = |fixture: &mut TailFixture| fixture.resolution(&a, ResolutionKind::Released, 2);
    let [first, second] = [parked(1), parked(2)];
    // WHEN the new partition is read last, first, or in between
    let mut fixture = fixture(1_000);
    fixture.letter(&a);
    released(&mut fixture);
    fixture.letter(&b);
    assert_eq!(fixture.reported(), [first.clone(), TailEvent::Released(key()), second.clone()]);
    for turned in [false, true] {
        let mut fixture = self::fixture(1_000);
        let [one, other] = if turned { [&b, &a] } else { [&a, &b] };
        fixture.letter(one);
        fixture.letter(other);
        released(&mut fixture);
        // THEN it stays parked
        assert_eq!(fixture.reported().len(), 2, "{turned}");
    }
    // WHEN the reading breaks off behind the new partition THEN also where that comes last then
    let mut fixture = self::fixture(1_000);
    fixture.letter(&b);
    fixture.state.begin();
    fixture.letter(&a);
    released(&mut fixture);
    fixture.letter(&b);
    assert_eq!(fixture.reported(), [second, first]);
    assert!(!fixture.end());
    // WHEN a release that is earlier than the second one comes last of all THEN it frees nothing
    fixture.resolution(&a, ResolutionKind::Released, 3);
    assert_eq!(fixture.reported(), [TailEvent::CaughtUp]);
    // WHEN it is released behind both THEN it is free
    fixture.resolution(&b, ResolutionKind::Released, 1);
    assert_eq!(fixture.reported(), [TailEvent::Released(key())]);
    // WHEN a dead letter is read behind a release that is later THEN it is told, and the key is free
    let position = PartitionOffset { partition: 5, offset: 0 };
    fixture.letter(&DeadLetter { position, ..parks("c", 7, 20) });
    assert_eq!(fixture.reported(), [parked(7), TailEvent::Released(key())]);
}

#[test]
fn of_relays_that_share_the_topic_only_the_releases_are_heard() {
    let mut fixture = fixture(0);
    let other = DeadLetter { relay: "slot2@host".to_owned(), ..parks("a", 1, 10_000) };
    fixture.letter(&other);
    fixture.resolution(&other, ResolutionKind::Released, 2);
    assert_eq!(fixture.reported(), [TailEvent::Released(key())]);
    assert!(!fixture.end());
    assert_eq!(fixture.state.open(), Some((1, Some(10_000))), "it is open all the same");
}

#[test]
fn another_reading_tells_only_what_is_new() {
    // GIVEN a key that was parked, released, and parked again
    let mut fixture = fixture(0);
    let (a, b) = (parks("a", 1, 10_000), parks("b", 3, 30_000));
    fixture.letter(&a);
    fixture.resolution(&a, ResolutionKind::Released, 2);
    fixture.letter(&b);
    assert!(!fixture.end());
    fixture.reported();
    // WHEN the reading breaks off twice, the second time on its way
    fixture.state.begin();
    fixture.letter(&a);
    assert_eq!(fixture.state.open(), None);
    fixture.state.begin();
    fixture.letter(&a);
    fixture.resolution(&a, ResolutionKind::Released, 2);
    fixture.letter(&b);
    // THEN the old release is not told, and what was written meanwhile is
    assert_eq!(fixture.reported(), []);
    fixture.resolution(&b, ResolutionKind::Released, 4);
    assert_eq!(fixture.reported(), [TailEvent::Released(key())]);
    assert!(!fixture.end());
    assert_eq!(fixture.reported(), [], "it has caught up before");
    assert_eq!(fixture.state.open(), Some((2, Some(10_000))));
}

#[test]
fn readings_that_break_off_further_and_further_on_tell_each_letter_once() {
    let mut fixture = fixture(0);
    let letters = [1, 2, 3].map(|offset: i64| parks(&offset.to_string(), offset, 10_000));
    for further in 1..=letters.len() {
        fixture.state.begin();
        letters[..further].iter().for_each(|letter| fixture.letter(letter));
        let told = fixture.reported();
        assert!(matches!(told[..], [TailEvent::DeadLetter { .. }, TailEvent::Parked(..)]));
    }
}

#[test]
fn a_topic_that_was_made_anew_is_heard_again() {
    let mut fixture = fixture(0);
    let a = parks("a", 700, 10);
    fixture.letter(&a);
    fixture.resolution(&a, ResolutionKind::Released, 701);
    assert!(!fixture.end());
    fixture.reported();
    assert_eq!(fixture.state.open(), Some((1, Some(0))));
    // GIVEN an empty topic under the same name
    fixture.state.begin();
    assert!(!fixture.end());
    assert_eq!(fixture.state.open(), Some((0, None)));
    fixture.letter(&parks("b", 0, 20));
    assert_eq!(fixture.reported(), [parked(0)]);
    // GIVEN one that is not empty, and shorter WHEN it is read THEN it must be read once more
    fixture.letter(&parks("c", 9, 30));
    fixture.reported();
    fixture.state.begin();
    let d = parks("d", 0, 40);
    fixture.letter(&d);
    fixture.resolution(&d, ResolutionKind::Released, 1);
    assert_eq!((fixture.end(), fixture.reported()), (true, Vec::new()));
    fixture.state.begin();
    fixture.letter(&d);
    fixture.resolution(&d, ResolutionKind::Released, 1);
    assert_eq!(fixture.reported(), [parked(0), TailEvent::Released(key())]);
    assert!(!fixture.end());
}

#[test]
fn what_another_system_has_written_is_not_reported() {
    // GIVEN services whose slots have one name, on two database systems
    let mut fixture = fixture(0);
    let of_system =
        |system: &str, letter: DeadLetter| DeadLetter { system: system.to_owned(), ..letter };
    fixture.letter(&of_system("8", parks("theirs", 0, 10)));
    fixture.resolution(&of_system("8", parks("theirs", 0, 10)), ResolutionKind::Released, 1);
    assert_eq!(fixture.reported(), []);
    // WHEN this one writes, too, or nobody says who THEN that is reported
    fixture.letter(&of_system("7", parks("ours", 2, 10)));
    fixture.letter(&parks("of an earlier version", 3, 10));
    assert_eq!(fixture.reported().len(), 4);
    fixture.resolution(&of_system("8", parks("theirs", 0, 10)), ResolutionKind::Released, 4);
    assert_eq!(fixture.reported(), []);
    fixture.resolution(&of_system("7", parks("ours", 2, 10)), ResolutionKind::Released, 5);
    assert_eq!(fixture.reported(), [TailEvent::Released(key())]);
}

#[test]
fn what_is_yet_to_fail_does_not_count() {
    let mut fixture = fixture(0);
    // A clock that is a little ahead is believed, as of now.
    fixture.letter(&letter("a", 0, NOW + 1_000_000));
    let class = "unroutable".to_owned();
    assert_eq!(fixture.reported(), [TailEvent::DeadLetter { failed_unix_us: NOW, class }]);
    fixture.letter(&letter("b", 1, NOW + 3_600_000_000));
    assert_eq!(fixture.reported(), []);
}

#[test]
fn a_stop_that_a_peer_wrote_is_reported_when_the_topic_is_read_again() {
    let mut fixture = fixture(0);
    assert!(!fixture.end());
    fixture.reported();
    // GIVEN a stop that a peer has written, and that a relay in standby has read at once
    let stopped = |fixture: &mut TailFixture| {
        let [ours, other] = [stop("slot", 1), stop("other", 2)];
        fixture.state.read(&ours, NOW, &mut fixture.events);
        fixture.state.read(&other, NOW, &mut fixture.events);
    };
    stopped(&mut fixture);
    assert_eq!(fixture.reported(), []);
    // WHEN it has taken over THEN it hears of that one
    fixture.state.count_again(0);
    fixture.state.begin();
    stopped(&mut fixture);
    let [TailEvent::Stop(record)] = &fixture.reported()[..] else { panic!("one stop") };
    assert_eq!((record.body.slot.as_str(), record.position.offset), ("slot", 1));
    // WHEN the reading breaks off THEN not twice
    fixture.state.begin();
    stopped(&mut fixture);
    assert_eq!(fixture.reported(), []);
    // WHEN it takes over once more THEN it hears of it again
    fixture.state.count_again(0);
    stopped(&mut fixture);
    assert_eq!(fixture.reported().len(), 1);
}
