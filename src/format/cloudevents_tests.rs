use super::*;
use proptest::prelude::*;

#[test]
fn base64_has_the_rfcs_vectors() {
    let base64 = |bytes: &[u8]| {
        let mut out = Vec::new();
        push_base64(&mut out, bytes);
        String::from_utf8(out).unwrap()
    };
    for (plain, expected) in
        [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
    {
        assert_eq!(base64(plain.as_bytes()), expected);
    }
    assert_eq!(base64(&[0xFB, 0xFF]), "+/8=");
}

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
