//! The arguments of the command line. Doc comments are the help texts.
//!
//! Values of `--set` are not parsed here, because clap quotes a wrong value, which may be a secret.

mod common;
#[cfg(feature = "compare")]
mod compare;
mod dlq;
mod find;
mod outbox;
mod slot;
mod status;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, Subcommand};

use crate::config::Request;
use crate::features;
use crate::sink::{SINKS, examples};

pub(crate) use common::{DryRunArg, OutputArgs, OutputFormat, YesArg};
use common::{ListenArg, ReasonArg, SlotArg};
#[cfg(feature = "compare")]
pub(crate) use compare::CompareArgs;
pub(crate) use dlq::{
    DiscardArgs, DlqAction, DlqFrom, ListArgs, PurgeArgs, ReleaseArgs, ReplayArgs, ShowArgs,
    WorkArgs,
};
pub(crate) use find::FindArgs;
pub(crate) use outbox::{HandoverArgs, ListRows, OutboxAction, RetryRows, RowState};
pub(crate) use slot::SlotAction;
pub(crate) use status::StatusArgs;

static LONG_VERSION: LazyLock<String> = LazyLock::new(|| {
    let clients: Vec<String> =
        SINKS.iter().filter_map(|kind| kind.client.map(|client| client() + "; ")).collect();
    format!(
        "{}\ncommit {}\nfeatures {}\n{}TLS by rustls\n{}-{}",
        env!("CARGO_PKG_VERSION"),
        // Set by build.rs.
        option_env!("WALRELAY_COMMIT").unwrap_or("unknown"),
        features::compiled_in(),
        clients.concat(),
        std::env::consts::ARCH,
        std::env::consts::OS,
    )
});

const AFTER_HELP: &str = "\
Exit codes:
  0 done · 1 failed · 2 wrong usage or configuration · 3 slot missing, lost or moved
  4 source unusable · 5 sink unusable · 6 halted by policy

Examples:
  walrelay config example --sink kafka > walrelay.toml
  walrelay init --dry-run               show what is missing in Postgres and at the broker
  walrelay check                        report every problem that would make run fail
  walrelay run                          publish events until stopped
  walrelay -c prod.toml run             with another configuration file
  walrelay --set delivery.attempts_max=3 run
  walrelay status --watch               show lag and rates, each second
  walrelay resume                       acknowledge a stop, so that the next start continues
  walrelay dlq list --since 2h          list events that could not be published
  walrelay find --key customer-7        find the events of a key";

const INIT_HELP: &str = "\
Creates only what does not exist, and changes nothing that does. Every run can be repeated.

Examples:
  walrelay init --dry-run
  walrelay init
  walrelay init --sql | psql app";

/// Relays outbox events from a Postgres replication slot to Kafka, RabbitMQ or a file.
#[derive(Parser)]
#[command(name = "walrelay", version, long_version = LONG_VERSION.as_str(), after_help = AFTER_HELP)]
#[command(subcommand_required = true, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) configuration: ConfigurationArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct ConfigurationArgs {
    /// Configuration file [default: walrelay.toml, else /etc/walrelay/walrelay.toml].
    #[arg(short, long, value_name = "FILE", env = "WALRELAY_CONFIG", global = true)]
    config: Option<OsString>,
    /// Override one key, as in --set delivery.backoff_cap=10s; repeatable.
    #[arg(long, value_name = "KEY=VALUE", global = true)]
    set: Vec<OsString>,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Log")]
pub(crate) struct LogArgs {
    /// Log level or filter, as in debug or info,walrelay=trace [default: that of RUST_LOG, or info].
    #[arg(long = "log", value_name = "LEVEL", env = "WALRELAY_LOG", global = true)]
    level: Option<String>,
    /// Log format: text or json [default: text on a terminal, else json].
    #[arg(long = "log-format", value_parser = log_format, value_name = "FORMAT")]
    #[arg(env = "WALRELAY_LOG_FORMAT", global = true)]
    format: Option<GivenFormat>,
    /// Short for --log debug.
    #[arg(short, long, global = true)]
    verbose: bool,
    /// Short for --log warn.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
}

