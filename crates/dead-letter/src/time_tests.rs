use proptest::prelude::*;

use super::*;

#[test]
fn times_are_rfc_3339_with_microseconds() {
    assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000000Z");
    assert_eq!(rfc3339(-1), "1969-12-31T23:59:59.999999Z");
    assert_eq!(rfc3339(946_684_800_000_000), "2000-01-01T00:00:00.000000Z");
    assert_eq!(rfc3339(951_782_400_000_000), "2000-02-29T00:00:00.000000Z");
    assert_eq!(rfc3339(4_107_542_400_000_000), "2100-03-01T00:00:00.000000Z");
    assert_eq!(rfc3339(1_795_266_631_227_183), "2026-11-21T13:10:31.227183Z");
    assert!(rfc3339(i64::MAX).starts_with("294247-01-10T04:00:54"));
    assert!(rfc3339(i64::MIN).starts_with("-"));
}

#[test]
fn what_people_write_is_read() {
    let noon = parse_rfc3339("2026-11-21T12:00:00Z");
    assert_eq!(noon, parse_rfc3339("2026-11-21 12:00"));
    assert_eq!(noon, parse_rfc3339("2026-11-21t13:00:00.000+01:00"));
    assert_eq!(noon, parse_rfc3339("2026-11-21T09:30:00-0230"));
    assert_eq!(
        parse_rfc3339("2026-11-21").map(rfc3339),
        Some("2026-11-21T00:00:00.000000Z".into())
    );
    for wrong in [
        "",
        "yesterday",
        "2026-13-01",
        "2026-02-29",
        "999999-1-1",
        "2026-11-21T",
        "2026-11-21T25:00",
        "2026-11-21T1:00",
        "2026-11-21T12:00:00.",
        "2026-11-21T12:00:00Q",
        "2026-11-21T12:00:00+1",
    ] {
        assert_eq!(parse_rfc3339(wrong), None, "{wrong:?}");
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(unix_us in -62_135_596_800_000_000_i64..253_402_300_800_000_000) {
        prop_assert_eq!(parse_rfc3339(&rfc3339(unix_us)), Some(unix_us));
    }
}
