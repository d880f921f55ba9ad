//! The arguments of the command line. Doc comments are the help texts.
//!
//! Values of `--set` are not parsed here, because clap quotes a wrong value, which may be a secret.

mod dlq;
mod find;
mod outbox;
mod status;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Parser, Subcommand};

use crate::compare::relay_process::COMMAND as COMPARE_RELAY;
use crate::config::Request;

pub(crate) use dlq::{
    DlqAction, DlqFrom, ListArgs, PurgeArgs, ReleaseArgs, ReplayArgs, ShowArgs, WorkArgs,
};
pub(crate) use find::FindArgs;
pub(crate) use outbox::{ListRows, OutboxAction, RetryRows, RowStatus};
pub(crate) use status::StatusArgs;

static LONG_VERSION: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{}\nlibrdkafka {}\n{}-{}",
        env!("CARGO_PKG_VERSION"),
        rdkafka::util::get_rdkafka_version().1,
        std::env::consts::ARCH,
        std::env::consts::OS,
    )
});

const AFTER_HELP: &str = "\
Exit codes:
  0 done · 1 failed · 2 bad usage or configuration · 3 slot missing, lost or not ours
  4 source unusable · 5 sink unusable · 6 halted by policy

Examples:
  walrelay init --sql | psql app        make what is missing in Postgres
  walrelay check                        find every fault before the first event
  walrelay run                          relay until stopped
  walrelay --config prod.toml run       with another file
  walrelay --set delivery.attempts_max=3 run
  walrelay status --watch               how it does, each second
  walrelay resume                       acknowledge why it has stopped
  walrelay dlq list --since 2h          what could not be published lately
  walrelay find --key customer-7        where the events of a key are
  walrelay compare --html compare.html  the slot against polling, here";

const COMPARE_HELP: &str = "\
Runs the slot, then polling at each interval, under the same load, in a scratch schema, slot and
topic (or queue) that are removed at the end, also after Ctrl-C. Broker, logins and [delivery] are
those of the configuration; its tables, slot and topics are left alone. Exits 1 when an event is
missing. docs/compare.md says what is measured.

Examples:
  walrelay compare
  walrelay compare --rates 100,1000,5000 --intervals 200ms,1s --duration 1m --html compare.html
  walrelay compare --json | jq '.runs[] | {mode, interval_ms, rate, p99: .latency_ms.p99}'";

/// Carries outbox events from a Postgres replication slot to Kafka, RabbitMQ or a file.
#[derive(Parser)]
#[command(name = "walrelay", version, long_version = LONG_VERSION.as_str(), after_help = AFTER_HELP)]
#[command(subcommand_required = true, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) configuration: ConfigurationArgs,
    /// Log level or filter, as in debug or info,walrelay=trace [default: info].
    #[arg(long, value_name = "LEVEL", env = "WALRELAY_LOG", global = true)]
    pub(crate) log: Option<String>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct ConfigurationArgs {
    /// Configuration file [default: walrelay.toml, else /etc/walrelay/walrelay.toml].
    #[arg(long, value_name = "FILE", env = "WALRELAY_CONFIG", global = true)]
    config: Option<OsString>,
    /// Override one key, as in --set delivery.backoff_cap=10s; repeatable.
    #[arg(long, value_name = "KEY=VALUE", global = true)]
    set: Vec<OsString>,
    /// Short for --set source.slot=NAME.
    #[arg(long, value_name = "NAME", global = true)]
    slot: Option<String>,
    /// Short for --set admin.listen=ADDRESS.
    #[arg(long, value_name = "ADDRESS", global = true)]
    listen: Option<String>,
}

