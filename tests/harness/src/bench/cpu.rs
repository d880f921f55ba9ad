//! CPU cost of a measurement, for each process that takes part in it.

use std::fmt;

use serde::Serialize;

use crate::{Result, proc};

/// CPU seconds, each with all its processes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CpuSeconds {
    pub postgres: f64,
    pub broker: f64,
    pub relay: f64,
    /// This process: load and consumer.
    pub load: f64,
}

impl CpuSeconds {
    /// For the header of a column.
    pub const HEADER: &str = "CPU-s: Postgres / broker / relay / load";

    /// Since each began.
    pub fn now(postgres: u32, broker: u32, relay: u32) -> Result<CpuSeconds> {
        Ok(CpuSeconds {
            postgres: proc::tree_cpu_seconds(postgres)?,
            broker: proc::tree_cpu_seconds(broker)?,
            relay: proc::tree_cpu_seconds(relay)?,
            load: proc::cpu_seconds(std::process::id())?,
        })
    }

    pub fn since(&self, earlier: &CpuSeconds) -> CpuSeconds {
        CpuSeconds {
            postgres: self.postgres - earlier.postgres,
            broker: self.broker - earlier.broker,
            relay: self.relay - earlier.relay,
            load: self.load - earlier.load,
        }
    }
}

impl fmt::Display for CpuSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CpuSeconds { postgres, broker, relay, load } = self;
        write!(f, "{postgres:.1} / {broker:.1} / {relay:.1} / {load:.1}")
    }
}
