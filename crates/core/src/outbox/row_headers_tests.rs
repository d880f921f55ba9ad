use super::*;

#[test]
fn strings_are_plain_and_the_rest_is_json() {
    let mut headers = RowHeaders::default();
    let json =
        br#" {"a": "x\n\u00e9", "n": 1.50, "b\"": true, "o": {"k": [1, 2]}, "z": null, "": ""} "#;
    headers.read(json).unwrap();
    let found: Vec<_> = headers.iter().collect();
    let expected: [(&str, &[u8]); 6] = [
        ("a", "x\né".as_bytes()),
        ("n", b"1.50"),
        ("b\"", b"true"),
        ("o", b"{\"k\": [1, 2]}"),
        ("z", b"null"),
        ("", b""),
    ];
    assert_eq!(found, expected);
    headers.clear();
    assert_eq!(headers.iter().count(), 0);
}

#[test]
fn the_last_of_several_values_counts_as_in_jsonb() {
    let mut headers = RowHeaders::default();
    headers.read(br#"{"a": 1, "b": 2, "a": 3, "a": 4}"#).unwrap();
    let found: Vec<_> = headers.iter().collect();
    assert_eq!(found, [("b", b"2" as &[u8]), ("a", b"4")]);
}

#[test]
fn anything_but_one_object_is_refused() {
    for json in ["", "[]", "1", "\"{}\"", "{} {}", "{\"a\":}", "{\"a\": \"\\ud800\"}", "null"] {
        assert!(RowHeaders::default().read(json.as_bytes()).is_err(), "{json}");
    }
    assert!(RowHeaders::default().read(b"{\"a\": \"\xFF\"}").is_err());
}

#[test]
fn a_name_with_nul_which_a_client_would_cut_is_refused_and_a_value_with_nul_is_not() {
    let mut headers = RowHeaders::default();
    headers.read(br#"{"a": "\u0000", "b": 1}"#).unwrap();
    headers.clear();
    assert_eq!(headers.read(br#"{"a\u0000b": 1}"#), Err(NotAnObject::HasNul));
    headers.clear();
    headers.read(br#"{"a": 1}"#).unwrap();
}

#[test]
fn reserved_names_are_left_out_and_counted() {
    let mut headers = RowHeaders::default();
    headers
        .read(br#"{"dlq-replay-for": "x", "a": 1, "DLQ-x": {"k": 2}, "X-Retry-Copy": "9", "x-retry": 1, "dlq": 2}"#)
        .unwrap();
    let found: Vec<_> = headers.iter().map(|(name, _)| name).collect();
    assert_eq!(found, ["a", "x-retry", "dlq"]);
    assert_eq!((headers.take_reserved(), headers.take_reserved()), (3, 0));
}

#[test]
fn large_headers_take_no_more_than_their_size() {
    // GIVEN an object of one large value, and one of very many members
    let large = format!("{{\"a\": \"{}\"}}", "x".repeat(3 << 20));
    let mut headers = RowHeaders::default();
    headers.read(large.as_bytes()).unwrap();
    assert!(headers.text.capacity() <= large.len(), "{}", headers.text.capacity());
    headers.give_back();
    assert_eq!(headers.text.capacity(), 0);
    let members: Vec<String> = (0..100_000).map(|n| format!("\"{n}\":1")).collect();
    let many = format!("{{{}}}", members.join(","));
    assert_eq!(headers.read(many.as_bytes()), Err(NotAnObject::TooLong(SPANS_MAX)));
    assert!(headers.spans.capacity() <= SPANS_MAX);
}
