use super::*;
use crate::dead_letter::record::RecordKey;

fn letter(id: &str, partition: i32, offset: i64, failed_unix_us: i64) -> DeadLetter {
    DeadLetter {
        position: PartitionOffset { partition, offset },
        event_id: id.to_owned(),
        key: Some(RecordKey { bytes: b"k".to_vec(), uncut: None }),
        failed_unix_us,
        ..DeadLetter::default()
    }
}

fn resolution(
    letter: &DeadLetter,
    kind: ResolutionKind,
    partition: i32,
    offset: i64,
) -> Resolution {
    let at = letter.failed_unix_us + 1;
    let position = PartitionOffset { partition, offset };
    Resolution { position, ..letter.resolution(kind, 1, "me", at) }
}

fn opened(fold: &mut DeadLetterIndex, letter: &DeadLetter) -> Change {
    fold.apply(&LogRecord::DeadLetter(Box::new(letter.clone())))
}

fn resolved(fold: &mut DeadLetterIndex, resolution: &Resolution) -> Change {
    fold.apply(&LogRecord::Resolution(resolution.clone()))
}

fn is_parked(fold: &DeadLetterIndex) -> bool {
    fold.releases().count() == 1
}

fn state(fold: &DeadLetterIndex, letter: &DeadLetter) -> Option<DeadLetterState> {
    fold.known(letter).map(|known| known.state)
}

#[test]
fn a_slot_is_small() {
    assert!(size_of::<(DeadLetterId, IndexEntry)>() <= 64);
}

#[test]
fn the_last_record_says_the_state() {
    let mut fold = DeadLetterIndex::default();
    let (first, again) = (letter("a", 0, 1, 10), letter("a", 0, 4, 40));
    assert_eq!(opened(&mut fold, &first), Change::Opened);
    let replayed = resolution(&first, ResolutionKind::Replayed, 0, 2);
    assert_eq!(resolved(&mut fold, &replayed), Change::Resolved);
    assert_eq!((state(&fold, &first), fold.open()), (Some(DeadLetterState::Replayed), 0));
    // WHEN a person changes their mind
    let discarded = resolution(&first, ResolutionKind::Discarded, 0, 3);
    assert_eq!(resolved(&mut fold, &discarded), Change::Nothing);
    assert_eq!(state(&fold, &first), Some(DeadLetterState::Discarded));
    // WHEN the event comes back THEN the new letter stands for it
    assert_eq!(opened(&mut fold, &again), Change::Opened);
    assert_eq!((state(&fold, &first), state(&fold, &again)), (None, Some(DeadLetterState::Open)));
    assert_eq!(fold.known(&again).map(|known| known.replays), Some(1));
    // THEN nothing of this changes when it is read once more
    for _ in 0..2 {
        assert_eq!(opened(&mut fold, &first), Change::Nothing);
        assert_eq!(resolved(&mut fold, &replayed), Change::Nothing);
        assert_eq!(opened(&mut fold, &again), Change::Nothing);
    }
    assert_eq!((state(&fold, &again), fold.open()), (Some(DeadLetterState::Open), 1));
}

#[test]
fn a_letter_that_a_kill_repeated_is_one_and_keeps_its_place_in_the_key() {
    // GIVEN A and B of one key, and A once more by a relay that was killed
    let mut fold = DeadLetterIndex::default();
    let (a, b, a2) = (letter("a", 0, 1, 10), letter("b", 0, 2, 20), letter("a", 0, 3, 30));
    for letter in [&a, &b, &a2] {
        opened(&mut fold, letter);
    }
    // THEN A still stands before B
    assert_eq!(fold.open(), 2);
    assert_eq!((state(&fold, &a), state(&fold, &a2)), (Some(DeadLetterState::Open), None));
    // THEN one resolution is enough
    resolved(&mut fold, &resolution(&a, ResolutionKind::Replayed, 0, 4));
    assert_eq!((state(&fold, &b), fold.open()), (Some(DeadLetterState::Open), 1));
}

