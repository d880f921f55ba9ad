//! The arguments of `walrelay compare`.

use std::path::PathBuf;

use clap::Args;

use super::common::OutputArgs;

pub(super) const COMPARE_HELP: &str = "\
Runs the slot, then polling at each interval, under the same load, in a scratch schema, slot and
topic (or queue) that are removed at the end, also after Ctrl-C. The broker, the logins and
[delivery] are those of the configuration (except on_dead_letter, when_halted and state_file); its
tables, slot and topics are not used. Exits 1 if an event is missing. docs/compare.md describes what
is measured.

Examples:
  walrelay compare
  walrelay compare --rates 100,1000,5000 --intervals 200ms,1s --duration 1m --html compare.html
  walrelay compare --json | jq '.runs[] | {mode, interval_ms, rate, p99: .latency_ms.p99}'";

#[derive(Clone, Debug, Args)]
pub(crate) struct CompareArgs {
    /// Rates in events per second; each mode is run once at each rate.
    #[arg(long, value_name = "LIST", default_value = "100,1000")]
    pub(crate) rates: String,
    /// Polling intervals; none measures only the slot.
    #[arg(long, value_name = "LIST", default_value = "100ms,500ms,2s")]
    pub(crate) intervals: String,
    /// Duration of each run.
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub(crate) duration: String,
    /// Number of events in the backlog that each mode drains; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub(crate) backlog: u64,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Also write an HTML page with plots.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}
