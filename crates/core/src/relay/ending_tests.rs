use super::*;
use crate::base::error::Exit;
use crate::testing::IdleSink;

const SECOND: Duration = Duration::from_secs(1);

fn fault() -> Fault {
    Fault::new(Exit::Source, "slot.missing", "it is gone", "slot", "")
}

#[test]
fn three_quarters_of_the_time_are_for_reading_and_the_rest_for_confirms() {
    let start = Instant::now();
    let ending = Ending::new(Ok(()), 8 * SECOND, start);
    let at = |ms| start + Duration::from_millis(ms);
    assert!(ending.reads(start) && ending.reads(at(5_999)) && !ending.reads(at(6_000)));
    assert!(!ending.is_late(start) && !ending.is_late(at(7_999)) && ending.is_late(at(8_000)));
    // After a failure nothing more is read.
    assert!(!Ending::new(Err(fault()), 8 * SECOND, start).reads(start));
}

#[test]
fn a_broker_that_confirms_nothing_is_waited_for_only_as_long_as_that_is_of_use() {
    let start = Instant::now();
    let mut driver = SinkDriver::of(Box::new(IdleSink), start);
    let later = start + 5 * SECOND;
    for (outcome, is_in_vain, stalls) in
        [(Ok(()), false, false), (Ok(()), true, true), (Err(fault()), false, true)]
    {
        let ending = Ending::new(outcome, 60 * SECOND, start);
        let has_stalled = |now| ending.has_stalled(&driver, now, 5 * SECOND, is_in_vain);
        assert!(!has_stalled(later), "{is_in_vain}");
        assert_eq!(has_stalled(later + SECOND), stalls, "{is_in_vain}");
    }
    // WHEN the broker confirms meanwhile THEN it is waited for as long once more
    driver.settled(later);
    let ending = Ending::new(Err(fault()), 60 * SECOND, start);
    assert!(!ending.has_stalled(&driver, later + 5 * SECOND, 5 * SECOND, false));
    assert!(ending.has_stalled(&driver, later + 6 * SECOND, 5 * SECOND, false));
}
