//! The command line: parse, read the configuration, run one command, tell what went wrong.
//!
//! Each command is one file with one `run`; it gets a configuration that has been checked and
//! makes its own runtime. Standard output carries only what the command was asked for; faults and
//! logs go to standard error, those of `run` in the same form ([`logging`]).

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use crate::base::error::{Exit, Fault};
use crate::base::runtime;
use crate::base::text::escaped;
use crate::config::{Config, Request};

mod args;
mod check;
mod compare;
mod completions;
mod config;
mod dlq;
mod init;
mod logging;
mod outbox;
mod progress;
mod run;
mod sink;
mod slot;

use args::{Args, Command};
use logging::Style;

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
    let log = Log { level: args.log.as_deref(), faults: style };
    let one = |fault: Fault| vec![fault];
    match args.command {
        Command::Completions { shell } => completions::run(shell).map_err(one),
        Command::Config { action } => config::run(&action, &request),
        Command::Run => run::run(prepare(log, &request)?).map_err(one),
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
            let log = Log { level: log.level.or(Some("warn")), ..log };
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
            wait_for(outbox::run(&config, &action)).map_err(one)
        }
        Command::Slot { action } => {
            let config = prepare(log, &request)?;
            wait_for(slot::run(&config, action.into())).map_err(one)
        }
    }
}

/// Runs a short command on a runtime of its own.
fn wait_for<T>(command: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    runtime::block_on(command)?
}

/// What is logged, and how what ends the process is told.
#[derive(Clone, Copy)]
struct Log<'a> {
    level: Option<&'a str>,
    faults: Style,
}

/// Logs set up and the configuration read; problems of both are told together.
fn prepare(log: Log<'_>, request: &Request) -> Result<Config, Vec<Fault>> {
    match (logging::start(log.level, log.faults), crate::config::load(request)) {
        (Ok(()), Ok(loaded)) => Ok(loaded.config),
        (Ok(()), Err(faults)) => Err(faults),
        (Err(fault), Ok(_)) => Err(vec![fault]),
        (Err(fault), Err(mut faults)) => {
            faults.insert(0, fault);
            Err(faults)
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

/// True when colours are not forbidden by `NO_COLOR`.
fn no_color_is_unset() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Writes the result of a command. A reader that has left early (`| head`) is no failure.
fn print(text: &str) -> Result<Exit, Fault> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(Exit::Done),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(Exit::Done),
        Err(error) => Err(Fault::new(
            Exit::Failed,
            "output.unwritable",
            format!("cannot write the result: {}", error.kind()),
            "standard output",
            "",
        )),
    }
}

/// A line of the result, for people. What others wrote into it stays within it.
fn say(line: &str) {
    put(&mut std::io::stdout(), line);
}

/// A line on standard error: how the command goes on.
fn tell(line: &str) {
    put(&mut std::io::stderr(), line);
}

/// A reader that has left is told nothing more.
fn put(out: &mut dyn Write, line: &str) {
    out.write_all(format!("{}\n", escaped(line)).as_bytes()).and_then(|()| out.flush()).ok();
}

#[cfg(test)]
mod tests;
