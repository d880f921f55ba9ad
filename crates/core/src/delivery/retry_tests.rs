use super::*;

const BASE: Duration = Duration::from_millis(200);
const SECOND: Duration = Duration::from_secs(1);

fn retries(attempts_max: u32) -> Retries {
    let backoff = Backoff::seeded(BASE, Duration::from_secs(30), 0x9E37_79B9_7F4A_7C15);
    Retries::new(attempts_max, 20, backoff)
}

const ONCE: Attempts = Attempts { count: 1, uncounted: 0, first_failed_unix_us: 0 };

#[test]
fn an_event_gets_its_attempts_and_no_more_and_its_first_failure_is_remembered() {
    let (mut retries, mut now) = (retries(5), Instant::now());
    let mut attempts = Attempts::none(1001);
    for attempt in 1..5 {
        attempts = attempts.failed();
        assert_eq!(attempts, Attempts { count: attempt, uncounted: 0, first_failed_unix_us: 1001 });
        assert!(!retries.is_exhausted(attempts));
        let wait = retries.wait(9, attempts, now);
        assert!(wait <= BASE * (1 << (attempt - 1)));
        assert_eq!(retries.take_due(now + wait, 0, true), Some(9));
        assert_eq!(retries.take_due(now + wait, 0, true), None, "once per wait");
        now += wait;
    }
    assert!(retries.is_exhausted(attempts.failed()));
    assert_eq!(retries.take_due(now + 60 * SECOND, 0, true), None);
}

#[test]
fn nobody_is_due_before_the_wait_is_over_and_the_first_comes_first() {
    let (mut retries, now) = (retries(3), Instant::now());
    let waits = [1, 2, 3].map(|sequence| (retries.wait(sequence, ONCE, now), sequence));
    let mut expected = waits;
    expected.sort();
    let Some(just_before) = now.checked_add(expected[0].0 - Duration::from_nanos(1)) else {
        panic!()
    };
    assert_eq!(retries.take_due(just_before, 0, true), None);
    let due: Vec<_> = std::iter::from_fn(|| retries.take_due(now + BASE, 0, true)).collect();
    assert_eq!(due, expected.map(|(_, sequence)| sequence));
}

#[test]
fn an_attempt_of_which_the_event_is_not_to_blame_is_not_counted_and_is_refunded() {
    let (mut retries, now) = (retries(2), Instant::now());
    let mut attempts = Attempts::none(1000);
    for uncounted in 1..=10 {
        attempts = attempts.delayed();
        assert_eq!(attempts, Attempts { count: 0, uncounted, first_failed_unix_us: 1000 });
        assert!(!retries.is_exhausted(attempts));
        let wait = retries.wait(1, attempts, now);
        assert_eq!(retries.take_due(now + wait, 0, true), Some(1));
    }
    let balance = retries.budget.balance;
    retries.refund();
    assert_eq!(retries.budget.balance, balance + RETRY);
}

#[test]
fn waits_grow_with_every_attempt_that_has_failed_also_with_those_that_are_not_counted() {
    let (mut retries, now) = (retries(9), Instant::now());
    for later in [Attempts { count: 8, ..ONCE }, Attempts { uncounted: 7, ..ONCE }] {
        let longest = (0..20).map(|_| retries.wait(1, later, now)).max();
        assert!(longest > Some(BASE * 20), "{longest:?}");
    }
}

#[test]
fn nothing_waits_behind_a_new_sink() {
    let (mut retries, now) = (retries(2), Instant::now());
    retries.wait(1, ONCE, now);
    retries.rewind();
    assert_eq!(retries.take_due(now + BASE, 0, true), None);
}

/// How many of `waiting` events may be retried at `now`.
fn allowed(retries: &mut Retries, now: Instant, published: Sequence) -> u64 {
    std::iter::from_fn(|| retries.take_due(now, published, true)).count() as u64
}

#[test]
fn retries_keep_to_their_share_of_what_is_published_and_to_a_few_a_second() {
    let (mut retries, start) = (retries(1000), Instant::now());
    for sequence in 0..100_000 {
        retries.wait(sequence, ONCE, start);
    }
    let now = start + BASE;
    assert_eq!(allowed(&mut retries, now, 0), RESERVE, "a few are always allowed");
    // WHEN nothing is published THEN some go each second, however often one asks
    let later = (1..=10_000_u32).map(|step| now + step * Duration::from_micros(100));
    let trickle: u64 = later.map(|now| allowed(&mut retries, now, 0)).sum();
    assert_eq!(trickle, RESERVE_PER_SECOND);
    // WHEN much is published THEN a fifth as many go
    let now = now + SECOND;
    let steps = (1..=1000).map(|step| allowed(&mut retries, now, step * 100));
    assert_eq!(steps.sum::<u64>(), 20_000);
    // WHEN the same is published again after a rewind THEN it earns nothing
    assert_eq!(allowed(&mut retries, now, 50_000), 0);
    assert_eq!(allowed(&mut retries, now, 100_000), 0);
    // What was not needed is not saved up beyond the reserve.
    assert_eq!(allowed(&mut retries, now, 10_000_000), RESERVE);
}

/// As many events as `waiting`, whose wait is over at the returned time; the reserve is used up.
fn poor(waiting: Sequence) -> (Retries, Instant) {
    let (mut retries, start) = (retries(1000), Instant::now());
    for sequence in 0..waiting {
        retries.wait(sequence, ONCE, start);
    }
    let now = start + BASE;
    assert_eq!(allowed(&mut retries, now, 0), RESERVE);
    (retries, now)
}

#[test]
fn what_is_confirmed_is_refunded_so_that_a_mended_route_recovers_at_once() {
    let (mut retries, now) = poor(10_000);
    // GIVEN one retry that is allowed WHEN each is confirmed THEN all of them follow
    let now = now + SECOND / 10;
    let mut recovered = 0;
    while retries.take_due(now, 0, true).is_some() {
        retries.refund();
        recovered += 1;
    }
    assert_eq!(recovered, 10_000 - RESERVE);
    // WHEN it is given up instead THEN nothing comes back
    let (mut retries, now) = poor(10_000);
    while retries.take_due(now + SECOND / 10, 0, true).is_some() {
        assert_eq!(retries.take_due(now + SECOND / 10, 0, true), None);
    }
}

#[test]
fn nothing_is_charged_while_nothing_else_can_come_in() {
    let (mut retries, now) = poor(10_000);
    assert_eq!(retries.take_due(now, 0, true), None);
    let taken = std::iter::from_fn(|| retries.take_due(now, 0, false)).count();
    assert_eq!(taken as u64, 10_000 - RESERVE);
}
