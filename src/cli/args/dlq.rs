//! The arguments of `walrelay dlq`.

use clap::{Args, Subcommand};

use crate::dead_letter::filter::FilterText;

const REPLAY_HELP: &str = "\
A replay publishes events in the order of their keys. It stops by itself at the first event that is
refused again, and when new dead letters come in. What was delivered is resolved; run it again for
the rest. Events carry the header dlq-replay-count.

Examples:
  walrelay dlq replay --error-class rabbitmq.no-route --dry-run
  walrelay dlq replay --topic orders --rate 50/s
  walrelay dlq replay --all
  walrelay dlq replay --from billing.dlq --error-class consumer.exhausted";

#[derive(Clone, Debug, Args)]
pub(crate) struct DlqFrom {
    /// The dead letters of a consumer: its topic or stream queue [default: those of the relay].
    #[arg(long, value_name = "SERVICE.dlq", global = true)]
    pub(crate) from: Option<String>,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum DlqAction {
    /// List dead letters; open ones unless others are named.
    #[command(
        after_help = "Examples:\n  walrelay dlq list --since 2h\n  walrelay dlq list --state all --json | jq .event_id"
    )]
    List(ListArgs),
    /// Show one dead letter with its history.
    #[command(
        after_help = "Example:\n  walrelay dlq show 6f1f7b0e-93d5-4a51-9a43-3f3e5a7c8f10 --payload"
    )]
    Show(ShowArgs),
    /// Publish the events of dead letters.
    #[command(after_help = REPLAY_HELP)]
    Replay(ReplayArgs),
    /// Mark dead letters as not to be published; they stay in the topic.
    #[command(
        after_help = "Example:\n  walrelay dlq discard --key customer-7 --until 2026-11-21 --dry-run"
    )]
    Discard(WorkArgs),
    /// Publish the events of a parked key again from now on.
    #[command(after_help = "Example:\n  walrelay dlq release --key customer-7")]
    Release(ReleaseArgs),
    /// Delete old records of the topic, up to the oldest that is open, parks a key or is younger.
    ///
    /// On RabbitMQ, which deletes by age alone, it prints the policy and exits 1.
    #[command(after_help = "Example:\n  walrelay dlq purge --older-than 30d --dry-run")]
    Purge(PurgeArgs),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct PurgeArgs {
    /// Age from which on records may be deleted: 30d, 12h.
    #[arg(long, value_name = "AGE")]
    pub(crate) older_than: String,
    /// Only show what would be deleted.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) filter: FilterText,
    /// Print one JSON object per line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print at most so many [default: 1000, all with --json].
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ShowArgs {
    /// Event id.
    pub(crate) id: String,
    /// Print the payload, too.
    #[arg(long)]
    pub(crate) payload: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct WorkArgs {
    #[command(flatten)]
    pub(crate) filter: FilterText,
    /// All dead letters (of --state); without it, a filter must be given.
    #[arg(long)]
    pub(crate) all: bool,
    /// Highest rate, as in 50/s or 300/min.
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<String>,
    /// Only list what would be done.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) work: WorkArgs,
    /// Also to topics and exchanges to which no route of the configuration leads: whoever may write
    /// to the dead-letter topic then decides where this login publishes.
    #[arg(long)]
    pub(crate) any_destination: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ReleaseArgs {
    /// The parked key.
    #[arg(long, value_name = "KEY", required_unless_present = "all_keys")]
    pub(crate) key: Option<String>,
    /// All parked keys.
    #[arg(long, conflicts_with = "key")]
    pub(crate) all_keys: bool,
    /// Also while dead letters of the key are open: later events will overtake them.
    #[arg(long)]
    pub(crate) anyway: bool,
}
