//! `walrelay completions`: scripts for shells.

use clap::CommandFactory;

use super::args::Args;
use crate::base::error::{Exit, Fault};

pub(crate) fn run(shell: clap_complete::Shell) -> Result<Exit, Fault> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "walrelay", &mut script);
    super::print(&String::from_utf8_lossy(&script))
}
