use super::*;

#[test]
fn numbers_sizes_and_durations_are_for_people() {
    assert_eq!(grouped(0, ','), "0");
    assert_eq!(grouped(1_234_567, '\u{202f}'), "1\u{202f}234\u{202f}567");
    assert_eq!(binary_size(1023), "1023 B");
    assert_eq!(binary_size(1536), "1.5 KiB");
    assert_eq!(binary_size(u64::MAX), "16777216.0 TiB");
    assert_eq!(duration(59), "59 s");
    assert_eq!(duration(3_700), "1 h 1 min");
    assert_eq!(duration(90_000), "1 d 1 h");
}
