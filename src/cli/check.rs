//! `walrelay check`: find faults, change nothing.

use crate::config::Config;
use crate::error::{Exit, Fault};

pub(crate) fn run(_config: Config, _json: bool) -> Result<Exit, Fault> {
    Err(Fault::new(Exit::Failed, "command.not-built", "not built yet", "walrelay check", ""))
}
