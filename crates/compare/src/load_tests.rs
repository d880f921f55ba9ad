use super::*;

#[test]
fn a_payload_is_json_of_the_announced_size_and_says_its_number() {
    for number in [0, 7, 123_456_789] {
        let text = payload(3, number);
        assert_eq!(text.len(), PAYLOAD_BYTES);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["n"], number);
        assert_eq!(value["run"], 3);
    }
}

#[test]
fn a_key_has_one_writer_at_every_rate() {
    for rate in [1, 1000, 1001, 4000, 4001, 100_000] {
        assert_eq!(KEYS % connections(rate), 0, "{rate}");
    }
    assert_eq!(key(1), key(KEYS + 1));
    assert_ne!(key(1), key(2));
}
