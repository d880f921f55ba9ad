//! The arguments of `walrelay dlq`.

use clap::{Args, Subcommand, value_parser};

use super::common::{DryRunArg, ListOutputArgs, OutputArgs, ReasonArg, YesArg};
use crate::dead_letter::filter::FilterText;

const LIST_HELP: &str = "\
Examples:
  walrelay dlq list --since 2h
  walrelay dlq list --error-class kafka.message-size-too-large
  walrelay dlq list --state all --output jsonl | jq .event_id";

const SHOW_HELP: &str = "\
Example:
  walrelay dlq show 6f1f7b0e-93d5-4a51-9a43-3f3e5a7c8f10 --payload";

const REPLAY_HELP: &str = "\
A replay keeps the order of the events of each key. It stops at the first event that is refused
again, and when new dead letters arrive. Events that were delivered are resolved; run the command
again for the rest. Replayed events have the header dlq-replay-count.

Examples:
  walrelay dlq replay 6f1f7b0e-93d5-4a51-9a43-3f3e5a7c8f10
  walrelay dlq replay --error-class rabbitmq.no-route --dry-run
  walrelay dlq replay --topic orders --rate 50/s
  walrelay dlq replay --all
  walrelay dlq replay --from billing.dlq --error-class consumer.exhausted";

const DISCARD_HELP: &str = "\
Examples:
  walrelay dlq discard 6f1f7b0e-93d5-4a51-9a43-3f3e5a7c8f10
  walrelay dlq discard --key customer-7 --until 2026-11-21 --dry-run
  walrelay dlq discard --topic orders --yes --reason 'orders of the load test'";

const RELEASE_HELP: &str = "\
Examples:
  walrelay dlq release --key customer-7
  walrelay dlq release --all --force --dry-run   # lists all parked keys";

const PURGE_HELP: &str = "\
Examples:
  walrelay dlq purge --older-than 30d --dry-run
  walrelay dlq purge --older-than 30d --yes";

#[derive(Clone, Debug, Args)]
pub(crate) struct DlqFrom {
    /// Dead-letter topic or stream queue of a consumer [default: that of the relay].
    #[arg(long, value_name = "SERVICE.dlq", global = true)]
    pub(crate) from: Option<String>,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum DlqAction {
    /// List dead letters; by default those that are open.
    #[command(after_help = LIST_HELP)]
    List(ListArgs),
    /// Show dead letters with their history.
    #[command(after_help = SHOW_HELP)]
    Show(ShowArgs),
    /// Publish the events of dead letters again.
    #[command(after_help = REPLAY_HELP)]
    Replay(ReplayArgs),
    /// Mark dead letters as discarded: they stay in the topic, and are no longer open.
    #[command(after_help = DISCARD_HELP)]
    Discard(DiscardArgs),
    /// Release parked keys: their later events are published again.
    #[command(after_help = RELEASE_HELP)]
    Release(ReleaseArgs),
    /// Delete old records of the dead-letter topic.
    ///
    /// Deletes all records before the first one that is an open dead letter, parks a key, or is younger than
    /// --older-than. RabbitMQ can delete only by age: there the command prints the policy to set, and exits 1.
    #[command(after_help = PURGE_HELP)]
    Purge(PurgeArgs),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct PurgeArgs {
    /// Minimum age of the records to delete, as in 30d or 12h.
    #[arg(long, value_name = "AGE")]
    pub(crate) older_than: String,
    #[command(flatten)]
    pub(crate) dry_run: DryRunArg,
    #[command(flatten)]
    pub(crate) yes: YesArg,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) output: ListOutputArgs,
    /// Maximum number of dead letters [default: 1000 for text, no limit for JSON].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub(crate) limit: Option<u32>,
    // Its heading holds for what follows.
    #[command(flatten)]
    pub(crate) filter: FilterText,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ShowArgs {
    /// Event ids.
    #[arg(value_name = "ID", required = true)]
    pub(crate) ids: Vec<String>,
    /// Also print the payloads.
    #[arg(long)]
    pub(crate) payload: bool,
    #[command(flatten)]
    pub(crate) output: ListOutputArgs,
}

/// Which dead letters a job acts on, and how.
#[derive(Clone, Debug, Args)]
pub(crate) struct WorkArgs {
    /// Select all dead letters (of --state). Without it, an id or a filter is required.
    #[arg(long)]
    pub(crate) all: bool,
    /// Maximum rate, as in 50/s or 300/min.
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<String>,
    #[command(flatten)]
    pub(crate) reason: ReasonArg,
    #[command(flatten)]
    pub(crate) dry_run: DryRunArg,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) filter: FilterText,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Also publish to topics and exchanges that no route of the configuration can produce. Then everybody who
    /// may write to the dead-letter topic decides where this login publishes.
    #[arg(long)]
    pub(crate) any_destination: bool,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct DiscardArgs {
    #[command(flatten)]
    pub(crate) yes: YesArg,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ReleaseArgs {
    /// Parked key.
    #[arg(long, allow_negative_numbers = true, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// All parked keys. Without it, --key is required.
    #[arg(long, conflicts_with = "key")]
    pub(crate) all: bool,
    /// Also release keys that have open dead letters. Later events are published before these.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) reason: ReasonArg,
    #[command(flatten)]
    pub(crate) dry_run: DryRunArg,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
