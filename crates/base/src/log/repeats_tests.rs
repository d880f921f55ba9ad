use tracing::Level;

use super::super::testing::TEXT;
use super::*;

fn permit(repeats: &mut Repeats, name: &'static str, now: Instant) -> bool {
    permit_text(repeats, name, name, now)
}

fn permit_text(repeats: &mut Repeats, name: &'static str, text: &str, now: Instant) -> bool {
    let sample = || Line::new(TEXT, Level::WARN, "walrelay", text);
    repeats.permit((name, String::new()), now, sample)
}

fn counts(repeats: &mut Repeats, now: Instant) -> Vec<String> {
    repeats.take_counts(now, false).into_iter().map(|line| line.message).collect()
}

#[test]
fn the_first_lines_of_a_kind_are_written_and_the_rest_counted() {
    let (mut repeats, began) = (Repeats::default(), Instant::now());
    // GIVEN more lines of one kind than a period may have, over 20 s
    let written = (0..40).filter(|n| {
        let now = began + Duration::from_millis(500 * n);
        assert_eq!(counts(&mut repeats, now), [""; 0], "before the period is over");
        permit(&mut repeats, "a retry", now)
    });
    assert_eq!(written.count(), LINES_MAX as usize);
    // THEN those of another kind are not affected
    assert!(permit(&mut repeats, "another", began));
    // THEN the count is told once, when the period is over, and lines are written again
    let later = began + PERIOD;
    assert_eq!(counts(&mut repeats, later), ["… 30 more in 19 s: a retry"]);
    assert_eq!(counts(&mut repeats, later), [""; 0]);
    assert!(permit(&mut repeats, "a retry", later));
}

#[test]
fn a_count_quotes_a_line_of_its_own_period() {
    let (mut repeats, began) = (Repeats::default(), Instant::now());
    let mut burst = |text: &str, now| {
        for _ in 0..LINES_MAX + 3 {
            permit_text(&mut repeats, "a retry", text, now);
        }
        counts(&mut repeats, now + PERIOD)
    };
    assert_eq!(burst("event 1", began), ["… 3 more in 1 s: event 1"]);
    // WHEN lines of the kind come again in a later period THEN the count is not about the first one
    assert_eq!(burst("event 2", began + PERIOD * 2), ["… 3 more in 1 s: event 2"]);
}
