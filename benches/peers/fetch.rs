//! The peers as `scripts/peers` leaves them; the paths are a contract between the two.

use std::path::{Path, PathBuf};
use std::process::Command;

use walrelay_harness::bench::Progress;
use walrelay_harness::{HarnessError, Result};

use crate::options::Options;
use crate::peer::{Contender, Peer};

const DEBEZIUM: &str = "debezium-server-3.6.0.Final";
const MQ_BRIDGE: &str = "mq-bridge-app-1.3.0";

/// The contenders that were asked for, fetched if they were not here.
pub(crate) fn contenders(options: &Options, progress: &Progress) -> Result<Vec<Contender>> {
    let asked: Vec<&str> = options
        .peers
        .iter()
        .filter(|peer| **peer != Peer::Walrelay)
        .map(|peer| peer.id())
        .collect();
    if !asked.is_empty() {
        progress.say(&format!("looking for {}; what is missing is fetched once", asked.join(", ")));
        fetch(&asked)?;
    }
    let peers = walrelay_harness::cache_folder()?.join("peers");
    Ok(options.peers.iter().map(|peer| found(*peer, &peers)).collect())
}

fn fetch(peers: &[&str]) -> Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/peers");
    let failed = |source| HarnessError::Io { doing: format!("run {}", script.display()), source };
    // What it says goes to stderr: stdout is the report's.
    let mut command = Command::new(&script);
    let status = command.args(peers).stdout(std::io::stderr()).status().map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    Err(HarnessError::Other(format!("{} ended with {status}", script.display())))
}

fn found(peer: Peer, peers: &Path) -> Contender {
    let (program, home) = match peer {
        Peer::Walrelay => (PathBuf::from(env!("CARGO_BIN_EXE_walrelay")), PathBuf::new()),
        Peer::Debezium => (peers.join("java/bin/java"), peers.join(DEBEZIUM)),
        Peer::MqBridge => (peers.join(MQ_BRIDGE).join("bin/mq-bridge-app"), peers.join(MQ_BRIDGE)),
    };
    let told = std::fs::read_to_string(peers.join(format!("{}.missing", peer.id())));
    let missing = match told {
        Ok(why) if peer != Peer::Walrelay => Some(why.trim().to_owned()),
        _ if !program.is_file() => Some(format!("{} is not there", program.display())),
        _ => None,
    };
    let runtime = (peer == Peer::Debezium).then(|| java_version(&program)).flatten();
    Contender { peer, program, home, runtime, missing }
}

/// From the file beside every JVM; asking the JVM takes longer.
fn java_version(java: &Path) -> Option<String> {
    let home = std::fs::canonicalize(java).ok()?.parent()?.parent()?.to_owned();
    let release = std::fs::read_to_string(home.join("release")).ok()?;
    let version = release.lines().find_map(|line| line.strip_prefix("JAVA_VERSION="))?;
    Some(format!("Java {}", version.trim_matches('"')))
}
