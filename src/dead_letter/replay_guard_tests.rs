use super::*;

const SECOND: i64 = 1_000_000;

fn letter(id: &str, class: &str) -> DeadLetter {
    DeadLetter { event_id: id.to_owned(), error_class: class.to_owned(), ..DeadLetter::default() }
}

fn look(
    guard: &mut ReplayGuard,
    letter: DeadLetter,
    change: Change,
    at: i64,
) -> Option<&'static str> {
    guard.check(&LogRecord::DeadLetter(Box::new(letter)), change, at).err().map(|fault| fault.code)
}

#[test]
fn what_comes_back_ends_it() {
    let mut guard = ReplayGuard::new("me");
    guard.published(&letter("a", "unroutable"), 0);
    // Its own resolution may not have been read yet: then nothing has changed.
    let position = PartitionOffset { partition: 0, offset: 1 };
    let again = DeadLetter { position, ..letter("a", "other") };
    let found = look(&mut guard, again, Change::Nothing, 900 * SECOND);
    assert_eq!(found, Some("dead-letter.comes-back"));
}

#[test]
fn a_letter_that_was_handed_over_before_it_was_seen_has_not_come_back() {
    let mut guard = ReplayGuard::new("me");
    guard.published(&letter("a", "unroutable"), 0);
    assert_eq!(look(&mut guard, letter("a", "unroutable"), Change::Nothing, 0), None);
}

#[test]
fn the_same_class_ends_it_for_half_a_minute() {
    let mut guard = ReplayGuard::new("me");
    guard.published(&letter("a", "unroutable"), 0);
    guard.published(&letter("b", CLASS_PARKED), 0);
    let mut at = |class, at| look(&mut guard, letter("n", class), Change::Opened, at);
    assert_eq!(at("too-large", SECOND), None);
    assert_eq!(at(CLASS_PARKED, SECOND), None, "its key is still parked");
    assert_eq!(at("unroutable", 31 * SECOND), None);
    assert_eq!(at("unroutable", 30 * SECOND), Some("dead-letter.comes-back"));
}

#[test]
fn a_letter_that_was_open_already_is_not_new() {
    let mut guard = ReplayGuard::new("me");
    guard.published(&letter("a", "unroutable"), 0);
    assert_eq!(look(&mut guard, letter("b", "unroutable"), Change::Nothing, 0), None);
}

#[test]
fn what_follows_a_parked_key_does_not_count_as_filling() {
    let mut guard = ReplayGuard::new("me");
    for event in 0..100 {
        let letter = letter(&event.to_string(), CLASS_PARKED);
        assert_eq!(look(&mut guard, letter, Change::Opened, 0), None);
    }
}

#[test]
fn filling_faster_than_it_empties_ends_it() {
    let mut guard = ReplayGuard::new("me");
    for _ in 0..20 {
        guard.resolved(1, 0);
    }
    for n in 0..20 {
        assert_eq!(look(&mut guard, letter(&n.to_string(), "x"), Change::Opened, 0), None);
    }
    let found = look(&mut guard, letter("20", "x"), Change::Opened, 0);
    assert_eq!(found, Some("dead-letter.refills"));
    // THEN a few are no trend
    let mut guard = ReplayGuard::new("me");
    let few = (0..19).find_map(|_| look(&mut guard, letter("n", "x"), Change::Opened, 0));
    assert_eq!(few, None);
}

#[test]
fn what_was_resolved_long_ago_does_not_hide_that_it_fills() {
    let mut guard = ReplayGuard::new("me");
    for n in 0..90_000 {
        guard.resolved(1, n * 1_000);
    }
    // WHEN the last of them was resolved half a minute ago and letters come, one a second
    let mut new = |n: i64| {
        let at = (120 + n) * SECOND;
        look(&mut guard, letter(&n.to_string(), "x"), Change::Opened, at)
    };
    let first = (0..60).find_map(|n| new(n).map(|code| (n, code)));
    assert_eq!(first, Some((19, "dead-letter.refills")));
}

#[test]
fn letters_that_come_slowly_are_no_trend() {
    // GIVEN a replay at one event a minute, and a letter every two seconds
    let mut guard = ReplayGuard::new("me");
    let found = (0..500).find_map(|n| {
        if n % 30 == 0 {
            guard.resolved(1, n * 2 * SECOND);
        }
        look(&mut guard, letter(&n.to_string(), "x"), Change::Opened, n * 2 * SECOND)
    });
    assert_eq!(found, None);
}

#[test]
fn the_same_class_on_another_route_is_something_else() {
    let mut guard = ReplayGuard::new("me");
    let to = |topic: &str, exchange: &str| DeadLetter {
        topic: topic.to_owned(),
        exchange: exchange.to_owned(),
        ..letter("n", "unroutable")
    };
    guard.published(&to("a", "events"), 0);
    let mut at = |letter| look(&mut guard, letter, Change::Opened, 0);
    assert_eq!(at(to("b", "events")), None);
    assert_eq!(at(to("a", "others")), None);
    assert_eq!(at(to("a", "events")), Some("dead-letter.comes-back"));
}

#[test]
fn a_class_in_a_hint_is_one_word_of_the_shell() {
    let mut guard = ReplayGuard::new("me");
    guard.published(&letter("a", "x'; reboot #"), 0);
    let again = LogRecord::DeadLetter(Box::new(letter("b", "x'; reboot #")));
    let fault = guard.check(&again, Change::Opened, 0).unwrap_err();
    assert!(fault.mend.contains(r"--error-class 'x'\''; reboot #')"), "{fault}");
}

#[test]
fn another_replay_of_the_same_ends_it() {
    let mut guard = ReplayGuard::new("me");
    guard.published(&letter("a", "x"), 0);
    let mut seen = |id: &str, by: &str, kind| {
        let record = LogRecord::Resolution(letter(id, "x").resolution(kind, 1, by, 0));
        guard.check(&record, Change::Resolved, 0).err().map(|fault| fault.code)
    };
    assert_eq!(seen("a", "me", ResolutionKind::Replayed), None);
    assert_eq!(seen("b", "you", ResolutionKind::Replayed), None);
    assert_eq!(seen("a", "you", ResolutionKind::Replayed), Some("dead-letter.two-replays"));
}
