//! `walrelay run`: relay until stopped.

use crate::config::Config;
use crate::error::{Exit, Fault};

pub(crate) fn run(_config: Config) -> Result<Exit, Fault> {
    Err(Fault::new(Exit::Failed, "command.not-built", "not built yet", "walrelay run", ""))
}
