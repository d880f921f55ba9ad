//! A private Prometheus, and its `promtool`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::place::Place;
use crate::process::{self, Kind, Process};
use crate::{Result, install, ports, relay};

const START_LIMIT: Duration = Duration::from_secs(30);
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// A running Prometheus. Dropping it removes it.
pub struct Prometheus {
    // Its drop ends the server and removes the folder.
    _process: Process,
    address: SocketAddr,
}

impl Prometheus {
    /// Starts it with this configuration, beside which these files lie, by name and text.
    pub fn start(configuration: &str, files: &[(&str, &str)]) -> Result<Prometheus> {
        ports::retry(|| Prometheus::start_once(configuration, files))
    }

    fn start_once(configuration: &str, files: &[(&str, &str)]) -> Result<Prometheus> {
        let program = install::prometheus_program("prometheus")?;
        let place = Place::here(&["prometheus", "nobody"])?;
        let address = SocketAddr::from(([127, 0, 0, 1], ports::free()?));
        let kind = Kind { name: "Prometheus", short: "prom", end: "KILL" };
        let mut process = Process::new(kind, place, "")?;
        for (name, text) in files.iter().chain(&[("prometheus.yml", configuration)]) {
            process.write(name, text)?;
        }
        let mut command = process.command(program);
        command
            .arg("--config.file=prometheus.yml")
            .arg("--storage.tsdb.path=data")
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=warn");
        process.spawn(&command)?;
        process.wait_ready(START_LIMIT, |_| {
            relay::get(address, "/-/ready", ANSWER_LIMIT).is_ok_and(|answer| answer.status == 200)
        })?;
        Ok(Prometheus { _process: process, address })
    }

    /// GETs a path of its HTTP API.
    pub fn get(&self, path: &str) -> Result<relay::Response> {
        relay::get(self.address, path, ANSWER_LIMIT)
    }
}

/// The output of `promtool`; an error if it fails.
pub fn promtool(folder: PathBuf, words: &[&str]) -> Result<String> {
    let mut command = Command::new(install::prometheus_program("promtool")?);
    process::run(command.current_dir(folder).args(words))
}
