use super::*;

#[test]
fn what_is_no_object_is_named_by_its_type() {
    for (json, is) in [
        (&b"  \"secret\""[..], "it is a string"),
        (b"[1]", "it is an array"),
        (b"true", "it is a boolean"),
        (b"null", "it is null"),
        (b"-1", "it is a number"),
        (b"not json", "it is not JSON"),
        (b"truffle", "it is not JSON"),
        (b"2026-07-01", "it is not JSON"),
        (b"[1", "it is not JSON"),
        (b"secret", "it is not JSON"),
        (b" ", "it is empty"),
    ] {
        assert_eq!(opened(json).map(drop).unwrap_err().to_string(), is);
    }
    assert!(opened(b" {").is_ok());
}
