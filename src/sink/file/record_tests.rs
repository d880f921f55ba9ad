use super::super::testing::event;
use super::*;

const NOW_US: i64 = 1_800_000_000_123_456;

fn line(event: &Outbound<'_>) -> String {
    String::from_utf8(write(event, NOW_US).unwrap()).unwrap()
}

#[test]
fn a_line_has_the_shape_of_kcat() {
    let headers: &[(&str, &[u8])] = &[("id", b"7"), ("raw", b"\xff\x00")];
    let plain = Outbound { headers, ..event("7", Some(br#"{"a": "b"}"#)) };
    assert_eq!(
        line(&plain),
        r#"{"topic":"orders","ts":1800000000123,"headers":["id","7","raw",{"base64":"/wA="}],"key":"a","payload":"{\"a\": \"b\"}"}"#
            .to_owned()
            + "\n"
    );
    let bare = Outbound { key: None, partition: Some(3), ..event("8", None) };
    assert_eq!(
        line(&bare),
        "{\"topic\":\"orders\",\"partition\":3,\"ts\":1800000000123,\"headers\":[],\"key\":null,\"payload\":null}\n"
    );
    assert!(line(&plain).as_bytes().starts_with(BEGINNING));
}

#[test]
fn what_is_read_is_what_was_written() {
    let all_bytes: Vec<u8> = (0..=255).collect();
    for bytes in [&b""[..], b"text\0\n\"\\", "ü🦀".as_bytes(), &all_bytes, br#"{"base64":"AA=="}"#]
    {
        let headers = [("name", bytes), ("näme", b"")];
        let sent = Outbound { key: Some(bytes), headers: &headers, ..event("1", Some(bytes)) };
        let line = write(&sent, NOW_US).unwrap();
        assert!(!line.contains(&0) && line.iter().filter(|byte| **byte == b'\n').count() == 1);
        let entry = read(&line, 42);
        assert_eq!((entry.key.as_deref(), entry.value.as_deref()), (Some(bytes), Some(bytes)));
        let own = |(name, value): &(&str, &[u8])| ((*name).to_owned(), value.to_vec());
        assert_eq!(entry.headers, headers.iter().map(own).collect::<Vec<_>>());
        assert_eq!(entry.written_unix_us, 1_800_000_000_123_000);
        assert_eq!(entry.position, PartitionOffset { partition: 0, offset: 42 });
    }
    let null = read(&write(&event("1", None), NOW_US).unwrap(), 0);
    assert_eq!(null.value, None);
}

#[test]
fn a_line_of_somebody_else_is_an_empty_record() {
    for line in [
        "",
        "hello",
        "{}",
        r#"{"topic":"a","ts":1,"headers":["x",{"base64":"?"}],"key":null,"payload":null}"#,
    ] {
        let position = PartitionOffset { partition: 0, offset: 5 };
        assert_eq!(read(line.as_bytes(), 5), LogEntry { position, ..LogEntry::default() });
    }
}
