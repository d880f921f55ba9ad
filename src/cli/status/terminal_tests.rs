use super::*;

#[test]
fn a_frame_replaces_the_last_one_and_never_scrolls() {
    let lines = |count: usize| (1..=count).map(|number| number.to_string()).collect();
    assert_eq!(frame(lines(2), 24), "\x1b[H1\x1b[K\r\n2\x1b[K\x1b[J");
    assert_eq!(frame(lines(3), 3).matches('\n').count(), 2);
    // GIVEN more lines than rows THEN the last row says how many are left out
    assert_eq!(
        frame(lines(5), 3),
        "\x1b[H1\x1b[K\r\n2\x1b[K\r\n3 more lines do not fit\x1b[K\x1b[J"
    );
}
