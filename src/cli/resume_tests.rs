use super::*;

fn stop(from: &str, to: &str) -> Stop {
    Stop {
        code: "slot.moved".to_owned(),
        since_unix_us: 0,
        what: "the slot stands ahead".to_owned(),
        place: "slot s\x1b[2J".to_owned(),
        mend: "compare\nthen: walrelay resume".to_owned(),
        from: from.to_owned(),
        to: to.to_owned(),
    }
}

#[test]
fn the_whole_stop_is_shown_before_anybody_is_asked() {
    let text = shown(&stop("0/10", "0/20"));
    for words in ["slot.moved", "1970-01-01T00:00:00", "between 0/10 and 0/20", "walrelay resume"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains('\x1b'), "{text}");
    assert!(shown(&stop("0/10", "0/10")).contains("the event at 0/10"));
    assert!(!shown(&stop("0/0", "0/0")).contains("in doubt"));
}
