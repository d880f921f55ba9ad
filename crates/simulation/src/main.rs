//! The program that plays seeds. See [`walrelay_simulation::arguments`].

use std::fs;
use std::io::{IsTerminal, Write as _, stderr};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser as _;
use walrelay_simulation::arguments::Arguments;
use walrelay_simulation::{Fleet, Options, Progress, Shrunk, Totals, Violation, run, shrink};

/// Where no terminal shows a bar.
const LINE_EVERY: Duration = Duration::from_secs(5);
const BAR_WIDTH: usize = 30;
/// Further violations are only counted.
const VIOLATIONS_SHOWN: u64 = 20;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // A panic is a violation of its seed, and told of there.
    std::panic::set_hook(Box::new(|_| {}));
    if arguments.all_mutants {
        return judge_mutants(&arguments);
    }
    if arguments.tells {
        tell_story(&arguments.options);
    }
    let totals = play(&arguments);
    totals.digests.iter().for_each(|(seed, digest)| println!("{seed} {digest:016x}"));
    print!("how often these states were reached:\n{}", totals.sometimes);
    if let Some((seed, _)) = totals.violations.first_key_value() {
        let options = Options { seed: *seed, ..arguments.options.clone() };
        show_smallest(&options, arguments.keep.as_deref());
    }
    for state in totals.missing() {
        println!("never reached: {state}");
    }
    let (faults, violations) = (totals.faults, totals.violations.len());
    println!("{} seeds, {faults} faults, {violations} violations", totals.seeds);
    if totals.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(not(feature = "mutants"))]
fn judge_mutants(_: &Arguments) -> ExitCode {
    eprintln!("walrelay-simulation: --mutants needs a build with the feature `mutants`");
    ExitCode::from(2)
}

#[cfg(feature = "mutants")]
fn judge_mutants(arguments: &Arguments) -> ExitCode {
    use walrelay_simulation::mutants;
    let Arguments { options, keep, .. } = arguments;
    let (seeds, threads) = (arguments.seeds(), arguments.threads());
    let verdicts = mutants::judge_all(options, seeds, threads, |verdict| {
        eprintln!("{verdict}");
        if verdict.is_caught() {
            eprintln!("    {}", verdict.options);
            let shrunk = keep.as_ref().zip(shrink(&verdict.options));
            shrunk.iter().for_each(|(folder, shrunk)| write_regression(folder, shrunk));
        }
    });
    println!(
        "| mutant | what it does | seeds until caught | what the checker says |\n|---|---|---|---|"
    );
    verdicts.iter().for_each(|verdict| println!("{verdict}"));
    let caught = verdicts.iter().filter(|verdict| verdict.is_caught()).count();
    println!("{} mutants, {caught} caught", verdicts.len());
    if caught == verdicts.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tell_story(options: &Options) {
    for line in run(options, true).story {
        println!("{line}");
    }
}

/// The smallest schedule that fails as this one does, and its story.
fn show_smallest(options: &Options, keep: Option<&str>) {
    let Some(shrunk) = shrink(options) else { return };
    if let Some(folder) = keep {
        write_regression(folder, &shrunk);
    }
    println!("\nthe smallest schedule of seed {} that fails so:\n", options.seed);
    for line in shrunk.page {
        println!("{line}");
    }
    println!("\n{} --story\n", shrunk.options);
}

/// A file as those in `regressions`.
fn write_regression(folder: &str, shrunk: &Shrunk) {
    let Shrunk { options, what, .. } = shrunk;
    let name = options.mutant.map_or_else(|| format!("seed-{}", options.seed), str::to_owned);
    let path = Path::new(folder).join(format!("{name}.txt"));
    match fs::write(&path, format!("{options}\n{what}\n")) {
        Ok(()) => println!("written: {}", path.display()),
        Err(error) => println!("{} cannot be written: {error}", path.display()),
    }
}

fn play(arguments: &Arguments) -> Totals {
    let seeds = arguments.seeds();
    let fleet = Fleet {
        options: arguments.options.clone(),
        seeds,
        threads: arguments.threads(),
        stops_at_first: arguments.stops_at_first,
        keeps_digests: arguments.shows_digests,
    };
    let mut shown = Shown::new(seeds);
    let totals = fleet.play(|progress| match progress {
        Progress::Played(played) => shown.played(played),
        Progress::Violated(seed, violation) => shown.violated(seed, violation),
    });
    shown.clear();
    let seconds = shown.began.elapsed().as_secs_f64();
    let rate = totals.seeds as f64 / seconds;
    println!(
        "{} events, {} rounds, {seconds:.1} s, {rate:.0} seeds a second",
        totals.events, totals.rounds
    );
    totals
}

/// A bar on a terminal, else a line now and then.
struct Shown {
    seeds: u64,
    began: Instant,
    last_line: Instant,
    has_terminal: bool,
    violations: u64,
}

impl Shown {
    fn new(seeds: u64) -> Shown {
        let began = Instant::now();
        let has_terminal = stderr().is_terminal();
        Shown { seeds, began, last_line: began, has_terminal, violations: 0 }
    }

    fn played(&mut self, played: u64) {
        let seconds = self.began.elapsed().as_secs_f64();
        let rate = played as f64 / seconds.max(1e-3);
        let left = (self.seeds - played) as f64 / rate.max(1e-3);
        let violations = self.violations;
        let text = format!(
            "{played} of {} seeds, {rate:.0} a second, {left:.0} s left, {violations} violations",
            self.seeds
        );
        if self.has_terminal {
            let filled = (BAR_WIDTH as u64 * played / self.seeds.max(1)) as usize;
            let bar = format!("{}{}", "█".repeat(filled), "░".repeat(BAR_WIDTH - filled));
            eprint!("\r\x1b[K{bar} {text}");
            // What cannot be shown is not needed.
            stderr().flush().unwrap_or_default();
        } else if self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            eprintln!("{text}");
        }
    }

    fn violated(&mut self, seed: u64, violation: &Violation) {
        self.violations += 1;
        if self.violations <= VIOLATIONS_SHOWN {
            self.clear();
            println!("seed {seed}: {violation}");
        }
    }

    fn clear(&self) {
        if self.has_terminal {
            eprint!("\r\x1b[K");
        }
    }
}
