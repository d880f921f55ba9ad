//! Words that will not do are told before the broker is asked, with what was expected.

use crate::support::faults::CliFixture;

#[test]
fn what_is_malformed_is_told_before_anything_is_read() {
    // GIVEN a broker that nobody could ask
    let mut scene = CliFixture::bare("dlq_words");
    scene.sink = "[sink.kafka]\nbrokers = \"127.0.0.1:1\"\n".into();
    let filter = "dead-letter.bad-filter";
    let cases: &[(&[&str], &str, &[&str])] = &[
        (&["list", "--since", "yesterday"], filter, &["--since", "2026-11-21", "15m, 2h, 3d"]),
        (&["list", "--until", "2026-02-30"], filter, &["--until"]),
        (&["list", "--since", "1h", "--until", "2h"], filter, &["a time after since"]),
        (&["list", "--state", "closed"], filter, &["open, replayed, discarded or all"]),
        (&["list", ""], filter, &["ID", "not empty"]),
        (&["list", "--error-class", ""], filter, &["--error-class"]),
        (&["replay"], "dead-letter.unselected", &["no filter and no --all"]),
        (&["discard", "--state", "all"], "dead-letter.unselected", &["walrelay dlq discard"]),
        (&["replay", "--all", "--key", "k"], "dead-letter.unselected", &["contradict"]),
        (&["replay", "--all", "--rate", "50"], "dead-letter.bad-rate", &["50/s or 300/min"]),
        (&["replay", "--all", "--rate", "0/s"], "dead-letter.bad-rate", &["--rate"]),
        (&["discard", "--all", "--rate", "-1/s"], "", &[]),
        (&["list", "--limit", "many"], "", &["--limit"]),
        (&["release"], "dead-letter.unselected", &["walrelay dlq release --key KEY, or --all"]),
        (&["show"], "", &["<ID>..."]),
    ];
    for (words, code, told) in cases {
        let ended = scene.walrelay(&[&["dlq"], *words].concat());
        assert_eq!(ended.code, 2, "{ended}");
        match *code {
            "" => ended.assert_says(told),
            code => ended.assert_fault(2, code, told),
        };
    }
    // THEN several are told at once
    let both = scene.walrelay(&["dlq", "list", "--since", "x", "--state", "y"]);
    both.assert_fault(2, filter, &["--since", "--state"]);
}
