//! Reads the arguments of the program, and the lines of regressions.

use std::str::FromStr;

use crate::options::{Options, SinkKind};
use crate::scenarios::Scenario;

pub const USAGE: &str = "\
Plays seeded schedules to the core of walrelay, and checks what consumers see.

Usage: walrelay-simulation [OPTIONS]

  --seeds N         how many seeds are played [100000]; 1 if any of --faults, --events, --story is given
  --seed FIRST      the first of them [1]
  --threads N       how many threads play [all cores]
  --first           stop at the first violation
  --sink KIND       direct, kafka or rabbitmq: what the relays publish through [the seed decides]
  --scenario NAME   the script that each seed plays, but not to RabbitMQ: Takeovers, Combined, …
                    [the seed decides]
  --digest          print a line `seed fingerprint` for each seed, of what its relays did and when
  --story           print what happens in the first seed, line by line
  --faults 1,4      only these faults of the seed, by their index; none: no fault
  --events N        the seed ends once so many events are committed
  --relays N        so many relays
  --mutant NAME     put this bug into the core (feature `mutants`)
  --mutants         play up to --seeds to each mutant, or to that of --mutant, until it is caught three
                    times, and print a table (feature `mutants`)
  --keep FOLDER     write the smallest schedule that shows each violation, or each mutant, to a file there

The last line is `N seeds, N faults, N violations`. Exit 1 at any violation, and if an interesting state
was never reached in 10,000 seeds or more of all scenarios.";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    pub options: Options,
    pub seeds: u64,
    pub threads: usize,
    pub stops_at_first: bool,
    pub tells: bool,
    pub shows_digests: bool,
    pub all_mutants: bool,
    pub wants_help: bool,
    /// Where the smallest schedules are written.
    pub keep: Option<String>,
}

/// Reads the arguments; the error is a sentence about the wrong one.
pub fn read(arguments: impl IntoIterator<Item = String>) -> Result<Arguments, String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut read = Arguments {
        options: Options::of_seed(1),
        seeds: 0,
        threads: cores,
        stops_at_first: false,
        tells: false,
        shows_digests: false,
        all_mutants: false,
        wants_help: false,
        keep: None,
    };
    let mut seeds = None;
    let mut rest = arguments.into_iter().flat_map(split);
    while let Some(name) = rest.next() {
        let options = &mut read.options;
        match name.as_str() {
            "--help" | "-h" => read.wants_help = true,
            "--first" => read.stops_at_first = true,
            "--story" => read.tells = true,
            "--digest" => read.shows_digests = true,
            "--mutants" => read.all_mutants = true,
            "--keep" => read.keep = Some(text(&name, &mut rest)?),
            "--seeds" => seeds = Some(value(&name, &mut rest)?),
            "--seed" => options.seed = value(&name, &mut rest)?,
            "--threads" => read.threads = value::<usize>(&name, &mut rest)?.max(1),
            "--events" => options.events = Some(value(&name, &mut rest)?),
            "--relays" => options.relays = Some(relays(value(&name, &mut rest)?)?),
            "--faults" => options.faults = Some(faults(&text(&name, &mut rest)?)?),
            "--sink" => options.sink = Some(sink(&text(&name, &mut rest)?)?),
            "--scenario" => options.scenario = Some(scenario(&text(&name, &mut rest)?)?),
            "--mutant" => options.mutant = Some(mutant(&text(&name, &mut rest)?)?),
            _ => return Err(format!("unknown argument `{name}`; --help lists those that exist")),
        }
    }
    let is_one = read.tells || read.options.faults.is_some() || read.options.events.is_some();
    read.seeds = seeds.unwrap_or(if is_one { 1 } else { 100_000 });
    Ok(read)
}

/// `--name=value` is `--name value`.
fn split(argument: String) -> Vec<String> {
    match argument.split_once('=') {
        Some((name, value)) if name.starts_with("--") => vec![name.to_owned(), value.to_owned()],
        _ => vec![argument],
    }
}

fn text(name: &str, rest: &mut impl Iterator<Item = String>) -> Result<String, String> {
    rest.next().ok_or_else(|| format!("{name} needs a value"))
}

fn value<T: FromStr>(name: &str, rest: &mut impl Iterator<Item = String>) -> Result<T, String> {
    let text = text(name, rest)?;
    let digits: String = text.chars().filter(|it| !matches!(it, '_' | ',')).collect();
    digits.parse().map_err(|_| format!("{name} needs a number, and `{text}` is none"))
}

fn relays(relays: usize) -> Result<usize, String> {
    match relays {
        1..=3 => Ok(relays),
        _ => Err(format!("--relays is 1, 2 or 3, not {relays}")),
    }
}

fn faults(list: &str) -> Result<Vec<u32>, String> {
    if list == "none" {
        return Ok(Vec::new());
    }
    let index = |it: &str| {
        it.parse().map_err(|_| format!("--faults needs indexes like 1,4, and `{it}` is none"))
    };
    list.split(',').map(index).collect()
}

fn sink(name: &str) -> Result<SinkKind, String> {
    SinkKind::of(name).ok_or_else(|| {
        let names: Vec<&str> = SinkKind::ALL.iter().map(|kind| kind.name()).collect();
        format!("--sink is one of {}, not `{name}`", names.join(", "))
    })
}

fn scenario(name: &str) -> Result<Scenario, String> {
    Scenario::all().find(|it| format!("{it:?}") == name).ok_or_else(|| {
        let names: Vec<String> = Scenario::all().map(|it| format!("{it:?}")).collect();
        format!("--scenario is one of {}, not `{name}`", names.join(", "))
    })
}

fn mutant(name: &str) -> Result<&'static str, String> {
    crate::mutant_named(name)
}