impl LogArgs {
    /// The level that was given; the short options stand over the variable.
    pub(crate) fn level(&self) -> Option<&str> {
        match (self.verbose, self.quiet) {
            (true, _) => Some("debug"),
            (_, true) => Some("warn"),
            _ => self.level.as_deref(),
        }
    }

    pub(crate) fn format(&self) -> Option<LogFormat> {
        self.format.and_then(|GivenFormat(format)| format)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// None for a variable that is set to an empty text, which counts as not set.
#[derive(Clone, Copy, Debug)]
struct GivenFormat(Option<LogFormat>);

fn log_format(text: &str) -> Result<GivenFormat, String> {
    Ok(GivenFormat(match text {
        "" => None,
        "text" => Some(LogFormat::Text),
        "json" => Some(LogFormat::Json),
        _ => return Err("expected text or json".to_owned()),
    }))
}

impl Args {
    /// Reads the words of a command line. clap would take only the last of the places where `--set` stands,
    /// and so leave out what was set at the other.
    pub(crate) fn of(words: Vec<OsString>) -> Result<Args, clap::Error> {
        let is_set = |word: &&OsString| {
            word.to_str().is_some_and(|word| word == "--set" || word.starts_with("--set="))
        };
        let given = words.iter().filter(is_set).count();
        let args = Args::try_parse_from(words)?;
        if given > args.configuration.set.len() {
            let text = "write every --set before the command, or every --set behind it\n";
            return Err(Args::command().error(ErrorKind::ArgumentConflict, text));
        }
        Ok(args)
    }

    /// The configuration that the arguments and the environment ask for.
    pub(crate) fn request(&self) -> Request {
        let text = |value: &OsString| value.to_string_lossy().into_owned();
        let ConfigurationArgs { config, set } = &self.configuration;
        let (slot, listen) = self.command.overrides();
        Request {
            // A variable that is set to an empty text counts as not set.
            file: config.as_ref().filter(|name| !name.is_empty()).map(PathBuf::from),
            settings: set.iter().map(text).collect(),
            slot: slot.cloned(),
            listen: listen.cloned(),
            variables: std::env::vars_os()
                .map(|(name, value)| (text(&name), text(&value)))
                .collect(),
        }
    }
}

#[derive(Subcommand)]
#[allow(clippy::large_enum_variant, reason = "one value in the process")]
pub(crate) enum Command {
    /// Publish events until stopped. After SIGTERM it settles the events in flight and exits 0.
    ///
    /// The log, and the error that ends the relay, are written to standard error.
    #[command(after_help = "Example:\n  walrelay -c /etc/walrelay.toml run")]
    Run {
        #[command(flatten)]
        slot: SlotArg,
        #[command(flatten)]
        listen: ListenArg,
    },
    /// Report every problem that would make `run` fail. Changes nothing; exits 1 if there is one.
    #[command(
        after_help = "Examples:\n  walrelay check\n  walrelay check --json | jq '.findings[] | select(.level != \"ok\")'"
    )]
    Check {
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        slot: SlotArg,
        #[command(flatten)]
        listen: ListenArg,
    },
    /// Create what is missing in Postgres and at the broker: table, publication, slot, topics.
    #[command(visible_alias = "setup", after_help = INIT_HELP)]
    Init(InitArgs),
    /// Show the state of running relays: lag, rates, latency, dead letters, WAL.
    Status(StatusArgs),
    /// Acknowledge a stop that protects data. Until then every start of the relay fails with the same error.
    #[command(
        after_help = "Examples:\n  walrelay resume\n  walrelay resume --yes --reason 'compared, nothing is missing'"
    )]
    Resume(ResumeArgs),
    /// Create, drop or show the replication slot.
    #[command(after_help = "Example:\n  walrelay slot show")]
    Slot {
        #[command(subcommand)]
        action: SlotAction,
    },
    /// List, show, replay and discard dead letters; release parked keys.
    #[command(
        after_help = "Examples:\n  walrelay dlq list --since 2h\n  walrelay dlq replay --topic orders --rate 50/s\n  walrelay dlq list --from billing.dlq"
    )]
    Dlq {
        #[command(flatten)]
        from: DlqFrom,
        #[command(subcommand)]
        action: DlqAction,
    },
    /// Find where events are: their rows, records and dead letters.
    #[command(after_help = find::FIND_HELP)]
    Find(FindArgs),
    /// Compare the slot with polling, on your own Postgres and broker.
    #[cfg(feature = "compare")]
    #[command(after_help = compare::COMPARE_HELP)]
    Compare(CompareArgs),
    /// The relay that `compare` measures.
    #[cfg(feature = "compare")]
    #[command(name = walrelay_compare::relay_process::COMMAND, hide = true)]
    #[command(after_help = "Started by: walrelay compare")]
    CompareRelay,
    /// List the rows of a polled table, retry failed rows, or move the table to a slot.
    #[command(after_help = "Examples:\n  walrelay outbox list\n  walrelay outbox retry --all")]
    Outbox {
        #[command(subcommand)]
        action: OutboxAction,
    },
    /// Print the effective configuration, an example, detected outbox tables, or the JSON Schema of the file.
    #[command(after_help = "Example:\n  walrelay config example --sink kafka > walrelay.toml")]
    Config {
        #[command(subcommand)]
        action: ConfigAction,
    },
    /// Print a completion script for a shell.
    #[command(
        after_help = "Example:\n  walrelay completions bash > /etc/bash_completion.d/walrelay"
    )]
    Completions {
        /// Shell.
        shell: clap_complete::Shell,
    },
}

