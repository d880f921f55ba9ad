use super::*;

#[test]
fn a_load_that_reaches_a_moment_into_another_second_is_not_called_slower() {
    let second = |written, delivered| Second { written, delivered, ..Second::default() };
    let mut run = Run { events: 300, written_per_second: 99.9, ..Run::default() };
    run.seconds = vec![second(100, 98), second(100, 100), second(100, 100), second(0, 2)];
    assert!((run.delivered_per_second() - 298.0 / 3.0).abs() < 0.01);
    assert_eq!(Run::default().delivered_per_second(), 0.0);
}
