//! The arguments of `walrelay find`.

use clap::Args;

use super::common::OutputArgs;
use crate::find::WITHIN_DEFAULT;

pub(super) const FIND_HELP: &str = "\
Searches for the row, the dead letter and the record of the event, and says whether the slot has
passed it. Changes nothing. Places that could not be searched are listed. Rows are read if the role
of source.url has the right to SELECT.

Exits 0 if every event was found and its state is known (published, in flight, waiting, dead lettered),
1 if one was not found or its state is unknown.

Examples:
  walrelay find 6f1f7b0e-93d5-4a51-9a43-3f3e5a7c8f10
  walrelay find --key customer-7 --since 2h
  walrelay find 4711 4712 --within 2m --json | jq .events[].published";

#[derive(Clone, Debug, Args)]
pub(crate) struct FindArgs {
    /// Event ids. Without them, --key is required.
    #[arg(value_name = "ID", conflicts_with = "key")]
    pub(crate) ids: Vec<String>,
    /// Find the events of this ordering key instead, at most the newest 100.
    #[arg(long, allow_negative_numbers = true, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Search rows written, records published and dead letters failed at this time or later:
    /// 2026-11-21T14:00:00Z, or an age (15m, 2h, 3d) [default: when the row was written, or 24h].
    /// With --key also rows written up to ten minutes before: a transaction may take that long.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Maximum duration of the search for each id.
    #[arg(long, value_name = "DURATION", default_value = WITHIN_DEFAULT)]
    pub(crate) within: String,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