impl Command {
    /// The slot and the address of the admin server that the command names.
    fn overrides(&self) -> (Option<&String>, Option<&String>) {
        match self {
            Command::Run { slot, listen }
            | Command::Check { slot, listen, .. }
            | Command::Resume(ResumeArgs { slot, listen, .. }) => {
                (slot.slot.as_ref(), listen.listen.as_ref())
            }
            Command::Init(InitArgs { slot, .. }) => (slot.slot.as_ref(), None),
            Command::Outbox { action } => (action.slot(), None),
            Command::Slot { action } => (action.name(), None),
            Command::Status(StatusArgs { listen, .. }) => (None, listen.listen.as_ref()),
            _ => (None, None),
        }
    }
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct InitArgs {
    /// Print the SQL for Postgres instead of running it. Topics, exchanges and queues are not created.
    #[arg(long, conflicts_with_all = ["dry_run", "json", "output", "no_slot"])]
    pub(crate) sql: bool,
    /// Do not create the slot; exits 1 if it does not exist. For a slot that existed before: a new one lacks the events in between.
    #[arg(long)]
    pub(crate) no_slot: bool,
    /// Also make the function outbox.emit where the outbox table exists already or has other names.
    #[arg(long)]
    pub(crate) emit: bool,
    /// Role that `walrelay run` logs in as; it gets REPLICATION if it does not have it [default: that of `source.url`].
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<String>,
    /// Do not show what is missing first and ask whether to make it, as on a terminal.
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) dry_run: DryRunArg,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) slot: SlotArg,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    pub(crate) reason: ReasonArg,
    #[command(flatten)]
    pub(crate) dry_run: DryRunArg,
    #[command(flatten)]
    pub(crate) yes: YesArg,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    slot: SlotArg,
    #[command(flatten)]
    listen: ListenArg,
}

/// The part of the configuration to print.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ConfigAction {
    /// Print the effective configuration with the origin of each value. Secrets are hidden.
    #[command(after_help = "Example:\n  walrelay --set route.format=cloudevents config show")]
    Show {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Print a commented example of the configuration file.
    #[command(after_help = "Example:\n  walrelay config example --sink rabbitmq > walrelay.toml")]
    Example {
        /// Sink of the example.
        #[arg(long, default_value = SINKS[0].name)]
        #[arg(value_parser = PossibleValuesParser::new(examples().map(|(name, _)| name)))]
        sink: String,
    },
    /// Print the [[source.outbox]] sections for the tables of known libraries. Changes nothing.
    ///
    /// Reads the catalog of the database at source.url; no other key is needed. Append the output to a
    /// configuration that has source.url and a sink, and remove the section [[source.outbox]] that
    /// `config example` has written.
    #[command(
        after_help = "Example:\n  walrelay --set source.url=postgres://me@localhost/app config detect >> walrelay.toml"
    )]
    Detect {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Print the JSON Schema of the configuration file.
    #[command(after_help = "Example:\n  walrelay config schema > walrelay.schema.json")]
    Schema,
}
