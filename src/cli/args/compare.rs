//! The arguments of `walrelay compare`.

use std::path::PathBuf;

use clap::Args;

pub(super) const AFTER_HELP: &str = "\
Runs the slot, then polling at each interval, under the same load, in a scratch schema, slot and
topic (or queue) that are removed at the end, also after Ctrl-C. Broker, logins and [delivery] are
those of the configuration; its tables, slot and topics are left alone. Exits 1 when an event is
missing. docs/compare.md says what is measured.

Examples:
  walrelay compare
  walrelay compare --rates 100,1000,5000 --intervals 200ms,1s --duration 1m --html compare.html
  walrelay compare --json | jq '.runs[] | {mode, interval_ms, rate, p99: .latency_ms.p99}'";

#[derive(Clone, Debug, Args)]
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
    /// Write a page with plots, too.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}
