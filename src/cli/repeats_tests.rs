use super::*;

#[test]
fn the_first_lines_of_a_kind_are_written_and_the_rest_counted() {
    let (mut repeats, began) = (Repeats::new(), Instant::now());
    // GIVEN more lines of one kind than a period may have, over 20 s
    let written = (0..40).filter(|n| {
        let now = began + Duration::from_millis(500 * n);
        assert_eq!(repeats.take_suppressed(now), [], "before the period is over");
        repeats.permit("retry", now, || "a retry")
    });
    assert_eq!(written.count(), LINES_MAX as usize);
    // THEN those of another kind are not affected
    assert!(repeats.permit("other", began, || "another"));
    // THEN the count is told once, when the period is over, and lines are written again
    let later = began + PERIOD;
    let suppressed =
        Suppressed { shown: "a retry", lines: 30, within: Duration::from_millis(19_500) };
    assert_eq!(repeats.take_suppressed(later), [suppressed]);
    assert_eq!(repeats.take_suppressed(later), []);
    assert!(repeats.permit("retry", later, || "a retry"));
}
