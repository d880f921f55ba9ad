use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn at(began: Instant, by_clock: Duration, by_system_us: i64) -> Moment {
    Moment { instant: began + by_clock, unix_us: by_system_us }
}

#[test]
fn a_clock_misses_the_time_that_only_the_other_shows() {
    let began = Instant::now();
    let mut clocks = Clocks::new(at(began, Duration::ZERO, 0));
    // A process that did not run, on a clock that did.
    assert_eq!(clocks.missed(at(began, 4 * SECOND, 4_000_000)), Duration::ZERO);
    assert_eq!(clocks.missed(at(began, 5 * SECOND, 8_000_000)), 3 * SECOND);
    assert_eq!(clocks.missed(at(began, 6 * SECOND, 9_000_000)), Duration::ZERO);
    // The clock of the system was set back, and goes on from there.
    assert_eq!(clocks.missed(at(began, 7 * SECOND, 0)), Duration::ZERO);
    assert_eq!(clocks.missed(at(began, 8 * SECOND, 3_000_000)), 2 * SECOND);
}

#[test]
fn small_differences_are_none_and_add_up() {
    let began = Instant::now();
    let mut clocks = Clocks::new(at(began, Duration::ZERO, 0));
    // Readings a moment apart.
    for (looks, ahead_us) in (1..1_000).zip([0, 400, -400].into_iter().cycle()) {
        let now = at(began, SECOND * looks, 1_000_000 * i64::from(looks) + ahead_us);
        assert_eq!(clocks.missed(now), Duration::ZERO);
    }
    let now = at(began, SECOND * 1_000, 1_000_000_000 + 700);
    assert_eq!(clocks.missed(now), Duration::ZERO);
    let now = at(began, SECOND * 1_001, 1_001_000_000 + 1_400);
    assert_eq!(clocks.missed(now), Duration::from_micros(1_400));
}

#[test]
fn an_event_is_as_old_as_the_clock_and_what_that_has_missed() {
    let began = Instant::now();
    let mut missed = MissedTime::default();
    assert_eq!(missed.corrected(began), began);
    missed.add(began + 5 * SECOND, SECOND, began);
    missed.add(began + 8 * SECOND, 2 * SECOND, began);
    assert_eq!(missed.corrected(began + 4 * SECOND), began + SECOND);
    assert_eq!(missed.corrected(began + 8 * SECOND), began + 5 * SECOND);
    assert_eq!(missed.corrected(began + 9 * SECOND), began + 9 * SECOND);
    // What was noticed before the oldest event concerns none.
    missed.add(began + 12 * SECOND, SECOND, began + 9 * SECOND);
    assert_eq!(missed.corrected(began + 10 * SECOND), began + 9 * SECOND);
}
