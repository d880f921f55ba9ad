//! Very many dead letters, a hundred thousand in a soak run.

use std::time::Instant;

use walrelay::base::time::rfc3339;
use walrelay_harness::BrokerKind;
use walrelay_harness::kit::now_us;

use super::fixture::{DlqFixture, SECOND, Spec};
use crate::support::{half_machine, on_both_brokers, volume};

const KEYS: usize = 1_000;
/// The most events that a replay has handed over and not resolved when it is killed.
const WINDOW: u64 = 64;

on_both_brokers!(many_dead_letters_are_found_and_replayed_across_a_kill, both in soak);

fn many_dead_letters_are_found_and_replayed_across_a_kill(kind: BrokerKind) {
    let mut bench = DlqFixture::on(kind, "dlq_many");
    let _machine = half_machine();
    let letters = volume(3_000, 100_000);
    // GIVEN letters of the last day, one each second
    let first = now_us() - letters as i64 * SECOND;
    let failed_at = |n: usize| first + n as i64 * SECOND;
    bench.write(
        (0..letters)
            .map(|n| Spec { failed_unix_us: failed_at(n), ..Spec::new(n, (n % KEYS).to_string()) }),
    );
    // WHEN those of the last ten minutes are asked for THEN exactly these are listed
    let since = rfc3339(failed_at(letters - 600));
    let asked = Instant::now();
    let (found, ended) = bench.list_output(&["--since", &since]);
    println!("{}: 600 of {letters} listed in {:?}", bench.site.name, asked.elapsed());
    assert_eq!(found.len(), 600, "{}", ended.err);
    let until = rfc3339(failed_at(letters - 500));
    assert_eq!(bench.ids(&["--since", &since, "--until", &until]).len(), 100);
    // All were written just now, so all are read; sinks::kafka_log seeks by time.
    ended.assert_says(&["600 dead letters; "]);
    // WHEN a replay is killed in the midst of it
    let reader = bench.site.reader();
    let mut replay = bench.spawn(&["dlq", "replay", "--all"]);
    replay.wait_for_count("some events", letters as u64 / 5, || reader.count());
    drop(replay);
    let left = bench.ids(&[]).len();
    assert!((1..letters - letters / 6).contains(&left), "{left} letters are open");
    // THEN the next one does the rest, in order, and repeats no more than was in flight
    let asked = Instant::now();
    let mut replay = bench.spawn(&["dlq", "replay", "--all"]);
    replay.wait_for_count("the rest", letters as u64, || reader.count());
    let ended = replay.wait();
    println!("{}: {left} replayed in {:?}", bench.site.name, asked.elapsed());
    ended.assert_done().assert_says(&[&format!("replayed {left} of {left} dead letters")]);
    let verdict = bench.judge(reader);
    println!("{}: {verdict}", bench.site.name);
    verdict.assert_exact(WINDOW);
    let (none, ended) = bench.list_output(&[]);
    assert!(none.is_empty());
    ended.assert_says(&[
        "no dead letter matches state=open",
        &format!("{} records read", 2 * letters),
    ]);
    assert_eq!(bench.ids(&["--state", "replayed", "--until", &since]).len(), letters - 600);
}
