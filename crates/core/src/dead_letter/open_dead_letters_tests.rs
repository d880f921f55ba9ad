use proptest::prelude::*;

use super::super::fold::DeadLetterIndex;
use super::super::record::{DeadLetter, Resolution, ResolutionKind};
use super::*;
use crate::dead_letter::record::PartitionOffset;

const MS: i64 = 1_000;

fn letter(id: u32, partition: i32, offset: i64, failed_unix_us: i64) -> DeadLetter {
    let position = PartitionOffset { partition, offset };
    DeadLetter { position, event_id: id.to_string(), failed_unix_us, ..DeadLetter::default() }
}

fn opened(letter: &DeadLetter) -> LogRecord {
    LogRecord::DeadLetter(Box::new(letter.clone()))
}

fn resolved(
    letter: &DeadLetter,
    kind: ResolutionKind,
    position: PartitionOffset,
    at: i64,
) -> LogRecord {
    LogRecord::Resolution(Resolution { position, ..letter.resolution(kind, 1, "me", at) })
}

/// The bytes that the dead letters hold.
fn bytes(letters: &OpenDeadLetters) -> usize {
    let slots = (letters.open.capacity() + letters.resolved.capacity()) * 8 / 7;
    slots * (size_of::<(u64, Stamp)>() + 1)
}

/// Spread as hashes are.
fn id(n: u32) -> DeadLetterId {
    DeadLetterId([u64::from(n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15), 0])
}

#[test]
fn as_many_open_letters_as_are_known_take_less_than_20_mb_and_more_are_counted() {
    let mut letters = OpenDeadLetters::default();
    let count = u32::try_from(KNOWN_MAX).unwrap();
    let at = |n: u32| {
        let position = PartitionOffset { partition: 0, offset: i64::from(n) };
        RecordMark { position, unix_us: i64::from(n + 1) * MS }
    };
    for n in 0..count {
        assert!(letters.last(id(n)).is_none());
        letters.open(id(n), at(n));
    }
    let largest = bytes(&letters);
    assert!(largest < 20 << 20, "{largest} bytes");
    assert_eq!((letters.count(), letters.oldest_unix_us()), (KNOWN_MAX, Some(MS)));
    assert!(!letters.is_beyond());
    // THEN they are known
    assert!((0..count).step_by(7).all(|n| letters.last(id(n)).is_some_and(|(_, is_open)| is_open)));
    // WHEN there are more, which failed earlier, THEN they are counted, and take nothing
    let earlier = RecordMark { unix_us: 0, ..at(0) };
    for n in count..count + 1_000 {
        letters.open(id(n), earlier);
    }
    assert_eq!((letters.count(), bytes(&letters)), (KNOWN_MAX + 1_000, largest));
    assert!(letters.is_beyond());
    // WHEN one of them is resolved, open again and resolved again THEN it is one less
    let state = DeadLetterState::Replayed;
    assert!(letters.resolve(id(count), state, at(2 * count)));
    letters.open(id(count), earlier);
    assert!(letters.resolve(id(count), state, at(2 * count)));
    assert_eq!((letters.count(), letters.oldest_unix_us()), (KNOWN_MAX + 999, Some(0)));
    // WHEN all are resolved THEN none is left
    for n in count + 1..count + 1_000 {
        assert!(letters.resolve(id(n), state, at(2 * count)));
    }
    assert_eq!((letters.count(), letters.is_beyond()), (KNOWN_MAX, false));
    assert_eq!(letters.oldest_unix_us(), Some(MS));
    for n in 0..count {
        assert!(letters.resolve(id(n), state, at(2 * count)));
    }
    assert_eq!((letters.count(), letters.oldest_unix_us()), (0, None));
    assert!(bytes(&letters) < 4 << 20, "{} bytes", bytes(&letters));
}