#[test]
fn partitions_may_be_read_in_any_order() {
    // GIVEN a letter without a key in two partitions, resolved in that of the first
    let one = letter("a", 0, 7, 10);
    let replayed =
        Resolution { resolved_unix_us: 30, ..resolution(&one, ResolutionKind::Replayed, 0, 8) };
    let first = |fold: &mut DeadLetterIndex| {
        opened(fold, &one);
        resolved(fold, &replayed);
    };
    for (turned, at, is_open) in
        [(false, 20, false), (true, 20, false), (false, 40, true), (true, 40, true)]
    {
        let other = letter("a", 1, 3, at);
        let mut fold = DeadLetterIndex::default();
        if turned {
            opened(&mut fold, &other);
            first(&mut fold);
        } else {
            first(&mut fold);
            opened(&mut fold, &other);
        }
        // THEN it is open if the second one is later than that, and the second one stands for it
        assert_eq!(fold.open(), usize::from(is_open), "turned: {turned}, at {at}");
        let stands = state(&fold, &other) == Some(DeadLetterState::Open);
        assert_eq!(stands, is_open, "turned: {turned}, at {at}");
    }
}

#[test]
fn a_resolution_without_its_letter_counts_nothing() {
    // GIVEN a log that is read from a time on
    let mut fold = DeadLetterIndex::default();
    let a = letter("a", 0, 1, 10);
    resolved(&mut fold, &resolution(&a, ResolutionKind::Discarded, 0, 2));
    assert_eq!((fold.open(), state(&fold, &a)), (0, None));
}

#[test]
fn all_records_are_counted_and_the_foreign_ones_among_them() {
    let mut fold = DeadLetterIndex::default();
    opened(&mut fold, &letter("a", 0, 1, 10));
    assert_eq!(fold.apply(&LogRecord::Foreign), Change::Nothing);
    assert_eq!((fold.records, fold.foreign), (2, 1));
}

#[test]
fn a_command_that_follows_the_log_keeps_only_the_dead_letters_that_it_knew_at_its_start() {
    let mut fold = DeadLetterIndex::default();
    let (known, new) = (letter("a", 0, 1, 10), letter("b", 0, 2, 20));
    opened(&mut fold, &known);
    let mut follow = |record: LogRecord| (fold.follow(&record), fold.size());

    let discarded = resolution(&new, ResolutionKind::Discarded, 0, 3);
    let new = || LogRecord::DeadLetter(Box::new(new.clone()));
    assert_eq!(follow(new()), (Change::Opened, 1));
    assert_eq!(follow(new()), (Change::Nothing, 1), "the relay has written it twice");
    assert_eq!(follow(LogRecord::Resolution(discarded)), (Change::Nothing, 1));
    let discarded = resolution(&known, ResolutionKind::Discarded, 0, 4);
    assert_eq!(follow(LogRecord::Resolution(discarded)), (Change::Resolved, 1));
    // WHEN many are new THEN it forgets them now and then
    for n in 0..2 * FOLLOWED_MAX {
        follow(LogRecord::DeadLetter(Box::new(letter(&n.to_string(), 0, 5, 50))));
    }
    assert!(fold.followed.len() <= FOLLOWED_MAX);
}

#[test]
fn a_key_is_parked_until_it_is_released() {
    let mut fold = DeadLetterIndex::default();
    let parks = DeadLetter { parks_key: true, ..letter("a", 0, 1, 10) };
    let follows = DeadLetter { parks_key: true, ..letter("b", 0, 2, 20) };
    let keyless = DeadLetter { parks_key: true, key: None, ..letter("c", 0, 3, 30) };
    for letter in [&parks, &follows, &keyless] {
        opened(&mut fold, letter);
    }
    let keys: Vec<_> = fold.releases().collect();
    assert_eq!(keys.len(), 1);
    assert_eq!((&keys[0].key, keys[0].event_id.as_str()), (&parks.key, "a"));
    assert_eq!(fold.size(), 3 + 4, "a key is as large as four dead letters");
    // WHEN it is released THEN its letters stay open, and old news do not park it again
    let released = resolution(&parks, ResolutionKind::Released, 0, 4);
    assert_eq!(resolved(&mut fold, &released), Change::Released);
    assert!(!is_parked(&fold));
    assert_eq!(fold.open(), 3);
    opened(&mut fold, &parks);
    assert!(!is_parked(&fold));
    // WHEN another letter parks it again THEN the old release does not end that
    opened(&mut fold, &DeadLetter { parks_key: true, ..letter("d", 0, 5, 50) });
    assert_eq!(resolved(&mut fold, &released), Change::Nothing);
    assert!(is_parked(&fold));
}

