//! The relay under test: configured, started, asked. As a process it is a [`Program`].

mod config;
mod http;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use config::{RabbitTarget, RelayConfig};
#[cfg(feature = "system")]
pub(crate) use http::parse_metrics;
pub use http::{Response, get};

use crate::program::{Launch, Program};
use crate::{HarnessError, Result, ports};

/// The relay binary: `WALRELAY_BIN`, or `walrelay` near this executable (`target/release`).
pub fn default_binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("WALRELAY_BIN") {
        return Ok(path.into());
    }
    binary_near("walrelay")
}

/// A binary of the workspace, near this executable.
pub(crate) fn binary_near(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().map_err(HarnessError::io("find this executable"))?;
    let near = own.ancestors().skip(1).take(3).map(|folder| folder.join(name));
    near.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        let text = format!("no binary {name} near {}: `cargo build --workspace`", own.display());
        HarnessError::Other(text)
    })
}

pub struct RelayProcess {
    program: Program,
    admin: SocketAddr,
}

impl RelayProcess {
    /// Writes `walrelay.toml` into `folder` (made if missing) and runs `walrelay run` with it.
    pub fn start(binary: &Path, folder: &Path, config: RelayConfig) -> Result<RelayProcess> {
        let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()?));
        let file = config.write(folder, admin)?;
        let program = Program::start(Launch {
            name: "walrelay".into(),
            program: binary.into(),
            arguments: vec!["run".into(), "--config".into(), file.into()],
            env: config.env,
            folder: folder.into(),
        })?;
        Ok(RelayProcess { program, admin })
    }

    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Waits until `/readyz` says 200; an exit ends the wait with what the relay said.
    pub fn wait_ready(&mut self, timeout: Duration) -> Result<()> {
        self.program.wait_answer(self.admin, "/readyz", timeout)
    }

    /// Every sample of `/metrics`, by name and labels as exposed: `up`, `x_total{outcome="y"}`.
    pub fn metrics(&self) -> Result<BTreeMap<String, f64>> {
        let answer = get(self.admin, "/metrics", Duration::from_secs(5))?;
        match answer.status {
            200 => Ok(http::parse_metrics(&answer.body)),
            status => Err(HarnessError::Other(format!("/metrics answered {status}"))),
        }
    }
}

impl Deref for RelayProcess {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl DerefMut for RelayProcess {
    fn deref_mut(&mut self) -> &mut Program {
        &mut self.program
    }
}
