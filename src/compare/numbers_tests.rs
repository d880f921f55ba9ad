//! Numbers as people read them.

use super::*;

fn plain(text: String) -> String {
    text.replace('\u{a0}', " ")
}

#[test]
fn figures_have_three_digits_at_most_and_large_ones_their_thousands() {
    for (value, told) in [
        (0.0, "0"),
        (0.0003, "0.0003"),
        (0.014, "0.014"),
        (0.35, "0.35"),
        (0.999, "1"),
        (3.44, "3.4"),
        (12.34, "12.3"),
        (99.96, "100"),
        (1_234_567.0, "1,234,567"),
        (f64::NAN, "0"),
        (-3.0, "0"),
    ] {
        assert_eq!(figure(value), told, "{value}");
    }
}

#[test]
fn units_grow_with_the_value() {
    for (value, told) in [
        (0.35, "0.35 ms"),
        (12.34, "12.3 ms"),
        (999.4, "999 ms"),
        (999.6, "1 s"),
        (1_240.0, "1.24 s"),
        (12_400.0, "12.4 s"),
    ] {
        assert_eq!(plain(ms(value)), told);
    }
    for (value, told) in
        [(0.0, "0 B"), (512.0, "512 B"), (3_400_000.0, "3.4 MB"), (8.2e9, "8.2 GB")]
    {
        assert_eq!(plain(bytes(value)), told);
    }
}

#[test]
fn factors_and_shares_are_short() {
    assert_eq!(plain(factor(1.44)), "1.4 ×");
    assert_eq!(plain(factor(180.4)), "180 ×");
    assert_eq!(plain(percent(0.304)), "30 %");
    assert_eq!(plain(percent(0.0044)), "0.44 %");
    assert_eq!(plain(percent(0.00001)), "less than 0.1 %");
}

#[test]
fn lists_read_as_sentences() {
    let list = |parts: &[&str]| list(&parts.iter().map(|&s| s.to_owned()).collect::<Vec<_>>());
    assert_eq!(list(&["a"]), "a");
    assert_eq!(list(&["a", "b"]), "a and b");
    assert_eq!(list(&["a", "b", "c"]), "a, b and c");
}