#[test]
fn what_is_resolved_is_dropped() {
    let mut letters = OpenDeadLetters::default();
    let stays = letter(0, 0, 0, MS);
    letters.apply(&opened(&stays));
    let last = i64::try_from(RESOLVED_MAX + 1).unwrap();
    for n in 1..=last {
        let one = letter(u32::try_from(n).unwrap(), 0, 2 * n, n * MS);
        letters.apply(&opened(&one));
        let position = PartitionOffset { partition: 0, offset: 2 * n + 1 };
        letters.apply(&resolved(&one, ResolutionKind::Discarded, position, n * MS));
    }
    assert_eq!((letters.count(), letters.oldest_unix_us()), (1, Some(MS)));
    assert!(letters.resolved.len() <= 1);
}

#[test]
fn a_clock_that_is_late_does_not_keep_a_letter_open() {
    let mut letters = OpenDeadLetters::default();
    let one = letter(1, 3, 7, 9_000 * MS);
    letters.apply(&opened(&one));
    let early = resolved(
        &one,
        ResolutionKind::Replayed,
        PartitionOffset { partition: 3, offset: 8 },
        2 * MS,
    );
    assert_eq!(letters.apply(&early), Change::Resolved);
    // In another partition nothing but the time tells.
    assert_eq!(letters.apply(&opened(&letter(1, 4, 1, MS))), Change::Nothing);
    assert_eq!(letters.apply(&opened(&letter(1, 4, 2, 3 * MS))), Change::Opened);
}

#[test]
fn a_letter_of_a_time_that_has_too_many_bits_is_not_the_oldest() {
    let mut letters = OpenDeadLetters::default();
    letters.apply(&opened(&letter(1, 0, 0, i64::MAX)));
    letters.apply(&opened(&letter(2, 0, 1, 9_000 * MS)));
    assert_eq!(letters.oldest_unix_us(), Some(9_000 * MS));
}

proptest! {
    /// The commands and a relay must say the same of one log.
    #[test]
    fn it_says_what_the_fold_says(
        steps in proptest::collection::vec((0..12_u32, 0..3_i32, 0..4_u8, 0..50_i64), 0..200),
    ) {
        let (mut letters, mut fold) = (OpenDeadLetters::default(), DeadLetterIndex::default());
        for (offset, (id, partition, what, at)) in steps.into_iter().enumerate() {
            let position = PartitionOffset { partition, offset: i64::try_from(offset).unwrap() };
            let one = letter(id, partition, position.offset, at * MS);
            let record = match what {
                0 => resolved(&one, ResolutionKind::Replayed, position, at * MS),
                1 => resolved(&one, ResolutionKind::Discarded, position, at * MS),
                _ => opened(&one),
            };
            prop_assert_eq!(letters.apply(&record), fold.apply(&record));
            prop_assert_eq!(letters.count(), fold.open());
        }
    }
}

#[test]
fn a_consumers_second_dead_letter_outlives_the_replay_that_caused_it() {
    let mut open = OpenDeadLetters::default();
    let (first, again) = (letter(1, 0, 1, MS), letter(1, 0, 2, 2 * MS));
    assert_eq!(open.apply(&opened(&first)), Change::Opened);
    assert!(open.failed_after.is_empty(), "it counts no replay");
    // WHEN the consumer gives up what the replay has published before that is written down
    assert_eq!(open.apply(&opened(&DeadLetter { replays: 1, ..again })), Change::Nothing);
    let behind = PartitionOffset { partition: 0, offset: 3 };
    let replayed = resolved(&first, ResolutionKind::Replayed, behind, 3 * MS);
    assert_eq!((open.apply(&replayed), open.count()), (Change::Nothing, 1));
    // WHEN a person discards it THEN nothing of it is kept
    let discarded = resolved(&first, ResolutionKind::Discarded, behind, 4 * MS);
    assert_eq!((open.apply(&discarded), open.count()), (Change::Resolved, 0));
    assert!(open.failed_after.is_empty());
}
