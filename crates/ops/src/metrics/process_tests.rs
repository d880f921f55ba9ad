use super::*;

#[test]
fn a_program_name_with_parentheses_does_not_shift_the_fields() {
    let stat = "42 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 250 150 0 0 20";
    assert_eq!(parse_cpu(stat), Some(4.0));
}

#[test]
fn resident_memory_is_bytes() {
    assert_eq!(parse_resident("Name:\tx\nVmRSS:\t   2048 kB\n"), Some(2_097_152.0));
    assert_eq!(parse_resident("Name:\tx\n"), None);
}
