//! Whom to measure, what, and for how long.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use crate::peer::Peer;

/// One part of the programme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// A backlog, as fast as possible.
    Drain,
    /// A steady rate, insert to consumer.
    Latency,
    /// Kills under load, and what the broker holds afterwards.
    Chaos,
}

/// Measures walrelay and its peers between a real PostgreSQL and a real Kafka.
#[derive(Clone, Debug, Parser)]
#[command(name = "peers")]
pub(crate) struct Options {
    /// Only these
    #[arg(long, value_enum, value_delimiter = ',', default_value = "walrelay,debezium,mq-bridge")]
    pub(crate) peers: Vec<Peer>,
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) only: Vec<Part>,
    /// Rows of the backlog
    #[arg(long, default_value_t = 300_000)]
    pub(crate) rows: u64,
    /// Rounds of the drain; every contender runs once in each
    #[arg(long, default_value_t = 3)]
    pub(crate) runs: usize,
    /// Events per second
    #[arg(long, value_delimiter = ',', default_value = "100,1000,5000")]
    pub(crate) rates: Vec<u64>,
    /// Seconds at each rate, after a warm-up
    #[arg(long, default_value_t = 20)]
    pub(crate) seconds: u64,
    /// Committed events under the kills
    #[arg(long, default_value_t = 40_000)]
    pub(crate) events: u64,
    /// Seconds over which they and the kills are spread
    #[arg(long, default_value_t = 60)]
    pub(crate) chaos_seconds: u64,
    /// The seed of load and kills: the same plan for every contender
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// About 4 minutes: 100,000 rows once, 5 s at 100 and 1,000 events/s, 10,000 events in 20 s of kills
    #[arg(long)]
    pub(crate) quick: bool,
    /// Folder for peers.json, peers.md and the run folders with configurations and logs
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/bench"))]
    pub(crate) out: PathBuf,
    /// The binary of walrelay
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/dist/walrelay"))]
    pub(crate) walrelay: PathBuf,
}

impl Options {
    /// From the command line.
    pub(crate) fn read() -> Options {
        let mut options = Options::parse();
        if options.quick {
            options.rows = options.rows.min(100_000);
            options.runs = 1;
            options.rates.retain(|rate| *rate <= 1_000);
            options.seconds = options.seconds.min(5);
            options.events = options.events.min(10_000);
            options.chaos_seconds = options.chaos_seconds.min(20);
        }
        options.rows = options.rows.max(1);
        options.runs = options.runs.max(1);
        options.rates.retain(|rate| *rate > 0);
        // One process serves all rates, and the slow ones warm it for the fast.
        options.rates.sort_unstable();
        options
    }

    /// Whether a part was asked for.
    pub(crate) fn runs_part(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    /// Seconds of load before the figures of a rate count.
    pub(crate) fn warm_up_seconds(&self) -> u64 {
        self.seconds.div_ceil(5).clamp(1, 5)
    }

    /// One line: what will happen and how long it takes on two cores.
    pub(crate) fn announcement(&self) -> String {
        let peers = self.peers.len() as u64;
        let mut seconds = 10;
        let mut parts = Vec::new();
        if self.runs_part(Part::Drain) {
            seconds += self.rows / 60_000 + self.runs as u64 * peers * (4 + self.rows / 30_000);
            parts.push(format!("drain of {} rows × {}", self.rows, self.runs));
        }
        if self.runs_part(Part::Latency) {
            let each = self.seconds + self.warm_up_seconds() + 1;
            seconds += peers * (8 + self.rates.len() as u64 * each);
            parts.push(format!("latency at {:?} events/s for {} s", self.rates, self.seconds));
        }
        if self.runs_part(Part::Chaos) {
            seconds += peers * (self.chaos_seconds + 25);
            parts.push(format!("{} events under kills for {} s", self.events, self.chaos_seconds));
        }
        format!("{}; about {} min {:02} s", parts.join(", "), seconds / 60, seconds % 60)
    }
}
