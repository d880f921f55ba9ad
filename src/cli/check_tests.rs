use super::*;

fn findings() -> Vec<Finding> {
    let fault = Fault::new(Exit::Slot, "slot.missing", "no slot", "source.slot", "walrelay\ninit");
    vec![Finding::ok("a", "fine"), Finding::warn("b", "so so"), Finding::fail(fault)]
}

#[test]
fn each_finding_is_a_line_with_its_mending_below() {
    assert_eq!(
        to_text(&findings(), false),
        "✓ fine\n! so so\n✗ no slot (source.slot)\n    help: walrelay\n          init  \
         [slot.missing]\nnot ready: 1 problem (✗), 1 warning (!)\n"
    );
    assert!(to_text(&findings()[..2], false).ends_with("ready; 1 warning (!)\n"));
    assert!(to_text(&findings()[..1], false).ends_with("all is well\n"));
    assert!(to_text(&findings(), true).contains("\x1b[31m✗\x1b[0m no slot"));
}

#[test]
fn a_fault_that_nothing_is_known_to_mend_has_only_its_code() {
    let fault = Fault::new(Exit::Source, "source.refused", "refused", "", "");
    assert_eq!(lines(&[Finding::fail(fault)], false), "✗ refused\n    [source.refused]\n");
}

#[test]
fn what_others_wrote_forges_no_finding() {
    let raw = "x\n✓ all is well\x1b[2J\u{9b}";
    let fault = Fault::new(Exit::Source, "a.b", raw, raw, format!("{raw}\nthen"));
    let text = lines(&[Finding::ok("a", raw), Finding::fail(fault)], false);
    let starts: Vec<&str> = text.lines().map(|line| line.split('x').next().unwrap()).collect();
    assert_eq!(
        starts,
        [
            "✓ ",
            "✗ ",
            "    help: ",
            "          ✓ all is well\\u{1b}[2J\\u{9b}",
            "          then  [a.b]"
        ]
    );
    assert_eq!(text, escaped_lines(&text));
}

#[test]
fn scripts_get_the_same_as_people() {
    let value = to_json(&findings());
    assert_eq!(value["ok"], false);
    assert_eq!(value["findings"][2]["topic"], "slot.missing");
    assert_eq!(value["findings"][2]["help"], "walrelay\ninit");
    assert_eq!(value["findings"][2]["exit"], 3);
    assert_eq!(value["findings"][0]["level"], "ok");
}

#[test]
fn a_link_that_anybody_can_read_or_pose_as_the_end_of_is_warned_of() {
    let server = PostgresHost { name: "db".into(), port: 5432, password: None };
    let topic = |link| unsafe_link(link, &server).map(|finding| (finding.level, finding.topic));
    assert_eq!(topic(LinkSafety::Safe), None);
    assert_eq!(topic(LinkSafety::Exposed), Some((Level::Warn, "source.no-tls")));
    assert_eq!(topic(LinkSafety::Unverified), Some((Level::Warn, "source.tls-unverified")));
}
