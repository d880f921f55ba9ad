//! The arguments of `walrelay find`.

use clap::Args;

use crate::find::WITHIN_DEFAULT;

pub(super) const FIND_HELP: &str = "\
Looks for the row, the dead letter and the record of the event, and says whether the slot has passed
it. Changes nothing. Exits 0 when an event is found, 1 when none is; what could not be searched is
said in either case. Rows are read where the role of source.url has the right to SELECT.

Examples:
  walrelay find 6f1f7b0e-93d5-4a51-9a43-3f3e5a7c8f10
  walrelay find --key customer-7 --since 2h
  walrelay find 4711 --within 2m --json | jq .events[].published";

#[derive(Clone, Debug, Args)]
pub(crate) struct FindArgs {
    /// Event id.
    #[arg(required_unless_present = "key", conflicts_with = "key")]
    pub(crate) id: Option<String>,
    /// All events of this ordering key instead, at most the newest 100.
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Search rows that were written, records that were published and dead letters that failed at
    /// this time or later: 2026-11-21T14:00:00Z, or an age (15m, 2h, 3d) [default: when the row was
    /// written, or 24h].
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// How long to search.
    #[arg(long, value_name = "DURATION", default_value = WITHIN_DEFAULT)]
    pub(crate) within: String,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
