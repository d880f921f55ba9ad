//! The arguments of `walrelay outbox`.

use clap::{Args, Subcommand, ValueEnum, value_parser};

use super::common::{DryRunArg, ListOutputArgs, OutputArgs, SlotArg};

const LIST_HELP: &str = "\
Examples:
  walrelay outbox list
  walrelay outbox list --state pending --output jsonl | jq .id";

const RETRY_HELP: &str = "\
Exits 1 if one of the ids is not that of a failed row.

Examples:
  walrelay outbox retry 4711 4712
  walrelay outbox retry --all --dry-run";

const HANDOVER_HELP: &str = "\
Creates the publication and the slot, and divides the rows: relays that poll publish the rows that
the slot does not deliver, and then stop. Writers can continue. Afterwards set source.mode = \"cdc\"
and start the relay again.

Examples:
  walrelay outbox handover --dry-run
  walrelay outbox handover";

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum OutboxAction {
    /// List rows; by default those that have failed.
    #[command(after_help = LIST_HELP)]
    List(ListRows),
    /// Make failed rows pending again. Each gets delivery.attempts_max new attempts.
    #[command(after_help = RETRY_HELP)]
    Retry(RetryRows),
    /// Move the table from polling to a replication slot, without losing or repeating an event.
    #[command(after_help = HANDOVER_HELP)]
    Handover(HandoverArgs),
}

impl OutboxAction {
    /// The slot that was named.
    pub(super) fn slot(&self) -> Option<&String> {
        match self {
            OutboxAction::List(_) => None,
            OutboxAction::Retry(RetryRows { slot, .. })
            | OutboxAction::Handover(HandoverArgs { slot, .. }) => slot.slot.as_ref(),
        }
    }
}

/// The states of a row, under the names of the shipped table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RowState {
    Pending,
    #[value(name = "in_progress")]
    InProgress,
    Published,
    Failed,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ListRows {
    /// Row ids [default: all].
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// State of the rows.
    #[arg(long, value_enum, default_value_t = RowState::Failed)]
    pub(crate) state: RowState,
    /// Ordering key of the rows.
    #[arg(long, allow_negative_numbers = true, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Maximum number of rows [default: 1000 for text, no limit for JSON].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub(crate) limit: Option<u32>,
    #[command(flatten)]
    pub(crate) output: ListOutputArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct RetryRows {
    /// Ids of failed rows.
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// Ordering key of the rows.
    #[arg(long, allow_negative_numbers = true, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// All failed rows. Without it, an id or a key is required.
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) dry_run: DryRunArg,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    slot: SlotArg,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct HandoverArgs {
    /// Do not wait until the relays that poll have published their remaining rows.
    #[arg(long)]
    pub(crate) no_wait: bool,
    #[command(flatten)]
    pub(crate) dry_run: DryRunArg,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    slot: SlotArg,
}
