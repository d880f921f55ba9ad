use super::*;

fn drawn(values: &[f64], marks: usize) -> String {
    let values: Vec<Option<f64>> = values.iter().copied().map(Some).collect();
    sparkline(&values, marks, BLOCKS)
}

#[test]
fn the_highest_mark_is_the_greatest_value_and_only_zero_is_the_lowest() {
    assert_eq!(drawn(&[0.0, 0.001, 25.0, 26.0, 50.0, 75.0, 76.0, 100.0], 8), "▁▂▂▃▃▅▇▇");
    assert_eq!(drawn(&[0.0, 0.0], 2), "▁▁");
    assert_eq!(drawn(&[5.0], 1), "▇");
    assert_eq!(sparkline(&[Some(0.0), Some(1.0), Some(4.0)], 3, ASCII), ".:#");
}

#[test]
fn the_newest_values_are_at_the_right() {
    // GIVEN fewer values than marks THEN the left is blank
    assert_eq!(drawn(&[1.0, 2.0], 4), "  ▃▇");
    // GIVEN more THEN only those that are shown count for the scale
    assert_eq!(drawn(&[100.0, 1.0, 2.0], 2), "▃▇");
    assert_eq!(drawn(&[], 3), "   ");
    assert_eq!(sparkline(&[Some(1.0), None, Some(1.0)], 3, BLOCKS), "▇ ▇");
}
