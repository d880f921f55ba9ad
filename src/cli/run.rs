//! `walrelay run`: relay until stopped.

use crate::config::Config;
use crate::error::{Exit, Fault};

pub(crate) fn run(config: Config) -> Result<Exit, Fault> {
    crate::app::run(&config).map(|()| Exit::Done)
}
