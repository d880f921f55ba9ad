use super::*;

#[test]
fn what_others_wrote_forges_no_line_and_moves_no_cursor() {
    let raw = "a\x1b[2J\u{9b}\u{202e}\nerror[b]: c";
    let fault = Fault::new(Exit::Sink, "a.b", raw, raw, "one\x1b\ntwo\u{9b}");
    let clean = r"a\u{1b}[2J\u{9b}\u{202e}\nerror[b]: c";
    assert_eq!(
        fault.to_string(),
        format!(
            "error[a.b]: {clean}\n  where: {clean}\n  help:  one\\u{{1b}}\n         two\\u{{9b}}"
        )
    );
}
