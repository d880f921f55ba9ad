use super::*;

#[test]
fn a_few_lines_pass_in_each_period_and_the_others_are_counted() {
    let period = Duration::from_secs(1);
    let (mut throttle, now) = (LogThrottle::new(2, period), Instant::now());
    let permitted = [(); 5].map(|()| throttle.permit(now));
    assert_eq!(permitted, [Some(0), Some(0), None, None, None]);
    assert_eq!(throttle.permit(now + period), Some(3));
    assert_eq!(throttle.permit(now + period), Some(0));
}
