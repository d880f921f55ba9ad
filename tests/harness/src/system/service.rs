//! A service of the example as a process.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::time::Duration;

use crate::program::{Launch, Program};
use crate::relay::{binary_near, get, parse_metrics};
use crate::{Result, ports};

pub struct Service {
    program: Program,
    address: SocketAddr,
}

impl Service {
    pub(super) fn start(
        name: &str,
        folder: &Path,
        mut env: Vec<(String, String)>,
    ) -> Result<Service> {
        let address = SocketAddr::from(([127, 0, 0, 1], ports::free()?));
        env.push(("LISTEN".into(), address.to_string()));
        env.push(("NO_COLOR".into(), "1".into()));
        let program = Program::start(Launch {
            name: name.into(),
            program: binary_near(name)?,
            arguments: Vec::new(),
            env,
            folder: folder.join(name),
        })?;
        Ok(Service { program, address })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it as an operator would, and starts it with these arguments.
    pub fn start_with(&mut self, arguments: &[&str]) -> Result<()> {
        self.stop(Duration::from_secs(30))?;
        self.launch.arguments = arguments.iter().map(|word| word.into()).collect();
        self.restart()
    }

    /// Waits until `/healthz` answers; an exit ends the wait with what the service said.
    pub fn wait_ready(&mut self, limit: Duration) -> Result<()> {
        self.program.wait_answer(self.address, "/healthz", limit)
    }

    pub fn metrics(&self) -> Result<BTreeMap<String, f64>> {
        let answer = get(self.address, "/metrics", Duration::from_secs(5))?;
        Ok(parse_metrics(&answer.body))
    }
}

impl Deref for Service {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl DerefMut for Service {
    fn deref_mut(&mut self) -> &mut Program {
        &mut self.program
    }
}
