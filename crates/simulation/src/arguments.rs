//! Arguments of the program, and of the lines of regressions.

use clap::Parser;
use clap::builder::RangedU64ValueParser;

use crate::options::{Options, number};

/// Plays seeded schedules to the core of walrelay, and checks what consumers see
#[derive(Clone, Debug, Parser)]
#[command(
    name = "walrelay-simulation",
    after_help = "The last line is `N seeds, N faults, N violations`. The exit code is 1 at any violation, and if an \
                  interesting state was never reached in 10,000 seeds or more of all scenarios."
)]
pub struct Arguments {
    #[command(flatten)]
    pub options: Options,
    /// How many seeds are played [default: 100000; 1 if any of --faults, --events, --story is given]
    #[arg(long, value_name = "N", value_parser = number)]
    seeds: Option<u64>,
    /// How many threads play [default: all cores]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    threads: Option<usize>,
    /// Stop at the first violation
    #[arg(long = "first")]
    pub stops_at_first: bool,
    /// Print what happens in the first seed, line by line
    #[arg(long = "story")]
    pub tells: bool,
    /// Print a line `seed fingerprint` for each seed, of what its relays did and when
    #[arg(long = "digest")]
    pub shows_digests: bool,
    /// Play up to --seeds to each mutant, or to that of --mutant, until it is caught three times, some with a
    /// scenario of their own unless --scenario or --sink is given, and print a table (feature `mutants`)
    #[arg(long = "mutants")]
    pub all_mutants: bool,
    /// Write the smallest schedule that shows each violation, or each mutant, to a file there
    #[arg(long, value_name = "FOLDER")]
    pub keep: Option<String>,
}

impl Arguments {
    #[must_use]
    pub fn seeds(&self) -> u64 {
        let Options { faults, events, .. } = &self.options;
        let is_one = self.tells || faults.is_some() || events.is_some();
        self.seeds.unwrap_or(if is_one { 1 } else { 100_000 })
    }

    #[must_use]
    pub fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(cores)
    }
}
