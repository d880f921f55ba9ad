//! `walrelay init`: make what is missing.

use crate::config::Config;
use crate::error::{Exit, Fault};

pub(crate) fn run(_config: Config, _sql: bool) -> Result<Exit, Fault> {
    Err(Fault::new(Exit::Failed, "command.not-built", "not built yet", "walrelay init", ""))
}
