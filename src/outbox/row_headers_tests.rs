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
fn anything_but_one_object_is_refused() {
    for json in ["", "[]", "1", "\"{}\"", "{} {}", "{\"a\":}", "{\"a\": \"\\ud800\"}", "null"] {
        assert!(RowHeaders::default().read(json.as_bytes()).is_err(), "{json}");
    }
    assert!(RowHeaders::default().read(b"{\"a\": \"\xFF\"}").is_err());
}
