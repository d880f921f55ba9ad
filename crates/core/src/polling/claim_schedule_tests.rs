use super::*;

const INTERVAL: Duration = Duration::from_millis(500);

fn found(taken: usize, ready: usize) -> ClaimOutcome {
    ClaimOutcome { taken, ready, full: taken == 100 }
}

#[test]
fn a_full_claim_is_followed_at_once_and_any_other_after_the_interval() {
    let now = Instant::now();
    let mut pace = ClaimSchedule::new(INTERVAL, 100);
    assert_eq!(pace.wait(now), Duration::ZERO);
    pace.found(found(100, 250), now);
    assert_eq!(pace.wait(now), Duration::ZERO);
    pace.found(found(99, 99), now);
    assert_eq!(pace.wait(now), INTERVAL);
    assert_eq!(pace.wait(now + INTERVAL * 2), Duration::ZERO);
    pace.found(found(0, 0), now);
    assert_eq!(pace.wait(now), INTERVAL);
    pace.failed(now + INTERVAL);
    assert_eq!(pace.wait(now), INTERVAL * 2);
}

#[test]
fn it_looks_further_while_busy_keys_are_in_the_way_and_not_without_end() {
    let now = Instant::now();
    let mut pace = ClaimSchedule::new(INTERVAL, 100);
    assert_eq!(pace.reach(), 400);
    // GIVEN that all it sees is of busy keys
    pace.found(found(0, 400), now);
    assert_eq!(pace.reach(), 800);
    assert_eq!(pace.wait(now), INTERVAL, "there is nothing to be had at once");
    // WHEN a little is found THEN it goes on at once, and further
    pace.found(found(3, 800), now);
    assert_eq!((pace.reach(), pace.wait(now)), (1600, Duration::ZERO));
    // THEN it comes back
    pace.found(found(100, 1600), now);
    assert_eq!(pace.reach(), 800);
    // WHEN those keys are done with THEN the rows that were seen need not wait
    pace.found(found(0, 400), now);
    pace.settled();
    assert_eq!(pace.wait(now), Duration::ZERO);
    // THEN a settlement alone is no reason to ask again
    for ready in [3, 0] {
        pace.found(found(ready, ready), now);
        pace.settled();
        assert_eq!(pace.wait(now), INTERVAL);
    }
    // THEN it looks no further where it finds enough, or as many bytes as it may take
    for (taken, full) in [(60, false), (3, true)] {
        pace.found(ClaimOutcome { taken, ready: 400, full }, now);
        assert_eq!(pace.reach(), 400);
    }
    for _ in 0..40 {
        pace.found(found(0, pace.reach()), now);
    }
    assert_eq!(pace.reach(), REACH_MAX);
    pace.found(found(100, REACH_MAX), now);
    assert_eq!(pace.reach(), 51_200, "one claim that finds enough makes it look less far");
    // WHEN that was too far THEN it begins anew
    pace.failed(now);
    assert_eq!(pace.reach(), 400);
}
