//! The arguments of `walrelay slot`.

use clap::{Args, Subcommand};

use super::common::{DryRunArg, OutputArgs, YesArg};

/// The action on the slot.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SlotAction {
    /// Create a slot. From then on Postgres retains the WAL of all events that are not confirmed.
    #[command(after_help = "Examples:\n  walrelay slot create --dry-run\n  walrelay slot create")]
    Create {
        #[command(flatten)]
        name: SlotName,
        /// Synchronize the slot to standbys, for a failover (PostgreSQL 17 and later).
        #[arg(long)]
        failover: bool,
        #[command(flatten)]
        dry_run: DryRunArg,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Drop a slot. Events that are not published can then no longer be read from the WAL.
    #[command(
        after_help = "Examples:\n  walrelay slot drop --dry-run\n  walrelay slot drop walrelay --yes"
    )]
    Drop {
        #[command(flatten)]
        name: SlotName,
        #[command(flatten)]
        yes: YesArg,
        #[command(flatten)]
        dry_run: DryRunArg,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Show the state of a slot.
    #[command(after_help = "Example:\n  walrelay slot show")]
    Show {
        #[command(flatten)]
        name: SlotName,
        #[command(flatten)]
        output: OutputArgs,
    },
}

/// The slot that the command acts on.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SlotName {
    /// Name of the slot [default: source.slot].
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

impl SlotAction {
    /// The name that was given.
    pub(crate) fn name(&self) -> Option<&String> {
        match self {
            SlotAction::Create { name, .. }
            | SlotAction::Drop { name, .. }
            | SlotAction::Show { name, .. } => name.name.as_ref(),
        }
    }
}
