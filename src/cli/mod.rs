//! The command line: parses the arguments, reads the
//! configuration, runs one command, reports faults.
//!
//! Each command is one file with one `run`; it gets a configuration that has been checked and makes
//! its own runtime. Standard output carries only what the command was asked for; faults and logs go
//! to standard error, those of `run` in one format ([`logging`]).

use std::ffi::OsString;
use std::io::Write;

use clap::CommandFactory as _;

use crate::base::error::{Exit, Fault};
use crate::base::log::{self, LogStream, Style};
use crate::base::text::json_lines_shown;
use crate::base::{os_ffi, runtime};
use crate::{app, config, sink};

mod args;
mod check;
#[cfg(feature = "compare")]
mod compare;
mod confirm;
mod detect;
mod dlq;
mod find;
mod init;
mod logging;
#[cfg(feature = "compare")]
mod measured_relay;
mod outbox;
mod output;
mod progress;
mod resume;
mod slot;
mod slow;
mod status;
mod stop_signal;

use args::{Args, Command, ConfigAction, LogFormat};
use logging::{LogOptions, prepare, prepare_broker, prepare_reloading};
use output::{print, print_as};

/// The declaration of the command line, for man pages.
pub fn command() -> clap::Command {
    Args::command()
}

/// Runs the process's command line.
pub fn main() -> ! {
    // Not locked: the threads of a command log to standard error, too.
    let exit = execute(std::env::args_os(), logging::style, &mut LogStream);
    log::flush();
    // A reader that has closed standard output does not want the rest.
    let _closed = std::io::stdout().flush().is_err();
    os_ffi::exit(exit as u8)
}

/// Runs one command line and writes its faults to `errors`, in the style of a service or of a
/// command that people type.
fn execute(
    words: impl IntoIterator<Item = OsString>,
    style: impl FnOnce(bool, Option<LogFormat>) -> Style,
    errors: &mut dyn Write,
) -> Exit {
    let args = match Args::of(words.into_iter().collect()) {
        Ok(args) => args,
        Err(error) => {
            // For clap, help and version are errors that belong to standard output.
            let failed = error.use_stderr();
            return match error.print() {
                Ok(()) if failed => Exit::Usage,
                Ok(()) => Exit::Done,
                Err(_) => Exit::Failed,
            };
        }
    };
    let is_service = matches!(args.command, Command::Run { .. });
    let style = style(is_service, args.log.format());
    let outcome = dispatch(args, style, is_service);
    log::write_last_counts();
    // A line that finds the queue full is lost, and the reason of a stop must not be.
    log::flush();
    outcome.unwrap_or_else(|faults| {
        let texts: Vec<String> = faults.iter().map(|fault| style.format(fault)).collect();
        output::put(errors, &texts.join(if style == Style::Json { "" } else { "\n" }));
        faults.first().map_or(Exit::Failed, |fault| fault.exit)
    })
}

fn dispatch(args: Args, style: Style, is_service: bool) -> Result<Exit, Vec<Fault>> {
    let request = args.request();
    let shared = logging::shared_level();
    let (level, format) = (args.log.level().or(shared.as_deref()), args.log.format());
    let log = LogOptions { level, format, faults: style, is_service };
    let prepared = || prepare(log, &request);
    Ok(match args.command {
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "walrelay", &mut script);
            print(&String::from_utf8_lossy(&script))?
        }
        Command::Config { action: ConfigAction::Show { output } } => {
            let effective = config::load(&request)?.effective;
            let text = || json_lines_shown(&config::show(&effective));
            print_as(output.format(), || config::show_json(&effective), text)?
        }
        Command::Config { action: ConfigAction::Detect { output } } => {
            let connection = config::source_connection(&request)?;
            runtime::try_block_on(detect::run(&connection, output.format()))?
        }
        Command::Config { action: ConfigAction::Example { sink } } => {
            let example = sink::examples().find(|(name, _)| *name == sink);
            print(example.map_or("", |(_, text)| text))?
        }
        Command::Config { action: ConfigAction::Schema } => print(&(config::schema() + "\n"))?,
        Command::Run { .. } => {
            let prepared = prepare_reloading(log, &request);
            let (config, log) = prepared.inspect_err(|faults| app::not_started(faults))?;
            app::run(&config, &|| log.run()).map(|()| Exit::Done)?
        }
        Command::Check { output, .. } => check::run(&prepared()?, output.format())?,
        Command::Init(args) => init::run(&prepared()?, &args)?,
        #[cfg(feature = "compare")]
        Command::Compare(args) => {
            let plan = compare::plan(&args);
            // Its progress is enough, unless a level is asked for.
            let log = LogOptions { level: log.level.or(Some("warn")), ..log };
            let (plan, config) = logging::both(plan, prepare(log, &request))?;
            compare::run(&config, &request, &plan, &args)?
        }
        #[cfg(feature = "compare")]
        Command::CompareRelay => compare::relay(log, &request)?,
        Command::Dlq { from, action } => {
            let broker = || prepare_broker(log, &request);
            dlq::run(from.from.as_deref(), &action, &broker, &prepared)?
        }
        Command::Find(args) => find::run(&prepared()?, &args)?,
        Command::Outbox { action } => runtime::try_block_on(outbox::run(&prepared()?, &action))?,
        Command::Status(args) => status::run(&args, &request)?,
        Command::Resume(args) => resume::run(&prepared()?, &args)?,
        Command::Slot { action } => runtime::try_block_on(slot::run(&prepared()?, &action))?,
    })
}

#[cfg(test)]
mod tests;
