use super::*;

const CONFIRM_TIME: Duration = Duration::from_millis(6);

#[test]
fn a_backlog_gets_a_long_pause_and_slow_traffic_none() {
    let start = Instant::now();
    let ms = |n| start + Duration::from_millis(n);
    let mut pace = ReadPacing { confirm_time: CONFIRM_TIME, ..ReadPacing::new(start) };
    assert_eq!(pace.after_read(ms(2), 200_000), None, "a large read means that there is more");
    assert_eq!(pace.after_read(ms(2), 10_000), Some(BACKLOG_PAUSE));
    assert_eq!(pace.after_read(ms(2), 30_000), None, "too soon to judge");
    assert_eq!(pace.after_read(ms(42), 0), None, "0.75 bytes per microsecond");
    assert_eq!(pace.after_read(ms(43), 500), None);
}

#[test]
fn moderate_traffic_gets_short_pauses_until_it_slows_down() {
    let start = Instant::now();
    let ms = |n| start + Duration::from_millis(n);
    let mut pace = ReadPacing { confirm_time: CONFIRM_TIME, ..ReadPacing::new(start) };
    for n in 1..10 {
        assert_eq!(pace.after_read(ms(n), 2_000), None, "not judged yet");
    }
    assert_eq!(pace.after_read(ms(10), 2_000), Some(CONFIRM_TIME / 2));
    assert_eq!(pace.after_read(ms(11), 2_000), Some(CONFIRM_TIME / 2));
    for (confirm_time, pause) in [(0, MODERATE_PAUSE_MIN), (1_000, MODERATE_PAUSE_MAX)] {
        pace.confirm_time = Duration::from_millis(confirm_time);
        assert_eq!(pace.after_read(ms(11), 2_000), Some(pause));
    }
    assert_eq!(pace.after_read(ms(11), 0), None, "nothing came: wait for the socket");
    assert_eq!(pace.after_read(ms(1_000), 2_000), None, "slow again");
    for n in 1_001..1_010 {
        assert_eq!(pace.after_read(ms(n), 2_000), None, "not judged yet");
    }
    assert_eq!(pace.after_read(ms(1_010), 2_000), Some(MODERATE_PAUSE_MAX));
}
