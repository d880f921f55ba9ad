use super::*;

const MS: Duration = Duration::from_millis(1);

fn connected(wal_sender_timeout: Option<Duration>) -> (StatusUpdates, Instant) {
    let now = Instant::now();
    let mut updates = StatusUpdates::new(60_000 * MS, now);
    updates.connected(wal_sender_timeout);
    (updates, now)
}

#[test]
fn an_update_is_due_after_a_third_of_the_timeout_of_the_server() {
    for (timeout, interval) in
        [(None, 10_000), (Some(6_000), 2_000), (Some(60_000), 10_000), (Some(3), 100)]
    {
        let (mut updates, start) = connected(timeout.map(|ms| ms * MS));
        let due = start + interval * MS;
        assert_eq!(updates.due(due - MS, due - MS, false), None, "{timeout:?}");
        assert_eq!(updates.due(due, due, false), Some(false), "{timeout:?}");
        updates.sent(due);
        assert_eq!(updates.due(due + MS, due + MS, false), None, "{timeout:?}");
    }
}

#[test]
fn an_update_is_due_as_soon_after_a_time_that_the_clock_has_missed() {
    let (mut updates, start) = connected(None);
    updates.missed(8_000 * MS);
    let due = start + 2_000 * MS;
    assert_eq!(updates.due(due - MS, due, false), None);
    assert_eq!(updates.due(due, due, false), Some(false));
}

#[test]
fn what_is_new_or_was_asked_for_is_reported_soon_and_not_at_once() {
    let (mut updates, start) = connected(None);
    let soon = start + GAP;
    assert_eq!(updates.due(soon - MS, soon, true), None);
    assert_eq!(updates.due(soon, soon, true), Some(false));
    assert_eq!(updates.due(soon, soon, false), None);
    updates.requested = true;
    assert_eq!(updates.due(soon - MS, soon, false), None);
    assert_eq!(updates.due(soon, soon, false), Some(false));
    updates.sent(soon);
    assert_eq!(updates.due(soon + GAP, soon + GAP, false), None);
}

#[test]
fn an_update_asks_for_an_answer_once_nothing_was_heard_for_half_of_the_interval() {
    let (mut updates, heard) = connected(Some(6_000 * MS));
    assert_eq!(updates.due(heard + 999 * MS, heard, true), Some(false));
    assert_eq!(updates.due(heard + 1_000 * MS, heard, true), Some(true));
}

#[test]
fn a_server_that_is_silent_for_half_of_the_stall_timeout_is_asked_once() {
    let (mut updates, start) = connected(None);
    let mut is_asked = |now: Instant, heard: Instant| {
        updates.sent(now);
        updates.due(now, heard, false)
    };
    let half = 30_000 * MS;
    let first = start + half + MS;
    assert_eq!(is_asked(first - MS, start), None);
    assert_eq!(is_asked(first, start), Some(true));
    assert_eq!(is_asked(first + MS, start), None);
    // WHEN nothing newer was heard THEN it is not asked again; with an answer, after as long
    let second = first + half + 2 * MS;
    assert_eq!(is_asked(second, first), None);
    assert_eq!(is_asked(second, first + MS), Some(true));
    // In another session it has not been asked yet.
    updates.connected(None);
    updates.sent(second);
    assert_eq!(updates.due(second, start, false), Some(true));
}
