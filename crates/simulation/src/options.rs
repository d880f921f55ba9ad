//! Options of a run: a seed, and the parts of its schedule that are left out.

use std::fmt;

use crate::scenarios::Scenario;

/// The sink through which the relays publish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SinkKind {
    /// A sink without a protocol: one event of a key at a time.
    #[default]
    Direct,
    Kafka,
    Rabbitmq,
}

impl SinkKind {
    pub const ALL: [SinkKind; 3] = [SinkKind::Direct, SinkKind::Kafka, SinkKind::Rabbitmq];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SinkKind::Direct => "direct",
            SinkKind::Kafka => "kafka",
            SinkKind::Rabbitmq => "rabbitmq",
        }
    }

    #[must_use]
    pub fn of(name: &str) -> Option<SinkKind> {
        SinkKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// One run. What is none is as the seed has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub seed: u64,
    /// Only these of the seed's faults happen, by their index.
    pub faults: Option<Vec<u32>>,
    /// So many events are committed, at least.
    pub events: Option<u64>,
    pub relays: Option<usize>,
    pub sink: Option<SinkKind>,
    pub scenario: Option<Scenario>,
    /// The name of a bug that is put into the core.
    pub mutant: Option<&'static str>,
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
        if let Some(faults) = &self.faults {
            let faults: Vec<String> = faults.iter().map(u32::to_string).collect();
            let list = if faults.is_empty() { "none".to_owned() } else { faults.join(",") };
            write!(f, " --faults {list}")?;
        }
        if let Some(events) = self.events {
            write!(f, " --events {events}")?;
        }
        if let Some(relays) = self.relays {
            write!(f, " --relays {relays}")?;
        }
        if let Some(sink) = self.sink {
            write!(f, " --sink {}", sink.name())?;
        }
        if let Some(scenario) = self.scenario {
            write!(f, " --scenario {scenario:?}")?;
        }
        if let Some(mutant) = self.mutant {
            write!(f, " --mutant {mutant}")?;
        }
        Ok(())
    }
}
