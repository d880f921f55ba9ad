//! Relays of others, as `scripts/peers` leaves them; the paths are a contract between the two.
//!
//! Benchmarks measure them, and tests hand a slot over to them and back.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{HarnessError, Result, cache_folder};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/peers");
const DEBEZIUM: &str = "debezium-server-3.6.0.Final";
const MQ_BRIDGE: &str = "mq-bridge-app-1.3.0";

/// A relay as this machine has it.
#[derive(Clone, Debug)]
pub struct Installed {
    /// The executable.
    pub program: PathBuf,
    /// Where it is installed.
    pub home: PathBuf,
    /// The version of what it runs on, if it does not stand alone.
    pub runtime: Option<String>,
    /// Why it cannot be started.
    pub missing: Option<String>,
}

/// Fetches those of the named relays (`debezium`, `mq-bridge`) that are not here.
pub fn fetch(peers: &[&str]) -> Result<()> {
    // What it says goes to stderr: stdout is the caller's.
    let status = Command::new(SCRIPT).args(peers).stdout(std::io::stderr()).status();
    let status = status.map_err(HarnessError::io(format!("run {SCRIPT}")))?;
    if status.success() {
        return Ok(());
    }
    Err(HarnessError::Other(format!("{SCRIPT} ended with {status}")))
}

/// Debezium Server: its executable is a JVM.
pub fn debezium() -> Result<Installed> {
    let peers = folder()?;
    let mut found = found("debezium", peers.join("java/bin/java"), peers.join(DEBEZIUM));
    found.runtime = java_version(&found.program);
    Ok(found)
}

/// mq-bridge-app, built from its crate.
pub fn mq_bridge() -> Result<Installed> {
    let home = folder()?.join(MQ_BRIDGE);
    Ok(found("mq-bridge", home.join("bin/mq-bridge-app"), home))
}

fn folder() -> Result<PathBuf> {
    Ok(cache_folder()?.join("peers"))
}

fn found(peer: &str, program: PathBuf, home: PathBuf) -> Installed {
    let told = home.with_file_name(format!("{peer}.missing"));
    let missing = match std::fs::read_to_string(told) {
        Ok(why) => Some(why.trim().to_owned()),
        Err(_) if !program.is_file() => Some(format!("{} is not there", program.display())),
        Err(_) => None,
    };
    Installed { program, home, runtime: None, missing }
}

/// From the file beside every JVM; asking the JVM takes longer.
fn java_version(java: &Path) -> Option<String> {
    let home = std::fs::canonicalize(java).ok()?.parent()?.parent()?.to_owned();
    let release = std::fs::read_to_string(home.join("release")).ok()?;
    let version = release.lines().find_map(|line| line.strip_prefix("JAVA_VERSION="))?;
    Some(format!("Java {}", version.trim_matches('"')))
}
