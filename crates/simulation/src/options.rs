//! Options of a run: a seed, and the parts of its schedule that are left out.

use std::fmt;

use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum};

use crate::scenarios::Scenario;

/// The sink through which the relays publish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SinkKind {
    /// A sink without a protocol: one event of a key at a time.
    #[default]
    Direct,
    Kafka,
    Rabbitmq,
}

impl SinkKind {
    pub const ALL: [SinkKind; 3] = [SinkKind::Direct, SinkKind::Kafka, SinkKind::Rabbitmq];
}

/// One run. What is none is as the seed has it.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The first seed that is played
    #[arg(long, value_name = "FIRST", default_value_t = 1, value_parser = number)]
    pub seed: u64,
    /// Only these faults of the seed happen, by their index; none: no fault
    #[arg(long, value_name = "1,4", value_parser = indexes)]
    pub faults: Option<::std::vec::Vec<u32>>,
    /// The seed ends once so many events are committed
    #[arg(long, value_name = "N", value_parser = number)]
    pub events: Option<u64>,
    /// So many relays run [default: the seed decides]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=3))]
    pub relays: Option<usize>,
    /// The sink through which the relays publish [default: the seed decides]
    #[arg(long, value_enum)]
    pub sink: Option<SinkKind>,
    /// The script that each seed plays, most of them not to RabbitMQ [default: the seed decides]
    #[arg(long, value_enum, value_name = "NAME")]
    pub scenario: Option<Scenario>,
    /// The name of a bug that is put into the core (feature `mutants`)
    #[arg(long, value_name = "NAME", value_parser = crate::mutant_named)]
    pub mutant: Option<&'static str>,
}

/// A number that may have underscores and commas in it.
pub(crate) fn number(text: &str) -> Result<u64, std::num::ParseIntError> {
    text.replace(['_', ','], "").parse()
}

fn indexes(list: &str) -> Result<Vec<u32>, std::num::ParseIntError> {
    if list == "none" { Ok(Vec::new()) } else { list.split(',').map(str::parse).collect() }
}

impl Options {
    #[must_use]
    pub fn of_seed(seed: u64) -> Options {
        Options { seed, ..Options::default() }
    }

    pub(crate) fn keeps(&self, fault: u32) -> bool {
        self.faults.as_ref().is_none_or(|kept| kept.contains(&fault))
    }
}

/// As arguments of the program.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--seed {}", self.seed)?;
        let faults = self.faults.as_ref().map(|faults| match &faults[..] {
            [] => "none".to_owned(),
            some => some.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
        });
        let parts = [
            ("faults", faults),
            ("events", self.events.map(|it| it.to_string())),
            ("relays", self.relays.map(|it| it.to_string())),
            ("sink", self.sink.map(|it| format!("{it:?}").to_lowercase())),
            ("scenario", self.scenario.map(|it| format!("{it:?}"))),
            ("mutant", self.mutant.map(str::to_owned)),
        ];
        let mut given = parts.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        given.try_for_each(|(name, value)| write!(f, " --{name} {value}"))
    }
}
