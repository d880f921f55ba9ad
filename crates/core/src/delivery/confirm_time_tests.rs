use super::*;

#[test]
fn it_follows_the_time_from_admission_to_the_settled_prefix() {
    let (start, mut time) = (Instant::now(), ConfirmTime::default());
    let ms = |n| start + Duration::from_millis(n);
    for round in 0..50 {
        let (event, at) = (round, ms(round * 10));
        time.observe(at, event + 1, event);
        time.observe(at + Duration::from_millis(3), event + 1, event);
        time.observe(at + Duration::from_millis(6), event + 1, event + 1);
    }
    assert!(time.usual() > Duration::from_micros(5_990), "{:?}", time.usual());
    assert!(time.usual() <= Duration::from_millis(6), "{:?}", time.usual());
}

#[test]
fn an_event_that_is_admitted_again_is_measured_anew() {
    let (start, mut time) = (Instant::now(), ConfirmTime::default());
    time.observe(start, 10, 0);
    // WHEN a rewind takes the event out of the window, and it is settled in the end
    time.forget();
    time.observe(start + Duration::from_secs(60), 3, 3);
    time.observe(start + Duration::from_secs(61), 10, 3);
    time.observe(start + Duration::from_secs(62), 10, 10);
    assert_eq!(time.usual(), Duration::from_secs(1));
}
