//! `walrelay slot`: the slot's life, explicit.

use super::args::SlotAction;
use crate::config::Config;
use crate::error::{Exit, Fault};

pub(crate) fn run(_config: Config, _action: SlotAction) -> Result<Exit, Fault> {
    Err(Fault::new(Exit::Failed, "command.not-built", "not built yet", "walrelay slot", ""))
}
