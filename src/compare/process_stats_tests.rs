use super::*;

#[test]
fn a_program_name_with_parentheses_does_not_shift_the_fields() {
    let stat = "42 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 250 150 0 0 20 0 1 0 777 0";
    assert_eq!(parse_cpu_s(stat), Some(4.0));
    assert_eq!(field(stat, 19), Some("777"));
}

#[test]
fn memory_is_bytes() {
    assert_eq!(parse_kb("Name:\tx\nVmHWM:\t   2048 kB\n", "VmHWM:"), Some(2_097_152));
    assert_eq!(parse_kb("Name:\tx\n", "VmHWM:"), None);
}

#[test]
fn this_process_is_no_postgres_and_has_used_memory() {
    let pid = std::process::id();
    assert!(!is_postgres(pid, boot_unix_s().unwrap()));
    assert!(rss_peak_bytes(pid).unwrap() > 1 << 20);
    assert!(cpu_s(pid).is_some());
    assert_eq!(cpu_s(u32::MAX), None);
    assert!(machine().memory_bytes > 1 << 20);
}
