use super::*;

#[test]
fn only_a_session_that_broke_soon_and_by_itself_is_waited_for() {
    let mut backoff = random::backoff(Duration::from_millis(100), Duration::from_secs(5));
    let soon = Some(Duration::from_secs(1));
    assert_eq!(pause(None, false, &mut backoff), None);
    assert!(pause(soon, false, &mut backoff).is_some());
    // WHEN the relay ends one after the other itself THEN that is no reason to wait
    for _ in 0..10 {
        assert_eq!(pause(soon, true, &mut backoff), Some(Duration::ZERO));
    }
    let waits = pause(Some(LET_GO_GAP / 5), true, &mut backoff);
    assert_eq!(waits, Some(LET_GO_GAP * 4 / 5), "in circles all the same");
    assert_eq!(pause(Some(STEADY_AFTER * 2), false, &mut backoff), None);
}
