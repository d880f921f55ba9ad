//! The arguments of `walrelay outbox`.

use clap::{Args, Subcommand, ValueEnum};

const HANDOVER_HELP: &str = "\
Makes publication and slot, and divides the rows: those that the slot does not carry are published by
the relays that poll, which end by themselves when they are done. Writers need not stop. Then set
source.mode = \"cdc\" and start the relay again.

Example:
  walrelay outbox handover";

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum OutboxAction {
    /// List rows; failed ones unless another status is named.
    #[command(
        after_help = "Examples:\n  walrelay outbox list\n  walrelay outbox list --status pending --json | jq .id"
    )]
    List(ListRows),
    /// Make failed rows pending again, with all their attempts.
    #[command(
        after_help = "Examples:\n  walrelay outbox retry 4711 4712\n  walrelay outbox retry --all"
    )]
    Retry(RetryRows),
    /// Move the table from polling to a replication slot, without losing or repeating an event.
    #[command(after_help = HANDOVER_HELP)]
    Handover {
        /// Do not wait until polling has published the rows that are left to it.
        #[arg(long)]
        no_wait: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RowStatus {
    Pending,
    #[value(name = "in_progress")]
    InProgress,
    Published,
    Failed,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ListRows {
    /// Which rows.
    #[arg(long, value_enum, default_value_t = RowStatus::Failed)]
    pub(crate) status: RowStatus,
    /// Only of this ordering key.
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// At most so many [default: 1000; with --json all of them].
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u32>,
    /// Print one JSON object per line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct RetryRows {
    /// Ids of failed rows.
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// Only of this ordering key.
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// All failed rows; without it, ids or a key must be given.
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
}
