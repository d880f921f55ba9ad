//! A service of the example as a process.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::program::{Launch, Program};
use crate::relay::{binary_near, get, parse_metrics};
use crate::{HarnessError, Result, ports};

pub struct Service {
    program: Program,
    launch: Launch,
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
        let launch = Launch {
            name: name.into(),
            program: binary_near(name)?,
            arguments: Vec::new(),
            env,
            folder: folder.join(name),
        };
        Ok(Service { program: Program::start(launch.clone())?, launch, address })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it as an operator would, and starts it with these arguments.
    pub fn start_with(&mut self, arguments: &[&str]) -> Result<()> {
        self.sigterm()?;
        let code = self.wait_exit(Duration::from_secs(30))?;
        if code != 0 {
            let said = self.tail(20);
            let text = format!("{} ended with {code}\n{said}", self.launch.name);
            return Err(HarnessError::Other(text));
        }
        self.launch.arguments = arguments.iter().map(|word| word.into()).collect();
        self.program = Program::start(self.launch.clone())?;
        Ok(())
    }

    /// Waits until `/healthz` answers; an exit ends the wait with what the service said.
    pub fn wait_ready(&mut self, limit: Duration) -> Result<()> {
        let began = Instant::now();
        loop {
            if let Some(code) = self.poll_exit() {
                let said = self.tail(40);
                let text = format!("{} ended with {code}\n{said}", self.launch.name);
                return Err(HarnessError::Other(text));
            }
            let answer = get(self.address, "/healthz", Duration::from_secs(1));
            if answer.is_ok_and(|answer| answer.status == 200) {
                return Ok(());
            }
            if began.elapsed() > limit {
                let what = format!("{} on {}\n{}", self.launch.name, self.address, self.tail(40));
                return Err(HarnessError::Late { what, limit });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
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
