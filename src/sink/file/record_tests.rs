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
}

#[test]
fn every_byte_stands_in_the_line_and_none_of_it_ends_the_line() {
    let bytes_of = |value: &serde_json::Value| match value["base64"].as_str() {
        Some(base64) => STANDARD.decode(base64).unwrap(),
        None => value.as_str().unwrap().as_bytes().to_vec(),
    };
    let all_bytes: Vec<u8> = (0..=255).collect();
    for bytes in [&b""[..], b"text\0\n\"\\", "ü🦀".as_bytes(), &all_bytes, br#"{"base64":"AA=="}"#]
    {
        let headers = [("näme", bytes)];
        let sent = Outbound { key: Some(bytes), headers: &headers, ..event("1", Some(bytes)) };
        let line = write(&sent, NOW_US).unwrap();
        assert!(!line.contains(&0) && line.iter().filter(|byte| **byte == b'\n').count() == 1);
        let json: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(json["headers"][0], "näme");
        for value in [&json["key"], &json["payload"], &json["headers"][1]] {
            assert_eq!(bytes_of(value), bytes);
        }
    }
}
