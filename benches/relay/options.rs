//! Options: the measurements, and their durations.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, ValueEnum};
use walrelay_harness::BrokerKind;

use crate::drain::Contender;

/// One part of the programme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// A backlog, as fast as possible.
    Drain,
    /// A steady rate, commit to consumer.
    Latency,
    /// Does the cost of an event depend on how many there are?
    Growth,
}

/// Measures walrelay between a real PostgreSQL and a real broker.
#[derive(Clone, Debug, Parser)]
#[command(name = "relay")]
pub(crate) struct Options {
    /// Which broker, kafka or rabbitmq; with rabbitmq, only its rows and the reader that nobody can beat
    #[arg(long, default_value = "kafka")]
    pub(crate) sink: BrokerKind,
    /// Rows of the backlog
    #[arg(long, default_value_t = 1_000_000, default_value_if("sink", "rabbitmq", "200000"))]
    pub(crate) rows: u64,
    /// Keys of the backlog. To RabbitMQ at most one event of each is unconfirmed
    #[arg(long, default_value_t = 1_000)]
    pub(crate) keys: u64,
    /// Rounds of the drain; every contender runs once in each
    #[arg(long, default_value_t = 3)]
    pub(crate) runs: usize,
    /// Seconds at each rate, after a warm-up
    #[arg(long, default_value_t = 20)]
    pub(crate) seconds: u64,
    /// Events per second
    #[arg(long, value_delimiter = ',', default_value = "100,1000,5000")]
    pub(crate) rates: Vec<u64>,
    /// About a minute: 200,000 rows (RabbitMQ: 50,000), one round, 4 s at 100 and 1,000 events/s
    #[arg(long)]
    pub(crate) quick: bool,
    /// Growth too: backlogs, transactions and keys from few to a million
    #[arg(long)]
    pub(crate) growth: bool,
    /// Growth up to a backlog of ten million
    #[arg(long)]
    pub(crate) long: bool,
    /// Only these parts
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<Part>,
    /// A release binary of the relay to measure instead of this tree's
    #[arg(long)]
    pub(crate) binary: Option<PathBuf>,
    /// Other release binaries beside this one, and nothing else: drain, or what --only names
    #[arg(long, value_delimiter = ',')]
    pub(crate) against: Vec<PathBuf>,
    /// The cost of being watched: the same relay with a scrape each second and eight consoles, and nothing else
    #[arg(long)]
    pub(crate) watched: bool,
    /// Folder for relay.json and relay.md
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench"))]
    pub(crate) out: PathBuf,
    /// This process is the bare pipeline
    #[arg(long, hide = true, num_args = 6)]
    pub(crate) bare_pipeline: Vec<String>,
    /// Given by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    /// From the command line.
    pub(crate) fn read() -> Options {
        let mut options = Options::parse();
        if options.quick {
            options.rows = options.rows.min(match options.sink {
                BrokerKind::Kafka => 200_000,
                BrokerKind::RabbitMq => 50_000,
            });
            options.runs = 1;
            options.seconds = options.seconds.min(4);
            options.rates.retain(|rate| *rate <= 1_000);
        }
        if options.is_comparison() && options.only.is_empty() {
            options.only = vec![Part::Drain];
        }
        if options.sink == BrokerKind::RabbitMq && options.runs_part(Part::Growth) {
            let text = "growth is measured through Kafka";
            Options::command().error(ErrorKind::ArgumentConflict, text).exit();
        }
        options.runs = options.runs.max(1);
        options.rates.retain(|rate| *rate > 0);
        options
    }

    /// The relay against another binary or another situation, without the usual contenders.
    pub(crate) fn is_comparison(&self) -> bool {
        self.watched || !self.against.is_empty()
    }

    /// Whether a part was asked for.
    pub(crate) fn runs_part(&self, part: Part) -> bool {
        if !self.only.is_empty() {
            return self.only.contains(&part);
        }
        part != Part::Growth || self.growth || self.long
    }

    /// The seconds of the drain, on two cores: the fill, what does not count, then a round
    /// of all contenders.
    fn drain_seconds(&self) -> u64 {
        let runs = Contender::all(self).len() * self.runs;
        let (rate, uncounted) = match self.sink {
            BrokerKind::Kafka => (130_000, 1),
            // The best window is looked for with half the rows, three times for each queue.
            BrokerKind::RabbitMq => (15_000, 4),
        };
        let each = |runs: u64| runs * self.rows / rate;
        self.rows / 60_000 + each(runs as u64 + uncounted) + 4 * self.runs as u64
    }

    /// Seconds of load before figures count.
    pub(crate) fn warm_up_seconds(&self) -> u64 {
        self.seconds.div_ceil(8).clamp(1, 3)
    }

    /// One line: what will happen and how long it takes on two cores.
    pub(crate) fn announcement(&self) -> String {
        let mut seconds = 10;
        let mut parts = Vec::new();
        if self.runs_part(Part::Drain) {
            seconds += self.drain_seconds();
            parts.push(format!("drain of {} rows × {}", self.rows, self.runs));
        }
        if self.runs_part(Part::Latency) {
            let measurements = if self.against.is_empty() { 3 } else { 1 + self.against.len() };
            seconds += (self.rates.len() * measurements) as u64
                * (self.seconds + self.warm_up_seconds() + 2);
            parts.push(format!("latency at {:?} events/s for {} s", self.rates, self.seconds));
        }
        if self.runs_part(Part::Growth) {
            seconds += if self.long { 900 } else { 240 };
            parts.push("growth".to_owned());
        }
        format!("{}; about {} min {:02} s", parts.join(", "), seconds / 60, seconds % 60)
    }
}
