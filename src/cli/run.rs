//! `walrelay run`: relay until stopped.

use crate::base::error::{Exit, Fault};
use crate::config::Config;

pub(crate) fn run(config: Config) -> Result<Exit, Fault> {
    crate::app::run(&config).map(|()| Exit::Done)
}
