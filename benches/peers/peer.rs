//! Who is measured: how each is configured, started and stopped.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::Serialize;
use walrelay_harness::peers::Installed;
use walrelay_harness::program::{Launch, Program};
use walrelay_harness::{HarnessError, Result};

/// After this a contender that was told to stop is killed by its id.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Peer {
    /// This tree's binary.
    Walrelay,
    /// Debezium Server with the Outbox Event Router.
    Debezium,
    /// mq-bridge-app, `copy` mode.
    MqBridge,
}

/// The outcome of one measurement of one contender.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome<T> {
    Measured(T),
    /// Why there is no figure.
    Failed(String),
}

impl<T> From<Result<T>> for Outcome<T> {
    fn from(result: Result<T>) -> Outcome<T> {
        match result {
            Ok(measured) => Outcome::Measured(measured),
            Err(error) => Outcome::Failed(error.to_string()),
        }
    }
}

/// A file that a contender is configured by: its name and its template.
type Template = (&'static str, &'static str);

impl Peer {
    /// For people, with the version that is measured.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Peer::Walrelay => concat!("walrelay ", env!("CARGO_PKG_VERSION")),
            Peer::Debezium => "Debezium Server 3.6.0",
            Peer::MqBridge => "mq-bridge-app 1.3.0",
        }
    }

    /// As on the command line.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Peer::Walrelay => "walrelay",
            Peer::Debezium => "debezium",
            Peer::MqBridge => "mq-bridge",
        }
    }

    fn arguments(self) -> &'static str {
        match self {
            Peer::Walrelay => include_str!("walrelay.args"),
            Peer::Debezium => include_str!("debezium.args"),
            Peer::MqBridge => include_str!("mq-bridge.args"),
        }
    }

    fn configuration(self) -> Option<Template> {
        match self {
            Peer::Walrelay => Some(("walrelay.toml", include_str!("walrelay.toml"))),
            // Where Debezium Server looks for it.
            Peer::Debezium => {
                Some(("config/application.properties", include_str!("debezium.properties")))
            }
            Peer::MqBridge => None,
        }
    }
}

/// The services at which a contender is pointed.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) postgres_port: u16,
    pub(crate) brokers: String,
    pub(crate) slot: String,
    pub(crate) topic: String,
}

/// A relay as this machine has it.
pub(crate) struct Contender {
    pub(crate) peer: Peer,
    pub(crate) installed: Installed,
}

impl Contender {
    pub(crate) fn name(&self) -> &'static str {
        self.peer.name()
    }

    /// Writes its configuration into `folder` and starts it there.
    pub(crate) fn start(&self, target: &Target, folder: &Path) -> Result<Program> {
        let http_port = walrelay_harness::free_port()?;
        let fill = |template: &str| {
            let pairs = [
                ("{postgres_port}", target.postgres_port.to_string()),
                ("{http_port}", http_port.to_string()),
                ("{brokers}", target.brokers.clone()),
                ("{slot}", target.slot.clone()),
                ("{topic}", target.topic.clone()),
                ("{publication}", walrelay_harness::bench::PUBLICATION.to_owned()),
                ("{folder}", folder.display().to_string()),
                ("{home}", self.installed.home.display().to_string()),
            ];
            pairs.iter().fold(template.to_owned(), |text, (name, value)| text.replace(name, value))
        };
        let arguments: Vec<String> = lines(&fill(self.peer.arguments()));
        if let Some((name, template)) = self.peer.configuration() {
            write(&folder.join(name), &fill(template))?;
        }
        let command =
            format!("{}\n  {}\n", self.installed.program.display(), arguments.join("\n  "));
        write(&folder.join("command"), &command)?;
        Program::start(Launch {
            name: self.peer.id().to_owned(),
            program: self.installed.program.clone(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            folder: folder.to_owned(),
        })
    }

    /// Its arguments and its configuration, without what differs from run to run.
    pub(crate) fn settings(&self) -> String {
        let arguments = lines(self.peer.arguments()).join(" ");
        let program = self.installed.program.file_name().unwrap_or_default().to_string_lossy();
        let configuration = self
            .peer
            .configuration()
            .map(|(name, template)| format!("\n\n{name}:\n{}", lines(template).join("\n")));
        format!("{program} {arguments}{}", configuration.unwrap_or_default())
    }
}

/// The lines of a template that count.
fn lines(text: &str) -> Vec<String> {
    let counts = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
    text.lines().filter(counts).map(str::to_owned).collect()
}

fn write(path: &Path, text: &str) -> Result<()> {
    let failed = |source| HarnessError::Io { doing: format!("write {}", path.display()), source };
    path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(failed)?;
    std::fs::write(path, text).map_err(failed)
}

/// Asks it to stop, and tells how it did: some do not, some have before.
pub(crate) fn stop(mut program: Program) -> Result<String> {
    let began = Instant::now();
    if !program.is_running() {
        return Ok(format!("had ended with {}", program.wait_exit(Duration::ZERO)?));
    }
    program.sigterm()?;
    match program.wait_exit(STOP_LIMIT) {
        Ok(code) => Ok(format!("ended with {code} after {:.1} s", began.elapsed().as_secs_f64())),
        Err(HarnessError::Late { .. }) => {
            program.kill9()?;
            Ok(format!("did not end within {} s of SIGTERM: killed", STOP_LIMIT.as_secs()))
        }
        Err(error) => Err(error),
    }
}
