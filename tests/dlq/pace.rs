//! How fast letters are worked off, and what happens where there is nothing to do.

use walrelay_harness::BrokerKind;
use walrelay_harness::kit::now_us;

use super::fixture::{DlqFixture, SECOND, Spec};
use crate::support::on_both_brokers;

/// Enough for a word about the progress, which comes every five seconds.
const LETTERS: usize = 240;
const PER_SECOND: usize = 30;
/// The events of a tenth of a second, which may go at once.
const AT_ONCE: usize = PER_SECOND / 10;

on_both_brokers!(a_replay_keeps_to_its_rate_and_reports_its_progress, rabbitmq in soak);

fn a_replay_keeps_to_its_rate_and_reports_its_progress(kind: BrokerKind) {
    let mut bench = DlqFixture::on(kind, "dlq_rate");
    bench.write((0..LETTERS).map(|n| Spec::new(n, (n % 7).to_string())));
    // WHEN they are replayed at a rate
    let began = now_us();
    let ended = bench.dlq(&["replay", "--all", "--rate", &format!("{PER_SECOND}/s")]);
    ended.assert_done().assert_says(&[&format!("replayed {LETTERS} of {LETTERS} dead letters")]);
    // THEN none was there before its time; confirms may be late, and then several come at once
    let mut at = bench.resolved_at();
    assert_eq!(at.len(), LETTERS);
    at.sort_unstable();
    for (letter, at) in at.into_iter().enumerate() {
        let due = letter.saturating_sub(AT_ONCE) as i64 * SECOND / PER_SECOND as i64;
        assert!(at - began >= due, "letter {letter} came {} µs early", due - (at - began));
    }
    // THEN it has told how far it was, on standard error
    let told =
        ended.err.lines().filter_map(|line| line.strip_prefix("replayed ")?.split_once(" of "));
    let told: Vec<usize> = told.map(|(done, _)| done.parse().unwrap()).collect();
    assert!(!told.is_empty() && told.is_sorted(), "{ended}");
    assert!(told.iter().all(|done| (1..=LETTERS).contains(done)), "{ended}");
    bench.judge(bench.site.reader()).assert_exact(0);
}

#[test]
fn where_no_dead_letter_matches_nothing_changes() {
    let mut bench = DlqFixture::on(BrokerKind::Kafka, "dlq_none");
    // GIVEN an empty topic THEN there is nothing to do, and that is no failure
    let actions = [&["replay"][..], &["discard", "--yes"]];
    for action in actions {
        let ended = bench.dlq(&[action, &["--all"]].concat());
        ended.assert_done().assert_says(&["no dead letter matches state=open; 0 records read"]);
    }
    // GIVEN letters WHEN a filter means none of them
    bench.write((0..3).map(|n| Spec::new(n, "k")));
    for action in actions {
        for (option, word, filter) in [
            ("--key", "nobody", "key=nobody state=open"),
            ("--error-class", "test.other", "error_class=test.other state=open"),
            ("--state", "discarded", "state=discarded"),
        ] {
            let all: &[&str] = if option == "--state" { &["--all"] } else { &[] };
            let ended = bench.dlq(&[action, &[option, word], all].concat());
            let told = format!("no dead letter matches {filter}; 3 records read");
            // THEN it says so, and that it has done nothing
            ended.assert_done().assert_says(&[&told, "\"count\":0", "\"ended\":\"done\""]);
            assert_eq!(ended.out, "", "{ended}");
        }
        let tally = bench.dlq(&[action, &["e", "--json"]].concat());
        tally.assert_done().assert_says(&["\"matched\":0,\"done\":0"]);
    }
    // THEN all are open still, nothing was written, and nothing has arrived
    let (open, ended) = bench.list_output(&[]);
    assert_eq!(open.len(), 3);
    ended.assert_says(&["3 records read"]);
    assert_eq!(bench.site.reader().finish(), [[]]);
}
