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

#[test]
fn the_stop_of_another_relay_at_the_address_is_not_acknowledged() {
    let stop = stop("0/10", "0/20").to_json();
    // GIVEN a relay that polls, and one that reads its slot
    for slot in [Value::Null, json!({ "name": "orders" })] {
        let status = json!({ "source_slot": "orders", "slot": slot, "stop": stop });
        assert_eq!(stop_of(&status, "orders").map(|it| it.code), Some("slot.moved".to_owned()));
        assert!(stop_of(&status, "billing").is_none());
    }
    let runs = json!({ "source_slot": "orders", "slot": null, "stop": null });
    assert!(stop_of(&runs, "orders").is_none() && stop_of(&Value::Null, "orders").is_none());
}

#[test]
fn a_wrong_token_is_that_of_the_configuration() {
    let mend = |status| refusal_mend(status, "send the header".to_owned());
    assert!(mend(401).starts_with("admin.token of this configuration"), "{}", mend(401));
    assert_eq!(mend(409), "send the header");
}
