use super::*;

const SECOND: i64 = 1_000_000;

fn breaker(burst_max: usize) -> Breaker {
    Breaker::new(burst_max, Duration::from_secs(60))
}

/// Writes as many letters as are allowed at `now`.
fn write(breaker: &mut Breaker, now: i64, class: &str) -> usize {
    let mut written = 0;
    while breaker.allow(now).is_ok() {
        breaker.count(now, class);
        written += 1;
    }
    written
}

#[test]
fn exactly_the_burst_is_written_and_the_most_frequent_class_is_told() {
    let mut breaker = breaker(5);
    breaker.count(0, "a");
    breaker.count(0, "b");
    assert_eq!(write(&mut breaker, SECOND, "b"), 3);
    let burst = breaker.allow(SECOND).unwrap_err();
    assert_eq!(burst, Burst { letters: 5, class: "b".to_owned() });
    // Not before somebody has looked.
    assert!(breaker.allow(3600 * SECOND).is_err(), "it closed by itself");
    assert!(breaker.is_open(3600 * SECOND));
}

#[test]
fn what_is_older_than_the_window_does_not_count() {
    let mut breaker = breaker(3);
    for at in [0, 30, 59] {
        assert_eq!(breaker.allow(at * SECOND), Ok(()));
        breaker.count(at * SECOND, "a");
    }
    assert_eq!(breaker.allow(60 * SECOND), Ok(()), "the first has left the window");
    breaker.count(60 * SECOND, "a");
    assert!(breaker.is_open(89 * SECOND));
    assert!(!breaker.is_open(90 * SECOND), "nobody has met it open");
    assert!(breaker.allow(89 * SECOND).is_err());
}

#[test]
fn letters_of_an_earlier_process_count_in_any_order() {
    let mut breaker = breaker(3);
    for at in [50, 10, 40, 20, 30] {
        breaker.count(at * SECOND, "a");
    }
    // Of those before, the newest three are remembered: 30, 40, 50.
    let mut later = Breaker { letters: breaker.letters.clone(), ..self::breaker(3) };
    assert!(breaker.allow(89 * SECOND).is_err());
    assert_eq!(write(&mut later, 90 * SECOND, "a"), 1);
}

#[test]
fn what_was_written_before_it_was_acknowledged_does_not_count_whenever_it_is_read() {
    let mut breaker = Breaker::new(2, Duration::from_secs(1));
    breaker.count(10, "a");
    breaker.count(20, "a");
    breaker.opened();
    assert!(breaker.is_open(11) && breaker.allow(11).is_err());
    // WHEN somebody acknowledges that
    breaker.resumed(20);
    // THEN also one that is read late, from another partition, does not count
    breaker.count_read(15, "a");
    breaker.count_read(20, "a");
    breaker.count_read(21, "a");
    assert!(!breaker.is_open(22) && breaker.allow(22).is_ok());
    // AND it opens again after as many as ever
    breaker.count(22, "a");
    assert!(breaker.allow(23).is_err());
}

#[test]
fn no_more_letters_are_remembered_than_open_it_and_none_once_all_are_counted_anew() {
    let mut breaker = breaker(2);
    (0..5).for_each(|at| breaker.count(at, "a"));
    assert_eq!(breaker.letters.len(), 2);
    breaker.forget();
    assert!(breaker.allow(5).is_ok() && !breaker.is_open(5));
}

#[test]
fn a_clock_that_is_set_back_neither_opens_it_nor_keeps_it_from_opening() {
    let mut breaker = breaker(3);
    let hour = 3600 * SECOND;
    breaker.count(2 * hour, "a");
    breaker.count(2 * hour, "a");
    // WHEN the clock is set back THEN those before do not stay recent
    assert_eq!(write(&mut breaker, hour, "a"), 3);
    // WHEN it is set back behind the time at which somebody has acknowledged that
    breaker.resumed(hour);
    assert_eq!(write(&mut breaker, 10, "a"), 3);
}
