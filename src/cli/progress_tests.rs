use super::*;

#[test]
fn a_line_says_how_far_how_fast_and_how_long() {
    let after = Duration::from_secs(10);
    assert_eq!(line("replayed", 0, 90, after), "replayed 0 of 90, 0/s");
    assert_eq!(line("replayed", 50, 1000, after), "replayed 50 of 1000, 5/s, 3 min 10 s left");
    assert_eq!(line("replayed", 4, 8, after), "replayed 4 of 8, 0.4/s, 10 s left");
    assert_eq!(line("replayed", 90, 90, after), "replayed 90 of 90, 9/s, 0 s left");
    assert_eq!(clock(7321.0), "2 h 02 min");
}

#[test]
fn a_bar_fills_and_never_overflows() {
    assert_eq!(bar(0, 4), "[------------------------]");
    assert_eq!(bar(1, 4), "[######------------------]");
    assert_eq!(bar(9, 4), "[########################]");
    assert_eq!(bar(0, 0).len(), BAR_CHARS + 2);
}
