use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use clap::Parser as _;
use walrelay_core::relay::ports::Clock as _;

use crate::arguments::Arguments;
use crate::checker::Violation;
use crate::life::{Life, WorldClock};
use crate::story::{About, Line, page};
use crate::{Fleet, Options, run};

/// `docs/proof.md` names the seeds behind these that still show something.
const FIRST: u64 = 210;
const SEEDS: u64 = 100_000;

fn fleet(first: u64, seeds: u64, threads: usize) -> Fleet {
    Fleet {
        options: Options::of_seed(first),
        seeds,
        threads,
        stops_at_first: false,
        keeps_digests: true,
    }
}

fn arguments(line: &str) -> Result<Arguments, clap::Error> {
    Arguments::try_parse_from(["walrelay-simulation"].into_iter().chain(line.split_whitespace()))
}

#[test]
fn no_seed_violates_a_promise_and_every_state_is_reached() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let totals = fleet(FIRST, SEEDS, cores).play(|_| {});
    assert_eq!(totals.seeds, SEEDS);
    assert_eq!(totals.missing(), Vec::<String>::new());
    assert!(totals.violations.is_empty(), "{:#?}", totals.violations);
    assert!(totals.events > 200 * SEEDS, "{} events", totals.events);
    assert!(totals.faults > 3 * SEEDS, "{} faults", totals.faults);
}

#[test]
fn the_same_seed_decides_the_same() {
    for seed in [1, 77, 4_711] {
        let (one, other) = (run(&Options::of_seed(seed), true), run(&Options::of_seed(seed), true));
        assert!(one.story.len() > 100, "seed {seed}: {} lines", one.story.len());
        assert_eq!(one, other, "seed {seed}");
        let untold = run(&Options::of_seed(seed), false);
        assert_eq!(untold.digest, one.digest, "seed {seed}: what is told changes nothing");
    }
}

#[test]
fn the_number_of_threads_decides_nothing() {
    let (one, other) = (fleet(500_000, 300, 1).play(|_| {}), fleet(500_000, 300, 2).play(|_| {}));
    assert_eq!(one, other);
}

#[test]
fn faults_that_are_left_out_do_not_happen() {
    let seeds = (1..).map(|seed| run(&Options::of_seed(seed), false));
    let (seed, all) = (1..).zip(seeds).find(|(_, it)| it.happened.len() > 3).expect("a seed");
    let (first, _) = all.happened[0];
    let one = Options { faults: Some(vec![first]), ..Options::of_seed(seed) };
    assert_eq!(run(&one, false).happened, all.happened[..1]);
    let none = Options { faults: Some(Vec::new()), ..Options::of_seed(seed) };
    assert_eq!(run(&none, false).happened, []);
}

/// Each file has the options of a run, and then what it showed before that was mended. Those of a
/// mutant show it still, with the mutant.
#[test]
fn what_was_mended_stays_mended() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    for entry in fs::read_dir(&folder).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|it| it != "txt") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a readable file");
        let (options, showed) = text.split_once('\n').expect("options, and what they showed");
        let (mended, mutant) = options.split_once(" --mutant ").unwrap_or((options, ""));
        let mended = arguments(mended).expect("options of a run").options;
        assert_eq!(run(&mended, false).violation, None, "{}", path.display());
        if !mutant.is_empty() && cfg!(feature = "mutants") {
            let options = arguments(options).expect("options of a run").options;
            let what = run(&options, false).violation.map(|it| it.what);
            assert_eq!(what.as_deref(), Some(showed.trim()), "{}", path.display());
        }
    }
}

#[test]
fn a_wait_is_over_when_its_time_has_come_and_a_step_that_waits_for_ever_is_found() {
    let life = Life::new(&WorldClock::default(), 0);
    let until = life.instant() + Duration::from_nanos(1_500);
    life.wait(until - life.instant());
    assert!(life.instant() >= until);
    let waits_for_ever = || (0..1_000_000).for_each(|_| life.wait(Duration::ZERO));
    assert!(catch_unwind(AssertUnwindSafe(waits_for_ever)).is_err());
}

#[test]
fn arguments_are_read_as_they_are_shown() {
    let line = "--seed 7 --faults 1,4 --events 30 --relays 2 --sink direct --scenario Takeovers";
    let read = arguments(line).expect("arguments");
    assert_eq!(read.options.to_string(), line);
    assert_eq!(read.seeds(), 1);
    assert_eq!(arguments("--seed=7 --seeds 10_000").expect("arguments").seeds(), 10_000);
    assert_eq!(arguments("").expect("arguments").seeds(), 100_000);
}

#[test]
fn wrong_arguments_are_named() {
    for (line, named) in [
        ("--sedes 3", "--sedes"),
        ("--seeds many", "many"),
        ("--relays 9", "9"),
        ("--faults 1,x", "1,x"),
        ("--scenario Storms", "PeerConfirms, Takeovers, Combined"),
        ("--sink nats", "direct, kafka, rabbitmq"),
    ] {
        let told = arguments(line).expect_err("wrong arguments").to_string();
        assert!(told.contains(named), "{line}: {told}");
    }
}

#[test]
fn a_page_has_the_key_in_question_and_what_concerns_all() {
    let line = |at_us, about, text: &str| Line { at_us, about, text: text.to_owned() };
    let story = [
        line(1_000, About::All, "relay 0 starts"),
        line(2_000, About::Event(1), "stored: e1"),
        line(3_000, About::Event(2), "stored: e2"),
        line(4_000, About::LastOf, "confirmed up to 10"),
        line(5_000, About::Event(2), "stored: e2"),
        line(6_000, About::LastOf, "confirmed up to 20"),
        line(6_500, About::Detail, "step relay 0"),
        line(7_000, About::Event(3), "stored: e3"),
    ];
    let violation = Violation { what: "order".to_owned(), events: vec![3] };
    let shown = page(&story, &violation, &[Some(1), Some(2), Some(1)]);
    let expected = [
        "       1.0 ms  relay 0 starts",
        "       2.0 ms  stored: e1",
        "       6.0 ms  confirmed up to 20 (and 1 before)",
        "       7.0 ms  stored: e3",
    ];
    assert_eq!(shown, expected);
}
