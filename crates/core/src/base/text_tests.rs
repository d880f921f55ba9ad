use super::*;

#[test]
fn nothing_that_moves_a_cursor_gets_through() {
    assert_eq!(shown("order-7 ü".as_bytes()), "order-7 ü");
    assert_eq!(shown(b"a\x1b[2Jb\r\n"), "a\\u{1b}[2Jb\\r\\n");
    assert_eq!(shown(&[b'k', 0xff, 0xfe, 0]), "k\\xff\\xfe\\u{0}");
    assert_eq!(escaped("a\u{202e}b\u{9b}"), "a\\u{202e}b\\u{9b}");
    assert_eq!(escaped("a\u{2028}b\u{2029}\x7f"), "a\\u{2028}b\\u{2029}\\u{7f}");
    assert_eq!(escaped(&escaped("a\x1b")), "a\\u{1b}", "it may be done twice");
}

#[test]
fn lines_end_where_they_ended_and_nothing_else_gets_through() {
    assert_eq!(escaped_lines("a\x1b[2J\r\nb\n"), "a\\u{1b}[2J\\r\nb\n");
    assert_eq!(json_lines_shown("{\"a\":\"\u{9b}\"}\n{}\n"), "{\"a\":\"\\u009b\"}\n{}\n");
}

#[test]
fn a_quoted_text_is_one_word() {
    assert_eq!(quoted("order-7"), "'order-7'");
    assert_eq!(quoted("a'b $(c)\n"), r"'a'\''b $(c)\n'");
}

#[test]
fn json_that_is_shown_means_the_same() {
    let text = "ü\u{9b}2J\u{202e}\u{7f}\n";
    let shown = json_shown(&serde_json::to_string(text).unwrap());
    assert_eq!(shown, r#""ü\u009b2J\u202e\u007f\n""#);
    assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
}

#[test]
fn near_misses_are_recognised() {
    let known = ["slot", "publication", "stall_timeout"];
    assert_eq!(nearest("slto", known), Some("slot"));
    assert_eq!(nearest("stall-timeout", known), Some("stall_timeout"));
    assert_eq!(nearest("aggregate_id", ["aggregatetype", "aggregateid"]), Some("aggregateid"));
    assert_eq!(nearest("colour", known), None);
}
