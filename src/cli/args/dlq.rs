//! The words of `walrelay dlq`.

use clap::{Args, Subcommand};

use crate::dead_letter::filter::FilterText;

const REPLAY_HELP: &str = "\
A replay hands events over in the order of their keys, and stops by itself at the first one that is
refused again, or when new dead letters come in. What was delivered is resolved; run it again for
the rest. Events carry the header dlq-replay-count.

Examples:
  walrelay dlq replay --error-class rabbitmq.no-route --dry-run
  walrelay dlq replay --topic orders --rate 50/s
  walrelay dlq replay --all";

/// What to do with dead letters.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum DlqAction {
    /// List dead letters; open ones unless others are named.
    #[command(
        after_help = "Examples:\n  walrelay dlq list --since 2h\n  walrelay dlq list --state all --json | jq .event_id"
    )]
    List(ListArgs),
    /// Show one dead letter and everything that happened to it.
    #[command(
        after_help = "Example:\n  walrelay dlq show 6f1f7b0e-93d5-4a51-9a43-3f3e5a7c8f10 --payload"
    )]
    Show(ShowArgs),
    /// Publish the events of dead letters after all.
    #[command(after_help = REPLAY_HELP)]
    Replay(WorkArgs),
    /// Give dead letters up; they stay in the log.
    #[command(
        after_help = "Example:\n  walrelay dlq discard --key customer-7 --until 2026-11-21 --dry-run"
    )]
    Discard(WorkArgs),
    /// Publish the events of a parked key again from now on.
    #[command(after_help = "Example:\n  walrelay dlq release --key customer-7")]
    Release(ReleaseArgs),
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
    /// All of them; without it, a filter must be given.
    #[arg(long)]
    pub(crate) all: bool,
    /// At most so many in a while, as in 50/s or 300/min.
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
