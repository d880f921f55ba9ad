//! Contenders, as this machine has them.

use std::path::{Path, PathBuf};

use walrelay_harness::bench::Progress;
use walrelay_harness::{Result, peers};

use crate::options::Options;
use crate::peer::{Contender, Peer};

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
        peers::fetch(&asked)?;
    }
    options.peers.iter().map(|peer| found(*peer, &options.walrelay)).collect()
}

fn found(peer: Peer, walrelay: &Path) -> Result<Contender> {
    let installed = match peer {
        Peer::Walrelay => peers::Installed {
            program: walrelay.to_owned(),
            home: PathBuf::new(),
            runtime: None,
            missing: (!walrelay.is_file()).then(|| format!("{} is not there", walrelay.display())),
        },
        Peer::Debezium => peers::debezium()?,
        Peer::MqBridge => peers::mq_bridge()?,
    };
    Ok(Contender { peer, installed })
}
