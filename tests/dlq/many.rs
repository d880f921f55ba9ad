//! A hundred thousand dead letters.

use std::time::Instant;

use walrelay::base::time::rfc3339;
use walrelay_harness::kit::now_us;

use super::bench::{Bench, SECOND, Spec};
use crate::support::{LIMIT, machine};

const LETTERS: usize = 100_000;
const KEYS: usize = 1_000;
/// What a replay has handed over and not resolved when it is killed.
const WINDOW: u64 = 64;

#[test]
fn a_hundred_thousand_letters_of_kafka_are_found_and_replayed_across_a_kill() {
    hundred_thousand(Bench::kafka("dlq_many_kafka"));
}

#[test]
fn a_hundred_thousand_letters_of_rabbitmq_are_found_and_replayed_across_a_kill() {
    hundred_thousand(Bench::rabbitmq("dlq_many_rabbitmq"));
}

fn hundred_thousand(mut bench: Bench) {
    let _machine = machine();
    // GIVEN letters of the last day, one each second
    let first = now_us() - LETTERS as i64 * SECOND;
    let failed_at = |n: usize| first + n as i64 * SECOND;
    bench.write(
        (0..LETTERS)
            .map(|n| Spec { failed_unix_us: failed_at(n), ..Spec::new(n, (n % KEYS).to_string()) }),
    );
    // WHEN those of the last ten minutes are asked for THEN exactly these are listed
    let since = rfc3339(failed_at(LETTERS - 600));
    let asked = Instant::now();
    let (letters, ended) = bench.list(&["--since", &since]);
    println!("{}: 600 of {LETTERS} listed in {:?}", bench.site.name, asked.elapsed());
    assert_eq!(letters.len(), 600, "{}", ended.err);
    let until = rfc3339(failed_at(LETTERS - 500));
    assert_eq!(bench.ids(&["--since", &since, "--until", &until]).len(), 100);
    if bench.is_kafka {
        // THEN what is older was not read. RabbitMQ seeks by its own clock: these were all written
        // just now.
        ended.assert_says(&["600 dead letters; 600 records read"]);
    }
    // WHEN a replay is killed in the midst of it
    let reader = bench.reader();
    let mut replay = bench.spawn(&["replay", "--all"]);
    replay.wait_until("some events", || reader.count() > LETTERS as u64 / 5);
    drop(replay);
    let left = bench.ids(&[]).len();
    assert!((1..LETTERS - LETTERS / 6).contains(&left), "{left} letters are open");
    // THEN the next one does the rest, in order, and repeats no more than was in flight
    let asked = Instant::now();
    let ended = bench.spawn(&["replay", "--all"]).wait_within(3 * LIMIT);
    println!("{}: {left} replayed in {:?}", bench.site.name, asked.elapsed());
    ended.assert_done().assert_says(&[&format!("replayed {left} of {left} dead letters")]);
    let verdict = bench.judge(reader);
    println!("{}: {verdict}", bench.site.name);
    verdict.assert_exact(WINDOW);
    let (none, ended) = bench.list(&[]);
    assert!(none.is_empty());
    ended.assert_says(&["no dead letter matches state=open", "200000 records read"]);
    assert_eq!(bench.ids(&["--state", "replayed", "--until", &since]).len(), LETTERS - 600);
}