impl ConfigurationArgs {
    /// These arguments together with the environment.
    pub(crate) fn request(&self) -> Request {
        let text = |value: &OsString| value.to_string_lossy().into_owned();
        Request {
            // A variable that is set to an empty text counts as not set.
            file: self.config.as_ref().filter(|name| !name.is_empty()).map(PathBuf::from),
            settings: self.set.iter().map(text).collect(),
            slot: self.slot.clone(),
            listen: self.listen.clone(),
            variables: std::env::vars_os()
                .map(|(name, value)| (text(&name), text(&value)))
                .collect(),
        }
    }
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Relay until stopped; SIGTERM settles what is in flight and exits 0.
    ///
    /// Logs, and the fault that ends it, go to standard error: text on a terminal, JSON otherwise.
    #[command(after_help = "Example:\n  walrelay --config /etc/walrelay.toml run")]
    Run,
    /// Find everything that would end `run`, without
    /// changing anything; exits 1 if it finds something.
    #[command(
        after_help = "Example:\n  walrelay check --json | jq '.findings[] | select(.level != \"ok\")'"
    )]
    Check {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Make what is missing, and only that: table, publication, slot, topics.
    #[command(after_help = "Example:\n  walrelay init --sql | psql app")]
    Init {
        /// Print the SQL instead of running it.
        #[arg(long)]
        sql: bool,
        /// The role that `walrelay run` logs in as, when it is not that of `source.url`.
        #[arg(long, value_name = "ROLE")]
        role: Option<String>,
    },
    /// Show the state of running relays: lag, rates, latency, dead letters, WAL.
    Status(StatusArgs),
    /// Acknowledge a stop that protects data, after it was shown; until then every start ends with it.
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
    /// List dead letters, publish their events, discard them, release parked keys.
    #[command(
        after_help = "Examples:\n  walrelay dlq list --since 2h\n  walrelay dlq replay --topic orders --rate 50/s\n  walrelay dlq list --from billing.dlq"
    )]
    Dlq {
        #[command(flatten)]
        from: DlqFrom,
        #[command(subcommand)]
        action: DlqAction,
    },
    /// Find where an event is: its row, its place in the log, its record or dead letter.
    #[command(after_help = find::FIND_HELP)]
    Find(FindArgs),
    /// Measure the slot against polling, on your own Postgres and broker.
    #[command(after_help = COMPARE_HELP)]
    Compare(CompareArgs),
    /// The relay that `compare` measures.
    #[command(name = COMPARE_RELAY, hide = true, after_help = "Started by: walrelay compare")]
    CompareRelay,
    /// List the rows of a polled table, retry failed ones, or move the table to a slot.
    #[command(after_help = "Examples:\n  walrelay outbox list\n  walrelay outbox retry --all")]
    Outbox {
        #[command(subcommand)]
        action: OutboxAction,
    },
    /// Show what is configured, detect outbox tables, or print the JSON Schema of the file.
    #[command(after_help = "Example:\n  walrelay config schema > walrelay.schema.json")]
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

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ResumeArgs {
    /// Do not ask.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Why, for the log and the record.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) reason: String,
}

/// What to do with the slot.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum SlotAction {
    /// Create the slot; events committed from now on are kept for the relay.
    #[command(after_help = "Example:\n  walrelay slot create")]
    Create {
        /// Keep the slot on standbys, for a failover (PostgreSQL 17).
        #[arg(long)]
        failover: bool,
    },
    /// Drop the slot; events not yet relayed are no longer kept.
    #[command(after_help = "Example:\n  walrelay slot drop walrelay")]
    Drop {
        /// The name of the slot, to confirm.
        name: Option<String>,
        /// Do not ask for the name.
        #[arg(long)]
        yes: bool,
    },
    /// Show the state of the slot.
    #[command(after_help = "Example:\n  walrelay slot show")]
    Show {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// What to show of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum ConfigAction {
    /// The effective configuration with the origin of each value; secrets are hidden.
    #[command(after_help = "Example:\n  walrelay --set route.format=cloudevents config show")]
    Show,
    /// The [[source.outbox]] sections for the tables that are recognised; changes nothing.
    ///
    /// Reads the catalog of the database at source.url; no other key is needed. What it prints can be
    /// appended to a configuration that has source.url and a sink.
    #[command(
        after_help = "Example:\n  walrelay --set source.url=postgres://localhost/app config detect >> walrelay.toml"
    )]
    Detect,
    /// The JSON Schema of the configuration file.
    #[command(after_help = "Example:\n  walrelay config schema > walrelay.schema.json")]
    Schema,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CompareArgs {
    /// Events per second, one run of each mode for each.
    #[arg(long, value_name = "LIST", default_value = "100,1000")]
    pub(crate) rates: String,
    /// Intervals of polling; none measures the slot alone.
    #[arg(long, value_name = "LIST", default_value = "100ms,500ms,2s")]
    pub(crate) intervals: String,
    /// How long each run is measured.
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub(crate) duration: String,
    /// Events of the backlog that each mode drains; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub(crate) backlog: u64,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write a page with plots.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}
