//! The command line: parse, read the configuration, run one command, tell what went wrong.
//!
//! Each command is one file with one `run`; it gets a configuration that has been checked and
//! makes its own runtime. Standard output carries only what the command was asked for; faults and
//! logs go to standard error.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::config::{Config, Request};
use crate::error::{Exit, Fault};

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

/// Runs the process's command line.
#[must_use]
pub fn main() -> ExitCode {
    // Not locked: the threads of a command log there too.
    let exit = execute(std::env::args_os(), &mut std::io::stderr());
    ExitCode::from(exit as u8)
}

/// Runs one command line; what goes wrong is told on `errors`.
fn execute(words: impl IntoIterator<Item = OsString>, errors: &mut dyn Write) -> Exit {
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
    match dispatch(args) {
        Ok(exit) => exit,
        Err(faults) => {
            let coloured = std::io::stderr().is_terminal() && no_color_is_unset();
            let exit = faults.first().map_or(Exit::Failed, |fault| fault.exit);
            let told: Vec<String> = faults.iter().map(|fault| told(fault, coloured)).collect();
            match writeln!(errors, "{}", told.join("\n\n")) {
                Ok(()) => exit,
                // Nobody is left to be told; the exit code still tells.
                Err(_) => exit,
            }
        }
    }
}

fn dispatch(args: Args) -> Result<Exit, Vec<Fault>> {
    let request = args.configuration.request();
    let one = |fault: Fault| vec![fault];
    match args.command {
        Command::Completions { shell } => completions::run(shell).map_err(one),
        Command::Config { action } => config::run(&action, &request),
        Command::Run => run::run(prepare(args.log.as_deref(), &request)?).map_err(one),
        Command::Check { json } => {
            let config = prepare(args.log.as_deref(), &request)?;
            let sink = sink::findings(&config);
            wait_for(check::run(&config, json, sink)).map_err(one)
        }
        Command::Init { sql, role } => {
            let config = prepare(args.log.as_deref(), &request)?;
            let exit = wait_for(init::run(&config, sql, role.as_deref())).map_err(one)?;
            if sql { Ok(exit) } else { sink::init(&config).map(|()| exit) }
        }
        Command::Compare(words) => {
            let plan = compare::plan(&words);
            // Its own lines are enough, unless somebody asks for more.
            let config = prepare(args.log.as_deref().or(Some("warn")), &request);
            let (plan, config) = both(plan, config)?;
            compare::run(&config, &request, &plan, &words)
        }
        Command::CompareRelay => compare::relay(args.log.as_deref(), &request),
        Command::Dlq { action } => {
            let config = prepare(args.log.as_deref(), &request)?;
            dlq::run(&config, &action)
        }
        Command::Outbox { action } => {
            let config = prepare(args.log.as_deref(), &request)?;
            wait_for(outbox::run(&config, &action)).map_err(one)
        }
        Command::Slot { action } => {
            let config = prepare(args.log.as_deref(), &request)?;
            wait_for(slot::run(&config, action.into())).map_err(one)
        }
    }
}

/// Runs a short command on a runtime of its own.
fn wait_for<T>(command: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        let what = format!("the system refused a runtime: {error}");
        Fault::new(
            Exit::Failed,
            "system.refused",
            what,
            "",
            "look at the limits of the process (ulimit -a)",
        )
    })?;
    runtime.block_on(command)
}

/// Logs set up and the configuration read; problems of both are told together.
fn prepare(log: Option<&str>, request: &Request) -> Result<Config, Vec<Fault>> {
    match (logging::start(log), crate::config::load(request)) {
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

fn told(fault: &Fault, coloured: bool) -> String {
    let text = fault.to_string();
    match text.split_once(": ") {
        Some((head, rest)) if coloured => format!("\x1b[1;31m{head}\x1b[0m: {rest}"),
        Some(_) | None => text,
    }
}

#[cfg(test)]
mod tests;