#[test]
fn a_key_that_two_partitions_park_is_released_by_what_is_later_than_both() {
    // GIVEN a key that is parked and released in one partition, and then parked in a new one
    let parks = |letter| LogRecord::DeadLetter(Box::new(DeadLetter { parks_key: true, ..letter }));
    let (first, second) = (letter("a", 0, 1, 10), letter("b", 3, 0, 30));
    let released = LogRecord::Resolution(resolution(&first, ResolutionKind::Released, 0, 2));
    let (first, second) = (parks(first), parks(second));
    for records in
        [[&first, &released, &second], [&first, &second, &released], [&second, &first, &released]]
    {
        let mut fold = DeadLetterIndex::default();
        for record in records {
            fold.apply(record);
        }
        // THEN it is parked, whichever partition is read first
        let release = fold.releases().next().cloned().unwrap();
        // WHEN it is released with that THEN it is, whatever the clock says
        assert_eq!(release.position.partition, 3);
        let position = PartitionOffset { partition: 3, offset: 1 };
        let release = Resolution { position, resolved_unix_us: 5, ..release };
        assert_eq!(resolved(&mut fold, &release), Change::Released);
    }
}

#[test]
fn marks_are_counted_by_state_and_end_with_a_new_letter() {
    let mut fold = DeadLetterIndex::default();
    let (a, b) = (letter("a", 0, 1, 10), letter("b", 0, 2, 20));
    for letter in [&a, &b] {
        opened(&mut fold, letter);
        fold.select(letter.id(), true);
    }
    resolved(&mut fold, &resolution(&a, ResolutionKind::Replayed, 0, 3));
    assert_eq!(fold.count_selected(&[DeadLetterState::Open]), 1);
    assert_eq!(fold.count_selected(&[DeadLetterState::Open, DeadLetterState::Replayed]), 2);
    let is_found = |letter| fold.selected(&[DeadLetterState::Open], letter).is_some();
    assert_eq!([&a, &b].map(is_found), [false, true]);
    opened(&mut fold, &letter("a", 0, 4, 40));
    assert_eq!(fold.count_selected(&[DeadLetterState::Open, DeadLetterState::Replayed]), 1);
    assert_eq!(fold.open(), 2);
}

#[test]
fn a_dead_letter_that_counts_one_more_replay_stands_for_the_one_that_is_still_open() {
    // GIVEN a consumer's dead letter, which a filter matches
    let mut fold = DeadLetterIndex::default();
    let first = letter("a", 0, 1, 10);
    opened(&mut fold, &first);
    fold.select(first.id(), true);
    // WHEN the consumer gives up what a replay has published, before that is written down, and writes
    // the dead letter a second time because it was killed
    let again = DeadLetter { replays: 1, ..letter("a", 0, 2, 20) };
    let copy = DeadLetter { replays: 1, ..letter("a", 0, 3, 30) };
    let replayed = resolution(&first, ResolutionKind::Replayed, 0, 4);
    // THEN the first one that counts the replay stands for all, also when it is read once more
    for _ in 0..2 {
        opened(&mut fold, &first);
        for letter in [&again, &copy] {
            assert_eq!(opened(&mut fold, letter), Change::Nothing);
        }
        resolved(&mut fold, &replayed);
        let states = [&first, &again, &copy].map(|letter| state(&fold, letter));
        assert_eq!(states, [None, Some(DeadLetterState::Open), None]);
        assert_eq!(fold.known(&again).map(|known| known.replays), Some(1));
    }
    // THEN the filter is asked about it anew
    assert_eq!(fold.count_selected(&[DeadLetterState::Open]), 0);
}

#[test]
fn a_consumers_second_dead_letter_outlives_the_replay_that_caused_it() {
    let mut fold = DeadLetterIndex::default();
    let first = letter("a", 0, 1, 10);
    assert_eq!(opened(&mut fold, &first), Change::Opened);
    // WHEN the consumer gives up what the replay has published before that is written down
    let again = DeadLetter { replays: 1, ..letter("a", 0, 2, 20) };
    assert_eq!(opened(&mut fold, &again), Change::Nothing);
    let replayed = resolution(&first, ResolutionKind::Replayed, 0, 3);
    assert_eq!((replayed.replays, resolved(&mut fold, &replayed)), (1, Change::Nothing));
    assert_eq!(fold.open(), 1);
    // THEN the next replay resolves it, and so does a person
    let next = Resolution { replays: 2, ..resolution(&first, ResolutionKind::Replayed, 0, 4) };
    assert_eq!(resolved(&mut fold, &next), Change::Resolved);
    let third = DeadLetter { replays: 2, ..letter("a", 0, 5, 50) };
    assert_eq!(opened(&mut fold, &third), Change::Opened);
    let discarded = resolution(&third, ResolutionKind::Discarded, 0, 6);
    assert_eq!(resolved(&mut fold, &discarded), Change::Resolved);
}
