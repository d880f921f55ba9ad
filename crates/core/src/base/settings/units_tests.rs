use super::*;

#[test]
fn sizes_keep_their_unit() {
    assert_eq!(parse_bytes("64MiB"), Some(64 << 20));
    assert_eq!(parse_bytes("64 MB"), Some(64_000_000));
    assert_eq!(parse_bytes("512"), Some(512));
    assert_eq!([parse_bytes("MiB"), parse_bytes("64mib"), parse_bytes("1.5GiB")], [None; 3]);
    assert_eq!(parse_bytes("99999999999GiB"), None);
    assert_eq!([show_bytes(64 << 20), show_bytes(1536), show_bytes(7)], ["64MiB", "1536B", "7B"]);
}

#[test]
fn durations_need_a_unit() {
    assert_eq!(parse_duration_ms("200ms"), Some(200));
    assert_eq!(parse_duration_ms("1m30s"), Some(90_000));
    assert_eq!(["", "30", "s", "1.5s", "-1s", "1 s"].map(parse_duration_ms), [None; 6]);
    assert_eq!(parse_duration_ms("7d12h"), Some(7 * 86_400_000 + 12 * 3_600_000));
    let shown =
        [200, 90_000, 7_200_000, 172_800_000, 0].map(|ms| show_duration(Duration::from_millis(ms)));
    assert_eq!(shown, ["200ms", "90s", "2h", "2d", "0ms"]);
}

#[test]
fn no_part_of_a_password_survives() {
    let mask = |url: &str| mask_url(url);
    assert_eq!(mask("postgres://u:pw@db/app?a=b"), "postgres://u:***@db/app?a=b");
    assert_eq!(mask("postgres://u@db/app"), "postgres://u@db/app");
    assert_eq!(mask("postgres://u:p@w@db/app"), "postgres://u:***@db/app");
    assert_eq!(mask("postgres://u:p/w@db/app"), "***");
    assert_eq!(mask("postgres://u@db/app?password=x&y"), "postgres://u@db/app?password=***");
    assert_eq!(mask("postgres://db/app?password=x@y"), "***");
    assert_eq!(mask("host=db password=pw"), "***");
    assert_eq!(mask("pw"), "***");
    assert_eq!(mask("https://otlp.example:4318/c4n4ry/x"), "https://otlp.example:4318/***");
    assert_eq!(mask("http://u:pw@mq:15672/"), "http://u:***@mq:15672/");
}
