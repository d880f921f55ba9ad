//! The command line: parse, read the configuration, run one command, tell what went wrong.
//!
//! Each command is one file with one `run`; it gets a configuration that has been checked and
//! makes its own runtime. Standard output carries only what the command was asked for; faults and
//! logs go to standard error, those of `run` in the same form ([`logging`]).

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::base::error::{Exit, Fault};
use crate::base::runtime;
use crate::base::text::json_lines_shown;
use crate::{app, config};

mod args;
mod check;
mod compare;
mod dlq;
mod init;
mod logging;
mod outbox;
mod output;
mod progress;
mod sink;
mod slot;
mod table;

use args::{Args, Command, ConfigAction};
use logging::{LogOptions, Style, prepare};
use output::print;

/// Runs the process's command line.
#[must_use]
pub fn main() -> ExitCode {
    // Not locked: the threads of a command log there too.
    let exit = execute(std::env::args_os(), Style::of, &mut std::io::stderr());
    ExitCode::from(exit as u8)
}

/// Runs one command line; what goes wrong is told on `errors`, in the style of a service or of a
/// command that people type.
fn execute(
    words: impl IntoIterator<Item = OsString>,
    style: impl FnOnce(bool) -> Style,
    errors: &mut dyn Write,
) -> Exit {
    let args = match Args::try_parse_from(words) {
        Ok(args) => args,
        Err(error) => {
            // Help and version are asked for, and belong to standard output: clap knows.
            let failed = error.use_stderr();
            return match error.print() {
                Ok(()) if failed => Exit::Usage,
                Ok(()) => Exit::Done,
                Err(_) => Exit::Failed,
            };
        }
    };
    let style = style(matches!(args.command, Command::Run));
    match dispatch(args, style) {
        Ok(exit) => exit,
        Err(faults) => {
            let exit = faults.first().map_or(Exit::Failed, |fault| fault.exit);
            let told: Vec<String> = faults.iter().map(|fault| style.told(fault)).collect();
            let between = if style == Style::Json { "" } else { "\n" };
            match errors.write_all(told.join(between).as_bytes()) {
                Ok(()) => exit,
                // Nobody is left to be told; the exit code still tells.
                Err(_) => exit,
            }
        }
    }
}

fn dispatch(args: Args, style: Style) -> Result<Exit, Vec<Fault>> {
    let request = args.configuration.request();
    let log = LogOptions { level: args.log.as_deref(), faults: style };
    let one = |fault: Fault| vec![fault];
    match args.command {
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "walrelay", &mut script);
            print(&String::from_utf8_lossy(&script)).map_err(one)
        }
        Command::Config { action: ConfigAction::Show } => {
            let shown = config::show(&config::load(&request)?.effective);
            print(&json_lines_shown(&shown)).map_err(one)
        }
        Command::Config { action: ConfigAction::Schema } => {
            print(&(config::schema() + "\n")).map_err(one)
        }
        Command::Run => app::run(&prepare(log, &request)?).map(|()| Exit::Done).map_err(one),
        Command::Check { json } => {
            let config = prepare(log, &request)?;
            check::run(&config, json).map_err(one)
        }
        Command::Init { sql, role } => {
            let config = prepare(log, &request)?;
            init::run(&config, sql, role.as_deref())
        }
        Command::Compare(words) => {
            let plan = compare::plan(&words);
            // Its own lines are enough, unless somebody asks for more.
            let log = LogOptions { level: log.level.or(Some("warn")), ..log };
            let config = prepare(log, &request);
            let (plan, config) = both(plan, config)?;
            compare::run(&config, &request, &plan, &words)
        }
        Command::CompareRelay => compare::relay(log, &request),
        Command::Dlq { action } => {
            let config = prepare(log, &request)?;
            dlq::run(&config, &action)
        }
        Command::Outbox { action } => {
            let config = prepare(log, &request)?;
            runtime::try_block_on(outbox::run(&config, &action)).map_err(one)
        }
        Command::Slot { action } => {
            let config = prepare(log, &request)?;
            runtime::try_block_on(slot::run(&config, &action)).map_err(one)
        }
    }
}

/// Both, or the problems of both.
fn both<A, B>(a: Result<A, Vec<Fault>>, b: Result<B, Vec<Fault>>) -> Result<(A, B), Vec<Fault>> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (Err(mut faults), Err(more)) => {
            faults.extend(more);
            Err(faults)
        }
        (Err(faults), Ok(_)) | (Ok(_), Err(faults)) => Err(faults),
    }
}

#[cfg(test)]
mod tests;
