use super::*;

#[test]
fn rates_have_a_number_and_a_unit() {
    let interval_ms = |text: &str| text.parse::<Rate>().map(|rate| rate.interval_ns / 1_000_000);
    assert_eq!(interval_ms("50/s"), Ok(20));
    assert_eq!(interval_ms("300/min"), Ok(200));
    assert_eq!(interval_ms("36/h"), Ok(100_000));
    for wrong in ["", "50", "50/", "/s", "0/s", "-1/s", "1.5/s", "50/m", "50/sec", "x/s"] {
        let fault = interval_ms(wrong).unwrap_err();
        assert_eq!((fault.code, fault.exit), ("dead-letter.bad-rate", Exit::Usage), "{wrong}");
    }
}

#[test]
fn no_more_passes_than_the_rate_allows_and_no_less() {
    for (text, per_second) in [("7/s", 7.0), ("5000/s", 5000.0), ("90/min", 1.5)] {
        // GIVEN somebody who asks every millisecond for a minute
        let mut limiter = RateLimiter::new(text.parse().unwrap(), 0);
        let mut taken = 0.0;
        for ms in 0..60_000 {
            while limiter.take(ms * 1000).is_ok() {
                taken += 1.0;
            }
        }
        let allowed: f64 = 59.999 * per_second + 1.0;
        assert!((allowed - 1.5..=allowed + 0.5).contains(&taken), "{text}: {taken}");
    }
}

#[test]
fn a_token_that_was_not_used_is_there_at_once() {
    let mut limiter = RateLimiter::new("1/h".parse().unwrap(), 0);
    assert_eq!(limiter.take(0), Ok(()));
    limiter.give_back();
    assert_eq!(limiter.take(0), Ok(()));
    assert!(limiter.take(0).is_err());
}

#[test]
fn after_a_pause_there_is_no_flood_and_the_wait_is_told() {
    let mut limiter = RateLimiter::new("100/s".parse().unwrap(), 0);
    let at = 3_600_000_000;
    let passed = (0..1000).take_while(|_| limiter.take(at).is_ok()).count();
    assert_eq!(passed, 10);
    assert_eq!(limiter.take(at), Err(Duration::from_millis(10)));
    assert_eq!(limiter.take(at + 10_000), Ok(()));
}
