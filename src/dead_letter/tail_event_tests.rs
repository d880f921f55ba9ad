use super::*;
use crate::base::lsn::Lsn;
use crate::dead_letter::record::{LetterKey, PartitionOffset, Resolution};

/// A log that is read record by record.
struct Stage {
    state: TailState,
    events: Vec<TailEvent>,
}

fn stage(since_unix_us: i64) -> Stage {
    let mut state = TailState::new("slot", since_unix_us);
    state.begin();
    Stage { state, events: Vec::new() }
}

impl Stage {
    fn letter(&mut self, letter: &DeadLetter) {
        let record = LogRecord::DeadLetter(Box::new(letter.clone()));
        self.state.read(&record, &mut self.events);
    }

    fn resolution(&mut self, letter: &DeadLetter, kind: ResolutionKind, offset: i64) {
        let position = PartitionOffset { offset, ..letter.position };
        let resolution = letter.resolution(kind, 0, "me", letter.failed_unix_us + 1);
        let record = LogRecord::Resolution(Resolution { position, ..resolution });
        self.state.read(&record, &mut self.events);
    }

    fn reported(&mut self) -> Vec<TailEvent> {
        std::mem::take(&mut self.events)
    }
}

fn letter(id: &str, offset: i64, failed_unix_us: i64) -> DeadLetter {
    DeadLetter {
        position: PartitionOffset { partition: 0, offset },
        event_id: id.to_owned(),
        error_class: "unroutable".to_owned(),
        key: Some(LetterKey { bytes: b"k".to_vec(), uncut: None }),
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

/// By the letter that stands there.
fn parked(offset: u64) -> TailEvent {
    TailEvent::Parked(key(), Position { commit_lsn: Lsn::from_wire(0x64), ordinal: offset })
}

#[test]
fn what_is_open_is_known_once_all_was_read() {
    let mut stage = stage(0);
    let (a, b) = (letter("a", 1, 10_000), letter("b", 2, 20_000));
    stage.letter(&b);
    stage.letter(&a);
    assert_eq!(stage.state.open(), None);
    assert_eq!(stage.state.end(), TailEnd::CaughtUp);
    assert_eq!(stage.state.open(), Some((2, Some(10_000))));
    // WHEN the oldest is resolved THEN the next one is the oldest
    stage.resolution(&a, ResolutionKind::Discarded, 3);
    assert_eq!(stage.state.open(), Some((1, Some(20_000))));
    stage.resolution(&b, ResolutionKind::Replayed, 4);
    assert_eq!(stage.state.open(), Some((0, None)));
    stage.letter(&letter("c", 5, 5));
    assert_eq!(stage.state.open(), Some((1, Some(5))));
}

#[test]
fn recent_letters_of_an_earlier_process_are_told_once_each() {
    let mut stage = stage(100);
    stage.letter(&letter("old", 1, 99));
    stage.letter(&letter("a", 2, 100));
    // A kill repeats the letter, and what was parked is no sign of anything new.
    stage.letter(&DeadLetter { ordinal: 2, ..letter("a", 3, 130) });
    stage.letter(&DeadLetter { error_class: CLASS_PARKED.to_owned(), ..letter("p", 4, 140) });
    let told = TailEvent::Letter { failed_unix_us: 100, class: "unroutable".to_owned() };
    assert_eq!(stage.reported(), [told]);
    // WHEN it has caught up THEN the letters are our own
    assert_eq!(stage.state.end(), TailEnd::CaughtUp);
    stage.letter(&letter("b", 5, 200));
    assert_eq!(stage.reported(), []);
}

#[test]
fn keys_are_parked_by_each_letter_and_released() {
    let mut stage = stage(1_000);
    let a = parks("a", 1, 10);
    stage.letter(&a);
    stage.letter(&parks("b", 2, 20));
    stage.letter(&DeadLetter { key: None, ..parks("c", 3, 30) });
    stage.resolution(&a, ResolutionKind::Replayed, 4);
    stage.resolution(&a, ResolutionKind::Released, 5);
    assert_eq!(stage.reported(), [parked(1), parked(2), TailEvent::Released(key())]);
    // WHEN one does not say where it stood THEN it stands before all
    stage.letter(&DeadLetter { lsn: String::new(), ordinal: 0, ..parks("d", 6, 40) });
    assert_eq!(stage.reported(), [TailEvent::Parked(key(), Position::default())]);
}

#[test]
fn of_relays_that_share_the_topic_only_the_releases_are_heard() {
    let mut stage = stage(0);
    let other = DeadLetter { relay: "slot2@host".to_owned(), ..parks("a", 1, 10) };
    stage.letter(&other);
    stage.resolution(&other, ResolutionKind::Released, 2);
    assert_eq!(stage.reported(), [TailEvent::Released(key())]);
    assert_eq!(stage.state.end(), TailEnd::CaughtUp);
    assert_eq!(stage.state.open(), Some((1, Some(10))), "it is open all the same");
}

#[test]
fn another_reading_tells_only_what_is_new() {
    // GIVEN a key that was parked, released, and parked again
    let mut stage = stage(0);
    let (a, b) = (parks("a", 1, 10), parks("b", 3, 30));
    stage.letter(&a);
    stage.resolution(&a, ResolutionKind::Released, 2);
    stage.letter(&b);
    assert_eq!(stage.state.end(), TailEnd::CaughtUp);
    stage.reported();
    // WHEN the reading breaks off twice, the second time on its way
    stage.state.begin();
    stage.letter(&a);
    assert_eq!(stage.state.open(), None);
    stage.state.begin();
    stage.letter(&a);
    stage.resolution(&a, ResolutionKind::Released, 2);
    stage.letter(&b);
    // THEN the old release is not told, and what was written meanwhile is
    assert_eq!(stage.reported(), []);
    stage.resolution(&b, ResolutionKind::Released, 4);
    assert_eq!(stage.reported(), [TailEvent::Released(key())]);
    assert_eq!(stage.state.end(), TailEnd::Again);
    assert_eq!(stage.state.open(), Some((2, Some(10))));
}

#[test]
fn a_topic_that_was_made_anew_is_heard_again() {
    let mut stage = stage(0);
    stage.letter(&parks("a", 700, 10));
    assert_eq!(stage.state.end(), TailEnd::CaughtUp);
    stage.reported();
    // GIVEN an empty topic under the same name
    stage.state.begin();
    assert_eq!(stage.state.end(), TailEnd::Again);
    assert_eq!(stage.state.open(), Some((0, None)));
    stage.letter(&parks("b", 0, 20));
    assert_eq!(stage.reported(), [parked(0)]);
    // GIVEN one that is not empty, and shorter WHEN it is read THEN it must be read once more
    stage.letter(&parks("c", 9, 30));
    stage.reported();
    stage.state.begin();
    let d = parks("d", 0, 40);
    stage.letter(&d);
    stage.resolution(&d, ResolutionKind::Released, 1);
    assert_eq!((stage.state.end(), stage.reported()), (TailEnd::Replaced, Vec::new()));
    stage.state.begin();
    stage.letter(&d);
    stage.resolution(&d, ResolutionKind::Released, 1);
    assert_eq!(stage.reported(), [parked(0), TailEvent::Released(key())]);
    assert_eq!(stage.state.end(), TailEnd::Again);
}
