use super::*;
use proptest::prelude::*;

#[test]
fn a_payload_is_what_it_reads_as() {
    assert_eq!(Data::of(b" {\"a\":1} "), Data::Json("{\"a\":1}"));
    assert_eq!(Data::of(b"{\"a\":"), Data::Text("{\"a\":"));
    assert_eq!(Data::of(b""), Data::Text(""));
    assert_eq!(Data::of(b"\"\xFF\""), Data::Bytes(b"\"\xFF\""));
}

proptest! {
    #[test]
    fn strings_are_read_back(text in any::<String>()) {
        let mut out = Vec::new();
        push_string(&mut out, &text);
        prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
    }
}
